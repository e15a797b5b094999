//! `/proc/PID/stat`: one process. Source: proc(5), fields counted from 1.

use crate::kernel::error::ParseError;
use crate::kernel::text::{digits, trim, words};

/// Units: times in clock ticks, `rss` in pages. `waited_`: of ended descendants that were waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PidStat {
    pub state: u8,
    pub parent: u32,
    /// Process group ID; 0 for kernel threads and processes that are being reaped.
    pub group: u32,
    pub minor_faults: u64,
    pub waited_minor_faults: u64,
    pub major_faults: u64,
    pub waited_major_faults: u64,
    pub user_ticks: u64,
    pub system_ticks: u64,
    pub waited_user_ticks: u64,
    pub waited_system_ticks: u64,
    pub threads: u64,
    /// Clock ticks from boot to its start; with the PID it identifies the process.
    pub start_ticks: u64,
    pub rss_pages: u64,
}

pub fn parse(bytes: &[u8]) -> Result<PidStat, ParseError> {
    let bad = |expected| ParseError::new("stat", 1, expected, trim(bytes));
    // The name in field 2 may contain spaces and parentheses: the last parenthesis ends it.
    let name_end = bytes.iter().rposition(|b| *b == b')').ok_or_else(|| bad("a name in parentheses"))?;
    let mut fields = words(trim(bytes.get(name_end + 1..).unwrap_or_default()));
    let state = fields.next().and_then(|w| w.first().copied()).ok_or_else(|| bad("a state"))?;
    let mut numbers: [Option<u64>; 21] = [None; 21];
    for (slot, word) in numbers.iter_mut().zip(fields) {
        *slot = digits(word);
    }
    // Field 4 is at index 0.
    let field = |number: usize| numbers.get(number - 4).copied().flatten().ok_or_else(|| bad("24 fields"));
    // The kernel prints -1 for a process that is being reaped.
    let group = if state == b'X' { field(5).unwrap_or(0) } else { field(5)? };
    Ok(PidStat {
        state,
        parent: u32::try_from(field(4)?).map_err(|_| bad("a parent"))?,
        group: u32::try_from(group).map_err(|_| bad("a process group"))?,
        minor_faults: field(10)?,
        waited_minor_faults: field(11)?,
        major_faults: field(12)?,
        waited_major_faults: field(13)?,
        user_ticks: field(14)?,
        system_ticks: field(15)?,
        waited_user_ticks: field(16)?,
        waited_system_ticks: field(17)?,
        threads: field(20)?,
        start_ticks: field(22)?,
        rss_pages: field(24)?,
    })
}

/// Field 2: the command name, 15 bytes of any kind. Invalid UTF-8 becomes `?`.
pub fn command(bytes: &[u8]) -> Option<String> {
    let (begin, end) = (bytes.iter().position(|b| *b == b'(')?, bytes.iter().rposition(|b| *b == b')')?);
    let name = bytes.get(begin + 1..end)?;
    Some(
        String::from_utf8_lossy(name)
            .chars()
            .map(|c| if c == char::REPLACEMENT_CHARACTER || c.is_control() { '?' } else { c })
            .collect(),
    )
}

/// Fields 48 and 49: start and end address of the arguments in process memory, NUL-separated (3.5). `None`: no
/// arguments, or no permission.
pub fn arguments(bytes: &[u8]) -> Option<(u64, u64)> {
    let name_end = bytes.iter().rposition(|b| *b == b')')?;
    let mut fields = words(trim(bytes.get(name_end + 1..)?)).skip(48 - 3);
    let (from, to) = (digits(fields.next()?)?, digits(fields.next()?)?);
    (0 < from && from < to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(name: &str, start: u64, rss: u64) -> String {
        format!(
            "42 ({name}) S 7 42 42 0 -1 4194304 94 1 2 3 10 11 12 13 20 0 5 0 {start} 5738496 {rss} 18446744073709551615 1\n"
        )
    }

    #[test]
    fn a_name_of_spaces_and_parentheses_moves_no_field() {
        let stat = parse(line("a) R (b", 99, 225).as_bytes()).unwrap();
        assert_eq!((stat.state, stat.parent, stat.threads, stat.start_ticks, stat.rss_pages), (b'S', 7, 5, 99, 225));
        assert_eq!((stat.minor_faults, stat.major_faults), (94, 2));
        assert_eq!((stat.user_ticks, stat.system_ticks), (10, 11));
        assert_eq!((stat.waited_user_ticks, stat.waited_system_ticks), (12, 13));
    }

    #[test]
    fn process_being_reaped_has_no_group_and_retains_its_start_time() {
        let text = line("sh", 99, 0).replace("S 7 42 42 0", "X 0 -1 -1 0");
        let stat = parse(text.as_bytes()).unwrap();
        assert_eq!((stat.state, stat.group, stat.start_ticks), (b'X', 0, 99));
        assert!(parse(text.replace(" X ", " S ").as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_u64_survives(start: u64, rss: u64) {
            let stat = parse(line("x", start, rss).as_bytes()).unwrap();
            prop_assert_eq!((stat.start_ticks, stat.rss_pages), (start, rss));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
        #[test]
        fn no_truncation_panics_or_passes(at in 0usize..70) {
            let text = line("x", 1, 2);
            prop_assert!(parse(&text.as_bytes()[..at.min(text.len())]).is_err());
        }
    }
}
