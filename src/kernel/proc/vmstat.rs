//! `/proc/vmstat`, reduced to what the host's families need. Units: events; pages for swap.

use crate::kernel::error::Parsed;
use crate::kernel::text::pairs;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Vmstat {
    /// All page faults, those that waited for a disk included.
    pub faults: Option<u64>,
    pub major_faults: Option<u64>,
    pub swapped_in_pages: Option<u64>,
    pub swapped_out_pages: Option<u64>,
    /// Since 4.13.
    pub oom_kills: Option<u64>,
}

pub fn parse(bytes: &[u8]) -> Parsed<Vmstat> {
    let mut found = Vmstat::default();
    let error = pairs(
        "vmstat",
        bytes,
        &mut [
            ("pgfault", &mut found.faults),
            ("pgmajfault", &mut found.major_faults),
            ("pswpin", &mut found.swapped_in_pages),
            ("pswpout", &mut found.swapped_out_pages),
            ("oom_kill", &mut found.oom_kills),
        ],
    );
    (found, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_bad_line_costs_its_own_value_only() {
        let (found, error) = parse(b"nr_free_pages 9\npgfault 70\npgmajfault x\noom_kill 2\n");
        assert_eq!(found, Vmstat { faults: Some(70), oom_kills: Some(2), ..Vmstat::default() });
        assert!(error.unwrap().to_string().starts_with("vmstat, line 3: "));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
