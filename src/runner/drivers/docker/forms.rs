//! Reads `config` as Nomad's decoder does: a stanza, an object and a list of objects are equivalent, and so are a
//! number or a boolean and its text. Templates (`${...}`) are checked when the task starts.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::jobspec::quantity::parse_duration;
use crate::model::nearest::nearest;
use crate::runner::drivers::ConfigProblem;
use crate::runner::drivers::fields::error;

/// One stanza: each field is taken once, and unknown fields are refused.
pub struct ConfigForm<'a> {
    /// `mount[0].`; empty for the whole `config`.
    prefix: String,
    map: &'a Map<String, Value>,
    taken: Vec<&'static str>,
    problems: Vec<ConfigProblem>,
}

impl<'a> ConfigForm<'a> {
    pub fn new(map: &'a Map<String, Value>) -> ConfigForm<'a> {
        ConfigForm::below(String::new(), map)
    }
    fn below(prefix: String, map: &'a Map<String, Value>) -> ConfigForm<'a> {
        ConfigForm { prefix, map, taken: Vec::new(), problems: Vec::new() }
    }

    pub fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
    pub fn refuse(&mut self, name: &str, message: impl Into<String>, advice: Option<&str>) {
        let problem = error(&self.path(name), message.into());
        self.problems.push(ConfigProblem { advice: advice.map(str::to_owned), ..problem });
    }

    fn value(&mut self, name: &'static str) -> Option<&'a Value> {
        self.taken.push(name);
        self.map.get(name).filter(|value| !value.is_null())
    }
    fn read<T>(&mut self, name: &'static str, what: &str, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let value = self.value(name)?;
        let found = read(value);
        if found.is_none() && !is_template(value) {
            self.wrong(name, what, value);
        }
        found
    }
    fn wrong(&mut self, name: &str, what: &str, value: &Value) {
        self.refuse(name, format!("must be {what}, not {value}"), None);
    }

    /// An empty string counts as absent.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        self.read(name, "a string", text).filter(|text| !text.is_empty())
    }
    pub fn flag(&mut self, name: &'static str) -> Option<bool> {
        self.read(name, "true or false", flag)
    }
    pub fn whole(&mut self, name: &'static str) -> Option<i64> {
        self.read(name, "a whole number", whole)
    }
    /// A number that is not negative.
    pub fn count(&mut self, name: &'static str) -> Option<u64> {
        self.read(name, "a whole number of at least 0", |value| whole(value).and_then(|n| u64::try_from(n).ok()))
    }
    pub fn duration(&mut self, name: &'static str) -> Option<Duration> {
        self.read(name, "a duration such as \"5m\"", |value| parse_duration(value.as_str()?).ok())
    }
    pub fn texts(&mut self, name: &'static str) -> Option<Vec<String>> {
        let value = self.value(name)?;
        let Some(items) = value.as_array() else {
            self.wrong(name, "a list of strings", value);
            return None;
        };
        let mut all = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            match text(item) {
                Some(text) => all.push(text),
                None => self.wrong(&format!("{name}[{at}]"), "a string", item),
            }
        }
        Some(all)
    }

    /// Values by names that the job file chooses; if a name occurs twice, the last value applies.
    pub fn pairs<T>(
        &mut self,
        name: &'static str,
        what: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<Vec<(String, T)>> {
        let maps = self.maps(name)?;
        let mut all: Vec<(String, T)> = Vec::new();
        for (key, value) in maps.into_iter().flat_map(|(_, map)| map) {
            match read(value) {
                Some(read) => {
                    all.retain(|(other, _)| other != key);
                    all.push((key.clone(), read));
                }
                None if is_template(value) => {}
                None => self.wrong(&format!("{name}.{key}"), what, value),
            }
        }
        Some(all)
    }
    pub fn texts_by_name(&mut self, name: &'static str) -> Vec<(String, String)> {
        self.pairs(name, "a string", text).unwrap_or_default()
    }

    /// A stanza that may occur once.
    pub fn stanza<T>(&mut self, name: &'static str, read: impl FnOnce(&mut ConfigForm<'a>) -> T) -> Option<T> {
        let mut maps = self.maps(name)?;
        if maps.len() > 1 {
            self.refuse(name, "is given more than once", Some("keep one of them"));
        }
        let (prefix, map) = maps.drain(..).next()?;
        let mut form = ConfigForm::below(prefix, map);
        let read = read(&mut form);
        self.problems.extend(form.done());
        Some(read)
    }
    /// A stanza that may occur repeatedly.
    pub fn stanzas<T>(&mut self, name: &'static str, read: impl Fn(&mut ConfigForm<'a>) -> T) -> Vec<T> {
        let maps = self.maps(name).unwrap_or_default();
        let one = |(prefix, map)| {
            let mut form = ConfigForm::below(prefix, map);
            let read = read(&mut form);
            self.problems.extend(form.done());
            read
        };
        maps.into_iter().map(one).collect()
    }

