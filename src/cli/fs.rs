//! `allostat fs`

use std::time::Duration;

use serde::Deserialize;

use super::exit::{CliError, CliResult, Exit};
use super::follow::Follow;
use super::output::{Align, Table, pairs, printable};
use super::{Session, human, output};
use crate::api::{SNAPSHOT_TYPE, encode};
use crate::host::http::Response;
use crate::model::units::Timestamp;

/// Of a file, at a time.
const PIECE: u64 = 1 << 20;
/// How soon it is looked again for what was written.
const LOOK: Duration = Duration::from_millis(100);

/// List and read files of an alloc
///
/// A path begins in the directory of the alloc: alloc/data, TASK/local. Secrets of tasks are not shown. With -f, cat
/// goes on with what is written to the file, until Ctrl-C. snapshot writes a tar archive to standard output.
///
/// Examples: `allostat fs ls 5f0d`, `allostat fs cat -f web alloc/data/app.log`, `allostat fs snapshot web >web.tar`
#[derive(Debug, clap::Args)]
pub struct Fs {
    /// List a directory, print a file, describe either, or archive all below a path
    #[arg(value_enum)]
    action: Action,
    /// An ID or its prefix, a job, or the name of an alloc (web.app[0])
    #[arg(value_parser = super::alloc_id)]
    alloc: String,
    /// Path in the directory of the alloc; default: the directory itself
    #[arg(default_value = "/", hide_default_value = true)]
    path: String,
    /// Follow what is written to the file (cat)
    #[arg(short, long)]
    follow: bool,
    /// Print the API's JSON (ls, stat)
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    Ls,
    Cat,
    Stat,
    Snapshot,
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
            Action::Cat | Action::Snapshot if json => {
                Err(CliError::new(Exit::Usage, "--json is for ls and stat: cat and snapshot print files themselves"))
            }
            Action::Ls | Action::Stat | Action::Snapshot if self.follow => {
                Err(CliError::new(Exit::Usage, "--follow is for cat"))
            }
            Action::Snapshot => snapshot(session, &self.alloc, &target("snapshot")),
            Action::Cat if self.follow => follow_file(session, &target("cat")),
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

/// Until Ctrl-C. A file that became shorter begins again.
fn follow_file(session: &mut Session<'_>, target: &str) -> CliResult {
    let mut agent = session.connect()?;
    let mut follow = Follow::from_now(&mut agent)?;
    let mut at = 0_u64;
    while !follow.is_interrupted() && !session.out.is_gone() {
        let asked = format!("{target}&offset={at}&limit={PIECE}");
        let answer = match follow.insist(|agent| agent.get_raw(&asked, &[])) {
            Err(_) if follow.is_interrupted() => break,
            answer => answer?,
        };
        let size = size_of(&answer)?;
        session.out.write_all(&answer.body)?;
        session.out.flush()?;
        if size < at {
            session.remark("the file became shorter: from its beginning");
            at = 0;
            continue;
        }
        at = at.saturating_add(answer.body.len() as u64);
        if at >= size {
            std::thread::sleep(LOOK);
        }
    }
    Ok(Exit::Done)
}

fn snapshot(session: &mut Session<'_>, alloc: &str, target: &str) -> CliResult {
    if output::is_terminal() {
        let error = CliError::new(Exit::Usage, "snapshot writes a tar archive, which is nothing for a terminal");
        return Err(error.hint(format!("write it to a file: `allostat fs snapshot {} >alloc.tar`", printable(alloc))));
    }
    let mut agent = session.connect()?;
    let out = &mut session.out;
    agent.download((target, SNAPSHOT_TYPE), |bytes| {
        out.write_all(bytes)?;
        Ok(!out.is_gone())
    })?;
    session.out.flush()?;
    Ok(Exit::Done)
}

fn size_of(answer: &Response) -> Result<u64, CliError> {
    let size = answer.header("x-allostat-size").and_then(|text| text.parse().ok());
    size.ok_or_else(|| CliError::failed("the answer does not say how large the file is"))
}

/// What was in it when it was asked for first: one that grows is not followed.
fn cat(session: &mut Session<'_>, target: &str) -> CliResult {
    let mut agent = session.connect()?;
    let (mut at, mut end) = (0_u64, None);
    loop {
        let limit = end.map_or(PIECE, |end: u64| end.saturating_sub(at).min(PIECE));
        let answer = agent.get_raw(&format!("{target}&offset={at}&limit={limit}"), &[])?;
        let size = size_of(&answer)?;
        let end = *end.get_or_insert(size);
        session.out.write_all(&answer.body)?;
        at = at.saturating_add(answer.body.len() as u64);
        if at >= end || answer.body.is_empty() || session.out.is_gone() {
            return Ok(Exit::Done);
        }
    }
}
