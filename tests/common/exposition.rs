//! Reads an exposition (text 0.0.4 or OpenMetrics) as a strict scraper would. Values stay text, so that any `u64` can
//! be compared to the last digit.

use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: String,
}

impl Sample {
    #[track_caller]
    pub fn f64(&self) -> f64 {
        self.value.parse().unwrap_or_else(|_| panic!("{} is not a number: {}", self.name, self.value))
    }
    #[track_caller]
    pub fn u64(&self) -> u64 {
        self.value.parse().unwrap_or_else(|_| panic!("{} is not a whole number: {}", self.name, self.value))
    }
    pub fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels.iter().all(|(name, value)| self.labels.get(*name).is_some_and(|v| v == value))
    }
}

#[derive(Debug, Clone, Default)]
pub struct Exposition {
    pub samples: Vec<Sample>,
    pub types: BTreeMap<String, String>,
    pub help: BTreeMap<String, String>,
}

impl Exposition {
    /// Panics on whatever is not an exposition, with the line.
    #[track_caller]
    pub fn parse(text: &str) -> Exposition {
        let mut exposition = Exposition::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                match (words.next(), words.next(), words.next()) {
                    (Some("TYPE"), Some(name), Some(kind)) => {
                        let earlier = exposition.types.insert(name.into(), kind.into());
                        assert!(earlier.is_none(), "the type of {name} stands there twice");
                    }
                    (Some("HELP"), Some(name), Some(help)) => {
                        exposition.help.insert(name.into(), help.into());
                    }
                    _ => {}
                }
            } else {
                exposition.samples.push(sample(line).unwrap_or_else(|| panic!("not a sample: {line}")));
            }
        }
        exposition
    }

    /// All samples of `name` that have (at least) these labels.
    pub fn all(&self, name: &str, labels: &[(&str, &str)]) -> Vec<&Sample> {
        self.samples.iter().filter(|s| s.name == name && s.has(labels)).collect()
    }

    /// The one sample of `name` with these labels; `None` where it is absent. More than one is a mistake of the test.
    #[track_caller]
    pub fn one(&self, name: &str, labels: &[(&str, &str)]) -> Option<&Sample> {
        let found = self.all(name, labels);
        assert!(found.len() <= 1, "{name}{labels:?} names {} samples: {found:?}", found.len());
        found.first().copied()
    }

    #[track_caller]
    pub fn u64(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.one(name, labels).unwrap_or_else(|| panic!("{name}{labels:?} is absent")).u64()
    }

    #[track_caller]
    pub fn f64(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.one(name, labels).unwrap_or_else(|| panic!("{name}{labels:?} is absent")).f64()
    }

    /// Every name that has a sample, once.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.samples.iter().map(|s| s.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// `name{label="value",...} value [timestamp] [# exemplar]`
fn sample(line: &str) -> Option<Sample> {
    let name_end = line.find(['{', ' '])?;
    let name = &line[..name_end];
    let mut labels = BTreeMap::new();
    let mut rest = &line[name_end..];
    if let Some(mut inner) = rest.strip_prefix('{') {
        loop {
            if let Some(after) = inner.strip_prefix('}') {
                rest = after;
                break;
            }
            let (label, after) = inner.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            if labels.insert(label.to_owned(), value).is_some() {
                return None;
            }
            inner = after.strip_prefix(',').unwrap_or(after);
        }
    }
    let value = rest.strip_prefix(' ')?.split(' ').next()?;
    value.parse::<f64>().ok()?;
    Some(Sample { name: name.to_owned(), labels, value: value.to_owned() })
}

/// A label's value up to its closing quote, unescaped, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}
