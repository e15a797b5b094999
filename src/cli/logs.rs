//! `allostat logs`

use std::time::Duration;

use super::connect::Agent;
use super::exit::{CliError, CliResult, Exit};
use super::follow::Follow;
use super::output::printable;
use super::shape::AllocRow;
use super::{Session, human};
use crate::api::encode;
use crate::host::http::Response;

/// How soon it is looked again for what was written.
const LOOK: Duration = Duration::from_millis(100);

/// Show what a task wrote
///
/// With -f also what it writes from then on, over its restarts and those of the agent, until it is dead or Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct Logs {
    /// An ID or its prefix, a job, the name of an alloc (web.app[0]) or of an observed workload
    #[arg(value_parser = super::alloc_id)]
    alloc: String,
    /// One of its tasks; default: the only one
    task: Option<String>,
    /// Standard error instead of standard output
    #[arg(long)]
    stderr: bool,
    /// Only the last lines
    #[arg(short = 'n', long, value_name = "LINES")]
    tail: Option<u64>,
    /// Go on with what is written, as it is written
    #[arg(short, long)]
    follow: bool,
}

impl Logs {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let mut agent = session.connect()?;
        let alloc = format!("/v1/allocs/{}", encode(&self.alloc));
        let task = match &self.task {
            Some(task) => task.clone(),
            None => only_task(&agent.get(&alloc)?)?,
        };
        let stream = if self.stderr { "stderr" } else { "stdout" };
        let base = format!("{alloc}/logs/{}?stream={stream}", encode(&task));
        let from = match self.tail {
            Some(lines) => format!("tail={lines}"),
            None => "offset=0".to_owned(),
        };
        let mut log = Log { base, from, place: None };
        if self.follow {
            return follow(session, &mut agent, &mut log, &alloc, &task);
        }
        // What was written meanwhile is for the next time: a busy task would keep us for ever.
        let mut left = None;
        loop {
            let piece = log.next(|target| agent.get_raw(target, &[]))?;
            session.out.write_all(&piece.bytes)?;
            let rest = left.map_or(piece.rest, |left: u64| left.saturating_sub(piece.bytes.len() as u64));
            if rest == 0 || piece.bytes.is_empty() || session.out.is_gone() {
                return Ok(Exit::Done);
            }
            left = Some(rest);
        }
    }
}

/// Errors: there are several, of which it names each.
fn only_task(alloc: &AllocRow) -> Result<String, CliError> {
    let mut names = alloc.tasks.keys();
    match (names.next(), names.next()) {
        // Of an alloc of others any: the answer says who has its logs.
        (Some(task), second) if second.is_none() || !alloc.is_ours() => Ok(task.clone()),
        _ => {
            let names: Vec<String> = alloc.tasks.keys().map(|name| printable(name)).collect();
            let (short, count) = (printable(alloc.short()), human::count(names.len(), "task"));
            let error = CliError::new(Exit::Usage, format!("alloc {short} has {count}: {}", names.join(", ")));
            Err(error.hint(format!("say which one: `allostat logs {short} TASK`")))
        }
    }
}

/// Until the task is dead and everything that it wrote is told.
fn follow(session: &mut Session<'_>, agent: &mut Agent, log: &mut Log, alloc: &str, task: &str) -> CliResult {
    let mut follow = Follow::from_now(agent)?;
    let mut is_dead = false;
    while !follow.is_interrupted() && !session.out.is_gone() {
        let piece = match log.next(|target| follow.insist(|agent| agent.get_raw(target, &[]))) {
            Err(_) if follow.is_interrupted() => break,
            piece => piece?,
        };
        session.out.write_all(&piece.bytes)?;
        session.out.flush()?;
        if piece.rest > 0 {
            continue;
        }
        if is_dead && piece.bytes.is_empty() {
            break;
        }
        // Asked for before the last look at the log: what a task wrote is there when it is dead.
        let now: AllocRow = match follow.insist(|agent| agent.get(alloc)) {
            Err(_) if follow.is_interrupted() => break,
            now => now?,
        };
        is_dead = now.tasks.get(task).is_none_or(|task| task.state == "dead");
        if !is_dead {
            std::thread::sleep(LOOK);
        }
    }
    Ok(Exit::Done)
}

/// A log, and how far it was read.
struct Log {
    base: String,
    /// Where the next piece begins, as a query.
    from: String,
    place: Option<(u64, u64)>,
}

struct LogPiece {
    bytes: Vec<u8>,
    /// How much there is behind it.
    rest: u64,
}

impl Log {
    fn next(&mut self, ask: impl FnOnce(&str) -> Result<Response, CliError>) -> Result<LogPiece, CliError> {
        let answer = ask(&format!("{}&{}", self.base, self.from))?;
        let header = |name: &str| answer.header(name).and_then(|v| v.parse::<u64>().ok());
        let place = answer.header("x-allostat-place").and_then(|text| {
            let (file, bytes) = text.split_once('.')?;
            Some((file.parse::<u64>().ok()?, bytes.parse::<u64>().ok()?))
        });
        let (Some(next), Some(size), Some(place)) =
            (header("x-allostat-next-offset"), header("x-allostat-size"), place)
        else {
            let error = CliError::failed("the answer does not say where in the log it stands");
            return Err(error.hint("is the agent of another version?"));
        };
        if !answer.body.is_empty() && self.place.is_some_and(|before| place <= before) {
            return Err(CliError::failed("the answer does not go on in the log"));
        }
        self.place = Some(place);
        self.from = format!("after={}.{}", place.0, place.1);
        Ok(LogPiece { bytes: answer.body.to_vec(), rest: size.saturating_sub(next) })
    }
}
