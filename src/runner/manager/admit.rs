//! New allocs of a job and the allocs that they replace, for submissions and for the steps of an update.

use std::sync::Arc;

use super::ledger::Ledger;
use super::owner::UnownedAlloc;
use super::{Manager, RunnerError, SubmitReply};
use crate::model::alloc::Desired;
use crate::model::id::{AllocId, JobId};
use crate::model::job::{Job, TaskGroup};
use crate::model::migration::MigrationSource;
use crate::runner::alloc::{Alloc, RestoredRecords};
use crate::runner::persistence::record::{self, AllocRecord, JobRecord};
use crate::runner::persistence::update::update_key;
use crate::store::{Batch, StoreError};

/// Allocs that end, and the places of new ones.
#[derive(Default)]
pub(super) struct Placement {
    /// Live allocs, and failed ones that are not rescheduled any more.
    pub superseded: Vec<Arc<Alloc>>,
    pub places: Vec<NewPlace>,
}

/// A new alloc to be created.
pub(super) struct NewPlace {
    /// Index in its job.
    pub group: usize,
    pub index: u32,
    /// It starts when these have ended.
    pub waits_for: Vec<AllocId>,
    /// Which had its place.
    pub before: Option<Arc<Alloc>>,
    /// The alloc of another agent whose data it takes over.
    pub migrate_from: Option<MigrationSource>,
}

impl Manager {
    /// Takes a job on, in one batch with what `batch` has already; that is the caller's to take back.
    pub(super) async fn admit(
        self: &Arc<Self>,
        ledger: &mut Ledger,
        (job, migrate_from): (Job, Option<MigrationSource>),
        mut batch: Batch,
    ) -> Result<SubmitReply, RunnerError> {
        let of_caller = batch.writes.len();
        let live = self.allocs.live(|a| a.job.id == job.id);
        let running: Vec<_> = live.iter().filter(|a| a.desired() == Desired::Run).cloned().collect();
        let earlier = self.updates.get(&job.id);
        let is_unchanged = match earlier.as_ref().filter(|update| update.is_active()) {
            Some(update) => update.job.runs_as(&job),
            None => running.iter().all(|a| a.job.runs_as(&job)),
        };
        if !running.is_empty() && is_unchanged {
            let ids = running.iter().map(|a| a.id.clone()).collect();
            return Err(RunnerError::Unchanged { job: job.id, ids });
        }
        // A reverted update may leave allocs of the earlier version running.
        let retained = running.iter().find(|a| a.job.runs_as(&job)).map(|a| a.version);
        let version = retained.unwrap_or_else(|| self.next_version(&job.id));
        let stable = self.stable(earlier.as_deref(), &running);
        let job = Arc::new(job);
        let mut placement = self.layout(&job, version).beginning(&live);
        placement.places.iter_mut().for_each(|place| place.migrate_from.clone_from(&migrate_from));
        let update = job.is_rolling().then(|| self.begin_update(&job, version, stable, None));
        match (&update, &earlier) {
            (Some(update), _) => record::put(&mut batch, update_key(&job.id), update),
            (None, Some(_)) => batch.remove(update_key(&job.id)),
            (None, None) => {}
        }
        let replaced = placement.superseded.iter().filter(|a| running.iter().any(|one| one.id == a.id));
        let replaced = replaced.map(|a| a.id.clone()).collect();
        let allocs = self.place(ledger, (&job, version), placement, batch, of_caller).await;
        let allocs = match allocs {
            Ok(allocs) => allocs,
            Err(error) => {
                self.take_back_update(&job.id, earlier.as_deref());
                return Err(RunnerError::StateDb(error));
            }
        };
        self.updates_follow(&job.id, update);
        Ok(SubmitReply { allocs, replaced })
    }

    /// Ends some allocs and creates others, in one batch with the contents of `batch`. The caller takes back its first
    /// `of_caller` writes if that fails.
    ///
    /// Errors: the write fails; nothing has happened.
    pub(super) async fn place(
        self: &Arc<Self>,
        ledger: &mut Ledger,
        (job, version): (&Arc<Job>, u64),
        placement: Placement,
        mut batch: Batch,
        of_caller: usize,
    ) -> Result<Vec<AllocId>, StoreError> {
        let Placement { superseded, places } = placement;
        superseded.iter().for_each(|a| a.request_stop());
        record::put(&mut batch, record::job_key(&job.id, version), &JobRecord { job: Job::clone(job), version });
        let mut new = Vec::new();
        for NewPlace { group, index, waits_for, before, migrate_from } in places {
            let group = &job.groups[group];
            let mut record = self.new_record(job, group, index, version, ledger.next_serial(), waits_for);
            if let Some(before) = before {
                before.set_predecessor(&mut record, group);
            }
            if let Some(source) = migrate_from {
                record.migrate_from = Some(MigrationSource { submitted: record.began, ..source });
            }
            record::put(&mut batch, record::alloc_key(&record.id), &record);
            let restored = RestoredRecords { record, tasks: group.tasks.iter().map(|_| None).collect() };
            let Some(alloc) = self.make(Arc::clone(job), restored) else { continue };
            alloc.receive();
            let numbers = alloc.put_tasks(&mut batch);
            new.push((UnownedAlloc::new(Arc::new(alloc)), numbers));
        }
        for alloc in &superseded {
            alloc.put(&mut batch);
        }
        let keys: Vec<String> = batch.writes.iter().skip(of_caller).map(|(key, _)| key.clone()).collect();
        if let Err(error) = self.ctx.journal.commit(batch).await {
            superseded.iter().for_each(|a| a.withdraw_stop());
            self.take_back(keys, &superseded);
            new.into_iter().for_each(|(created, _)| created.discard());
            return Err(error);
        }
        self.write_ends_again(&superseded).await;
        superseded.iter().for_each(|a| a.apply_stop());
        let at =
            new.iter().map(|(created, _)| created.alloc().created_at()).min().unwrap_or_else(|| self.ctx.clock.now());
        ledger.count_new(&self.ctx, job, new.len(), at);
        let allocs = new.iter().map(|(created, _)| created.alloc().id.clone()).collect();
        for (created, numbers) in new {
            created.alloc().show(&numbers);
            self.enter(created);
        }
        Ok(allocs)
    }

