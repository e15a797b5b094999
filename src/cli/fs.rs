//! `allostat fs`

use serde::Deserialize;

use super::exit::{CliError, CliResult, Exit};
use super::output::{Align, Table, pairs, printable};
use super::{Session, human};
use crate::api::encode;
use crate::model::units::Timestamp;

/// Of a file, at a time.
const PIECE: u64 = 1 << 20;

/// List and read files of an alloc
///
/// A path begins in the directory of the alloc: alloc/data, TASK/local. Secrets of tasks are not shown.
///
/// Examples: `allostat fs ls 5f0d`, `allostat fs cat web web/local/app.conf`
#[derive(Debug, clap::Args)]
pub struct Fs {
    /// List a directory, print a file, or describe either
    #[arg(value_enum)]
    action: Action,
    /// An ID or its prefix, a job, or the name of an alloc (web.app[0])
    #[arg(value_parser = super::alloc_id)]
    alloc: String,
    /// Path in the directory of the alloc; default: the directory itself
    #[arg(default_value = "/", hide_default_value = true)]
    path: String,
    /// Print the API's JSON (ls, stat)
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    Ls,
    Cat,
    Stat,
}

#[derive(Debug, Deserialize)]
struct Listing {
    files: Vec<FileRow>,
    #[serde(default)]
    omitted: u64,
}

#[derive(Debug, Deserialize)]
struct FileRow {
    name: String,
    kind: String,
    size_bytes: u64,
    mode: String,
    uid: u32,
    gid: u32,
    #[serde(default)]
    modified_at: Option<Timestamp>,
    /// Of one file alone.
    #[serde(default)]
    path: Option<String>,
}

impl Fs {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let target = |what: &str| format!("/v1/allocs/{}/fs/{what}?path={}", encode(&self.alloc), encode(&self.path));
        let (action, json) = (self.action, self.json);
        match action {
            Action::Cat if json => {
                Err(CliError::new(Exit::Usage, "--json is for ls and stat: cat prints the file itself"))
            }
            Action::Cat => cat(session, &target("cat")),
            Action::Ls | Action::Stat if json => {
                let what = if action == Action::Ls { "ls" } else { "stat" };
                let answer = session.connect()?.get_json(&target(what))?;
                session.json(&answer)?;
                Ok(Exit::Done)
            }
            Action::Ls => ls(session, &target("ls")),
            Action::Stat => stat(session, &target("stat")),
        }
    }
}

fn modified(row: &FileRow) -> String {
    human::or_absent(row.modified_at.map(human::date_and_time))
}

fn ls(session: &mut Session<'_>, target: &str) -> CliResult {
    let listing: Listing = session.connect()?.get(target)?;
    let mut table =
        Table::new(&[("MODE", Align::Left), ("SIZE", Align::Right), ("MODIFIED", Align::Left), ("NAME", Align::Left)]);
    for row in &listing.files {
        let (kind, name) = (row.kind.as_str(), printable(&row.name));
        let size = if kind == "file" { human::bytes(row.size_bytes) } else { kind.to_owned() };
        let name = if kind == "directory" { format!("{name}/") } else { name };
        table.row(vec![row.mode.as_str().into(), size.into(), modified(row).into(), name.into()]);
    }
    if !table.is_empty() {
        write!(session.out, "{}", table.render(session.paint))?;
    }
    if listing.omitted > 0 {
        session.remark(&format!("and {} more: the listing has its limit", listing.omitted));
    }
    Ok(Exit::Done)
}

fn stat(session: &mut Session<'_>, target: &str) -> CliResult {
    let row: FileRow = session.connect()?.get(target)?;
    let rows = [
        ("path", printable(row.path.as_deref().unwrap_or(&row.name))),
        ("kind", row.kind.clone()),
        ("size", human::bytes(row.size_bytes)),
        ("mode", row.mode.clone()),
        ("user", row.uid.to_string()),
        ("group", row.gid.to_string()),
        ("modified", modified(&row)),
    ];
    write!(session.out, "{}", pairs(&rows, session.paint))?;
    Ok(Exit::Done)
}

/// What was in it when it was asked for first: one that grows is not followed.
fn cat(session: &mut Session<'_>, target: &str) -> CliResult {
    let mut agent = session.connect()?;
    let (mut at, mut end) = (0_u64, None);
    loop {
        let limit = end.map_or(PIECE, |end: u64| end.saturating_sub(at).min(PIECE));
        let answer = agent.get_raw(&format!("{target}&offset={at}&limit={limit}"), &[])?;
        let size = answer.header("x-allostat-size").and_then(|text| text.parse().ok());
        let size: u64 = size.ok_or_else(|| CliError::failed("the answer does not say how large the file is"))?;
        let end = *end.get_or_insert(size);
        session.out.write_all(&answer.body)?;
        at = at.saturating_add(answer.body.len() as u64);
        if at >= end || answer.body.is_empty() || session.out.is_gone() {
            return Ok(Exit::Done);
        }
    }
}
