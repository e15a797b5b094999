//! What was wrong in a kernel file, and where.

/// A kernel file that is not what its documentation promises.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: expected {expected}, found {found:?}")]
pub struct ParseError {
    /// The file's name, as the kernel calls it: `memory.stat`, `mountinfo`.
    pub file: &'static str,
    /// Counted from 1.
    pub line: usize,
    pub expected: &'static str,
    /// What stood there: at most 40 characters, what is not UTF-8 replaced.
    pub found: String,
}

impl ParseError {
    pub fn new(file: &'static str, line: usize, expected: &'static str, found: &[u8]) -> ParseError {
        let found = String::from_utf8_lossy(found.get(..160).unwrap_or(found)).chars().take(40).collect();
        ParseError { file, line, expected, found }
    }
}

/// What could be understood, and the first thing that could not: a bad line costs its own value, no other.
pub type Parsed<T> = (T, Option<ParseError>);