    /// Each object of a field, with the prefix of its fields' paths.
    fn maps(&mut self, name: &'static str) -> Option<Vec<(String, &'a Map<String, Value>)>> {
        let value = self.value(name)?;
        let path = self.path(name);
        let all: Option<Vec<_>> = match value {
            Value::Object(map) => Some(vec![(format!("{path}."), map)]),
            Value::Array(list) => {
                let one = |(at, item): (usize, &'a Value)| Some((format!("{path}[{at}]."), item.as_object()?));
                list.iter().enumerate().map(one).collect()
            }
            _ => None,
        };
        if all.is_none() {
            self.wrong(name, "a stanza, an object or a list of objects", value);
        }
        all
    }

    /// The errors, with each unknown field.
    pub fn done(mut self) -> Vec<ConfigProblem> {
        for unknown in self.map.keys().filter(|key| !self.taken.contains(&key.as_str())) {
            let advice = match nearest(unknown, self.taken.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", self.taken.join(", ")),
            };
            let of = if self.prefix.is_empty() { "`config`" } else { "this stanza" };
            let problem = error(&format!("{}{unknown}", self.prefix), format!("is no field of {of} here"));
            self.problems.push(ConfigProblem { advice: Some(advice), of_name: true, ..problem });
        }
        self.problems
    }
}

/// Its value is known when the task starts.
pub fn is_template(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains("${"))
}

pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(on) => Some(on.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(on) => Some(*on),
        Value::String(text) => match text.as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

pub fn whole(value: &Value) -> Option<i64> {
    /// Up to this value every whole number has an exact float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT)?;
            format!("{float:.0}").parse().ok()
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_stanza_an_object_and_a_list_of_objects_are_the_same() {
        for same in [
            r#"{"labels": {"a": "1", "b": 2}}"#,
            r#"{"labels": [{"a": "1"}, {"b": 2}]}"#,
            r#"{"labels": [{"a": 0, "b": "2"}, {"a": "1"}]}"#,
        ] {
            let config = config(same);
            let mut form = ConfigForm::new(&config);
            let mut labels = form.texts_by_name("labels");
            labels.sort();
            let expected = [("a", "1"), ("b", "2")].map(|(a, b)| (a.to_owned(), b.to_owned()));
            assert_eq!((labels.as_slice(), form.done().len()), (&expected[..], 0), "{same}");
        }
    }

    #[test]
    fn numbers_and_booleans_are_read_from_texts_and_a_template_waits() {
        let config = config(
            r#"{"n": "5", "f": 5.0, "on": "true", "t": 7, "later": "${NOMAD_PORT_http}", "bad": "x", "half": 1.5}"#,
        );
        let mut form = ConfigForm::new(&config);
        assert_eq!((form.whole("n"), form.whole("f"), form.flag("on")), (Some(5), Some(5), Some(true)));
        assert_eq!((form.text("t").as_deref(), form.whole("later")), (Some("7"), None));
        assert_eq!((form.whole("bad"), form.whole("half")), (None, None));
        let text: Vec<_> = form.done().iter().map(ToString::to_string).collect();
        assert_eq!(text, ["bad: must be a whole number, not \"x\"", "half: must be a whole number, not 1.5"]);
    }

    #[test]
    fn problems_inside_of_a_stanza_name_their_place() {
        let config = config(
            r#"{"mount": [{"type": "bind"}, {"tpye": "x", "readonly": "perhaps"}], "auth": [{}, {}], "extra": 1}"#,
        );
        let mut form = ConfigForm::new(&config);
        let read = |form: &mut ConfigForm<'_>| (form.text("type"), form.flag("readonly"));
        assert_eq!(form.stanzas("mount", read), [(Some("bind".to_owned()), None), (None, None)]);
        assert!(form.stanza("auth", |_| ()).is_some());
        let text: Vec<_> = form.done().iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "mount[1].readonly: must be true or false, not \"perhaps\"",
                "mount[1].tpye: is no field of this stanza here; did you mean `type`?",
                "auth: is given more than once; keep one of them",
                "extra: is no field of `config` here; there are mount, auth",
            ]
        );
    }

    proptest! {
        #[test]
        fn no_number_panics(float: f64, text in ".{0,20}") {
            let _ = serde_json::Number::from_f64(float).map(|n| whole(&Value::Number(n)));
            let _ = whole(&Value::String(text));
        }
    }
}
