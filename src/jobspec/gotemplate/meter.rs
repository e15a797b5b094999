//! What rendering may cost: steps, time, bytes of values, nesting, output.

use std::cell::Cell;
use std::ops::Range;
use std::time::Instant;

use super::fault::UnlocatedFault;

/// Each executed node, evaluated operand and iteration is a step.
const MOST_STEPS: u64 = 200_000;
/// Of all values that functions take and make.
const MOST_BYTES: usize = 32 << 20;
const MOST_OUTPUT: usize = 16 << 20;
/// Blocks, pipelines and called templates within each other.
const DEEPEST: usize = 100;

pub(super) type Checked<T = ()> = Result<T, UnlocatedFault>;

/// Errors: the deadline has passed.
pub(super) fn in_time(deadline: Option<Instant>, span: &Range<usize>) -> Checked {
    match deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        true => Err(UnlocatedFault::new(span.clone(), "it takes too long")),
        false => Ok(()),
    }
}

/// What is left.
#[derive(Debug)]
pub(super) struct TemplateMeter {
    steps: Cell<u64>,
    bytes: Cell<usize>,
    depth: Cell<usize>,
    deadline: Option<Instant>,
}

impl TemplateMeter {
    pub(super) fn new(deadline: Option<Instant>) -> TemplateMeter {
        TemplateMeter { steps: Cell::new(MOST_STEPS), bytes: Cell::new(MOST_BYTES), depth: Cell::new(0), deadline }
    }
    pub(super) fn steps(&self, span: &Range<usize>, count: u64) -> Checked {
        let left = self.steps.get().checked_sub(count);
        let left =
            left.ok_or_else(|| UnlocatedFault::new(span.clone(), format!("it takes more than {MOST_STEPS} steps")))?;
        self.steps.set(left);
        in_time(self.deadline, span)
    }
    pub(super) fn bytes(&self, span: &Range<usize>, bytes: usize) -> Checked {
        let left = self.bytes.get().checked_sub(bytes);
        let message = || format!("functions process more than {} MiB", MOST_BYTES >> 20);
        self.bytes.set(left.ok_or_else(|| UnlocatedFault::new(span.clone(), message()))?);
        Ok(())
    }
    /// Appends to the output if there is room.
    pub(super) fn write(&self, span: &Range<usize>, out: &mut String, text: &str) -> Checked {
        if out.len().saturating_add(text.len()) > MOST_OUTPUT {
            return Err(UnlocatedFault::new(
                span.clone(),
                format!("the output is longer than {} MiB", MOST_OUTPUT >> 20),
            ));
        }
        out.push_str(text);
        Ok(())
    }
    /// Runs what is nested one level deeper.
    pub(super) fn nested<T>(&self, span: &Range<usize>, inside: impl FnOnce() -> Checked<T>) -> Checked<T> {
        let depth = self.depth.get();
        if depth >= DEEPEST {
            return Err(UnlocatedFault::new(
                span.clone(),
                format!("templates and pipelines nest deeper than {DEEPEST}"),
            ));
        }
        self.depth.set(depth + 1);
        let outcome = inside();
        self.depth.set(depth);
        outcome
    }
}
