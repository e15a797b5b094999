//! `memory.stat`: memory by kind. The most expensive of the frequently read files: one pass over the lines, and only
//! wanted values are parsed.
//!
//! Source: v1 the `total_` lines (the whole subtree), v2 all lines (always the whole subtree). Units: bytes and events.

use crate::kernel::error::{ParseError, Parsed};
use crate::kernel::text::{digits, trim, unknown};

/// Absent: the kernel has no such line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryStat {
    /// v1 `rss`, v2 `anon`.
    pub anon: Option<u64>,
    /// Page cache, shared memory included: v1 `cache`, v2 `file`.
    pub file: Option<u64>,
    pub shmem: Option<u64>,
    /// v1 `mapped_file`, v2 `file_mapped`.
    pub mapped: Option<u64>,
    /// v1 `dirty`, v2 `file_dirty`.
    pub dirty: Option<u64>,
    /// v1 only; only with swap accounting.
    pub swap: Option<u64>,
    /// v2 only (5.18).
    pub kernel: Option<u64>,
    pub inactive_file: Option<u64>,
    pub pgfault: Option<u64>,
    pub pgmajfault: Option<u64>,
    /// v2 only (5.9). New kernels print undocumented v1 lines as well.
    pub refault_anon: Option<u64>,
    pub refault_file: Option<u64>,
    /// v1 only: the lowest limit up to the root.
    pub hierarchical_limit: Option<u64>,
}

pub fn v1(bytes: &[u8]) -> Parsed<MemoryStat> {
    parse(bytes, |stat, key| {
        let Some(total) = key.strip_prefix(b"total_") else {
            return (key == b"hierarchical_memory_limit").then_some(&mut stat.hierarchical_limit);
        };
        match total {
            b"rss" => Some(&mut stat.anon),
            b"cache" => Some(&mut stat.file),
            b"shmem" => Some(&mut stat.shmem),
            b"mapped_file" => Some(&mut stat.mapped),
            b"dirty" => Some(&mut stat.dirty),
            b"swap" => Some(&mut stat.swap),
            b"inactive_file" => Some(&mut stat.inactive_file),
            b"pgfault" => Some(&mut stat.pgfault),
            b"pgmajfault" => Some(&mut stat.pgmajfault),
            _ => None,
        }
    })
}

pub fn v2(bytes: &[u8]) -> Parsed<MemoryStat> {
    parse(bytes, |stat, key| match key {
        b"anon" => Some(&mut stat.anon),
        b"file" => Some(&mut stat.file),
        b"shmem" => Some(&mut stat.shmem),
        b"file_mapped" => Some(&mut stat.mapped),
        b"file_dirty" => Some(&mut stat.dirty),
        b"kernel" => Some(&mut stat.kernel),
        b"inactive_file" => Some(&mut stat.inactive_file),
        b"pgfault" => Some(&mut stat.pgfault),
        b"pgmajfault" => Some(&mut stat.pgmajfault),
        b"workingset_refault_anon" => Some(&mut stat.refault_anon),
        b"workingset_refault_file" => Some(&mut stat.refault_file),
        _ => None,
    })
}

fn parse(
    bytes: &[u8],
    fields: impl for<'a> Fn(&'a mut MemoryStat, &[u8]) -> Option<&'a mut Option<u64>>,
) -> Parsed<MemoryStat> {
    let mut stat = MemoryStat::default();
    let (mut error, mut any) = (None, false);
    for (index, line) in bytes.split(|b| *b == b'\n').enumerate() {
        let space = line.iter().position(|b| *b == b' ');
        let (key, value) = space.and_then(|at| line.get(..at).zip(line.get(at + 1..))).unwrap_or((line, &[]));
        let Some(slot) = fields(&mut stat, key) else { continue };
        any = true;
        *slot = digits(value);
        if slot.is_none() {
            error.get_or_insert_with(|| ParseError::new("memory.stat", index + 1, "a key and a number", trim(line)));
        }
    }
    let error = error.or_else(|| unknown("memory.stat", bytes, any, "a key and a number"));
    (stat, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn v1_takes_the_whole_subtree_and_v2_every_line() {
        let (stat, error) =
            v1(b"cache 1\nrss 2\nhierarchical_memory_limit 3\ntotal_cache 4\ntotal_rss 5\ntotal_pgfault 6\n");
        assert_eq!(error, None);
        assert_eq!((stat.file, stat.anon, stat.pgfault, stat.hierarchical_limit), (Some(4), Some(5), Some(6), Some(3)));
        assert_eq!(stat.swap, None, "no swap accounting: no line, no value");
        let (stat, error) = v2(b"anon 1\nfile 2\nfile_mapped 3\nworkingset_refault_file 4\nnew_in_7.0 5\n");
        assert_eq!(error, None);
        assert_eq!((stat.anon, stat.file, stat.mapped, stat.refault_file), (Some(1), Some(2), Some(3), Some(4)));
    }

    #[test]
    fn a_bad_number_costs_its_own_field_only() {
        let (stat, error) = v2(b"anon 1x\nfile 2\nshme");
        assert_eq!((stat.anon, stat.file), (None, Some(2)));
        assert_eq!(error.unwrap().to_string(), r#"memory.stat, line 1: expected a key and a number, found "anon 1x""#);
        let (_, error) = v2(b"anon 1\nshmem");
        assert_eq!(error.unwrap().line, 2, "a truncated line is an error");
    }

    proptest! {
        #[test]
        fn any_u64_survives(a: u64, b: u64) {
            let (stat, error) = v1(format!("total_rss {a}\ntotal_inactive_file {b}\n").as_bytes());
            prop_assert_eq!((stat.anon, stat.inactive_file, error), (Some(a), Some(b), None));
            let (stat, error) = v2(format!("anon {a}\ninactive_file {b}\n").as_bytes());
            prop_assert_eq!((stat.anon, stat.inactive_file, error), (Some(a), Some(b), None));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = (v1(&bytes), v2(&bytes));
        }
        #[test]
        fn no_line_like_text_panics(text in "(total_)?(rss|anon|cache|swap)? ?[0-9]{0,25}\n{0,2}") {
            let _ = (v1(text.as_bytes()), v2(text.as_bytes()));
        }
    }
}
