//! `${...}` in `env` and `config`: what may be referred to, when it is resolved, and how.
//!
//! ```text
//! ${NOMAD_ALLOC_ID}  ${HOME}  ${env["HOME"]}   a variable of the task's environment
//! ${meta.owner}      ${meta["owner"]}          the task's metadata (its own, its group's, its job's), else the node's
//! ${attr.cpu.arch}   ${node.unique.name}       what the host is: model::env::attribute_names
//! $${                                          the two characters ${
//! ```
//!
//! As in Nomad, a reference in `env`, `meta` or a service that has no value stays as it is written; one in `config`
//! fails the start ([`prepare`]). What can never have a value is a warning of the file ([`check`]), a missing `}` an
//! error. `meta` is resolved against the `NOMAD_*` variables and what the task inherits, `env` against these and its
//! own other variables, `config` against all of it. What resolving yields is bounded: a file of 200 KiB may name a long
//! value ten thousand times.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::env::{self, Env, TaskContext};
use crate::model::job::Task;

use super::diagnostic::quote;
use super::size::{self, TooLong};
use super::template::{BadReference, InterpolationPart, Target, parts};
use crate::model::nearest::nearest;

/// Why a task cannot be made ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// A reference that was not there when the task was to start. `field`: `env.PORT`, `config.args[1]`
    #[error("{field}: `${{{reference}}}` cannot be resolved: {reason}")]
    Unresolved { field: String, reference: String, reason: String },
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

/// What is known of a task before it runs.
#[derive(Debug)]
pub struct ResolvableNames<'a> {
    pub meta: &'a BTreeMap<String, String>,
    /// The `NOMAD_*` variables that it will have.
    pub nomad: Vec<String>,
    /// The names in its `env`.
    pub own: Vec<&'a str>,
    /// A template of it gives more variables, under any name.
    pub has_rendered: bool,
}

/// A reference that can never be resolved: as it is written (`${meta.x}`), why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnresolvableReference {
    pub written: String,
    pub reason: String,
    pub suggestion: Option<String>,
    /// It breaks the text; else it stays as it is written.
    pub is_unclosed: bool,
}

/// Everything in a template that can never be resolved, whatever the host.
pub fn check(template: &str, known: &ResolvableNames<'_>) -> Vec<UnresolvableReference> {
    let references = parts(template).into_iter().filter_map(|part| match part {
        InterpolationPart::Text(_) => None,
        InterpolationPart::Reference(reference, target) => Some((reference, target)),
    });
    references.filter_map(|(reference, target)| never(reference, target, known)).collect()
}

fn never(
    reference: &str,
    target: Result<Target, BadReference>,
    known: &ResolvableNames<'_>,
) -> Option<UnresolvableReference> {
    let near = |name: &str, words: &mut dyn Iterator<Item = &str>| {
        nearest(name, words).map(|word| format!("did you mean {}?", quote(word)))
    };
    let is_unclosed = target == Err(BadReference::Unclosed);
    let closing = if is_unclosed { "" } else { "}" };
    let written = format!("${{{reference}{closing}");
    let (reason, suggestion) = match target {
        Err(error) => (error.to_string(), Some("for the two characters themselves write `$${`".to_owned())),
        Ok(Target::Variable(name)) => {
            let is_own = known.own.contains(&name.as_str()) || known.has_rendered && !name.starts_with("NOMAD_");
            if !is_own && name.contains('.') {
                let advice = "for the two characters themselves write `$${`".to_owned();
                return Some(UnresolvableReference {
                    written,
                    reason: BadReference::Unknown.to_string(),
                    suggestion: Some(advice),
                    is_unclosed,
                });
            }
            if let Some(reason) = of_a_cluster(&name).filter(|_| !is_own) {
                return Some(UnresolvableReference {
                    written,
                    reason: reason.to_owned(),
                    suggestion: None,
                    is_unclosed,
                });
            }
            if is_own || !name.starts_with("NOMAD_") || known.nomad.contains(&env::clean_name(&name)) {
                return None;
            }
            match limit_field(&name) {
                Some(field) => (
                    "it exists only where the task requests it".to_owned(),
                    Some(format!("give `{field}` in `resources`")),
                ),
                None => {
                    // Compared without the prefix, which would make all of them alike.
                    let short = |name: &'_ str| name.get("NOMAD_".len()..).unwrap_or("").to_owned();
                    let words: Vec<String> = known.nomad.iter().map(|name| short(name)).collect();
                    let near = nearest(&short(&name), words.iter().map(String::as_str));
                    ("there is no such variable".to_owned(), near.map(|word| format!("did you mean `NOMAD_{word}`?")))
                }
            }
        }
        Ok(Target::Meta(key)) => {
            // One that is not the job's may be the node's, unless it reads like a slip.
            let near = near(&key, &mut known.meta.keys().map(String::as_str));
            if known.meta.contains_key(&key) || near.is_none() {
                return None;
            }
            ("there is no such key in `meta`".to_owned(), near)
        }
        Ok(Target::Attribute(name)) => {
            if env::may_be_attribute(&name) {
                return None;
            }
            let names: Vec<String> = env::attribute_names().collect();
            let of_node = || {
                Some(format!(
                    "the node's metadata is `${{{}}}`",
                    name.strip_prefix("node.meta.").map(|key| format!("meta.{key}"))?
                ))
            };
            let suggestion = of_node()
                .or_else(|| near(&name, &mut names.iter().map(String::as_str)))
                .unwrap_or_else(|| "docs/hcl.md lists the attributes of the host".to_owned());
            ("there is no such attribute".to_owned(), Some(suggestion))
        }
    };
    Some(UnresolvableReference { written, reason, suggestion, is_unclosed })
}

