//! What each key does: one table, which `?` shows and by which keys are understood. As in htop and k9s.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::columns::{CPU, MEMORY, NAME, OOM, TIME};

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Open,
    Back,
    Filter,
    SortLeft,
    SortRight,
    SortBy(usize),
    Reverse,
    Group,
    Fold,
    FoldAll,
    UnfoldAll,
    Ended,
    NextView,
    Stream,
    Pause,
    Redraw,
    Suspend,
    Help,
    Quit,
}

/// A key of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Press {
    Key(KeyCode),
    Ctrl(char),
}

/// Those that do the same, what that is, and its words for people.
#[derive(Debug)]
pub struct Binding {
    pub presses: &'static [Press],
    /// As they are written.
    pub names: &'static str,
    pub act: Act,
    pub about: &'static str,
}

const fn on(names: &'static str, presses: &'static [Press], act: Act, about: &'static str) -> Binding {
    Binding { presses, names, act, about }
}

use Press::{Ctrl, Key};
const fn char(c: char) -> Press {
    Key(KeyCode::Char(c))
}

/// All of them, in the order of the help.
pub static BINDINGS: &[Binding] = &[
    on("k Up", &[char('k'), Key(KeyCode::Up)], Act::Up, "a line up"),
    on("j Down", &[char('j'), Key(KeyCode::Down)], Act::Down, "a line down"),
    on("PgUp Ctrl-B", &[Key(KeyCode::PageUp), Ctrl('b')], Act::PageUp, "a page up"),
    on("PgDn Ctrl-F", &[Key(KeyCode::PageDown), Ctrl('f')], Act::PageDown, "a page down"),
    on("g Home", &[char('g'), Key(KeyCode::Home)], Act::First, "to the top"),
    on("G End", &[char('G'), Key(KeyCode::End)], Act::Last, "to the bottom"),
    on("Enter", &[Key(KeyCode::Enter)], Act::Open, "details: processes, curves, log"),
    on("Esc", &[Key(KeyCode::Esc)], Act::Back, "back; no filter"),
    on("/ F4", &[char('/'), Key(KeyCode::F(4))], Act::Filter, "filter by words"),
    on("< Left", &[char('<'), Key(KeyCode::Left)], Act::SortLeft, "sort by the column left"),
    on("> Right", &[char('>'), Key(KeyCode::Right)], Act::SortRight, "sort by the column right"),
    on("P", &[char('P')], Act::SortBy(CPU), "sort by CPU"),
    on("M", &[char('M')], Act::SortBy(MEMORY), "sort by memory"),
    on("T", &[char('T')], Act::SortBy(TIME), "sort by CPU time"),
    on("O", &[char('O')], Act::SortBy(OOM), "sort by OOM kills"),
    on("N", &[char('N')], Act::SortBy(NAME), "sort by name"),
    on("r I", &[char('r'), char('I')], Act::Reverse, "the other way round"),
    on("t F5", &[char('t'), Key(KeyCode::F(5))], Act::Group, "group rows, or not"),
    on("Space", &[char(' ')], Act::Fold, "fold or unfold a group"),
    on("-", &[char('-')], Act::FoldAll, "fold all groups"),
    on("+ *", &[char('+'), char('*')], Act::UnfoldAll, "unfold all groups"),
    on("e", &[char('e')], Act::Ended, "hide what has ended"),
    on("Tab", &[Key(KeyCode::Tab)], Act::NextView, "tasks, devices, events"),
    on("o", &[char('o')], Act::Stream, "details: stdout, stderr"),
    on("p Z", &[char('p'), char('Z')], Act::Pause, "stand still, or go on"),
    on("Ctrl-L", &[Ctrl('l')], Act::Redraw, "draw everything again"),
    on("Ctrl-Z", &[Ctrl('z')], Act::Suspend, "to the shell; fg returns"),
    on("? h F1", &[char('?'), char('h'), Key(KeyCode::F(1))], Act::Help, "keys, columns, close"),
    on("q F10 Ctrl-C", &[char('q'), Key(KeyCode::F(10)), Ctrl('c')], Act::Quit, "leave"),
];

/// What a key does outside of a text that is being typed.
pub fn act(key: &KeyEvent) -> Option<Act> {
    let press = match key.code {
        KeyCode::Char(c) if key.modifiers.contains(KeyModifiers::CONTROL) => Ctrl(c.to_ascii_lowercase()),
        code => Key(code),
    };
    BINDINGS.iter().find(|binding| binding.presses.contains(&press)).map(|binding| binding.act)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(press: &Press) -> String {
        match press {
            Ctrl(c) => format!("Ctrl-{}", c.to_ascii_uppercase()),
            Key(KeyCode::Char(' ')) => "Space".to_owned(),
            Key(KeyCode::Char(c)) => c.to_string(),
            Key(KeyCode::F(n)) => format!("F{n}"),
            Key(KeyCode::PageUp) => "PgUp".to_owned(),
            Key(KeyCode::PageDown) => "PgDn".to_owned(),
            Key(code) => format!("{code:?}"),
        }
    }

    #[test]
    fn each_key_of_the_help_does_what_the_help_says_and_no_key_does_two_things() {
        let mut known = std::collections::BTreeSet::new();
        for binding in BINDINGS {
            let names: Vec<String> = binding.presses.iter().map(name).collect();
            assert_eq!(names.join(" "), binding.names);
            for press in binding.presses {
                let key = match press {
                    Ctrl(c) => KeyEvent::new(KeyCode::Char(*c), KeyModifiers::CONTROL),
                    Key(code) => KeyEvent::new(*code, KeyModifiers::NONE),
                };
                assert_eq!(act(&key), Some(binding.act), "{}", binding.names);
                assert!(known.insert(name(press)), "{} does two things", name(press));
            }
        }
        assert_eq!(act(&KeyEvent::new(KeyCode::Char('x'), KeyModifiers::NONE)), None);
        assert_eq!(act(&KeyEvent::new(KeyCode::Char('q'), KeyModifiers::CONTROL)), None);
        let shifted = KeyEvent::new(KeyCode::Char('G'), KeyModifiers::SHIFT);
        assert_eq!(act(&shifted), Some(Act::Last), "terminals that report Shift mean the letter");
    }
}
