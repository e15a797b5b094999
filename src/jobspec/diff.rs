//! The difference of two jobs, field by field: what `allostat plan` shows. Pure.
//!
//! It walks the JSON of both jobs, so a new field of the model needs no line here. Objects in lists are matched by
//! their name. Values that may be secrets are compared and never shown.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::quantity::format_duration;
use crate::model::job::Job;
use crate::model::sensitive::{HIDDEN, SensitiveValues};
use crate::model::words;

/// A longer value is cut.
const VALUE_CHARS: usize = 200;
/// A field or an object with one of these in its name has a secret.
const SENSITIVE: [&str; 11] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "private",
    "auth",
    "apikey",
    "api_key",
    "access_key",
];
/// Whole texts that often hold secrets: of templates, of checks, of payloads.
const SENSITIVE_TEXTS: [&str; 4] = ["data", "headers", "body", "payload"];

words! {
    /// What happens to a field or an object.
    pub enum DiffKind {
        Added = "added",
        Removed = "removed",
        Edited = "edited",
    }
}

/// What differs in a job, a group, a task or a part of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ObjectDiff {
    #[serde(rename = "type")]
    pub kind: DiffKind,
    /// `job`, `group`, `task`, `resources`, `env` ...
    pub object: String,
    /// Empty: it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldDiff>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectDiff>,
}

/// One value that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FieldDiff {
    #[serde(rename = "type")]
    pub kind: DiffKind,
    pub name: String,
    /// Absent: it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

/// `None`: nothing differs.
pub fn difference(old: &Job, new: &Job) -> Option<ObjectDiff> {
    let map = |job: &Job| match serde_json::to_value(job) {
        Ok(Value::Object(mut map)) => {
            map.remove("sensitive");
            map
        }
        // A job is an object.
        Ok(_) | Err(_) => Map::new(),
    };
    let values = old.sensitive.with(&new.sensitive);
    let (old, new) = (map(old), map(new));
    let hide = DiffRedaction { values: &values, all: false };
    object("job", new.get("id").and_then(Value::as_str).unwrap_or_default(), Some(&old), Some(&new), hide)
}

/// A JSON object of a job. `None`: the job has none.
type JsonObject<'a> = Option<&'a Map<String, Value>>;

/// What is compared and not shown.
#[derive(Clone, Copy)]
struct DiffRedaction<'a> {
    /// Those of the job's sensitive variables.
    values: &'a SensitiveValues,
    /// Every value: it may be a secret by its name.
    all: bool,
}

fn object(
    of: &str,
    name: &str,
    old: JsonObject<'_>,
    new: JsonObject<'_>,
    hide: DiffRedaction<'_>,
) -> Option<ObjectDiff> {
    let keys = |of: JsonObject<'_>| of.into_iter().flat_map(Map::keys).cloned().collect::<BTreeSet<_>>();
    let mut all = ObjectDiff {
        kind: kind_of(old.is_some(), new.is_some()),
        object: of.to_owned(),
        name: hide.values.hide(name).into_owned(),
        fields: Vec::new(),
        objects: Vec::new(),
    };
    for key in keys(old).union(&keys(new)) {
        let value = |of: JsonObject<'_>| of.and_then(|map| map.get(key)).filter(|value| !is_nothing(value)).cloned();
        let (old, new) = (value(old), value(new));
        // What a whole new object is called stands at it.
        if old != new
            && !(matches!(key.as_str(), "name" | "label") && old.is_some() != new.is_some() && !name.is_empty())
        {
            member(&mut all, key, old, new, DiffRedaction { all: hide.all || is_sensitive(of, key), ..hide });
        }
    }
    let is_empty = all.fields.is_empty() && all.objects.is_empty();
    (!is_empty || all.kind != DiffKind::Edited).then_some(all)
}

fn member(into: &mut ObjectDiff, key: &str, old: Option<Value>, new: Option<Value>, hide: DiffRedaction<'_>) {
    let is_map =
        |value: &Option<Value>| value.as_ref().is_none_or(|value| value.is_object() && duration(value).is_none());
    let are_objects = |value: &Option<Value>| {
        value.as_ref().is_none_or(|value| value.as_array().is_some_and(|all| all.iter().all(Value::is_object)))
    };
    if is_map(&old) && is_map(&new) {
        let map = |value: &Option<Value>| value.as_ref().and_then(Value::as_object).cloned();
        let (old, new) = (map(&old), map(&new));
        into.objects.extend(object(singular(key), "", old.as_ref(), new.as_ref(), hide));
    } else if are_objects(&old) && are_objects(&new) {
        into.objects.extend(list(singular(key), &items(old), &items(new), hide));
    } else {
        let show = |value: Option<Value>| value.map(|value| shown(key, &value, hide));
        let (name, kind) = (hide.values.hide(&field_name(key)).into_owned(), kind_of(old.is_some(), new.is_some()));
        into.fields.push(FieldDiff { kind, name, old: show(old), new: show(new) });
    }
}

