//! What a task has received and sent over a network of its own. Source: `/proc/PID/ns/net`, `/proc/PID/net/dev` of one of its processes.
//!
//! Shape: summed over the interfaces of its network namespace but the loopback. Of a namespace that several tasks have (a pod), the one that was
//! seen with it first tells, so that no sum has it twice. One whose namespace is the host's has nothing to tell: that would be all of the host.
//!
//! A namespace goes with its last process: what was carried after the last look is lost, and nothing is known of one that was never looked at.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::proc::Proc;
use super::sampling::{ErrorReason, Sampling};
use super::scratch::{self, Scratch};
use super::table::Subject;
use crate::kernel::proc::net_dev;
use crate::model::measure::Measure;
use crate::model::profile::Profile::{Full, Standard};
use crate::model::usage::{Field, Usage};
use crate::telemetry::lock;

pub(super) static SUBJECT: Subject = Subject { measures: MEASURES, files: &[] };

/// Received, then sent: bytes, packets, errors, drops.
const FIELDS: [Field; 8] = [
    Field::network_receive_bytes,
    Field::network_receive_packets,
    Field::network_receive_errors,
    Field::network_receive_drops,
    Field::network_transmit_bytes,
    Field::network_transmit_packets,
    Field::network_transmit_errors,
    Field::network_transmit_drops,
];

const MEASURES: &[Measure<Usage>] = &[
    network(FIELDS[0], "Bytes that came in over the task's own network, all its interfaces but the loopback.")
        .in_profiles(Standard, Full, Full)
        .otlp("container.network.io", "By"),
    network(FIELDS[1], "Packets that came in.").otlp("allostat.task.network.packets", "{packet}"),
    network(FIELDS[2], "Packets that came in broken.").otlp("allostat.task.network.errors", "{error}"),
    network(FIELDS[3], "Packets that came in whole and were dropped or missed.")
        .otlp("allostat.task.network.dropped", "{packet}"),
    network(FIELDS[4], "Bytes that the task sent over its own network.")
        .in_profiles(Standard, Full, Full)
        .otlp("container.network.io", "By"),
    network(FIELDS[5], "Packets that were sent.").otlp("allostat.task.network.packets", "{packet}"),
    network(FIELDS[6], "Packets that could not be sent.").otlp("allostat.task.network.errors", "{error}"),
    network(FIELDS[7], "Packets that were dropped in place of sent.").otlp("allostat.task.network.dropped", "{packet}"),
];

const fn network(field: Field, help: &'static str) -> Measure<Usage> {
    Measure::of(field, help)
        .sources("/proc/PID/net/dev of its network namespace", "/proc/PID/net/dev of its network namespace")
        .absent_when("its network is the host's, or another task's that tells it; a namespace may not be looked at")
}

/// A task that began in the host's network may get one of its own in its first moments, as containers do; later that is looked at when its
/// processes are listed.
const YOUNG: Duration = Duration::from_secs(10);

type Counts = [u64; FIELDS.len()];

/// Whose each network namespace is: the process by which its task was seen, and which task that is. Concurrency: any thread; a short lock at each
/// look at a task that has a network of its own.
#[derive(Debug, Default)]
pub(super) struct Networks {
    known: Mutex<HashMap<u64, (u32, u64)>>,
    next: AtomicU64,
}

/// The network of one task.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// Among the others; 0: it never had one.
    id: u64,
    process: Option<u32>,
    /// Until when it is looked at closely.
    young: Option<Instant>,
    is_hosts: bool,
    /// The one that it tells of.
    namespace: Option<u64>,
    /// Another task tells of this one: what that carried before it is ours to tell is not ours.
    others: Option<u64>,
    /// Of namespaces that it had before.
    ended: Counts,
    from: Counts,
    now: Counts,
}

