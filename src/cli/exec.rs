//! `allostat exec`

mod escape;
mod raw;

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;

use self::escape::Escape;
use self::raw::RawTerminal;
use super::exit::{CliError, CliExit, CliResult};
use super::logs::only_task;
use super::{CliSession, output};
use crate::api::{EXEC_PROTOCOL, ExecBody, ExecFrame, FrameDecoder, LONGEST_PAYLOAD, TerminalBody, WINDOW, encode};
use crate::host::pty::WindowSize;
use crate::model::task::TaskState;
use crate::telemetry::lock;

/// Run a command in a running task
///
/// Examples: `allostat exec web -- ls /local`, `allostat exec 5f0d server -- sh`, `allostat exec db -- psql < dump.sql`
///
/// It runs as the user of the task, in its cgroup, directory, environment and namespaces, with the rights of the task
/// and no others. The exit code is that of the command. Everything it started is killed when it ends, when the task
/// ends, or when this command ends. With a terminal, ~. at the beginning of a line disconnects.
#[derive(Debug, clap::Args)]
pub struct ExecCommand {
    /// An ID or its prefix, a job, or the name of an alloc (web.app[0])
    #[arg(value_parser = super::alloc_id)]
    alloc: String,
    /// Task of the alloc; default: the only one
    task: Option<String>,
    /// Program and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Give it a terminal [default: if standard input and output are terminals]
    #[arg(short, long, overrides_with = "no_tty")]
    tty: bool,
    /// Give it no terminal
    #[arg(short = 'T', long)]
    no_tty: bool,
    /// Accepted for the habit of `-it`: standard input is always connected
    #[arg(short, long, hide = true)]
    interactive: bool,
}

/// Of a terminal that does not say its own.
const USUAL: WindowSize = WindowSize { columns: 80, rows: 24 };

impl ExecCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let mut agent = session.connect_to_act()?;
        let path = format!("/v1/allocs/{}", encode(&self.alloc));
        let task = match &self.task {
            Some(task) => task.clone(),
            None => only_task(&agent.get(&path)?, "exec", " -- COMMAND")?,
        };
        let both = io::stdin().is_terminal() && output::is_terminal();
        let has_terminal = self.tty || (both && !self.no_tty);
        let term = || std::env::var("TERM").ok().filter(|term| !term.is_empty());
        let terminal = has_terminal.then(|| {
            let WindowSize { columns, rows } = raw::size().unwrap_or(USUAL);
            TerminalBody { columns, rows, term: term() }
        });
        let body = ExecBody { command: self.command, terminal };
        let body = serde_json::to_vec(&body).map_err(|e| CliError::failed(e.to_string()))?;
        let stream = agent.tunnel(EXEC_PROTOCOL, &format!("{path}/exec/{}", encode(&task)), body.into())?;
        let Some(stream) = stream else {
            let message = format!("the agent opens no session in task {task}");
            return Err(CliError::failed(message).hint("is it of another version?"));
        };
        let ended = attached(session, stream, has_terminal);
        // A session that breaks off without a code is the end of its task, or of the agent.
        match ended {
            Err(error) if error.exit == CliExit::NoAgent => {
                Err(match session.connect().and_then(|mut agent| agent.get::<super::api_types::AllocRow>(&path)) {
                    Ok(now) if now.tasks.get(&task).is_none_or(|task| task.state != TaskState::Running.as_str()) => {
                        CliError::failed(format!("task {task} ended, and with it the command"))
                    }
                    _ => error,
                })
            }
            ended => ended,
        }
    }
}

/// Until the command ends.
fn attached(session: &mut CliSession<'_>, stream: UnixStream, has_terminal: bool) -> CliResult {
    let failed = |e: io::Error| CliError::failed(format!("cannot set up the session: {e}"));
    let line = Arc::new(ExecConnection::new(stream.try_clone().map_err(failed)?));
    // Dropped, the terminal is as before: first of all, so that no message is printed before it.
    let raw =
        if has_terminal && io::stdin().is_terminal() { Some(RawTerminal::enter().map_err(failed)?) } else { None };
    let resized = Arc::clone(&line);
    let follow = move |size| {
        if has_terminal {
            resized.send(&ExecFrame::Size(size));
        }
    };
    raw::follow_signals(follow).map_err(failed)?;
    let typing = Arc::clone(&line);
    let escapes = raw.is_some();
    std::thread::Builder::new().name("stdin".into()).spawn(move || typing.feed(escapes)).map_err(failed)?;
    let result = line.print(session, stream);
    drop(raw);
    result
}

