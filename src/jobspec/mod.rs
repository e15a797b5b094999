//! Floor 0: job files, HCL and JSON, to `model::job`, with line and column in every error.
//!
//! ```text
//! text ── hcl / json ──> tree (spanned) ── fields + words, build ──> Job + warnings, or every problem of the file
//! Job ── interpolate (when a task starts) ──> env and config without references
//! ```
//!
//! JSON has the words of the HCL. A stanza is an object, or a list with one object; a stanza with a name stands under
//! its name, and several of them in one object or in a list of objects:
//!
//! ```text
//! {"job": {"web": {"type": "batch", "group": {"app": {"task": {"a": {"driver": "raw_exec"}, "b": {...}}}}}}}
//! {"job": [{"web": {...}}]}          {"task": [{"a": {...}}, {"b": {...}}]}          {"resources": [{"cpu": 100}]}
//! ```
//!
//! The shape of Nomad's API (`{"Job": {"TaskGroups": ...}}`) is refused. Texts are templates in both languages.
//!
//! Configuration files are read through the same [`read`], [`fields`] and [`diagnostic`].

mod artifacts;
mod build;
mod cluster_words;
pub mod cron;
mod devices;
pub mod diagnostic;
pub mod diff;
pub mod env_file;
pub mod evaluate;
pub mod fields;
pub mod gotemplate;
mod hcl;
pub mod interpolate;
mod json;
mod launching;
mod limits;
mod names;
mod networks;
mod placing;
pub mod quantity;
pub mod read;
mod reschedule;
mod rollout;
mod service_names;
mod services;
pub mod size;
mod syntax;
mod task_rules;
mod template;
mod template_places;
pub mod templates;
pub mod tree;
mod unclosed;
mod unread;
mod values;
mod volumes;
pub mod words;

use std::collections::BTreeMap;
use std::io::{self, Read};

use crate::model::env::Env;
use crate::model::job::{Job, Task, TaskGroup};
use crate::model::sensitive::SensitiveValues;

pub use diagnostic::{Diagnostic, Diagnostics, Severity};
use diagnostic::{MAX_PROBLEMS, Problems, SourceText, Span};
pub use evaluate::inputs::{GivenValue, GivenVariables};
pub use hcl::Inputs;
use tree::{Form, Literal, StanzaBody, ValueNode, join};

/// A job file that was understood.
#[derive(Debug, Clone)]
pub struct ParsedJob {
    pub job: Job,
    /// What of the file has no effect, or less than one could think: one for each word, in file order.
    pub warnings: Vec<Diagnostic>,
    source: SourceText,
    places: PathSpans,
    /// What stands behind `job` in the file; the job's `id` may be another.
    label: String,
}

/// Reads a job file: JSON if the name ends with `.json` or the text starts with `{`, else HCL.
///
/// Errors: every problem of the file, in file order. Drivers and what stands in `config` are not known here:
/// [`parse_with`] asks who knows them.
pub fn parse(file_name: &str, text: &str) -> Result<ParsedJob, Diagnostics> {
    let inputs = Inputs { given: &GivenVariables::default(), outside: &evaluate::basis::NoExternalInputs };
    parse_with(file_name, text, inputs, |parsed| parsed.too_long(&Env::new()))
}

/// The same, with values of variables, and with what else is wrong: `judge` runs on a file with problems too, so that
/// all are reported at once. What is wrong there stands in the job as if it were absent; what is said of the same field
/// again is left out.
pub fn parse_with(
    file_name: &str,
    text: &str,
    inputs: Inputs<'_>,
    judge: impl FnOnce(&ParsedJob) -> Vec<Diagnostic>,
) -> Result<ParsedJob, Diagnostics> {
    let source = SourceText::new(file_name, text);
    let problems = Problems::new(&source);
    let body = read::read_into(&problems, Some(inputs));
    problems.name_fields(|offset| tree::path_at(&body, offset));
    let job = build::file(&body, &problems);
    let (mut errors, warnings) = problems.into_parts();
    let Some(job) = job.filter(|_| errors.0.len() < MAX_PROBLEMS) else { return Err(errors) };
    let mut places = PathSpans::default();
    places.walk(&body, "");
    let label = match body.entries.iter().find(|e| e.key == "job") {
        Some(entry) => entry.labels.first().map(|l| l.text.clone()).or_else(|| first_key(&entry.value)),
        None => None,
    };
    let label = label.unwrap_or_else(|| job.id.to_string());
    let parsed = ParsedJob { job, warnings, source, places, label };
    let reported = |found: &Diagnostic| errors.0.iter().any(|earlier| is_covered(&found.field, &earlier.field));
    let found = judge(&parsed).into_iter().map(|found| found.without(&parsed.job.sensitive));
    let found: Vec<Diagnostic> = found.filter(|found| !reported(found)).collect();
    errors.0.extend(found);
    errors.0.sort_by_key(|problem| (problem.line, problem.column));
    if let Some(dropped) = errors.0.len().checked_sub(MAX_PROBLEMS).filter(|dropped| *dropped > 0) {
        errors.0.truncate(MAX_PROBLEMS);
        errors.0.push(parsed.source.dropped(dropped));
    }
    if errors.0.is_empty() { Ok(parsed) } else { Err(errors) }
}

