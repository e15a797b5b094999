//! The reader on real cgroups, beside what the kernel's files say when they are read past it.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allostat::collectors::{FdBudget, FinalFile, ReadingError, Sampling, TaskReader, final_files, parse_final};
use allostat::host::cgroup::Cgroup;
use allostat::host::hierarchy::Layout;
use allostat::host::roots::Roots;
use allostat::model::id::CgroupPath;
use allostat::model::units::Timestamp;
use allostat::model::usage::Usage;
use common::{Cgroups, is_root, workload};

const MIB: u64 = 1 << 20;

/// One cgroup with real work in it, removed in the end.
struct Site {
    sampling: Arc<Sampling>,
    cgroup: Cgroup,
    path: CgroupPath,
    children: Vec<Child>,
    // Last: it removes what the children have left.
    _parent: Cgroups,
}

impl Site {
    fn new(budget: u64) -> Site {
        let layout = Layout::detect(&Roots::default()).expect("mountinfo is readable");
        let parent = Cgroups::new();
        let path = CgroupPath::from(parent.parent.as_str()).child("alloc").child("task");
        let cgroup = Cgroup::at(&layout, &path);
        cgroup.create().expect("root can make a cgroup");
        let sampling = Sampling::new(Roots::default(), layout, FdBudget::of(budget));
        Site { sampling, cgroup, path, children: Vec::new(), _parent: parent }
    }

    /// Starts work inside the cgroup, or inside `below` it, and waits until it has reached what it promises.
    fn work(&mut self, below: &str, words: &[&str]) -> u32 {
        // It joins before it executes, so that all that it does counts.
        let files: Vec<PathBuf> =
            self.cgroup.places.iter().map(|p| p.directory.join(below).join("cgroup.procs")).collect();
        let join: String = files.iter().map(|f| format!("echo $$ > {}; ", f.display())).collect();
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("{join} exec \"$0\" \"$@\""))
            .arg(workload())
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("it can be read");
        assert!(line.starts_with("ready"), "{words:?} said {line:?}");
        let pid = child.id();
        self.children.push(child);
        pid
    }

    fn reader(&self) -> TaskReader {
        TaskReader::for_cgroup(&self.sampling, self.path.clone())
    }

    /// The number in a file of the cgroup, under its name of v1 or v2.
    fn number(&self, v1: &str, v2: &str) -> Option<u64> {
        let mut found = self
            .cgroup
            .places
            .iter()
            .filter_map(|p| fs::read_to_string(p.directory.join(if p.unified { v2 } else { v1 })).ok());
        found.next()?.trim().parse().ok()
    }

    /// The last steps of an exit are charged after the process was reaped: waits until nothing is added any more.
    fn settle(&self) {
        let mut before = None;
        common::wait_for("the tail of the exits to be charged", Duration::from_secs(5) * common::patience(), || {
            std::thread::sleep(Duration::from_millis(20) * common::patience());
            let now = usage(&self.reader()).cpu_usage_ns;
            let same = before == Some(now);
            before = Some(now);
            same.then_some(())
        });
    }
    fn stop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.children.clear();
    }

    fn no_errors(&self) {
        let errors: Vec<_> = self.sampling.errors.iter().filter(|(_, n)| *n > 0).collect();
        assert_eq!(errors, [], "reading a sound cgroup fails nowhere");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop();
    }
}

fn usage(reader: &TaskReader) -> Arc<Usage> {
    reader.read(Instant::now(), Timestamp(1), true).expect("the cgroup is there").usage
}

#[test]
fn a_real_cgroup_reads_as_its_files_say_with_and_without_descriptors() {
    if !is_root() {
        skip_test!("not-root");
    }
    for budget in [1000, 0] {
        let mut site = Site::new(budget);
        let pid = site.work("", &["touch", "40", "60000"]);
        let reader = site.reader();
        let read = usage(&reader);
        let file = site.number("memory.usage_in_bytes", "memory.current").expect("there is a memory controller");
        let off = read.memory_usage_bytes.expect("it is read").abs_diff(file);
        assert!(off < MIB, "the task holds still, yet usage is {off} bytes off");
        assert!(read.memory_rss_bytes.expect("memory.stat is read") >= 40 * MIB);
        assert!(read.memory_working_set_bytes.expect("of the same tick") >= 40 * MIB);
        assert!(read.page_faults_minor.expect("memory.stat is read") >= 40 * 256 / 512, "huge pages at most");
        match site.number("memory.max_usage_in_bytes", "memory.peak") {
            Some(peak) => assert_eq!((read.memory_peak_bytes, read.memory_sampled_peak_bytes), (Some(peak), None)),
            None => assert!(read.memory_sampled_peak_bytes >= read.memory_usage_bytes),
        }
        assert_eq!((read.processes, read.pids_current), (Some(1), Some(1)));
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).expect("root may look").count();
        assert_eq!(read.open_fds, u64::try_from(fds).ok());
        assert_eq!((read.oom_kills, read.memory_limit_bytes, read.cpu_cfs_periods), (Some(0), None, None));
        assert!(read.cpu_usage_ns > Some(0));
        let modes = read.cpu_user_ns.zip(read.cpu_system_ns).map(|(user, system)| user + system);
        assert!(modes > Some(0), "user and system time are read");
        let used = if budget == 0 { 0..=0 } else { 15..=40 };
        assert!(used.contains(&site.sampling.budget.used()), "{}", site.sampling.budget.used());
        site.no_errors();
    }
}

