//! Network traffic of a task. Source: `/proc/PID/net/dev` of one of its processes. The inode number of that file
//! identifies the network namespace.
//!
//! Shape: summed over the interfaces of the namespace without loopback. If several tasks share a namespace (a pod),
//! only the first one reports it, so that no sum counts it twice. A task in the host's namespace reports nothing,
//! because the counters are those of the whole host.
//!
//! A namespace ends with its last process: traffic after the last reading is lost, and a namespace that was never read
//! is not counted.

use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::netns_owners::NetnsOwners;
use super::network::{FIELDS, TrafficCounts};
use super::proc::ProcRoot;
use super::sampling::{ErrorReason, SamplingContext};
use super::scratch::{self, Scratch};
use crate::kernel::proc::net_dev;
use crate::model::usage::Usage;

/// A container starts in the host's namespace and enters its own shortly after. The namespace is checked at each
/// reading during this time, and afterwards when processes are listed.
const YOUNG: Duration = Duration::from_secs(10);

/// Network traffic of one task. Kept small: most tasks of a host may use the host's network.
#[derive(Debug, Default)]
pub(super) struct TaskTraffic {
    /// The process that is read, and its namespace when processes were listed.
    process: Option<(u32, u64)>,
    /// End of the time with frequent checks.
    young: Option<Instant>,
    is_hosts: bool,
    own: Option<Box<OwnNamespace>>,
}

/// State of a namespace that is not the host's.
#[derive(Debug, Default)]
struct OwnNamespace {
    /// ID for [`NetnsOwners`].
    id: u64,
    /// The namespace that the task reports.
    namespace: Option<u64>,
    /// Sum over earlier namespaces.
    ended: TrafficCounts,
    from: TrafficCounts,
    now: TrafficCounts,
}

impl TaskTraffic {
    /// Reads the counters of one of the processes that were listed last. `listed`: they were listed just now. Returns
    /// whether to list them again, because that process is gone.
    pub(super) fn read(
        &mut self,
        sampling: &SamplingContext,
        scratch: &mut Scratch,
        (now, listed): (Instant, bool),
        usage: &mut Usage,
    ) -> bool {
        let is_young = *self.young.get_or_insert(now + YOUNG) > now;
        if self.is_hosts && !listed && !is_young {
            return false;
        }
        let Some((proc, host)) = sampling.proc.as_ref().and_then(|proc| Some((proc, proc.host_network()?))) else {
            return false;
        };
        if listed {
            self.process = first_seen(proc, scratch);
        }
        let Some((pid, mut namespace)) = self.process else { return false };
        if !listed {
            match proc.network(scratch, pid) {
                Ok(same) if same == namespace => {}
                Ok(own) if self.is_hosts && is_young => {
                    namespace = own;
                    self.process = Some((pid, own));
                }
                // It ended or changed its namespace; its PID may belong to another process by now.
                _ => {
                    self.process = None;
                    return true;
                }
            }
        }
        self.is_hosts = namespace == host;
        if self.is_hosts {
            return false;
        }
        let own = self.own.get_or_insert_with(|| {
            Box::new(OwnNamespace { id: sampling.networks.new_id(), ..OwnNamespace::default() })
        });
        if own.namespace.is_some_and(|before| before != namespace) {
            own.release(&sampling.networks);
        }
        if !sampling.networks.claim(namespace, (pid, own.id), |pid| proc.network(scratch, pid).ok()) {
            own.namespace = None;
            return false;
        }
        let Ok(counts) = carried(sampling, proc, scratch, pid) else { return false };
        own.take(namespace, counts, sampling.networks.record(namespace, own.id, counts));
        for (field, n) in FIELDS.into_iter().zip(own.total()) {
            usage.set(field, Some(n));
        }
        false
    }

    /// The task ended.
    pub(super) fn close(&mut self, networks: &NetnsOwners) {
        if let Some(own) = &mut self.own {
            own.release(networks);
        }
    }
}

impl OwnNamespace {
    /// `before`: counters that another task reported for this namespace.
    fn take(&mut self, namespace: u64, counts: TrafficCounts, before: Option<TrafficCounts>) {
        let is_new = self.namespace != Some(namespace);
        let fell = |from: &TrafficCounts| counts.iter().zip(from).any(|(n, before)| n < before);
        if is_new {
            self.ended = self.total();
            // Inode numbers are reused: lower counters mean another namespace.
            self.from = before.filter(|before| !fell(before)).unwrap_or_default();
        } else if fell(&self.now) {
            // The counters of a removed interface are gone.
            self.ended = self.total();
            self.from = counts;
        }
        (self.namespace, self.now) = (Some(namespace), counts);
    }