/// What is said of `field` was said with `earlier`: of it, of a part of it, or of the whole `config` around it.
fn is_covered(field: &str, earlier: &str) -> bool {
    let below = |long: &str, short: &str| {
        long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    !earlier.is_empty() && (below(earlier, field) || earlier.ends_with(".config") && below(field, earlier))
}

/// A file of variables: `NAME = VALUE`, HCL or JSON.
///
/// Errors: it is none; a value is no literal.
pub fn variables_of(file_name: &str, text: &str) -> Result<GivenVariables, Diagnostics> {
    let source = SourceText::new(file_name, text);
    let body = read::read(&source).map_err(|errors| Diagnostics(errors.0.into_iter().map(without_value).collect()))?;
    let text_of = |node: &ValueNode| match &node.value {
        Literal::Text(template) => tree::plain(template).unwrap_or_else(|| template.clone()),
        _ => source.slice(&node.span).to_owned(),
    };
    let values = body.entries.iter().map(|entry| {
        let value = GivenValue { text: text_of(&entry.value), from: file_name.to_owned(), may_be_unused: false };
        (entry.key.clone(), value)
    });
    Ok(GivenVariables(values.collect()))
}

/// Which variables are sensitive, only the job file says: no value of a line is shown.
fn without_value(problem: Diagnostic) -> Diagnostic {
    let line = problem.source_line.as_str();
    let value = line.split_once(['=', ':']).map_or(line, |(_, value)| value);
    let mut hidden = SensitiveValues::default();
    for word in value.split(|c: char| !c.is_alphanumeric()) {
        hidden.add(word);
    }
    problem.without(&hidden)
}

/// What a file holds: of one that is too large, and of one that never ends, one byte more than is taken.
pub fn bytes_of(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(diagnostic::MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file.
///
/// Errors: it is not UTF-8: where the first byte stands that is none.
pub fn text_of(file_name: &str, bytes: Vec<u8>) -> Result<String, Diagnostics> {
    // Refused for its size in any case, and perhaps cut within a character.
    if bytes.len() > diagnostic::MAX_FILE_BYTES {
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes().get(at).copied().unwrap_or_default();
        // What is none is shown as such; before it nothing moves.
        let source = SourceText::new(file_name, String::from_utf8_lossy(error.as_bytes()));
        let message = format!("the file is not UTF-8: byte {at} is 0x{byte:02x}, which no character begins with here");
        let mut diagnostic = source.diagnostic(Severity::Error, &(at..at + 1), "", message);
        diagnostic.suggestion = Some("save it as UTF-8".to_owned());
        Diagnostics(vec![diagnostic])
    })
}

impl ParsedJob {
    /// The path of a task's field: `job.web.group.app.task.server.config.args[1]` for `config.args[1]`.
    pub fn task_path(&self, group: &str, task: &str, field: &str) -> String {
        let in_group = format!("job.{}.group.{group}", self.label);
        // A task that stands in its job alone is a group of its name.
        let outer = if self.places.values.contains_key(&in_group) { in_group } else { format!("job.{}", self.label) };
        format!("{outer}.task.{task}.{field}")
    }
    /// Where the value of a field stands in the text. `None`: the file does not write it.
    pub fn written(&self, path: &str) -> Option<Span> {
        self.places.values.get(path).cloned()
    }
    /// The path of a port: of its group, or of a task alone.
    pub fn port_path(&self, group: &str, task: Option<&str>, label: &str) -> String {
        match task {
            Some(task) => self.task_path(group, task, &format!("resources.network.port.{label}")),
            None => format!("job.{}.group.{group}.network.port.{label}", self.label),
        }
    }
    /// Line, column (from 1) and the line itself of a field; of the nearest stanza around it if the field is not in the
    /// file. `None` if nothing of the path is.
    pub fn locate(&self, path: &str) -> Option<(usize, usize, &str)> {
        Some(self.source.locate(self.span(path)?.start))
    }
    /// A problem that another part found, at the place of the field.
    pub fn diagnose(&self, severity: Severity, path: &str, message: impl Into<String>) -> Diagnostic {
        let span = self.span(path).cloned().unwrap_or(0..0);
        self.source.diagnostic(severity, &span, path, message.into()).without(&self.job.sensitive)
    }
    /// The same, at the name of the field rather than at its value.
    pub fn diagnose_name(&self, severity: Severity, path: &str, message: impl Into<String>) -> Diagnostic {
        match self.places.names.get(path) {
            Some(span) => self.source.diagnostic(severity, span, path, message.into()).without(&self.job.sensitive),
            None => self.diagnose(severity, path, message),
        }
    }
    /// Of each task the first text that gets longer than a program can be given, once its references are resolved;
    /// `inherited`: what tasks inherit here.
    pub fn too_long(&self, inherited: &Env) -> Vec<Diagnostic> {
        let job = &self.job;
        let tasks = job.groups.iter().flat_map(|group| group.tasks.iter().map(move |task| (group, task)));
        let problem = |(group, task): (&TaskGroup, &Task)| {
            let error = size::check(job, group, task, inherited).err()?;
            let path = self.task_path(group.name.as_str(), task.name.as_str(), error.field());
            Some(self.diagnose(Severity::Error, &path, error.to_string()))
        };
        tasks.filter_map(problem).collect()
    }
    fn span(&self, path: &str) -> Option<&Span> {
        let mut path = path;
        loop {
            if let Some(span) = self.places.values.get(path) {
                return Some(span);
            }
            path = path.get(..path.rfind(['.', '['])?)?;
        }
    }
}

fn first_key(node: &ValueNode) -> Option<String> {
    match &node.value {
        Literal::Object(body) => body.entries.first().map(|e| e.key.clone()),
        Literal::List(list) => list.first().and_then(first_key),
        _ => None,
    }
}

/// Where every path stands.
#[derive(Debug, Clone, Default)]
struct PathSpans {
    /// Of a value the value, of a stanza its name or its word.
    values: BTreeMap<String, Span>,
    /// Of a value what it is called.
    names: BTreeMap<String, Span>,
}

impl PathSpans {
    fn walk(&mut self, body: &StanzaBody, path: &str) {
        for entry in &body.entries {
            let mut path = join(path, &entry.key);
            let is_stanza = entry.form == Form::Block || matches!(entry.value.value, Literal::Object(_));
            let span = if is_stanza { &entry.key_span } else { &entry.value.span };
            self.values.entry(path.clone()).or_insert_with(|| span.clone());
            self.names.entry(path.clone()).or_insert_with(|| entry.key_span.clone());
            for label in &entry.labels {
                path = join(&path, &label.text);
                self.values.entry(path.clone()).or_insert_with(|| label.span.clone());
            }
            match &entry.value.value {
                // A list of stanzas in JSON is the stanza several times.
                Literal::List(list) if entry.form == Form::Json && words::is_stanza(&entry.key) => {
                    list.iter().filter_map(ValueNode::object).for_each(|body| self.walk(body, &path));
                }
                _ => self.walk_value(&entry.value, &path),
            }
        }
    }

    fn walk_value(&mut self, node: &ValueNode, path: &str) {
        match &node.value {
            Literal::Object(body) => self.walk(body, path),
            Literal::List(list) => {
                for (i, item) in list.iter().enumerate() {
                    let path = format!("{path}[{i}]");
                    self.values.entry(path.clone()).or_insert_with(|| item.span.clone());
                    self.walk_value(item, &path);
                }
            }
            Literal::Null
            | Literal::Bool(_)
            | Literal::Int(_)
            | Literal::Float(_)
            | Literal::Text(_)
            | Literal::Broken => {}
        }
    }
}

#[cfg(test)]
mod tests;
