//! Reads a driver's `config` strictly: every field is taken once, with its type; what is left over is refused.

use std::time::Duration;

use serde_json::{Map, Value};

use super::DriverError;
use crate::jobspec::nearest::nearest;
use crate::jobspec::quantity::parse_duration;

/// The `config` of one task. [`ConfigFields::done`] refuses what nobody took.
pub struct ConfigFields<'a> {
    config: &'a Map<String, Value>,
    taken: Vec<&'static str>,
}

impl<'a> ConfigFields<'a> {
    pub fn new(config: &'a Map<String, Value>) -> ConfigFields<'a> {
        ConfigFields { config, taken: Vec::new() }
    }

    pub fn value(&mut self, name: &'static str) -> Option<&'a Value> {
        self.taken.push(name);
        self.config.get(name).filter(|value| !value.is_null())
    }

    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, DriverError> {
        let take = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| wrong(name, "a string", value));
        self.value(name).map(take).transpose()
    }

    pub fn needed_text(&mut self, name: &'static str) -> Result<String, DriverError> {
        let missing = || error(name, "is needed".to_owned());
        self.text(name)?.filter(|text| !text.is_empty()).ok_or_else(missing)
    }

    pub fn texts(&mut self, name: &'static str) -> Result<Vec<String>, DriverError> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(|| wrong(name, "a list of strings", value))?;
        let text = |(i, item): (usize, &Value)| {
            item.as_str().map(str::to_owned).ok_or_else(|| wrong(&format!("{name}[{i}]"), "a string", item))
        };
        items.iter().enumerate().map(text).collect()
    }

    pub fn numbers(&mut self, name: &'static str) -> Result<Vec<u64>, DriverError> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(|| wrong(name, "a list of whole numbers", value))?;
        let number = |(i, item): (usize, &Value)| {
            item.as_u64().ok_or_else(|| wrong(&format!("{name}[{i}]"), "a whole number", item))
        };
        items.iter().enumerate().map(number).collect()
    }

    /// Texts by names of the file's choice.
    pub fn texts_by_name(&mut self, name: &'static str) -> Result<Vec<(String, String)>, DriverError> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let items = value.as_object().ok_or_else(|| wrong(name, "names with texts", value))?;
        let text = |(key, item): (&String, &Value)| {
            let text = item.as_str().ok_or_else(|| wrong(&format!("{name}.{key}"), "a string", item))?;
            Ok((key.clone(), text.to_owned()))
        };
        items.iter().map(text).collect()
    }

    pub fn flag(&mut self, name: &'static str) -> Result<bool, DriverError> {
        let take = |value: &Value| value.as_bool().ok_or_else(|| wrong(name, "true or false", value));
        Ok(self.value(name).map(take).transpose()?.unwrap_or(false))
    }

    pub fn number(&mut self, name: &'static str) -> Result<Option<u64>, DriverError> {
        let take = |value: &Value| value.as_u64().ok_or_else(|| wrong(name, "a whole number", value));
        self.value(name).map(take).transpose()
    }

    /// `250ms`, `3s`, `1h30m`; a bare number is nanoseconds, as in Nomad.
    pub fn duration(&mut self, name: &'static str) -> Result<Option<Duration>, DriverError> {
        let take = |value: &Value| match value {
            Value::Number(n) => n.as_u64().map(Duration::from_nanos),
            Value::String(text) => parse_duration(text).ok(),
            _ => None,
        };
        let read =
            |value: &Value| take(value).ok_or_else(|| wrong(name, "a duration such as \"250ms\" or \"3s\"", value));
        self.value(name).map(read).transpose()
    }

    /// Errors: a field that is none of those taken, with the nearest of them.
    pub fn done(self) -> Result<(), DriverError> {
        let Some(unknown) = self.config.keys().find(|key| !self.taken.contains(&key.as_str())) else { return Ok(()) };
        let advice = match nearest(unknown, self.taken.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", self.taken.join(", ")),
        };
        Err(error(unknown, format!("is no field of `config` here; {advice}")))
    }
}

pub fn error(field: &str, message: String) -> DriverError {
    DriverError::Config { field: field.to_owned(), message }
}

fn wrong(name: &str, wanted: &str, found: &Value) -> DriverError {
    error(name, format!("must be {wanted}, not {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_misspelt_field_is_refused_with_the_nearest() {
        let config = config(r#"{"comand": "x"}"#);
        let mut fields = ConfigFields::new(&config);
        assert!(fields.text("command").unwrap().is_none());
        let error = fields.done().unwrap_err().to_string();
        assert_eq!(error, "comand: is no field of `config` here; did you mean `command`?");
    }

    #[test]
    fn a_wrong_type_says_what_was_wanted_and_found() {
        let config = config(r#"{"args": ["a", 1], "flag": "yes", "n": -1, "d": "3 days", "t": 5}"#);
        let mut fields = ConfigFields::new(&config);
        let said = |e: DriverError| e.to_string();
        assert_eq!(fields.texts("args").map_err(said).unwrap_err(), "args[1]: must be a string, not 1");
        assert_eq!(fields.flag("flag").map_err(said).unwrap_err(), "flag: must be true or false, not \"yes\"");
        assert_eq!(fields.number("n").map_err(said).unwrap_err(), "n: must be a whole number, not -1");
        assert!(fields.duration("d").is_err());
        assert!(fields.needed_text("t").is_err());
        assert!(fields.done().is_ok(), "all were taken");
    }

    #[test]
    fn durations_are_those_of_the_job_file_and_a_bare_number_is_nanoseconds() {
        let config = config(r#"{"a": "1h30m", "b": 250, "c": "99999999999999999999h"}"#);
        let mut fields = ConfigFields::new(&config);
        assert_eq!(fields.duration("a").unwrap(), Some(Duration::from_secs(5400)));
        assert_eq!(fields.duration("b").unwrap(), Some(Duration::from_nanos(250)));
        assert!(fields.duration("c").is_err());
    }
}
