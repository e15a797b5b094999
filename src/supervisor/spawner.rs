//! Forks supervisors for the agent, which has thousands of descriptors and pages that a fork of its own would copy for
//! each start; and a supervisor that is forked and not executed is at once where a loader would have brought it.
//!
//! ```text
//! agent                                  spawner (one, with nothing in it)      supervisor
//! run directory, record, pipe, errors -> fork ------------------------------->  has them, and nothing else
//! who it is, and its pidfd <-----------  reaps it when it ends
//! the end of the agent ---------------->  leaves                                stays
//! ```
//! One that is gone, or says nothing, is replaced at the next start.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{PidfdFlags, WaitOptions, pidfd_open};

use super::{FOR_THE_AGENT, run};
use crate::host::process::{self, Child, Process};
use crate::kernel::proc::pid_stat;
use crate::model::id::ProcessId;
use crate::telemetry::lock;

/// The word for it on the command line.
pub const SPAWN: &str = "spawn";
/// A fork takes a fraction of a millisecond: who has not answered for so long never will.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// The kernel's PATH_MAX.
const PATH_MAX: usize = 4096;
const NO_SOCKET: &str = "descriptor 0 is no agent's socket";
/// So much of the name of a run directory is shown by `ps`: the room for it is an argument of the spawner.
const SHOWN: usize = 512;

/// The agent's end. Concurrency: any thread; one start at a time, which takes the time of a fork. The spawner is
/// started at the first.
#[derive(Debug)]
pub struct Spawner {
    /// What is executed as `<program> spawn`.
    program: PathBuf,
    /// The directory of the cgroup in which it is born, and those that it forks.
    cgroup: Option<PathBuf>,
    line: Mutex<Option<SpawnerProcess>>,
}

#[derive(Debug)]
struct SpawnerProcess {
    socket: OwnedFd,
    child: Child,
}

impl Drop for SpawnerProcess {
    fn drop(&mut self) {
        // A process that SIGKILL does not end cannot be ended; then there is nothing to wait for.
        if self.child.kill().is_ok() {
            let _ = self.child.wait();
        }
    }
}

impl Spawner {
    pub fn new(program: PathBuf, cgroup: Option<PathBuf>) -> Spawner {
        Spawner { program, cgroup, line: Mutex::default() }
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A supervisor of that directory, with the locked record, the pipe that it closes when the record has the answer,
    /// and a file for what it says. Blocks for less than a millisecond.
    ///
    /// Errors: nothing was forked; after a spawner that has not answered it is not known.
    pub fn spawn(&self, run_dir: &Path, streams: &[OwnedFd; 3]) -> io::Result<Process> {
        let mut retained = lock(&self.line);
        let line = match retained.take() {
            Some(line) if line.request(run_dir, streams).is_ok() => line,
            Some(_) | None => {
                let line = self.start()?;
                line.request(run_dir, streams)?;
                line
            }
        };
        let answer = line.answer()?;
        *retained = Some(line);
        answer
    }

    fn start(&self) -> io::Result<SpawnerProcess> {
        let (socket, peer) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(io::Error::from)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWERS_WITHIN))?;
        let null = OwnedFd::from(File::options().write(true).open("/dev/null")?);
        let errors = rustix::stdio::stderr().try_clone_to_owned()?;
        let room = " ".repeat(SHOWN);
        let child = match &self.cgroup {
            Some(cgroup) => {
                let args = ["allostat".as_ref(), SPAWN.as_ref(), room.as_ref()];
                Child::born_in(cgroup, &self.program, &args, [peer, null, errors])?
            }
            None => {
                let mut command = Command::new(&self.program);
                command.arg0("allostat").args([SPAWN, &room]).env_clear().current_dir("/");
                command.stdin(peer).stdout(null).stderr(errors).spawn()?.into()
            }
        };
        Ok(SpawnerProcess { socket, child })
    }
}

