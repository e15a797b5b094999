//! What a request asks for: its path and its query, decoded. Pure.

use super::error::{ApiError, Code};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestTarget {
    /// Decoded, without the slashes. `/` has none.
    pub segments: Vec<String>,
    pub query: Query,
}

/// The query, in the order given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl RequestTarget {
    /// Errors: an escape that is none, or that is no UTF-8.
    pub fn parse(path: &str, query: Option<&str>) -> Result<RequestTarget, ApiError> {
        let undecodable =
            || ApiError::new(Code::BadRequest, "the path or the query has an escape that is not %XX of UTF-8");
        let segments = path.strip_prefix('/').unwrap_or(path).split('/').map(|s| decode(s, false));
        let segments: Vec<String> = segments.collect::<Option<_>>().ok_or_else(undecodable)?;
        let segments = if segments == [""] { Vec::new() } else { segments };
        let pairs = query.unwrap_or("").split('&').filter(|p| !p.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name, true)?, decode(value, true)?))
        });
        Ok(RequestTarget { segments, query: Query(pairs.collect::<Option<_>>().ok_or_else(undecodable)?) })
    }

    /// The values of the `{...}` segments if `pattern` (`/v1/allocs/{id}`) is this path.
    pub fn matches(&self, pattern: &str) -> Option<Vec<String>> {
        let mut selected = pattern.strip_prefix('/').unwrap_or(pattern).split('/').filter(|s| !s.is_empty());
        let mut params = Vec::new();
        for have in &self.segments {
            let expected = selected.next()?;
            if expected.starts_with('{') {
                if have.is_empty() {
                    return None;
                }
                params.push(have.clone());
            } else if expected != have {
                return None;
            }
        }
        selected.next().is_none().then_some(params)
    }
}

impl Query {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
    /// Every value of a parameter that may be repeated.
    pub fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(n, _)| n == name).map(|(_, v)| v.clone()).collect()
    }
    /// Present and not switched off: `?plan`, `?plan=1`, `?plan=true`.
    pub fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name) {
            None | Some("0" | "false") => Ok(false),
            Some("" | "1" | "true") => Ok(true),
            Some(other) => Err(ApiError::bad_parameter(name, format!("{name} is 1 or 0, not {other:?}"))),
        }
    }
    pub fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        self.get(name)
            .map(|text| {
                text.parse()
                    .map_err(|_| ApiError::bad_parameter(name, format!("{name} is a whole number, not {text:?}")))
            })
            .transpose()
    }
    /// Each of `known` once at most, and no other: one that is misspelled, or the second of two, must not silently
    /// change nothing.
    pub fn only(&self, known: &[&str]) -> Result<(), ApiError> {
        self.any_of(known)?;
        let twice =
            |(n, (name, _)): &(usize, &(String, String))| self.0[..*n].iter().any(|(earlier, _)| earlier == name);
        match self.0.iter().enumerate().find(twice) {
            None => Ok(()),
            Some((_, (name, _))) => Err(ApiError::bad_parameter(name, format!("{name} is given twice"))),
        }
    }
    /// Each of `known` as often as one likes, and no other.
    pub fn any_of(&self, known: &[&str]) -> Result<(), ApiError> {
        match self.0.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) if known.is_empty() => {
                Err(ApiError::bad_parameter(name, format!("unknown parameter {name:?}: this takes none")))
            }
            Some((name, _)) => Err(ApiError::bad_parameter(
                name,
                format!("unknown parameter {name:?}: this takes {}", known.join(", ")),
            )),
        }
    }
}

fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        match b {
            b'%' => {
                let hex = [rest.next()?, rest.next()?];
                if !hex.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
            }
            b'+' if plus_is_space => bytes.push(b' '),
            b => bytes.push(b),
        }
    }
    String::from_utf8(bytes).ok()
}

/// Escapes what may not stand in a path segment or a query value.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(b)),
            b => {
                use std::fmt::Write;
                let _ = write!(out, "%{b:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(path: &str) -> RequestTarget {
        RequestTarget::parse(path, None).unwrap()
    }

    #[test]
    fn a_pattern_takes_its_segments_and_nothing_else() {
        assert_eq!(path("/").matches("/"), Some(vec![]));
        assert_eq!(path("/v1/allocs").matches("/v1/allocs"), Some(vec![]));
        assert_eq!(
            path("/v1/allocs/ab/logs/web%2F1").matches("/v1/allocs/{id}/logs/{task}"),
            Some(vec!["ab".into(), "web/1".into()])
        );
        for (have, pattern) in [
            ("/v1/allocs/", "/v1/allocs/{id}"),
            ("/v1/allocs/", "/v1/allocs"),
            ("/v1/allocs/a/b", "/v1/allocs/{id}"),
            ("/v1", "/v1/allocs"),
            ("//", "/"),
        ] {
            assert_eq!(path(have).matches(pattern), None, "{have} {pattern}");
        }
    }

    #[test]
    fn an_unknown_parameter_is_refused_by_name() {
        let target = RequestTarget::parse("/", Some("tail=5&tial=6")).unwrap();
        assert_eq!(target.query.number("tail"), Ok(Some(5)));
        assert_eq!(target.query.only(&["tail"]).unwrap_err().field.as_deref(), Some("tial"));
    }

    #[test]
    fn a_second_value_is_refused_where_only_one_counts() {
        let target = RequestTarget::parse("/", Some("task=web&all=true&task=db")).unwrap();
        let refused = target.query.only(&["task", "all"]).unwrap_err();
        assert_eq!((refused.field.as_deref(), refused.message.as_str()), (Some("task"), "task is given twice"));
        assert_eq!(target.query.any_of(&["task", "all"]), Ok(()));
        assert_eq!(target.query.all("task"), ["web", "db"]);
    }

    #[test]
    fn a_number_is_a_number_or_an_error() {
        for wrong in ["", "-1", "1.5", "x", "99999999999999999999"] {
            let target = RequestTarget::parse("/", Some(&format!("tail={wrong}"))).unwrap();
            assert!(target.query.number("tail").is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_broken_escape_is_an_error() {
        for wrong in ["/%", "/%4", "/%zz", "/%ff"] {
            assert!(RequestTarget::parse(wrong, None).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn url_encoded_text_decodes_to_itself(text in ".*") {
            prop_assert_eq!(decode(&encode(&text), false), Some(text));
        }
        #[test]
        fn no_target_panics(path in ".*", query in ".*") {
            if let Ok(target) = RequestTarget::parse(&path, Some(&query)) {
                let _ = (target.matches("/v1/allocs/{id}/logs/{task}"), target.query.only(&["a"]), target.query.number("a"));
            }
        }
    }
}
