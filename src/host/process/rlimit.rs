//! Resource limits of a process and its children. Source: setrlimit(2).

use serde::{Deserialize, Serialize};

/// All Linux limits, by the names that `docker run --ulimit` uses.
pub const RESOURCES: [(&str, u32); 16] = [
    ("as", libc::RLIMIT_AS),
    ("core", libc::RLIMIT_CORE),
    ("cpu", libc::RLIMIT_CPU),
    ("data", libc::RLIMIT_DATA),
    ("fsize", libc::RLIMIT_FSIZE),
    ("locks", libc::RLIMIT_LOCKS),
    ("memlock", libc::RLIMIT_MEMLOCK),
    ("msgqueue", libc::RLIMIT_MSGQUEUE),
    ("nice", libc::RLIMIT_NICE),
    ("nofile", libc::RLIMIT_NOFILE),
    ("nproc", libc::RLIMIT_NPROC),
    ("rss", libc::RLIMIT_RSS),
    ("rtprio", libc::RLIMIT_RTPRIO),
    ("rttime", libc::RLIMIT_RTTIME),
    ("sigpending", libc::RLIMIT_SIGPENDING),
    ("stack", libc::RLIMIT_STACK),
];

/// One limit, in the kernel's unit: bytes, seconds (`cpu`), microseconds (`rttime`) or a count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceLimit {
    /// One of [`RESOURCES`].
    pub name: String,
    /// The limit that is enforced; `None`: unlimited.
    pub soft: Option<u64>,
    /// The value up to which the process may raise the soft limit; `None`: unlimited.
    pub hard: Option<u64>,
}

impl ResourceLimit {
    /// For setrlimit(2); `None`: unknown name.
    pub fn for_kernel(&self) -> Option<(u32, libc::rlimit)> {
        let number = |limit: Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
        let resource = RESOURCES.iter().find(|(name, _)| *name == self.name)?.1;
        Some((resource, libc::rlimit { rlim_cur: number(self.soft), rlim_max: number(self.hard) }))
    }
    /// The limit of this process with the same name.
    pub fn current(&self) -> Option<ResourceLimit> {
        let (resource, mut limit) = self.for_kernel()?;
        // SAFETY: writes one local rlimit.
        let answer = unsafe { libc::getrlimit(resource, &raw mut limit) };
        let finite = |limit: u64| (limit != libc::RLIM_INFINITY).then_some(limit);
        let (soft, hard) = (finite(limit.rlim_cur), finite(limit.rlim_max));
        (answer == 0).then(|| ResourceLimit { name: self.name.clone(), soft, hard })
    }
}

/// `SOFT:HARD`, the format of a job file.
impl std::fmt::Display for ResourceLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
        write!(f, "{}:{}", text(self.soft), text(self.hard))
    }
}
