//! Where the templates of a task are rendered, by Nomad's rules.

use std::collections::BTreeMap;

use super::artifacts::escapes;
use super::diagnostic::{Span, quote};
use super::fields::Fields;
use super::tree::Literal;

/// Those of a task, each with its line.
#[derive(Default)]
pub(super) struct Destinations(BTreeMap<String, usize>);

impl Destinations {
    /// Nomad compares destinations as they are written, and takes a reference for a directory. `span`: of the stanza.
    pub(super) fn check(&mut self, fields: &Fields<'_>, span: &Span) {
        let is_env = fields.entry("env").is_some_and(|entry| matches!(entry.value.value, Literal::Bool(true)));
        let mode = fields.entry("change_mode").filter(|entry| entry.value.text() == Some("signal"));
        if let Some(entry) = mode.filter(|_| is_env) {
            let message =
                "a template with env = true takes no change_mode = \"signal\": variables of a process do not change";
            let advice = Some("write change_mode = \"restart\", or leave it out".to_owned());
            fields.error(&entry.value.span, "change_mode", message, advice);
        }
        let Some(text) = fields.entry("destination").and_then(|entry| entry.value.text()) else { return };
        let place = fields.entry("destination").map_or(span, |entry| &entry.value.span);
        if escapes(text) {
            let message = format!("{} leads out of the directory of the alloc", quote(text));
            fields.error(place, "destination", message, Some("write it below local/".to_owned()));
        }
        let (line, _, _) = fields.problems().source().locate(place.start);
        match self.0.get(text) {
            Some(first) => {
                let message = format!("the template in line {first} has the destination {} already", quote(text));
                fields.error(place, "destination", message, Some("give each template a file of its own".to_owned()));
            }
            None => _ = self.0.insert(text.to_owned(), line),
        }
    }
}
