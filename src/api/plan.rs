//! What a submission would do, without doing it: the difference to the job that runs, and what becomes of each of its
//! allocs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ApiContext;
use super::error::ApiError;
use super::submission::{self, GroupEffect, JobText, Submitted};
use crate::jobspec::diff::difference;
use crate::model::alloc::AllocStatus;
use crate::model::id::AllocId;
use crate::model::job::Job;
use crate::model::migration::MigrationSource;

/// What a submission would do, without doing it.
pub(super) async fn plan(
    context: &ApiContext,
    job: &JobText,
    migrate_from: Option<MigrationSource>,
) -> Result<Submitted, ApiError> {
    let parsed = submission::understand(context, job)?;
    context.runner.check(&parsed.job).map_err(|error| submission::without(error, &parsed.job.sensitive))?;
    if let Some(source) = migrate_from {
        let checked = context.runner.check_migration(&parsed.job, &source);
        checked.map_err(|error| submission::without(error, &parsed.job.sensitive))?;
    }
    let mut planned = submission::describe(context, &parsed).await;
    let job = &parsed.job;
    let view = context.runner.board().view();
    let allocs = view.allocs.iter().filter_map(|alloc| Some((&alloc.identity.id, alloc.status.as_ref()?)));
    let live: Vec<(&AllocId, &Arc<AllocStatus>)> =
        allocs.filter(|(_, status)| status.job.id == job.id && !status.is_terminal()).collect();
    for (id, status) in &live {
        let known = if *status.job == *job { &mut planned.unchanged } else { &mut planned.replaces };
        known.push(id.to_string());
    }
    let registered = context.runner.parents().into_iter().map(|parent| parent.record).find(|one| one.job.id == job.id);
    // Of several versions the newest: the list is in the order of creation.
    let before: Option<&Job> = live.last().map(|(_, status)| &*status.job).or(registered.as_ref().map(|one| &one.job));
    planned.is_new = Some(before.is_none());
    planned.diff = before.and_then(|before| difference(before, job));
    planned.effects = effects(job, live.iter().map(|(_, status)| &***status));
    Ok(planned)
}

fn effects<'a>(job: &Job, live: impl Iterator<Item = &'a AllocStatus>) -> Vec<GroupEffect> {
    let mut by_group: BTreeMap<&str, Vec<&AllocStatus>> = BTreeMap::new();
    for status in live {
        by_group.entry(status.group.as_str()).or_default().push(status);
    }
    let mut all = Vec::new();
    for group in job.groups.iter().filter(|_| !job.is_parent()) {
        let live = by_group.remove(group.name.as_str()).unwrap_or_default();
        let mut effect = GroupEffect {
            group: group.name.to_string(),
            max_parallel: group.update.map(|update| update.max_parallel),
            ..GroupEffect::default()
        };
        for index in 0..group.count {
            let of_place: Vec<_> = live.iter().filter(|status| status.index == index).collect();
            match of_place.iter().any(|status| *status.job == *job) {
                true => effect.stays += 1,
                false if of_place.is_empty() => effect.starts += 1,
                false => effect.replaces += 1,
            }
        }
        effect.stops =
            u32::try_from(live.iter().filter(|status| status.index >= group.count).count()).unwrap_or(u32::MAX);
        all.push(effect);
    }
    all.extend(by_group.into_iter().map(|(group, live)| GroupEffect {
        group: group.to_owned(),
        stops: u32::try_from(live.len()).unwrap_or(u32::MAX),
        ..GroupEffect::default()
    }));
    all
}
