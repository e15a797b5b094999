//! The `artifact` stanzas of a task: what is fetched before it starts.

use std::collections::BTreeMap;

use super::build::Builder;
use super::diagnostic::{Span, quote};
use super::fields::{Fields, Spanned, warn_ignored};
use super::words;
use crate::model::artifact::{ArtifactMode, ArtifactSource, TaskArtifact};
use crate::model::checksum::ChecksumSource;

/// Nomad's.
const DEFAULT_DESTINATION: &str = "local/";

impl Builder<'_> {
    pub(super) fn artifacts(&mut self, task: &Fields<'_>) -> Vec<TaskArtifact> {
        let stanzas = task.stanzas("artifact");
        let built = stanzas.into_iter().enumerate().map(|(at, (span, body))| {
            let fields = self.open(body, &words::ARTIFACT, task.path_of(&format!("artifact[{at}]")));
            warn_ignored(body, &words::ARTIFACT, fields.path(), &mut self.seen, self.problems);
            one_artifact(&fields, span)
        });
        built.collect()
    }
}

fn one_artifact(fields: &Fields<'_>, span: &Span) -> TaskArtifact {
    let source = fields.template("source");
    if source.as_ref().is_none_or(|at| at.value.is_empty()) {
        let advice = Some("add source = \"https://...\"".to_owned());
        let place = source.as_ref().map_or(span, |at| &at.span);
        fields.error(place, "source", "the artifact has no `source`", advice);
    }
    let choices = ArtifactMode::ALL.map(|mode| (mode.as_str(), mode));
    let mode = fields.choice("mode", &choices).map_or(ArtifactMode::Any, |at| at.value);
    let destination = fields.template("destination").filter(|at| !at.value.is_empty());
    if let Some(Spanned { value, span }) = &destination
        && escapes(value)
    {
        let message = format!("{} leads out of the directory of the alloc", quote(value));
        fields.error(span, "destination", message, Some("write it below local/".to_owned()));
    }
    let (options, places) = texts(fields, "options");
    let (headers, _) = texts(fields, "headers");
    // Owned by the task's user in any case, as with `chown = true`.
    let _ = fields.bool("chown");
    let built = TaskArtifact {
        destination: destination.map_or_else(|| default_destination(mode, source.as_ref()), |at| at.value),
        source: source.as_ref().map(|at| at.value.clone()).unwrap_or_default(),
        mode,
        options,
        headers,
        insecure: fields.bool("insecure").is_some_and(|at| at.value),
    };
    if let Some(source) = source.filter(|at| !at.value.is_empty()) {
        check(fields, &source, &built, &places);
    }
    built
}

/// Nomad's: in mode `file` the name that the source has.
fn default_destination(mode: ArtifactMode, source: Option<&Spanned<String>>) -> String {
    let name = source.and_then(|at| at.value.split('?').next()?.rsplit('/').next()).filter(|name| !name.is_empty());
    match (mode, name) {
        (ArtifactMode::File, Some(name)) => format!("{DEFAULT_DESTINATION}{name}"),
        _ => DEFAULT_DESTINATION.to_owned(),
    }
}

/// More of `..` than there are directories before, and one: what the alloc shares is beside the task's.
pub(super) fn escapes(destination: &str) -> bool {
    let mut depth = 1_i32;
    destination.split('/').any(|component| {
        match component {
            "" | "." => {}
            ".." => depth -= 1,
            _ => depth += 1,
        }
        depth < 0
    })
}

type Texts = BTreeMap<String, String>;

fn texts(fields: &Fields<'_>, key: &str) -> (Texts, BTreeMap<String, Span>) {
    let pairs = fields.map(key).unwrap_or_default();
    let places = pairs.iter().map(|(name, value)| (name.value.clone(), value.span.clone())).collect();
    (pairs.into_iter().map(|(name, value)| (name.value, value.value)).collect(), places)
}

/// What can be known before its references are resolved.
fn check(fields: &Fields<'_>, source: &Spanned<String>, built: &TaskArtifact, places: &BTreeMap<String, Span>) {
    let is_open = |text: &str| text.contains("${");
    let mut options = built.options.clone();
    options.retain(|_, value| !is_open(value));
    if let Some(text) = options.get("checksum") {
        let span = places.get("checksum").unwrap_or(&source.span);
        // As Nomad has it: digits alone name no type.
        let checked = match ChecksumSource::parse(text) {
            Ok(_) if !text.contains(':') => {
                Err(format!("{} names no type of checksum: write it as sha256:{}", quote(text), text.trim()))
            }
            other => other.map(drop),
        };
        if let Err(message) = checked {
            fields.error(span, "options.checksum", message, None);
            options.remove("checksum");
        }
    }
    if is_open(&source.value) {
        return;
    }
    // Nomad takes any source: only the download fails.
    if let Err(message) = ArtifactSource::parse(&source.value, &options) {
        let message = format!("the start of the task will fail: {message}");
        fields.problems().warn(&source.span, &fields.path_of("source"), message, None);
    }
}
