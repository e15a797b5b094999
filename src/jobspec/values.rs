//! Values that take more than one field to judge, and what is carried on as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Number, Value as Json};

use crate::model::env;
use crate::model::job::{JobKind, Lifecycle, LifecycleHook, RestartMode, RestartPolicy};
use crate::model::signal;

use super::diagnostic::{Problems, Span, quote};
use super::fields::{Fields, Spanned};
use super::limits;
use super::quantity::format_duration;
use super::tree::{Form, Literal, StanzaBody, ValueNode, join};
use crate::model::nearest::nearest;

/// Nomad's rules: an interval of at least 5 s, room for all attempts in it, and no delay without attempts.
pub(super) fn restart(fields: &Fields<'_>, key: &Span, default: RestartPolicy) -> RestartPolicy {
    let attempts = fields.integer("attempts", 0..=limits::RESTART_ATTEMPTS);
    let interval = fields.duration("interval");
    let delay = fields.duration("delay");
    let mode = fields.choice("mode", &[("fail", RestartMode::Fail), ("delay", RestartMode::Delay)]);
    let place = |spans: [Option<&Span>; 3]| spans.into_iter().flatten().next().unwrap_or(key).clone();
    let spans =
        (attempts.as_ref().map(|a| &a.span), interval.as_ref().map(|a| &a.span), delay.as_ref().map(|a| &a.span));
    let mode_span = mode.as_ref().map(|a| &a.span);
    let policy = RestartPolicy {
        attempts: attempts.as_ref().map_or(default.attempts, |at| u32::try_from(at.value).unwrap_or(u32::MAX)),
        interval: interval.as_ref().map_or(default.interval, |at| at.value),
        delay: delay.as_ref().map_or(default.delay, |at| at.value),
        mode: mode.as_ref().map_or(default.mode, |at| at.value),
    };
    let needed = policy.delay.checked_mul(policy.attempts);
    if policy.attempts == 0 && policy.mode == RestartMode::Delay {
        let advice = Some("to restart never write mode = \"fail\"".to_owned());
        let at = place([spans.0, mode_span, None]);
        fields.error(&at, "attempts", "0 attempts with mode `delay` is ambiguous", advice);
    } else if policy.interval < limits::RESTART_INTERVAL {
        let message = format!("`interval` must be at least {}", format_duration(limits::RESTART_INTERVAL));
        fields.error(&place([spans.1, None, None]), "interval", message, None);
    } else if needed.is_none_or(|needed| needed > policy.interval) {
        let message = format!(
            "{} attempts with a delay of {} do not fit into an interval of {}",
            policy.attempts,
            format_duration(policy.delay),
            format_duration(policy.interval)
        );
        let advice = needed.map(|needed| format!("make `interval` at least {}", format_duration(needed)));
        fields.error(&place([spans.0, spans.2, spans.1]), "attempts", message, advice);
    }
    policy
}

/// `None`: none is given, or it is reported. Services run until they are stopped.
pub(super) fn max_run_duration(fields: &Fields<'_>, kind: JobKind) -> Option<Duration> {
    let at = fields.duration("max_run_duration")?;
    if kind.is_service() {
        let message = "`max_run_duration` is for jobs of type `batch`: a service runs until it is stopped";
        fields.error(&at.span, "max_run_duration", message, Some("add type = \"batch\" to the job".to_owned()));
    } else if at.value.is_zero() {
        fields.error(&at.span, "max_run_duration", "`max_run_duration` is 0", Some("leave it out".to_owned()));
    }
    Some(at.value)
}

/// `key`: where the stanza begins, for what is missing in it.
pub(super) fn lifecycle(fields: &Fields<'_>, key: Option<&Span>) -> Option<Lifecycle> {
    let hooks = [
        ("prestart", LifecycleHook::Prestart),
        ("poststart", LifecycleHook::Poststart),
        ("poststop", LifecycleHook::Poststop),
    ];
    let hook = fields.choice("hook", &hooks);
    if let (None, Some(key)) = (fields.entry("hook"), key) {
        let advice = Some("add hook = \"prestart\", \"poststart\" or \"poststop\"".to_owned());
        fields.error(key, "hook", "the `lifecycle` has no `hook`", advice);
    }
    let sidecar = fields.bool("sidecar");
    let hook = hook?.value;
    match sidecar {
        Some(at) if at.value && hook == LifecycleHook::Poststop => {
            let message = "a `poststop` task is no sidecar: nothing is left to run beside";
            let advice = "write sidecar = false, or hook = \"poststart\" for a task that runs beside".to_owned();
            fields.problems().warn(&at.span, &fields.path_of("sidecar"), message, Some(advice));
            Some(Lifecycle { hook, sidecar: false })
        }
        sidecar => Some(Lifecycle { hook, sidecar: sidecar.is_some_and(|at| at.value) }),
    }
}

/// A name or number, or a number of a user and one of a group: `1000:1000`.
pub(super) fn user(fields: &Fields<'_>) -> Option<String> {
    let Spanned { value, span } = fields.text("user").filter(|at| !at.value.is_empty())?;
    let is_name =
        |name: &str| !name.is_empty() && !name.chars().any(|c| c.is_control() || c.is_whitespace() || c == ':');
    if !value.split_once(':').map_or_else(|| is_name(&value), |(user, group)| is_name(user) && is_name(group)) {
        let advice = Some("a name, a number, or numbers of user and group: \"1000:1000\"".to_owned());
        fields.error(&span, "user", format!("{} is no user", quote(&value)), advice);
        return None;
    }
    Some(value)
}

