//! Parse errors of kernel files, with their location.

/// A kernel file does not have the documented format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: expected {expected}, found {found:?}")]
pub struct ParseError {
    /// The kernel's name of the file: `memory.stat`, `mountinfo`.
    pub file: &'static str,
    /// Counted from 1.
    pub line: usize,
    pub expected: &'static str,
    /// The offending text: at most 40 characters, invalid UTF-8 replaced.
    pub found: String,
}

impl ParseError {
    pub fn new(file: &'static str, line: usize, expected: &'static str, found: &[u8]) -> ParseError {
        let found = String::from_utf8_lossy(found.get(..160).unwrap_or(found)).chars().take(40).collect();
        ParseError { file, line, expected, found }
    }
}

/// The parsed values and the first error: an invalid line affects only its own value.
pub type Parsed<T> = (T, Option<ParseError>);