/// The attributes that a task refers to, each behind the field that does: `env.ARCH`, `config.args[1]`.
pub fn attributes_in(task: &Task) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, template) in &task.env {
        attributes_of(&format!("env.{name}"), template, &mut found);
    }
    for (key, value) in &task.config {
        attributes_below(&format!("config.{key}"), value, &mut found);
    }
    found
}

fn attributes_below(field: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::String(template) => attributes_of(field, template, found),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, item)| attributes_below(&format!("{field}[{i}]"), item, found));
        }
        Value::Object(map) => {
            map.iter().for_each(|(key, item)| attributes_below(&format!("{field}.{key}"), item, found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn attributes_of(field: &str, template: &str, found: &mut Vec<(String, String)>) {
    found.extend(parts(template).into_iter().filter_map(|part| match part {
        InterpolationPart::Reference(_, Ok(Target::Attribute(name))) => Some((field.to_owned(), name)),
        InterpolationPart::Reference(..) | InterpolationPart::Text(_) => None,
    }));
}

/// Variables that Nomad's tasks have and those of one node do not.
fn of_a_cluster(variable: &str) -> Option<&'static str> {
    match variable {
        "NOMAD_TOKEN" => Some("no server issues an `identity`, so that there is no token"),
        name if name.starts_with("NOMAD_UPSTREAM_") => {
            Some("there is no service mesh: an upstream of `connect` has no address")
        }
        _ => None,
    }
}

fn limit_field(variable: &str) -> Option<&'static str> {
    match variable {
        "NOMAD_CPU_LIMIT" => Some("cpu"),
        "NOMAD_CPU_CORES" => Some("cores"),
        "NOMAD_MEMORY_MAX_LIMIT" => Some("memory_max"),
        _ => None,
    }
}

/// The task ready to start: `env` and `config` interpolated, and its whole environment.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedTask {
    pub task: Task,
    /// Inherited < `NOMAD_*` < the task's own `env` < what says which devices are its own < what its templates render.
    pub env: Env,
}

/// The environment that templates read: what resolves of it before they are rendered. Pure.
fn environment(context: &TaskContext<'_>) -> Env {
    let (mut whole, meta) = outer(context);
    let own = own_variables(context, &whole, &meta);
    whole.extend(own.into_iter().map(|(name, text)| (env::variable_name(&name), text)));
    whole
}

/// What a task's own `env` is resolved against: what it inherits, the `NOMAD_*` variables and what hooks add; and its
/// metadata.
fn outer(context: &TaskContext<'_>) -> (Env, BTreeMap<String, String>) {
    let mut whole = context.inherited.clone();
    whole.extend(env::nomad_variables(context));
    whole.extend(context.added.clone());
    let mut meta = env::merged_meta(context.job, context.group, context.task);
    if meta.values().any(|text| text.contains("${")) {
        let none = BTreeMap::new();
        let scope = InterpolationScope { env: &whole, meta: &none, attributes: context.attributes };
        let mut room = size::TOGETHER;
        meta.values_mut().for_each(|text| *text = scope.tolerant(text, None, &mut room));
        whole.extend(env::meta_variables(&meta));
    }
    (whole, meta)
}

