//! Go's `text/template` with the functions of consul-template: what a job's `template` stanza renders.
//!
//! ```text
//! lexer → parser → tree → interpreter → output
//!                           │ functions/ (one table per subject)
//!                           └ TemplateSources: environment, files, key tree, addresses, clock
//! ```
//!
//! A template is hostile input. Steps, bytes, nesting and output are bounded (`meter`); no text panics. Functions that
//! need Consul, Vault or another host are refused when the template is parsed, with their place.

mod evaluate;
mod external;
mod fault;
mod floats;
mod functions;
mod interpreter;
mod lexer;
mod literals;
mod meter;
mod parser;
mod pipelines;
mod printing;
mod quoting;
mod tree;
mod value;
mod verbs;

#[cfg(test)]
mod tests;

use std::time::Instant;

pub use external::TemplateSources;
pub use fault::TemplateFault;
pub use functions::names as function_names;
pub(in crate::jobspec) use functions::parsed_yaml;
pub use value::{TemplateKeyPair, TemplateValue};

use fault::UnlocatedFault;
use interpreter::Interpreter;
use tree::{ParsedTemplate, ReadKind};

/// The longest text that is parsed.
const MOST_TEXT: usize = 4 << 20;

/// How a template is parsed and rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateOptions {
    /// Begins an action; empty: `{{`.
    pub left_delimiter: String,
    /// Ends an action; empty: `}}`.
    pub right_delimiter: String,
    /// A missing key of a map is a fault instead of `<no value>`.
    pub error_on_missing_key: bool,
}

impl Default for TemplateOptions {
    fn default() -> TemplateOptions {
        TemplateOptions {
            left_delimiter: "{{".to_owned(),
            right_delimiter: "}}".to_owned(),
            error_on_missing_key: false,
        }
    }
}

/// A parsed template: renders as often as wanted.
#[derive(Debug, Clone)]
pub struct GoTemplate {
    text: String,
    error_on_missing_key: bool,
    parsed: ParsedTemplate,
}

impl GoTemplate {
    /// Errors: the first syntax error, and the first functions that do not exist or are refused, in file order.
    pub fn parse(text: &str, options: &TemplateOptions) -> Result<GoTemplate, Vec<TemplateFault>> {
        GoTemplate::parse_until(text, options, None)
    }

    /// As [`GoTemplate::parse`], of a text that its task may have written: parsing is abandoned at the deadline.
    pub fn parse_until(
        text: &str,
        options: &TemplateOptions,
        deadline: Option<Instant>,
    ) -> Result<GoTemplate, Vec<TemplateFault>> {
        let or = |written: &str, default: &str| match written {
            "" => default.to_owned(),
            written => written.to_owned(),
        };
        let (left, right) = (or(&options.left_delimiter, "{{"), or(&options.right_delimiter, "}}"));
        let parsed = if text.len() > MOST_TEXT {
            Err(vec![UnlocatedFault::new(0..0, format!("the template is longer than {} MiB", MOST_TEXT >> 20))])
        } else {
            let tokens = lexer::tokens(text, &left, &right).map_err(|wrong| vec![wrong]);
            tokens.and_then(|tokens| parser::parse(tokens, deadline))
        };
        match parsed {
            Ok(parsed) => {
                let error_on_missing_key = options.error_on_missing_key;
                Ok(GoTemplate { text: text.to_owned(), error_on_missing_key, parsed })
            }
            Err(wrongs) => Err(wrongs.into_iter().map(|wrong| wrong.locate(text)).collect()),
        }
    }

    /// The text with every action executed. `$` and `.` are nil at first, as consul-template has them.
    ///
    /// Errors: the first fault; [`TemplateFault::waits`] if rendering can succeed once a key exists.
    pub fn render(&self, sources: &dyn TemplateSources) -> Result<String, TemplateFault> {
        self.render_with(TemplateValue::Nil, sources)
    }

    /// As [`GoTemplate::render`], with data.
    pub fn render_with(&self, data: TemplateValue, sources: &dyn TemplateSources) -> Result<String, TemplateFault> {
        let interpreter = Interpreter::new(&self.parsed, self.error_on_missing_key, sources);
        interpreter.render(data).map_err(|wrong| wrong.locate(&self.text))
    }

    /// Whether it calls a function whose result can change while the task runs.
    pub fn reads_outside(&self) -> bool {
        !self.parsed.reads.is_empty()
    }

    /// The first function that reads the key tree, with its line and column.
    pub fn key_function(&self) -> Option<(&str, usize, usize)> {
        let keys = self.parsed.reads.iter().filter(|(_, (kind, _))| *kind == ReadKind::Key);
        let (name, (_, span)) = keys.min_by_key(|(_, (_, span))| span.start)?;
        let place = UnlocatedFault::new(span.clone(), "").locate(&self.text);
        Some((name, place.line, place.column))
    }

    /// Text without an action: it renders to the same bytes each time.
    pub fn is_static(&self) -> bool {
        self.parsed.is_static()
    }
}
