//! `allostat fs`

use std::fmt::Write;
use std::io;
use std::time::Duration;

use serde::Deserialize;

use super::exit::{CliError, CliExit, CliResult};
use super::follow::AllocFollower;
use super::output::{Alignment, CommandOutput, TextTable, pairs, printable};
use super::{CliSession, human, output};
use crate::api::{SNAPSHOT_TYPE, encode};
use crate::host::http::HttpResponse;
use crate::model::text::terminal_lines;
use crate::model::units::Timestamp;

/// Of a file, at a time.
const PIECE: u64 = 1 << 20;
/// How soon it is looked again for what was written.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// List and read files of an alloc
///
/// Examples: `allostat fs ls 5f0d`, `allostat fs cat -f web alloc/data/app.log`, `allostat fs snapshot web >web.tar`
///
/// A path begins in the directory of the alloc: alloc/data, TASK/local. Secrets of tasks are not shown. With -f, cat
/// goes on with what is written to the file, until Ctrl-C. On a terminal it prints control characters as `\u{1b}`;
/// elsewhere the file as it is. snapshot writes a tar archive to standard output.
#[derive(Debug, clap::Args)]
pub struct FsCommand {
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

impl FsCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let target = |what: &str| format!("/v1/allocs/{}/fs/{what}?path={}", encode(&self.alloc), encode(&self.path));
        let (action, json) = (self.action, self.json);
        match action {
            Action::Cat | Action::Snapshot if json => {
                Err(CliError::new(CliExit::Usage, "--json is for ls and stat: cat and snapshot print files themselves"))
            }
            Action::Ls | Action::Stat | Action::Snapshot if self.follow => {
                Err(CliError::new(CliExit::Usage, "--follow is for cat"))
            }
            Action::Snapshot => snapshot(session, &self.alloc, &target("snapshot")),
            Action::Cat if self.follow => follow_file(session, &target("cat")),
            Action::Cat => cat(session, &target("cat")),
            Action::Ls | Action::Stat if json => {
                let what = if action == Action::Ls { "ls" } else { "stat" };
                let answer = session.connect()?.get_json(&target(what))?;
                session.json(&answer)?;
                Ok(CliExit::Done)
            }
            Action::Ls => ls(session, &target("ls")),
            Action::Stat => stat(session, &target("stat")),
        }
    }
}

fn modified(row: &FileRow) -> String {
    human::or_absent(row.modified_at.map(human::date_and_time))
}

fn ls(session: &mut CliSession<'_>, target: &str) -> CliResult {
    let listing: Listing = session.connect()?.get(target)?;
    let mut table = TextTable::new(&[
        ("MODE", Alignment::Left),
        ("SIZE", Alignment::Right),
        ("MODIFIED", Alignment::Left),
        ("NAME", Alignment::Left),
    ]);
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
    Ok(CliExit::Done)
}

fn stat(session: &mut CliSession<'_>, target: &str) -> CliResult {
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
    Ok(CliExit::Done)
}

/// Until Ctrl-C. A file that became shorter begins again.
fn follow_file(session: &mut CliSession<'_>, target: &str) -> CliResult {
    let mut agent = session.connect()?;
    let mut follow = AllocFollower::from_now(&mut agent)?;
    let (mut at, mut shown) = (0_u64, FileText::new());
    while !follow.is_interrupted() && !session.out.is_closed() {
        let requested = format!("{target}&offset={at}&limit={PIECE}");
        let answer = match follow.insist(|agent| agent.get_raw(&requested, &[])) {
            Err(_) if follow.is_interrupted() => break,
            answer => answer?,
        };
        let size = size_of(&answer)?;
        shown.write(session.out, &answer.body)?;
        session.out.flush()?;
        if size < at {
            shown.finish(session.out)?;
            session.remark("the file became shorter: from its beginning");
            at = 0;
            continue;
        }
        at = at.saturating_add(answer.body.len() as u64);
        if at >= size {
            std::thread::sleep(POLL_EVERY);
        }
    }
    Ok(CliExit::Done)
}

fn snapshot(session: &mut CliSession<'_>, alloc: &str, target: &str) -> CliResult {
    if output::is_terminal() {
        let error = CliError::new(CliExit::Usage, "snapshot writes a tar archive, which is nothing for a terminal");
        return Err(error.hint(format!("write it to a file: `allostat fs snapshot {} >alloc.tar`", printable(alloc))));
    }
    let mut agent = session.connect()?;
    let out = &mut session.out;
    agent.download((target, SNAPSHOT_TYPE), |bytes| {
        out.write_all(bytes)?;
        Ok(!out.is_closed())
    })?;
    session.out.flush()?;
    Ok(CliExit::Done)
}

