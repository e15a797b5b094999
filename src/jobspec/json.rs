//! JSON into the tree. Strict: no comments, no trailing commas, no second value.

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::diagnostic::{Problems, Span};
use super::tree::{Entry, Form, Literal, StanzaBody, ValueNode, number, text_value};

static STRICT: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// `None` if the syntax is broken or the file is no object: reported.
pub(super) fn read(problems: &Problems<'_>) -> Option<StanzaBody> {
    let text = problems.source().text();
    match parse_to_ast(text, &CollectOptions::default(), &STRICT) {
        Ok(parsed) => match parsed.value {
            Some(ast::Value::Object(object)) => Some(JsonLowering { problems }.body(&object)),
            Some(other) => {
                problems.error(&span(&other), "", "the file must be one JSON object", None);
                None
            }
            None => {
                let advice = Some("write {\"job\": {\"NAME\": ...}}".to_owned());
                problems.error(&(0..0), "", "the file is empty", advice);
                None
            }
        },
        Err(error) => {
            let range = error.range();
            let message = error.kind().to_string();
            let mut chars = message.chars();
            let message = chars.next().map(|c| c.to_lowercase().chain(chars).collect::<String>()).unwrap_or_default();
            match super::unclosed::find(text, range.start, false) {
                Some(span) => problems.error(
                    &span,
                    "",
                    "JSON syntax: this text has no end quote",
                    Some("end it with `\"`".to_owned()),
                ),
                None => {
                    let advice =
                        Some("texts and keys are in double quotes, and a comma stands between two entries".to_owned());
                    problems.error(&(range.start..range.end), "", format!("JSON syntax: {message}"), advice);
                }
            }
            None
        }
    }
}

fn span(ranged: &impl Ranged) -> Span {
    let range = ranged.range();
    range.start..range.end
}

struct JsonLowering<'p, 's> {
    problems: &'p Problems<'s>,
}

impl JsonLowering<'_, '_> {
    fn body(&self, object: &ast::Object<'_>) -> StanzaBody {
        let entries = object.properties.iter().map(|property| Entry {
            key: property.name.as_str().to_owned(),
            key_span: span(&property.name),
            form: Form::Json,
            labels: Vec::new(),
            value: self.node(&property.value),
        });
        StanzaBody { entries: entries.collect(), span: span(object) }
    }

    fn node(&self, value: &ast::Value<'_>) -> ValueNode {
        let at = span(value);
        let value = match value {
            ast::Value::NullKeyword(_) => Literal::Null,
            ast::Value::BooleanLit(b) => Literal::Bool(b.value),
            ast::Value::NumberLit(n) => number(self.problems, &at, n.value),
            ast::Value::StringLit(s) => self.text(&at, &s.value),
            ast::Value::Array(list) => Literal::List(list.elements.iter().map(|e| self.node(e)).collect()),
            ast::Value::Object(object) => Literal::Object(self.body(object)),
        };
        ValueNode { span: at, value }
    }

    /// Texts are templates, as in HCL; `%{` starts a directive, which is refused there too.
    fn text(&self, at: &Span, text: &str) -> Literal {
        if text.replace("%%{", "").contains("%{") {
            let advice = Some("for the two characters themselves write `%%{`".to_owned());
            self.problems.error(at, "", "template directives (`%{`) are not supported", advice);
            return Literal::Broken;
        }
        text_value(self.problems, at, text.replace("%%{", "%{"))
    }
}
