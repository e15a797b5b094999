//! A count that grows while a command waits: one line that is rewritten on a terminal, few lines anywhere else.

use std::cell::RefCell;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::output::{eprint_line, errors_are_on_a_terminal, rewrite_line};

/// Where no line is rewritten, one comes at least so often while something changes.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Of more than these not each one is a line.
const FEW: usize = 8;

/// Concurrency: one thread. Written to standard error, so that a pipe gets only the output.
pub struct ProgressLine {
    is_terminal: bool,
    state: RefCell<ProgressState>,
}

#[derive(Default)]
struct ProgressState {
    /// How many, and when that was written.
    last: Option<(usize, Instant)>,
    /// On the terminal, without the end of its line.
    is_open: bool,
}

impl ProgressLine {
    pub fn new() -> ProgressLine {
        ProgressLine { is_terminal: errors_are_on_a_terminal(), state: RefCell::default() }
    }

    /// `done` of `total`; `text` says so.
    pub fn show(&self, done: usize, total: usize, text: &str) {
        let mut state = self.state.borrow_mut();
        if state.last.is_some_and(|(last, _)| last == done) {
            return;
        }
        if self.is_terminal {
            rewrite_line(text);
            state.is_open = true;
        } else if is_worth_a_line(state.last, done, total, Instant::now()) {
            eprint_line(text);
        } else {
            return;
        }
        state.last = Some((done, Instant::now()));
    }

    /// Something else is written now: the line ends, with what it says.
    pub fn end_line(&self) {
        if std::mem::take(&mut self.state.borrow_mut().is_open) {
            eprint_line("");
        }
    }
    /// The next [`ProgressLine::show`] writes the line again, below.
    fn interrupt(&self) {
        let mut state = self.state.borrow_mut();
        if std::mem::take(&mut state.is_open) {
            rewrite_line("");
            state.last = None;
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.end_line();
    }
}

/// The first, the last, each quarter of many, and one now and then.
fn is_worth_a_line(last: Option<(usize, Instant)>, done: usize, total: usize, now: Instant) -> bool {
    let Some((before, at)) = last else { return true };
    let quarter = |count: usize| count.saturating_mul(4) / total.max(1);
    total <= FEW || done >= total || quarter(done) != quarter(before) || now.duration_since(at) >= LINE_EVERY
}

/// Output between which the line of a [`ProgressLine`] stands: it is taken off before, so that no line is written into
/// another.
pub struct ProgressWriter<'a> {
    pub progress: &'a ProgressLine,
    pub out: &'a mut dyn Write,
}

impl Write for ProgressWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.progress.interrupt();
        self.out.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many lines counting up to `total` gives, each step after `pause`.
    fn lines(total: usize, pause: Duration) -> usize {
        let begin = Instant::now();
        let (mut last, mut count) = (None, 0);
        for done in 0..=total {
            let now = begin + pause * u32::try_from(done).unwrap();
            if is_worth_a_line(last, done, total, now) {
                (last, count) = (Some((done, now)), count + 1);
            }
        }
        count
    }

    #[test]
    fn counting_many_gives_few_lines_and_counting_few_gives_each() {
        assert_eq!(lines(200, Duration::ZERO), 5);
        assert_eq!(lines(3, Duration::ZERO), 4);
        assert_eq!(lines(0, Duration::ZERO), 1);
        let slow = lines(200, Duration::from_secs(1));
        assert!((20..=25).contains(&slow), "{slow}");
    }
}
