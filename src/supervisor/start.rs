//! From orders to a main process at its gate, and the words for what fails on the way.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::OFlags;

use super::orders::Orders;
use super::record::MainOutcome;
use crate::host::process::{LaunchError, LaunchParameters, ResourceLimit, RunningSandbox, Step, errno_text};

/// Where a command without a slash is searched when the task has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The reading ends of the task's output; `None` where it goes nowhere.
pub struct Outputs {
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
}

/// Of a message, in characters: it may quote a whole PATH, and has to fit into the exit slot even if JSON writes each
/// of them in six bytes.
const MAX_MESSAGE: usize = 4_000;

/// Why it cannot run, as it will stand in the record.
pub fn refuse(message: String, errno: Option<i32>) -> MainOutcome {
    // What another moment may have: memory, processes, descriptors, room on the disk, a file that is being written.
    const PASSING: [i32; 10] = [
        libc::EAGAIN,
        libc::ENOMEM,
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOSPC,
        libc::EFBIG,
        libc::EIO,
        libc::ETXTBSY,
        libc::EBUSY,
        libc::EINTR,
    ];
    let message = message.chars().take(MAX_MESSAGE).collect();
    MainOutcome::NotStarted { message, recoverable: errno.is_some_and(|errno| PASSING.contains(&errno)) }
}

pub fn refused(what: &str, path: &Path, error: &io::Error) -> MainOutcome {
    let errno = error.raw_os_error();
    let why = errno.map_or_else(|| error.to_string(), errno_text);
    refuse(format!("{what}{}: {why}", path.display()), errno)
}

pub fn text(bytes: impl AsRef<OsStr>, what: &str) -> Result<CString, MainOutcome> {
    CString::new(bytes.as_ref().as_bytes()).map_err(|_| refuse(format!("{what} has a zero byte in it"), None))
}

/// Opens and makes everything that the main process needs.
pub fn prepare(orders: &Orders) -> Result<(LaunchParameters, Outputs), MainOutcome> {
    let null = Path::new("/dev/null");
    let nothing = || {
        let file = File::options().read(true).write(true).open(null);
        file.map(OwnedFd::from).map_err(|e| refused("cannot open ", null, &e))
    };
    let pipe = || {
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| {
            refuse(format!("cannot make a pipe: {}", errno_text(e.raw_os_error())), Some(e.raw_os_error()))
        })
    };
    let (stdout, stderr, outputs) = if orders.logs.is_some() {
        let ((out_read, out_write), (err_read, err_write)) = (pipe()?, pipe()?);
        for pipe in [&out_write, &err_write] {
            let user = orders.account.as_ref().map(|a| rustix::fs::Uid::from_raw(a.uid));
            // So that the task can open /dev/stdout and /dev/stderr by name. Where that is refused, it has them open
            // all the same.
            let _ = user.map(|user| rustix::fs::fchown(pipe, Some(user), None));
        }
        (out_write, err_write, Outputs { stdout: Some(out_read), stderr: Some(err_read) })
    } else {
        (nothing()?, nothing()?, Outputs { stdout: None, stderr: None })
    };
    let mut env = Vec::with_capacity(orders.env.len());
    for (name, value) in &orders.env {
        env.push(text(format!("{name}={value}"), "the environment")?);
    }
    let mut args = vec![text(&orders.command, "the command")?];
    for arg in &orders.args {
        args.push(text(arg, "an argument")?);
    }
    let (mut unified, mut v1_tasks) = (None, Vec::new());
    for place in orders.cgroup.iter().flat_map(|cgroup| &cgroup.places) {
        if place.unified {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = rustix::fs::open(&place.directory, flags, rustix::fs::Mode::empty());
            unified = Some(directory.map_err(|e| refused("cannot open the cgroup ", &place.directory, &e.into()))?);
        } else {
            let tasks = place.directory.join("tasks");
            let file = File::options().write(true).open(&tasks);
            v1_tasks.push(file.map_err(|e| refused("cannot open ", &tasks, &e))?.into());
        }
    }
    let network = match &orders.network {
        Some(path) => {
            Some(File::open(path).map_err(|e| refused("cannot open the network namespace ", path, &e))?.into())
        }
        None => None,
    };
    let program = LaunchParameters {
        paths: candidates(orders)?,
        args,
        env,
        directory: text(&orders.directory, "the directory")?,
        user: orders.account.as_ref().map(|a| (a.uid, a.gid, a.groups.clone())),
        limits: orders.limits.iter().filter_map(ResourceLimit::for_kernel).collect(),
        unified,
        v1_tasks,
        network,
        stdin: nothing()?,
        stdout,
        stderr,
        has_terminal: false,
        dies_with_parent: false,
    };
    Ok((program, outputs))
}

fn search_path(orders: &Orders) -> &str {
    orders.env.iter().find(|(name, _)| name == "PATH").map_or(DEFAULT_PATH, |(_, value)| value)
}

/// Whether a path leads to something in the root of the task. `false` where that is unknown.
fn is_inside(confined: &RunningSandbox, path: &CString) -> bool {
    let open = || {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(format!("/proc/{}/root", confined.init().pid()), flags, rustix::fs::Mode::empty())?;
        rustix::fs::openat2(root, path, flags, rustix::fs::Mode::empty(), rustix::fs::ResolveFlags::IN_ROOT)
    };
    open().is_ok()
}

