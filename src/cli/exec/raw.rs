//! The user's terminal while it belongs to a command elsewhere: raw, and as before on every way out.

use std::io;
use std::sync::Mutex;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::output;
use crate::host::pty::WindowSize;
use crate::telemetry::lock;

/// As it was, while it is raw.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Dropped, the terminal is as before.
pub struct RawTerminal;

impl RawTerminal {
    pub fn enter() -> io::Result<RawTerminal> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        *lock(&BEFORE) = Some(before);
        let entered = RawTerminal;
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(entered)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if let Some(before) = lock(&BEFORE).take() {
        // A terminal that is gone needs nothing back.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &before);
    }
}

/// Of the terminal at standard input or output.
pub fn size() -> Option<WindowSize> {
    let of_input = tcgetwinsize(io::stdin()).map(|size| (size.ws_col, size.ws_row)).ok();
    let (columns, rows) = of_input.or_else(output::terminal_size)?;
    (columns > 0 && rows > 0).then_some(WindowSize { columns, rows })
}

/// From now on a signal that ends this process leaves the terminal as it was. `resized`: gets its size when it changes.
pub fn follow_signals(resized: impl Fn(WindowSize) + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Within the runtime, before this returns: a signal right after it is seen.
    let (mut changed, mut int, mut term, mut hup, mut quit) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::window_change())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::quit())?,
        )
    };
    let follow = move || {
        runtime.block_on(async move {
            let number = loop {
                tokio::select! {
                    _ = changed.recv() => if let Some(size) = size() {
                        resized(size);
                    },
                    _ = int.recv() => break 2,
                    _ = term.recv() => break 15,
                    _ = hup.recv() => break 1,
                    _ = quit.recv() => break 3,
                }
            };
            restore();
            // The agent kills the command: this connection ends with the process.
            std::process::exit(128 + number);
        });
    };
    std::thread::Builder::new().name("signals".into()).spawn(follow)?;
    Ok(())
}