fn size_of(answer: &HttpResponse) -> Result<u64, CliError> {
    let size = answer.header("x-allostat-size").and_then(|text| text.parse().ok());
    size.ok_or_else(|| CliError::failed("the answer has no size of the file"))
}

/// What was in it when it was asked for first: one that grows is not followed.
fn cat(session: &mut CliSession<'_>, target: &str) -> CliResult {
    let mut agent = session.connect()?;
    let (mut at, mut end, mut shown) = (0_u64, None, FileText::new());
    loop {
        let limit = end.map_or(PIECE, |end: u64| end.saturating_sub(at).min(PIECE));
        let answer = agent.get_raw(&format!("{target}&offset={at}&limit={limit}"), &[])?;
        let size = size_of(&answer)?;
        let end = *end.get_or_insert(size);
        shown.write(session.out, &answer.body)?;
        at = at.saturating_add(answer.body.len() as u64);
        if at >= end || answer.body.is_empty() || session.out.is_closed() {
            shown.finish(session.out)?;
            return Ok(CliExit::Done);
        }
    }
}

/// Prints a file in pieces: its bytes, or on a terminal a text that cannot steer it.
struct FileText {
    on_terminal: bool,
    /// The first bytes of a character whose other bytes are in the next piece.
    partial: Vec<u8>,
}

impl FileText {
    fn new() -> FileText {
        FileText { on_terminal: output::is_terminal(), partial: Vec::new() }
    }

    fn write(&mut self, out: &mut CommandOutput<'_>, piece: &[u8]) -> io::Result<()> {
        if !self.on_terminal {
            return out.write_all(piece);
        }
        self.partial.extend_from_slice(piece);
        let rest = self.partial.split_off(self.partial.len() - unfinished(&self.partial));
        let whole = std::mem::replace(&mut self.partial, rest);
        out.write_all(visible(&whole).as_bytes())
    }

    /// Nothing follows: bytes that are left belong to no character.
    fn finish(&mut self, out: &mut CommandOutput<'_>) -> io::Result<()> {
        out.write_all(visible(&std::mem::take(&mut self.partial)).as_bytes())
    }
}

/// The number of bytes at the end that begin a character without finishing it.
fn unfinished(bytes: &[u8]) -> usize {
    let mut tails = (1..=bytes.len().min(3)).map(|length| &bytes[bytes.len() - length..]);
    let is_started =
        |tail: &&[u8]| std::str::from_utf8(tail).is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none());
    tails.find(is_started).map_or(0, <[u8]>::len)
}

/// Control and bidirectional characters as `\u{1b}`, bytes that are no UTF-8 as `\x9b`; ends of lines and tabs stay.
fn visible(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(&terminal_lines(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::text::steers_a_terminal;

    fn printed(on_terminal: bool, pieces: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        {
            let (mut out, mut shown) = (CommandOutput::new(&mut bytes), FileText { on_terminal, partial: Vec::new() });
            pieces.iter().for_each(|piece| shown.write(&mut out, piece).unwrap());
            shown.finish(&mut out).unwrap();
        }
        bytes
    }

    #[test]
    fn file_is_printed_as_it_is_and_made_visible_on_a_terminal() {
        let file = b"a\x1b[2J\tb\r\n\x9b31m\xc2\x9b\xe2\x80\xae \xc3\xbc\xe2\x82";
        assert_eq!(printed(false, &[file]), file);
        let shown = "a\\u{1b}[2J\tb\\r\n\\x9b31m\\u{9b}\\u{202e} \u{fc}\\xe2\\x82";
        assert_eq!(String::from_utf8(printed(true, &[file])).unwrap(), shown);
    }

    proptest! {
        #[test]
        fn pieces_print_the_same_as_the_whole_file_and_steer_no_terminal(
            text in ".{0,20}", odd in prop::collection::vec(any::<u8>(), 0..20), at in any::<prop::sample::Index>()
        ) {
            let file = [text.as_bytes(), &odd, text.as_bytes()].concat();
            let (head, tail) = file.split_at(at.index(file.len() + 1));
            let whole = printed(true, &[&file]);
            prop_assert_eq!(&printed(true, &[head, tail]), &whole);
            let whole = String::from_utf8(whole).unwrap();
            prop_assert!(!whole.chars().any(|c| steers_a_terminal(c) && c != '\n' && c != '\t'), "{:?}", whole);
        }
    }
}
