//! A terminal of one's own, for what draws on one.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use super::{Agent, allostat, patience, wait_for};

const LONG: Duration = Duration::from_secs(30);

/// Rows and columns that are enough for each test.
const SCREEN: (usize, usize) = (80, 300);

/// What is on the screen after this text: placed characters, a cleared screen; colours and the rest change no cell.
pub fn drawn(text: &str) -> String {
    let (mut screen, mut row, mut column) = (vec![vec![' '; SCREEN.1]; SCREEN.0], 0, 0);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' if chars.next() == Some('[') => {
                let (mut numbers, mut command) = (String::new(), None);
                while command.is_none()
                    && let Some(c) = chars.next()
                {
                    if ('@'..='~').contains(&c) { command = Some(c) } else { numbers.push(c) }
                }
                let mut places = numbers.split(';').map(|number| number.parse().unwrap_or(1_usize).saturating_sub(1));
                match command {
                    Some('H') => (row, column) = (places.next().unwrap_or(0), places.next().unwrap_or(0)),
                    Some('J') => screen.iter_mut().for_each(|line| line.fill(' ')),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => row += 1,
            c if !c.is_control() => {
                if let Some(cell) = screen.get_mut(row).and_then(|line| line.get_mut(column)) {
                    *cell = c;
                }
                column += 1;
            }
            _ => {}
        }
    }
    screen.iter().map(|line| line.iter().collect::<String>() + "\n").collect()
}

/// A command on a terminal of its own.
pub struct OnTerminal {
    child: Child,
    terminal: OwnedFd,
    before: Termios,
    output: Arc<Mutex<Vec<u8>>>,
    reader: std::thread::JoinHandle<()>,
}

impl OnTerminal {
    pub fn start(mut command: Command, (columns, rows): (u16, u16)) -> OnTerminal {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).expect("a terminal");
        unlockpt(&terminal).expect("a terminal");
        let name = ptsname(&terminal, Vec::new()).expect("a terminal");
        let own = std::fs::File::options()
            .read(true)
            .write(true)
            .open(name.to_str().expect("a terminal"))
            .expect("a terminal");
        tcsetwinsize(&own, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).expect("a terminal");
        let before = tcgetattr(&own).expect("a terminal");
        let reported = Arc::<Mutex<Vec<u8>>>::default();
        let (mut from, into) = (std::fs::File::from(terminal.try_clone().expect("a terminal")), Arc::clone(&reported));
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Ends with an error when no process has the other end any more.
            while let Ok(read @ 1..) = from.read(&mut buffer) {
                into.lock().expect("not poisoned").extend_from_slice(&buffer[..read]);
            }
        });
        command.env_remove("NO_COLOR").env("TERM", "xterm-256color");
        let io = || Stdio::from(own.try_clone().expect("a terminal"));
        let child = command.stdin(io()).stdout(io()).stderr(io()).spawn().expect("it must start");
        OnTerminal { child, terminal, before, output: reported, reader }
    }
    /// `allostat top` of this agent.
    pub fn of(agent: &Agent) -> OnTerminal {
        let address = format!("unix:{}", agent.socket().display());
        let mut command = Command::new(allostat());
        command.arg("top").env("ALLOSTAT_ADDR", &address);
        OnTerminal::start(command, (120, 40))
    }
    /// Of so many columns and rows from now on, with a signal of that.
    pub fn resize(&self, (columns, rows): (u16, u16)) {
        tcsetwinsize(&self.terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })
            .expect("a terminal");
        // The kernel signals the processes of a session that has the terminal, which this one is not.
        self.signal(Signal::WINCH);
    }
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().expect("not poisoned")).into_owned()
    }
    /// All lines of a command that has ended, without colours. What it wrote last may be on its way when it has ended.
    #[track_caller]
    pub fn lines(&self) -> Vec<String> {
        wait_for("the rest of its output", LONG * patience(), || self.reader.is_finished().then_some(()));
        let text = self.text();
        let mut plain = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("\x1b[") {
            plain.push_str(before);
            rest = after.split_once('m').map_or("", |(_, after)| after);
        }
        plain.push_str(rest);
        plain.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
    }
    /// What is said from now on.
    pub fn forget(&self) {
        self.output.lock().expect("not poisoned").clear();
    }
    /// As one text, or where it was drawn in pieces: a later frame writes only the cells that differ.
    #[track_caller]
    pub fn shows(&self, word: &str) {
        let is_shown = || {
            let text = self.text();
            (text.contains(word) || drawn(&text).contains(word)).then_some(())
        };
        wait_for(&format!("{word:?} on the screen"), LONG * patience(), is_shown);
    }
    pub fn press(&self, keys: &str) {
        std::fs::File::from(self.terminal.try_clone().expect("a terminal"))
            .write_all(keys.as_bytes())
            .expect("a terminal");
    }
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid fits")).expect("a pid")
    }
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("our own child");
    }
    pub fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).expect("a terminal").local_modes.contains(LocalModes::ICANON)
    }
    /// As it was: modes, screen, cursor, mouse.
    #[track_caller]
    pub fn is_given_back(&self) {
        let now = tcgetattr(&self.terminal).expect("a terminal");
        assert_eq!(
            (now.local_modes, now.input_modes, now.output_modes),
            (self.before.local_modes, self.before.input_modes, self.before.output_modes)
        );
        // What it wrote last may still be on its way when it has ended.
        for end in ["\x1b[?1049l", "\x1b[?25h", "\x1b[?1000l"] {
            self.shows(end);
        }
        let text = self.text();
        assert!(text.rfind("\x1b[?1049l") > text.rfind("\x1b[?1049h"), "{text:?}");
    }
    #[track_caller]
    pub fn ends(&mut self) -> ExitStatus {
        wait_for("its end", LONG * patience(), || self.child.try_wait().expect("our own child"))
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
