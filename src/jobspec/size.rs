//! How long a task's texts get when their references are resolved: what no `execve` takes is refused before anybody
//! makes it.
//!
//! A file of 200 KiB may name a long value ten thousand times: it is measured, never built.

use std::collections::BTreeMap;

use serde_json::Value;

use super::template::{InterpolationPart, Target, parts};
use crate::model::env::{self, Env};
use crate::model::job::{Job, Task, TaskGroup};

/// One argument or variable, with the zero behind it. Source: `MAX_ARG_STRLEN`, include/uapi/linux/binfmts.h.
pub(super) const TEXT: usize = 128 << 10;
/// All arguments and variables of a task. Source: fs/exec.c: a quarter of the stack's limit, which is 8 MiB by default.
pub(super) const TOGETHER: usize = 2 << 20;

/// What gets longer than a program can be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TooLong {
    #[error("{field}: it gets {length} bytes long, and no argument or variable can be longer than {} KiB", TEXT >> 10)]
    Text { field: String, length: usize },
    #[error("{field}: with it the task's variables and arguments get longer than {} MiB together", TOGETHER >> 20)]
    Together { field: String },
}

impl TooLong {
    /// `env.PORT`, `config.args[1]`, `meta.owner`
    pub fn field(&self) -> &str {
        match self {
            TooLong::Text { field, .. } | TooLong::Together { field } => field,
        }
    }
}

/// Measures a task before it is taken on: what only its start knows (paths, the alloc's id, attributes) counts nothing
/// here.
///
/// Errors: the first text that is too long, in the order of fields.
pub fn check(job: &Job, group: &TaskGroup, task: &Task, inherited: &Env) -> Result<(), TooLong> {
    let meta = env::merged_meta(job, group, task);
    for (key, value) in &meta {
        text(&format!("meta.{key}"), value.len())?;
    }
    let mut env = inherited.clone();
    env.extend(env::meta_variables(&meta));
    env.extend(env::limit_variables(task));
    measure(task, &env, |target| match target {
        Target::Variable(name) => env.get(name).map_or(0, String::len),
        Target::Meta(key) => meta.get(key).map_or(0, String::len),
        Target::Attribute(_) => 0,
    })
}

/// The same where every value is known. `length`: of what a reference stands for.
pub fn measure(task: &Task, env: &Env, length: impl Fn(&Target) -> usize) -> Result<(), TooLong> {
    let mut room = SizeBudget(TOGETHER);
    for (name, value) in env {
        room.take("env", name.len() + value.len())?;
    }
    // A variable may refer to others of the same `env`.
    let first: BTreeMap<&str, usize> =
        task.env.iter().map(|(name, template)| (name.as_str(), expanded(template, &length))).collect();
    let mut own = BTreeMap::new();
    for (name, template) in &task.env {
        let sibling = |target: &Target| match target {
            Target::Variable(other) if other != name => {
                first.get(other.as_str()).copied().unwrap_or_else(|| length(target))
            }
            Target::Variable(_) | Target::Meta(_) | Target::Attribute(_) => length(target),
        };
        let (field, long) = (format!("env.{name}"), expanded(template, sibling));
        text(&field, name.len() + 1 + long)?;
        room.take(&field, name.len() + long)?;
        own.insert(env::variable_name(name), long);
    }
    let length = |target: &Target| match target {
        Target::Variable(name) => own.get(name).copied().unwrap_or_else(|| length(target)),
        Target::Meta(_) | Target::Attribute(_) => length(target),
    };
    task.config.iter().try_for_each(|(key, value)| texts(&format!("config.{key}"), value, &length, &mut room))
}

