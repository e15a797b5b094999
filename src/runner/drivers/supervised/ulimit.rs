//! `ulimit` in `config`: `nofile = "1024:4096"`, with the names and the form of Nomad's `docker` driver.

use serde_json::Value;

use crate::host::process::{RESOURCES, ResourceLimit};
use crate::model::nearest::nearest;
use crate::runner::drivers::ConfigProblem;
use crate::runner::drivers::fields::{ConfigFields, error};

/// Refused: an unknown name, an invalid value, a soft limit above the hard one.
pub fn limits(fields: &mut ConfigFields) -> Vec<ResourceLimit> {
    let Some(value) = fields.value("ulimit") else { return Vec::new() };
    let Some(limits) = value.as_object() else {
        let message = format!("must be limits by their names, such as nofile = \"1024:4096\", not {value}");
        fields.refuse(error("ulimit", message));
        return Vec::new();
    };
    limits.iter().filter_map(|(name, value)| fields.or_collect(limit(name, value))).collect()
}

/// Adds the soft limit on descriptors for tasks whose job sets none; the agent has raised its own.
pub fn with_descriptors(mut limits: Vec<ResourceLimit>, soft: Option<u64>) -> Vec<ResourceLimit> {
    const DESCRIPTORS: &str = "nofile";
    if soft.is_some() && !limits.iter().any(|limit| limit.name == DESCRIPTORS) {
        let here = ResourceLimit { name: DESCRIPTORS.to_owned(), soft, hard: None }.current();
        limits.extend(here.map(|here| ResourceLimit { soft: soft.min(here.hard.or(soft)), ..here }));
    }
    limits
}

fn limit(name: &str, value: &Value) -> Result<ResourceLimit, ConfigProblem> {
    let refused = |message: String| error(&format!("ulimit.{name}"), message);
    let names = || RESOURCES.iter().map(|(name, _)| *name);
    if !names().any(|known| known == name) {
        let advice = match nearest(name, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
        };
        let message = "is no limit of a process".to_owned();
        return Err(ConfigProblem { advice: Some(advice), of_name: true, ..refused(message) });
    }
    let wrong = || {
        refused(format!(
            "must be \"SOFT:HARD\" or one number for both, each of them a whole number or unlimited, not {value}"
        ))
    };
    let both = match value {
        Value::String(text) => match text.split_once(':') {
            Some((soft, hard)) => parse(soft).zip(parse(hard)),
            None => parse(text).map(|limit| (limit, limit)),
        },
        Value::Number(number) => parse(&number.to_string()).map(|limit| (limit, limit)),
        _ => None,
    };
    let (soft, hard) = both.ok_or_else(wrong)?;
    // Unlimited is the highest value.
    if soft.unwrap_or(u64::MAX) > hard.unwrap_or(u64::MAX) {
        return Err(refused(format!("its soft limit is above its hard one: {value}")));
    }
    Ok(ResourceLimit { name: name.to_owned(), soft, hard })
}

/// `None`: invalid. Docker and the shell use -1 for unlimited.
fn parse(text: &str) -> Option<Option<u64>> {
    match text.trim() {
        "unlimited" | "-1" => Some(None),
        // The kernel's own number for unlimited is no valid limit.
        number => number.parse().ok().filter(|number| *number != u64::MAX).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(config: &str) -> Result<Vec<ResourceLimit>, String> {
        let config = serde_json::from_str(config).unwrap();
        let mut fields = ConfigFields::new(&config);
        let limits = limits(&mut fields);
        fields.done().map(|()| limits).map_err(|e| e.to_string())
    }

    #[test]
    fn limits_are_soft_and_hard_or_both_at_once() {
        let ulimit =
            r#"{"ulimit": {"nofile": "1024:4096", "core": 0, "nproc": "7", "memlock": "-1", "stack": "5:unlimited"}}"#;
        let read = read(ulimit).unwrap();
        let limit = |name: &str| read.iter().find(|limit| limit.name == name).map(|limit| (limit.soft, limit.hard));
        assert_eq!(limit("nofile"), Some((Some(1024), Some(4096))));
        assert_eq!(limit("core"), Some((Some(0), Some(0))));
        assert_eq!(limit("nproc"), Some((Some(7), Some(7))));
        assert_eq!(limit("memlock"), Some((None, None)));
        assert_eq!(limit("stack"), Some((Some(5), None)));
        assert_eq!(read.len(), 5);
    }

    #[test]
    fn invalid_limit_is_refused_with_a_valid_form() {
        let error = |config: &str| read(config).unwrap_err();
        assert_eq!(
            error(r#"{"ulimit": {"nofiles": 1}}"#),
            "ulimit.nofiles: is no limit of a process; did you mean `nofile`?"
        );
        assert!(error(r#"{"ulimit": {"RLIMIT_X_Y_Z": 1}}"#).contains("there are as, core"));
        assert_eq!(
            error(r#"{"ulimit": {"nofile": "4096:1024"}}"#),
            "ulimit.nofile: its soft limit is above its hard one: \"4096:1024\""
        );
        assert!(error(r#"{"ulimit": {"core": "unlimited:0"}}"#).contains("above its hard one"));
        for wrong in [r#""""#, r#""1:2:3""#, r#""1:""#, r#""1k""#, "1.5", "-2", "true", "[1]", "18446744073709551615"] {
            let output = error(&format!(r#"{{"ulimit": {{"nofile": {wrong}}}}}"#));
            assert!(
                output.contains("\"SOFT:HARD\" or one number") && output.ends_with(&format!("not {wrong}")),
                "{output}"
            );
        }
        assert!(error(r#"{"ulimit": 5}"#).starts_with("ulimit: must be limits by their names"));
    }
}
