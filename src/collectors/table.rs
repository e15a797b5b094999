//! What a subject says about its kernel files: where each stands, when it can have changed, how its text becomes values.

use super::raw::Raw;
use crate::host::hierarchy::{Hierarchy, Layout, Version};
use crate::kernel::{ParseError, Parsed, text};

/// The hierarchy a file stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// The v1 hierarchy of this controller.
    V1(&'static str),
    /// The unified tree, if this controller belongs to it.
    V2(&'static str),
    /// The unified tree, whatever its controllers.
    Unified,
    /// The unified tree, unless this controller has a v1 hierarchy that tells the same more exactly.
    UnifiedUnlessV1(&'static str),
    /// The unified tree of a hybrid host, beside the v1 hierarchy of this controller.
    UnifiedBesideV1(&'static str),
}

impl Home {
    /// Where that is on this host; `None` where it is not.
    pub(super) fn find(self, layout: &Layout) -> Option<&Hierarchy> {
        let of = |controller, version| layout.controller(controller).filter(|h| h.version == version);
        match self {
            Home::V1(controller) => of(controller, Version::V1),
            Home::V2(controller) => of(controller, Version::V2),
            Home::Unified => layout.unified(),
            Home::UnifiedUnlessV1(controller) if of(controller, Version::V1).is_some() => None,
            Home::UnifiedUnlessV1(_) => layout.unified(),
            Home::UnifiedBesideV1(controller) => of(controller, Version::V1).and(layout.unified()),
        }
    }
    /// The first part of a key: the v1 controller, `unified` or `hybrid`.
    fn label(self) -> &'static str {
        match self {
            Home::V1(controller) => controller,
            Home::V2(_) | Home::Unified | Home::UnifiedUnlessV1(_) => "unified",
            // A key of its own: what the file means differs from what it means on a v2 host.
            Home::UnifiedBesideV1(_) => "hybrid",
        }
    }
}

/// When a file can have changed: what is read at a tick follows from it. In this order descriptors are kept open when there
/// are not enough for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum When {
    /// The probes: at every tick.
    Tick,
    /// Even while all its tasks sleep: reclaim, writeback, I/O that completes, a task that waits. Each 9 s, and whenever
    /// something moved.
    Asleep,
    /// Only if memory or CPU time moved.
    Stirred,
    /// Only if CPU time moved: somebody has to run for it.
    Ran,
    /// If somebody sets it: each 9 s if something moved meanwhile, else each 60 s.
    Set,
}

/// One kernel file of a cgroup.
#[derive(Debug)]
pub(super) struct File {
    pub(super) home: Home,
    pub(super) name: &'static str,
    pub(super) when: When,
    /// Read after the last process is gone, too: not a live gauge only.
    pub(super) at_end: bool,
    /// It tells nothing but what an alloc shows as the sum over its tasks (`Nature::TaskCounter`): not read of an alloc.
    pub(super) only_tasks: bool,
    /// `false`: another file has told it already.
    pub(super) needed: fn(&Raw) -> bool,
    /// Puts the file's text into the fields that are its own; `None`: there is no such file, so they are absent. Gives the
    /// first thing that could not be understood.
    pub(super) apply: fn(&mut Raw, Option<&[u8]>) -> Option<ParseError>,
}

impl File {
    pub(super) const fn new(
        home: Home,
        name: &'static str,
        when: When,
        apply: fn(&mut Raw, Option<&[u8]>) -> Option<ParseError>,
    ) -> File {
        File { home, name, when, at_end: true, only_tasks: false, needed: |_| true, apply }
    }
    pub(super) const fn only_live(mut self) -> File {
        self.at_end = false;
        self
    }
    pub(super) const fn only_tasks(mut self) -> File {
        self.only_tasks = true;
        self
    }
    pub(super) const fn if_needed(mut self, needed: fn(&Raw) -> bool) -> File {
        self.needed = needed;
        self
    }
    /// `memory/memory.stat`, `unified/cpu.pressure`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.home.label(), self.name)
    }
    pub(super) fn has_key(&self, key: &str) -> bool {
        key.strip_prefix(self.home.label()).and_then(|k| k.strip_prefix('/')) == Some(self.name)
    }
}

