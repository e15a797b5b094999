//! A screen of our own on the terminal, given back whatever happens.

use std::io::{self, IsTerminal, Write};

use super::screen::{self, Scene};
use crate::cli::output::Paint;

/// Both ends: somebody looks, and the cursor can be moved.
pub fn is_one() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

pub struct Screen(());

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

impl Screen {
    pub fn open() -> io::Result<Screen> {
        write(ENTER)?;
        Ok(Screen(()))
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
