//! The `template` stanzas of a task: files and variables that are rendered before each of its starts.

use std::time::Duration;

use super::build::Builder;
use super::diagnostic::{Span, quote};
use super::fields::{At, Fields, warn_ignored};
use super::gotemplate::{GoTemplate, TemplateOptions};
use super::words;
use crate::model::job::TaskTemplate;
use crate::model::signal;

/// Nomad's.
const DEFAULT_PERMS: u32 = 0o644;

impl Builder<'_> {
    pub(super) fn templates(&mut self, task: &Fields<'_>) -> Vec<TaskTemplate> {
        let stanzas = task.stanzas("template");
        let mut destinations = super::template_places::Destinations::default();
        let built = stanzas.into_iter().enumerate().map(|(at, (span, body))| {
            let fields = self.open(body, &words::TEMPLATE, task.path_of(&format!("template[{at}]")));
            warn_ignored(body, &words::TEMPLATE, fields.path(), &mut self.seen, self.problems);
            destinations.check(&fields, span);
            self.one_template(&fields, span)
        });
        built.collect()
    }

    fn one_template(&self, fields: &Fields<'_>, span: &Span) -> TaskTemplate {
        let data = fields.template("data");
        let source = fields.template("source");
        if fields.entry("data").is_some() == fields.entry("source").is_some() {
            let message = match data {
                Some(_) => "a template has either `data` or `source`: this one has both",
                None => "the template has neither `data` nor `source`",
            };
            fields.error(span, "data", message, None);
        }
        let destination = fields.template("destination");
        if fields.entry("destination").is_none() {
            let advice = Some("add destination = \"local/NAME\"".to_owned());
            fields.error(span, "destination", "the template has no `destination`", advice);
        }
        let delimiter = |key: &str| fields.text(key).map(|at| at.value).filter(|text| !text.is_empty());
        let built = TaskTemplate {
            data: data.as_ref().map(|at| super::template::as_written(&at.value)),
            source: source.map(|at| at.value),
            destination: destination.map_or_else(String::new, |at| at.value),
            perms: perms(fields).unwrap_or(DEFAULT_PERMS),
            uid: owner(fields, "uid"),
            gid: owner(fields, "gid"),
            env: fields.bool("env").is_some_and(|at| at.value),
            left_delimiter: delimiter("left_delimiter"),
            right_delimiter: delimiter("right_delimiter"),
            error_on_missing_key: fields.bool("error_on_missing_key").is_some_and(|at| at.value),
        };
        if let (Some(at), Some(text)) = (&data, &built.data)
            && let Err(faults) = GoTemplate::parse(text, &options(&built))
        {
            for fault in faults {
                let message =
                    format!("line {}, column {} of the template: {}", fault.line, fault.column, fault.message);
                // Nomad parses a template when the task starts. One that needs a cluster can never be rendered on one host.
                if fault.needs_cluster {
                    fields.error(&at.span, "data", message, fault.suggestion);
                } else {
                    let message = format!("the start of the task will fail: {message}");
                    fields.problems().warn(&at.span, &fields.path_of("data"), message, fault.suggestion);
                }
            }
        }
        self.change(fields, span);
        built
    }

    /// Nomad's rules of what follows a change. Nothing changes a rendered file before the next start of its task.
    fn change(&self, fields: &Fields<'_>, span: &Span) {
        let choices = [("noop", "noop"), ("restart", "restart"), ("signal", "signal"), ("script", "script")];
        let mode = fields.choice("change_mode", &choices).map(|at| at.value);
        let signal = fields.text("change_signal");
        if let Some(At { value, span }) = &signal
            && signal::number(value).is_none()
        {
            fields.error(span, "change_signal", format!("there is no signal {}", quote(value)), None);
        }
        if mode == Some("signal") && fields.entry("change_signal").is_none() {
            let advice = Some("add change_signal = \"SIGHUP\"".to_owned());
            fields.error(span, "change_signal", "with change_mode = \"signal\" it needs `change_signal`", advice);
        }
        let script = fields.stanza("change_script").map(|body| {
            let script = self.open(body, &words::CHANGE_SCRIPT, fields.path_of("change_script"));
            let _ = (script.texts("args"), script.duration("timeout"), script.bool("fail_on_error"));
            let _ = script.bool("run_on_first_render");
            script.template("command").is_some()
        });
        if mode == Some("script") && script != Some(true) {
            let advice = Some("add change_script { command = \"/path\" }".to_owned());
            fields.error(span, "change_script", "with change_mode = \"script\" it needs a `change_script`", advice);
        }
        let _: Option<At<Duration>> = fields.duration("splay");
        if let Some(body) = fields.stanza("wait") {
            let wait = self.open(body, &words::TEMPLATE_WAIT, fields.path_of("wait"));
            if let (Some(min), Some(max)) = (wait.duration("min"), wait.duration("max"))
                && min.value > max.value
            {
                wait.error(&min.span, "min", "`min` is more than `max`", None);
            }
        }
        let _ = fields.bool("once");
    }
}

/// How it is parsed, here and when it is rendered.
pub fn options(template: &TaskTemplate) -> TemplateOptions {
    let default = TemplateOptions::default();
    TemplateOptions {
        left_delimiter: template.left_delimiter.clone().unwrap_or(default.left_delimiter),
        right_delimiter: template.right_delimiter.clone().unwrap_or(default.right_delimiter),
        error_on_missing_key: template.error_on_missing_key,
    }
}

/// Octal, as a text or a number.
fn perms(fields: &Fields<'_>) -> Option<u32> {
    let At { value, span } = fields.scalar("perms")?;
    let mode = u32::from_str_radix(&value, 8).ok().filter(|mode| *mode <= 0o7777);
    if mode.is_none() {
        let advice = Some("write it in octal: perms = \"0644\"".to_owned());
        fields.error(&span, "perms", format!("{} is no file mode", quote(&value)), advice);
    }
    mode
}

/// -1: that of the task's user, as in Nomad.
fn owner(fields: &Fields<'_>, key: &str) -> Option<u32> {
    let at = fields.signed(key, -1..=i64::from(u32::MAX - 1))?;
    u32::try_from(at.value).ok()
}
