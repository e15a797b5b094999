//! The terminal as a screen of our own, given back whatever happens: at the end, on a signal, when it is stopped, in a
//! panic.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::layout::{Position, Rect};

/// Standard output is a terminal, and its cursor can be moved.
pub fn is_one() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

/// The terminal is ours at this moment.
static TAKEN: AtomicBool = AtomicBool::new(false);

impl Screen {
    pub fn open() -> io::Result<Screen> {
        give_back_in_a_panic();
        let screen = Screen { terminal: Terminal::new(CrosstermBackend::new(BufWriter::new(io::stdout())))? };
        take()?;
        Ok(screen)
    }

    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame.buffer_mut()))?;
        Ok(())
    }

    /// Everything is drawn again: another program wrote there, or it has another size.
    pub fn forget(&mut self) -> io::Result<()> {
        // Not `clear`, which asks the terminal for its cursor: the thread that reads keys would get the answer.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
    }

    /// Stops this process like any other, with the terminal as it was; goes on when a signal lets it.
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        take()?;
        self.forget()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    let mut out = io::stdout();
    // A terminal that has no other screen still shows what was there.
    execute!(out, EnterAlternateScreen, Clear(ClearType::All), EnableMouseCapture, cursor::Hide)
}

/// Once for each time that it was taken. A terminal that is gone needs nothing back.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        let _ = execute!(out, DisableMouseCapture, LeaveAlternateScreen, cursor::Show);
        let _ = out.flush();
        let _ = disable_raw_mode();
    }
}

/// What a panic says is to be read on the terminal as it was. Only of the thread that draws: another one's ends
/// nothing.
fn give_back_in_a_panic() {
    let (before, drawing) = (std::panic::take_hook(), std::thread::current().id());
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == drawing {
            give_back();
        }
        before(info);
    }));
}
