//! `POST /v1/allocs/{id}/exec/{task}`: runs a command in a task, over a connection that stops being HTTP.
//!
//! The body is [`ExecBody`]; the request has `Connection: Upgrade` and `Upgrade: allostat-exec/1`. The answer is 101,
//! and from then on both sides send [frames](frame). A refusal is an ordinary answer. A browser can send no such
//! request: its upgrades are GET.

mod frame;
mod session;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::access::Access;
use super::contract::{BodyContract, EndpointAnswer, QueryRule};
use super::error::{ApiError, Code};
use super::http::{AfterUpgrade, ApiRequest, Peer, Reply};
use super::{ApiContext, Method, Route, allocs};
use crate::host::http::tunnel::Tunnel;
use crate::host::pty::WindowSize;
use crate::model::exit_text;
use crate::model::observed::RuntimeAction;
use crate::runner::ExecNote;
use crate::runner::drivers::{BoxFuture, ExecRequest, ExecSession, TerminalRequest};
use crate::telemetry::execs::ExecOutcome;
use crate::telemetry::{Metrics, lock};

pub use frame::{BadFrame, EXEC_PROTOCOL, ExecFrame, FrameDecoder, LONGEST_PAYLOAD, WINDOW};
use session::SessionEnd;

pub(super) static EXEC: Route = Route {
    method: Method::Post,
    path: "/v1/allocs/{id}/exec/{task}",
    access: Access::SocketOnly("commands are run in tasks"),
    about: "run a command in the task; the body is JSON: command, terminal; upgrades to allostat-exec/1",
    query: QueryRule::NONE,
    body: Some(BodyContract::json::<ExecBody>("The command")),
    answers: &[EndpointAnswer {
        status: 101,
        content: BodyContract::other(&[], "The connection carries frames of allostat-exec/1 from here on"),
    }],
    handler: |context, request| Box::pin(exec(context, request)),
};

/// The command, and its terminal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecBody {
    /// A path, or a name that is searched in the task's `PATH`; its arguments.
    pub command: Vec<String>,
    /// Absent: three pipes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalBody>,
}

/// The user's terminal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalBody {
    pub columns: u16,
    pub rows: u16,
    /// `TERM`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<String>,
}

/// Sessions at once, of this agent and of one user or host.
const AT_ONCE: usize = 32;
const OF_ONE: usize = 8;
/// The kernel's limit on one argument, and on how many of them make sense; all together 128 KiB.
const MOST_ARGUMENTS: usize = 4096;
const LONGEST_COMMAND: usize = 128 << 10;
const LONGEST_TERM: usize = 64;

/// The sessions that there are.
pub struct ExecSessions {
    is_disabled: bool,
    of: Arc<Mutex<HashMap<Peer, usize>>>,
}

impl ExecSessions {
    pub fn new(is_disabled: bool) -> ExecSessions {
        ExecSessions { is_disabled, of: Arc::default() }
    }

    /// Errors: they are switched off, or there are as many as there may be.
    fn seat(&self, peer: Peer) -> Result<Seat, ApiError> {
        if self.is_disabled {
            let why = "commands in tasks are switched off on this agent: agent.disable_remote_exec";
            return Err(ApiError::new(Code::Forbidden, why));
        }
        let mut of = lock(&self.of);
        let (all, own) = (of.values().sum::<usize>(), of.get(&peer).copied().unwrap_or(0));
        if all >= AT_ONCE || own >= OF_ONE {
            let why = format!(
                "{all} exec sessions are open, {own} of them yours; at most {AT_ONCE}, and {OF_ONE} of one user"
            );
            return Err(ApiError::new(Code::TooManyRequests, why));
        }
        *of.entry(peer).or_default() += 1;
        Ok(Seat { of: Arc::clone(&self.of), peer })
    }
}

/// Of one session, for as long as it lasts.
struct Seat {
    of: Arc<Mutex<HashMap<Peer, usize>>>,
    peer: Peer,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut of = lock(&self.of);
        if let Some(own) = of.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                of.remove(&self.peer);
            }
        }
    }
}

/// What follows the 101.
struct Upgrade {
    session: ExecSession,
    note: ExecNote,
    seat: Seat,
    metrics: Arc<Metrics>,
    stops: tokio::sync::watch::Receiver<bool>,
}

async fn exec(context: &Arc<ApiContext>, request: &ApiRequest) -> Result<Reply, ApiError> {
    let body: ExecBody = serde_json::from_slice(&request.body)
        .map_err(|e| ApiError::new(Code::BadRequest, format!("the body is not what exec takes: {e}")).on("body"))?;
    let parsed = checked(body)?;
    let speaks =
        request.list_header("upgrade").is_some_and(|all| all.split(',').any(|one| one.trim() == EXEC_PROTOCOL));
    if !speaks || !request.is_upgradable {
        let why = format!("exec needs a connection that upgrades: Upgrade: {EXEC_PROTOCOL}");
        return Err(ApiError::new(Code::BadRequest, why).on("upgrade"));
    }
    let alloc = allocs::find_managed(&context.snapshot(), request.param(0), RuntimeAction::Exec)?;
    let task = allocs::task_of(&alloc, request.param(1))?;
    let seat = context.exec.seat(request.peer)?;
    let metrics = Arc::clone(&context.metrics);
    let (session, note) = match context.runner.exec(&alloc.identity.id, task.as_str(), parsed).await {
        Ok(started) => started,
        Err(error) => {
            metrics.execs.ended(ExecOutcome::Failed);
            return Err(error.into());
        }
    };
    let upgrade = Upgrade { session, note, seat, metrics, stops: context.runner.events().closes() };
    Ok(Reply::upgrade(EXEC_PROTOCOL, Box::new(upgrade)))
}