fn items(list: Option<Value>) -> Vec<Map<String, Value>> {
    let Some(Value::Array(all)) = list else { return Vec::new() };
    all.into_iter().filter_map(|one| if let Value::Object(map) = one { Some(map) } else { None }).collect()
}

/// Those of one name are compared, in their order; those without a name are added or removed as a whole.
fn list(of: &str, old: &[Map<String, Value>], new: &[Map<String, Value>], hide: DiffRedaction<'_>) -> Vec<ObjectDiff> {
    let mut left: Vec<Option<&Map<String, Value>>> = new.iter().map(Some).collect();
    // What did not change belongs together, also of several without a name.
    let mut changed: Vec<&Map<String, Value>> = Vec::new();
    for one in old {
        match left.iter_mut().find(|other| **other == Some(one)) {
            Some(same) => *same = None,
            None => changed.push(one),
        }
    }
    let mut all = Vec::new();
    for one in changed {
        let name = name_of(one);
        let is_it =
            |other: &Option<&Map<String, Value>>| other.is_some_and(|other| !name.is_empty() && name_of(other) == name);
        let other = left.iter_mut().find(|other| is_it(other)).and_then(Option::take);
        all.extend(object(of, name, Some(one), other, hide));
    }
    all.extend(left.into_iter().flatten().filter_map(|new| object(of, name_of(new), None, Some(new), hide)));
    all
}

fn name_of(of: &Map<String, Value>) -> &str {
    ["name", "label", "volume", "destination"].iter().find_map(|key| of.get(*key)?.as_str()).unwrap_or_default()
}

fn kind_of(was: bool, is: bool) -> DiffKind {
    match (was, is) {
        (false, _) => DiffKind::Added,
        (true, false) => DiffKind::Removed,
        (true, true) => DiffKind::Edited,
    }
}

/// As if it were not there: `null`, and what is empty.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn is_sensitive(of: &str, key: &str) -> bool {
    let key = key.to_lowercase();
    let is_text = matches!(of, "template" | "check" | "dispatch" | "child") && SENSITIVE_TEXTS.contains(&key.as_str());
    is_text || SENSITIVE.iter().any(|word| key.contains(word))
}

/// As job files say it.
fn singular(key: &str) -> &str {
    match key {
        "groups" => "group",
        "tasks" => "task",
        "constraints" => "constraint",
        "affinities" => "affinity",
        "templates" => "template",
        "artifacts" => "artifact",
        "checks" => "check",
        "ports" => "port",
        "devices" => "device",
        "volumes" => "volume",
        "volume_mounts" => "volume_mount",
        other => other,
    }
}

fn field_name(key: &str) -> String {
    match key {
        "cpu_shares" => "cpu".to_owned(),
        "memory_unlimited" => "memory_max unlimited".to_owned(),
        "max_file_bytes" => "max_file_size".to_owned(),
        "type" => "type".to_owned(),
        other => other.strip_suffix("_bytes").unwrap_or(other).to_owned(),
    }
}

