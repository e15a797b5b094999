//! Values of variables with `sensitive = true`: all that they have been given, and each text within.

use hcl_edit::expr::Expression;
use hcl_edit::structure::{Block, Body, Structure};

use super::basis::Fault;
use super::constants::{constant, place};
use super::given::GivenVariables;
use super::scope::Scope;
use super::types::{Type, type_of};
use super::value::HclValue;
use crate::model::sensitive::{MOST, SensitiveValues};

/// Whether the block says so. What is neither true nor false is refused elsewhere, and hides the value until then.
pub(super) fn is_sensitive(block: &Block, scope: &Scope<'_>) -> bool {
    let attribute = block.body.get_attribute("sensitive");
    attribute.is_some_and(|attribute| {
        constant(&attribute.value, scope).ok().and_then(|value| value.to_bool()).unwrap_or(true)
    })
}

/// Before anything is evaluated with them, so that no message shows one.
pub(super) fn values(
    body: &Body,
    given: &GivenVariables,
    scope: &Scope<'_>,
    report: &mut dyn FnMut(Fault),
) -> SensitiveValues {
    let mut values = SensitiveValues::default();
    let blocks = body.iter().filter_map(Structure::as_block).filter(|block| block.ident.as_str() == "variable");
    for block in blocks.filter(|block| is_sensitive(block, scope)) {
        let name = block.labels.first().map(|label| label.as_str());
        let kind = block.body.get_attribute("type").and_then(|attribute| type_of(&attribute.value).ok());
        let kind = kind.unwrap_or(Type::Any);
        let default = block.body.get_attribute("default");
        let default = default.and_then(|attribute| constant(&attribute.value, scope).ok());
        let mut fits = default.is_none_or(|value| collect(&value, &kind, &mut values));
        let mut given = given.0.iter().filter(|(given, _)| Some(given.as_str()) == name).map(|(_, value)| value);
        let last = given.next_back();
        given.chain(last).for_each(|value| fits &= values.add(&value.text));
        // Any other text stands for itself, and must not be evaluated.
        if let Some(value) = last.filter(|_| kind.is_collection())
            && let Ok(expression) = value.text.parse::<Expression>()
            && let Ok(value) = scope.evaluate(&expression)
        {
            fits &= collect(&value, &kind, &mut values);
        }
        if !fits {
            report(Fault::new(place(block), format!("sensitive variables have more than {MOST} values in all")));
            break;
        }
    }
    values
}

/// `false`: there are too many.
fn collect(value: &HclValue, kind: &Type, values: &mut SensitiveValues) -> bool {
    match (value, kind) {
        (HclValue::List(list), Type::List(inner)) => list.iter().all(|one| collect(one, inner, values)),
        (HclValue::List(list), Type::Tuple(kinds)) => {
            let kinds = kinds.iter().chain(std::iter::repeat(&Type::Any));
            list.iter().zip(kinds).all(|(one, kind)| collect(one, kind, values))
        }
        (HclValue::List(list), _) => list.iter().all(|one| collect(one, &Type::Any, values)),
        // The names of its fields stand in its type.
        (HclValue::Object(object), Type::Object(fields)) => {
            object.iter().all(|(key, one)| collect(one, fields.get(key).unwrap_or(&Type::Any), values))
        }
        (HclValue::Object(object), kind) => {
            let inner = if let Type::Map(inner) = kind { inner } else { &Type::Any };
            object.iter().all(|(key, one)| values.add(key) && collect(one, inner, values))
        }
        (HclValue::Text(text), _) => {
            // A word without quotes became a reference of that name.
            let word = text.strip_prefix("${").and_then(|text| text.strip_suffix('}'));
            values.add(text) && word.is_none_or(|word| values.add(word))
        }
        (value, _) => value.to_text().is_none_or(|text| values.add(&text)),
    }
}
