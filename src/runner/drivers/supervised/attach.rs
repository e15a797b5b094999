//! Runs a command in a task for a user. A helper process of this binary
//! ([`run_attached`](crate::supervisor::run_attached)) starts the command and passes the ends of its streams.

use std::io::{self, Seek, SeekFrom, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::{oneshot, watch};

use super::shared::{SupervisionContext, blocking, failed, watched};
use crate::host::fd_passing;
use crate::host::process::Child;
use crate::host::pty::{self, WindowSize};
use crate::model::task::TaskHandle;
use crate::runner::drivers::{DriverError, ExecRequest, ExecSession};
use crate::runner::wait_ends::{Ends, EndsWith, spawn_until};
use crate::supervisor::orders::Orders;
use crate::supervisor::{ATTACH, AttachOrders, AttachReport};

/// Maximum size of a report.
const LONGEST_REPORT: usize = 32 << 10;
/// How long the helper may take to kill what its session left, and to end.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

/// The process beside the task. It ends by itself when its line is closed, and is reaped.
struct AttachHelper(Option<Child>);

impl Drop for AttachHelper {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        let reap = move || {
            if child.ends_by(Instant::now() + ENDS_WITHIN).unwrap_or(true) {
                let _ = child.kill();
            }
            let _ = child.wait();
        };
        // Without a thread, it stays a zombie until the agent ends.
        let _ = std::thread::Builder::new().name("exec-reaper".into()).spawn(reap);
    }
}

/// The agent's side of a helper that was given its orders.
struct HelperStart {
    /// First field: closed before the wait for the helper.
    line: OwnedFd,
    helper: AttachHelper,
    /// The agent's ends of standard input, output and error.
    pipes: Option<[OwnedFd; 3]>,
}

/// Blocks as long as a fork takes.
fn begin(shared: &SupervisionContext, handle: &TaskHandle, request: &ExecRequest) -> Result<HelperStart, DriverError> {
    let main = handle.main.filter(|_| handle.boot_id == shared.boot_id);
    let main = main.ok_or_else(|| failed("the main process of the task is not known"))?;
    let (program, args) = request.command.split_first().ok_or_else(|| failed("no command"))?;
    let orders = Orders::read(&handle.run_dir).map_err(failed)?;
    let mut orders = Orders { command: program.clone(), args: args.to_vec(), ..orders };
    let terminal = request.terminal.as_ref();
    if let Some(kind) = terminal.and_then(|terminal| terminal.kind.clone()) {
        // `TERM` of the task is for another terminal, or none.
        orders.env.retain(|(name, _)| name != "TERM");
        orders.env.push(("TERM".to_owned(), kind));
    }
    let orders = AttachOrders { orders, main, terminal: terminal.map(|terminal| terminal.size) };
    let text = serde_json::to_vec(&orders).map_err(|e| failed(e.to_string()))?;
    start(shared, &text, terminal.is_none()).map_err(|e| failed(format!("cannot start an exec session: {e}")))
}

