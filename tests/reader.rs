//! The reader on real cgroups, beside what the kernel's files say when they are read past it.

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Cgroups, is_root, patience, work_in};
use allostat::collectors::{
    FdBudget, FinalFile, ReadingError, SamplingContext, TaskReader, capability, final_files, parse_final, stored_peak,
};
use allostat::host::cgroup::Cgroup;
use allostat::host::hierarchy::Layout;
use allostat::host::roots::Roots;
use allostat::model::id::CgroupPath;
use allostat::model::units::Timestamp;
use allostat::model::usage::Usage;

const MIB: u64 = 1 << 20;

/// One cgroup with real work in it, removed in the end.
struct Site {
    sampling: Arc<SamplingContext>,
    cgroup: Cgroup,
    path: CgroupPath,
    children: Vec<Child>,
    // Last: it removes what the children have left.
    _parent: Cgroups,
}

impl Site {
    fn new(budget: u64) -> Site {
        Site::with_windows(budget, false)
    }
    /// `windows`: its readers reset the kernel's memory peaks.
    fn with_windows(budget: u64, windows: bool) -> Site {
        let layout = Layout::detect(&Roots::default()).expect("mountinfo is readable");
        let parent = Cgroups::new();
        let path = CgroupPath::from(parent.parent.as_str()).child("alloc").child("task");
        let cgroup = Cgroup::at(&layout, &path);
        cgroup.create().expect("root can make a cgroup");
        let sampling = SamplingContext::with_window_peaks(Roots::default(), layout, FdBudget::of(budget), windows);
        Site { sampling, cgroup, path, children: Vec::new(), _parent: parent }
    }

