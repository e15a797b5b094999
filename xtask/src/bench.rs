//! `cargo xtask bench`: builds as packages are built, runs the benchmarks one after the other, and writes what they
//! measured into `docs/figures.tsv` (every row), `docs/figures.md` (budgets) and the README (short). Each prints lines
//!
//! ```text
//! bench <tab> name <tab> value <tab> unit <tab> ratio, or - <tab> to which floor or peer of the same run
//! ```
//! A number is passed on to the benchmarks that are named: tasks, or minutes of `hour`. The rows of a run replace those
//! of the same names; others keep their values, with the day and commit at which they were measured.
//!
//! `cargo xtask bench --from FILE` measures nothing: it records what a run of this commit printed into that file.

mod budgets;
mod table;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::parts::{self, Purpose};
use crate::{Result, cargo, run};

/// One line of a benchmark.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub bench: String,
    pub name: String,
    pub value: String,
    pub unit: String,
    pub ratio: Option<Ratio>,
    /// `2026-11-30`.
    pub date: String,
    /// Empty: not on record.
    pub commit: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    pub times: String,
    /// A row, or in words.
    pub to: String,
}

pub fn run(words: &[&str]) -> Result<bool> {
    if let ["--from", file] = words {
        return write_again(Path::new(file));
    }
    let all = words.contains(&"--all");
    let (numbers, names): (Vec<&str>, Vec<&str>) =
        words.iter().copied().filter(|word| *word != "--all").partition(|word| word.parse::<u64>().is_ok());
    if let Some(flag) = names.iter().find(|name| name.starts_with('-')) {
        return Err(format!("unknown option {flag}").into());
    }
    let root = crate::root();
    let parts = parts::get(&root, Purpose::Bench)?;
    let programs = cargo::build(&root, &["build", "--profile", "dist", "--bins", "--examples"])?;
    // Each one is linked with everything, which takes minutes.
    let expected = if names.is_empty() { &["*"][..] } else { &names };
    let expected = expected.iter().flat_map(|name| ["--bench", name]);
    let built = cargo::build(
        &root,
        &["bench", "--profile", "dist", "--no-run"].into_iter().chain(expected).collect::<Vec<_>>(),
    )?;
    let (allostat, workload) = (programs.binary("allostat"), programs.binary("workload"));

    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for bench in built.benches.iter().filter(|bench| names.is_empty() || names.contains(&bench.name.as_str())) {
        println!("{}", heading(&bench.name));
        let mut command = Command::new(&bench.path);
        command.current_dir(&root).env("ALLOSTAT_PARTS", &parts.dir).arg("--bench");
        command.args(all.then_some("--all")).args(&numbers);
        command
            .envs(allostat.map(|path| ("ALLOSTAT_BIN", path)))
            .envs(workload.map(|path| ("ALLOSTAT_WORKLOAD", path)));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        for line in BufReader::new(child.stdout.take().ok_or("piped")?).lines() {
            let line = line?;
            println!("{line}");
            rows.extend(row(&bench.name, &line));
        }
        if !child.wait()?.success() {
            failed.push(bench.name.clone());
        }
    }
    // What a benchmark printed before it failed may be wrong.
    rows.retain(|row| !failed.contains(&row.bench));
    write(&root, rows.clone())?;
    println!("written to docs/figures.md and README.md");
    println!(
        "{} figures; {}",
        rows.len(),
        if failed.is_empty() { "all ran".into() } else { format!("FAILED: {failed:?}") }
    );
    Ok(failed.is_empty())
}

fn heading(bench: &str) -> String {
    format!("--- {bench} ---")
}

/// Errors: there is no figure in the file.
fn write_again(file: &Path) -> Result<bool> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let rows = rows_of(&text);
    if rows.is_empty() {
        return Err(format!("{}: no figure of a benchmark", file.display()).into());
    }
    println!("{} figures written to docs/figures.md and README.md", rows.len());
    write(&crate::root(), rows)?;
    Ok(true)
}

fn rows_of(printed: &str) -> Vec<Row> {
    let mut bench = "";
    let mut rows = Vec::new();
    for line in printed.lines() {
        match line.strip_prefix("--- ").and_then(|line| line.strip_suffix(" ---")) {
            Some(name) => bench = name,
            None => rows.extend(row(bench, line)),
        }
    }
    rows
}

