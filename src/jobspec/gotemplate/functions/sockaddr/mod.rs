//! `sockaddr`: the addresses of the host's interfaces, by a pipeline of its own. Source: go-sockaddr, package template.
//!
//! ```text
//! GetPrivateInterfaces | include "network" "10.0.0.0/8" | attr "address"
//! └ source               └ filters                        └ the text
//! ```
//! A pipeline is checked when the template is parsed (`pipeline`), and executed when it is rendered (`evaluate`).
//! A check compiles no pattern.

mod blocks;
mod evaluate;
mod pipeline;

use super::arguments::{ANY, TemplateFunction, TemplateFunctionResult, Tools, matches, text};

pub(super) const NAME: &str = "sockaddr";

pub(super) static FUNCTIONS: &[TemplateFunction] = &[matches(NAME, (1, ANY), sockaddr)];

/// Errors: what is wrong with a pipeline, and what to write instead.
pub(super) fn check(pipeline: &str) -> Result<(), (String, String)> {
    pipeline::parse(pipeline).map(drop)
}

/// As in consul-template, several arguments are one pipeline.
fn sockaddr(
    arguments: &[crate::jobspec::gotemplate::value::TemplateValue],
    tools: &Tools<'_>,
) -> TemplateFunctionResult {
    let texts = (0..arguments.len()).map(|at| text(arguments, at)).collect::<Result<Vec<_>, _>>()?;
    let parsed = pipeline::parse(&texts.join(" ")).map_err(|(message, advice)| format!("{message}; {advice}"))?;
    Ok(evaluate::evaluate(&parsed, tools.sources.addresses()?, tools)?.into())
}