/// Errors: what no program can be started with.
fn checked(body: ExecBody) -> Result<ExecRequest, ApiError> {
    let wrong = |field: &str, why: &str| Err(ApiError::new(Code::BadRequest, why).on(field));
    let command = body.command;
    if command.first().is_none_or(String::is_empty) {
        return wrong("command", "command is a list: a program and its arguments");
    }
    let bytes: usize = command.iter().map(|word| word.len() + 1).sum();
    if command.len() > MOST_ARGUMENTS || bytes > LONGEST_COMMAND {
        return wrong("command", "a command has at most 4096 words and 128 KiB");
    }
    if command.iter().any(|word| word.contains('\0')) {
        return wrong("command", "a word of the command has a zero byte in it");
    }
    let terminal = match body.terminal {
        None => None,
        Some(TerminalBody { columns, rows, term }) => {
            let is_name = |term: &String| {
                (1..=LONGEST_TERM).contains(&term.len())
                    && term.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._+".contains(&b))
            };
            if !term.as_ref().is_none_or(is_name) {
                return wrong("terminal.term", "term is the name of a terminal, such as xterm-256color");
            }
            Some(TerminalRequest { size: WindowSize { columns, rows }, kind: term })
        }
    };
    Ok(ExecRequest { command, terminal })
}

impl AfterUpgrade for Upgrade {
    fn run(self: Box<Self>, connection: Option<Box<dyn Tunnel>>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Upgrade { session, note, seat, metrics, stops } = *self;
            let end = match connection {
                Some(io) => session::run(io, session, stops).await,
                None => SessionEnd::ClientDisconnected,
            };
            drop(seat);
            let (how, code, outcome) = match &end {
                SessionEnd::Exited(code) => (exit_text::code_text(*code), Some(*code), ExecOutcome::Completed),
                SessionEnd::Unknown(why) => (exit_text::lost(why), None, ExecOutcome::Unknown),
                SessionEnd::ClientDisconnected => {
                    ("killed: the client disconnected".to_owned(), None, ExecOutcome::Disconnected)
                }
                SessionEnd::AgentStops => ("killed: the agent stops".to_owned(), None, ExecOutcome::Disconnected),
                SessionEnd::Misbehaved(why) => {
                    (format!("killed: the client sent {why}"), None, ExecOutcome::Disconnected)
                }
            };
            metrics.execs.ended(outcome);
            tracing::info!(alloc_id = %note.alloc_id(), task = %note.task(), how, "exec session ended");
            note.ended(&how, code).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise (Commands in tasks): Exec sessions are bounded per user and agent, can be switched off, and need an
    /// upgrade
    #[test]
    fn sessions_of_one_user_and_of_all_are_bounded_and_places_come_back() {
        let sessions = ExecSessions::new(false);
        let mut slots: Vec<Seat> = (0..OF_ONE).map(|_| sessions.seat(Peer::User(1)).unwrap()).collect();
        assert_eq!(sessions.seat(Peer::User(1)).err().unwrap().code, Code::TooManyRequests);
        for user in 2.. {
            match sessions.seat(Peer::User(user)) {
                Ok(seat) => slots.push(seat),
                Err(_) => break,
            }
        }
        assert_eq!(slots.len(), AT_ONCE);
        slots.clear();
        sessions.seat(Peer::User(1)).unwrap();
        assert!(lock(&sessions.of).is_empty(), "nothing is left of users that are gone");
        assert_eq!(ExecSessions::new(true).seat(Peer::User(0)).err().unwrap().code, Code::Forbidden);
    }

    #[test]
    fn commands_that_no_kernel_starts_are_refused() {
        let body = |command: &[&str], term: Option<&str>| ExecBody {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            terminal: term.map(|term| TerminalBody { columns: 80, rows: 24, term: Some(term.to_owned()) }),
        };
        assert!(checked(body(&["sh", "-c", ""], Some("xterm-256color"))).is_ok());
        let long = "x".repeat(LONGEST_COMMAND);
        for wrong in [
            body(&[], None),
            body(&[""], None),
            body(&["a\0b"], None),
            body(&["echo", &long], None),
            body(&["sh"], Some("a\nLD_PRELOAD=x")),
            body(&["sh"], Some("")),
        ] {
            assert_eq!(checked(wrong).unwrap_err().code, Code::BadRequest);
        }
    }
}
