//! Maps the lines of `memory.stat` to positions in the kernel's counter arrays. The order differs between kernels and
//! BTF does not describe it, so it is learned by comparison and never guessed.
//!
//! ```text
//! line ── every position is a candidate ── differs from the file twice ── position ruled out
//!             └── do all candidates have the same value in this cgroup? ── yes ── value known ── no ── read the file
//! ```
//! A line does not need a single remaining candidate: on a host without swap all candidates for swap are 0. One
//! contradiction is not enough, because a value may rise and fall again while the file is read.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::file_replacement::PassRow;
use super::hierarchy::FileHierarchy;
use crate::host::hierarchy::CgroupVersion;
use crate::kernel::bpf::walk::RowValue;
use crate::kernel::cgroup::memory_stat::{self, MemoryStat};

/// Contradictions that rule out a position.
const MAX_CONTRADICTIONS: u8 = 2;
/// Longer arrays are not supported; the file is read.
const MOST: usize = 64;

/// A line of `memory.stat`, and the kernel's array that has its value.
struct StatLine {
    slot: fn(&mut MemoryStat) -> &mut Option<u64>,
    array: RowValue,
    /// The kernel counts pages, and prints bytes.
    pages: bool,
}

const fn line(slot: fn(&mut MemoryStat) -> &mut Option<u64>, array: RowValue, pages: bool) -> StatLine {
    StatLine { slot, array, pages }
}

const LINES: [StatLine; 12] = [
    line(|stat| &mut stat.anon, RowValue::MemoryState, true),
    line(|stat| &mut stat.file, RowValue::MemoryState, true),
    line(|stat| &mut stat.shmem, RowValue::MemoryState, true),
    line(|stat| &mut stat.mapped, RowValue::MemoryState, true),
    line(|stat| &mut stat.dirty, RowValue::MemoryState, true),
    line(|stat| &mut stat.swap, RowValue::MemoryState, true),
    line(|stat| &mut stat.kernel, RowValue::MemoryState, true),
    line(|stat| &mut stat.inactive_file, RowValue::MemoryState, true),
    line(|stat| &mut stat.refault_anon, RowValue::MemoryState, false),
    line(|stat| &mut stat.refault_file, RowValue::MemoryState, false),
    line(|stat| &mut stat.pgfault, RowValue::MemoryStateEvents, false),
    line(|stat| &mut stat.pgmajfault, RowValue::MemoryStateEvents, false),
];

impl StatLine {
    /// The value as the file prints it: negative counts become 0.
    fn printed(&self, word: u64) -> u64 {
        let count = u64::try_from(word.cast_signed()).unwrap_or_default();
        if self.pages {
            count.saturating_mul(u64::try_from(rustix::param::page_size()).unwrap_or_default())
        } else {
            count
        }
    }
}

/// The positions of all lines, as far as they were learned. Concurrency: the thread that takes a pass learns; any
/// thread reads.
pub(super) struct MemoryStatLayout {
    known: [LineMapping; LINES.len()],
    /// At least one file was compared.
    seen: AtomicBool,
}

/// What was learned of the position of one line.
struct LineMapping {
    /// The kernel prints this line.
    is_there: AtomicBool,
    /// Bit set of the candidate positions.
    candidates: AtomicU64,
    contradictions: [AtomicU8; MOST],
}

impl Default for MemoryStatLayout {
    fn default() -> MemoryStatLayout {
        let known = || LineMapping {
            is_there: AtomicBool::new(false),
            candidates: AtomicU64::new(u64::MAX),
            contradictions: [const { AtomicU8::new(0) }; MOST],
        };
        MemoryStatLayout { known: std::array::from_fn(|_| known()), seen: AtomicBool::new(false) }
    }
}

impl fmt::Debug for MemoryStatLayout {
    /// The candidates of each line that the kernel prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let there = self.known.iter().enumerate().filter(|(_, known)| known.is_there.load(Ordering::Relaxed));
        f.debug_map()
            .entries(there.map(|(n, known)| (n, format!("{:#x}", known.candidates.load(Ordering::Relaxed)))))
            .finish()
    }
}

impl MemoryStatLayout {
    /// Compares a file with the row of its cgroup, which was the same before and after. `text`: content of the file.
    pub(super) fn learn(&self, hierarchy: FileHierarchy, text: &[u8], row: PassRow<'_>) {
        let parse = if hierarchy.version() == CgroupVersion::V1 { memory_stat::v1 } else { memory_stat::v2 };
        let (mut stat, error) = parse(text);
        if error.is_some() {
            return;
        }
        for (line, known) in LINES.iter().zip(&self.known) {
            let (Some(reported), Some(words)) = (*(line.slot)(&mut stat), row.plan.words(row.words, line.array)) else {
                continue;
            };
            known.is_there.store(true, Ordering::Relaxed);
            for (n, (word, contradictions)) in words.iter().zip(&known.contradictions).enumerate() {
                let so_far = contradictions.load(Ordering::Relaxed);
                if line.printed(*word) == reported || so_far >= MAX_CONTRADICTIONS {
                    continue;
                }
                contradictions.store(so_far + 1, Ordering::Relaxed);
                if so_far + 1 == MAX_CONTRADICTIONS {
                    known.candidates.fetch_and(!(1 << n), Ordering::Relaxed);
                }
            }
        }
        self.seen.store(true, Ordering::Relaxed);
    }

