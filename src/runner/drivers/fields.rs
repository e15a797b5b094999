//! Strict reader for a driver's `config`: each field is taken once, with its type, and unknown fields are refused.
//! Errors are collected, so that all of them are reported at once.

use std::time::Duration;

use serde_json::{Map, Value};

use super::driver::{ConfigProblem, DriverError};
use crate::jobspec::quantity::parse_duration;
use crate::model::nearest::nearest;

/// The `config` of one task. The getter of an invalid field returns the value of an absent one, and
/// [`ConfigFields::done`] refuses the whole, with every error and every unknown field.
pub struct ConfigFields<'a> {
    config: &'a Map<String, Value>,
    taken: Vec<&'static str>,
    problems: Vec<ConfigProblem>,
    /// Missing required fields: reported unless a misspelt field is similar.
    missing: Vec<(&'static str, ConfigProblem)>,
}

impl<'a> ConfigFields<'a> {
    pub fn new(config: &'a Map<String, Value>) -> ConfigFields<'a> {
        ConfigFields { config, taken: Vec::new(), problems: Vec::new(), missing: Vec::new() }
    }

    pub fn value(&mut self, name: &'static str) -> Option<&'a Value> {
        self.taken.push(name);
        self.config.get(name).filter(|value| !value.is_null())
    }

    pub fn text(&mut self, name: &'static str) -> Option<String> {
        let value = self.value(name)?;
        self.or_collect(value.as_str().map(str::to_owned).ok_or_else(|| wrong(name, "a string", value)))
    }

    /// `such_as`: an example value for the error.
    pub fn needed_text(&mut self, name: &'static str, such_as: &str) -> String {
        let is_there = self.config.get(name).is_some_and(|value| !value.is_null() && value.as_str() != Some(""));
        if !is_there {
            let advice = format!("add {name} = {such_as:?}");
            self.missing.push((name, ConfigProblem { advice: Some(advice), ..error(name, "is needed".to_owned()) }));
        }
        self.text(name).unwrap_or_default()
    }

    pub fn texts(&mut self, name: &'static str) -> Vec<String> {
        // As HCL converts the elements of a list of strings.
        let text = |item: &Value| match item {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(b) => Some(b.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        };
        self.list(name, ("a list of strings", "a string"), text)
    }

    pub fn numbers(&mut self, name: &'static str) -> Vec<u64> {
        self.list(name, ("a list of whole numbers", "a whole number"), Value::as_u64)
    }

    fn list<T>(
        &mut self,
        name: &'static str,
        (list, item): (&str, &str),
        read: impl Fn(&Value) -> Option<T>,
    ) -> Vec<T> {
        let Some(value) = self.value(name) else { return Vec::new() };
        let Some(items) = value.as_array() else {
            self.refuse(wrong(name, list, value));
            return Vec::new();
        };
        let one = |(i, value)| read(value).ok_or_else(|| wrong(&format!("{name}[{i}]"), item, value));
        items.iter().enumerate().map(one).filter_map(|read| self.or_collect(read)).collect()
    }

    /// Strings by names that the job file chooses.
    pub fn texts_by_name(&mut self, name: &'static str) -> Vec<(String, String)> {
        let Some(value) = self.value(name) else { return Vec::new() };
        let Some(items) = value.as_object() else {
            self.refuse(wrong(name, "names with texts", value));
            return Vec::new();
        };
        let text = |(key, item): (&String, &Value)| {
            let text = item.as_str().ok_or_else(|| wrong(&format!("{name}.{key}"), "a string", item))?;
            Ok((key.clone(), text.to_owned()))
        };
        items.iter().map(text).filter_map(|read| self.or_collect(read)).collect()
    }

    pub fn flag(&mut self, name: &'static str) -> bool {
        let Some(value) = self.value(name) else { return false };
        self.or_collect(value.as_bool().ok_or_else(|| wrong(name, "true or false", value))).unwrap_or(false)
    }

    pub fn number(&mut self, name: &'static str) -> Option<u64> {
        let value = self.value(name)?;
        self.or_collect(value.as_u64().ok_or_else(|| wrong(name, "a whole number", value)))
    }

    /// `250ms`, `3s`, `1h30m`; a bare number is nanoseconds, as in Nomad.
    pub fn duration(&mut self, name: &'static str) -> Option<Duration> {
        let value = self.value(name)?;
        let read = match value {
            Value::Number(n) => n.as_u64().map(Duration::from_nanos),
            Value::String(text) => parse_duration(text).ok(),
            _ => None,
        };
        self.or_collect(read.ok_or_else(|| wrong(name, "a duration such as \"250ms\" or \"3s\"", value)))
    }

    /// An error that the driver found.
    pub fn refuse(&mut self, problem: ConfigProblem) {
        self.problems.push(problem);
    }

    /// The value; its error is collected.
    pub fn or_collect<T>(&mut self, read: Result<T, ConfigProblem>) -> Option<T> {
        read.map_err(|problem| self.refuse(problem)).ok()
    }

    /// Errors: everything invalid, and each unknown field with the most similar known one.
    pub fn done(mut self) -> Result<(), DriverError> {
        for unknown in self.config.keys().filter(|key| !self.taken.contains(&key.as_str())) {
            let near = nearest(unknown, self.taken.iter().copied());
            // It is there under a misspelt name.
            self.missing.retain(|(name, _)| near != Some(*name));
            let advice = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", self.taken.join(", ")),
            };
            let message = "is no field of `config` here".to_owned();
            self.problems.push(ConfigProblem { advice: Some(advice), of_name: true, ..error(unknown, message) });
        }
        self.problems.extend(self.missing.into_iter().map(|(_, problem)| problem));
        if self.problems.is_empty() { Ok(()) } else { Err(DriverError::Config(self.problems)) }
    }
}

pub fn error(field: &str, message: String) -> ConfigProblem {
    ConfigProblem { field: field.to_owned(), message, advice: None, of_name: false }
}

fn wrong(name: &str, requested: &str, found: &Value) -> ConfigProblem {
    error(name, format!("must be {requested}, not {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }
    fn problems(fields: ConfigFields<'_>) -> Vec<String> {
        match fields.done() {
            Ok(()) => Vec::new(),
            Err(DriverError::Config(all)) => all.iter().map(ToString::to_string).collect(),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_misspelt_field_is_refused_with_the_nearest_which_is_not_missed_as_well() {
        let config = config(r#"{"comand": "x", "agrs": []}"#);
        let mut fields = ConfigFields::new(&config);
        assert_eq!(fields.needed_text("command", "/bin/true"), "");
        assert_eq!(fields.needed_text("image", "debian"), "");
        assert_eq!(fields.texts("args"), [""; 0]);
        let expected = [
            "agrs: is no field of `config` here; did you mean `args`?",
            "comand: is no field of `config` here; did you mean `command`?",
            "image: is needed; add image = \"debian\"",
        ];
        assert_eq!(problems(fields), expected);
    }

    #[test]
    fn driver_config_type_error_names_expected_and_found() {
        let config =
            config(r#"{"args": ["a", 1, true, [2], {}], "flag": "yes", "n": -1, "d": "3 days", "t": 5, "e": ""}"#);
        let mut fields = ConfigFields::new(&config);
        assert_eq!(fields.texts("args"), ["a", "1", "true"]);
        assert!(!fields.flag("flag") && fields.number("n").is_none() && fields.duration("d").is_none());
        assert_eq!((fields.needed_text("t", "x"), fields.needed_text("e", "x")), (String::new(), String::new()));
        let expected = [
            "args[3]: must be a string, not [2]",
            "args[4]: must be a string, not {}",
            "flag: must be true or false, not \"yes\"",
            "n: must be a whole number, not -1",
            "d: must be a duration such as \"250ms\" or \"3s\", not \"3 days\"",
            "t: must be a string, not 5",
            "e: is needed; add e = \"x\"",
        ];
        assert_eq!(problems(fields), expected);
    }

    #[test]
    fn durations_are_those_of_the_job_file_and_a_bare_number_is_nanoseconds() {
        let config = config(r#"{"a": "1h30m", "b": 250, "c": "99999999999999999999h"}"#);
        let mut fields = ConfigFields::new(&config);
        assert_eq!(fields.duration("a"), Some(Duration::from_secs(5400)));
        assert_eq!(fields.duration("b"), Some(Duration::from_nanos(250)));
        assert_eq!(fields.duration("c"), None);
        assert_eq!(problems(fields).len(), 1);
    }
}
