//! The life of a supervisor.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::SystemTime;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::confine::confine;
use super::order::{OrderRecord, OrderWriter};
use super::orders::Orders;
use super::record::{self, MainOutcome, SupervisedEnd, SupervisedStart, SupervisorRecord};
use super::rotate::Rotator;
use super::tree::{self, ReapedProcesses, note};
use super::{moment, start};
use crate::host::process::{self, RunningSandbox, Rusage, SandboxInit};
use crate::model::units::Timestamp;

/// Enough for what a pipe holds, four times over before it is full.
const CHUNK: usize = 16 * 1024;
/// How long the end of the rest of a tree is awaited before it is tried again.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Errors: a sentence; nothing has been started then.
pub fn run(run_dir: &Path) -> Result<(), String> {
    // Executed as /proc/self/exe, which is what `ps` and systemd would call it. Without the name it works as well.
    let _ = rustix::thread::set_name(c"allostat");
    let (record, report) = inherited(run_dir)?;
    let failed = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
    // Alone in a session, so that no terminal and no group signal reaches us.
    process::lead_session().map_err(failed("setsid"))?;
    process::become_subreaper().map_err(failed("cannot become a subreaper"))?;
    let signals = process::signals_as_descriptor(&[libc::SIGCHLD, libc::SIGTERM]).map_err(failed("signalfd"))?;
    let me = process::identity(std::process::id()).map_err(failed("/proc/self"))?.ok_or("/proc does not show us")?;
    let orders = Orders::read(run_dir)?;
    moment("born");

    let mut start = SupervisedStart { boot_id: orders.boot_id.clone(), supervisor: me, main: None, started_at: None };
    record.write_start(&start).map_err(failed("cannot write the record"))?;
    moment("started");
    // Set aside now: the end must not depend on memory that a host in need may not have.
    let room = Vec::with_capacity(64 * 1024);
    match start_main(&orders, &record, &mut start) {
        Ok((main, init, streams)) => {
            moment("opened");
            drop(report);
            moment("reported");
            let order = orders.logs.as_ref().map(|logs| OrderWriter::open(&logs.directory, &logs.task));
            let life = TaskSupervision { orders: &orders, main, init, signals, order, problems: Vec::new() };
            let end = life.live(&start, streams);
            leave(&record, &end, room)
        }
        Err(how) => {
            tree::wait_for_all();
            let written = leave(&record, &never_started(how), room);
            drop(report);
            written
        }
    }
}

/// The record, and the pipe whose closing reports to the parent that the record has the answer.
/// Makes sure that this is what the agent started: descriptor 0 is the record of that directory, and locked.
fn inherited(run_dir: &Path) -> Result<(SupervisorRecord, OwnedFd), String> {
    let (record, report) = process::take_standard_streams().ok_or("descriptors 0 and 1 are not the agent's to give")?;
    let record = SupervisorRecord::inherited(record);
    let expected = SupervisorRecord::open(run_dir).ok().flatten();
    let same = expected.as_ref().is_some_and(|other| record.is_same_as(other).unwrap_or(false));
    if !same || expected.is_some_and(|other| other.try_lock().unwrap_or(true)) {
        return Err(format!("descriptor 0 is not the locked {} of {}", record::FILE, run_dir.display()));
    }
    Ok((record, report))
}

/// What there is to say about the end.
fn leave(record: &SupervisorRecord, end: &SupervisedEnd, room: Vec<u8>) -> Result<(), String> {
    moment("ended");
    record.write_end(end, room).map_err(|e| format!("cannot write the exit: {e}"))?;
    moment("left");
    Ok(())
}

fn never_started(how: MainOutcome) -> SupervisedEnd {
    SupervisedEnd {
        how,
        started_at: None,
        finished_at: now(),
        main_rusage: Rusage::default(),
        orphans_rusage: Rusage::default(),
        orphans_reaped: 0,
        stdout_lost_bytes: 0,
        stderr_lost_bytes: 0,
        problems: Vec::new(),
        files: Vec::new(),
    }
}

