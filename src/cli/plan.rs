//! `allostat plan`

use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::api_types::short;
use super::exit::{CliError, CliExit, CliResult};
use super::inputs::{CallersFiles, Variables};
use super::output::{self, Alignment, Paint, Style, TextTable, printable};
use super::width::wrapped;
use super::{CliSession, follow, human, parents};
use crate::api::{GroupEffect, JobText, Submitted, UnplacedGroup};
use crate::jobspec::diff::{DiffKind, ObjectDiff};
use crate::jobspec::{self, Diagnostic, Inputs};

/// Show what a job file would change: the difference to the job that runs, and what becomes of its allocs
///
/// Examples: `allostat plan web.hcl`, `allostat plan --var tag=1.4 web.hcl`
///
/// Changes nothing. It also reports which parts of the file are ignored or refused on this host. Values that may be
/// secrets are hidden.
#[derive(Debug, clap::Args)]
pub struct PlanCommand {
    /// Job file, HCL or JSON; - is standard input
    file: PathBuf,
    #[command(flatten)]
    variables: Variables,
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
}

impl PlanCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let job = read_job(&self.file, &self.variables)?;
        let mut agent = session.connect_to_act()?;
        let (target, body) = job.request(true);
        if self.json {
            let plan: Value = agent.post(&target, body)?;
            session.json(&plan)?;
            let waits = plan["not_placed"].as_array().is_some_and(|groups| !groups.is_empty());
            return Ok(if waits { CliExit::Failed } else { CliExit::Done });
        }
        let plan: Submitted = agent.post(&target, body)?;
        show_warnings(session, &plan.warnings);
        writeln!(session.out, "job {} ({})\n", printable(&plan.job), plan.kind)?;
        if let Some(launches) = &plan.launches {
            writeln!(session.out, "{}\n", parents::planned(&printable(&plan.job), launches, follow::now()))?;
        }
        let mut table = TextTable::new(&[
            ("GROUP", Alignment::Left),
            ("ALLOCS", Alignment::Right),
            ("TASK", Alignment::Left),
            ("DRIVER", Alignment::Left),
            ("MEMORY", Alignment::Right),
            ("CPU SHARES", Alignment::Right),
        ]);
        for group in &plan.groups {
            for task in &group.tasks {
                table.row(vec![
                    printable(&group.name).into(),
                    group.count.to_string().into(),
                    printable(&task.name).into(),
                    task.driver.clone().into(),
                    task.memory_bytes.map_or_else(|| "no limit".to_owned(), human::bytes).into(),
                    human::or_absent(task.cpu_shares.map(|n| n.to_string())).into(),
                ]);
            }
        }
        write!(session.out, "{}", table.render(session.paint))?;
        for group in &plan.groups {
            if let Some(score) = group.affinity {
                writeln!(session.out, "\naffinity of group {}: {score:.2} of 1", printable(&group.name))?;
            }
            if !group.ports.is_empty() {
                let ports: Vec<String> = group.ports.iter().map(|port| printable(&port.to_string())).collect();
                writeln!(session.out, "\nports of each alloc of {}: {}", printable(&group.name), ports.join(", "))?;
            }
        }
        write!(session.out, "{}", changes(&plan, output::screen(), session.paint))?;
        match not_placed(&plan) {
            None => Ok(CliExit::Done),
            Some(why) => {
                session.remark(&format!("warning: job {} would wait\n{why}", printable(&plan.job)));
                Ok(CliExit::Failed)
            }
        }
    }
}

/// So many allocs are named one by one.
pub const NAMED: usize = 8;

/// The short IDs, unless there are too many to read.
pub fn few_ids(ids: &[String]) -> Option<String> {
    (ids.len() <= NAMED).then(|| ids.iter().map(|id| printable(short(id))).collect::<Vec<_>>().join(", "))
}