fn candidates(orders: &Orders) -> Result<Vec<CString>, MainOutcome> {
    if orders.sandbox.is_some() && !orders.command.starts_with('/') {
        // As Nomad looks: what the task brought comes first.
        let own = ["/local/", "/"].into_iter().map(|dir| text(format!("{dir}{}", orders.command), "the command"));
        let mut all = own.collect::<Result<Vec<_>, _>>()?;
        if !orders.command.contains('/') {
            all.extend(searched(orders)?);
        }
        return Ok(all);
    }
    if orders.command.contains('/') {
        return Ok(vec![text(&orders.command, "the command")?]);
    }
    searched(orders)
}

fn searched(orders: &Orders) -> Result<Vec<CString>, MainOutcome> {
    let directories = search_path(orders).split(':').map(|d| if d.is_empty() { "." } else { d });
    directories.map(|directory| text(format!("{directory}/{}", orders.command), "PATH")).collect()
}

/// Which step failed, in words with the names of this task.
pub fn explain(orders: &Orders, confined: Option<&RunningSandbox>, error: LaunchError) -> MainOutcome {
    let why = errno_text(error.errno);
    let user = orders.account.as_ref().map_or("", |a| a.name.as_str());
    let directory = orders.directory.display();
    let place = |accepts: &dyn Fn(usize, bool) -> bool| {
        let places = orders.cgroup.iter().flat_map(|c| &c.places);
        let mut v1 = 0;
        for place in places {
            if accepts(v1, place.unified) {
                return place.directory.display().to_string();
            }
            v1 += usize::from(!place.unified);
        }
        String::new()
    };
    let message = match error.step {
        Step::Fork => format!("cannot make a process: {why}"),
        Step::EnterV1(index) => {
            let at = place(&|v1, unified| !unified && v1 == usize::from(index));
            format!("cannot enter the cgroup {at}: {why}")
        }
        Step::EnterV2 => format!("cannot enter the cgroup {}: {why}", place(&|_, unified| unified)),
        Step::Streams => format!("cannot set up standard input and output: {why}"),
        Step::Session => format!("cannot start a session: {why}"),
        Step::Limit(index) => explain_limit(orders, usize::from(index), error.errno, &why),
        Step::Groups | Step::Group | Step::User if error.errno == libc::EPERM => {
            format!("cannot become user {user}: {why} (only root can run tasks as another user)")
        }
        Step::Groups | Step::Group | Step::User => format!("cannot become user {user}: {why}"),
        Step::Directory if user.is_empty() => format!("cannot use the directory {directory}: {why}"),
        Step::Directory => format!("cannot use the directory {directory} as user {user}: {why}"),
        Step::Exec => explain_exec(orders, confined, error.errno, &why),
        Step::Join => format!("cannot join the namespaces of the task: {why}"),
        Step::Capabilities => format!("cannot reduce the capabilities of the task: {why}"),
        Step::Filter => format!("cannot set the seccomp filter of the task: {why}"),
        Step::Terminal => format!("cannot give its session the terminal: {why}"),
        Step::ParentDeath => format!("cannot tie it to the process that started it: {why}"),
    };
    match refuse(message, Some(error.errno)) {
        // It was removed after the agent had made it, and with it what was to be found in it.
        MainOutcome::NotStarted { message, .. } if is_missing(&orders.task_dir) => {
            MainOutcome::NotStarted { message, recoverable: true }
        }
        how => how,
    }
}

fn explain_limit(orders: &Orders, index: usize, errno: i32, why: &str) -> String {
    let Some(limit) = orders.limits.get(index) else { return format!("cannot set a limit: {why}") };
    let message = format!("cannot set ulimit.{} to {limit}: {why}", limit.name);
    match limit.current() {
        Some(here) if errno == libc::EPERM => {
            format!(
                "{message} (it is {here} here: only CAP_SYS_RESOURCE raises the hard one, and `nofile` goes up to \
                 fs.nr_open)"
            )
        }
        _ => message,
    }
}

fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
}

fn explain_exec(orders: &Orders, confined: Option<&RunningSandbox>, errno: i32, why: &str) -> String {
    let command = &orders.command;
    let is_there = || match confined {
        Some(confined) => candidates(orders).is_ok_and(|all| all.iter().any(|path| is_inside(confined, path))),
        None => orders.directory.join(command).exists(),
    };
    match errno {
        libc::ENOENT if !command.contains('/') && (orders.sandbox.is_none() || !is_there()) => {
            format!("{command}: not found in PATH ({})", search_path(orders))
        }
        libc::ENOENT if is_there() => {
            format!("{command}: it exists, but the interpreter or loader that it names does not")
        }
        libc::ENOEXEC => {
            format!("{command}: {why} (neither a binary of this machine nor a script that begins with #!)")
        }
        libc::EACCES => match &orders.account {
            Some(account) => format!("{command}: {why} (as user {})", account.name),
            None => format!("{command}: {why}"),
        },
        _ => format!("{command}: {why}"),
    }
}
