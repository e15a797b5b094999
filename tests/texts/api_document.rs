//! The document of `/v1/openapi.json` is valid OpenAPI 3.1: programs that generate clients refuse one that is not.
//!
//! Source: OpenAPI Specification 3.1.1 (Paths, Parameter, Responses, Components Object); JSON Schema 2020-12.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
/// Keywords of JSON Schema and what their value is.
const KEYWORDS: [(&str, KeywordValue); 15] = [
    ("$ref", KeywordValue::Reference),
    ("type", KeywordValue::Type),
    ("enum", KeywordValue::Choices),
    ("const", KeywordValue::Any),
    ("minimum", KeywordValue::Number),
    ("maximum", KeywordValue::Number),
    ("items", KeywordValue::Schema),
    ("additionalProperties", KeywordValue::Schema),
    ("properties", KeywordValue::NamedSchemas),
    ("required", KeywordValue::Names),
    ("anyOf", KeywordValue::Schemas),
    ("oneOf", KeywordValue::Schemas),
    ("description", KeywordValue::Text),
    ("format", KeywordValue::Text),
    ("default", KeywordValue::Any),
];
const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

#[derive(Clone, Copy)]
enum KeywordValue {
    Any,
    Text,
    Number,
    Type,
    Choices,
    Names,
    Reference,
    Schema,
    Schemas,
    NamedSchemas,
}

/// Every violation, each with its place.
struct Validator<'d> {
    document: &'d Value,
    found: Vec<String>,
}

impl<'d> Validator<'d> {
    fn violations(document: &'d Value) -> Vec<String> {
        let mut validator = Validator { document, found: Vec::new() };
        validator.document();
        validator.found
    }

    fn require(&mut self, holds: bool, at: &str, rule: &str) {
        if !holds {
            self.found.push(format!("{at}: {rule}"));
        }
    }