/// Every file of a cgroup, probes first.
pub(super) fn files() -> impl Iterator<Item = &'static File> {
    let tables =
        [super::memory::FILES, super::cpu::FILES, super::io::FILES, super::pids::FILES, super::pressure::FILES];
    let probes = tables.into_iter().flatten().filter(|f| f.when == When::Tick);
    probes.chain(tables.into_iter().flatten().filter(|f| f.when != When::Tick))
}

/// Of a file with one number.
pub(super) fn number(file: &'static str, bytes: Option<&[u8]>) -> Parsed<Option<u64>> {
    value(bytes, |b| text::single(file, b))
}

/// Of a file that is one value.
pub(super) fn value<T>(bytes: Option<&[u8]>, parse: impl Fn(&[u8]) -> Result<T, ParseError>) -> Parsed<Option<T>> {
    match bytes.map(parse) {
        None => (None, None),
        Some(Ok(value)) => (Some(value), None),
        Some(Err(error)) => (None, Some(error)),
    }
}

/// Of a file with several values, each of which may be missing.
pub(super) fn values<T: Default>(bytes: Option<&[u8]>, parse: impl Fn(&[u8]) -> Parsed<T>) -> Parsed<T> {
    bytes.map_or_else(|| (T::default(), None), parse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_files_share_a_key() {
        let keys: Vec<_> = files().map(File::key).collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
        assert!(files().all(|f| f.has_key(&f.key())));
    }

    #[test]
    fn a_file_that_is_not_there_leaves_nothing_behind() {
        for file in files() {
            let mut raw = Raw::default();
            assert_eq!((file.apply)(&mut raw, None), None, "{}", file.key());
            assert_eq!(raw.finish().iter().collect::<Vec<_>>(), [], "{}", file.key());
        }
    }

    #[test]
    fn binary_in_any_file_is_an_error_and_leaves_no_value_of_it() {
        for file in files() {
            let mut raw = Raw::default();
            assert!((file.apply)(&mut raw, Some(b"\xff\x00\x01 garbage\n")).is_some(), "{}", file.key());
            assert_eq!(raw.finish().iter().collect::<Vec<_>>(), [], "{}", file.key());
        }
    }

    /// What an alloc does not read it must not show as its own either.
    #[test]
    fn what_is_read_of_tasks_only_tells_what_an_alloc_takes_from_its_tasks() {
        let text = |name| match name {
            "cpuacct.usage_user" | "cpuacct.usage_sys" => "8\n",
            "cpuacct.stat" => "user 3\nsystem 4\n",
            "cpu.stat" => {
                "usage_usec 9\nuser_usec 4\nsystem_usec 5\nnr_periods 3\nnr_throttled 2\nthrottled_time 1500\nnr_bursts 1\nburst_time 4\n"
            }
            "memory.oom_control" => "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            "memory.events" => "low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 5\n",
            "io.stat" => "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n",
            "pids.events" => "max 7\n",
            "memory.failcnt" | "memory.memsw.failcnt" => "9\n",
            _ => "8:0 Read 1\n8:0 Write 2\n8:0 Sync 0\n8:0 Async 3\n8:0 Discard 4\n8:0 Total 3\nTotal 3\n",
        };
        for file in files().filter(|f| f.only_tasks) {
            let mut raw = Raw { quota: Some(crate::model::units::Limit::At(1)), ..Raw::default() };
            let before = raw.finish();
            assert_eq!((file.apply)(&mut raw, Some(text(file.name).as_bytes())), None, "{}", file.key());
            let mut after = raw.finish();
            // The second of the two counts only where there is the first.
            assert!(after != before || file.name == "memory.memsw.failcnt", "{} told nothing", file.key());
            after.take_from_tasks(&before);
            assert_eq!(after, before, "{}", file.key());
        }
    }
}
