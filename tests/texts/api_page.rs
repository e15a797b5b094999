//! The reference of the HTTP API in docs/endpoints.md, made from the document that `/v1/openapi.json` answers.

use std::fmt::Write as _;

use serde_json::Value;

use super::ends_with;

const HEADING: &str = "## Reference";

/// Promise (Input validation): `docs/endpoints.md` has every endpoint and type of `/v1/openapi.json`
#[test]
fn the_reference_of_the_api_has_every_endpoint_and_type_of_the_document() {
    let document = allostat::api::document();
    let page = page(&document);
    for route in allostat::api::ROUTES {
        assert!(page.contains(&format!("{}`\n", route.path)), "{}", route.path);
    }
    ends_with("docs/endpoints.md", HEADING, &page);
}

fn page(document: &Value) -> String {
    let mut page = format!(
        "{HEADING}\n\nGenerated from the code, as `GET /v1/openapi.json` is. Any request can be refused: then the answer is \
         [`ErrorBody`](#errorbody).\n"
    );
    for (path, operations) in document["paths"].as_object().expect("an object") {
        for (method, operation) in operations.as_object().expect("an object") {
            endpoint(&mut page, document, path, &method.to_uppercase(), operation);
        }
    }
    page += "\n## Types\n\nA field in *italics* may be absent. Texts and numbers with a meaning of their own come first.\n\n";
    page += "| type | JSON | |\n|---|---|---|\n";
    let schemas = document["components"]["schemas"].as_object().expect("an object");
    let (objects, plain): (Vec<_>, Vec<_>) = schemas.iter().partition(|(_, schema)| schema.get("properties").is_some());
    for (name, schema) in plain {
        let _ =
            writeln!(page, "| <a id=\"{}\"></a>`{name}` | {} | {} |", name.to_lowercase(), kind(schema), about(schema));
    }
    for (name, schema) in objects {
        object(&mut page, name, schema);
    }
    page.trim_end().to_owned()
}

fn endpoint(page: &mut String, document: &Value, path: &str, method: &str, operation: &Value) {
    let from = match operation.get("x-allostat-public").and_then(Value::as_str) {
        Some(from) => format!("`{from}`"),
        None => "clients that may act".to_owned(),
    };
    let summary = operation["summary"].as_str().unwrap_or_default();
    let _ = writeln!(page, "\n### `{method} {path}`\n\n{summary}\n\n- access: {from}");
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let word = |key: &str| parameter[key].as_str().unwrap_or_default();
        let place = if word("in") == "path" { "" } else { "?" };
        let _ = writeln!(page, "- `{place}{}`: {}", word("name"), word("description"));
    }
    if let Some(body) = operation.get("requestBody") {
        let _ = writeln!(page, "- body: {}", carried(body));
    }
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        if response.get("$ref").is_none() {
            let _ = writeln!(page, "- {status}: {}", carried(response));
        }
    }
    assert!(document["components"]["responses"]["Refused"].is_object());
}

/// The types of what a request or an answer carries.
fn carried(of: &Value) -> String {
    let contents = of["content"].as_object().into_iter().flatten();
    let kinds = contents.map(|(media, content)| match content.get("schema") {
        Some(schema) => kind(schema),
        None => format!("`{media}`"),
    });
    let kinds: Vec<String> = kinds.collect();
    let about = of["description"].as_str().unwrap_or_default();
    match (kinds.is_empty(), about) {
        (false, "The answer") => kinds.join(" or "),
        (false, about) => format!("{}. {about}", kinds.join(" or ")),
        (true, about) => about.to_owned(),
    }
}

fn object(page: &mut String, name: &str, schema: &Value) {
    let _ = writeln!(page, "\n### {name}\n");
    let text = about(schema);
    if !text.is_empty() {
        let _ = writeln!(page, "{text}\n");
    }
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    page.push_str("| field | type | |\n|---|---|---|\n");
    for (field, property) in schema["properties"].as_object().into_iter().flatten() {
        let shown =
            if required.contains(&Value::from(field.as_str())) { format!("`{field}`") } else { format!("*`{field}`*") };
        let _ = writeln!(page, "| {shown} | {} | {} |", kind(property), about(property));
    }
}

/// One line that fits a table.
fn about(schema: &Value) -> String {
    let own = schema["description"].as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let choices = schema["oneOf"].as_array().into_iter().flatten();
    let described = choices
        .filter_map(|choice| Some(format!("`{}`: {}", choice["const"].as_str()?, about(choice).trim_end_matches('.'))));
    let described: Vec<String> = described.filter(|text| !text.ends_with(": ")).collect();
    let end = if described.is_empty() { "" } else { "." };
    format!("{own} {}{end}", described.join("; ")).trim().replace('|', "\\|")
}

/// What a value is, with links to types.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(word) = schema.get("const") {
        return format!("`{}`", word.as_str().unwrap_or_default());
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().filter_map(Value::as_str).map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    for keyword in ["anyOf", "oneOf"] {
        if let Some(choices) = schema[keyword].as_array() {
            return choices.iter().map(kind).collect::<Vec<_>>().join(" or ");
        }
    }
    let kinds = schema["type"].as_array().cloned().unwrap_or_else(|| vec![schema["type"].clone()]);
    let named = kinds.iter().filter_map(Value::as_str).map(|kind| match kind {
        "array" => format!("list of {}", kind_of_items(schema)),
        "object" => of_object(schema),
        other => other.to_owned(),
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { "any".to_owned() } else { named.join(" or ") }
}

fn kind_of_items(schema: &Value) -> String {
    schema.get("items").map_or_else(|| "any".to_owned(), kind)
}

fn of_object(schema: &Value) -> String {
    match (schema.get("additionalProperties"), schema["properties"].as_object()) {
        (Some(values), _) if values.is_object() => format!("map of {}", kind(values)),
        (_, Some(properties)) => {
            let names: Vec<String> = properties.keys().map(|name| format!("`{name}`")).collect();
            format!("object: {}", names.join(", "))
        }
        _ => "object".to_owned(),
    }
}
