//! Stanzas about many nodes and about replacing allocs: `update`, `reschedule`, `migrate`, `spread`, `scaling`,
//! `disconnect`. One host updates and reschedules allocs, and does little of what the others say, which a warning says;
//! what Nomad refuses of them is refused.

use std::collections::BTreeSet;
use std::time::Duration;

use super::build::Builder;
use super::diagnostic::{Span, quote};
use super::fields::{Fields, Spanned, Stanza};
use super::quantity::format_duration;
use super::reschedule::{OfJob, Reschedule};
use super::tree::StanzaBody;
use super::{limits, words};
use crate::model::job::{EphemeralDisk, JobKind};
use crate::model::reschedule::{DelayFunction, ReschedulePolicy};
use crate::model::service::{HealthBasis, HealthRule};
use crate::model::update::UpdatePolicy;
use crate::model::volume::DiskSize;

const COUNTS: std::ops::RangeInclusive<u64> = 0..=limits::COUNT;

impl Builder<'_> {
    /// Of a job.
    pub(super) fn rollout_of_job(&self, job: &Fields<'_>, kind: JobKind) -> OfJob {
        let (health, update) = self.update(job, kind, (kind.is_service().then(HealthRule::default), None));
        self.migrate(job, kind);
        self.spreads(job, kind);
        OfJob { reschedule: self.reschedule(job, kind, OfJob::default()), health, update }
    }

    /// Of a group: when its allocs are healthy, how those of a changed job are replaced, and how its failed ones are.
    pub(super) fn rollout_of_group(
        &self,
        group: &Fields<'_>,
        kind: JobKind,
        of_job: OfJob,
    ) -> (Option<HealthRule>, Option<UpdatePolicy>, Option<ReschedulePolicy>) {
        let (health, update) = self.update(group, kind, (of_job.health, of_job.update));
        self.migrate(group, kind);
        self.spreads(group, kind);
        let own = self.reschedule(group, kind, of_job);
        self.disconnect(group);
        (health, update, own.or(of_job.reschedule).and_then(|own| own.policy(kind)))
    }

    /// Opens a stanza: its fields and where it begins.
    pub(super) fn inner<'a>(&'a self, outer: &Fields<'a>, stanza: &'static Stanza) -> Option<(Fields<'a>, &'a Span)> {
        let (body, entry) = (outer.stanza(stanza.name)?, outer.entry(stanza.name)?);
        Some((self.open(body, stanza, outer.path_of(stanza.name)), &entry.key_span))
    }

    /// Of a group: whether its replacements get what it wrote, and how much that may be.
    pub(super) fn ephemeral_disk(&mut self, group: &Fields<'_>) -> (EphemeralDisk, Option<DiskSize>) {
        let Some(body) = group.stanza("ephemeral_disk") else { return Default::default() };
        let disk = self.open(body, &words::EPHEMERAL_DISK, group.path_of("ephemeral_disk"));
        let size = disk.integer("size", limits::EPHEMERAL_DISK_MB).map(|at| DiskSize(at.value));
        let is_true = |word| disk.bool(word).is_some_and(|at| at.value);
        let (sticky, migrate) = (is_true("sticky"), is_true("migrate"));
        (EphemeralDisk { sticky, migrate }, size)
    }

    /// The stanza's fields over those of `base`.
    fn update(&self, outer: &Fields<'_>, kind: JobKind, base: Update) -> Update {
        let Some((fields, key)) = self.inner(outer, &words::UPDATE) else { return base };
        let (base, rolling) = base;
        let max_parallel = fields.integer("max_parallel", COUNTS);
        let canary = fields.integer("canary", COUNTS);
        let promotes = fields.bool("auto_promote");
        let auto_revert = fields.bool("auto_revert");
        let stagger = fields.duration("stagger");
        let basis = fields.choice("health_check", &HealthBasis::ALL.map(|basis| (basis.as_str(), basis)));
        let healthy = duration(&fields, "min_healthy_time", 10);
        let deadline = duration(&fields, "healthy_deadline", 5 * 60);
        let base = base.unwrap_or_default();
        let or = |key: &str, at: &Spanned<Duration>, base| if fields.entry(key).is_some() { at.value } else { base };
        let health = HealthRule {
            basis: basis.map_or(base.basis, |at| at.value),
            min_healthy_time: or("min_healthy_time", &healthy, base.min_healthy_time),
            healthy_deadline: or("healthy_deadline", &deadline, base.healthy_deadline),
        };
        let progress = duration(&fields, "progress_deadline", 10 * 60);
        if !kind.is_service() {
            let message =
                format!("a job of type `{}` takes no `update`: its allocs run until they are done", kind.as_str());
            outer.error(key, "update", message, None);
            return (None, None);
        }
        if max_parallel.as_ref().is_some_and(|at| at.value == 0) {
            // Nomad's word for none.
            return (None, None);
        }
        if let Some(at) = canary.as_ref().filter(|at| at.value > 0) {
            let message = "`canary` has no effect: allocs are replaced in their places, `max_parallel` at a time";
            self.problems.warn(&at.span, &fields.path_of("canary"), message, None);
        }
        if health.basis == HealthBasis::Manual && fields.entry("health_check").is_some() {
            let message = "`health_check = \"manual\"`: the health is not set by hand here; an update goes on as soon \
                           as tasks run";
            self.problems.warn(key, &fields.path_of("health_check"), message, None);
        }
        if let Some(at) = promotes.filter(|at| at.value && canary.as_ref().is_none_or(|canary| canary.value == 0)) {
            fields.error(&at.span, "auto_promote", "`auto_promote` needs a `canary` above 0", None);
        }
        if let Some(at) = stagger.filter(|at| at.value.is_zero()) {
            fields.error(&at.span, "stagger", "`stagger` must be above 0", None);
        }
        let place = |of: [&Spanned<Duration>; 2]| {
            of.into_iter().map(|at| &at.span).find(|s| !s.is_empty()).unwrap_or(key).clone()
        };
        if healthy.value >= deadline.value {
            let message = unordered("min_healthy_time", &healthy, "healthy_deadline", &deadline);
            fields.error(&place([&healthy, &deadline]), "min_healthy_time", message, None);
        } else if !progress.value.is_zero() && deadline.value >= progress.value {
            let message = unordered("healthy_deadline", &deadline, "progress_deadline", &progress);
            fields.error(&place([&progress, &deadline]), "healthy_deadline", message, None);
        }
        let rolling = rolling.unwrap_or_default();
        let parallel = max_parallel.and_then(|at| u32::try_from(at.value).ok());
        let policy = UpdatePolicy {
            max_parallel: parallel.unwrap_or(rolling.max_parallel),
            progress_deadline: or("progress_deadline", &progress, rolling.progress_deadline),
            auto_revert: auto_revert.map_or(rolling.auto_revert, |at| at.value),
        };
        (Some(health), Some(policy))
    }

    fn migrate(&self, outer: &Fields<'_>, kind: JobKind) {
        let Some((fields, key)) = self.inner(outer, &words::MIGRATE) else { return };
        fields.integer("max_parallel", COUNTS);
        health_check(&fields, &["checks", "task_states"]);
        let healthy = duration(&fields, "min_healthy_time", 10);
        let deadline = duration(&fields, "healthy_deadline", 5 * 60);
        if kind != JobKind::Service {
            let message = format!("a job of type `{}` takes no `migrate`", kind.as_str());
            outer.error(key, "migrate", message, None);
        } else if healthy.value > deadline.value {
            let message = unordered("min_healthy_time", &healthy, "healthy_deadline", &deadline);
            fields.error(key, "min_healthy_time", message, None);
        }
    }

    /// The last stanza's fields over those of the job.
    fn reschedule(&self, outer: &Fields<'_>, kind: JobKind, of_job: OfJob) -> Option<Reschedule> {
        let (fields, key) = self.inner(outer, &words::RESCHEDULE)?;
        let functions = DelayFunction::ALL.map(|function| (function.as_str(), function));
        let own = Reschedule {
            attempts: fields.integer("attempts", 0..=limits::RESTART_ATTEMPTS).map(|at| at.value),
            interval: fields.duration("interval").map(|at| at.value),
            delay: fields.duration("delay").map(|at| at.value),
            function: fields.choice("delay_function", &functions).map(|at| at.value),
            max_delay: fields.duration("max_delay").map(|at| at.value),
            unlimited: fields.bool("unlimited").map(|at| at.value),
        };
        if kind == JobKind::System {
            let message = "a job of type `system` takes no `reschedule`: its alloc has one node";
            outer.error(key, "reschedule", message, None);
            return None;
        }
        if kind == JobKind::Sysbatch {
            let message = "a job of type `sysbatch` replaces no failed alloc: its `reschedule` has no effect";
            self.problems.warn(key, &outer.path_of("reschedule"), message, None);
        }
        let merged = own.or(of_job.reschedule.unwrap_or_default());
        if let Err(message) = merged.check(kind) {
            fields.error(key, "reschedule", message, None);
        }
        Some(merged)
    }

    fn spreads(&self, outer: &Fields<'_>, kind: JobKind) {
        for (key, body) in outer.stanzas("spread") {
            if kind == JobKind::System {
                let message = "a job of type `system` takes no `spread`: it has one alloc on each node";
                outer.error(key, "spread", message, None);
            }
            self.spread(key, body, outer);
        }
    }

    fn spread(&self, key: &Span, body: &StanzaBody, outer: &Fields<'_>) {
        let fields = self.open(body, &words::SPREAD, outer.path_of("spread"));
        fields.template("attribute");
        if fields.entry("attribute").is_none() {
            let advice = Some("add attribute = \"${node.datacenter}\"".to_owned());
            fields.error(key, "attribute", "the `spread` has no `attribute`", advice);
        }
        fields.integer("weight", 1..=100);
        let (mut sum, mut seen) = (0, BTreeSet::new());
        for target in fields.named("target") {
            let inner = self.open(target.body, &words::TARGET, format!("{}.{}", fields.path_of("target"), target.name));
            if !seen.insert(target.name) {
                let message = format!("the `spread` has a target {} already", quote(target.name));
                fields.error(target.name_span, "target", message, Some("keep one of them".to_owned()));
            }
            sum += inner.integer("percent", 0..=100).map_or(0, |at| at.value);
        }
        if sum > 100 {
            let message = format!("the percentages of the targets add up to {sum}: at most 100");
            fields.error(key, "target", message, None);
        }
    }

    /// Of a group: the least count, which is its count where it names none.
    pub(super) fn scaling(&self, group: &Fields<'_>, count: Option<&Spanned<u64>>) -> Option<u64> {
        let (fields, key) = self.inner(group, &words::SCALING)?;
        let (min, max) = self.scaling_bounds(&fields, key);
        if let Some(at) = fields.text("type").filter(|at| at.value != "horizontal") {
            let message = format!("a group is scaled by `horizontal`, not by {}", quote(&at.value));
            fields.error(&at.span, "type", message, None);
        }
        let count = count.map(|at| at.value).or(min)?;
        if min.is_some_and(|min| count < min) || max.is_some_and(|max| count > max) {
            let (min, max) = (min.unwrap_or(count), max.unwrap_or(count));
            let message = format!("the `count` of the group, {count}, is not between `min` {min} and `max` {max}");
            fields.error(key, "scaling", message, None);
        }
        Some(count)
    }

    fn scaling_bounds(&self, fields: &Fields<'_>, key: &Span) -> (Option<u64>, Option<u64>) {
        fields.bool("enabled");
        let bounds = ["min", "max"].map(|word| fields.integer(word, 0..=u64::from(u32::MAX)).map(|at| at.value));
        if fields.entry("max").is_none() {
            fields.error(key, "max", "the `scaling` has no `max`", Some("add max = ...".to_owned()));
        }
        if let [Some(min), Some(max)] = bounds
            && max < min
        {
            fields.error(key, "max", format!("`max` ({max}) is less than `min` ({min})"), None);
        }
        let [min, max] = bounds;
        (min, max)
    }

    /// Of a task: `cpu` and `mem`, each once.
    pub(super) fn task_scaling(&self, task: &Fields<'_>) {
        let mut seen = BTreeSet::new();
        for one in task.named("scaling") {
            let label = one.name.to_ascii_lowercase();
            let kind = format!("vertical_{label}");
            if !matches!(label.as_str(), "cpu" | "mem") {
                let message = format!("a task is scaled by `cpu` or `mem`, not by {}", quote(one.name));
                task.error(one.name_span, "scaling", message, None);
            } else if !seen.insert(label) {
                let message = format!("the task has a `scaling` {} already", quote(one.name));
                task.error(one.name_span, "scaling", message, Some("keep one of them".to_owned()));
            }
            let fields = self.open(one.body, &words::SCALING, format!("{}.{}", task.path_of("scaling"), one.name));
            self.scaling_bounds(&fields, one.name_span);
            if let Some(at) = fields.text("type").filter(|at| !at.value.is_empty() && at.value != kind) {
                let message = format!("the `type` of this `scaling` is {}, not {}", quote(&kind), quote(&at.value));
                fields.error(&at.span, "type", message, Some(format!("write type = {kind:?}")));
            }
        }
    }

    fn disconnect(&self, group: &Fields<'_>) {
        for word in ["max_client_disconnect", "stop_after_client_disconnect"] {
            group.duration(word);
        }
        group.bool("prevent_reschedule_on_lost");
        let Some((fields, key)) = self.inner(group, &words::DISCONNECT) else { return };
        let lost = fields.duration("lost_after");
        let stops = fields.duration("stop_on_client_after");
        fields.bool("replace");
        let reconcile = ["keep_original", "keep_replacement", "best_score", "longest_running"].map(|word| (word, ()));
        fields.choice("reconcile", &reconcile);
        if let (Some(lost), Some(stops)) = (&lost, &stops)
            && !lost.value.is_zero()
            && !stops.value.is_zero()
        {
            let message = "`lost_after` and `stop_on_client_after` exclude each other";
            fields.error(&stops.span, "stop_on_client_after", message, None);
        }
        let older = ["max_client_disconnect", "stop_after_client_disconnect", "prevent_reschedule_on_lost"];
        if let Some(word) = older.into_iter().find(|word| group.entry(word).is_some()) {
            let message = format!("{} and `disconnect` exclude each other", quote(word));
            group.error(key, "disconnect", message, Some("keep `disconnect`".to_owned()));
        }
    }
}

/// When allocs are healthy, and how those of a changed job are replaced.
type Update = (Option<HealthRule>, Option<UpdatePolicy>);

fn health_check(fields: &Fields<'_>, words: &[&'static str]) {
    let words: Vec<(&str, ())> = words.iter().map(|word| (*word, ())).collect();
    fields.choice("health_check", &words);
}

/// Where it is not given, so many seconds, with an empty place.
fn duration(fields: &Fields<'_>, word: &str, default_secs: u64) -> Spanned<Duration> {
    fields.duration(word).unwrap_or(Spanned { value: Duration::from_secs(default_secs), span: 0..0 })
}

fn unordered(less: &str, small: &Spanned<Duration>, more: &str, large: &Spanned<Duration>) -> String {
    let (small, large) = (format_duration(small.value), format_duration(large.value));
    format!("`{less}` ({small}) must be less than `{more}` ({large})")
}