    /// Errors: there is no such peer; not one alloc alone would take the data over.
    pub(super) fn check_migration(
        &self,
        job: &Job,
        source: &MigrationSource,
        live: &[Arc<Alloc>],
    ) -> Result<(), RunnerError> {
        let refused = |problem: String| Err(RunnerError::Migration { source_name: source.to_string(), problem });
        let peers = &self.ctx.config.migration.peers;
        if !peers.iter().any(|peer| peer.name == source.peer) {
            let known: Vec<&str> = peers.iter().map(|peer| peer.name.as_str()).collect();
            let known =
                if known.is_empty() { "it is empty".to_owned() } else { format!("it has {}", known.join(", ")) };
            return refused(format!("peer {:?} is not in migrate.peers of the agent's settings; {known}", source.peer));
        }
        if job.is_parent() {
            return refused(format!("job {:?} is periodic or parameterized, and has no alloc of its own", job.id));
        }
        let [group] = job.groups.as_slice() else {
            return refused(format!("job {:?} has {} groups; one alloc takes data over", job.id, job.groups.len()));
        };
        if group.count != 1 {
            return refused(format!("group {:?} has count = {}; one alloc takes data over", group.name, group.count));
        }
        if !group.ephemeral_disk.migrate {
            return refused(format!("group {:?} needs `ephemeral_disk {{ migrate = true }}`", group.name));
        }
        match live.iter().find(|alloc| alloc.desired() == Desired::Run) {
            Some(alloc) => refused(format!(
                "job {:?} runs here as alloc {}, whose data its replacement takes over; stop it first",
                job.id,
                alloc.id.short()
            )),
            None => Ok(()),
        }
    }

    /// `None`: its job has no such group.
    pub(super) fn make(&self, job: Arc<Job>, restored: RestoredRecords) -> Option<Alloc> {
        Alloc::new(Arc::clone(&self.ctx), Arc::clone(&self.hooks), job, restored)
    }

    pub(super) fn new_record(
        &self,
        job: &Job,
        group: &TaskGroup,
        index: u32,
        version: u64,
        serial: u64,
        waits_for: Vec<AllocId>,
    ) -> AllocRecord {
        let id = AllocId::random();
        let processes = group.tasks.iter().any(|t| self.ctx.has_processes(&t.driver));
        let cgroup =
            (processes && self.ctx.cgroups.is_some()).then(|| self.ctx.config.cgroup_parent.child(id.as_str()));
        AllocRecord {
            id,
            job: job.id.clone(),
            version,
            group: group.name.clone(),
            index,
            serial,
            created_at: self.ctx.clock.now(),
            began: Some(self.ctx.line.now()),
            desired: Desired::Run,
            waits_for,
            cgroup,
            finished: None,
            ports: Vec::new(),
            network: None,
            stop_requested_at: None,
            again_requested_at: None,
            expired: false,
            again: false,
            failed_setup: None,
            healthy: None,
            cores: Vec::new(),
            earlier: None,
            reschedule: Some(Box::default()),
            reschedule_reported: false,
            previous: None,
            next: None,
            data_from: Vec::new(),
            migrate_from: None,
        }
    }

    /// One above those whose records are there: a version's record goes with its last alloc.
    fn next_version(&self, job: &JobId) -> u64 {
        let of_update = self.updates.get(job).map(|update| update.version + 1);
        let of_allocs = self.allocs.all().iter().filter(|a| a.job.id == *job).map(|a| a.version + 1).max();
        of_update.max(of_allocs).unwrap_or(0)
    }

    /// A failed submission may have reached the disk anyway, and would start with the next agent.
    pub(super) fn take_back(&self, keys: Vec<String>, running: &[Arc<Alloc>]) {
        let mut batch = Batch::default();
        keys.into_iter().for_each(|key| batch.remove(key));
        for alloc in running {
            alloc.put(&mut batch);
        }
        self.ctx.journal.amend(batch);
    }
}