    /// Values of `memory.stat` from the row. `None`: some lines are still ambiguous.
    pub(super) fn read(&self, row: PassRow<'_>) -> Option<MemoryStat> {
        let mut stat = MemoryStat::default();
        for (line, known) in LINES.iter().zip(&self.known) {
            let words = row.plan.words(row.words, line.array).filter(|words| words.len() <= MOST)?;
            if !known.is_there.load(Ordering::Relaxed) {
                continue;
            }
            let mut left = known.candidates.load(Ordering::Relaxed) & (u64::MAX >> (MOST - words.len().max(1)));
            let first = words.get(left.trailing_zeros() as usize)?;
            while left != 0 {
                if words.get(left.trailing_zeros() as usize)? != first {
                    return None;
                }
                left &= left - 1;
            }
            *(line.slot)(&mut stat) = Some(line.printed(*first));
        }
        self.seen.load(Ordering::Relaxed).then_some(stat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::bpf::walk::RowPlan;
    use crate::kernel::bpf::walk::tests::memory_plan;

    const PAGE: u64 = 4096;
    const V2: FileHierarchy = FileHierarchy::V2("memory");

    /// A plan with six states and three events.
    fn row(plan: &RowPlan, numbers: [u64; 9]) -> Vec<u64> {
        let mut words = vec![7, 1];
        words.extend(numbers);
        assert_eq!(u32::try_from(words.len() * 8), Ok(plan.row_bytes()));
        words
    }

    fn learn(lines: &MemoryStatLayout, plan: &RowPlan, text: &str, numbers: [u64; 9]) {
        let words = row(plan, numbers);
        lines.learn(V2, text.as_bytes(), PassRow { plan, words: &words });
    }
    fn read(lines: &MemoryStatLayout, plan: &RowPlan, numbers: [u64; 9]) -> Option<MemoryStat> {
        let words = row(plan, numbers);
        lines.read(PassRow { plan, words: &words })
    }

    #[test]
    fn a_line_is_reported_once_all_devices_behind_it_agree() {
        let (plan, lines) = (memory_plan(6, 3), MemoryStatLayout::default());
        assert_eq!(read(&lines, &plan, [0; 9]), None, "nothing was compared yet");
        let text = |anon: u64, faults: u64| format!("anon {}\nshmem 0\npgfault {faults}\n", anon * PAGE);
        learn(&lines, &plan, &text(5, 90), [5, 1, 5, 2, 0, 0, 90, 3, 90]);
        assert_eq!(read(&lines, &plan, [5, 1, 6, 2, 0, 0, 91, 3, 92]), None, "one comparison rules nothing out");
        learn(&lines, &plan, &text(6, 91), [6, 1, 8, 2, 0, 0, 91, 4, 97]);
        learn(&lines, &plan, &text(7, 93), [7, 1, 9, 2, 0, 0, 93, 5, 98]);
        let stat = read(&lines, &plan, [10, 1, 11, 2, 0, 0, 99, 5, 100]).expect("all is known");
        assert_eq!((stat.anon, stat.shmem, stat.pgfault), (Some(10 * PAGE), Some(0), Some(99)));
        assert_eq!((stat.swap, stat.file), (None, None), "what the kernel does not print is absent");
        // Two candidates for shared memory remain, with different values here.
        assert_eq!(read(&lines, &plan, [10, 1, 11, 2, 4, 0, 99, 5, 100]), None);
        learn(&lines, &plan, &text(7, 93).replace("shmem 0", "shmem 16384"), [7, 1, 9, 2, 4, 0, 93, 5, 98]);
        learn(&lines, &plan, &text(7, 93).replace("shmem 0", "shmem 16384"), [7, 1, 9, 2, 4, 0, 93, 5, 98]);
        let stat = read(&lines, &plan, [10, 1, 11, 2, 4, 0, 99, 5, 100]).expect("the line is unambiguous now");
        assert_eq!(stat.shmem, Some(4 * PAGE));
    }

    #[test]
    fn contradictory_stat_reading_is_tolerated_once_and_a_repeated_one_uses_the_file() {
        let (plan, lines) = (memory_plan(6, 3), MemoryStatLayout::default());
        let at = |n: u64| ([n, n + 1, n + 2, 0, 0, 0, 4, 5, 6], format!("anon {}\n", n * PAGE));
        for n in 1..9 {
            let (numbers, text) = at(n);
            learn(&lines, &plan, &text, numbers);
        }
        learn(&lines, &plan, "anon 0\n", at(9).0);
        assert_eq!(read(&lines, &plan, at(20).0).and_then(|stat| stat.anon), Some(20 * PAGE));
        learn(&lines, &plan, "anon 0\n", at(9).0);
        assert_eq!(read(&lines, &plan, at(20).0), None);
    }

    #[test]
    fn below_nothing_is_nothing_as_the_kernel_prints_it() {
        let (plan, lines) = (memory_plan(1, 1), MemoryStatLayout::default());
        let words = |n: i64| vec![7, 1, n.cast_unsigned(), 3];
        let row = |words: &[u64]| -> Option<u64> { lines.read(PassRow { plan: &plan, words })?.anon };
        lines.learn(V2, b"anon 8192\npgfault 3\n", PassRow { plan: &plan, words: &words(2) });
        assert_eq!((row(&words(2)), row(&words(-1))), (Some(2 * PAGE), Some(0)));
    }
}
