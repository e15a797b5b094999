//! Checks JSON against a schema of `/v1/openapi.json`, in both directions: what the schema requires must be there, and
//! every field must be in the schema.

use serde_json::{Map, Value};

/// Keywords that say nothing about what is allowed.
const NOTES: [&str; 5] = ["title", "description", "format", "default", "deprecated"];

pub struct Schemas(pub Value);

impl Schemas {
    /// Every difference, each with its place.
    pub fn differences(&self, schema: &Value, value: &Value) -> Vec<String> {
        let mut found = Vec::new();
        self.check(schema, value, "", &mut found);
        found
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        let Some(schema) = schema.as_object() else {
            if *schema == Value::Bool(false) {
                found.push(format!("{at}: nothing may be here, and there is {value}"));
            }
            return;
        };
        for (keyword, rule) in schema {
            match keyword.as_str() {
                "$ref" => {
                    let pointer = rule.as_str().and_then(|text| text.strip_prefix('#')).unwrap_or("no reference");
                    match self.0.pointer(pointer) {
                        Some(schema) => self.check(schema, value, at, found),
                        None => found.push(format!("{at}: {rule} leads nowhere")),
                    }
                }
                "type" => {
                    let kinds = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                    if !kinds.iter().any(|kind| is_a(value, kind.as_str().unwrap_or_default())) {
                        found.push(format!("{at}: {value} is no {rule}"));
                    }
                }
                "enum" if !rule.as_array().is_some_and(|all| all.contains(value)) => {
                    found.push(format!("{at}: {value} is none of {rule}"));
                }
                "const" if rule != value => found.push(format!("{at}: {value} is not {rule}")),
                "enum" | "const" => {}
                "minimum" | "maximum" => self.check_bound(keyword, rule, value, at, found),
                "items" => {
                    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(rule, item, &format!("{at}/{n}"), found);
                    }
                }
                "anyOf" | "oneOf" => self.check_choices(rule, value, at, found),
                "required" => {
                    let names = rule.as_array().into_iter().flatten().filter_map(Value::as_str);
                    let missing = names.filter(|name| value.is_object() && value.get(name).is_none());
                    found.extend(missing.map(|name| format!("{at}: {name} is missing")));
                }
                "properties" | "additionalProperties" => {}
                note if NOTES.contains(&note) => {}
                other => found.push(format!("{at}: this check does not know the keyword {other}")),
            }
        }
        if let Some(object) = value.as_object() {
            self.check_fields(schema, object, at, found);
        }
    }

    fn check_bound(&self, keyword: &str, rule: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        let Some((bound, number)) = rule.as_f64().zip(value.as_f64()) else { return };
        if if keyword == "minimum" { number < bound } else { number > bound } {
            found.push(format!("{at}: {number} is beyond the {keyword} {bound}"));
        }
    }

    fn check_choices(&self, rule: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        let choices = rule.as_array().into_iter().flatten();
        let wrong: Vec<Vec<String>> = choices
            .map(|choice| {
                let mut wrong = Vec::new();
                self.check(choice, value, at, &mut wrong);
                wrong
            })
            .collect();
        if wrong.iter().all(|wrong| !wrong.is_empty()) {
            found.push(format!("{at}: {value} fits no choice: {wrong:?}"));
        }
    }

    fn check_fields(
        &self,
        schema: &Map<String, Value>,
        object: &Map<String, Value>,
        at: &str,
        found: &mut Vec<String>,
    ) {
        // Of the schema that a reference or a choice leads to.
        if ["$ref", "anyOf", "oneOf"].iter().any(|keyword| schema.contains_key(*keyword)) {
            return;
        }
        for (name, value) in object {
            let at = format!("{at}/{name}");
            let named = schema.get("properties").and_then(|properties| properties.get(name));
            match named.or(schema.get("additionalProperties")) {
                Some(schema) => self.check(schema, value, &at, found),
                None => found.push(format!("{at}: the schema has no such field")),
            }
        }
    }
}

fn is_a(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

#[test]
fn differences_are_found_in_both_directions() {
    let schemas = Schemas(serde_json::json!({ "defs": { "Row": {
        "type": "object", "required": ["id"],
        "properties": { "id": { "type": "string" }, "n": { "type": "integer", "minimum": 0 }, "of": { "oneOf": [{ "const": "a" }, { "type": "null" }] } },
    } } }));
    let row = serde_json::json!({ "$ref": "#/defs/Row" });
    for (value, wrong) in [
        (r#"{"id":"x","n":3,"of":"a"}"#, 0),
        (r#"{"n":3}"#, 1),
        (r#"{"id":"x","more":1}"#, 1),
        (r#"{"id":"x","n":-1}"#, 1),
        (r#"{"id":"x","n":1.5}"#, 1),
        (r#"{"id":"x","of":"b"}"#, 1),
        (r#"[]"#, 1),
        (r#"{"more":null}"#, 2),
    ] {
        let found = schemas.differences(&row, &serde_json::from_str(value).expect("our own JSON"));
        assert_eq!(found.len(), wrong, "{value}: {found:?}");
    }
    let odd = serde_json::json!({ "type": "object", "patternProperties": {} });
    assert_eq!(
        schemas.differences(&odd, &serde_json::json!({})).len(),
        1,
        "a keyword that it does not know is no consent"
    );
}
