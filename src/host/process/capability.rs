//! Capabilities by their names. Source: capabilities(7), `include/uapi/linux/capability.h`.

use std::io;

use rustix::thread::capabilities;
use serde::{Deserialize, Serialize};

/// In the order of the kernel's numbers, without `CAP_`.
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// A set of capabilities, as the kernel's bit mask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities(u64);

impl Capabilities {
    pub const NONE: Capabilities = Capabilities(0);

    /// Every capability named here.
    pub fn all() -> Capabilities {
        Capabilities((1 << NAMES.len()) - 1)
    }

    /// Parses `net_raw`, `NET_RAW` or `CAP_NET_RAW`. `None`: unknown name.
    pub fn named(name: &str) -> Option<Capabilities> {
        let name = name.trim().to_ascii_lowercase();
        let name = name.strip_prefix("cap_").unwrap_or(&name);
        NAMES.iter().position(|known| *known == name).map(|number| Capabilities(1 << number))
    }

    /// The capabilities that this process can pass on.
    pub fn own() -> io::Result<Capabilities> {
        Ok(Capabilities(capabilities(None)?.permitted.bits()))
    }

    #[must_use]
    pub fn with(self, other: Capabilities) -> Capabilities {
        Capabilities(self.0 | other.0)
    }
    #[must_use]
    pub fn without(self, other: Capabilities) -> Capabilities {
        Capabilities(self.0 & !other.0)
    }
    #[must_use]
    pub fn common(self, other: Capabilities) -> Capabilities {
        Capabilities(self.0 & other.0)
    }
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    pub fn bits(self) -> u64 {
        self.0
    }
    /// In the order of the kernel's numbers.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().enumerate().filter(move |(number, _)| self.0 & (1 << number) != 0).map(|(_, name)| name)
    }
    pub fn all_names() -> &'static [&'static str] {
        &NAMES
    }
}

impl std::fmt::Display for Capabilities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(", "))
    }
}

impl FromIterator<Capabilities> for Capabilities {
    fn from_iter<T: IntoIterator<Item = Capabilities>>(sets: T) -> Capabilities {
        sets.into_iter().fold(Capabilities::NONE, Capabilities::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_the_kernels_number_and_is_read_in_each_form() {
        let number = |name: &str| Capabilities::named(name).map(|set| set.bits().trailing_zeros());
        assert_eq!(
            (number("chown"), number("NET_BIND_SERVICE"), number("CAP_SYS_ADMIN")),
            (Some(0), Some(10), Some(21))
        );
        assert_eq!((number("mknod"), number("checkpoint_restore")), (Some(27), Some(40)));
        assert_eq!((number("cap_"), number("all"), number("")), (None, None, None));
        for name in Capabilities::all_names() {
            assert_eq!(Capabilities::named(name).unwrap().names().collect::<Vec<_>>(), [*name]);
        }
        assert_eq!(Capabilities::all().names().count(), NAMES.len());
    }
}