    fn object(&mut self, value: &'d Value, at: &str) -> &'d Map<String, Value> {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        self.require(value.is_object(), at, "this is an object");
        value.as_object().unwrap_or(&EMPTY)
    }

    fn document(&mut self) {
        let document = self.document;
        let version = document["openapi"].as_str().unwrap_or_default();
        self.require(version.starts_with("3.1."), "/openapi", "the version is 3.1");
        for field in ["title", "version"] {
            self.require(document["info"][field].is_string(), "/info", &format!("{field} is required"));
        }
        let mut shapes = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for (path, item) in self.object(&document["paths"], "/paths") {
            self.require(path.starts_with('/'), path, "a path begins with a slash");
            let shape: Vec<&str> =
                path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part }).collect();
            self.require(shapes.insert(shape), path, "no other path differs in names of parameters alone");
            for (method, operation) in self.object(item, path) {
                let at = format!("{method} {path}");
                self.require(METHODS.contains(&method.as_str()), &at, "this is a method");
                let id = operation["operationId"].as_str().unwrap_or_default();
                self.require(!id.is_empty() && ids.insert(id), &at, "operationId is unique");
                self.parameters(path, operation, &at);
                self.responses(operation, &at);
                if let Some(body) = operation.get("requestBody") {
                    self.content(body, &format!("{at} requestBody"));
                    self.require(body.get("content").is_some(), &at, "a request body has a content");
                }
                self.security(operation, &at);
            }
        }
        for (kind, all) in self.object(&document["components"], "/components") {
            for (name, component) in self.object(all, kind) {
                let at = format!("/components/{kind}/{name}");
                let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
                self.require(name.chars().all(fits), &at, "a name has letters, digits and . _ - only");
                match kind.as_str() {
                    "schemas" => self.schema(component, &at),
                    "responses" => self.response(component, &at),
                    "securitySchemes" => self.scheme(component, &at),
                    _ => self.require(false, &at, "this validator knows this kind of component"),
                }
            }
        }
    }

    /// Those of the path are declared, and required; each is there once.
    fn parameters(&mut self, path: &str, operation: &'d Value, at: &str) {
        let mut declared = BTreeSet::new();
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let word = |key: &str| parameter[key].as_str().unwrap_or_default();
            let (name, place) = (word("name"), word("in"));
            let at = format!("{at} parameter {name}");
            self.require(!name.is_empty(), &at, "a parameter has a name");
            self.require(["path", "query", "header", "cookie"].contains(&place), &at, "`in` is a known place");
            self.require(declared.insert((place, name)), &at, "a parameter is declared once");
            self.require(place != "path" || parameter["required"] == true, &at, "one of the path is required");
            self.require(parameter.get("schema").is_some(), &at, "a parameter has a schema");
            self.schema(&parameter["schema"], &at);
        }
        let of_path: BTreeSet<(&str, &str)> = declared.into_iter().filter(|(place, _)| *place == "path").collect();
        let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let named: BTreeSet<(&str, &str)> = names.map(|name| ("path", name)).collect();
        self.require(of_path == named, at, "the parameters of the path are those in its braces");
    }

    fn responses(&mut self, operation: &'d Value, at: &str) {
        let responses = self.object(&operation["responses"], at);
        self.require(!responses.is_empty(), at, "there is a response");
        for (status, response) in responses {
            let at = format!("{at} {status}");
            let code = status.parse::<u16>().is_ok_and(|code| (100..600).contains(&code));
            self.require(code || status == "default", &at, "this is a status code");
            self.response(response, &at);
        }
    }

    fn response(&mut self, response: &'d Value, at: &str) {
        if let Some(reference) = response.get("$ref") {
            return self.reference(reference, at);
        }
        self.require(response["description"].is_string(), at, "a response has a description");
        self.content(response, at);
    }

    fn content(&mut self, of: &'d Value, at: &str) {
        for (kind, media) in of.get("content").map(|content| self.object(content, at)).into_iter().flatten() {
            let at = format!("{at} {kind}");
            self.require(
                kind.split_once('/').is_some_and(|(a, b)| !a.is_empty() && !b.is_empty()),
                &at,
                "a media type",
            );
            if let Some(schema) = media.get("schema") {
                self.schema(schema, &at);
            }
        }
    }

    fn security(&mut self, operation: &Value, at: &str) {
        for requirement in operation["security"].as_array().into_iter().flatten() {
            for name in requirement.as_object().into_iter().flatten().map(|(name, _)| name) {
                let scheme = &self.document["components"]["securitySchemes"][name];
                self.require(scheme.is_object(), at, &format!("the security scheme {name} is declared"));
            }
        }
    }

    fn scheme(&mut self, scheme: &Value, at: &str) {
        let kind = scheme["type"].as_str().unwrap_or_default();
        self.require(["http", "mutualTLS", "apiKey"].contains(&kind), at, "a known type of security scheme");
        self.require(kind != "http" || scheme["scheme"].is_string(), at, "one of HTTP names its scheme");
    }

    fn reference(&mut self, reference: &Value, at: &str) {
        let pointer = reference.as_str().and_then(|text| text.strip_prefix('#'));
        let is_there = pointer.is_some_and(|pointer| self.document.pointer(pointer).is_some());
        self.require(is_there, at, &format!("{reference} leads to a component"));
    }

    fn schema(&mut self, schema: &'d Value, at: &str) {
        if schema.is_boolean() {
            return;
        }
        let schema = self.object(schema, at);
        for (keyword, value) in schema {
            let at = format!("{at}/{keyword}");
            match KEYWORDS.iter().find(|(known, _)| known == keyword) {
                Some((_, kind)) => self.keyword(*kind, value, &at),
                None => self.require(false, &at, "this is a keyword of JSON Schema that clients know"),
            }
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            let is_there = name.as_str().is_some_and(|name| properties.is_some_and(|all| all.contains_key(name)));
            self.require(is_there, at, &format!("the required {name} is a property"));
        }
    }

    fn keyword(&mut self, kind: KeywordValue, value: &'d Value, at: &str) {
        let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let are_unique = || list.iter().enumerate().all(|(n, one)| !list[..n].contains(one));
        match kind {
            KeywordValue::Any => {}
            KeywordValue::Text => self.require(value.is_string(), at, "this is a text"),
            KeywordValue::Number => self.require(value.is_number(), at, "this is a number"),
            KeywordValue::Reference => self.reference(value, at),
            KeywordValue::Schema => self.schema(value, at),
            KeywordValue::Choices => self.require(!list.is_empty() && are_unique(), at, "choices differ"),
            KeywordValue::Type => {
                let is_type = |one: &Value| one.as_str().is_some_and(|one| TYPES.contains(&one));
                let fits = is_type(value) || (!list.is_empty() && are_unique() && list.iter().all(is_type));
                self.require(fits, at, "this is a type, or several that differ");
            }
            KeywordValue::Names => {
                self.require(value.is_array() && list.iter().all(Value::is_string) && are_unique(), at, "unique names");
            }
            KeywordValue::Schemas => {
                self.require(!list.is_empty(), at, "there is a choice");
                list.iter().for_each(|schema| self.schema(schema, at));
            }
            KeywordValue::NamedSchemas => {
                for (name, schema) in self.object(value, at) {
                    self.schema(schema, &format!("{at}/{name}"));
                }
            }
        }
    }
}