/// What differs from the job that runs, and what that does to its allocs.
fn changes(plan: &Submitted, screen: Option<u16>, paint: Paint) -> String {
    let mut out = String::new();
    let sentence = |text: String| format!("\n{}\n", wrapped(&text, screen, 2));
    if let Some(diff) = &plan.diff {
        out.push('\n');
        object(&mut out, diff, 0, paint);
    }
    let lines: Vec<String> = plan.effects.iter().filter_map(effect).collect();
    if plan.diff.is_some() && !lines.is_empty() {
        out.push_str(&format!("\n{}\n", lines.join("\n")));
    }
    if !plan.replaces.is_empty() {
        let which = few_ids(&plan.replaces).unwrap_or_else(|| human::count(plan.replaces.len(), "alloc"));
        out.push_str(&sentence(format!("stops and replaces: {which}")));
    }
    if plan.is_new == Some(true) {
        out.push_str("\n+ new job: nothing of it runs\n");
    } else if !plan.unchanged.is_empty() && plan.replaces.is_empty() {
        let named = few_ids(&plan.unchanged).map_or_else(String::new, |ids| format!(" as {ids}"));
        let count = human::count(plan.unchanged.len(), "alloc");
        out.push_str(&sentence(format!("nothing would happen: it runs already, unchanged{named} ({count})")));
    } else if plan.is_new == Some(false) && plan.diff.is_none() && plan.replaces.is_empty() {
        out.push_str("\nnothing would happen: the job is unchanged\n");
    }
    out
}

fn sign(kind: DiffKind) -> (&'static str, Style) {
    match kind {
        DiffKind::Added => ("+", Style::Green),
        DiffKind::Removed => ("-", Style::Red),
        DiffKind::Edited => ("~", Style::Yellow),
    }
}

/// As Nomad's `job plan` shows one: its fields, then what is in it.
fn object(out: &mut String, diff: &ObjectDiff, depth: usize, paint: Paint) {
    /// A hostile agent's may be as deep as its JSON.
    const DEEPEST: usize = 16;
    if depth > DEEPEST {
        return;
    }
    let indent = "  ".repeat(depth);
    let (mark, style) = sign(diff.kind);
    let name = if diff.name.is_empty() { String::new() } else { format!(" {:?}", printable(&diff.name)) };
    out.push_str(&format!("{indent}{} {}{name}\n", paint.paint(style, mark), printable(&diff.object)));
    for field in &diff.fields {
        let (mark, style) = sign(field.kind);
        let text = |value: &Option<String>| printable(value.as_deref().unwrap_or_default());
        let (old, new) = (text(&field.old), text(&field.new));
        let value = match field.kind {
            DiffKind::Added => new,
            DiffKind::Removed => old,
            DiffKind::Edited if old == new => format!("{new}, changed"),
            DiffKind::Edited => format!("{old} => {new}"),
        };
        out.push_str(&format!("{indent}  {} {}: {value}\n", paint.paint(style, mark), printable(&field.name)));
    }
    diff.objects.iter().for_each(|inner| object(out, inner, depth + 1, paint));
}

/// `group "app": replaces 3 allocs, 1 at a time; 1 alloc stays`
fn effect(effect: &GroupEffect) -> Option<String> {
    let count = |n: u32| human::count(usize::try_from(n).unwrap_or(usize::MAX), "alloc");
    let each =
        [("starts", effect.starts), ("replaces", effect.replaces), ("stops", effect.stops), ("keeps", effect.stays)];
    let words: Vec<String> =
        each.iter().filter(|(_, n)| *n > 0).map(|(word, n)| format!("{word} {}", count(*n))).collect();
    let rolls = effect.max_parallel.filter(|_| effect.replaces > 0);
    let rolls = rolls.map_or_else(String::new, |n| format!(", {n} at a time"));
    (!words.is_empty()).then(|| format!("group {:?}: {}{rolls}", printable(&effect.group), words.join(", ")))
}

