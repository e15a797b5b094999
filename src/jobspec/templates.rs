//! The `template` stanzas of a task: files and variables that are rendered before each of its starts, and when they
//! change.

use std::time::Duration;

use super::build::Builder;
use super::diagnostic::{Span, quote};
use super::fields::{Fields, Spanned, warn_ignored};
use super::gotemplate::{GoTemplate, TemplateOptions};
use super::quantity::format_duration;
use super::tree::StanzaBody;
use super::words;
use crate::model::signal;
use crate::model::template::{ChangeScript, TaskTemplate, TemplateChange, TemplateWait};

/// Nomad's defaults.
const DEFAULT_PERMS: u32 = 0o644;
const DEFAULT_SPLAY: Duration = Duration::from_secs(5);
const DEFAULT_SCRIPT_TIMEOUT: Duration = Duration::from_secs(5);
const LONGEST_SPLAY: Duration = Duration::from_secs(86_400);
const LONGEST_SCRIPT: Duration = Duration::from_secs(600);

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
            let (message, advice) = match data {
                Some(_) => ("a template has either `data` or `source`: this one has both", "keep one of them"),
                None => {
                    ("the template has neither `data` nor `source`", "add data = \"...\" or source = \"local/FILE\"")
                }
            };
            fields.error(span, "data", message, Some(advice.to_owned()));
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
            change: self.change(fields, span),
            splay: bounded(fields, "splay", LONGEST_SPLAY).unwrap_or(DEFAULT_SPLAY),
            wait: self.wait(fields),
            once: fields.bool("once").is_some_and(|at| at.value),
        };
        if let (Some(at), Some(text)) = (&data, &built.data)
            && let Err(faults) = GoTemplate::parse(text, &options(&built))
        {
            for fault in faults {
                let message =
                    format!("line {}, column {} of the template: {}", fault.line, fault.column, fault.message);
                // Nomad parses a template when the task starts. One that no start can render is refused.
                if fault.never_renders {
                    fields.error(&at.span, "data", message, fault.suggestion);
                } else {
                    let message = format!("the start of the task will fail: {message}");
                    fields.problems().warn(&at.span, &fields.path_of("data"), message, fault.suggestion);
                }
            }
        }
        built
    }

    /// Nomad's rules of what follows a change.
    fn change(&self, fields: &Fields<'_>, span: &Span) -> TemplateChange {
        let choices = [("noop", "noop"), ("restart", "restart"), ("signal", "signal"), ("script", "script")];
        let mode = fields.choice("change_mode", &choices).map(|at| at.value);
        let signal = fields.text("change_signal");
        let named = signal.as_ref().and_then(|at| signal::number(&at.value).and_then(signal::name));
        if let (Some(Spanned { value, span }), None) = (&signal, named) {
            fields.error(span, "change_signal", format!("there is no signal {}", quote(value)), None);
        }
        if mode == Some("signal") && fields.entry("change_signal").is_none() {
            let advice = Some("add change_signal = \"SIGHUP\"".to_owned());
            fields.error(span, "change_signal", "with change_mode = \"signal\" it needs `change_signal`", advice);
        }
        let script = fields.stanza("change_script").and_then(|body| self.script(body, fields));
        if mode == Some("script") && script.is_none() {
            let advice = Some("add change_script { command = \"/path\" }".to_owned());
            fields.error(span, "change_script", "with change_mode = \"script\" it needs a `change_script`", advice);
        }
        match (mode, named, script) {
            (Some("noop"), ..) => TemplateChange::Noop,
            (Some("signal"), Some(named), _) => TemplateChange::Signal(named.to_owned()),
            (Some("script"), _, Some(script)) => TemplateChange::Script(script),
            _ => TemplateChange::Restart,
        }
    }

    fn script(&self, body: &StanzaBody, fields: &Fields<'_>) -> Option<ChangeScript> {
        let script = self.open(body, &words::CHANGE_SCRIPT, fields.path_of("change_script"));
        let args = script.templates("args").map(|at| at.value).unwrap_or_default();
        let timeout = bounded(&script, "timeout", LONGEST_SCRIPT).unwrap_or(DEFAULT_SCRIPT_TIMEOUT);
        let fail_on_error = script.bool("fail_on_error").is_some_and(|at| at.value);
        let run_on_first_render = script.bool("run_on_first_render").is_some_and(|at| at.value);
        let command = script.template("command")?.value;
        let args = args.into_iter().map(|at| at.value).collect();
        Some(ChangeScript { command, args, timeout, fail_on_error, run_on_first_render })
    }

    /// Without `max` it is four times `min`, as Nomad has it.
    fn wait(&self, fields: &Fields<'_>) -> Option<TemplateWait> {
        let wait = self.open(fields.stanza("wait")?, &words::TEMPLATE_WAIT, fields.path_of("wait"));
        let (min, max) = (wait.duration("min"), wait.duration("max"));
        if let (Some(min), Some(max)) = (&min, &max)
            && min.value > max.value
        {
            wait.error(&min.span, "min", "`min` is more than `max`", None);
        }
        let min = min.map_or(Duration::ZERO, |at| at.value.min(LONGEST_SPLAY));
        Some(TemplateWait { min, max: max.map_or(min.saturating_mul(4), |at| at.value.min(LONGEST_SPLAY)) })
    }
}

