//! Reads the network of a task. Source: `/proc/PID/ns/net`, `/proc/PID/net/dev` of one of its processes.
//!
//! Shape: summed over the interfaces of its network namespace but the loopback. Of a namespace that several tasks have (a pod), the one that was
//! seen with it first tells, so that no sum has it twice. One whose namespace is the host's has nothing to tell: that would be all of the host.
//!
//! A namespace goes with its last process: what was carried after the last look is lost, and nothing is known of one that was never looked at.

use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::network::FIELDS;
use super::networks::Networks;
use super::proc::Proc;
use super::sampling::{ErrorReason, Sampling};
use super::scratch::{self, Scratch};
use crate::kernel::proc::net_dev;
use crate::model::usage::Usage;

/// A task that began in the host's network may get one of its own in its first moments, as containers do; later that is looked at when its
/// processes are listed.
const YOUNG: Duration = Duration::from_secs(10);

type Counts = [u64; FIELDS.len()];

/// The network of one task. Small: nearly all tasks of a host may have the host's.
#[derive(Debug, Default)]
pub(super) struct Network {
    process: Option<u32>,
    /// Until when it is looked at closely.
    young: Option<Instant>,
    is_hosts: bool,
    own: Option<Box<Own>>,
}

/// One of its own.
#[derive(Debug, Default)]
struct Own {
    /// Among the others.
    id: u64,
    /// The namespace that it tells of.
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
        let own = self.own.get_or_insert_with(|| Box::new(Own { id: sampling.networks.one_more(), ..Own::default() }));
        if own.namespace.is_some_and(|known| known != namespace) && !listed {
            // Its number may be another process's by now.
            self.process = None;
            return true;
        }
        if !sampling.networks.is_of(namespace, (pid, own.id), |pid| proc.network(scratch, pid).ok()) {
            own.others = Some(namespace);
            return false;
        }
        match carried(proc, scratch, pid) {
            Ok(Some(counts)) => own.take(namespace, counts),
            Ok(None) => sampling.errors.report(ErrorReason::Parse, || format!("{pid}/net/dev: not understood")),
            Err(_) => return false,
        }
        if own.namespace.is_some() {
            for (field, n) in FIELDS.into_iter().zip(own.told()) {
                usage.set(field, Some(n));
            }
        }
        false
    }

    /// Its task is over.
    pub(super) fn close(&self, networks: &Networks) {
        if let Some((own, namespace)) = self.own.as_ref().and_then(|own| Some((own, own.namespace?))) {
            networks.close(namespace, own.id);
        }
    }
}

impl Own {
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
        let mut own = Own::default();
        own.take(7, counts(100));
        assert_eq!(own.told(), counts(100), "from the beginning of the namespace");
        own.take(7, counts(160));
        // One of two interfaces has gone: what the other one carried before is told already.
        own.take(7, counts(60));
        assert_eq!(own.told(), counts(160));
        own.take(7, counts(65));
        assert_eq!(own.told(), counts(165));
        own.take(8, counts(5));
        assert_eq!(own.told(), counts(170), "a new one begins at nothing");
    }

    #[test]
    fn who_shared_a_namespace_goes_on_from_where_the_other_one_left_it() {
        let mut second = Own { others: Some(7), ..Own::default() };
        second.take(7, counts(500));
        second.take(7, counts(504));
        assert_eq!(second.told(), counts(4));
    }
}