fn now() -> Timestamp {
    Timestamp::from_system(SystemTime::now())
}

/// The main process, running; its identity is on record before it runs anything.
fn start_main(
    orders: &Orders,
    record: &SupervisorRecord,
    start: &mut SupervisedStart,
) -> Result<(u32, Option<SandboxInit>, [TaskOutput; 2]), MainOutcome> {
    let (program, outputs) = start::prepare(orders)?;
    let confined = orders.sandbox.as_ref().map(confine).transpose()?;
    moment("confined");
    let explain = |e| start::explain(orders, confined.as_ref(), e);
    let launched = program.launch(confined.as_ref()).map_err(explain)?;
    let pid = launched.pid;
    moment("forked");
    let known = process::identity(pid).and_then(|id| {
        start.main = id;
        start.started_at = Some(now());
        record.write_start(start)
    });
    if let Err(e) = known {
        // Its gate closes with `launched`, so it ends without having run anything.
        drop(launched);
        let message = format!("cannot write the record: {e}");
        return Err(MainOutcome::NotStarted { message, recoverable: true });
    }
    moment("recorded");
    if let Some(score) = orders.oom_score_adj {
        let file = format!("/proc/{pid}/oom_score_adj");
        std::fs::write(&file, score.to_string()).map_err(|e| start::refused("cannot write ", Path::new(&file), &e))?;
    }
    // Before the gate: as long as the task has run nothing, its log directory is the one we made.
    let streams =
        [TaskOutput::new(orders, "stdout", outputs.stdout), TaskOutput::new(orders, "stderr", outputs.stderr)];
    launched.open_gate().map_err(explain)?;
    Ok((pid, confined.map(RunningSandbox::into_init), streams))
}

struct TaskSupervision<'a> {
    orders: &'a Orders,
    main: u32,
    /// Ends with us.
    init: Option<SandboxInit>,
    signals: OwnedFd,
    /// `None`: its output goes nowhere.
    order: Option<OrderWriter>,
    problems: Vec<String>,
}

/// One stream of the task's output. The task may open its own output for reading and take what poll has promised us, so
/// our end does not block; the task's end is another file description and does.
struct TaskOutput {
    /// `None`: closed by the task, or it goes nowhere.
    pipe: Option<OwnedFd>,
    files: Option<Rotator>,
    /// As [`OrderRecord`] has it.
    number: usize,
}

impl TaskOutput {
    fn new(orders: &Orders, name: &str, pipe: Option<OwnedFd>) -> TaskOutput {
        let files = orders
            .logs
            .as_ref()
            .map(|logs| Rotator::open(&logs.directory, &logs.task, name, logs.max_files, logs.max_file_bytes));
        if let Some(pipe) = &pipe {
            // The kernel refuses this to no pipe; a read that blocks would be no worse than before.
            let _ = rustix::io::ioctl_fionbio(pipe, true);
        }
        TaskOutput { pipe, files, number: usize::from(name == "stderr") }
    }
    /// One chunk. `false`: there is nothing now; the pipe is gone if there never will be.
    fn pump(&mut self, buffer: &mut [u8], order: Option<&mut OrderWriter>) -> bool {
        let (Some(pipe), Some(files)) = (&self.pipe, &mut self.files) else { return false };
        match rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut *buffer)) {
            Err(rustix::io::Errno::AGAIN) => false,
            Ok(0) | Err(_) => {
                self.pipe = None;
                false
            }
            Ok(length) => {
                files.write(&buffer[..length]);
                if let Some(order) = order {
                    order.wrote(OrderRecord { nanos: now().0, stream: self.number, place: files.place() });
                }
                true
            }
        }
    }
    /// What still lies in the pipe when no process of ours is left. A descriptor that was handed to a foreign process
    /// may keep the pipe open: it is not waited for.
    fn drain(&mut self, buffer: &mut [u8], mut order: Option<&mut OrderWriter>) {
        let Some(pipe) = &self.pipe else { return };
        let mut left = rustix::io::ioctl_fionread(pipe).unwrap_or(0);
        while left > 0 && self.pump(buffer, order.as_deref_mut()) {
            left = left.saturating_sub(buffer.len() as u64);
        }
    }
    fn lost_bytes(&self, name: &str, problems: &mut Vec<String>) -> u64 {
        let Some(files) = &self.files else { return 0 };
        if let Some(error) = files.first_error() {
            note(problems, format!("{} bytes of {name} were lost: {error}", files.lost_bytes()));
        }
        files.lost_bytes()
    }
}