/// The task's `env`, resolved. A variable may refer to another one of the same `env`, one level deep; of its own name
/// it means the one that it inherits.
fn own_variables(context: &TaskContext<'_>, whole: &Env, meta: &BTreeMap<String, String>) -> Env {
    let scope = InterpolationScope { env: whole, meta, attributes: context.attributes };
    let templates = &context.task.env;
    let mut room = size::TOGETHER;
    let mut resolve = |(name, template): (&String, &String), own: Option<&Env>| {
        (name.clone(), scope.tolerant(template, own.map(|own| (name.as_str(), own)), &mut room))
    };
    let first: Env = templates.iter().map(|variable| resolve(variable, None)).collect();
    let refers = |template: &str| {
        parts(template).iter().any(|part| match part {
            InterpolationPart::Reference(_, Ok(Target::Variable(name))) => templates.contains_key(name),
            InterpolationPart::Reference(..) | InterpolationPart::Text(_) => false,
        })
    };
    let second: Vec<(String, String)> = templates
        .iter()
        .filter(|(_, template)| refers(template))
        .map(|variable| resolve(variable, Some(&first)))
        .collect();
    let mut all = first.clone();
    all.extend(second);
    all
}

/// Resolves texts of a task that are needed before its templates are rendered: against its whole environment but for
/// what they render, its metadata and the attributes of the node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Resolver {
    env: Env,
    meta: BTreeMap<String, String>,
    attributes: Env,
}

impl Resolver {
    pub fn new(context: &TaskContext<'_>) -> Resolver {
        Resolver { env: environment(context), meta: outer(context).1, attributes: context.attributes.clone() }
    }
    /// Errors: the first reference that is not there.
    pub fn resolve(&self, field: &str, template: &str) -> Result<String, NotReady> {
        let (mut text, mut failed) = (template.to_owned(), Vec::new());
        let scope = InterpolationScope { env: &self.env, meta: &self.meta, attributes: &self.attributes };
        scope.replace(field, &mut text, &mut failed);
        failed.into_iter().next().map_or(Ok(text), Err)
    }
    /// A reference that is not there stays as it is written.
    pub fn tolerant(&self, template: &str) -> String {
        let scope = InterpolationScope { env: &self.env, meta: &self.meta, attributes: &self.attributes };
        scope.tolerant(template, None, &mut size::TEXT.clone())
    }
    /// What `env` of a rendered template reads: a variable of the task, or an attribute of the node (`attr.*`,
    /// `node.*`, `meta.*`).
    pub fn lookup(&self, name: &str) -> Option<&str> {
        self.env.get(name).or_else(|| self.attributes.get(name)).map(String::as_str)
    }
}

/// Resolves every reference of a task. Pure and deterministic: the same context gives the same result.
///
/// Errors: every reference that is not there now, or what gets too long; starting again does not help unless the host
/// changes.
pub fn prepare(context: &TaskContext<'_>) -> Result<PreparedTask, Vec<NotReady>> {
    let (mut whole, meta) = outer(context);
    let mut task = context.task.clone();
    let mut failed = Vec::new();
    let base = InterpolationScope { env: &whole, meta: &meta, attributes: context.attributes };
    size::measure(&task, &whole, |target| base.value(target).map_or(0, str::len))
        .map_err(|error| vec![error.into()])?;
    task.env = own_variables(context, &whole, &meta);
    whole.extend(task.env.iter().map(|(name, value)| (env::variable_name(name), value.clone())));
    whole.extend(context.added.clone());
    let all = InterpolationScope { env: &whole, meta: &meta, attributes: context.attributes };
    for (key, value) in &mut task.config {
        all.replace_in(&format!("config.{key}"), value, &mut failed);
    }
    for (at, mount) in task.volume_mounts.iter_mut().enumerate() {
        all.replace(&format!("volume_mount[{at}].destination"), &mut mount.destination, &mut failed);
    }
    if failed.is_empty() { Ok(PreparedTask { task, env: whole }) } else { Err(failed) }
}

