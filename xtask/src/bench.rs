//! `cargo xtask bench`: builds as packages are built, runs the benchmarks one after the other, and writes what they
//! measured into `docs/figures.tsv` (every row), `docs/figures.md` (budgets) and the README (short). Each prints lines
//!
//! ```text
//! bench <tab> name <tab> value <tab> unit <tab> ratio, or - <tab> to which floor or peer of the same run
//! ```
//! A number goes on to what is named: tasks, or minutes of `hour`.
//!
//! `cargo xtask bench --from FILE` measures nothing: it writes down what a run printed into that file, if every
//! benchmark is in it.

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
    // A part of the figures would pass for the whole: only a complete run is written down.
    if names.is_empty() && failed.is_empty() {
        write(&root, &rows)?;
        println!("written to docs/figures.md and README.md");
    }
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

/// What a run printed. Errors: a benchmark has no figure there, and which.
fn write_again(file: &Path) -> Result<bool> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let rows = rows_of(&text);
    let root = crate::root();
    let benches = fs::read_dir(root.join("benches"))?.flatten().map(|entry| entry.path());
    let names = benches.filter(|path| path.extension().is_some_and(|e| e == "rs"));
    let names: Vec<String> = names.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    let has = |name: &String| rows.iter().any(|row| row.bench == *name);
    // They measure nothing unless they are asked to.
    let lacking: Vec<&String> = names.iter().filter(|name| *name != "hour" && *name != "churn" && !has(name)).collect();
    if !lacking.is_empty() {
        return Err(format!("{}: no figure of {lacking:?}", file.display()).into());
    }
    write(&root, &rows)?;
    println!("{} figures written to docs/figures.md and README.md", rows.len());
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
    Some(Row { bench: bench.to_owned(), name, value, unit, ratio })
}

fn write(root: &Path, rows: &[Row]) -> Result<()> {
    let path = root.join("docs/figures.md");
    let earlier = fs::read_to_string(&path).unwrap_or_default();
    fs::create_dir_all(root.join("docs"))?;
    fs::write(&path, table::figures(rows, &machine()?, &earlier))?;
    fs::write(root.join("docs/figures.tsv"), table::all(rows))?;
    let path = root.join("README.md");
    let readme = fs::read_to_string(&path)?;
    fs::write(
        &path,
        table::between(&readme, "figures", &table::short(rows)).ok_or("README.md has no place for figures")?,
    )?;
    Ok(())
}

/// What the figures were measured on.
fn machine() -> Result<String> {
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
    let date = run::date()?;
    Ok(format!("{cores} cores ({model}), kernel {kernel}, cgroups {cgroups}, {}", date))
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
}
