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

mod build;
mod devices;
pub mod diagnostic;
pub mod fields;
mod hcl;
pub mod interpolate;
mod json;
mod limits;
mod names;
pub mod nearest;
pub mod quantity;
pub mod read;
mod size;
mod template;
pub mod tree;
mod unclosed;
mod values;
pub mod words;

use std::collections::BTreeMap;
use std::io::{self, Read};

use crate::model::env::Env;
use crate::model::job::{Job, Task, TaskGroup};

pub use diagnostic::{Diagnostic, Diagnostics, Severity};
use diagnostic::{Problems, SourceText, Span};
use tree::{Body, Form, Literal, Node, join};

/// A job file that was understood.
#[derive(Debug, Clone)]
pub struct ParsedJob {
    pub job: Job,
    /// What of the file has no effect, or less than one could think: one for each word, in file order.
    pub warnings: Vec<Diagnostic>,
    source: SourceText,
    places: BTreeMap<String, Span>,
    /// What stands behind `job` in the file; the job's `id` may be another.
    label: String,
}

/// Reads a job file: JSON if the name ends with `.json` or the text starts with `{`, else HCL.
///
/// Errors: every problem of the file, in file order. Drivers and what stands in `config` are not known here: the
/// caller asks the driver and gets the place from [`Parsed::diagnose`].
pub fn parse(file_name: &str, text: &str) -> Result<ParsedJob, Diagnostics> {
    let source = SourceText::new(file_name, text);
    let problems = Problems::new(&source);
    let body = read::read_into(&problems);
    problems.name_fields(|offset| tree::path_at(&body, offset));
    let job = build::file(&body, &problems);
    let (errors, warnings) = problems.into_parts();
    match job {
        Some(job) if errors.0.is_empty() => {
            let mut places = BTreeMap::new();
            walk(&body, "", &mut places);
            let label = match body.entries.iter().find(|e| e.key == "job") {
                Some(entry) => entry.labels.first().map(|l| l.text.clone()).or_else(|| first_key(&entry.value)),
                None => None,
            };
            let label = label.unwrap_or_else(|| job.id.to_string());
            let parsed = ParsedJob { job, warnings, source, places, label };
            let too_long = parsed.too_long(&Env::new());
            if too_long.is_empty() { Ok(parsed) } else { Err(Diagnostics(too_long)) }
        }
        _ => Err(errors),
    }
}

/// What a file holds: of one that is too large, and of one that never ends, one byte more than is taken.
pub fn bytes_of(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(read::MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file.
///
/// Errors: it is not UTF-8: where the first byte stands that is none.
pub fn text_of(file_name: &str, bytes: Vec<u8>) -> Result<String, Diagnostics> {
    // Refused for its size in any case, and perhaps cut within a character.
    if bytes.len() > read::MAX_FILE_BYTES {
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
        format!("job.{}.group.{group}.task.{task}.{field}", self.label)
    }
    /// Line, column (from 1) and the line itself of a field; of the nearest stanza around it if the field is not in the
    /// file. `None` if nothing of the path is.
    pub fn locate(&self, path: &str) -> Option<(usize, usize, &str)> {
        Some(self.source.locate(self.span(path)?.start))
    }
    /// A problem that somebody else found, at the place of the field.
    pub fn diagnose(&self, severity: Severity, path: &str, message: impl Into<String>) -> Diagnostic {
        let span = self.span(path).cloned().unwrap_or(0..0);
        self.source.diagnostic(severity, &span, path, message.into())
    }
    /// Of each task the first text that gets longer than a program can be given, once its references are resolved; `inherited`: what
    /// tasks inherit here.
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
            if let Some(span) = self.places.get(path) {
                return Some(span);
            }
            path = path.get(..path.rfind(['.', '['])?)?;
        }
    }
}

fn first_key(node: &Node) -> Option<String> {
    match &node.value {
        Literal::Object(body) => body.entries.first().map(|e| e.key.clone()),
        Literal::List(list) => list.first().and_then(first_key),
        _ => None,
    }
}

/// The place of every path: of a value the value, of a stanza its name or its word.
fn walk(body: &Body, path: &str, places: &mut BTreeMap<String, Span>) {
    for entry in &body.entries {
        let mut path = join(path, &entry.key);
        let is_stanza = entry.form == Form::Block || matches!(entry.value.value, Literal::Object(_));
        let span = if is_stanza { &entry.key_span } else { &entry.value.span };
        places.entry(path.clone()).or_insert_with(|| span.clone());
        for label in &entry.labels {
            path = join(&path, &label.text);
            places.entry(path.clone()).or_insert_with(|| label.span.clone());
        }
        match &entry.value.value {
            // A list of stanzas in JSON is the stanza several times.
            Literal::List(list) if entry.form == Form::Json && words::is_stanza(&entry.key) => {
                list.iter().filter_map(Node::object).for_each(|body| walk(body, &path, places));
            }
            _ => walk_value(&entry.value, &path, places),
        }
    }
}

fn walk_value(node: &Node, path: &str, places: &mut BTreeMap<String, Span>) {
    match &node.value {
        Literal::Object(body) => walk(body, path, places),
        Literal::List(list) => {
            for (i, item) in list.iter().enumerate() {
                let path = format!("{path}[{i}]");
                places.entry(path.clone()).or_insert_with(|| item.span.clone());
                walk_value(item, &path, places);
            }
        }
        Literal::Null | Literal::Bool(_) | Literal::Int(_) | Literal::Float(_) | Literal::Text(_) | Literal::Broken => {
        }
    }
}

#[cfg(test)]
mod tests;
