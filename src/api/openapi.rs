//! `GET /v1/openapi.json`: this API, made from the table of endpoints and the types of their answers. Nothing is listed
//! twice: a field is its type's, a parameter its endpoint's.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::access::Access;
use super::contract::{BodyContract, EndpointAnswer, QueryRule};
use super::error::ErrorBody;
use super::http::{Reply, encoded};
use super::{DEFAULT_PORT, Method, ROUTES, Route};

pub(super) static OPENAPI: Route = Route {
    method: Method::Get,
    path: "/v1/openapi.json",
    access: Access::Read,
    about: "this API as OpenAPI 3.1",
    query: QueryRule::NONE,
    body: None,
    answers: &[EndpointAnswer::json::<Map<String, Value>>()],
    // It is made for each request: clients read it once, and it would stay in memory.
    handler: |_, _| Box::pin(encoded(|| Reply::json(&document()))),
};

const ABOUT: &str = "All commands of allostat use this API. Times are nanoseconds since 1970-01-01 UTC unless the name \
                     has another unit. A value that is not known is absent, and never 0. It is null where the schema \
                     allows it: in lists with a fixed order and in a few required fields. New fields may appear in \
                     every object. GET endpoints answer HEAD as well.\n\nAccess: the Unix socket (mode 0600) answers \
                     everything. TCP answers everything to clients that may act: with a token (agent.token_file) or a \
                     certificate (agent.acting_certificates). Other TCP clients get the endpoints that \
                     telemetry.public lets through, `x-allostat-public` has the setting from which on, and answers \
                     without fields for clients that may act. Over TCP the Host header must name the agent.";

/// The whole document.
pub fn document() -> Value {
    let settings =
        || SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut answers = settings().for_serialize().into_generator();
    let mut requests = settings().for_deserialize().into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let operation = operation(route, &mut answers, &mut requests);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[method(route)] = operation;
    }
    let error = answers.subschema_for::<ErrorBody<'_>>();
    let mut schemas = requests.take_definitions(true);
    schemas.extend(answers.take_definitions(true));
    schemas.values_mut().for_each(drop_nulls);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "allostat",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Metrics and tasks of one Linux host",
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": format!("http://127.0.0.1:{DEFAULT_PORT}"), "description": "agent.listen" }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                "Refused": {
                    "description": "The request was refused or failed. `code` is stable; `message` is a sentence",
                    "content": { "application/json": { "schema": error } },
                },
            },
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "A token of agent.token_file" },
                "certificate": { "type": "mutualTLS", "description": "A certificate of agent.acting_certificates" },
                "password": {
                    "type": "http", "scheme": "basic", "description": "A user of agent.web_config_file; it reads",
                },
            },
        },
    })
}

fn method(route: &Route) -> &'static str {
    match route.method {
        Method::Get => "get",
        Method::Post => "post",
    }
}

fn operation(route: &Route, answers: &mut SchemaGenerator, requests: &mut SchemaGenerator) -> Value {
    let words = route.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let id: Vec<&str> = std::iter::once(method(route)).chain(words).collect();
    let mut responses = Map::new();
    for EndpointAnswer { status, content } in route.answers {
        // Several answers of one status differ in their media types.
        let response = responses.entry(status.to_string()).or_insert_with(|| described(content));
        add_content(response, content, answers);
    }
    responses.insert("default".to_owned(), json!({ "$ref": "#/components/responses/Refused" }));
    let mut operation = json!({
        "operationId": id.join("_"),
        "summary": route.about,
        "responses": responses,
        "security": security(route.access),
    });
    if let Some(public) = route.access.on_tcp_from() {
        operation["x-allostat-public"] = json!(public.as_str());
    }
    let parameters: Vec<Value> = path_parameters(route.path).chain(query_parameters(&route.query)).collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(body) = &route.body {
        let mut request = described(body);
        add_content(&mut request, body, requests);
        operation["requestBody"] = request;
    }
    operation
}

fn described(content: &BodyContract) -> Value {
    json!({ "description": content.about })
}

fn add_content(to: &mut Value, content: &BodyContract, generator: &mut SchemaGenerator) {
    let schema = content.schema.map(|schema| schema(generator));
    for kind in content.kinds {
        to["content"][*kind] = match &schema {
            Some(schema) => json!({ "schema": schema }),
            None => json!({}),
        };
    }
}

/// None of them is needed on the Unix socket.
fn security(access: Access) -> Value {
    match access {
        Access::SocketOnly(_) => json!([{ "token": [] }, { "certificate": [] }]),
        Access::Health | Access::Metrics | Access::Read => {
            json!([{}, { "password": [] }, { "token": [] }, { "certificate": [] }])
        }
    }
}

fn path_parameters(path: &'static str) -> impl Iterator<Item = Value> {
    let is_job = path.starts_with("/v1/jobs/");
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names.map(move |name| {
        let about = match name {
            "id" if is_job => "The ID of a job.",
            "id" => "An ID of an alloc, a unique prefix of it, or a name that one alloc has.",
            _ => "The name of a task of the alloc.",
        };
        json!({ "name": name, "in": "path", "required": true, "description": about, "schema": { "type": "string" } })
    })
}

fn query_parameters(rule: &QueryRule) -> impl Iterator<Item = Value> {
    let is_list = matches!(rule, QueryRule::Repeated(_));
    rule.parameters().iter().map(move |parameter| {
        let schema = match is_list {
            true => json!({ "type": "array", "items": { "type": "string" } }),
            false => json!({ "type": "string" }),
        };
        json!({ "name": parameter.name, "in": "query", "description": parameter.about, "schema": schema })
    })
}

/// A property that may be absent is never null: the types of answers leave out what is not known.
fn drop_nulls(schema: &mut Value) {
    let required: Vec<String> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|name| Some(name.as_str()?.to_owned()))
        .collect();
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (_, property) in properties.into_iter().flatten().filter(|(name, _)| !required.contains(name)) {
        drop_null(property);
    }
}

fn drop_null(property: &mut Value) {
    if let Some(kinds) = property.get_mut("type").and_then(Value::as_array_mut) {
        kinds.retain(|kind| kind != "null");
        if let [one] = kinds.as_slice() {
            property["type"] = one.clone();
        }
    }
    let Some(choices) = property.get_mut("anyOf").and_then(Value::as_array_mut) else { return };
    choices.retain(|choice| choice["type"] != "null");
    if let [one] = choices.as_mut_slice()
        && let Some(one) = one.take().as_object_mut()
        && let Some(property) = property.as_object_mut()
    {
        property.remove("anyOf");
        property.append(one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reference leads to a schema, every operation has a name of its own.
    #[test]
    fn document_is_complete() {
        let document = document();
        let mut ids = std::collections::BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for operation in operations.as_object().unwrap().values() {
                assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{path}");
            }
        }
        assert_eq!(ids.len(), ROUTES.len());
        fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
            match value {
                Value::Object(map) => {
                    found.extend(map.get("$ref").and_then(Value::as_str));
                    map.values().for_each(|value| references(value, found));
                }
                Value::Array(all) => all.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 100, "{}", found.len());
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn optional_property_is_not_null() {
        let schema = &document()["components"]["schemas"]["AllocAnswer"];
        assert_eq!(schema["properties"]["created_at"]["type"], json!(null), "a reference: {schema}");
        assert!(schema["properties"]["created_at"]["$ref"].is_string(), "{schema}");
        assert_eq!(schema["properties"]["description"]["type"], "string");
        assert!(schema["required"].as_array().unwrap().contains(&json!("id")), "{schema}");
    }
}
