//! A screen of our own on the terminal, given back whatever happens.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};

use super::screen::{self, Scene};
use crate::cli::output::Paint;

/// Both ends: somebody looks, and the cursor can be moved.
pub fn is_one() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// Keys are read without Enter where standard input is a terminal.
pub struct Screen {
    reads_keys: bool,
}

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

impl Screen {
    pub fn open() -> io::Result<Screen> {
        write(ENTER)?;
        let reads_keys = io::stdin().is_terminal() && enable_raw_mode().is_ok();
        Ok(Screen { reads_keys })
    }

    /// `q`, Esc or Ctrl-C was pressed, which is a key like any other here.
    pub fn is_left(&self) -> bool {
        let is_there = || event::poll(Duration::ZERO).unwrap_or(false);
        while self.reads_keys && is_there() {
            let Ok(Event::Key(KeyEvent { code, modifiers, .. })) = event::read() else { continue };
            let is_interrupt = code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL);
            if is_interrupt || matches!(code, KeyCode::Char('q') | KeyCode::Esc) {
                return true;
            }
        }
        false
    }

    pub fn draw(&mut self, view: &Scene, paint: Paint) -> io::Result<()> {
        let lines = screen::screen(view, size(), paint);
        // Each line is cleared behind its text, and the rest below: nothing flickers.
        let mut text = String::from("\x1b[H");
        for (i, line) in lines.iter().enumerate() {
            if i > 0 {
                text.push_str("\r\n");
            }
            text.push_str(line);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        write(&text)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.reads_keys {
            let _ = disable_raw_mode();
        }
        // A terminal that is gone needs nothing back.
        let _ = write(LEAVE);
    }
}

/// Columns and lines; 80 by 24 where the terminal does not say.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

fn write(text: &str) -> io::Result<()> {
    // The command holds the lock of standard output already; it is reentrant on this thread.
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