/// What goes to the agent: from standard input, the terminal and what was printed.
struct ExecConnection {
    to: Mutex<UnixStream>,
    /// How much may be sent in addition.
    credit: Mutex<usize>,
    granted: Condvar,
    /// The user typed the escape.
    is_left: AtomicBool,
}

impl ExecConnection {
    fn new(to: UnixStream) -> ExecConnection {
        let is_left = AtomicBool::new(false);
        ExecConnection { to: Mutex::new(to), credit: Mutex::new(WINDOW), granted: Condvar::new(), is_left }
    }

    /// `false`: the other side is gone, which the reader notices as well.
    fn send(&self, frame: &ExecFrame) -> bool {
        lock(&self.to).write_all(&frame.encode()).is_ok()
    }

    /// Standard input, until its end or that of the session.
    fn feed(&self, escapes: bool) {
        let (mut buffer, mut escape) = (vec![0; LONGEST_PAYLOAD], Escape::default());
        loop {
            let most = {
                let mut credit = lock(&self.credit);
                while *credit < 2 {
                    credit = self.granted.wait(credit).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
                // A tilde that was held back comes with what follows it.
                (*credit - 1).min(LONGEST_PAYLOAD - 1)
            };
            let read = match io::stdin().lock().read(&mut buffer[..most]) {
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            if read == 0 {
                self.send(&ExecFrame::EndOfInput);
                return;
            }
            let bytes = if escapes { escape.pass(&buffer[..read]) } else { Some(buffer[..read].to_vec()) };
            let Some(bytes) = bytes else {
                self.is_left.store(true, Ordering::SeqCst);
                let _ = lock(&self.to).shutdown(std::net::Shutdown::Both);
                return;
            };
            *lock(&self.credit) -= bytes.len();
            if !bytes.is_empty() && !self.send(&ExecFrame::Input(Bytes::from(bytes))) {
                return;
            }
        }
    }

    /// What the command writes, until it ends.
    fn print(&self, session: &mut CliSession<'_>, mut from: UnixStream) -> CliResult {
        let (mut decoder, mut piece) = (FrameDecoder::default(), vec![0; LONGEST_PAYLOAD]);
        loop {
            while let Some(frame) = decoder.frame().map_err(|e| CliError::failed(e.to_string()))? {
                match frame {
                    ExecFrame::Output(bytes) => {
                        session.out.write_all(&bytes)?;
                        session.out.flush()?;
                        if session.out.is_closed() {
                            return Ok(CliExit::Done);
                        }
                        self.grant(bytes.len());
                    }
                    ExecFrame::Errors(bytes) => {
                        output::errors(&bytes);
                        self.grant(bytes.len());
                    }
                    ExecFrame::Credit(bytes) => {
                        *lock(&self.credit) += usize::try_from(bytes).unwrap_or(0).min(WINDOW);
                        self.granted.notify_all();
                    }
                    ExecFrame::Exit(0) => return Ok(CliExit::Done),
                    ExecFrame::Exit(code) => return Ok(CliExit::Task(code)),
                    ExecFrame::Failed(why) => {
                        return Err(CliError::failed(format!("how the command ended is not known: {why}")));
                    }
                    ExecFrame::Input(_) | ExecFrame::EndOfInput | ExecFrame::Size(_) => {
                        return Err(CliError::failed("the agent sent a frame that clients send"));
                    }
                }
            }
            match from.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => decoder.buffer().extend_from_slice(&piece[..read]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if self.is_left.load(Ordering::SeqCst) {
            return Err(CliError::failed("disconnected; the command was killed"));
        }
        Err(CliError::new(CliExit::NoAgent, "the session broke off; the command was killed"))
    }

    fn grant(&self, bytes: usize) {
        if bytes > 0 {
            self.send(&ExecFrame::Credit(u32::try_from(bytes).unwrap_or(u32::MAX)));
        }
    }
}
