//! Stanzas about many nodes and about replacing allocs: `update`, `reschedule`, `migrate`, `spread`, `scaling`, `disconnect`. One host does
//! little of what they say, which a warning says; what Nomad refuses of them is refused.

use std::time::Duration;

use super::build::Builder;
use super::diagnostic::{Span, quote};
use super::fields::{At, Fields, Shape, Stanza, Word};
use super::limits;
use super::quantity::format_duration;
use super::tree::Body;
use crate::model::job::JobKind;

pub static UPDATE: Stanza = Stanza {
    name: "update",
    words: &[
        Word::value("max_parallel"),
        Word::value("health_check"),
        Word::value("min_healthy_time"),
        Word::value("healthy_deadline"),
        Word::value("progress_deadline"),
        Word::value("auto_revert"),
        Word::value("auto_promote"),
        Word::value("canary"),
        Word::value("stagger"),
    ],
};

pub static RESCHEDULE: Stanza = Stanza {
    name: "reschedule",
    words: &[
        Word::value("attempts"),
        Word::value("interval"),
        Word::value("delay"),
        Word::value("delay_function"),
        Word::value("max_delay"),
        Word::value("unlimited"),
    ],
};

pub static MIGRATE: Stanza = Stanza {
    name: "migrate",
    words: &[
        Word::value("max_parallel"),
        Word::value("health_check"),
        Word::value("min_healthy_time"),
        Word::value("healthy_deadline"),
    ],
};

pub static SPREAD: Stanza =
    Stanza { name: "spread", words: &[Word::value("attribute"), Word::value("weight"), Word::named("target")] };

pub static TARGET: Stanza = Stanza { name: "target", words: &[Word::value("value"), Word::value("percent")] };

pub static SCALING: Stanza = Stanza {
    name: "scaling",
    words: &[
        Word::value("min"),
        Word::value("max"),
        Word::value("enabled"),
        Word::value("type"),
        Word { shape: Shape::Any, ..Word::map("policy") },
    ],
};

pub static DISCONNECT: Stanza = Stanza {
    name: "disconnect",
    words: &[
        Word::value("lost_after"),
        Word::value("stop_on_client_after"),
        Word::value("replace"),
        Word::value("reconcile"),
    ],
};

const COUNTS: std::ops::RangeInclusive<u64> = 0..=limits::COUNT;

/// Nomad's least delay before an alloc is replaced, and its least interval of attempts.
const MIN_DELAY: Duration = Duration::from_secs(5);
const MIN_INTERVAL: Duration = Duration::from_secs(15);

/// What a `reschedule` names; the rest comes from the job's, then from the kind of job.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reschedule {
    attempts: Option<u64>,
    interval: Option<Duration>,
    delay: Option<Duration>,
    function: Option<DelayFunction>,
    max_delay: Option<Duration>,
    unlimited: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DelayFunction {
    Constant,
    Exponential,
    Fibonacci,
}

/// What a job passes on to its groups.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OfJob {
    reschedule: Option<Reschedule>,
}