pub(super) fn kill_signal(fields: &Fields<'_>) -> Option<String> {
    let Spanned { value, span } = fields.text("kill_signal")?;
    if let Some(name) = signal::number(&value).and_then(signal::name) {
        return Some(name.to_owned());
    }
    let near = nearest(&value, signal::names()).map(|name| format!("did you mean `{name}`?"));
    let suggestion = near.or_else(|| Some("SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 ...".to_owned()));
    // Nomad's server takes any word; its driver then cannot send it.
    let message = format!("there is no signal {}: the task is stopped as without `kill_signal`", quote(&value));
    fields.problems().warn(&span, &fields.path_of("kill_signal"), message, suggestion);
    None
}

/// The name of a variable, and whether another one of this `env` becomes the same.
pub(super) fn check_variable<'a>(
    name: &'a Spanned<String>,
    path: &str,
    taken: &mut BTreeMap<String, &'a str>,
    problems: &Problems<'_>,
) {
    if name.value.is_empty() || name.value.contains(['=', '\0']) {
        let message = format!("{} cannot be the name of a variable", quote(&name.value));
        problems.error(&name.span, path, message, Some("use letters, digits and _".to_owned()));
        return;
    }
    let clean = env::variable_name(&name.value);
    if let Some(other) = taken.insert(clean.clone(), &name.value) {
        let message = format!("{} and {} both become {}", quote(other), quote(&name.value), quote(&clean));
        let advice = "only letters, digits and underscores stay as they are".to_owned();
        problems.error(&name.span, path, message, Some(advice));
    }
}

/// What is done with each text: the text, its place, its path.
pub(super) type CheckText<'c> = dyn Fn(&str, &Span, &str) + 'c;

/// A body as JSON, in the words of the file: nested stanzas become objects, repeated ones lists of objects, and a label
/// becomes a key around its object.
pub(super) fn json_object(
    body: &StanzaBody,
    path: &str,
    problems: &Problems<'_>,
    check: &CheckText<'_>,
) -> Map<String, Json> {
    let mut map = Map::new();
    for entry in &body.entries {
        // As if it were not there.
        if matches!(entry.value.value, Literal::Null) {
            continue;
        }
        let path = entry.labels.iter().fold(join(path, &entry.key), |path, label| join(&path, &label.text));
        let Some(value) = json(&entry.value, &path, problems, check) else { continue };
        let value = entry
            .labels
            .iter()
            .rev()
            .fold(value, |inner, label| Json::Object(std::iter::once((label.text.clone(), inner)).collect()));
        match map.get_mut(&entry.key) {
            None => {
                map.insert(entry.key.clone(), value);
            }
            Some(Json::Array(list)) if entry.form == Form::Block => list.push(value),
            Some(one @ Json::Object(_)) if entry.form == Form::Block => {
                *one = Json::Array(vec![one.take(), value]);
            }
            Some(_) => {
                let message = format!("{} is given twice", quote(&entry.key));
                problems.error(&entry.key_span, &path, message, Some("keep one of them".to_owned()));
            }
        }
    }
    map
}

fn json(node: &ValueNode, path: &str, problems: &Problems<'_>, check: &CheckText<'_>) -> Option<Json> {
    match &node.value {
        Literal::Bool(b) => Some(Json::Bool(*b)),
        Literal::Int(n) => {
            let number = i64::try_from(*n).map(Number::from).or_else(|_| u64::try_from(*n).map(Number::from));
            if number.is_err() {
                problems.error(&node.span, path, format!("the number {n} is too large: at most {}", u64::MAX), None);
            }
            number.ok().map(Json::Number)
        }
        Literal::Float(f) => Number::from_f64(*f).map(Json::Number),
        Literal::Text(text) => {
            check(text, &node.span, path);
            Some(Json::String(text.clone()))
        }
        Literal::List(list) => {
            let items = list.iter().enumerate().map(|(i, item)| json(item, &format!("{path}[{i}]"), problems, check));
            // Each item is looked at, so that all problems are found.
            items.collect::<Vec<_>>().into_iter().collect::<Option<Vec<_>>>().map(Json::Array)
        }
        Literal::Object(body) => Some(Json::Object(json_object(body, path, problems, check))),
        Literal::Null => {
            problems.error(&node.span, path, "the value is null", Some("leave it out".to_owned()));
            None
        }
        Literal::Broken => None,
    }
}

/// An empty list is any datacenter, as in Nomad.
pub(super) fn datacenters(job: &Fields<'_>) -> Vec<String> {
    let named = job.texts("datacenters").map_or_else(Vec::new, |list| list.value);
    if named.is_empty() {
        return vec!["*".to_owned()];
    }
    let checked = named.into_iter().map(|Spanned { value, span }| {
        if value.is_empty() {
            let advice = "name it, or write \"*\" for any datacenter".to_owned();
            job.error(&span, "datacenters", "the name of a datacenter is empty", Some(advice));
        }
        value
    });
    checked.collect()
}
