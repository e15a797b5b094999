//! `allostat logs`

mod reader;

use std::time::Duration;

use self::reader::LogReader;
use super::api_types::{AllocList, AllocRow};
use super::connect::AgentConnection;
use super::exit::{CliError, CliExit, CliResult};
use super::follow::AllocFollower;
use super::output::{self, Style, printable};
use super::{CliSession, human, times};
use crate::api::encode;
use crate::host::http::HttpResponse;
use crate::model::units::Timestamp;

/// How soon it is looked again for what was written.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// A line without an end is printed in parts of so much, where lines have a prefix.
const LONGEST_LINE: usize = 64 << 10;

/// Show the output of tasks
///
/// Examples: `allostat logs web`, `allostat logs -f --stderr 5f0d web`, `allostat logs --since 10m web`
///
/// Both streams are shown in the order in which they were written, each on its own: standard output on standard
/// output, standard error on standard error. Of several allocs each line begins with the name of its alloc and task.
/// With -f it follows new output across restarts of the task and the agent, until the tasks are dead or Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct LogsCommand {
    /// An ID or its prefix, a job, the name of an alloc (web.app[0]) or of an observed workload
    #[arg(value_parser = super::alloc_id)]
    alloc: String,
    /// Task of the alloc; default: the only one, and of several allocs all
    task: Option<String>,
    /// Show standard error alone
    #[arg(long)]
    stderr: bool,
    /// Show standard output alone
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,
    /// Show only the last lines of each stream
    #[arg(short = 'n', long, value_name = "LINES")]
    tail: Option<u64>,
    /// Show only what was written since then: 10m, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = times::since)]
    since: Option<Timestamp>,
    /// Follow new output
    #[arg(short, long)]
    follow: bool,
}

/// The output of one task.
struct LogSource {
    /// Of its alloc; of one that was named, the name.
    alloc: String,
    task: String,
    /// Before each line; `None`: it is the only one, and its bytes are passed on as they are.
    prefix: Option<String>,
    reader: LogReader,
    /// Lines without an end.
    open: [Vec<u8>; 2],
    is_over: bool,
}

impl LogsCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let mut agent = session.connect()?;
        let mut sources = self.sources(&mut agent)?;
        if self.follow {
            return self.follow(session, &mut agent, &mut sources);
        }
        let mut is_empty = true;
        for source in &mut sources {
            // What was written meanwhile is for the next time: a busy task would keep us for ever.
            let mut left = None;
            loop {
                let (length, rest) = self.next(source, session, |target| agent.get_raw(target, &[]))?;
                is_empty &= length == 0;
                let rest = left.map_or(rest, |left: u64| left.saturating_sub(length));
                if rest == 0 || length == 0 || session.out.is_closed() {
                    break;
                }
                left = Some(rest);
            }
            source.finish(session)?;
        }
        session.out.flush()?;
        // Advice is for a person at a terminal.
        if is_empty && output::screen().is_some() {
            let name = printable(&self.alloc);
            session.remark(&format!("no output of that; `allostat status {name}` shows the state of its tasks"));
        }
        if let Some(unknown) = sources.iter().find(|source| source.reader.is_unordered()) {
            let task = printable(&unknown.task);
            session.remark(&format!(
                "the order of the two streams of task {task} was not recorded: standard output came first"
            ));
        }
        Ok(CliExit::Done)
    }

    /// Errors: none; or one alloc of several tasks, and none is named.
    fn sources(&self, agent: &mut AgentConnection) -> Result<Vec<LogSource>, CliError> {
        let list: AllocList = agent.get("/v1/allocs")?;
        let is_id = list.allocs.iter().any(|alloc| alloc.id == self.alloc);
        let is_selected =
            |alloc: &&AllocRow| !is_id && alloc.is_managed() && alloc.is_unfinished() && alloc.is_called(&self.alloc);
        let several: Vec<&AllocRow> = list.allocs.iter().filter(is_selected).collect();
        if several.len() < 2 {
            let task = match &self.task {
                Some(task) => task.clone(),
                None => only_task(&agent.get(&format!("/v1/allocs/{}", encode(&self.alloc)))?, "logs", "")?,
            };
            return Ok(vec![self.source(&self.alloc, task, None)]);
        }
        let mut sources = Vec::new();
        for alloc in several {
            for task in alloc.tasks.keys().filter(|task| self.task.as_ref().is_none_or(|requested| requested == *task))
            {
                let prefix = format!("{}/{} | ", printable(&alloc.name), printable(task));
                sources.push(self.source(&alloc.id, task.clone(), Some(prefix)));
            }
        }
        match &self.task {
            Some(task) if sources.is_empty() => {
                Err(CliError::new(CliExit::NotFound, format!("no alloc of {:?} has a task {task:?}", self.alloc)))
            }
            _ => {
                sources.sort_by(|a, b| a.prefix.cmp(&b.prefix));
                Ok(sources)
            }
        }
    }

    fn source(&self, alloc: &str, task: String, prefix: Option<String>) -> LogSource {
        let base = format!("/v1/allocs/{}/logs/{}", encode(alloc), encode(&task));
        let tail = self.tail.map(|lines| format!("tail={lines}"));
        let since = self.since.map(|since| format!("since={}", since.0));
        let from: Vec<String> = tail.into_iter().chain(since).collect();
        let from = (!from.is_empty()).then(|| from.join("&"));
        // Of one stream the agent counts lines; times are of both.
        let stream = match (self.stdout, self.stderr) {
            (true, _) if self.since.is_none() => Some("stdout"),
            (_, true) if self.since.is_none() => Some("stderr"),
            _ => None,
        };
        let reader = LogReader::new(base, stream, from);
        LogSource { alloc: alloc.to_owned(), task, prefix, reader, open: [Vec::new(), Vec::new()], is_over: false }
    }

    /// Prints the next piece: how much it was, and how much is behind it.
    fn next(
        &self,
        source: &mut LogSource,
        session: &mut CliSession<'_>,
        request: impl FnOnce(&str) -> Result<HttpResponse, CliError>,
    ) -> Result<(u64, u64), CliError> {
        let piece = source.reader.next(request)?;
        let mut length = 0;
        for (stream, bytes) in piece.runs {
            length += bytes.len() as u64;
            if (stream == 0 && !self.stderr) || (stream == 1 && !self.stdout) {
                // One alone is the output of the command.
                source.print(session, if self.stderr { 0 } else { stream }, &bytes)?;
            }
        }
        Ok((length, piece.left))
    }

    /// Until all tasks are dead and everything that they wrote is shown.
    fn follow(
        &self,
        session: &mut CliSession<'_>,
        agent: &mut AgentConnection,
        sources: &mut [LogSource],
    ) -> CliResult {
        let mut follow = AllocFollower::from_now(agent)?;
        let one = match &*sources {
            [source] => Some((format!("/v1/allocs/{}", encode(&source.alloc)), source.task.clone())),
            _ => None,
        };
        while !follow.is_interrupted() && !session.out.is_closed() {
            let mut is_busy = false;
            for source in sources.iter_mut().filter(|source| !source.is_over) {
                let next = self.next(source, session, |target| follow.insist(|agent| agent.get_raw(target, &[])));
                let (length, left) = match next {
                    Err(_) if follow.is_interrupted() => return Ok(CliExit::Done),
                    next => next?,
                };
                source.is_over = source.reader.is_last && length == 0 && left == 0;
                is_busy |= left > 0;
            }
            session.out.flush()?;
            if sources.iter().all(|source| source.is_over) {
                break;
            }
            if is_busy {
                continue;
            }
            // Asked for before the last look at the log: what a task wrote is there when it is dead.
            let now = follow.insist(|agent| match &one {
                Some((target, _)) => agent.get::<AllocRow>(target).map(|alloc| vec![alloc]),
                None => agent.get::<AllocList>("/v1/allocs").map(|list| list.allocs),
            });
            let now = match now {
                Err(_) if follow.is_interrupted() => break,
                now => now?,
            };
            for source in sources.iter_mut() {
                let mut of = now.iter().filter(|alloc| one.is_some() || alloc.id == source.alloc);
                source.reader.is_last =
                    of.next().is_none_or(|alloc| alloc.tasks.get(&source.task).is_none_or(|task| task.state == "dead"));
            }
            if sources.iter().any(|source| !source.is_over && !source.reader.is_last) {
                std::thread::sleep(POLL_EVERY);
            }
        }
        for source in sources {
            source.finish(session)?;
        }
        session.out.flush()?;
        Ok(CliExit::Done)
    }
}

