//! Signals by name and number, as Linux counts them on x86, ARM, RISC-V and most others.

/// Name and number. Real-time signals have no names here.
const NAMES: [(&str, u8); 31] = [
    ("SIGHUP", 1),
    ("SIGINT", 2),
    ("SIGQUIT", 3),
    ("SIGILL", 4),
    ("SIGTRAP", 5),
    ("SIGABRT", 6),
    ("SIGBUS", 7),
    ("SIGFPE", 8),
    ("SIGKILL", 9),
    ("SIGUSR1", 10),
    ("SIGSEGV", 11),
    ("SIGUSR2", 12),
    ("SIGPIPE", 13),
    ("SIGALRM", 14),
    ("SIGTERM", 15),
    ("SIGSTKFLT", 16),
    ("SIGCHLD", 17),
    ("SIGCONT", 18),
    ("SIGSTOP", 19),
    ("SIGTSTP", 20),
    ("SIGTTIN", 21),
    ("SIGTTOU", 22),
    ("SIGURG", 23),
    ("SIGXCPU", 24),
    ("SIGXFSZ", 25),
    ("SIGVTALRM", 26),
    ("SIGPROF", 27),
    ("SIGWINCH", 28),
    ("SIGIO", 29),
    ("SIGPWR", 30),
    ("SIGSYS", 31),
];

/// The number of a signal; `SIGTERM`, `sigterm`, `TERM` and `15` are the same one. `None`: there is no such signal.
pub fn number(name: &str) -> Option<u8> {
    if let Ok(number) = name.parse::<u8>() {
        return (1..=31).contains(&number).then_some(number);
    }
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    NAMES.iter().find(|(known, _)| known.strip_prefix("SIG") == Some(bare)).map(|(_, number)| *number)
}

/// `SIGKILL` for 9; `None` for a number without a name.
pub fn name(number: u8) -> Option<&'static str> {
    NAMES.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

/// Every name, by number: for messages that list what there is.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_signal_is_the_same_signal() {
        for text in ["SIGTERM", "sigterm", "TERM", "Term", "15"] {
            assert_eq!(number(text), Some(15), "{text}");
        }
        for (text, value) in NAMES {
            assert_eq!(number(text), Some(value));
            assert_eq!(name(value), Some(text));
        }
    }

    #[test]
    fn invalid_signal_names_have_no_number() {
        for text in ["", "SIG", "SIGNOPE", "0", "-9", "32", "256", "SIGSIGTERM", "KILLER"] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
