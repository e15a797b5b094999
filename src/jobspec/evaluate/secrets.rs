//! Values of variables with `sensitive = true`: all that they have been given, and each text within.

use std::collections::BTreeMap;

use hcl_edit::structure::{Block, Body, Structure};

use super::basis::EvaluationFault;
use super::constants::{constant, place, read};
use super::inputs::GivenVariables;
use super::scope::EvaluationScope;
use super::types::{VariableType, type_of};
use super::value::HclValue;
use crate::model::sensitive::{MOST, MOST_BYTES, SensitiveValues};

/// Whether the block says so. What is neither true nor false is refused elsewhere, and hides the value until then.
pub(super) fn is_sensitive(block: &Block, scope: &EvaluationScope<'_>) -> bool {
    let attribute = block.body.get_attribute("sensitive");
    attribute.is_some_and(|attribute| {
        constant(&attribute.value, scope).ok().and_then(|value| value.to_bool()).unwrap_or(true)
    })
}

/// What the given texts of collections are, by variable: each is evaluated once.
pub(super) type ReadValues = BTreeMap<String, Result<HclValue, String>>;

/// Before anything is evaluated with them, so that no message shows one.
pub(super) fn values(
    body: &Body,
    given: &GivenVariables,
    scope: &EvaluationScope<'_>,
    report: &mut dyn FnMut(EvaluationFault),
) -> (SensitiveValues, ReadValues) {
    let (mut values, mut all_read, mut refused) = (SensitiveValues::default(), ReadValues::new(), None);
    let blocks = body.iter().filter_map(Structure::as_block).filter(|block| block.ident.as_str() == "variable");
    for block in blocks.filter(|block| is_sensitive(block, scope)) {
        let name = block.labels.first().map(|label| label.as_str());
        let kind = block.body.get_attribute("type").and_then(|attribute| type_of(&attribute.value).ok());
        let kind = kind.unwrap_or(VariableType::Any);
        let default = block.body.get_attribute("default");
        let default = default.and_then(|attribute| constant(&attribute.value, scope).ok());
        let mut fits = default.is_none_or(|value| collect(&value, &kind, &mut values));
        let mut given = given.0.iter().filter(|(given, _)| Some(given.as_str()) == name).map(|(_, value)| value);
        let last = given.next_back();
        given.chain(last).for_each(|value| fits &= add(&value.text, &mut values));
        // Any other text stands for itself, and must not be evaluated.
        if let (Some(name), Some(value)) = (name, last.filter(|_| kind.is_collection())) {
            let value = read(value, &kind, scope);
            if let Ok(value) = &value {
                fits &= collect(value, &kind, &mut values);
            }
            all_read.insert(name.to_owned(), value);
        }
        if !fits {
            refused.get_or_insert_with(|| place(block));
        }
    }
    if let Some(at) = refused {
        let most = format!("more than {MOST} values and lines, or {} KiB, in all", MOST_BYTES >> 10);
        report(EvaluationFault::new(at, format!("sensitive variables have {most}")));
    }
    (values, all_read)
}

/// `false`: there are too many.
fn collect(value: &HclValue, kind: &VariableType, values: &mut SensitiveValues) -> bool {
    // All of them, also those that are too many: a message may show any.
    let mut fits = true;
    match (value, kind) {
        (HclValue::List(list) | HclValue::Set(list), kind) => {
            for (at, one) in list.iter().enumerate() {
                let inner = match kind {
                    VariableType::List(inner) | VariableType::Set(inner) => inner,
                    VariableType::Tuple(kinds) => kinds.get(at).unwrap_or(&VariableType::Any),
                    _ => &VariableType::Any,
                };
                fits &= collect(one, inner, values);
            }
        }
        // The names of its fields stand in its type.
        (HclValue::Object(object), VariableType::Object(fields)) => {
            for (key, one) in object {
                fits &= collect(one, fields.get(key).unwrap_or(&VariableType::Any), values);
            }
        }
        (HclValue::Object(object), kind) => {
            let inner = if let VariableType::Map(inner) = kind { inner } else { &VariableType::Any };
            for (key, one) in object {
                fits &= values.add(key);
                fits &= collect(one, inner, values);
            }
        }
        (value, _) => {
            if let Some(text) = value.to_text() {
                fits &= add(&text, values);
                // A word without quotes became a reference of that name.
                let word = text.strip_prefix("${").and_then(|text| text.strip_suffix('}'));
                word.into_iter().for_each(|word| fits &= values.add(word));
            }
        }
    }
    fits
}

