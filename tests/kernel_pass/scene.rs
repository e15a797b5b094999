//! A parent with two tasks, and readings of them by rows and by files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Instant;

use allostat::collectors::{FdBudget, KernelPass, KernelPassError, SamplingContext, TaskReader};
use allostat::host::cgroup::Cgroup;
use allostat::host::hierarchy::{CgroupVersion, Layout};
use allostat::host::roots::Roots;
use allostat::model::id::CgroupPath;
use allostat::model::units::Timestamp;
use allostat::model::usage::{Field, Usage};

use crate::common::{Cgroups, work_in};

/// Modes of CPU time are divided in the proportion of clock ticks; there are 250 a second or fewer.
pub const MODES_NS: u64 = 100_000_000;

/// A parent with two tasks; one of them works.
pub struct Scene {
    pub layout: Layout,
    pub parent: CgroupPath,
    pub tasks: Vec<(CgroupPath, Cgroup)>,
    pub children: Vec<Child>,
    /// What holds the kernel memory of [`Scene::idle`].
    held: Option<tempfile::TempDir>,
    // Last: it removes what the children have left.
    _cgroups: Cgroups,
}

impl Scene {
    pub fn new() -> Scene {
        let layout = Layout::detect(&Roots::default()).expect("mountinfo is readable");
        let cgroups = Cgroups::new();
        let parent = CgroupPath::from(cgroups.parent.as_str());
        let task = |name: &str| {
            let path = parent.child("alloc").child(name);
            let cgroup = Cgroup::at(&layout, &path);
            cgroup.create().expect("root can make a cgroup");
            (path, cgroup)
        };
        let tasks = ["busy", "still"].map(task).into();
        Scene { layout, parent, tasks, children: Vec::new(), held: None, _cgroups: cgroups }
    }

    pub fn directory(&self, task: usize, v1: &str) -> Option<PathBuf> {
        let home = self.layout.controller(v1)?;
        Some(home.mount.join(self.tasks[task].0.relative()))
    }
    /// A number of what the quota of the busy task has cost it.
    pub fn cpu_stat(&self, key: &str) -> Option<u64> {
        let text = fs::read_to_string(self.directory(0, "cpu")?.join("cpu.stat")).ok()?;
        text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
    }
    /// Sets a file of a task under its name of v1 or v2.
    pub fn set(&self, task: usize, controller: &str, file: [&str; 2], value: [&str; 2]) {
        let v2 = self.layout.controller(controller).is_none_or(|home| home.mount.join("cgroup.controllers").exists());
        let controller = if v2 && controller == "cpuacct" { "cpu" } else { controller };
        let directory = self.directory(task, controller).expect("there is such a controller");
        fs::write(directory.join(file[usize::from(v2)]), value[usize::from(v2)]).expect("root may set it");
    }

    pub fn work(&mut self, task: usize, words: &[&str]) {
        let directories = self.tasks[task].1.places.iter().map(|place| place.directory.as_path());
        self.children.push(work_in(directories, words).0);
    }

    /// A burst that is throttled, refused memory and killed for it, forks, and gives memory back.
    pub fn suffer(&mut self) {
        self.set(0, "cpu", ["cpu.cfs_quota_us", "cpu.max"], ["20000", "20000 100000"]);
        self.set(0, "memory", ["memory.limit_in_bytes", "memory.max"], ["33554432", "33554432"]);
        self.work(0, &["burn", "700", "2"]);
        self.work(0, &["touch", "64", "60000"]);
        self.work(0, &["spike", "12", "60000"]);
        self.work(0, &["fork", "3", "60000"]);
        self.work(1, &["touch", "21", "60000"]);
    }

    /// More cgroups than there are otherwise, whose memory is all the kernel's: of v1 two files say the same there.
    pub fn idle(&mut self) {
        let Some(memory) = self.layout.controller("memory").filter(|home| home.version == CgroupVersion::V1) else {
            return;
        };
        let held = tempfile::tempdir_in("/dev/shm").expect("there is memory to write to");
        for n in 0..16 {
            let directory = memory.directory(self.parent.child("idle").child(&n.to_string()).as_str());
            fs::create_dir_all(&directory).expect("root can make a cgroup");
            let made = "echo $$ > $1/cgroup.procs && for i in $(seq 40); do mkdir $2/$3-$i; done";
            let words = [directory.as_path(), held.path(), Path::new(&n.to_string())].map(Path::to_path_buf);
            let made = Command::new("sh").args(["-c", made, "sh"]).args(words).status();
            assert!(made.is_ok_and(|status| status.success()), "directories are made");
            fs::write(directory.join("memory.force_empty"), "0").expect("no process is left there");
        }
        self.held = Some(held);
    }

    pub fn sampling(&self) -> Arc<SamplingContext> {
        let layout = Layout::detect(&Roots::default()).expect("mountinfo is readable");
        // No descriptor is kept, so that each file that is read is counted.
        SamplingContext::new(Roots::default(), layout, FdBudget::of(0))
    }

    /// The same with a kernel pass.
    pub fn sampling_by_rows(&self, description: &[u8]) -> Arc<SamplingContext> {
        let sampling = self.sampling();
        sampling.set_kernel_pass(self.open(description).unwrap_or_else(|why| panic!("{}", why.reason())));
        sampling
    }

    pub fn open(&self, description: &[u8]) -> Result<KernelPass, KernelPassError> {
        self.open_at(description, &self.parent)
    }
    pub fn open_at(&self, description: &[u8], top: &CgroupPath) -> Result<KernelPass, KernelPassError> {
        KernelPass::described(description, &Roots::default(), &self.layout, top)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn read(reader: &TaskReader, now: Instant) -> Arc<Usage> {
    reader.read(now, Timestamp(1), true).expect("the cgroup is there").usage
}

/// By rows of this very moment, if there are any.
pub fn read_at(reader: &TaskReader, now: Instant) -> Arc<Usage> {
    reader.read(now, Timestamp(2), false).expect("the cgroup is there").usage
}

/// One reading by rows, between two by files.
pub fn between(sampling: &SamplingContext, passed: &TaskReader, plain: &TaskReader) -> [Arc<Usage>; 3] {
    let before = read(plain, Instant::now());
    let now = Instant::now();
    sampling.take_pass(now);
    let by_rows = read(passed, now);
    [before, by_rows, read(plain, Instant::now())]
}

/// What of the reading in the middle is not between the other two.
pub fn outside([before, rows, after]: &[Arc<Usage>; 3]) -> Vec<String> {
    let mut wrong = Vec::new();
    for field in Field::ALL {
        let all = (before.get(field), rows.get(field), after.get(field));
        let inside = match all {
            (Some(before), Some(rows), Some(after)) => {
                let slack = if matches!(field, Field::cpu_user_ns | Field::cpu_system_ns) { MODES_NS } else { 0 };
                before.min(after).saturating_sub(slack) <= rows && rows <= before.max(after).saturating_add(slack)
            }
            (before, rows, after) => before.is_some() == rows.is_some() && rows.is_some() == after.is_some(),
        };
        if !inside {
            wrong.push(format!("{}: {all:?}", field.name()));
        }
    }
    wrong
}
