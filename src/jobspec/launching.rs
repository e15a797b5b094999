//! The stanzas of jobs that launch others: `periodic`, `parameterized`, and a task's `dispatch_payload`. What Nomad
//! refuses of them is refused; of a `periodic` that is not enabled Nomad judges nothing.

use std::path::{Component, Path};

use super::build::Builder;
use super::cron::{CronExpression, CronSchedule, Zone};
use super::diagnostic::{Span, quote};
use super::fields::{Fields, Spanned};
use super::tree::Literal;
use super::{limits, words};
use crate::model::job::JobKind;
use crate::model::launching::{JobLaunching, Parameterized, PayloadRule, Periodic};

impl Builder<'_> {
    pub(super) fn launching(&self, job: &Fields<'_>, kind: JobKind) -> JobLaunching {
        let periodic = self.periodic(job, kind).map(Box::new);
        let parameterized = self.parameterized(job, kind).map(Box::new);
        JobLaunching { periodic, parameterized, child: None }
    }

    fn periodic(&self, job: &Fields<'_>, kind: JobKind) -> Option<Periodic> {
        let (fields, key) = self.inner(job, &words::PERIODIC)?;
        let cron = fields.text("cron").filter(|cron| !cron.value.is_empty());
        let crons = fields.texts("crons").map(|list| list.value).unwrap_or_default();
        let time_zone = fields.text("time_zone");
        let built = Periodic {
            enabled: fields.bool("enabled").is_none_or(|at| at.value),
            crons: cron.iter().chain(&crons).map(|at| at.value.clone()).collect(),
            prohibit_overlap: fields.bool("prohibit_overlap").is_some_and(|at| at.value),
            time_zone: time_zone.as_ref().map_or_else(|| "UTC".to_owned(), |at| at.value.clone()),
        };
        if !built.enabled {
            return Some(built);
        }
        launched_batch(job, key, "periodic", kind);
        match (&cron, crons.first()) {
            (Some(cron), Some(_)) => {
                let message = "`cron` and `crons` exclude each other";
                fields.error(&cron.span, "cron", message, Some("keep `crons`".to_owned()));
            }
            (None, None) if is_empty(&fields, "cron") && is_empty(&fields, "crons") => {
                let advice = Some("add crons = [\"0 3 * * *\"]".to_owned());
                fields.error(key, "crons", "`periodic` has no `crons`", advice);
            }
            (None, None) | (Some(_), None) | (None, Some(_)) => {}
        }
        if let Some(at) = crons.get(limits::CRONS) {
            let message = format!("`crons` has more than {} expressions", limits::CRONS);
            fields.error(&at.span, "crons", message, None);
            return Some(built);
        }
        let given = cron.iter().map(|at| (at, "cron".to_owned()));
        let listed = crons.iter().enumerate().map(|(at, cron)| (cron, format!("crons[{at}]")));
        given.chain(listed).for_each(|(cron, word)| self.cron(&fields, cron, &word));
        if let Some(zone) = time_zone.filter(|zone| Zone::named(&zone.value).is_none()) {
            let advice = Some("write a name of the IANA database, as in \"Europe/Berlin\"".to_owned());
            fields.error(&zone.span, "time_zone", format!("there is no time zone {}", quote(&zone.value)), advice);
        }
        Some(built)
    }

    fn cron(&self, fields: &Fields<'_>, cron: &Spanned<String>, word: &str) {
        if let Err(why) = CronExpression::parse(&cron.value) {
            let advice = "write it like \"0 3 * * *\" or \"@daily\"".to_owned();
            return fields.error(&cron.span, word, format!("no cron expression: {why}"), Some(advice));
        }
        let schedule = CronSchedule::parse(std::slice::from_ref(&cron.value), "UTC");
        if schedule.is_ok_and(|schedule| schedule.next_after(0).is_none()) {
            let message = format!("{} matches no day: it launches nothing", quote(&cron.value));
            self.problems.warn(&cron.span, &fields.path_of(word), message, None);
        }
    }

    fn parameterized(&self, job: &Fields<'_>, kind: JobKind) -> Option<Parameterized> {
        let (fields, key) = self.inner(job, &words::PARAMETERIZED)?;
        launched_batch(job, key, "parameterized", kind);
        let rules = PayloadRule::ALL.map(|rule| (rule.as_str(), rule));
        let is_given = fields.text("payload").is_some_and(|at| !at.value.is_empty());
        let payload = is_given.then(|| fields.choice("payload", &rules)).flatten();
        let keys = |word: &str| fields.texts(word).map(|list| list.value).unwrap_or_default();
        let (required, optional) = (keys("meta_required"), keys("meta_optional"));
        for at in optional.iter().filter(|key| required.iter().any(|known| known.value == key.value)) {
            let message = format!("the key {} is required and optional", quote(&at.value));
            fields.error(&at.span, "meta_optional", message, Some("keep one of them".to_owned()));
        }
        let values = |keys: Vec<Spanned<String>>| keys.into_iter().map(|at| at.value).collect();
        Some(Parameterized {
            payload: payload.map_or(PayloadRule::Optional, |at| at.value),
            meta_required: values(required),
            meta_optional: values(optional),
        })
    }

    /// The file that a dispatch's payload is written to.
    pub(super) fn dispatch_payload(&self, task: &Fields<'_>) -> Option<String> {
        let (fields, key) = self.inner(task, &words::DISPATCH_PAYLOAD)?;
        let file = fields.text("file");
        if fields.entry("file").is_none() {
            let advice = Some("add file = \"NAME\": it is written below the task's `local` directory".to_owned());
            fields.error(key, "file", "`dispatch_payload` has no `file`", advice);
        }
        let file = file?;
        if !is_below_alloc(&file.value) {
            let message = format!("{} is no file below the alloc's directory", quote(&file.value));
            fields.error(&file.span, "file", message, Some("write a relative path".to_owned()));
        }
        Some(file.value)
    }
}