impl Builder<'_> {
    /// Of a job.
    pub(super) fn rollout_of_job(&self, job: &Fields<'_>, kind: JobKind) -> OfJob {
        self.update(job, kind);
        self.migrate(job, kind);
        self.spreads(job, kind);
        OfJob { reschedule: self.reschedule(job, kind, OfJob::default()) }
    }

    /// Of a group.
    pub(super) fn rollout_of_group(&self, group: &Fields<'_>, kind: JobKind, of_job: OfJob) {
        self.update(group, kind);
        self.migrate(group, kind);
        self.spreads(group, kind);
        self.reschedule(group, kind, of_job);
        self.disconnect(group);
    }

    /// Opens a stanza: its fields and where it begins.
    fn inner<'a>(&'a self, outer: &Fields<'a>, stanza: &'static Stanza) -> Option<(Fields<'a>, &'a Span)> {
        let (body, entry) = (outer.stanza(stanza.name)?, outer.entry(stanza.name)?);
        Some((self.open(body, stanza, outer.path_of(stanza.name)), &entry.key_span))
    }

    fn update(&self, outer: &Fields<'_>, kind: JobKind) {
        let Some((fields, key)) = self.inner(outer, &UPDATE) else { return };
        let max_parallel = fields.integer("max_parallel", COUNTS);
        let canary = fields.integer("canary", COUNTS);
        let promotes = fields.bool("auto_promote");
        fields.bool("auto_revert");
        let stagger = fields.duration("stagger");
        health_check(&fields, &["checks", "task_states", "manual"]);
        let healthy = duration(&fields, "min_healthy_time", 10);
        let deadline = duration(&fields, "healthy_deadline", 5 * 60);
        let progress = duration(&fields, "progress_deadline", 10 * 60);
        if !kind.is_service() {
            let message =
                format!("a job of type `{}` takes no `update`: its allocs run until they are done", kind.as_str());
            return outer.error(key, "update", message, None);
        }
        if max_parallel.is_some_and(|at| at.value == 0) {
            // Nomad's word for none.
            return;
        }
        if let Some(at) = promotes.filter(|at| at.value && canary.as_ref().is_none_or(|canary| canary.value == 0)) {
            fields.error(&at.span, "auto_promote", "`auto_promote` needs a `canary` above 0", None);
        }
        if let Some(at) = stagger.filter(|at| at.value.is_zero()) {
            fields.error(&at.span, "stagger", "`stagger` must be above 0", None);
        }
        let place =
            |of: [&At<Duration>; 2]| of.into_iter().map(|at| &at.span).find(|s| !s.is_empty()).unwrap_or(key).clone();
        if healthy.value >= deadline.value {
            let message = unordered("min_healthy_time", &healthy, "healthy_deadline", &deadline);
            fields.error(&place([&healthy, &deadline]), "min_healthy_time", message, None);
        } else if !progress.value.is_zero() && deadline.value >= progress.value {
            let message = unordered("healthy_deadline", &deadline, "progress_deadline", &progress);
            fields.error(&place([&progress, &deadline]), "healthy_deadline", message, None);
        }
    }

    fn migrate(&self, outer: &Fields<'_>, kind: JobKind) {
        let Some((fields, key)) = self.inner(outer, &MIGRATE) else { return };
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
        let (fields, key) = self.inner(outer, &RESCHEDULE)?;
        let functions = [
            ("constant", DelayFunction::Constant),
            ("exponential", DelayFunction::Exponential),
            ("fibonacci", DelayFunction::Fibonacci),
        ];
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

    fn spread(&self, key: &Span, body: &Body, outer: &Fields<'_>) {
        let fields = self.open(body, &SPREAD, outer.path_of("spread"));
        fields.template("attribute");
        if fields.entry("attribute").is_none() {
            let advice = Some("add attribute = \"${node.datacenter}\"".to_owned());
            fields.error(key, "attribute", "the `spread` has no `attribute`", advice);
        }
        fields.integer("weight", 1..=100);
        let mut sum = 0;
        for target in fields.named("target") {
            let inner = self.open(target.body, &TARGET, format!("{}.{}", fields.path_of("target"), target.name));
            inner.text("value");
            sum += inner.integer("percent", 0..=100).map_or(0, |at| at.value);
        }
        if sum > 100 {
            let message = format!("the percentages of the targets add up to {sum}: at most 100");
            fields.error(key, "target", message, None);
        }
    }

    /// Of a group: the least count, which is its count where it names none.
    pub(super) fn scaling(&self, group: &Fields<'_>, count: Option<&At<u64>>) -> Option<u64> {
        let (fields, key) = self.inner(group, &SCALING)?;
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

    /// Of a task: `cpu` and `mem`.
    pub(super) fn task_scaling(&self, task: &Fields<'_>) {
        for one in task.named("scaling") {
            if !matches!(one.name, "cpu" | "mem") {
                let message = format!("a task is scaled by `cpu` or `mem`, not by {}", quote(one.name));
                task.error(one.name_span, "scaling", message, None);
            }
            let fields = self.open(one.body, &SCALING, format!("{}.{}", task.path_of("scaling"), one.name));
            self.scaling_bounds(&fields, one.name_span);
        }
    }

    fn disconnect(&self, group: &Fields<'_>) {
        for word in ["max_client_disconnect", "stop_after_client_disconnect"] {
            group.duration(word);
        }
        group.bool("prevent_reschedule_on_lost");
        let Some((fields, key)) = self.inner(group, &DISCONNECT) else { return };
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

fn health_check(fields: &Fields<'_>, words: &[&'static str]) {
    let words: Vec<(&str, ())> = words.iter().map(|word| (*word, ())).collect();
    fields.choice("health_check", &words);
}

/// Where it is not given, so many seconds, with an empty place.
fn duration(fields: &Fields<'_>, word: &str, default_secs: u64) -> At<Duration> {
    fields.duration(word).unwrap_or(At { value: Duration::from_secs(default_secs), span: 0..0 })
}

fn unordered(less: &str, small: &At<Duration>, more: &str, large: &At<Duration>) -> String {
    let (small, large) = (format_duration(small.value), format_duration(large.value));
    format!("`{less}` ({small}) must be less than `{more}` ({large})")
}

impl Reschedule {
    fn or(self, other: Reschedule) -> Reschedule {
        Reschedule {
            attempts: self.attempts.or(other.attempts),
            interval: self.interval.or(other.interval),
            delay: self.delay.or(other.delay),
            function: self.function.or(other.function),
            max_delay: self.max_delay.or(other.max_delay),
            unlimited: self.unlimited.or(other.unlimited),
        }
    }

    /// Nomad's rules, with its defaults for the kind of job. Errors: a sentence.
    fn check(self, kind: JobKind) -> Result<(), String> {
        let service = kind.is_service();
        let attempts = self.attempts.unwrap_or(u64::from(!service));
        let interval = self.interval.unwrap_or(if service { Duration::ZERO } else { Duration::from_secs(24 * 3600) });
        let delay = self.delay.unwrap_or(Duration::from_secs(if service { 30 } else { 5 }));
        let by_kind = if service { DelayFunction::Exponential } else { DelayFunction::Constant };
        let function = self.function.unwrap_or(by_kind);
        let max_delay = self.max_delay.unwrap_or(if service { Duration::from_secs(3600) } else { Duration::ZERO });
        let unlimited = self.unlimited.unwrap_or(service);
        if attempts == 0 && !unlimited {
            return Ok(());
        }
        if attempts > 0 && unlimited {
            return Err(format!(
                "{attempts} attempts and `unlimited` exclude each other: write unlimited = false, or no attempts"
            ));
        }
        if attempts > 0 && interval.is_zero() {
            return Err("`attempts` needs an `interval`".to_owned());
        }
        if delay < MIN_DELAY {
            return Err(format!("`delay` must be at least {}", format_duration(MIN_DELAY)));
        }
        if function != DelayFunction::Constant {
            if max_delay < MIN_DELAY {
                return Err(format!("`max_delay` must be at least {}", format_duration(MIN_DELAY)));
            }
            if max_delay < delay {
                return Err("`max_delay` must be at least `delay`".to_owned());
            }
        }
        if unlimited {
            return Ok(());
        }
        if interval < MIN_INTERVAL {
            return Err(format!("`interval` must be at least {}", format_duration(MIN_INTERVAL)));
        }
        match last_attempt(attempts, delay, function, max_delay) {
            Some(last) if last < interval || last == interval && function != DelayFunction::Exponential => Ok(()),
            Some(_) | None => {
                Err(format!("{attempts} attempts do not fit into an `interval` of {}", format_duration(interval)))
            }
        }
    }
}

/// The interval that the attempts need, as Nomad counts it. `None`: longer than can be counted.
fn last_attempt(attempts: u64, delay: Duration, function: DelayFunction, max_delay: Duration) -> Option<Duration> {
    match function {
        DelayFunction::Constant => delay.checked_mul(u32::try_from(attempts).ok()?),
        DelayFunction::Exponential => {
            // The delays double up to the maximum, and from then on they add up.
            let (mut next, mut needed) = (delay, delay);
            for _ in 1..attempts {
                next = next.checked_mul(2)?;
                needed = if next > max_delay { needed.checked_add(max_delay)? } else { next };
                next = next.min(max_delay.checked_mul(2)?);
            }
            Some(needed)
        }
        DelayFunction::Fibonacci => {
            let (mut before, mut last, mut at_most) = (delay, delay, false);
            for _ in 2..attempts {
                let sum = last.checked_add(if at_most { max_delay } else { before })?;
                let next = if at_most { sum } else { sum.min(max_delay) };
                at_most = at_most || sum > max_delay;
                (before, last) = (last, next);
            }
            Some(last)
        }
    }
}
