//! What an evaluation stands on: faults with their place, a budget, and what it takes from outside of the file.

use std::cell::{Cell, RefCell};

use hcl_edit::Span as _;
use hcl_edit::expr::Expression;

use super::value::HclValue;
use crate::jobspec::diagnostic::Span;

/// Each evaluated expression and each element of a loop is a step.
const MOST_STEPS: u64 = 200_000;
/// Of all values and of all blocks that are expanded.
const MOST_BYTES: usize = 16 << 20;
/// Each after it is a repetition.
const MOST_WARNINGS: usize = 64;
/// Expressions within expressions.
pub(super) const DEEPEST: usize = 100;

/// Why an expression has no value, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationFault {
    pub span: Span,
    pub message: String,
    pub suggestion: Option<String>,
    /// Steps or bytes are used up: nothing after it is evaluated.
    pub is_end: bool,
}

pub type Evaluated<T = HclValue> = Result<T, EvaluationFault>;

impl EvaluationFault {
    pub(super) fn new(span: Span, message: impl Into<String>) -> EvaluationFault {
        EvaluationFault { span, message: message.into(), suggestion: None, is_end: false }
    }
    pub(super) fn too_deep(span: Span) -> EvaluationFault {
        let fault = EvaluationFault::new(span, format!("expressions are nested more than {DEEPEST} deep"));
        fault.advise("make parts of it `locals`")
    }
    pub(super) fn too_large(span: &Span) -> EvaluationFault {
        EvaluationFault::new(span.clone(), "the number is too large").advise("write it in quotes if it is a text")
    }
    fn end(span: &Span, message: String) -> EvaluationFault {
        let fault = EvaluationFault { is_end: true, ..EvaluationFault::new(span.clone(), message) };
        fault.advise("make it smaller: fewer elements, or several job files")
    }
    #[must_use]
    pub(super) fn advise(self, suggestion: impl Into<String>) -> EvaluationFault {
        EvaluationFault { suggestion: Some(suggestion.into()), ..self }
    }
}

/// Where an expression stands; what the parser gives no place has that of what is around it.
pub(super) fn span_of(expression: &Expression, around: &Span) -> Span {
    expression.span().unwrap_or_else(|| around.clone())
}

/// What an evaluation takes from outside of the file: files and chance.
pub trait ExternalInputs {
    /// Errors: why it cannot be read, in words.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;
    /// Errors: why that cannot be known.
    fn exists(&self, path: &str) -> Result<bool, String>;
    /// The files below `directory` whose relative paths fit a pattern, in order.
    fn list(&self, directory: &str, pattern: &str) -> Result<Vec<String>, String>;
    /// The directory from which relative paths are read. Errors: why it cannot be known.
    fn directory(&self) -> Result<String, String>;
    /// A random UUID. Errors: why there is none.
    fn uuid(&self) -> Result<String, String>;
}

/// For a file that is judged by itself.
pub struct NoExternalInputs;

impl ExternalInputs for NoExternalInputs {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        Err(format!("{path}: only the command that submits a job reads files"))
    }
    fn exists(&self, path: &str) -> Result<bool, String> {
        self.read(path).map(|_| false)
    }
    fn list(&self, directory: &str, _: &str) -> Result<Vec<String>, String> {
        self.read(directory).map(|_| Vec::new())
    }
    fn directory(&self) -> Result<String, String> {
        Err("only the command that submits a job has a directory".to_owned())
    }
    fn uuid(&self) -> Result<String, String> {
        Err("there is no chance here".to_owned())
    }
}

/// What is left of steps and bytes; and what is worth a warning.
#[derive(Debug)]
pub struct Budget {
    steps: Cell<u64>,
    bytes: Cell<usize>,
    pub(super) depth: Cell<usize>,
    has_ended: Cell<bool>,
    warnings: RefCell<Vec<EvaluationFault>>,
}

impl Default for Budget {
    fn default() -> Budget {
        let (steps, bytes) = (Cell::new(MOST_STEPS), Cell::new(MOST_BYTES));
        Budget { steps, bytes, depth: Cell::new(0), has_ended: Cell::new(false), warnings: RefCell::default() }
    }
}

impl Budget {
    /// Once for each place, however often it is evaluated.
    pub(super) fn warn(&self, warning: EvaluationFault) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < MOST_WARNINGS && warnings.iter().all(|other| other.span != warning.span) {
            warnings.push(warning);
        }
    }
    pub fn into_warnings(self) -> Vec<EvaluationFault> {
        self.warnings.into_inner()
    }
    /// Errors: steps or bytes were used up before, even where an expression went on without what it could not have.
    pub(super) fn still_lasts(&self, span: &Span) -> Evaluated<()> {
        if self.has_ended.get() {
            Err(EvaluationFault::end(span, "the evaluation ended before".to_owned()))
        } else {
            Ok(())
        }
    }
    pub(super) fn step(&self, span: &Span) -> Evaluated<()> {
        match self.steps.get().checked_sub(1) {
            Some(left) => self.steps.set(left),
            None => return Err(self.end(span, format!("it takes more than {MOST_STEPS} steps"))),
        }
        Ok(())
    }
    pub(super) fn bytes(&self, span: &Span, bytes: usize) -> Evaluated<()> {
        match self.bytes.get().checked_sub(bytes) {
            Some(left) => self.bytes.set(left),
            None => {
                // No smaller value fits after one that does not.
                self.bytes.set(0);
                let message = format!("values and expanded blocks take more than {} MiB", MOST_BYTES >> 20);
                return Err(self.end(span, message));
            }
        }
        Ok(())
    }
    fn end(&self, span: &Span, message: String) -> EvaluationFault {
        self.has_ended.set(true);
        EvaluationFault::end(span, message)
    }
}