/// It is not there, or it is an empty text or an empty list.
fn is_empty(fields: &Fields<'_>, word: &str) -> bool {
    let is_empty = |list: &Literal| matches!(list, Literal::List(list) if list.is_empty());
    fields.entry(word).is_none_or(|entry| entry.value.text() == Some("") || is_empty(&entry.value.value))
}

fn launched_batch(job: &Fields<'_>, key: &Span, word: &str, kind: JobKind) {
    if kind.is_service() {
        let message = format!("{} is for jobs of type `batch` and `sysbatch`, not `{}`", quote(word), kind.as_str());
        job.error(key, word, message, Some("write type = \"batch\"".to_owned()));
    }
}

/// Of a path relative to `TASK/local`: at each of its steps it is in the alloc's directory, or below it.
fn is_below_alloc(file: &str) -> bool {
    let mut depth = 2_i32;
    for component in Path::new(file).components() {
        depth += match component {
            Component::Normal(_) => 1,
            Component::ParentDir => -1,
            Component::CurDir | Component::RootDir | Component::Prefix(_) => 0,
        };
        if depth < 0 {
            return false;
        }
    }
    !file.is_empty() && !file.ends_with('/')
}

#[cfg(test)]
mod tests {
    use crate::jobspec::parse;
    use crate::model::job::Job;

    fn parsed(text: &str) -> Job {
        parse("j.hcl", text).unwrap().job
    }
    fn errors_of(text: &str) -> Vec<String> {
        let errors = parse("j.hcl", text).unwrap_err();
        errors.0.iter().map(|e| format!("{}:{} {}", e.line, e.column, e.message)).collect()
    }

    fn job(head: &str) -> String {
        format!(
            "job \"j\" {{\n{head}\n  group \"g\" {{\n    task \"t\" {{\n      driver = \"raw_exec\"\n      \
             config {{ command = \"/bin/true\" }}\n    }}\n  }}\n}}\n"
        )
    }

    #[test]
    fn a_periodic_stanza_is_read_with_its_defaults() {
        let text = job("type = \"batch\"\nperiodic { cron = \"@daily\" }");
        let periodic = parsed(&text).launching.periodic.unwrap();
        assert_eq!((periodic.enabled, periodic.prohibit_overlap, periodic.time_zone.as_str()), (true, false, "UTC"));
        assert_eq!(periodic.crons, ["@daily"]);
        let text = job("type = \"service\"\nperiodic {\n enabled = false\n cron = \"nothing\"\n}");
        assert!(!parsed(&text).launching.periodic.unwrap().enabled, "Nomad judges nothing of it then");
    }

    #[test]
    fn launch_stanzas_that_nomad_refuses_are_refused_at_their_place() {
        for (head, expected) in [
            ("periodic { cron = \"@daily\" }", "2:1 `periodic` is for jobs of type `batch` and `sysbatch`"),
            ("parameterized {}", "2:1 `parameterized` is for jobs of type `batch` and `sysbatch`"),
            ("type = \"batch\"\nperiodic {}", "3:1 `periodic` has no `crons`"),
            ("type = \"batch\"\nperiodic { cron = \"\" }", "3:1 `periodic` has no `crons`"),
            ("type = \"batch\"\nperiodic { crons = [] }", "3:1 `periodic` has no `crons`"),
            (
                "type = \"batch\"\nperiodic {\ncron = \"@daily\"\ncrons = [\"@hourly\"]\n}",
                "4:8 `cron` and `crons` exclude each other",
            ),
            ("type = \"batch\"\nperiodic { crons = [\"@daily\", \"* *\"] }", "3:31 no cron expression"),
            (
                "type = \"batch\"\nperiodic {\ncron = \"@daily\"\ntime_zone = \"Mars/Base\"\n}",
                "5:13 there is no time zone `Mars/Base`",
            ),
            ("type = \"batch\"\nparameterized { payload = \"maybe\" }", "3:27 `payload` cannot be `maybe`"),
            (
                "type = \"batch\"\nparameterized {\nmeta_required = [\"a\"]\nmeta_optional = [\"a\"]\n}",
                "5:18 the key `a` is required and optional",
            ),
        ] {
            let errors = errors_of(&job(head));
            assert!(errors.iter().any(|error| error.starts_with(expected)), "{head}: {errors:?}");
        }
    }

    #[test]
    fn a_payload_is_written_below_the_alloc_or_refused() {
        for (file, is_right) in [
            ("input.json", true),
            ("a/b/../c", true),
            ("../secrets/x", true),
            ("../../alloc/x", true),
            ("../../../x", false),
            ("a/../../../../x", false),
            ("", false),
            ("dir/", false),
        ] {
            assert_eq!(super::is_below_alloc(file), is_right, "{file}");
        }
    }

    #[test]
    fn metadata_that_a_dispatch_brings_may_be_referred_to() {
        let text = job("type = \"batch\"\nparameterized { meta_required = [\"who\"] }").replace(
            "driver",
            "env { WHO = \"${NOMAD_META_who} of ${NOMAD_JOB_PARENT_ID}\" }\n dispatch_payload { file = \"in\" }\n driver",
        );
        let job = parsed(&text);
        assert_eq!(job.groups[0].tasks[0].dispatch_payload.as_deref(), Some("in"));
        let warnings = parse("j.hcl", &text.replace("\"who\"", "\"why\"")).unwrap().warnings;
        assert!(warnings.iter().any(|warning| warning.message.contains("NOMAD_META_who")), "{warnings:?}");
    }
}