/// Promise (Input validation): `/v1/openapi.json` is valid OpenAPI 3.1
#[test]
fn the_document_of_the_api_is_valid_openapi() {
    let document = allostat::api::document();
    let found = Validator::violations(&document);
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(document["components"]["schemas"].as_object().is_some_and(|schemas| schemas.len() > 100));
}

/// Each change makes the valid document invalid, at the place of the change.
#[test]
fn each_violation_of_openapi_is_found_with_its_place() {
    let document = allostat::api::document();
    let alloc = "/paths/~1v1~1allocs~1{id}/get";
    let schema = "/components/schemas/AllocAnswer";
    for (at, value, place) in [
        ("/openapi".to_owned(), json!("3.0.3"), "/openapi"),
        ("/info".to_owned(), json!({ "title": "t" }), "/info"),
        (format!("{alloc}/operationId"), json!("get_v1_node"), "/v1/node"),
        (format!("{alloc}/parameters"), json!([]), "get /v1/allocs/{id}"),
        (format!("{alloc}/parameters/0/required"), json!(false), "parameter id"),
        (format!("{alloc}/parameters/0/in"), json!("body"), "parameter id"),
        (format!("{alloc}/parameters/0/schema"), json!({ "type": "text" }), "parameter id/type"),
        (format!("{alloc}/responses"), json!({}), "get /v1/allocs/{id}"),
        (format!("{alloc}/responses/200"), json!({}), "200"),
        (format!("{alloc}/responses/default"), json!({ "$ref": "#/components/responses/None" }), "default"),
        (format!("{alloc}/security"), json!([{ "none": [] }]), "get /v1/allocs/{id}"),
        ("/paths/~1v1~1jobs/post/requestBody".to_owned(), json!({}), "post /v1/jobs"),
        ("/components/securitySchemes/token".to_owned(), json!({ "type": "http" }), "securitySchemes/token"),
        ("/components/schemas".to_owned(), json!({ "a b": {} }), "schemas/a b"),
        (format!("{schema}/required"), json!(["none"]), "AllocAnswer"),
        (format!("{schema}/properties/id"), json!({ "$ref": "#/components/schemas/None" }), "properties/id/$ref"),
        (format!("{schema}/properties/id"), json!({ "oneOf": [] }), "properties/id/oneOf"),
        (format!("{schema}/properties/id"), json!({ "enum": [1, 1] }), "properties/id/enum"),
        (format!("{schema}/properties/id"), json!({ "nullable": true }), "properties/id/nullable"),
    ] {
        let mut broken = document.clone();
        *broken.pointer_mut(&at).unwrap_or_else(|| panic!("{at} is not in the document")) = value;
        let found = Validator::violations(&broken);
        assert!(found.iter().any(|one| one.contains(place)), "{at}: {found:?}");
    }
}