/// As it is, and as it is written where a number is expected: `007` becomes `7` there.
fn add(text: &str, values: &mut SensitiveValues) -> bool {
    let number = HclValue::from(text.trim()).to_number().and_then(|number| number.to_text());
    let fits = values.add(text);
    number.is_none_or(|number| values.add(&number)) && fits
}

#[cfg(test)]
mod tests {
    use super::super::inputs::GivenValue;
    use crate::jobspec::evaluate::basis::NoExternalInputs;
    use crate::jobspec::hcl::Inputs;
    use crate::jobspec::{GivenVariables, parse_with};

    /// What is hidden of a text by a job whose only variable has this type and value, or why it is refused.
    fn hidden(kind: &str, value: &str, text: &str) -> Result<String, String> {
        let file = format!(
            "variable \"s\" {{\n type = {kind}\n sensitive = true\n}}\njob \"j\" {{\n group \"g\" {{\n task \"t\" {{\n \
             driver = \"mock\"\n config {{\n }}\n }}\n }}\n}}\n"
        );
        let given = GivenValue { text: value.to_owned(), from: "--var".to_owned(), may_be_unused: false };
        let given = GivenVariables(vec![("s".to_owned(), given)]);
        let parsed = parse_with("x.hcl", &file, Inputs { given: &given, outside: &NoExternalInputs }, |_| Vec::new());
        let sensitive = parsed.map_err(|errors| errors.to_string())?.job.sensitive;
        Ok(sensitive.hide_in_json(&serde_json::from_str(text).unwrap()).to_string())
    }

    #[test]
    fn number_is_hidden_as_given_and_as_the_job_has_it() {
        for kind in ["string", "number", "any"] {
            assert_eq!(hidden(kind, "007123", "[7123, 7124]"), Ok("[\"(sensitive)\",7124]".to_owned()), "{kind}");
            assert_eq!(hidden(kind, "007123", "[\"a 007123\"]"), Ok("[\"a (sensitive)\"]".to_owned()), "{kind}");
        }
        assert_eq!(hidden("list(number)", "[\"0.250\"]", "0.25"), Ok("\"(sensitive)\"".to_owned()));
    }

    #[test]
    fn values_that_are_too_many_or_too_long_are_refused_and_not_shown() {
        let many: Vec<String> = (0..1_001).map(|n| format!("\"geheim {n}\"")).collect();
        let refused = hidden("list(string)", &format!("[{}]", many.join(", ")), "1").unwrap_err();
        assert!(refused.contains("more than 1000 values and lines, or 64 KiB"), "{refused}");
        assert!(!refused.contains("geheim"), "{refused}");
        let refused = hidden("string", &"geheim\n".repeat(1_001), "1").unwrap_err();
        assert!(refused.contains("more than 1000 values and lines") && !refused.contains("geheim"), "{refused}");
        // No parser reads it.
        let long = format!("[\"{}\"]", "geheim".repeat(50_000));
        let refused = hidden("list(string)", &long, "1").unwrap_err();
        assert!(refused.contains("it must be a value of its type") && !refused.contains("geheim"), "{refused}");
    }

    #[test]
    fn collection_longer_than_a_job_file_is_refused() {
        use super::super::{basis::Budget, constants::read, scope::EvaluationScope, types::VariableType};
        let budget = Budget::default();
        let scope = EvaluationScope::new(&NoExternalInputs, &budget);
        let read = |length: usize| {
            let text = format!("[\"{}\"]", "x".repeat(length));
            let given = GivenValue { text, from: "--var".to_owned(), may_be_unused: false };
            read(&given, &VariableType::List(Box::new(VariableType::Text)), &scope)
        };
        assert!(read(200_000).is_ok());
        assert_eq!(read(256 << 10), Err("it is longer than 256 KiB".to_owned()));
    }
}