impl LogSource {
    fn print(&mut self, session: &mut CliSession<'_>, stream: usize, bytes: &[u8]) -> Result<(), CliError> {
        let Some(prefix) = &self.prefix else { return write(session, stream, bytes) };
        let prefix = session.paint.paint(Style::Cyan, prefix);
        let open = &mut self.open[stream];
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            open.extend_from_slice(part);
            if open.ends_with(b"\n") || open.len() >= LONGEST_LINE {
                let end: &[u8] = if open.ends_with(b"\n") { b"" } else { b"\n" };
                write(session, stream, &[prefix.as_bytes(), open, end].concat())?;
                open.clear();
            }
        }
        Ok(())
    }

    /// Lines that never ended.
    fn finish(&mut self, session: &mut CliSession<'_>) -> Result<(), CliError> {
        for stream in [0, 1] {
            if !self.open[stream].is_empty() {
                self.print(session, stream, b"\n")?;
            }
        }
        Ok(())
    }
}

fn write(session: &mut CliSession<'_>, stream: usize, bytes: &[u8]) -> Result<(), CliError> {
    if stream == 0 {
        return Ok(session.out.write_all(bytes)?);
    }
    // On one terminal they stand in their order.
    session.out.flush()?;
    output::errors(bytes);
    Ok(())
}

/// `command`: what the user runs; `rest`: what stands behind the task. Errors: there are several; it names each.
pub(super) fn only_task(alloc: &AllocRow, command: &str, rest: &str) -> Result<String, CliError> {
    let mut names = alloc.tasks.keys();
    match (names.next(), names.next()) {
        // Of an alloc of others any: the answer says who has its logs.
        (Some(task), second) if second.is_none() || !alloc.is_managed() => Ok(task.clone()),
        _ => {
            let names: Vec<String> = alloc.tasks.keys().map(|name| printable(name)).collect();
            let (short, count) = (printable(alloc.short()), human::count(names.len(), "task"));
            let error = CliError::new(CliExit::Usage, format!("alloc {short} has {count}: {}", names.join(", ")));
            Err(error.hint(format!("name one: `allostat {command} {short} TASK{rest}`")))
        }
    }
}