impl TaskSupervision<'_> {
    fn live(mut self, start: &SupervisedStart, streams: [TaskOutput; 2]) -> SupervisedEnd {
        let [mut stdout, mut stderr] = streams;
        let mut buffer = vec![0; CHUNK];
        let mut tree = ReapedProcesses::default();
        let mut finished_at = None;
        loop {
            let no_child = tree.reap(self.main, self.init.as_ref().map(SandboxInit::pid), &mut self.problems);
            if tree.main.is_some() && finished_at.is_none() {
                finished_at = Some(now());
            }
            let ending = tree.main.is_some() || no_child;
            if ending && tree::kill_rest(self.orders.cgroup.as_ref(), &mut self.problems) && no_child {
                break;
            }
            self.wait(ending.then_some(&RETRY), &mut stdout, &mut stderr, &mut buffer);
        }
        stdout.drain(&mut buffer, self.order.as_mut());
        stderr.drain(&mut buffer, self.order.as_mut());
        if let Some(order) = &mut self.order {
            order.flush();
        }
        let (how, main_rusage) = match tree.main {
            Some(main) => (MainOutcome::Status(main.status), main.rusage),
            None => {
                (MainOutcome::Unseen("the main process vanished without a wait status".to_owned()), Rusage::default())
            }
        };
        SupervisedEnd {
            how,
            started_at: start.started_at,
            finished_at: finished_at.unwrap_or_else(now),
            main_rusage,
            orphans_rusage: tree.orphans,
            orphans_reaped: tree.orphans_reaped,
            stdout_lost_bytes: stdout.lost_bytes("stdout", &mut self.problems),
            stderr_lost_bytes: stderr.lost_bytes("stderr", &mut self.problems),
            files: self.final_files(),
            problems: self.problems,
        }
    }

    /// Sleeps until a signal or output comes; without `limit` for ever.
    fn wait(&mut self, limit: Option<&Timespec>, stdout: &mut TaskOutput, stderr: &mut TaskOutput, buffer: &mut [u8]) {
        let (mut out_ready, mut err_ready, mut signalled) = (false, false, false);
        {
            // A closed stream must not be asked, or poll would answer at once: the signals stand in for it.
            let signals = &self.signals;
            let mut fds = [
                PollFd::new(signals, PollFlags::IN),
                PollFd::new(stdout.pipe.as_ref().unwrap_or(signals), PollFlags::IN),
                PollFd::new(stderr.pipe.as_ref().unwrap_or(signals), PollFlags::IN),
            ];
            match poll(&mut fds, limit) {
                Ok(_) => {
                    signalled = !fds[0].revents().is_empty();
                    out_ready = !fds[1].revents().is_empty();
                    err_ready = !fds[2].revents().is_empty();
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => note(&mut self.problems, format!("poll: {e}")),
            }
        }
        if out_ready {
            stdout.pump(buffer, self.order.as_mut());
        }
        if err_ready {
            stderr.pump(buffer, self.order.as_mut());
        }
        if signalled {
            while let Some(number) = process::next_signal(&self.signals) {
                // Without a limit the main process is not reaped yet: its pid is still its own.
                if number == libc::SIGTERM && limit.is_none() {
                    let _ = process::signal_pid(self.main, 15);
                }
            }
        }
    }

    fn final_files(&mut self) -> Vec<(String, Result<Vec<u8>, i32>)> {
        let read = |path: &Path| std::fs::read(path).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO));
        self.orders.final_files.iter().map(|file| (file.key.clone(), read(&file.path))).collect()
    }
}
