//! What is wrong with a template, and where.

use std::fmt;
use std::ops::Range;

use crate::model::text::event_text;

/// A problem of a template, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFault {
    /// Bytes of the template.
    pub span: Range<usize>,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    pub message: String,
    pub suggestion: Option<String>,
    /// Not an error: a key that the template reads does not exist yet. Nomad waits for it.
    pub waits: bool,
    /// No start can render it: it needs Consul, Vault or a Nomad cluster, or a pipeline of `sockaddr` that allostat
    /// does not have.
    pub never_renders: bool,
}

impl std::error::Error for TemplateFault {}

impl fmt::Display for TemplateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; {suggestion}"),
            None => Ok(()),
        }
    }
}

/// A fault that does not know its line yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnlocatedFault {
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) suggestion: Option<String>,
    pub(super) waits: bool,
    pub(super) never_renders: bool,
}

impl UnlocatedFault {
    /// What a template or a file says in it may be long: it is cut.
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> UnlocatedFault {
        UnlocatedFault {
            span,
            message: event_text(message.into()),
            suggestion: None,
            waits: false,
            never_renders: false,
        }
    }
    #[must_use]
    pub(super) fn advise(self, suggestion: impl Into<String>) -> UnlocatedFault {
        UnlocatedFault { suggestion: Some(suggestion.into()), ..self }
    }
    pub(super) fn locate(self, text: &str) -> TemplateFault {
        let before = (0..=self.span.start.min(text.len())).rev().find_map(|at| text.get(..at)).unwrap_or("");
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        TemplateFault {
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before.get(line_start..).unwrap_or("").chars().count() + 1,
            span: self.span,
            message: self.message,
            suggestion: self.suggestion,
            waits: self.waits,
            never_renders: self.never_renders,
        }
    }
}

/// Why a function yields no value; the caller adds the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FunctionFault {
    Invalid(String),
    /// A key that does not exist yet.
    Waits(String),
}

impl From<String> for FunctionFault {
    fn from(message: String) -> FunctionFault {
        FunctionFault::Invalid(message)
    }
}

impl From<&str> for FunctionFault {
    fn from(message: &str) -> FunctionFault {
        FunctionFault::Invalid(message.to_owned())
    }
}

impl FunctionFault {
    pub(super) fn at(self, span: Range<usize>, function: &str) -> UnlocatedFault {
        match self {
            FunctionFault::Invalid(message) => UnlocatedFault::new(span, format!("{function}: {message}")),
            FunctionFault::Waits(message) => {
                UnlocatedFault { waits: true, ..UnlocatedFault::new(span, format!("{function}: {message}")) }
            }
        }
    }
}