#[test]
fn what_processes_leave_behind_is_still_read_and_a_removed_cgroup_is_gone_for_ever() {
    if !is_root() {
        skip_test!("not-root");
    }
    for budget in [1000, 0] {
        let mut site = Site::new(budget);
        site.work("", &["touch", "20", "60000"]);
        let reader = site.reader();
        let alive = usage(&reader);
        site.stop();
        site.settle();
        let ended = usage(&reader);
        assert_eq!((ended.processes, ended.pids_current, ended.open_fds), (Some(0), Some(0), Some(0)));
        assert!(ended.memory_usage_bytes < alive.memory_usage_bytes);
        assert!(ended.memory_peak_bytes >= alive.memory_peak_bytes);
        assert!(ended.cpu_usage_ns >= alive.cpu_usage_ns);

        let read_last: Vec<_> = final_files(&site.sampling.layout, &site.path)
            .into_iter()
            .map(|FinalFile { key, path }| {
                (key, fs::read(path).map_err(|e| e.raw_os_error().expect("it came from the system")))
            })
            .collect();
        let (last, problems) = parse_final(&read_last);
        assert_eq!(problems, Vec::<String>::new());
        let counters = |usage: &Usage| {
            usage.counters().iter().filter(|(name, _)| !name.starts_with("pressure")).collect::<Vec<_>>()
        };
        assert_eq!(counters(&last), counters(&ended), "the last reading is the same reading");
        assert_eq!(last.memory_peak_bytes, ended.memory_peak_bytes);

        site.cgroup.remove(Duration::from_secs(5)).expect("nothing is left in it");
        site.cgroup.create().expect("it can be made again");
        for seconds in [0, 1, 60] {
            let result = reader.read(Instant::now() + Duration::from_secs(seconds), Timestamp(2), false);
            assert!(matches!(result, Err(ReadingError::Gone)), "a fresh cgroup at the path is another attempt's");
        }
        assert_eq!(reader.latest().expect("it was read").usage, ended);
        assert_eq!(site.sampling.budget.used(), 0, "descriptors of a dead cgroup are given back");
        site.no_errors();
        let fresh = usage(&site.reader());
        assert_eq!(fresh.processes, Some(0));
    }
}

#[test]
fn processes_in_cgroups_that_a_task_made_count_as_its_own() {
    if !is_root() {
        skip_test!("not-root");
    }
    let mut site = Site::new(1000);
    for place in &site.cgroup.places {
        fs::create_dir_all(place.directory.join("own/deeper")).expect("root can make a cgroup");
    }
    site.work("own", &["hold", "60000"]);
    site.work("own/deeper", &["fork", "2", "60000"]);
    let read = usage(&site.reader());
    assert_eq!((read.processes, read.pids_current), (Some(4), Some(4)));
    site.no_errors();
}

#[test]
fn a_sleeping_task_costs_no_new_reading_and_a_waking_one_is_seen_at_once() {
    if !is_root() {
        skip_test!("not-root");
    }
    let mut site = Site::new(1000);
    site.work("", &["hold", "60000"]);
    let reader = site.reader();
    let start = Instant::now();
    let tick = |n| reader.read(start + Duration::from_secs(n), Timestamp(n), false).expect("the cgroup is there");
    let first = tick(0);
    let asleep: Vec<_> = (1..9).map(tick).collect();
    let same = asleep.windows(2).filter(|two| Arc::ptr_eq(&two[0].usage, &two[1].usage)).count();
    assert!(same >= 5, "nothing moves, yet only {same} of 7 ticks found that");
    site.work("", &["hold", "60000"]);
    let woken = tick(9);
    assert_eq!(woken.at, Timestamp(9));
    assert_eq!((first.usage.processes, woken.usage.processes), (Some(1), Some(2)));
    assert!(woken.usage.cpu_usage_ns > first.usage.cpu_usage_ns);
}
