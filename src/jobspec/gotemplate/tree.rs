//! The parsed template.

use std::collections::BTreeMap;
use std::ops::Range;

use super::value::TemplateValue;

#[derive(Debug, Clone, Default)]
pub(super) struct ParsedTemplate {
    pub(super) main: Vec<TemplateNode>,
    /// Of `define` and `block`.
    pub(super) defined: BTreeMap<String, Vec<TemplateNode>>,
    /// The first call of each function that reads files or keys.
    pub(super) reads: BTreeMap<String, (ReadKind, Range<usize>)>,
}

/// What a function reads that may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadKind {
    File,
    Key,
}

#[derive(Debug, Clone)]
pub(super) enum TemplateNode {
    Text(String, Range<usize>),
    Action(Pipeline),
    If(BranchNode),
    With(BranchNode),
    Range(BranchNode),
    Call { name: String, data: Option<Pipeline>, span: Range<usize> },
    Break,
    Continue,
}

/// `if`, `with` and `range`: a pipeline, what follows if it is true, and else.
#[derive(Debug, Clone)]
pub(super) struct BranchNode {
    pub(super) pipeline: Pipeline,
    pub(super) body: Vec<TemplateNode>,
    pub(super) otherwise: Vec<TemplateNode>,
}

#[derive(Debug, Clone)]
pub(super) struct Pipeline {
    /// At most two, and two only of a `range`.
    pub(super) variables: Vec<String>,
    /// `=` instead of `:=`.
    pub(super) is_assignment: bool,
    pub(super) commands: Vec<PipelineCommand>,
    pub(super) span: Range<usize>,
}

/// An operand with its arguments; never empty.
#[derive(Debug, Clone)]
pub(super) struct PipelineCommand {
    pub(super) operands: Vec<Operand>,
    pub(super) span: Range<usize>,
}

#[derive(Debug, Clone)]
pub(super) struct Operand {
    pub(super) kind: OperandKind,
    pub(super) span: Range<usize>,
}

#[derive(Debug, Clone)]
pub(super) enum OperandKind {
    Dot,
    Nil,
    /// A boolean, number or string.
    Literal(TemplateValue),
    /// With the fields that follow it.
    Variable(String, Vec<String>),
    Field(Vec<String>),
    Function(String),
    Pipeline(Box<Pipeline>),
    /// A function or a pipeline in parentheses with the fields that follow it.
    Chain(Box<Operand>, Vec<String>),
}

impl ParsedTemplate {
    pub(super) fn is_static(&self) -> bool {
        self.main.iter().all(|node| matches!(node, TemplateNode::Text(..)))
    }
}
