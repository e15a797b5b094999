//! The form of `variable`, `variables` and `locals` blocks: labels and keys that Nomad's schemas of them permit.

use hcl_edit::structure::{Block, BlockLabel, Structure};
use hcl_edit::{Ident, Span as _};

use super::basis::{Evaluated, EvaluationFault};
use super::constants::place;

const OF_VARIABLE: [&str; 4] = ["type", "default", "description", "sensitive"];
const OF_VALIDATION: [&str; 2] = ["condition", "error_message"];
const VALIDATION: &str = "validation";

/// The name of a variable. Errors: it has none, several, or one to which no reference can lead.
pub(super) fn name_of(block: &Block) -> Evaluated<String> {
    let (Some(label), 1) = (block.labels.first(), block.labels.len()) else {
        return Err(EvaluationFault::new(place(block), "a variable has one name: variable \"NAME\" { ... }"));
    };
    let name = label.as_str();
    if Ident::try_new(name).is_err() {
        let at = match label {
            BlockLabel::Ident(ident) => ident.span(),
            BlockLabel::String(text) => text.span(),
        };
        let fault =
            EvaluationFault::new(at.unwrap_or_else(|| place(block)), format!("`{name}` is no name of a variable"));
        return Err(fault.advise("it begins with a letter or `_`, and has letters, digits, `_` and `-`"));
    }
    Ok(name.to_owned())
}

/// Errors: the first key of a variable that it does not have.
pub(super) fn keys(variable: &Block) -> Evaluated<()> {
    known(variable, "a variable", &OF_VARIABLE, &[VALIDATION])
}

/// Errors: a label, or the first key of a validation that it does not have.
pub(super) fn validation_keys(validation: &Block) -> Evaluated<()> {
    if !validation.labels.is_empty() {
        return Err(EvaluationFault::new(place(validation), "a validation has no name"));
    }
    known(validation, "a validation", &OF_VALIDATION, &[])
}

fn known(block: &Block, of: &str, attributes: &[&str], blocks: &[&str]) -> Evaluated<()> {
    for structure in block.body.iter() {
        let (key, span, is_block) = match structure {
            Structure::Attribute(attribute) => (attribute.key.as_str(), attribute.key.span(), false),
            Structure::Block(block) => (block.ident.as_str(), block.ident.span(), true),
        };
        let fault = |message: String| EvaluationFault::new(span.clone().unwrap_or_else(|| place(block)), message);
        return Err(match (is_block, attributes.contains(&key), blocks.contains(&key)) {
            (false, true, _) | (true, _, true) => continue,
            (true, true, _) => fault(format!("`{key}` is a value: write `{key} = ...`")),
            (false, _, true) => fault(format!("`{key}` is a stanza: write `{key} {{ ... }}` without `=`")),
            (_, false, false) => {
                let all: Vec<&str> = attributes.iter().chain(blocks).copied().collect();
                fault(format!("{of} has no `{key}`")).advise(format!("it has: {}", all.join(", ")))
            }
        });
    }
    Ok(())
}

/// `variables` and `locals` have attributes of any name, and nothing else.
pub(super) fn attributes_alone(block: &Block, report: &mut dyn FnMut(EvaluationFault)) {
    if !block.labels.is_empty() {
        report(EvaluationFault::new(place(block), format!("`{}` has no name", block.ident.as_str())));
    }
    for inner in block.body.blocks() {
        let key = inner.ident.as_str();
        report(EvaluationFault::new(place(inner), format!("`{key}` is a value: write `{key} = {{ ... }}`")));
    }
}

#[cfg(test)]
mod tests {
    use crate::jobspec::parse;

    fn first_error(declarations: &str) -> Option<String> {
        let job = "job \"j\" {\ngroup \"g\" {\ntask \"t\" {\ndriver = \"mock\"\nconfig {}\n}\n}\n}\n";
        let errors = parse("x.hcl", &format!("{declarations}\n{job}")).err()?;
        errors.to_string().lines().next().map(str::to_owned)
    }

    #[test]
    fn declarations_that_nomad_refuses_are_refused_with_their_place() {
        let of = |inner: &str| format!("variable \"a\" {{\ndefault = \"x\"\n{inner}\n}}");
        let with = |inner: &str| {
            of(&format!("validation {{\ncondition = var.a != \"\"\nerror_message = \"It is not empty.\"\n{inner}\n}}"))
        };
        assert_eq!(first_error(&of("description = 5")), None);
        assert_eq!(first_error(&with("")), None);
        assert_eq!(first_error("variable \"_a-1\" {\ndefault = 1\n}\nvariables {\nb = 1\n}\nlocals {\nc = 1\n}"), None);
        for (text, expected) in [
            ("variable {\ndefault = 1\n}".to_owned(), "x.hcl:1:1: error: a variable has one name"),
            ("variable \"a\" \"b\" {\ndefault = 1\n}".to_owned(), "x.hcl:1:1: error: a variable has one name"),
            ("variable \"1a\" {\ndefault = 1\n}".to_owned(), "error: `1a` is no name of a variable"),
            ("variable \"a b\" {\ndefault = 1\n}".to_owned(), "error: `a b` is no name of a variable"),
            ("variables \"a\" {\nb = 1\n}".to_owned(), "x.hcl:1:1: error: `variables` has no name"),
            ("variables {\nb {\nc = 1\n}\n}".to_owned(), "x.hcl:2:1: error: `b` is a value"),
            ("locals \"a\" {\nb = 1\n}".to_owned(), "x.hcl:1:1: error: `locals` has no name"),
            ("locals {\nb {\nc = 1\n}\n}".to_owned(), "x.hcl:2:1: error: `b` is a value"),
            (of("description = [\"x\"]"), "x.hcl:3:15: error: `description` is a text"),
            (of("type {\n}"), "x.hcl:3:1: error: `type` is a value"),
            (of("validation = {}"), "x.hcl:3:1: error: `validation` is a stanza"),
            (of("foo = 1"), "x.hcl:3:1: error: a variable has no `foo`"),
            (with("foo = 1"), "x.hcl:6:1: error: a validation has no `foo`"),
            (with("foo {\n}"), "x.hcl:6:1: error: a validation has no `foo`"),
            (with("").replace("validation", "validation \"x\""), "x.hcl:3:1: error: a validation has no name"),
        ] {
            let found = first_error(&text).unwrap_or_default();
            assert!(found.contains(expected), "{text}: {found}");
        }
    }
}