impl Network {
    /// Reads, by one of the processes that were listed last. `listed`: they were listed just now. Gives whether they should be listed again, since
    /// the one that was known is gone.
    pub(super) fn read(
        &mut self,
        sampling: &Sampling,
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
            self.process = scratch.pids.iter().copied().min();
        }
        let Some(pid) = self.process else { return false };
        let namespace = match proc.network(scratch, pid) {
            Ok(namespace) => namespace,
            Err(Errno::NOENT | Errno::SRCH) => {
                self.process = None;
                return true;
            }
            // It is somebody else's.
            Err(_) => return false,
        };
        self.is_hosts = namespace == host;
        if self.is_hosts {
            return false;
        }
        let has_another = self.namespace.is_some_and(|known| known != namespace);
        if has_another && !listed {
            // Its number may be another process's by now.
            self.process = None;
            return true;
        }
        if self.id == 0 {
            self.id = sampling.networks.next.fetch_add(1, Ordering::Relaxed) + 1;
        }
        if !sampling.networks.is_of(namespace, (pid, self.id), |pid| proc.network(scratch, pid).ok()) {
            self.others = Some(namespace);
            return false;
        }
        match carried(proc, scratch, pid) {
            Ok(Some(counts)) => self.take(namespace, counts),
            Ok(None) => sampling.errors.report(ErrorReason::Parse, || format!("{pid}/net/dev: not understood")),
            Err(_) => return false,
        }
        for (field, n) in FIELDS.into_iter().zip(self.told()) {
            usage.set(field, Some(n));
        }
        false
    }

    fn take(&mut self, namespace: u64, counts: Counts) {
        let is_new = self.namespace != Some(namespace);
        // An interface that goes takes its counts along.
        let fell = !is_new && counts.iter().zip(self.now).any(|(n, before)| *n < before);
        if is_new || fell {
            self.ended = self.told();
            self.from = if fell || self.others == Some(namespace) { counts } else { Counts::default() };
        }
        (self.namespace, self.others, self.now) = (Some(namespace), None, counts);
    }

    fn told(&self) -> Counts {
        std::array::from_fn(|at| self.ended[at].saturating_add(self.now[at].saturating_sub(self.from[at])))
    }

    /// Its task is over: who shares its network may tell of it.
    pub(super) fn close(&self, networks: &Networks) {
        if let Some(namespace) = self.namespace {
            let mut known = lock(&networks.known);
            if known.get(&namespace).is_some_and(|(_, id)| *id == self.id) {
                known.remove(&namespace);
            }
        }
    }
}

impl Networks {
    /// Whether the task tells of this namespace: it does already, nobody does, or who did has another one now, since numbers are given anew.
    fn is_of(&self, namespace: u64, (pid, id): (u32, u64), network: impl FnOnce(u32) -> Option<u64>) -> bool {
        let mut known = lock(&self.known);
        let taken = known.get(&namespace).copied().filter(|(_, whose)| *whose != id);
        if taken.is_some_and(|(by, _)| network(by) == Some(namespace)) {
            return false;
        }
        known.insert(namespace, (pid, id));
        true
    }
}

/// All interfaces of its namespace but the loopback. `None`: something else than expected stands there.
fn carried(proc: &Proc, scratch: &mut Scratch, pid: u32) -> Result<Option<Counts>, Errno> {
    let file = scratch::open(proc.root(), &format!("{pid}/net/dev"), OFlags::empty())?;
    let (interfaces, error) = net_dev::parse(scratch.read_list(file)?);
    let mut sum = Counts::default();
    for interface in interfaces.iter().filter(|interface| interface.name != "lo") {
        let (received, sent) = (&interface.received, &interface.sent);
        let counts = [received, sent].map(|t| [t.bytes, t.packets, t.errors, t.dropped]);
        for (sum, n) in sum.iter_mut().zip(counts.as_flattened()) {
            *sum = sum.saturating_add(*n);
        }
    }
    Ok(error.is_none().then_some(sum))
}

impl Proc {
    /// The number of a process's network namespace. Errors: as [`Proc::open_fds`].
    fn network(&self, scratch: &mut Scratch, pid: u32) -> Result<u64, Errno> {
        use std::fmt::Write;
        scratch.path.clear();
        write!(scratch.path, "{pid}/ns/net").map_err(|_| Errno::NOMEM)?;
        Ok(rustix::fs::statat(self.root(), &scratch.path, AtFlags::empty())?.st_ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(n: u64) -> Counts {
        [n; FIELDS.len()]
    }

    #[test]
    fn what_it_carried_never_falls_over_interfaces_and_namespaces_that_go() {
        let mut network = Network::default();
        network.take(7, counts(100));
        assert_eq!(network.told(), counts(100), "from the beginning of the namespace");
        network.take(7, counts(160));
        // One of two interfaces has gone: what the other one carried before is told already.
        network.take(7, counts(60));
        assert_eq!(network.told(), counts(160));
        network.take(7, counts(65));
        assert_eq!(network.told(), counts(165));
        network.take(8, counts(5));
        assert_eq!(network.told(), counts(170), "a new one begins at nothing");
    }

    #[test]
    fn one_of_two_that_share_a_namespace_tells_and_then_the_other_goes_on_from_there() {
        let networks = Networks::default();
        let lives = |_| Some(7);
        assert!(networks.is_of(7, (100, 1), lives));
        assert!(!networks.is_of(7, (200, 2), lives) && networks.is_of(7, (100, 1), lives));
        let first = Network { id: 1, namespace: Some(7), ..Network::default() };
        first.close(&networks);
        assert!(networks.is_of(7, (200, 2), lives));
        let mut second = Network { id: 2, others: Some(7), ..Network::default() };
        second.take(7, counts(500));
        second.take(7, counts(504));
        assert_eq!(second.told(), counts(4));
        // The kernel gives the number of a namespace that has gone to the next one.
        assert!(networks.is_of(7, (300, 3), |_| Some(9)), "who told has another one");
        assert!(networks.is_of(7, (400, 4), |_| None), "who told is gone");
    }
}
