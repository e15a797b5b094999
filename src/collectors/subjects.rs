//! All subjects of a task: their files and measures.

use std::sync::LazyLock;

use super::table::{KernelFile, SubjectFiles};
use super::{cpu, io, memory, network, pids, pressure};
use crate::model::measure::{ChangeTrigger, Measure};
use crate::model::usage::{Field, Usage};

/// All of them.
pub(super) static SUBJECTS: [&SubjectFiles; 6] =
    [&memory::SUBJECT, &cpu::SUBJECT, &io::SUBJECT, &pids::SUBJECT, &network::SUBJECT, &pressure::SUBJECT];

static FILES: LazyLock<Vec<KernelFile>> = LazyLock::new(|| {
    let of = |subject: &&'static SubjectFiles| {
        subject.files.iter().copied().chain(subject.measures.iter().flat_map(KernelFile::of))
    };
    let (probes, rest): (Vec<KernelFile>, Vec<KernelFile>) =
        SUBJECTS.iter().flat_map(of).partition(|f| f.when == ChangeTrigger::Tick);
    [probes, rest].concat().into_iter().enumerate().map(|(place, file)| file.at(place)).collect()
});

/// Every measure of a task.
pub fn measures() -> impl Iterator<Item = &'static Measure<Usage>> {
    SUBJECTS.iter().flat_map(|subject| subject.measures)
}

/// The measures that a cgroup counts for everything below it.
pub fn shared_measures() -> impl Iterator<Item = &'static Measure<Usage>> {
    let shared = files().filter(|file| !file.is_local()).flat_map(|file| file.fields);
    let usage = shared.fold(Usage::default(), |usage, field| usage.with(*field, 1));
    measures().filter(move |measure| measure.cells.iter().any(|cell| (cell.get)(&usage).is_some()))
}

/// Every file of a cgroup, probe files first.
pub(super) fn files() -> impl Iterator<Item = &'static KernelFile> {
    FILES.iter()
}

/// The fields that come from a file of this name, on either cgroup version.
pub fn fields_of(file: &str) -> impl Iterator<Item = Field> {
    files().filter(move |f| f.name == file).flat_map(|f| f.fields.iter().copied())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::raw::RawValues;
    use super::*;
    use crate::model::measure::Cell;

    #[test]
    fn cells_of_one_measure_have_equal_nature_and_unit() {
        let seen = |cell: &Cell<Usage>| {
            let nature = cell.nature;
            (nature.kind(), nature.life(), nature.is_summed(), nature.is_of_allocs(), cell.unit)
        };
        for measure in measures() {
            let all: BTreeSet<String> = measure.cells.iter().map(|cell| format!("{:?}", seen(cell))).collect();
            assert_eq!(all.len(), 1, "{}: {all:?}", measure.stem);
        }
    }

    #[test]
    fn each_field_is_shown_once() {
        for field in Field::ALL {
            let usage = Usage::from([(field, 7)]);
            let shown = measures().flat_map(|measure| measure.cells).filter(|cell| (cell.get)(&usage).is_some());
            // These two are shown together, as cores.
            let alone = !matches!(field, Field::cpu_quota_us | Field::cpu_period_us);
            assert_eq!(shown.count(), usize::from(alone), "{field:?}");
        }
    }

    #[test]
    fn no_two_files_share_a_key() {
        let keys: Vec<_> = files().map(KernelFile::key).collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
        assert!(files().all(|f| f.has_key(&f.key())));
    }

    #[test]
    fn a_file_that_is_not_there_leaves_nothing_behind() {
        for file in files() {
            let mut raw = RawValues::default();
            assert_eq!(file.apply(&mut raw, None), None, "{}", file.key());
            assert_eq!(raw.finish().iter().collect::<Vec<_>>(), [], "{}", file.key());
        }
    }

    #[test]
    fn binary_in_any_file_is_an_error_and_leaves_no_value_of_it() {
        for file in files() {
            let mut raw = RawValues::default();
            assert!(file.apply(&mut raw, Some(b"\xff\x00\x01 garbage\n")).is_some(), "{}", file.key());
            assert_eq!(raw.finish().iter().collect::<Vec<_>>(), [], "{}", file.key());
        }
    }

    /// An alloc must not expose as its own what it does not read.
    #[test]
    fn alloc_takes_from_its_tasks_what_is_read_of_tasks_alone() {
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
        for file in files().filter(|f| f.is_of_tasks_only()) {
            let mut raw = RawValues { quota: Some(crate::model::units::Limit::At(1)), ..RawValues::default() };
            let before = raw.finish();
            assert_eq!(file.apply(&mut raw, Some(text(file.name).as_bytes())), None, "{}", file.key());
            let mut after = raw.finish();
            // The second counter is shown only with the first.
            assert!(after != before || file.name == "memory.memsw.failcnt", "{} set no field", file.key());
            after.take_from_tasks(&before);
            assert_eq!(after, before, "{}", file.key());
        }
    }
}