fn row(bench: &str, line: &str) -> Option<Row> {
    let mut words = line.strip_prefix("bench\t")?.split('\t').map(str::to_owned);
    let (name, value, unit) = (words.next()?, words.next()?, words.next()?);
    let ratio = words.next().filter(|times| times != "-");
    // A ratio to nothing says nothing.
    let ratio = ratio.and_then(|times| Some(Ratio { times, to: words.next()? }));
    Some(Row { bench: bench.to_owned(), name, value, unit, ratio, date: String::new(), commit: String::new() })
}

/// The earlier rows with the new ones in their places. Rows of a benchmark that is gone are left out.
fn merged(earlier: Vec<Row>, new: Vec<Row>, has_bench: impl Fn(&str) -> bool) -> Vec<Row> {
    let mut all: Vec<Row> = earlier.into_iter().filter(|row| has_bench(&row.bench)).collect();
    for row in new {
        match all.iter_mut().find(|earlier| earlier.name == row.name) {
            Some(earlier) => *earlier = row,
            None => {
                let last = all.iter().rposition(|earlier| earlier.bench == row.bench);
                all.insert(last.map_or(all.len(), |last| last + 1), row);
            }
        }
    }
    all
}

fn write(root: &Path, mut new: Vec<Row>) -> Result<()> {
    let (date, commit) = (run::date()?, run::commit(root)?);
    for row in &mut new {
        (row.date, row.commit) = (date.clone(), commit.clone());
    }
    let table = root.join("docs/figures.tsv");
    let earlier = table::rows(&fs::read_to_string(&table).unwrap_or_default())?;
    let rows = &merged(earlier, new, |bench| root.join("benches").join(format!("{bench}.rs")).exists());
    let path = root.join("docs/figures.md");
    let text = fs::read_to_string(&path).unwrap_or_default();
    fs::write(&path, table::figures(rows, &machine(), &text))?;
    fs::write(table, table::all(rows))?;
    let path = root.join("README.md");
    let readme = fs::read_to_string(&path)?;
    fs::write(
        &path,
        table::between(&readme, "figures", &table::short(rows)).ok_or("README.md has no place for figures")?,
    )?;
    Ok(())
}

/// What the figures were measured on.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("?", |(_, m)| m);
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let kernel: String = kernel.trim().split('-').next().unwrap_or("?").to_owned();
    let mounts = read("/proc/self/mounts");
    let has = |kind: &str| mounts.lines().any(|line| line.split(' ').nth(2) == Some(kind));
    let cgroups = match (has("cgroup"), has("cgroup2")) {
        (true, true) => "v1 with a cgroup2 tree beside it",
        (true, false) => "v1",
        (false, true) => "v2",
        (false, false) => "none",
    };
    format!("{cores} cores ({model}), kernel {kernel}, cgroups {cgroups}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_benchmark_is_a_row_and_other_lines_are_not() {
        let found = row("agent", "bench\tagent/idle\t0.40\tCPU-s/min\t-").unwrap();
        assert_eq!((found.name.as_str(), found.ratio), ("agent/idle", None));
        let ratio = Ratio { times: "1.2".into(), to: "nginx, same bytes".into() };
        assert_eq!(row("agent", "bench\ta\t1\tus\t1.2\tnginx, same bytes").unwrap().ratio, Some(ratio));
        assert_eq!(row("agent", "measuring for 30 s"), None);
        let printed = format!("{}\nbench\tagent/idle\t0.40\tCPU-s/min\t-\n{}\n", heading("agent"), heading("kill"));
        assert_eq!(rows_of(&printed), [row("agent", "bench\tagent/idle\t0.40\tCPU-s/min\t-").unwrap()]);
    }

    #[test]
    fn rows_of_a_run_replace_their_namesakes_and_leave_the_others() {
        let row = |bench: &str, name: &str, value: &str| row(bench, &format!("bench\t{name}\t{value}\tms\t-")).unwrap();
        let earlier = vec![row("agent", "agent/a", "1"), row("gone", "gone/x", "1"), row("page", "page/a", "1")];
        let new = vec![row("agent", "agent/b", "2"), row("page", "page/a", "2"), row("new", "new/a", "2")];
        let expected = [
            row("agent", "agent/a", "1"),
            row("agent", "agent/b", "2"),
            row("page", "page/a", "2"),
            row("new", "new/a", "2"),
        ];
        assert_eq!(merged(earlier, new, |bench| bench != "gone"), expected);
    }
}
