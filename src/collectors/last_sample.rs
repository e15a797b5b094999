//! The last sample: the supervisor reads the same files once more when the process tree is gone.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::cgroup::{above, depth};
use super::raw::RawValues;
use super::subjects::files;
use super::table::KernelFile;
use crate::host::hierarchy::Layout;
use crate::model::id::CgroupPath;
use crate::model::usage::{Field, Usage};

/// One file of the last sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalFile {
    /// Key for [`parse_final`]: `memory/memory.stat`, `unified/cpu.pressure`.
    pub key: String,
    pub path: PathBuf,
}

/// The files to read once when the last process of a cgroup is gone. Files that do not exist at that time are reported
/// as well: [`parse_final`] needs their errno.
pub fn final_files(layout: &Layout, path: &CgroupPath) -> Vec<FinalFile> {
    let mut found = Vec::new();
    for file in files().filter(|f| f.is_read_at_end()) {
        let Some(hierarchy) = file.hierarchy.find(layout) else { continue };
        let at = |up| hierarchy.mount.join(above(&path.relative(), up)).join(file.name);
        let levels = file.above.into_iter().flat_map(|above| above.up(depth(path)));
        found.extend(levels.map(|up| FinalFile { key: format!("{}@{up}", file.key()), path: at(up) }));
        found.push(FinalFile { key: file.key(), path: at(0) });
    }
    found
}

/// Reads the final values of a cgroup that still exists. Returns them with one message per unreadable file. Blocks for
/// the reads.
pub fn read_final(layout: &Layout, path: &CgroupPath) -> (Usage, Vec<String>) {
    let read = |path: &Path| std::fs::read(path).map_err(|e| e.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
    let files = final_files(layout, path).into_iter();
    parse_final(&files.map(|f| (f.key, read(&f.path))).collect::<Vec<_>>())
}

/// Parses the final files: key, and bytes or errno. Returns counters, peaks and limits without live gauges, and one
/// message per failure. A file that the kernel does not have is no failure, nor is a key from another version of this
/// program.
pub fn parse_final(files_read: &[(String, Result<Vec<u8>, i32>)]) -> (Usage, Vec<String>) {
    let mut raw = RawValues::default();
    let mut problems = Vec::new();
    let found = |key: &str| files_read.iter().find(|(k, _)| k == key).map(|(_, r)| r);
    let mut apply = |file: &KernelFile, key: &str, raw: &mut RawValues| {
        let bytes = match found(key) {
            None => return,
            Some(Ok(bytes)) => Some(bytes.as_slice()),
            Some(Err(errno)) => {
                let errno = Errno::from_raw_os_error(*errno);
                if !matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::OPNOTSUPP | Errno::NODEV) {
                    problems.push(format!("{key}: {}", std::io::Error::from(errno)));
                }
                None
            }
        };
        problems.extend(file.apply(raw, bytes).map(|e| e.to_string()));
    };
    for file in files() {
        let key = file.key();
        let prefix = format!("{key}@");
        if let Some(above) = file.above {
            let keys = files_read.iter().map(|(key, _)| key.as_str()).filter(|key| key.starts_with(&prefix));
            keys.for_each(|key| apply(above.file(), key, &mut raw));
        }
        apply(file, &key, &mut raw);
    }
    if !files_read.is_empty() && files_read.iter().all(|(_, r)| r.is_err()) {
        problems.push("the cgroup was removed before its last sample".to_owned());
    }
    let mut usage = raw.finish();
    if raw.peak_missing {
        usage.set(Field::memory_sampled_peak_bytes, usage.memory_usage_bytes());
    }
    (usage.without_live(), problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, Result<&str, i32>)]) -> (Usage, Vec<String>) {
        let owned: Vec<_> = files.iter().map(|(k, r)| ((*k).to_owned(), r.map(|t| t.as_bytes().to_vec()))).collect();
        parse_final(&owned)
    }

    #[test]
    fn last_sample_retains_counters_peaks_and_limits_and_drops_current_usage() {
        let (usage, problems) = read(&[
            ("memory/memory.usage_in_bytes", Ok("4096\n")),
            ("memory/memory.max_usage_in_bytes", Ok("209715200\n")),
            ("memory/memory.limit_in_bytes", Ok("268435456\n")),
            ("memory/memory.oom_control", Ok("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")),
            ("cpuacct/cpuacct.usage", Ok("123456789\n")),
            ("pids/pids.peak", Err(2)),
        ]);
        assert_eq!(problems, Vec::<String>::new());
        let all: Vec<_> = usage.iter().collect();
        let expected = [
            ("memory_peak_bytes", 209_715_200),
            ("memory_limit_bytes", 268_435_456),
            ("oom_kills", 1),
            ("cpu_usage_ns", 123_456_789),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn the_lowest_limit_above_counts_in_the_last_reading_too() {
        let (usage, _) = read(&[
            ("unified/memory.max", Ok("500\n")),
            ("unified/memory.max@1", Ok("300\n")),
            ("unified/memory.max@2", Ok("max\n")),
        ]);
        assert_eq!(usage.memory_limit_bytes(), Some(300));
    }

    #[test]
    fn zero_io_counters_of_a_kernel_that_counts_no_disk_are_absent() {
        let of = |root: &'static str| {
            let bytes = "blkio/blkio.throttle.io_service_bytes_recursive";
            let operations = ("blkio/blkio.throttle.io_serviced_recursive", Ok("Total 0\n"));
            read(&[(&format!("{bytes}@2"), Ok(root)), (bytes, Ok("Total 0\n")), operations]).0
        };
        assert_eq!(of("Total 0\n"), Usage::default());
        let counted = of("8:0 Read 0\n8:0 Write 0\n8:0 Total 0\nTotal 0\n");
        assert_eq!((counted.io_read_bytes(), counted.io_writes()), (Some(0), Some(0)));
    }

    #[test]
    fn unreadable_file_is_reported_and_affects_no_other_field() {
        let (usage, problems) = read(&[
            ("unified/memory.peak", Ok("12x\n")),
            ("unified/memory.current", Err(5)),
            ("unified/cpu.stat", Ok("usage_usec 7\n")),
        ]);
        assert_eq!(usage.iter().collect::<Vec<_>>(), [("cpu_usage_ns", 7000)]);
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[test]
    fn cgroup_removed_before_its_last_sample_is_reported_and_has_no_values() {
        let (usage, problems) = read(&[("unified/memory.peak", Err(2)), ("unified/cpu.stat", Err(2))]);
        assert_eq!(usage, Usage::default());
        assert_eq!(problems, ["the cgroup was removed before its last sample"]);
    }
}