fn start(shared: &SupervisionContext, orders: &[u8], with_pipes: bool) -> io::Result<HelperStart> {
    let mut file = std::fs::File::from(rustix::fs::memfd_create("orders", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(orders)?;
    file.seek(SeekFrom::Start(0))?;
    let (line, peer) = fd_passing::pair()?;
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from);
    let pipes = if with_pipes { Some([pipe()?, pipe()?, pipe()?]) } else { None };
    let mut command = Command::new(&shared.pool.program);
    command.arg0("allostat").arg(ATTACH).env_clear().current_dir("/");
    let helper = command.stdin(peer).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // The agent must not keep the helper's end of the line.
    drop(command);
    let helper = AttachHelper(Some(Child::from(helper)));
    match pipes {
        None => fd_passing::send(&line, b"o", &[file.as_fd()])?,
        Some([(in_read, in_write), (out_read, out_write), (err_read, err_write)]) => {
            fd_passing::send(&line, b"o", &[file.as_fd(), in_read.as_fd(), out_write.as_fd(), err_write.as_fd()])?;
            return Ok(HelperStart { line, helper, pipes: Some([in_write, out_read, err_read]) });
        }
    }
    Ok(HelperStart { line, helper, pipes: None })
}

/// Returns when the command runs. Errors: it does not run, and nothing of it is left.
pub async fn attach(
    shared: Arc<SupervisionContext>,
    handle: TaskHandle,
    request: ExecRequest,
) -> Result<ExecSession, DriverError> {
    let size = request.terminal.as_ref().map_or(WindowSize { columns: 0, rows: 0 }, |terminal| terminal.size);
    let started = blocking(move || begin(&shared, &handle, &request)).ends_with(Ends::Deadline).await??;
    let HelperStart { line, helper, pipes } = started;
    let cannot = |what: &'static str| move |e: io::Error| failed(format!("{what}: {e}"));
    rustix::io::ioctl_fionbio(&line, true).map_err(|e| failed(e.to_string()))?;
    let line = HelperSocket { socket: watched(line).map_err(cannot("cannot watch the exec session"))?, helper };
    // At the deadline the line is closed, which ends the helper.
    let (report, mut descriptors) = line.next().ends_with(Ends::Deadline).await?;
    match report {
        AttachReport::Started => {}
        AttachReport::Failed(why) => return Err(failed(why)),
        AttachReport::Code(_) | AttachReport::Signal(_) => return Err(failed(SILENT)),
    }
    let (size, sizes) = watch::channel(size);
    let (report, end) = oneshot::channel();
    let following = spawn_until(Ends::Caller, async move {
        let ended = match line.next().ends_with(Ends::Caller).await {
            Ok((AttachReport::Code(code), _)) => Ok(code),
            Ok((AttachReport::Signal(number), _)) => Ok(128u8.saturating_add(number)),
            Ok((AttachReport::Started | AttachReport::Failed(_), _)) => Err(failed(SILENT)),
            Err(error) => Err(error),
        };
        let _ = report.send(ended);
    });
    let hold = Box::new(Hold(following.abort_handle()));
    let end = Box::pin(async move { end.ends_with(Ends::Caller).await.unwrap_or_else(|_| Err(failed(SILENT))) });
    if let Some([stdin, stdout, stderr]) = pipes {
        let receiver = |fd| pipe::Receiver::from_owned_fd(fd).map_err(cannot("cannot read its output"));
        let input = pipe::Sender::from_owned_fd(stdin).map_err(cannot("cannot write its input"))?;
        let (output, errors) = (receiver(stdout)?, receiver(stderr)?);
        let (output, errors) = (Box::new(output), Some(Box::new(errors) as Box<_>));
        return Ok(ExecSession { input: Some(Box::new(input)), output, errors, size, end, hold });
    }
    let master = descriptors.pop().ok_or_else(|| failed("it was given no terminal"))?;
    let master = TerminalMaster::of(master).map_err(cannot("cannot watch its terminal"))?;
    spawn_until(Ends::Sender, follow_sizes(sizes, master.clone()));
    let (input, output) = (Some(Box::new(master.clone()) as Box<_>), Box::new(master));
    Ok(ExecSession { input, output, errors: None, size, end, hold })
}

const SILENT: &str = "its session ended without a result";

/// Runs until the session drops the sender.
async fn follow_sizes(mut sizes: watch::Receiver<WindowSize>, master: TerminalMaster) {
    while sizes.changed().ends_with(Ends::Sender).await.is_ok() {
        let size = *sizes.borrow_and_update();
        // A closed terminal has no size.
        let _ = pty::resize(&*master.0, size);
    }
}

struct Hold(tokio::task::AbortHandle);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Dropped in this order: closed, then waited for.
struct HelperSocket {
    socket: AsyncFd<OwnedFd>,
    #[allow(dead_code)]
    helper: AttachHelper,
}

impl HelperSocket {
    /// Errors: the helper is gone, or its report is invalid.
    async fn next(&self) -> Result<(AttachReport, Vec<OwnedFd>), DriverError> {
        let mut message = vec![0; LONGEST_REPORT];
        let (length, descriptors) = loop {
            let mut ready = self.socket.readable().ends_with(Ends::Caller).await.map_err(|e| failed(e.to_string()))?;
            if let Ok(received) = ready.try_io(|socket| fd_passing::receive(socket, &mut message)) {
                break received.map_err(|e| failed(e.to_string()))?;
            }
        };
        let report = serde_json::from_slice(&message[..length]).map_err(|_| failed(SILENT))?;
        Ok((report, descriptors))
    }
}

/// The agent's end of a terminal.
#[derive(Clone)]
struct TerminalMaster(Arc<AsyncFd<OwnedFd>>);

impl TerminalMaster {
    fn of(descriptor: OwnedFd) -> io::Result<TerminalMaster> {
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        // Its replacement is unsafe, because other types may close their descriptor early; an `OwnedFd` cannot.
        #[allow(deprecated)]
        let watched = AsyncFd::with_interest(descriptor, Interest::READABLE | Interest::WRITABLE)?;
        Ok(TerminalMaster(Arc::new(watched)))
    }
}

impl AsyncRead for TerminalMaster {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let read = ready.try_io(|master| Ok(rustix::io::read(master, into.initialize_unfilled())?));
            match read {
                Ok(Ok(n)) => {
                    into.advance(n);
                    return Poll::Ready(Ok(()));
                }
                // The last program has closed it.
                Ok(Err(e)) if e.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(e)) => return Poll::Ready(Err(e)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for TerminalMaster {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(cx))?;
            match ready.try_io(|master| Ok(rustix::io::write(master, bytes)?)) {
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(written) => return Poll::Ready(written),
                Err(_would_block) => {}
            }
        }
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
