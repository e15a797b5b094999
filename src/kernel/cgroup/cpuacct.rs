//! `cpuacct.stat`: user and system time in clock ticks, where the kernel has no `cpuacct.usage_user`.
//!
//! Source: v1 only.

use crate::kernel::error::Parsed;
use crate::kernel::text::pairs;

/// Units: clock ticks (USER_HZ).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuacctStat {
    pub user_ticks: Option<u64>,
    pub system_ticks: Option<u64>,
}

pub fn stat(bytes: &[u8]) -> Parsed<CpuacctStat> {
    let mut stat = CpuacctStat::default();
    let fields = &mut [("user", &mut stat.user_ticks), ("system", &mut stat.system_ticks)];
    let error = pairs("cpuacct.stat", bytes, fields);
    (stat, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_u64_survives(user: u64, system: u64) {
            let expected = CpuacctStat { user_ticks: Some(user), system_ticks: Some(system) };
            prop_assert_eq!(stat(format!("user {user}\nsystem {system}\n").as_bytes()), (expected, None));
        }
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = stat(&bytes);
        }
    }
}
