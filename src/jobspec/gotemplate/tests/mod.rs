//! Tests of the whole room.

mod bounds;
mod faults;
mod functions;
mod language;
mod sockaddr;

use std::collections::BTreeMap;
use std::time::Instant;

use super::{GoTemplate, TemplateFault, TemplateOptions, TemplateSources, TemplateValue};
use crate::model::address::InterfaceAddress;

/// The dot of most tests.
const DATA: &str = r#"{"name":"n","t":true,"f":false,"zero":0,"empty":"","list":["x","y","z"],"nolist":[],"nomap":{},
    "nil":null,"map":{"b":2,"a":"1","deep":{"x":"y"}},"nested":[[1,2],[3,4]],"num":5,"big":1234567,"frac":0.25}"#;

/// An environment, files, keys and a clock that stands still.
struct Fixture {
    env: BTreeMap<&'static str, &'static str>,
    files: BTreeMap<&'static str, &'static str>,
    keys: BTreeMap<&'static str, &'static str>,
    deadline: Option<Instant>,
    addresses: Vec<InterfaceAddress>,
}

impl Default for Fixture {
    fn default() -> Fixture {
        Fixture {
            env: [("NOMAD_TASK_NAME", "web"), ("EMPTY", ""), ("PORT", "8080")].into(),
            files: [("local/a.txt", "from a file\n")].into(),
            keys: [
                ("app/color", "blue"),
                ("app/db/host", "h1"),
                ("app/db/port", "5432"),
                ("app/empty", ""),
                ("application/other", "no"),
                ("top", "1"),
            ]
            .into(),
            deadline: None,
            addresses: sockaddr::host(),
        }
    }
}

impl TemplateSources for Fixture {
    fn env(&self, name: &str) -> Option<String> {
        self.env.get(name).map(|value| (*value).to_owned())
    }
    fn file(&self, path: &str) -> Result<String, String> {
        self.files.get(path).map(|text| (*text).to_owned()).ok_or_else(|| format!("{path}: no such file"))
    }
    fn key(&self, path: &str) -> Result<Option<String>, String> {
        Ok(self.keys.get(path).map(|value| (*value).to_owned()))
    }
    fn keys(&self, prefix: &str, _: bool) -> Result<Vec<(String, String)>, String> {
        let below = self.keys.iter().filter(|(path, _)| path.starts_with(prefix));
        Ok(below.map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect())
    }
    fn addresses(&self) -> Result<Vec<InterfaceAddress>, String> {
        Ok(self.addresses.clone())
    }
    fn now(&self) -> Result<(i64, u32), String> {
        // 2024-02-29 13:05:09.123456789 UTC, a Thursday.
        Ok((1_709_211_909, 123_456_789))
    }
    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

fn render_data(template: &str, data: &str) -> Result<String, TemplateFault> {
    let data = TemplateValue::from_json(serde_json::from_str(data).unwrap()).unwrap();
    let parsed = GoTemplate::parse(template, &TemplateOptions::default()).map_err(|faults| faults[0].clone())?;
    parsed.render_with(data, &Fixture::default())
}

/// As the agent does it: without data.
fn render(template: &str) -> Result<String, TemplateFault> {
    let parsed = GoTemplate::parse(template, &TemplateOptions::default()).map_err(|faults| faults[0].clone())?;
    parsed.render(&Fixture::default())
}
