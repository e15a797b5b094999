//! Executes the nodes of a template; pipelines are in `evaluate`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use super::external::TemplateSources;
use super::fault::UnlocatedFault;
use super::functions::Tools;
use super::meter::{Checked, TemplateMeter};
use super::printing;
use super::tree::{BranchNode, ParsedTemplate, TemplateNode};
use super::value::TemplateValue;

/// One rendering.
pub(super) struct Interpreter<'t> {
    pub(super) parsed: &'t ParsedTemplate,
    pub(super) error_on_missing_key: bool,
    pub(super) meter: TemplateMeter,
    pub(super) tools: Tools<'t>,
    /// What `scratch.Set` stored.
    pub(super) scratch: RefCell<BTreeMap<String, TemplateValue>>,
}

/// The variables of one template with their values, innermost last.
pub(super) type TemplateVariables = Vec<(String, TemplateValue)>;

/// Where execution goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

impl<'t> Interpreter<'t> {
    pub(super) fn new(
        parsed: &'t ParsedTemplate,
        error_on_missing_key: bool,
        sources: &'t dyn TemplateSources,
    ) -> Interpreter<'t> {
        let tools = Tools::new(sources);
        let meter = TemplateMeter::new(sources.deadline());
        Interpreter { parsed, error_on_missing_key, meter, tools, scratch: RefCell::default() }
    }

    pub(super) fn render(&self, data: TemplateValue) -> Checked<String> {
        let mut out = String::new();
        self.body(&self.parsed.main, data, &mut out)?;
        Ok(out)
    }

    /// A template of its own: it sees only its data.
    fn body(&self, nodes: &[TemplateNode], data: TemplateValue, out: &mut String) -> Checked {
        let mut variables = vec![("$".to_owned(), data.clone())];
        self.list(nodes, &data, &mut variables, out).map(|_| ())
    }

    /// The template of `define` that has this name, into `out`.
    pub(super) fn call(&self, name: &str, data: TemplateValue, span: &Range<usize>, out: &mut String) -> Checked {
        let nodes = self.parsed.defined.get(name);
        let nodes =
            nodes.ok_or_else(|| UnlocatedFault::new(span.clone(), format!("template {name:?} is not defined")))?;
        self.meter.steps(span, 1)?;
        self.meter.nested(span, || self.body(nodes, data, out))
    }

    fn list(
        &self,
        nodes: &[TemplateNode],
        dot: &TemplateValue,
        variables: &mut TemplateVariables,
        out: &mut String,
    ) -> Checked<Flow> {
        for node in nodes {
            let flow = self.node(node, dot, variables, out)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    /// A list of nodes with its own variables.
    fn scoped(
        &self,
        nodes: &[TemplateNode],
        dot: &TemplateValue,
        variables: &mut TemplateVariables,
        out: &mut String,
    ) -> Checked<Flow> {
        let scope = variables.len();
        let flow = self.list(nodes, dot, variables, out);
        variables.truncate(scope);
        flow
    }

    fn node(
        &self,
        node: &TemplateNode,
        dot: &TemplateValue,
        variables: &mut TemplateVariables,
        out: &mut String,
    ) -> Checked<Flow> {
        match node {
            TemplateNode::Text(text, span) => {
                self.meter.steps(span, 1)?;
                self.meter.write(span, out, text)?;
            }
            TemplateNode::Action(pipeline) => {
                let value = self.pipeline(pipeline, dot, variables)?;
                if pipeline.variables.is_empty() {
                    self.meter.bytes(&pipeline.span, value.bytes())?;
                    let written =
                        printing::action(&value).map_err(|why| UnlocatedFault::new(pipeline.span.clone(), why))?;
                    self.meter.write(&pipeline.span, out, &written)?;
                }
            }
            TemplateNode::If(branch) => return self.branch(branch, false, dot, variables, out),
            TemplateNode::With(branch) => return self.branch(branch, true, dot, variables, out),
            TemplateNode::Range(branch) => {
                let scope = variables.len();
                let span = &branch.pipeline.span;
                let flow = self.meter.nested(span, || self.range(branch, dot, variables, out));
                variables.truncate(scope);
                return flow;
            }
            TemplateNode::Call { name, data, span } => {
                let data = match data {
                    Some(data) => self.pipeline(data, dot, variables)?,
                    None => TemplateValue::Nil,
                };
                self.call(name, data, span, out)?;
            }
            TemplateNode::Break => return Ok(Flow::Break),
            TemplateNode::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn branch(
        &self,
        branch: &BranchNode,
        sets_dot: bool,
        dot: &TemplateValue,
        variables: &mut TemplateVariables,
        out: &mut String,
    ) -> Checked<Flow> {
        let scope = variables.len();
        let flow = self.meter.nested(&branch.pipeline.span, || {
            let value = self.pipeline(&branch.pipeline, dot, variables)?;
            match (value.is_true(), sets_dot) {
                (true, true) => self.scoped(&branch.body, &value, variables, out),
                (true, false) => self.scoped(&branch.body, dot, variables, out),
                (false, _) => self.scoped(&branch.otherwise, dot, variables, out),
            }
        });
        variables.truncate(scope);
        flow
    }

    fn range(
        &self,
        branch: &BranchNode,
        dot: &TemplateValue,
        variables: &mut TemplateVariables,
        out: &mut String,
    ) -> Checked<Flow> {
        let (pipeline, span) = (&branch.pipeline, &branch.pipeline.span);
        // Declares the variables as Go does: `else` sees them.
        let value = self.pipeline(pipeline, dot, variables)?;
        let mut one = |key: TemplateValue, element: TemplateValue, variables: &mut TemplateVariables| {
            self.meter.steps(span, 1)?;
            let scope = variables.len();
            match (pipeline.variables.as_slice(), pipeline.is_assignment) {
                ([], _) => {}
                ([only], true) => assign(variables, only, element.clone(), span)?,
                ([first, second, ..], true) => {
                    assign(variables, first, key, span)?;
                    assign(variables, second, element.clone(), span)?;
                }
                ([only], false) => variables.push((only.clone(), element.clone())),
                ([first, second, ..], false) => {
                    variables.push((first.clone(), key));
                    variables.push((second.clone(), element.clone()));
                }
            }
            let flow = self.list(&branch.body, &element, variables, out);
            variables.truncate(scope);
            flow
        };
        let mut is_empty = true;
        match &value {
            TemplateValue::Nil => {}
            TemplateValue::List(list) => {
                for (at, element) in (0..).zip(list.items()) {
                    is_empty = false;
                    if one(TemplateValue::Int(at), element.clone(), variables)? == Flow::Break {
                        break;
                    }
                }
            }
            TemplateValue::Map(map) => {
                for (key, element) in map.entries() {
                    is_empty = false;
                    if one(key.as_str().into(), element.clone(), variables)? == Flow::Break {
                        break;
                    }
                }
            }
            TemplateValue::Count(from, to) => {
                for (at, n) in (0..).zip(*from..*to) {
                    is_empty = false;
                    if one(TemplateValue::Int(at), TemplateValue::Int(n), variables)? == Flow::Break {
                        break;
                    }
                }
            }
            TemplateValue::Int(_) | TemplateValue::Uint(_) if pipeline.variables.len() > 1 => {
                return Err(UnlocatedFault::new(span.clone(), "range over a number takes one variable"));
            }
            TemplateValue::Int(_) | TemplateValue::Uint(_) => {
                let to = if let TemplateValue::Uint(n) = value { n } else { 0 };
                let to = if let TemplateValue::Int(n) = value { u64::try_from(n).unwrap_or(0) } else { to };
                for n in 0..to {
                    is_empty = false;
                    let n = i64::try_from(n).map_or(TemplateValue::Uint(n), TemplateValue::Int);
                    if one(TemplateValue::Nil, n, variables)? == Flow::Break {
                        break;
                    }
                }
            }
            other => {
                return Err(UnlocatedFault::new(
                    span.clone(),
                    format!("range takes a list or a map, not {}", other.type_name()),
                ));
            }
        }
        if is_empty {
            return self.scoped(&branch.otherwise, dot, variables, out);
        }
        Ok(Flow::Next)
    }
}

/// Gives the innermost variable of that name a value.
pub(super) fn assign(
    variables: &mut TemplateVariables,
    name: &str,
    value: TemplateValue,
    span: &Range<usize>,
) -> Checked {
    match variables.iter_mut().rev().find(|(known, _)| known == name) {
        Some((_, there)) => *there = value,
        None => return Err(UnlocatedFault::new(span.clone(), format!("undefined variable {name}"))),
    }
    Ok(())
}