/// Errors are reported; then the longest is taken.
fn bounded(fields: &Fields<'_>, key: &str, longest: Duration) -> Option<Duration> {
    let Spanned { value, span } = fields.duration(key)?;
    if value > longest {
        fields.error(&span, key, format!("{} is at most {}", quote(key), format_duration(longest)), None);
    }
    Some(value.min(longest))
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
    let Spanned { value, span } = fields.scalar("perms")?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobspec::parse;

    fn one(lines: &str) -> Result<TaskTemplate, String> {
        let job = format!(
            "job \"j\" {{\ngroup \"g\" {{\ntask \"t\" {{\ndriver = \"raw_exec\"\nconfig {{\ncommand = \"/bin/true\"\n}}\n\
             template {{\ndata = \"x\"\ndestination = \"local/x\"\n{lines}\n}}\n}}\n}}\n}}\n"
        );
        let parsed = parse("job.hcl", &job).map_err(|errors| errors.to_string())?;
        assert_eq!(parsed.warnings, [], "{lines}");
        Ok(parsed.job.groups[0].tasks[0].templates[0].clone())
    }

    #[test]
    fn template_change_settings_have_nomad_defaults() {
        let plain = one("").unwrap();
        assert_eq!((plain.change, plain.splay), (TemplateChange::Restart, Duration::from_secs(5)));
        assert_eq!((plain.wait, plain.once), (None, false));
        let signal = one("change_mode = \"signal\"\nchange_signal = \"sighup\"\nsplay = \"0s\"\nonce = true").unwrap();
        assert_eq!(signal.change, TemplateChange::Signal("SIGHUP".to_owned()));
        assert!(signal.once && signal.splay.is_zero());
        assert_eq!(one("change_mode = \"noop\"\nchange_signal = \"SIGHUP\"").unwrap().change, TemplateChange::Noop);
        let script =
            "change_mode = \"script\"\nchange_script {\ncommand = \"/bin/x\"\nargs = [\"${NOMAD_TASK_NAME}\"]\n}";
        let expected = ChangeScript {
            command: "/bin/x".to_owned(),
            args: vec!["${NOMAD_TASK_NAME}".to_owned()],
            timeout: Duration::from_secs(5),
            fail_on_error: false,
            run_on_first_render: false,
        };
        assert_eq!(one(script).unwrap().change, TemplateChange::Script(expected));
        let seconds = |min, max| Some(TemplateWait { min: Duration::from_secs(min), max: Duration::from_secs(max) });
        assert_eq!(one("wait {\nmin = \"2s\"\n}").unwrap().wait, seconds(2, 8));
        assert_eq!(one("wait {\nmin = \"2s\"\nmax = \"3s\"\n}").unwrap().wait, seconds(2, 3));
    }

    #[test]
    fn template_change_settings_are_bounded_and_complete() {
        for (lines, words) in [
            ("splay = \"48h\"", "`splay` is at most 24h"),
            ("change_mode = \"script\"", "needs a `change_script`"),
            (
                "change_mode = \"script\"\nchange_script {\ncommand = \"x\"\ntimeout = \"1h\"\n}",
                "`timeout` is at most 10m",
            ),
            ("change_signal = \"SIGNOPE\"", "there is no signal"),
            ("wait {\nmin = \"3s\"\nmax = \"2s\"\n}", "`min` is more than `max`"),
            ("change_mode = \"reload\"", "`change_mode` cannot be"),
        ] {
            let refused = one(lines).unwrap_err();
            assert!(refused.contains(words), "{words:?} is not in {refused}");
        }
    }

    /// Records of earlier agents have nothing of changes.
    #[test]
    fn a_record_of_an_earlier_agent_acts_on_no_change() {
        let text = r#"{"data":"x","destination":"local/x","perms":420}"#;
        let template: TaskTemplate = serde_json::from_str(text).unwrap();
        assert!(template.change.is_noop() && template.splay.is_zero());
        assert_eq!(serde_json::to_string(&template).unwrap(), text);
    }
}
