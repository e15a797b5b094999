//! `allostat check`

use std::fs::File;
use std::path::{Path, PathBuf};

use super::CliSession;
use super::exit::{CliError, CliExit, CliResult};
use super::inputs::{CallersFiles, Variables};
use super::output::{Style, printable};
use crate::api;
use crate::config::{self, Config};
use crate::jobspec::diagnostic::{Problems, SourceText};
use crate::jobspec::{self, Diagnostic, Diagnostics, Inputs, read};
use crate::model::env::Env;
use crate::runner::drivers;
use crate::telemetry::chain;

/// Validate configuration, job and web configuration files
///
/// Examples: `allostat check web.hcl`, `allostat check /etc/allostat/agent.hcl /etc/allostat/web.yml`
///
/// Reports every problem of each file, with file, line, column, the line itself and a suggestion.
///
/// A web configuration of Prometheus is checked with the certificates that it names, alone or where a configuration
/// names it. A job file is checked without the host, including its drivers' `config`; `allostat plan` checks what
/// depends on the host (enabled drivers, available limits).
#[derive(Debug, clap::Args)]
pub struct CheckCommand {
    /// Files to check: one with a `job` is a job file, one that ends in .yml or .yaml a web configuration (not
    /// Prometheus's own configuration), any other a configuration file
    #[arg(required_unless_present = "defaults")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    variables: Variables,
    /// Print a configuration file with all defaults, and the ALLOSTAT_* variable of each setting
    #[arg(long, conflicts_with = "files")]
    defaults: bool,
}

impl CheckCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        if self.defaults {
            let config = Config::new(config::default_data_dir().unwrap_or_default());
            write!(session.out, "{}", config::print(&config))?;
            return Ok(CliExit::Done);
        }
        for (variable, suggestion) in super::unknown_variables() {
            let advice = suggestion
                .map_or_else(|| "`allostat check --defaults` lists all".to_owned(), |m| format!("did you mean {m}?"));
            session.remark(&format!("warning: no setting has the variable {variable}: it is ignored; {advice}"));
        }
        let mut exit = CliExit::Done;
        for path in &self.files {
            let name = path.display().to_string();
            let bytes = match File::open(path).and_then(jobspec::bytes_of) {
                Ok(bytes) => bytes,
                Err(e) => {
                    session.remark(&format!("{name}: cannot read it: {e}"));
                    exit = if exit == CliExit::Done { CliExit::NotFound } else { exit };
                    continue;
                }
            };
            match check(path, &name, bytes, &self.variables) {
                Ok((kind, warnings)) => {
                    for warning in &warnings {
                        session.remark(&format!("{warning}\n"));
                    }
                    let ok = session.paint.paint(Style::Green, "ok");
                    writeln!(session.out, "{}: {ok} ({kind})", printable(&name))?;
                }
                Err(problems) => {
                    session.remark(&format!("{problems}\n"));
                    exit = CliExit::InvalidFile;
                }
            }
        }
        Ok(exit)
    }
}

fn check(
    path: &Path,
    name: &str,
    bytes: Vec<u8>,
    variables: &Variables,
) -> Result<(&'static str, Vec<Diagnostic>), CliError> {
    let refused = |text: String| CliError::new(CliExit::InvalidFile, text);
    if path.extension().is_some_and(|ending| ending == "yml" || ending == "yaml") {
        let warnings = api::check_web_config(path).map_err(|error| {
            let error = refused(chain(&error));
            let is_field = |line: &[u8]| api::WEB_FIELDS.iter().any(|field| line.starts_with(field.as_bytes()));
            if bytes.split(|byte| *byte == b'\n').any(is_field) {
                return error;
            }
            // Many others have files of that ending.
            error.hint(format!(
                "{name} was read as a web configuration (TLS and passwords of agent.web_config_file), since it ends in \
                 .yml or .yaml: what is for others, such as Prometheus's own configuration or rules, their tools check \
                 (`promtool check config`)"
            ))
        })?;
        return Ok(("web configuration", warnings));
    }
    let text = &jobspec::text_of(name, bytes).map_err(|errors| refused(errors.to_string()))?;
    if text.trim().is_empty() {
        let requested =
            "a job file begins with job \"name\" { ... }; `allostat check --defaults` prints a configuration";
        return Err(refused(format!("{name}: error: the file is empty\n      = {requested}")));
    }
    let source = SourceText::new(name, text.as_str());
    let problems = Problems::new(&source);
    let body = read::read_into(&problems, None);
    if body.entries.iter().any(|e| e.key.eq_ignore_ascii_case("job")) {
        let reading = CallersFiles::default();
        let inputs = Inputs { given: &variables.given()?, outside: &reading };
        let warnings = job_file(name, text, inputs).map_err(|errors| refused(errors.to_string()))?;
        return Ok(("job", warnings));
    }
    let sets_nothing = body.entries.is_empty();
    let mut config = Config::new(config::default_data_dir().unwrap_or_default());
    let file = config::read_text(name, text, &mut config);
    let mut warnings = file.warnings.clone();
    let mut refusals = Vec::new();
    if let Err(error) = config::together(&config, Some(file)) {
        refusals.push(chain(&error));
    }
    // A file that this one names is wrong by itself, whatever this one is.
    match api::check_access(&config.api) {
        Ok(more) => warnings.extend(more),
        Err(errors) => refusals.extend(errors.iter().map(|error| chain(error))),
    }
    refusals.extend(config::check_push(&config).iter().map(|error| chain(error)));
    match refusals.is_empty() {
        true if sets_nothing => Ok(("a configuration that sets nothing", warnings)),
        true => Ok(("configuration", warnings)),
        false => Err(refused(refusals.join("\n\n"))),
    }
}

/// What of it is ignored. Errors: every problem of the file that can be known from it alone, what its drivers refuse
/// included.
pub fn job_file(name: &str, text: &str, inputs: Inputs<'_>) -> Result<Vec<Diagnostic>, Diagnostics> {
    let parsed = jobspec::parse_with(name, text, inputs, |parsed| {
        let mut problems = drivers::problems_anywhere(parsed);
        problems.extend(parsed.too_long(&Env::new()));
        problems
    })?;
    Ok(parsed.warnings)
}