impl SpawnerProcess {
    fn request(&self, run_dir: &Path, streams: &[OwnedFd; 3]) -> io::Result<()> {
        let descriptors = streams.each_ref().map(AsFd::as_fd);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let path = IoSlice::new(run_dir.as_os_str().as_bytes());
        sendmsg(&self.socket, &[path], &mut control, SendFlags::NOSIGNAL).map_err(|e| has_ended(e.into()))?;
        Ok(())
    }

    /// Errors, the outer one: this spawner is good for nothing any more.
    fn answer(&self) -> io::Result<io::Result<Process>> {
        let mut bytes = [0; SpawnReply::LEN];
        let (read, pidfds) = receive::<1>(&self.socket, &mut bytes).map_err(has_ended)?;
        if read != bytes.len() {
            return Err(has_ended(io::ErrorKind::BrokenPipe.into()));
        }
        let answer = SpawnReply::parse(&bytes);
        Ok(match pidfds {
            Some([pidfd]) => Ok(Process::with_pidfd(answer.id, pidfd)),
            None => Err(io::Error::from_raw_os_error(answer.errno)),
        })
    }
}

/// What a closed or a silent socket means here, in words.
fn has_ended(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            io::Error::new(error.kind(), "it has ended before it answered")
        }
        io::ErrorKind::WouldBlock => {
            io::Error::new(error.kind(), format!("it did not answer within {} s", ANSWERS_WITHIN.as_secs()))
        }
        _ => error,
    }
}

/// What a spawner says of a request; beside it goes the pidfd, if there is a supervisor.
struct SpawnReply {
    errno: i32,
    id: ProcessId,
}

impl SpawnReply {
    const LEN: usize = 16;

    fn bytes(&self) -> [u8; SpawnReply::LEN] {
        let mut bytes = [0; SpawnReply::LEN];
        bytes[..4].copy_from_slice(&self.errno.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.id.pid.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.id.start_ticks.to_ne_bytes());
        bytes
    }
    fn parse(bytes: &[u8; SpawnReply::LEN]) -> SpawnReply {
        let [e0, e1, e2, e3, p0, p1, p2, p3, ticks @ ..] = *bytes;
        let id = ProcessId { pid: u32::from_ne_bytes([p0, p1, p2, p3]), start_ticks: u64::from_ne_bytes(ticks) };
        SpawnReply { errno: i32::from_ne_bytes([e0, e1, e2, e3]), id }
    }
}

/// One message: its length, and its descriptors if it has exactly so many. The length 0: the other end is gone.
fn receive<const N: usize>(socket: &OwnedFd, into: &mut [u8]) -> io::Result<(usize, Option<[OwnedFd; N]>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = descriptors.flatten().collect();
    Ok((got.bytes, descriptors.try_into().ok()))
}

struct SpawnRequest {
    run_dir: PathBuf,
    /// The record, the pipe and the file for errors.
    streams: [OwnedFd; 3],
}

/// `allostat spawn ROOM`, with a socket as descriptor 0, until that is closed. Errors: as those of [`super::main`].
pub fn serve() -> Result<(), String> {
    match serve_until_forked() {
        // From here on we are that supervisor.
        Ok(Some(request)) => become_supervisor(request),
        Ok(None) => Ok(()),
        Err(problem) => Err(format!("allostat {SPAWN}: {problem}\n{FOR_THE_AGENT}")),
    }
}