/// A line for each reason of each group. `None`: all allocs are placed.
pub fn not_placed(submitted: &Submitted) -> Option<String> {
    let line = |group: &UnplacedGroup| {
        let count = human::count(usize::try_from(group.count).unwrap_or(usize::MAX), "alloc");
        let reasons = group.reasons.iter().map(|one| format!("\n    {}", printable(&one.message)));
        format!("  {count} of group {} not placed:{}", printable(&group.group), reasons.collect::<String>())
    };
    let lines: Vec<String> = submitted.not_placed.iter().map(line).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Reads a job file, and checks it here: a broken one needs no agent to be found.
///
/// Errors: it cannot be read ([`CliExit::NotFound`]), or is wrong ([`CliExit::InvalidFile`]).
pub fn read_job(path: &Path, variables: &Variables) -> Result<JobText, CliError> {
    let stdin = path.as_os_str() == "-";
    let file = if stdin { "standard-input".to_owned() } else { path.display().to_string() };
    let bytes =
        if stdin { jobspec::bytes_of(std::io::stdin().lock()) } else { File::open(path).and_then(jobspec::bytes_of) };
    let bytes = bytes.map_err(|e| CliError::new(CliExit::NotFound, format!("cannot read {file}: {e}")))?;
    let (variables, reading) = (variables.given()?, CallersFiles::default());
    let inputs = Inputs { given: &variables, outside: &reading };
    let checked =
        jobspec::text_of(&file, bytes).and_then(|text| super::check::job_file(&file, &text, inputs).map(|_| text));
    checked
        .map(|text| JobText { file, text: text.into_bytes(), variables, recorded: reading.recorded() })
        .map_err(|errors| CliError::new(CliExit::InvalidFile, format!("the job file is refused\n\n{errors}")))
}

/// What is wrong at several places in the same way is one warning.
pub fn show_warnings(session: &CliSession<'_>, warnings: &[Diagnostic]) {
    let mut groups: Vec<(&Diagnostic, Vec<&Diagnostic>)> = Vec::new();
    for warning in warnings {
        let same = |first: &Diagnostic| {
            (&first.severity, &first.file, &first.message, &first.suggestion)
                == (&warning.severity, &warning.file, &warning.message, &warning.suggestion)
        };
        match groups.iter_mut().find(|(first, _)| same(first)) {
            Some((_, rest)) => rest.push(warning),
            None => groups.push((warning, Vec::new())),
        }
    }
    for (first, rest) in groups {
        session.remark(&format!("{first}{}\n", also_at(&rest)));
    }
}

/// The other places of a warning. Empty: there are none.
fn also_at(rest: &[&Diagnostic]) -> String {
    /// More are a number.
    const NAMED: usize = 8;
    let named: Vec<String> = rest.iter().take(NAMED).map(|one| format!("{}:{}", one.line, one.column)).collect();
    let more = rest.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    match named.is_empty() {
        true => String::new(),
        false => format!("\n      = {} places; also at {}{more}", rest.len() + 1, named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobspec::Severity;

    #[test]
    fn plan_names_few_allocs_by_short_ids_within_the_screen_and_counts_many() {
        let id = |n: usize| format!("{n:08x}-1111-2222-3333-444455556666");
        let shown = |list: &str, count: usize| {
            let mut plan = serde_json::json!({
                "job": "web", "type": "service", "is_new": false, "allocs": [], "groups": [], "replaces": [], "warnings": [],
            });
            plan[list] = (0..count).map(id).collect();
            changes(&serde_json::from_value(plan).unwrap(), Some(80), Paint(false))
        };
        for list in ["unchanged", "replaces"] {
            for count in [1, 3, NAMED, NAMED + 1, 200] {
                let text = shown(list, count);
                assert!(text.lines().all(|line| super::super::width::columns_of(line) <= 80), "{text}");
                let named = (0..count).filter(|n| text.contains(short(&id(*n)))).count();
                assert_eq!(named, if count > NAMED { 0 } else { count }, "{text}");
                assert!(!text.contains("1111") && (count <= NAMED || text.contains(&count.to_string())), "{text}");
            }
        }
        assert_eq!(shown("unchanged", 200).trim(), "nothing would happen: it runs already, unchanged (200 allocs)");
    }

    #[test]
    fn places_of_the_same_warning_are_listed_and_many_are_a_number() {
        let at = |line| Diagnostic {
            severity: Severity::Warning,
            file: "web.hcl".to_owned(),
            line,
            column: 3,
            width: 1,
            field: String::new(),
            message: "the same".to_owned(),
            suggestion: None,
            source_line: String::new(),
        };
        let all: Vec<Diagnostic> = (1..=12).map(at).collect();
        let shown = |count: usize| also_at(&all[..count].iter().collect::<Vec<_>>());
        assert_eq!(shown(0), "");
        assert_eq!(shown(2), "\n      = 3 places; also at 1:3, 2:3");
        assert!(shown(12).ends_with("7:3, 8:3 and 4 more"), "{}", shown(12));
    }
}