/// A template of the group rather than of a task: the host name, the name servers and the arguments of its network.
///
/// Errors: the references that are not there now.
pub fn resolve(
    field: &str,
    template: &str,
    env: &Env,
    meta: &BTreeMap<String, String>,
    attributes: &Env,
) -> Result<String, Vec<NotReady>> {
    let (mut text, mut failed) = (template.to_owned(), Vec::new());
    InterpolationScope { env, meta, attributes }.replace(field, &mut text, &mut failed);
    if failed.is_empty() { Ok(text) } else { Err(failed) }
}

struct InterpolationScope<'a> {
    env: &'a Env,
    meta: &'a BTreeMap<String, String>,
    attributes: &'a Env,
}

impl InterpolationScope<'_> {
    fn replace(&self, field: &str, template: &mut String, failed: &mut Vec<NotReady>) {
        let mut text = String::with_capacity(template.len());
        for part in parts(template) {
            match part {
                InterpolationPart::Text(literal) => text.push_str(literal),
                InterpolationPart::Reference(reference, target) => match self.resolve(target) {
                    Ok(value) if text.len() + value.len() < size::TEXT => text.push_str(value),
                    Ok(value) => {
                        let (field, length) = (field.to_owned(), text.len() + value.len());
                        failed.push(NotReady::TooLong(TooLong::Text { field, length }));
                        return;
                    }
                    Err(reason) => {
                        let (field, reference) = (field.to_owned(), reference.to_owned());
                        failed.push(NotReady::Unresolved { field, reference, reason });
                    }
                },
            }
        }
        *template = text;
    }
    /// What has no value, or none that `room` bytes have a place for, stays as it is written. `own`: the name of the
    /// variable that this becomes, and the others beside it.
    fn tolerant(&self, template: &str, own: Option<(&str, &Env)>, room: &mut usize) -> String {
        let mut text = String::with_capacity(template.len());
        for part in parts(template) {
            let (reference, target) = match part {
                InterpolationPart::Text(literal) => {
                    text.push_str(literal);
                    continue;
                }
                InterpolationPart::Reference(reference, target) => (reference, target),
            };
            let sibling = match (&target, own) {
                (Ok(Target::Variable(name)), Some((itself, rest))) if name != itself => rest.get(name),
                _ => None,
            };
            let value = sibling.map(String::as_str).or_else(|| self.value(target.as_ref().ok()?));
            match value.filter(|value| value.len() <= *room && text.len() + value.len() < size::TEXT) {
                Some(value) => {
                    *room -= value.len();
                    text.push_str(value);
                }
                None if target == Err(BadReference::Unclosed) => text.push_str(&format!("${{{reference}")),
                None => text.push_str(&format!("${{{reference}}}")),
            }
        }
        text
    }
    fn resolve(&self, target: Result<Target, BadReference>) -> Result<&str, String> {
        let target = target.map_err(|error| error.to_string())?;
        let missing = match target {
            Target::Variable(_) => "the environment has no such variable",
            Target::Meta(_) => "there is no such key in `meta`, neither of the job nor of the node",
            Target::Attribute(_) => "this host has no such attribute",
        };
        self.value(&target).ok_or_else(|| missing.to_owned())
    }
    fn value(&self, target: &Target) -> Option<&str> {
        let found = match target {
            // `${NOMAD_PORT_my-port}` is the variable NOMAD_PORT_my_port.
            Target::Variable(name) => self.env.get(name).or_else(|| self.env.get(&env::clean_name(name))),
            Target::Meta(key) => self.meta.get(key).or_else(|| self.attributes.get(&format!("meta.{key}"))),
            Target::Attribute(name) => self.attributes.get(name),
        };
        found.map(String::as_str)
    }
    fn replace_in(&self, field: &str, value: &mut Value, failed: &mut Vec<NotReady>) {
        match value {
            Value::String(template) => self.replace(field, template, failed),
            Value::Array(list) => {
                for (i, item) in list.iter_mut().enumerate() {
                    self.replace_in(&format!("{field}[{i}]"), item, failed);
                }
            }
            Value::Object(map) => {
                for (key, item) in map {
                    self.replace_in(&format!("{field}.{key}"), item, failed);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
#[path = "interpolate_tests.rs"]
mod tests;
