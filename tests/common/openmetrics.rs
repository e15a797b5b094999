//! A small strict reader of OpenMetrics 1.0.0: it takes what the specification allows and of that only what we write.
//!
//! Source: the OpenMetrics specification 1.0.0, "Text format" and "MetricFamily".

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub unit: Option<String>,
    pub help: Option<String>,
    pub samples: Vec<Sample>,
}

#[derive(Debug)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: String,
    pub exemplar: Option<Exemplar>,
}

#[derive(Debug)]
pub struct Exemplar {
    pub labels: BTreeMap<String, String>,
    pub value: f64,
    /// Seconds.
    pub at: f64,
}

/// Every family by name. Errors: the first line that breaks a rule, with the rule.
pub fn check(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("it must end with # EOF and a newline")?;
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut seen: BTreeSet<(String, String)> = BTreeSet::new();
    for line in body.split_terminator('\n') {
        let wrong = |rule: &str| format!("{rule}: {line}");
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(what), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else {
                return Err(wrong("a comment is HELP, TYPE or UNIT with a name and a text"));
            };
            if name != current {
                if families.contains_key(name) {
                    return Err(wrong("the lines of a family stand together"));
                }
                families.insert(name.to_owned(), Family::default());
                current = name.to_owned();
            }
            let family = families.get_mut(name).expect("it was just put there");
            if !family.samples.is_empty() {
                return Err(wrong("metadata stands before the samples"));
            }
            match what {
                "HELP" => {
                    unescape(rest).ok_or_else(|| wrong("a bad escape"))?;
                    if family.help.replace(rest.to_owned()).is_some() {
                        return Err(wrong("HELP twice"));
                    }
                }
                "TYPE" if !family.kind.is_empty() => return Err(wrong("TYPE twice")),
                "TYPE" if !["counter", "gauge", "histogram", "info", "unknown"].contains(&rest) => {
                    return Err(wrong("not a type"));
                }
                "TYPE" => family.kind = rest.to_owned(),
                "UNIT" if !name.ends_with(&format!("_{rest}")) => return Err(wrong("the name ends with the unit")),
                "UNIT" => family.unit = Some(rest.to_owned()),
                _ => return Err(wrong("not HELP, TYPE or UNIT")),
            }
            continue;
        }
        let sample = sample(line).ok_or_else(|| wrong("not a sample"))?;
        let family = families.get_mut(&current).ok_or_else(|| wrong("a sample of no family"))?;
        let suffix = sample.name.strip_prefix(&current).ok_or_else(|| wrong("a sample of another family"))?;
        if !seen.insert((sample.name.clone(), format!("{:?}", sample.labels))) {
            return Err(wrong("the same series twice"));
        }
        rules(family, suffix, &sample).map_err(wrong)?;
        let sibling =
            family.samples.last().is_some_and(|last| last.name.ends_with("_total") && last.labels == sample.labels);
        if suffix == "_created" && !sibling {
            return Err(wrong("it stands beside its total"));
        }
        family.samples.push(sample);
    }
    for (name, family) in &families {
        if family.kind.is_empty() || family.help.is_none() || family.samples.is_empty() {
            return Err(format!("{name} lacks TYPE, HELP or samples"));
        }
        if let Some(clash) = ["_total", "_info", "_bucket", "_sum", "_count", "_created"]
            .iter()
            .find(|s| families.contains_key(&format!("{name}{s}")))
        {
            return Err(format!("{name} and {name}{clash} cannot both be families"));
        }
        if family.kind == "histogram" {
            histogram(name, family)?;
        }
    }
    Ok(families)
}

fn rules(family: &Family, suffix: &str, sample: &Sample) -> Result<(), &'static str> {
    let number: f64 = sample.value.parse().map_err(|_| "not a number")?;
    if let Some(exemplar) = &sample.exemplar {
        if !matches!((family.kind.as_str(), suffix), ("counter", "_total") | ("histogram", "_bucket")) {
            return Err("only totals and buckets have exemplars");
        }
        let length: usize = exemplar.labels.iter().map(|(n, v)| n.chars().count() + v.chars().count()).sum();
        if length > 128 {
            return Err("the labels of an exemplar are longer than 128 code points");
        }
        let le = sample.labels.get("le").and_then(|le| le.parse::<f64>().ok()).unwrap_or(f64::INFINITY);
        if exemplar.value > le || exemplar.value < 0.0 || number == 0.0 {
            return Err("an exemplar was counted where it stands");
        }
    }
    match (family.kind.as_str(), suffix) {
        ("counter", "_total") if number >= 0.0 => Ok(()),
        ("counter", "_created") if number > 0.0 => Ok(()),
        ("gauge" | "unknown", "") => Ok(()),
        ("info", "_info") if sample.value == "1" => Ok(()),
        ("histogram", "_bucket") if sample.labels.contains_key("le") => {
            let le = &sample.labels["le"];
            // Canonical: 1.0, not 1; +Inf, not inf.
            let canonical = le == "+Inf" || (le.contains('.') && le.parse::<f64>().is_ok());
            canonical.then_some(()).ok_or("the bound of a bucket is not canonical")
        }
        ("histogram", "_sum" | "_count") => Ok(()),
        _ => Err("a name or value that this type does not have"),
    }
}

fn histogram(name: &str, family: &Family) -> Result<(), String> {
    let mut last: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for sample in family.samples.iter().filter(|s| s.name.ends_with("_bucket")) {
        let mut labels = sample.labels.clone();
        let le: f64 = labels.remove("le").unwrap_or_default().parse().map_err(|_| format!("{name}: le"))?;
        let n: f64 = sample.value.parse().map_err(|_| format!("{name}: not a number"))?;
        let before = last.insert(format!("{labels:?}"), (le, n));
        if before.is_some_and(|(bound, count)| bound >= le || count > n) {
            return Err(format!("{name}: buckets grow in bound and in count"));
        }
    }
    if last.is_empty() || last.values().any(|(bound, _)| bound.is_finite()) {
        return Err(format!("{name}: the last bucket is +Inf"));
    }
    Ok(())
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = labels(rest)?;
    let rest = rest.strip_prefix(' ')?;
    let (value, exemplar) = match rest.split_once(" # ") {
        None => (rest, None),
        Some((value, exemplar)) => (value, Some(self::exemplar(exemplar)?)),
    };
    (!name.is_empty() && !value.is_empty() && !value.contains(' ')).then(|| Sample {
        name: name.to_owned(),
        labels,
        value: value.to_owned(),
        exemplar,
    })
}

/// `{labels} value timestamp`: we always write the time.
fn exemplar(text: &str) -> Option<Exemplar> {
    let (labels, rest) = labels(text)?;
    let (value, at) = rest.strip_prefix(' ')?.split_once(' ')?;
    Some(Exemplar { labels, value: value.parse().ok()?, at: at.parse().ok()? })
}

/// `{a="b",...}`, where there is one, and what follows.
fn labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (name, value) = rest.split_once("=\"")?;
            let end = closing_quote(value)?;
            let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if name.is_empty() || !plain || labels.insert(name.to_owned(), unescape(&value[..end])?).is_some() {
                return None;
            }
            rest = &value[end + 1..];
            rest = match rest.strip_prefix(',') {
                Some(more) if !more.starts_with('}') => more,
                Some(_) => return None,
                None => rest,
            };
            if !rest.starts_with('}') && !value[end + 1..].starts_with(',') {
                return None;
            }
        }
        rest = rest.strip_prefix('}')?;
    }
    Some((labels, rest))
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (place, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(place),
            _ => {}
        }
    }
    None
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(match chars.next()? {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            '"' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}