fn shown(key: &str, value: &Value, hide: DiffRedaction<'_>) -> String {
    let without = hide.values.hide_in_json(value);
    if hide.all || without == HIDDEN {
        return HIDDEN.to_owned();
    }
    let text = match &without {
        Value::String(text) => format!("{text:?}"),
        Value::Number(number) if key.ends_with("_bytes") => {
            number.as_u64().map_or_else(|| number.to_string(), mebibytes)
        }
        Value::Number(number) if key == "perms" => {
            number.as_u64().map_or_else(|| number.to_string(), |mode| format!("{mode:04o}"))
        }
        other => duration(other).unwrap_or_else(|| other.to_string()),
    };
    let text = hide.values.hide(&text).into_owned();
    match text.char_indices().nth(VALUE_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

fn mebibytes(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{} MiB", bytes >> 20) } else { format!("{bytes} bytes") }
}

/// As serde writes one.
fn duration(value: &Value) -> Option<String> {
    let map = value.as_object().filter(|map| map.len() == 2)?;
    let (secs, nanos) = (map.get("secs")?.as_u64()?, map.get("nanos")?.as_u64()?);
    Some(format_duration(std::time::Duration::new(secs, u32::try_from(nanos).ok().filter(|n| *n < 1_000_000_000)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(text: &str) -> Job {
        super::super::parse("job.hcl", text).unwrap_or_else(|errors| panic!("{errors}")).job
    }

    fn web(group: &str, task: &str) -> Job {
        job(&format!(
            "job \"web\" {{\n type = \"service\"\n group \"app\" {{\n {group}\n task \"server\" {{\n driver = \"raw_exec\"\n config {{\n \
             command = \"/bin/app\"\n }}\n {task}\n }}\n }}\n}}\n"
        ))
    }

    /// Each line as `kind path: old => new`.
    fn lines(diff: &ObjectDiff, above: &str, into: &mut Vec<String>) {
        let here = format!("{above}/{}{}{}", diff.object, if diff.name.is_empty() { "" } else { ":" }, diff.name);
        if diff.kind != DiffKind::Edited {
            into.push(format!("{} {here}", diff.kind.as_str()));
        }
        for field in &diff.fields {
            let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
            into.push(format!(
                "{} {here} {}: {} => {}",
                field.kind.as_str(),
                field.name,
                text(&field.old),
                text(&field.new)
            ));
        }
        diff.objects.iter().for_each(|inner| lines(inner, &here, into));
    }
    fn shown_as(old: &Job, new: &Job) -> Vec<String> {
        let mut all = Vec::new();
        if let Some(diff) = difference(old, new) {
            lines(&diff, "", &mut all);
        }
        all
    }

    #[test]
    fn equal_jobs_have_no_difference() {
        assert_eq!(difference(&web("", ""), &web("", "")), None);
    }

    #[test]
    fn changed_fields_have_old_and_new_values_in_job_file_terms() {
        let old = web("count = 2", "resources {\n memory = 64\n cpu = 100\n }\n kill_timeout = \"5s\"");
        let new = web("count = 3", "resources {\n memory = 128\n cpu = 100\n }\n kill_timeout = \"90s\"");
        let server = "/job:web/group:app/task:server";
        assert_eq!(
            shown_as(&old, &new),
            [
                "edited /job:web/group:app count: 2 => 3".to_owned(),
                format!("edited {server} kill_timeout: 5s => 1m30s"),
                format!("edited {server}/resources memory: 64 MiB => 128 MiB"),
            ]
        );
    }

    #[test]
    fn added_and_removed_parts_are_named_with_their_values() {
        let old = web("", "env {\n A = \"1\"\n B = \"2\"\n }");
        let new = web("", "env {\n B = \"2\"\n C = \"3\"\n }\n meta {\n k = \"v\"\n }");
        let server = "/job:web/group:app/task:server";
        assert_eq!(
            shown_as(&old, &new),
            [
                format!("removed {server}/env A: \"1\" => -"),
                format!("added {server}/env C: - => \"3\""),
                format!("added {server}/meta"),
                format!("added {server}/meta k: - => \"v\""),
            ]
        );
        let mut two = old.clone();
        two.groups[0].tasks.push(old.groups[0].tasks[0].clone());
        two.groups[0].tasks[1].name = "other".into();
        assert_eq!(shown_as(&old, &two)[0], "added /job:web/group:app/task:other");
        assert_eq!(shown_as(&two, &old)[0], "removed /job:web/group:app/task:other");
    }

    #[test]
    fn secrets_are_compared_and_never_shown() {
        let with = |secret: &str| {
            web(
                "",
                &format!(
                    "env {{\n DB_PASSWORD = \"{secret}\"\n PLAIN = \"x\"\n }}\n template {{\n data = \"{secret}\"\n destination = \"local/a\"\n }}"
                ),
            )
        };
        let all = shown_as(&with("hunter1"), &with("hunter2"));
        let text = all.join("\n");
        assert!(!text.contains("hunter"), "{text}");
        assert_eq!(all.iter().filter(|line| line.contains("(sensitive) => (sensitive)")).count(), 2, "{text}");
        assert!(shown_as(&with("a"), &web("", "")).join("\n").contains("DB_PASSWORD: (sensitive) => -"));
    }

    #[test]
    fn long_values_are_cut() {
        let old = web("", "meta {\n k = \"v\"\n }");
        let new = web("", &format!("meta {{\n k = \"{}\"\n }}", "x".repeat(5_000)));
        assert!(shown_as(&old, &new)[0].chars().count() < 400);
    }
}