/// `None`: the agent has gone.
fn serve_until_forked() -> Result<Option<SpawnRequest>, String> {
    let failed = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
    // Without the name it works as well.
    let _ = rustix::thread::set_name(c"allostat-spawn");
    // A terminal's Ctrl-C is not for us.
    process::lead_session().map_err(failed("setsid"))?;
    let line = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(io::Error::from);
    let line = line.map_err(failed(NO_SOCKET))?;
    // Of anything else who knows when there is something to read, if ever.
    rustix::net::sockopt::socket_type(&line).map_err(|e| failed(NO_SOCKET)(e.into()))?;
    let signals = process::signals_as_descriptor(&[libc::SIGCHLD, libc::SIGTERM]).map_err(failed("signalfd"))?;
    // What the processor can do is asked once, here: in a virtual machine that takes long, and each supervisor would
    // ask.
    let _ = crc32fast::hash(&[0; 64]);
    loop {
        let mut ready = [PollFd::new(&line, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(failed("poll")(e.into())),
        }
        let (is_requested, ended) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
        if is_requested {
            let Some(request) = next_request(&line).map_err(failed(NO_SOCKET))? else {
                return Ok(None);
            };
            match fork() {
                Ok(None) => return Ok(Some(request)),
                Ok(Some((id, pidfd))) => answer(&line, &SpawnReply { errno: 0, id }, Some(&pidfd)),
                Err(e) => {
                    let none = ProcessId { pid: 0, start_ticks: 0 };
                    answer(&line, &SpawnReply { errno: e.raw_os_error().unwrap_or(libc::EIO), id: none }, None)
                }
            }
            .map_err(failed("cannot answer"))?;
        }
        if ended {
            while let Some(number) = process::next_signal(&signals) {
                // As systemd ends a scope: the next start has another.
                if number == libc::SIGTERM {
                    return Ok(None);
                }
            }
            while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        }
    }
}

fn next_request(line: &OwnedFd) -> io::Result<Option<SpawnRequest>> {
    let mut path = [0; PATH_MAX];
    let (length, streams) = receive::<3>(line, &mut path)?;
    if length == 0 {
        return Ok(None);
    }
    let streams = streams.ok_or(io::ErrorKind::InvalidData)?;
    Ok(Some(SpawnRequest { run_dir: PathBuf::from(std::ffi::OsStr::from_bytes(&path[..length])), streams }))
}

/// `None` in the child. What has not been waited for keeps its pid: it can be named.
fn fork() -> io::Result<Option<(ProcessId, OwnedFd)>> {
    let Some(pid) = process::fork()? else { return Ok(None) };
    super::moment("spawned");
    let known = process::identity(pid.as_raw_nonzero().get().unsigned_abs())?.ok_or(io::ErrorKind::NotFound)?;
    Ok(Some((known, pidfd_open(pid, PidfdFlags::empty())?)))
}

fn answer(line: &OwnedFd, answer: &SpawnReply, pidfd: Option<&OwnedFd>) -> io::Result<()> {
    let pidfds: Vec<_> = pidfd.iter().map(|pidfd| pidfd.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !pidfds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&pidfds));
    }
    sendmsg(line, &[IoSlice::new(&answer.bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn become_supervisor(request: SpawnRequest) -> Result<(), String> {
    let SpawnRequest { run_dir, streams: [record, report, errors] } = request;
    let moved = rustix::stdio::dup2_stdin(&record)
        .and_then(|()| rustix::stdio::dup2_stdout(&report))
        .and_then(|()| rustix::stdio::dup2_stderr(&errors));
    moved.map_err(|e| format!("allostat supervise: descriptors 0 to 2: {}", io::Error::from(e)))?;
    drop((record, report, errors));
    // Its name identifies it where nothing else is left of it, and in `ps`.
    let _ = rename(&run_dir);
    run::run(&run_dir).map_err(|problem| format!("allostat supervise: {problem}"))
}

/// The command line becomes `allostat supervise RUN_DIR`. Source: fields 48 and 49 of `/proc/self/stat` (3.5).
fn rename(run_dir: &Path) -> io::Result<()> {
    let (from, to) = pid_stat::arguments(&std::fs::read("/proc/self/stat")?).ok_or(io::ErrorKind::InvalidData)?;
    let mut line = b"allostat\0supervise\0".to_vec();
    line.extend_from_slice(run_dir.as_os_str().as_bytes());
    line.resize(usize::try_from(to.saturating_sub(from)).unwrap_or(0), 0);
    if let Some(last) = line.last_mut() {
        *last = 0;
    }
    File::options().write(true).open("/proc/self/mem")?.write_all_at(&line, from)
}
