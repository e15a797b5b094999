//! Text becomes the value of a setting, or a sentence without its name that says what is wanted. Pure.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::api::DEFAULT_PORT;
use crate::fingerprint;
use crate::jobspec::quantity::{format_duration, parse_days};
use crate::model::alloc::AllocSource;

pub(super) fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// `5m` for Go's `5m0s`, `24h` for its `24h0m0s`, and `30d`.
pub(super) fn short(duration: Duration) -> String {
    const DAY: u64 = 86_400;
    let seconds = duration.as_secs();
    if duration.subsec_nanos() == 0 && seconds.is_multiple_of(DAY) && seconds > DAY {
        return format!("{}d", seconds / DAY);
    }
    let text = format_duration(duration);
    match (text.strip_suffix("h0m0s"), text.strip_suffix("m0s")) {
        (Some(hours), _) => format!("{hours}h"),
        (None, Some(minutes)) => format!("{minutes}m"),
        (None, None) => text,
    }
}

pub(super) fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned).collect()
}

/// An empty list is not set.
pub(super) fn listed(names: &[String]) -> Option<String> {
    Some(names.join(",")).filter(|text| !text.is_empty())
}

/// Each as it is meant. Errors: of the first that cannot be.
pub(super) fn each<T>(texts: &[String], parse: fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    texts.iter().map(|text| parse(text)).collect()
}

/// As they can be read again. An empty list is not set.
pub(super) fn written<T: ToString>(all: &[T]) -> Option<String> {
    listed(&all.iter().map(ToString::to_string).collect::<Vec<_>>())
}

pub(super) fn fingerprinters(names: Vec<String>) -> Result<Vec<String>, String> {
    let known: Vec<&str> = fingerprint::ALL.iter().map(|one| one.name()).collect();
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("there is no fingerprinter {name:?}; there are {}", known.join(", "))),
        None => Ok(names),
    }
}

pub(super) fn observed_sources(words: &[String]) -> Result<BTreeSet<AllocSource>, String> {
    let known =
        AllocSource::ALL.into_iter().filter(|source| !matches!(source, AllocSource::Managed | AllocSource::Process));
    if words.iter().any(|text| text == AllocSource::Process.as_str()) {
        return Err("\"process\" is not chosen here: `observe.processes` (ALLOSTAT_OBSERVE_PROCESSES) shows processes"
            .to_owned());
    }
    words.iter().map(|text| word(text, known.clone(), AllocSource::as_str)).collect()
}

pub(super) fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if text.is_empty() {
        return Err("a path is missing".to_owned());
    }
    // Against the directory that the agent is started in: it works in another one later.
    std::path::absolute(&path).map_err(|e| format!("{text:?} is no path: {e}"))
}

pub(super) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let spelled = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    spelled.parse().map_err(|_| format!("{text:?} is no address: write 127.0.0.1:{} or [::1]:{0}", DEFAULT_PORT))
}

pub(super) fn cgroup_parent(text: &str) -> Result<String, String> {
    let wrong = |why: &str| Err(format!("{text:?} is no parent for cgroups: {why}"));
    match text {
        text if !text.starts_with('/') => wrong("it must begin with /, the root of each hierarchy"),
        "/" => wrong("allocs are not put into the root itself"),
        text if text.split('/').any(|part| part == "..") => wrong(".. leads out of it"),
        text if text.split('/').skip(1).any(|part| part.is_empty() || part == ".") => wrong("a part of it is empty"),
        text if text.contains(char::is_control) => wrong("it has a control character"),
        text => Ok(text.to_owned()),
    }
}

/// The one of `known` that is called so.
pub(super) fn word<T: Copy>(
    text: &str,
    known: impl IntoIterator<Item = T> + Clone,
    name: fn(T) -> &'static str,
) -> Result<T, String> {
    let found = known.clone().into_iter().find(|one| name(*one) == text);
    let names = || known.into_iter().map(name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("{text:?} is none of {}", names()))
}

/// As OpenTelemetry writes durations: a number is milliseconds.
pub(super) fn millis(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        duration(&format!("{text}ms"), least, most)
    } else {
        duration(text, least, most)
    }
}

pub(super) fn duration(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let value = parse_days(text).map_err(|e| format!("{text:?} is no duration: {e}"))?;
    if value < least || value > most {
        return Err(format!("{text:?} is not between {} and {}", short(least), short(most)));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observed_sources_refuse_processes_with_the_setting_that_shows_them() {
        let refused = observed_sources(&["process".to_owned()]).unwrap_err();
        assert!(refused.contains("observe.processes") && refused.contains("ALLOSTAT_OBSERVE_PROCESSES"), "{refused}");
        assert_eq!(observed_sources(&["docker".to_owned()]).unwrap(), BTreeSet::from([AllocSource::Docker]));
    }
}