fn texts(field: &str, value: &Value, length: &dyn Fn(&Target) -> usize, room: &mut SizeBudget) -> Result<(), TooLong> {
    match value {
        Value::String(template) => {
            let long = expanded(template, length);
            text(field, long)?;
            room.take(field, long)
        }
        Value::Array(list) => {
            let mut items = list.iter().enumerate();
            items.try_for_each(|(i, item)| texts(&format!("{field}[{i}]"), item, length, room))
        }
        Value::Object(map) => {
            map.iter().try_for_each(|(key, item)| texts(&format!("{field}.{key}"), item, length, room))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn expanded(template: &str, length: impl Fn(&Target) -> usize) -> usize {
    let part = |part: InterpolationPart<'_>| match part {
        InterpolationPart::Text(literal) => literal.len(),
        InterpolationPart::Reference(_, target) => target.as_ref().map_or(0, &length),
    };
    parts(template).into_iter().map(part).fold(0, usize::saturating_add)
}

fn text(field: &str, length: usize) -> Result<(), TooLong> {
    if length < TEXT { Ok(()) } else { Err(TooLong::Text { field: field.to_owned(), length }) }
}

/// What is left of all that a task may be given.
struct SizeBudget(usize);

impl SizeBudget {
    fn take(&mut self, field: &str, length: usize) -> Result<(), TooLong> {
        // Each has a zero behind it and a pointer to it.
        const OVERHEAD: usize = 1 + size_of::<usize>();
        let left = self.0.checked_sub(length.saturating_add(OVERHEAD));
        self.0 = left.ok_or_else(|| TooLong::Together { field: field.to_owned() })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobspec;

    fn file(meta: usize, body: &str) -> String {
        let meta = "m".repeat(meta);
        format!(
            "job \"shop\" {{\n  meta {{ M = \"{meta}\" }}\n  group \"web\" {{\n    task \"server\" {{\n      driver = \"mock\"\n{body}\n    }}\n  }}\n}}\n"
        )
    }
    fn refused(meta: usize, body: &str) -> String {
        let problems = jobspec::parse("x.hcl", &file(meta, body)).unwrap_err().0;
        let [problem] = problems.as_slice() else { panic!("{problems:?}") };
        format!("{}:{} {}", problem.line, problem.field, problem.message)
    }
    fn many(n: usize) -> String {
        "${meta.M}".repeat(n)
    }

    #[test]
    fn an_argument_is_at_most_128_kib_with_its_zero() {
        let args = |tail: &str| format!("config {{ args = [\"a\", \"{}{tail}\"] }}", many(16));
        assert!(jobspec::parse("x.hcl", &file(8_191, &args(&"x".repeat(15)))).is_ok());
        let message = refused(8_191, &args(&"x".repeat(16)));
        assert!(message.starts_with("6:job.shop.group.web.task.server.config.args[1] "), "{message}");
        assert!(message.contains("gets 131072 bytes long"), "{message}");
    }

    #[test]
    fn a_variable_counts_with_its_name_and_again_where_it_is_referred_to() {
        let message = refused(8_191, &format!("env {{ V = \"{}\" }}", many(17)));
        assert!(message.starts_with("6:job.shop.group.web.task.server.env.V "), "{message}");
        let twice = format!("env {{ V = \"{}\" }}\nconfig {{ command = \"${{V}}${{V}}\" }}", many(9));
        let message = refused(8_191, &twice);
        assert!(message.starts_with("7:job.shop.group.web.task.server.config.command "), "{message}");
        let message = refused(131_072, "");
        assert!(message.contains("meta.M"), "{message}");
    }

    #[test]
    fn all_of_them_together_are_at_most_two_mib() {
        let args = |n: usize| format!("config {{ args = [{}] }}", vec![format!("\"{}\"", many(12)); n].join(", "));
        assert!(jobspec::parse("x.hcl", &file(10_000, &args(16))).is_ok());
        let message = refused(10_000, &args(18));
        assert!(message.starts_with("6:job.shop.group.web.task.server.config.args[17] "), "{message}");
        assert!(message.contains("2 MiB together"), "{message}");
    }

    #[test]
    fn inherited_environment_counts_toward_the_size_limit() {
        let body = format!("config {{ command = \"{}\" }}", "${PATH}".repeat(1_400));
        let parsed = jobspec::parse("x.hcl", &file(1, &body)).unwrap();
        let inherited: Env = [("PATH".to_owned(), "p".repeat(100))].into();
        let [problem] = parsed.too_long(&inherited).try_into().unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!((problem.line, problem.field.as_str()), (6, "job.shop.group.web.task.server.config.command"));
        assert_eq!(parsed.too_long(&Env::new()), []);
    }
}
