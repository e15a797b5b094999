//! Measuring without an agent: observed workloads, and what an earlier agent has left running, through the same rooms
//! that an agent uses. It makes no cgroup, keeps no state, and writes nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::error::DaemonError;
use super::once::{found, published};
use super::{node, placement};
use crate::board::Board;
use crate::collectors::{self, FdBudget, SamplingContext};
use crate::config::Config;
use crate::host::clock::{Clock, SystemClock};
use crate::host::hierarchy::Layout;
use crate::host::process;
use crate::host::roots::Roots;
use crate::model::id::{AllocId, CgroupPath};
use crate::observe::{self, Observer};
use crate::snapshot::sampler::{self, Sampler};
use crate::snapshot::{Config as SnapshotConfig, Snapshot};
use crate::telemetry::Metrics;

/// Measures as long as it lives.
pub struct StandaloneSampler {
    sampler: Sampler,
    observer: Observer,
    sampling: Arc<SamplingContext>,
    board: Arc<Board>,
    /// Below it is what an agent runs, or ran.
    parent: CgroupPath,
    /// What was found there last.
    managed: BTreeMap<String, BTreeSet<String>>,
}

impl StandaloneSampler {
    /// Begins, with a look each `tick`. Errors: there is no host to look at, or no thread to do it.
    pub fn begin(config: &Config, tick: Duration) -> Result<StandaloneSampler, DaemonError> {
        // More of the kernel's files stay open. Without it they are opened again and again.
        let _ = process::raise_descriptor_limit();
        let mut config = config.clone();
        config.observe.enabled = true;
        let (roots, parent) = (Roots::default().with_root(&config.observe.root), placement::last(&config));
        let layout = Layout::detect(&roots)?;
        let (node::KernelParts { pass, ends }, may) = node::may(&config, &roots, &layout, &parent);
        let info = Arc::new(node::info(
            &roots,
            &layout,
            &parent,
            node::AgentAbilities { reset_peaks: false, runs: false, ..may },
            None,
        )?);
        let sampling = SamplingContext::new(roots, layout, FdBudget::from_limit());
        pass.into_iter().for_each(|pass| sampling.set_kernel_pass(pass));
        let (board, metrics) = (Arc::<Board>::default(), Arc::new(Metrics::new()));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let observer = Observer::start(observe::Parts {
            config: config.observe.clone(),
            sampling: Arc::clone(&sampling),
            ends,
            board: Arc::clone(&board),
            managed_parent: parent.clone(),
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
            keep: None,
        });
        let sampler = Sampler::start(sampler::Parts {
            config: SnapshotConfig { tick, ..config.telemetry },
            board: Arc::clone(&board),
            devices: None,
            sampling: Arc::clone(&sampling),
            collectors: collectors::host(Vec::new()),
            info,
            metrics,
            scrapers: Arc::default(),
            clock,
        });
        let (observer, sampler) = (observer.map_err(DaemonError::Setup)?, sampler.map_err(DaemonError::Setup)?);
        let mut all = StandaloneSampler { sampler, observer, sampling, board, parent, managed: BTreeMap::new() };
        all.follow_managed();
        Ok(all)
    }

    /// Everything that runs has been found, and the newest look has it, under its names.
    pub fn is_settled(&self) -> bool {
        if !self.observer.is_settled() {
            return false;
        }
        let (shown, snapshot) = (self.board.view(), self.sampler.snapshots.newest());
        let seen: BTreeSet<&AllocId> = snapshot.allocs.iter().map(|alloc| &alloc.identity.id).collect();
        snapshot.epoch > 0 && shown.allocs.iter().all(|alloc| seen.contains(&alloc.identity.id))
    }

    /// The newest; none has been taken where its epoch is 0.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        self.follow_managed();
        let snapshot = self.sampler.snapshots.newest();
        let retired = snapshot.allocs.iter().filter(|alloc| alloc.ended && alloc.retired);
        self.observer.delivered(retired.map(|alloc| alloc.identity.id.clone()));
        snapshot
    }

    /// What an agent has left running is not the observer's: whose it is stands in the agent's state, so it is found by
    /// its place.
    fn follow_managed(&mut self) {
        let now = found(&self.sampling.layout, &self.parent);
        if now == self.managed {
            return;
        }
        let removed: Vec<AllocId> =
            self.managed.keys().filter(|id| !now.contains_key(*id)).map(|id| AllocId::from(id.as_str())).collect();
        let other = now.iter().filter(|(id, tasks)| self.managed.get(*id) != Some(tasks));
        let shown: Vec<_> = other.map(|(id, tasks)| published(&self.sampling, &self.parent, id, tasks)).collect();
        self.board.publish(shown, |_| {});
        self.board.remove(&removed, |_| {});
        self.managed = now;
    }
}
