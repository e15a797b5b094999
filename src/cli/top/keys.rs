//! What each key does: one table, which `?` shows and by which keys are understood. As in htop and k9s.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::columns::{CPU, MEMORY, NAME, OOM, TIME};

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyAction {
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
pub enum KeyPress {
    Key(KeyCode),
    Ctrl(char),
}

/// Those that do the same, what that is, and its words for people.
#[derive(Debug)]
pub struct Binding {
    pub presses: &'static [KeyPress],
    /// As they are written.
    pub names: &'static str,
    pub act: KeyAction,
    pub about: &'static str,
}

const fn on(names: &'static str, presses: &'static [KeyPress], act: KeyAction, about: &'static str) -> Binding {
    Binding { presses, names, act, about }
}

use KeyPress::{Ctrl, Key};
const fn char(c: char) -> KeyPress {
    Key(KeyCode::Char(c))
}

/// All of them, in the order of the help.
pub static BINDINGS: &[Binding] = &[
    on("k Up", &[char('k'), Key(KeyCode::Up)], KeyAction::Up, "a line up"),
    on("j Down", &[char('j'), Key(KeyCode::Down)], KeyAction::Down, "a line down"),
    on("PgUp Ctrl-B", &[Key(KeyCode::PageUp), Ctrl('b')], KeyAction::PageUp, "a page up"),
    on("PgDn Ctrl-F", &[Key(KeyCode::PageDown), Ctrl('f')], KeyAction::PageDown, "a page down"),
    on("g Home", &[char('g'), Key(KeyCode::Home)], KeyAction::First, "to the top"),
    on("G End", &[char('G'), Key(KeyCode::End)], KeyAction::Last, "to the bottom"),
    on("Enter", &[Key(KeyCode::Enter)], KeyAction::Open, "details: processes, curves, log"),
    on("Esc", &[Key(KeyCode::Esc)], KeyAction::Back, "back; no filter"),
    on("/ F4", &[char('/'), Key(KeyCode::F(4))], KeyAction::Filter, "filter by words"),
    on("< Left", &[char('<'), Key(KeyCode::Left)], KeyAction::SortLeft, "sort by the column left"),
    on("> Right", &[char('>'), Key(KeyCode::Right)], KeyAction::SortRight, "sort by the column right"),
    on("P", &[char('P')], KeyAction::SortBy(CPU), "sort by CPU"),
    on("M", &[char('M')], KeyAction::SortBy(MEMORY), "sort by memory"),
    on("T", &[char('T')], KeyAction::SortBy(TIME), "sort by CPU time"),
    on("O", &[char('O')], KeyAction::SortBy(OOM), "sort by OOM kills"),
    on("N", &[char('N')], KeyAction::SortBy(NAME), "sort by name"),
    on("r I", &[char('r'), char('I')], KeyAction::Reverse, "the other way round"),
    on("t F5", &[char('t'), Key(KeyCode::F(5))], KeyAction::Group, "group rows, or not"),
    on("Space", &[char(' ')], KeyAction::Fold, "fold or unfold a group"),
    on("-", &[char('-')], KeyAction::FoldAll, "fold all groups"),
    on("+ *", &[char('+'), char('*')], KeyAction::UnfoldAll, "unfold all groups"),
    on("e", &[char('e')], KeyAction::Ended, "hide what has ended"),
    on("Tab", &[Key(KeyCode::Tab)], KeyAction::NextView, "tasks, devices, events"),
    on("o", &[char('o')], KeyAction::Stream, "details: stdout, stderr"),
    on("p Z", &[char('p'), char('Z')], KeyAction::Pause, "stand still, or go on"),
    on("Ctrl-L", &[Ctrl('l')], KeyAction::Redraw, "draw everything again"),
    on("Ctrl-Z", &[Ctrl('z')], KeyAction::Suspend, "to the shell; fg returns"),
    on("? h F1", &[char('?'), char('h'), Key(KeyCode::F(1))], KeyAction::Help, "keys, columns, close"),
    on("q F10 Ctrl-C", &[char('q'), Key(KeyCode::F(10)), Ctrl('c')], KeyAction::Quit, "leave"),
];

/// What a key does outside of a text that is being typed.
pub fn act(key: &KeyEvent) -> Option<KeyAction> {
    let press = match key.code {
        KeyCode::Char(c) if key.modifiers.contains(KeyModifiers::CONTROL) => Ctrl(c.to_ascii_lowercase()),
        code => Key(code),
    };
    BINDINGS.iter().find(|binding| binding.presses.contains(&press)).map(|binding| binding.act)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(press: &KeyPress) -> String {
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
    fn each_key_acts_as_the_help_describes_and_no_key_has_two_actions() {
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
        assert_eq!(act(&shifted), Some(KeyAction::Last), "terminals that report Shift mean the letter");
    }
}