    fn total(&self) -> TrafficCounts {
        std::array::from_fn(|at| self.ended[at].saturating_add(self.now[at].saturating_sub(self.from[at])))
    }

    /// Releases the namespace, so that another task may report it.
    fn release(&mut self, networks: &NetnsOwners) {
        self.ended = self.total();
        (self.from, self.now) = (TrafficCounts::default(), TrafficCounts::default());
        if let Some(namespace) = self.namespace.take() {
            networks.close(namespace, self.id);
        }
    }
}

/// The first listed process whose namespace can be read. A process whose main thread ended first has none.
fn first_seen(proc: &ProcRoot, scratch: &mut Scratch) -> Option<(u32, u64)> {
    let mut pids = std::mem::take(&mut scratch.pids);
    pids.sort_unstable();
    let found = pids.iter().find_map(|pid| Some((*pid, proc.network(scratch, *pid).ok()?)));
    scratch.pids = pids;
    found
}

/// Sum over all interfaces except loopback. An unparsable line makes the whole sum absent.
fn carried(
    sampling: &SamplingContext,
    proc: &ProcRoot,
    scratch: &mut Scratch,
    pid: u32,
) -> Result<TrafficCounts, Errno> {
    let file = scratch::open(proc.root(), format!("{pid}/net/dev"), OFlags::empty())?;
    let (interfaces, error) = net_dev::parse(scratch.read_list(file)?);
    if let Some(error) = error {
        sampling.errors.report(ErrorReason::Parse, || format!("{pid}/net/dev: {error}"));
    }
    let mut sum = TrafficCounts::default();
    for interface in interfaces.iter().filter(|interface| interface.name != "lo") {
        let (received, sent) = (&interface.received, &interface.sent);
        let counts = [received, sent].map(|t| [t.bytes, t.packets, t.errors, t.dropped]);
        for (sum, n) in sum.iter_mut().zip(counts.as_flattened()) {
            *sum = sum.saturating_add(*n);
        }
    }
    Ok(sum)
}

impl ProcRoot {
    /// Inode of a process's network namespace, from its `net/dev`. Errors: as [`ProcRoot::open_fds`].
    fn network(&self, scratch: &mut Scratch, pid: u32) -> Result<u64, Errno> {
        use std::fmt::Write;
        scratch.path.clear();
        write!(scratch.path, "{pid}/net/dev").map_err(|_| Errno::NOMEM)?;
        Ok(rustix::fs::statat(self.root(), &scratch.path, AtFlags::empty())?.st_ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(n: u64) -> TrafficCounts {
        [n; FIELDS.len()]
    }

    #[test]
    fn network_traffic_never_falls_when_interfaces_or_namespaces_disappear() {
        let mut own = OwnNamespace::default();
        own.take(7, counts(100), None);
        assert_eq!(own.total(), counts(100), "from the beginning of the namespace");
        own.take(7, counts(160), Some(counts(100)));
        // One of two interfaces is gone; the traffic of the other one is part of the total already.
        own.take(7, counts(60), Some(counts(160)));
        assert_eq!(own.total(), counts(160));
        own.take(7, counts(65), Some(counts(60)));
        assert_eq!(own.total(), counts(165));
        own.release(&NetnsOwners::default());
        own.take(8, counts(5), None);
        assert_eq!(own.total(), counts(170), "a new namespace starts at 0");
    }

    #[test]
    fn new_owner_of_a_namespace_starts_where_the_previous_one_ended() {
        let (mut first, mut second) = (OwnNamespace::default(), OwnNamespace::default());
        first.take(7, counts(500), None);
        first.release(&NetnsOwners::default());
        second.take(7, counts(504), Some(counts(500)));
        assert_eq!(second.total(), counts(4));
        second.release(&NetnsOwners::default());
        first.take(7, counts(510), Some(counts(504)));
        assert_eq!((first.total(), second.total()), (counts(506), counts(4)), "both add up to the traffic");
        // The kernel reuses the inode number of a removed namespace.
        let mut third = OwnNamespace::default();
        third.take(7, counts(3), Some(counts(510)));
        assert_eq!(third.total(), counts(3));
    }
}