    /// Starts work inside the cgroup, or inside `below` it, and waits until it has reached what it promises.
    fn work(&mut self, below: &str, words: &[&str]) -> u32 {
        let directories: Vec<PathBuf> = self.cgroup.places.iter().map(|p| p.directory.join(below)).collect();
        let (child, line) = work_in(directories.iter().map(PathBuf::as_path), words);
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

    /// Touches so much inside the cgroup, and gives it back at once.
    fn spike(&mut self, mib: &str) {
        self.work("", &["spike", mib, "1"]);
        let mut child = self.children.pop().expect("it was started");
        child.wait().expect("it ends");
    }

    /// Whether the peaks of this cgroup can be reset: on v2 the kernel says so by the mode of the file.
    fn can_reset(&self) -> Result<(), String> {
        let parent = CgroupPath::from(self._parent.parent.as_str());
        let all = capability::probe(&self.sampling.roots, &self.sampling.layout, &parent, true);
        let found = all.into_iter().find(|c| c.feature == capability::WINDOW_PEAK).expect("it is always listed");
        if found.available { Ok(()) } else { Err(found.reason) }
    }

    /// The last steps of an exit are charged after the process was reaped: waits until nothing is added any more.
    fn settle(&self) {
        let mut before = None;
        crate::common::wait_for(
            "the tail of the exits to be charged",
            Duration::from_secs(5) * crate::common::patience(),
            || {
                std::thread::sleep(Duration::from_millis(if crate::common::place() == "host" { 20 } else { 200 }));
                let now = usage(&self.reader()).cpu_usage_ns();
                let same = before == Some(now);
                before = Some(now);
                same.then_some(())
            },
        );
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
fn real_cgroup_readings_equal_its_files_with_and_without_descriptors() {
    if !is_root() {
        skip_test!("not-root");
    }
    for budget in [1000, 0] {
        let mut site = Site::new(budget);
        let pid = site.work("", &["touch", "40", "60000"]);
        let reader = site.reader();
        let read = usage(&reader);
        let file = site.number("memory.usage_in_bytes", "memory.current").expect("there is a memory controller");
        let off = read.memory_usage_bytes().expect("it is read").abs_diff(file);
        assert!(off < MIB, "the task holds still, yet usage is {off} bytes off");
        assert!(read.memory_rss_bytes().expect("memory.stat is read") >= 40 * MIB);
        assert!(read.memory_working_set_bytes().expect("of the same tick") >= 40 * MIB);
        assert!(read.page_faults_minor().expect("memory.stat is read") >= 40 * 256 / 512, "huge pages at most");
        match site.number("memory.max_usage_in_bytes", "memory.peak") {
            Some(peak) => assert_eq!((read.memory_peak_bytes(), read.memory_sampled_peak_bytes()), (Some(peak), None)),
            None => assert!(read.memory_sampled_peak_bytes() >= read.memory_usage_bytes()),
        }
        assert_eq!((read.processes(), read.pids_current()), (Some(1), Some(1)));
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).expect("root may look").count();
        assert_eq!(read.open_fds(), u64::try_from(fds).ok());
        assert_eq!((read.oom_kills(), read.memory_limit_bytes(), read.cpu_cfs_periods()), (Some(0), None, None));
        assert!(read.cpu_usage_ns() > Some(0));
        let modes = read.cpu_user_ns().zip(read.cpu_system_ns()).map(|(user, system)| user + system);
        assert!(modes > Some(0), "user and system time are read");
        let used = if budget == 0 { 0..=0 } else { 15..=40 };
        assert!(used.contains(&site.sampling.budget.used()), "{}", site.sampling.budget.used());
        site.no_errors();
    }
}

/// Other tests may set a rule, or take the last one away, at the same time.
#[test]
fn io_is_present_where_the_kernel_counts_it_and_else_absent_with_a_reason() {
    if !is_root() {
        skip_test!("not-root");
    }
    let site = Site::new(1000);
    let parent = CgroupPath::from(site._parent.parent.as_str());
    crate::common::wait_for(
        "the kernel, the values and the reason to say the same",
        Duration::from_secs(20) * crate::common::patience(),
        || {
            let expected = crate::common::counts_io();
            let read = usage(&site.reader());
            let all = capability::probe(&site.sampling.roots, &site.sampling.layout, &parent, true);
            let listed = all.into_iter().find(|c| c.feature == "io").expect("it is always listed");
            let shown = [read.io_read_bytes(), read.io_written_bytes(), read.io_reads(), read.io_writes()];
            let is_so = shown.iter().all(|value| value.is_some() == expected) && listed.available == expected;
            (is_so && listed.reason.is_empty() == expected).then_some(())
        },
    );
}

#[test]
fn cgroup_without_processes_is_still_read_and_a_removed_one_is_gone_for_good() {
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
        assert_eq!((ended.processes(), ended.pids_current(), ended.open_fds()), (Some(0), Some(0), Some(0)));
        assert!(ended.memory_usage_bytes() < alive.memory_usage_bytes());
        assert!(ended.memory_peak_bytes() >= alive.memory_peak_bytes());
        assert!(ended.cpu_usage_ns() >= alive.cpu_usage_ns());

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
        assert_eq!(last.memory_peak_bytes(), ended.memory_peak_bytes());

        site.cgroup.remove(Duration::from_secs(5) * patience()).expect("nothing is left in it");
        site.cgroup.create().expect("it can be made again");
        for seconds in [0, 1, 60] {
            let result = reader.read(Instant::now() + Duration::from_secs(seconds), Timestamp(2), false);
            assert!(matches!(result, Err(ReadingError::Removed)), "a fresh cgroup at the path is another attempt's");
        }
        assert_eq!(reader.latest().expect("it was read").usage, ended);
        assert_eq!(site.sampling.budget.used(), 0, "descriptors of a dead cgroup are given back");
        site.no_errors();
        let fresh = usage(&site.reader());
        assert_eq!(fresh.processes(), Some(0));
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
    assert_eq!((read.processes(), read.pids_current()), (Some(4), Some(4)));
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
    assert_eq!((first.usage.processes(), woken.usage.processes()), (Some(1), Some(2)));
    assert!(woken.usage.cpu_usage_ns() > first.usage.cpu_usage_ns());
}

/// What is read so many seconds after the first reading, which was `began`.
fn after(reader: &TaskReader, began: Instant, seconds: u64) -> Arc<Usage> {
    reader.read(began + Duration::from_secs(seconds), Timestamp(1), false).expect("the cgroup is there").usage
}

/// Promise (Measured values): A spike between two samples is in the window peak of task and alloc, where the kernel
/// reports it
#[test]
fn a_spike_between_two_samples_is_in_the_window_peak_and_a_minute_later_it_is_not() {
    if !is_root() {
        skip_test!("not-root");
    }
    let mut site = Site::with_windows(1000, true);
    site.work("", &["touch", "10", "60000"]);
    let (reader, began) = (site.reader(), Instant::now());
    if let Err(why) = site.can_reset() {
        assert_eq!(crate::common::place(), "v2-6.1", "{why}");
        assert!(why.contains("it needs kernel 6.12"), "{why}");
        site.spike("60");
        let never = (0..30).all(|s| after(&reader, began, s * 5).memory_window_peak_bytes().is_none());
        assert!(never, "absent, not 0 and not the lifetime peak");
        return;
    }
    assert_eq!(after(&reader, began, 0).memory_window_peak_bytes(), None, "no sub-window has ended");
    let quiet = after(&reader, began, 5).memory_window_peak_bytes().expect("one has ended");
    assert!((10 * MIB..20 * MIB).contains(&quiet), "{quiet}");

    site.spike("60");
    let spiked = after(&reader, began, 10);
    assert!(spiked.memory_usage_bytes() < Some(20 * MIB), "it is over: {spiked:?}");
    let window = spiked.memory_window_peak_bytes().expect("the second has ended");
    assert!((70 * MIB..90 * MIB).contains(&window), "{window}");
    for seconds in 11..70 {
        let seen = after(&reader, began, seconds).memory_window_peak_bytes();
        assert_eq!(seen, Some(window), "{seconds} s after the beginning: a scraper that comes once a minute sees it");
    }
    let last = after(&reader, began, 70);
    assert!(last.memory_window_peak_bytes() < Some(20 * MIB), "60 s after its sub-window ended: {last:?}");
    assert!(last.memory_peak_bytes() >= Some(window), "the lifetime peak is a lifetime's: {last:?}");
    site.no_errors();

    // The next agent has only what the kernel and the cgroup say.
    drop(reader);
    let (reader, began) = (site.reader().preexisting(), Instant::now());
    let next = after(&reader, began, 0);
    assert!(next.memory_peak_bytes() >= Some(window), "{next:?}");
    for seconds in 0..60 {
        let next = after(&reader, began, seconds).memory_window_peak_bytes();
        assert_eq!(next, None, "{seconds} s: what came before this agent may have been higher");
    }
    let known = after(&reader, began, 65).memory_window_peak_bytes().expect("a minute was looked at");
    assert!((10 * MIB..20 * MIB).contains(&known), "{known}");
}

/// The peak of the file is one since the last reset then; what was kept beside it is as old as the cgroup.
#[test]
fn v1_lifetime_peak_is_saved_before_each_reset_and_is_removed_with_the_cgroup() {
    if !is_root() {
        skip_test!("not-root");
    }
    let mut site = Site::with_windows(0, true);
    if crate::common::mounted_v1("memory").is_none() {
        assert_eq!(stored_peak(&site.sampling.layout, &site.path), None, "no peak of an observed cgroup is reset");
        return;
    }
    site.work("", &["touch", "10", "60000"]);
    site.spike("60");
    let (reader, began) = (site.reader(), Instant::now());
    assert!(after(&reader, began, 0).memory_peak_bytes() >= Some(70 * MIB));
    site.spike("30");
    let whole = after(&reader, began, 5);
    assert_eq!(
        whole.memory_window_peak_bytes(),
        whole.memory_peak_bytes(),
        "its first sub-window began with the cgroup"
    );
    let spiked = (2..=12).map(|n| after(&reader, began, n * 5)).last().expect("a minute");
    assert!(spiked.memory_window_peak_bytes() < Some(60 * MIB), "only since the first reset: {spiked:?}");
    assert!(spiked.memory_window_peak_bytes() >= Some(40 * MIB), "{spiked:?}");
    let file = site.number("memory.max_usage_in_bytes", "").expect("it is v1");
    assert!(file < 20 * MIB, "it was reset: {file}");
    let retained = stored_peak(&site.sampling.layout, &site.path);
    assert!(retained >= Some(70 * MIB) && spiked.memory_peak_bytes() == retained, "{retained:?}, {spiked:?}");

    // An agent that may not reset any more still knows it.
    let plain =
        SamplingContext::new(Roots::default(), Layout::detect(&Roots::default()).expect("as before"), FdBudget::of(0));
    let reader = TaskReader::for_cgroup(&plain, site.path.clone());
    assert_eq!(usage(&reader).memory_peak_bytes(), retained);
}

#[test]
fn v2_window_peak_without_descriptors_is_absent_and_other_values_are_present() {
    if !is_root() {
        skip_test!("not-root");
    }
    let mut site = Site::with_windows(0, true);
    site.work("", &["touch", "10", "60000"]);
    let (reader, began) = (site.reader(), Instant::now());
    let read: Vec<_> = (0..4).map(|n| after(&reader, began, n * 5)).collect();
    let of_v1 = crate::common::mounted_v1("memory").is_some();
    assert_eq!(read[3].memory_window_peak_bytes().is_some(), of_v1, "v1 keeps none for it");
    assert!(read[3].memory_usage_bytes() >= Some(10 * MIB));
    assert_eq!(site.sampling.budget.used(), 0);
    site.no_errors();
}
