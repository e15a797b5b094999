//! Settings that are fine alone and impossible together: each case, at the place of the first of them that stands in
//! the file.

use super::{Config, ConfigError, ReadFile, otlp};
use crate::exporters;
use crate::host::http::{MAX_SOCKET_PATH_BYTES, socket_path_fits};
use crate::jobspec::diagnostic::Severity;
use crate::jobspec::quantity::format_duration;
use crate::snapshot::RetentionConfig;
use crate::telemetry::otlp::OtlpSignal;

struct Clash {
    /// What it is about: `telemetry.retention`, those that one would change first.
    settings: Vec<String>,
    message: String,
}

/// Errors: what is wrong in the file, and everything that clashes. What is said of a setting that is wrong itself would
/// be of its default: it is left out.
pub fn together(config: &Config, file: Option<ReadFile>) -> Result<(), ConfigError> {
    let clashes = clashes(config);
    let Some(file) = file else {
        let rest: Vec<String> = clashes.into_iter().map(|clash| clash.message).collect();
        return if rest.is_empty() { Ok(()) } else { Err(ConfigError::Refused(Default::default(), rest)) };
    };
    let ReadFile { source, mut problems, places, .. } = file;
    let wrong: Vec<String> = problems.0.iter().map(|problem| problem.field.clone()).collect();
    let mut rest = Vec::new();
    for Clash { settings, message } in clashes {
        if settings.iter().any(|setting| wrong.contains(setting)) {
            continue;
        }
        match settings.iter().find_map(|setting| Some((setting, places.get(setting)?))) {
            Some((setting, span)) => problems.0.push(source.diagnostic(Severity::Error, span, setting, message)),
            None => rest.push(message),
        }
    }
    problems.0.sort_by_key(|problem| (problem.line, problem.column));
    if problems.0.is_empty() && rest.is_empty() { Ok(()) } else { Err(ConfigError::Refused(problems, rest)) }
}

fn clashes(config: &Config) -> Vec<Clash> {
    let mut found = Vec::new();
    let mut add = |settings: &[&str], message: String| {
        found.push(Clash { settings: settings.iter().map(|setting| (*setting).to_owned()).collect(), message });
    };
    let socket = config.socket();
    if !socket_path_fits(&socket) {
        let message = format!(
            "the path of the Unix socket, {}, has {} bytes; the system allows {MAX_SOCKET_PATH_BYTES}: \
             choose a shorter agent.data_dir or agent.socket",
            socket.display(),
            socket.as_os_str().len()
        );
        let by_socket = config.api.socket.is_some();
        add(if by_socket { &["agent.socket"] } else { &["agent.data_dir"] }, message);
    }
    let (first, last) = config.network.dynamic_ports;
    if first > last {
        let message = format!("network.min_dynamic_port, {first}, is above network.max_dynamic_port, {last}");
        add(&["network.min_dynamic_port", "network.max_dynamic_port"], message);
    }
    if config.api.acting_certificates.iter().any(|name| !name.is_empty()) && config.api.web_config_file.is_none() {
        let why =
            "agent.acting_certificates needs agent.web_config_file, which has the authorities of its certificates";
        add(&["agent.acting_certificates", "agent.web_config_file"], why.to_owned());
    }
    for (keys, message) in config.migrate.clashes() {
        add(&keys, message);
    }
    let RetentionConfig { least, most, .. } = config.telemetry.retention;
    if most < least {
        let message = format!(
            "telemetry.retention_max ({}) is shorter than telemetry.retention ({})",
            format_duration(most),
            format_duration(least)
        );
        add(&["telemetry.retention_max", "telemetry.retention"], message);
    }
    for (name, destination) in config.otlp.all() {
        let is_first = name == exporters::otlp::DEFAULT;
        let stanza = if is_first { otlp::STANZA.to_owned() } else { format!("otlp.destination.{name}") };
        let mut of_destination: Vec<Clash> = Vec::new();
        for (keys, message) in destination.clashes() {
            let message = format!("{stanza}: {message}");
            let settings: Vec<String> = keys.iter().map(|key| format!("{stanza}.{key}")).collect();
            // One setting of all signals clashes for each of them.
            match of_destination.iter_mut().find(|clash| clash.message == message) {
                Some(clash) => clash.settings.extend(settings),
                None => of_destination.push(Clash { settings, message }),
            }
        }
        let interval = destination.interval;
        if destination.target(OtlpSignal::Metrics).is_some() && interval > least {
            let message = format!(
                "{stanza}.interval ({}) is longer than telemetry.retention ({}): tasks that begin and end between two \
                 pushes would never be pushed",
                format_duration(interval),
                format_duration(least)
            );
            let settings = vec![format!("{stanza}.interval"), "telemetry.retention".to_owned()];
            of_destination.push(Clash { settings, message });
        }
        found.extend(of_destination);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{ConfigSources, read_text};
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let mut config = Config::new("/var/lib/allostat".into());
        let file = read_text("agent.hcl", text, &mut config);
        match together(&config, Some(file)) {
            Ok(()) => Vec::new(),
            Err(ConfigError::Refused(problems, rest)) => {
                let placed = problems.0.iter().map(|p| format!("{}:{} {}: {}", p.line, p.column, p.field, p.message));
                placed.chain(rest).collect()
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_conflicts_are_reported_at_once_with_their_places_in_the_file() {
        let text = "telemetry {\n  retention = \"11m\"\n}\nagent {\n  acting_certificates = [\"a\"]\n}\notlp {\n  \
                    endpoint = \"c:4318\"\n  destination \"b\" {\n    metrics_endpoint = \"http://b:1\"\n    client_key = \"/k\"\n    \
                    interval = \"1h\"\n  }\n}\n";
        let all = problems(text);
        let starts = [
            "2:15 telemetry.retention: telemetry.retention_max",
            "5:25 agent.acting_certificates: agent.acting_certificates needs",
            "8:14 otlp.endpoint: otlp: the endpoint c:4318 has neither",
            "11:18 otlp.destination.b.client_key: otlp.destination.b: client_certificate and",
            "12:16 otlp.destination.b.interval: otlp.destination.b.interval (1h0m0s) is longer",
        ];
        assert_eq!(all.len(), starts.len(), "{all:#?}");
        for (problem, start) in all.iter().zip(starts) {
            assert!(problem.starts_with(start), "{all:#?}");
        }
    }

    #[test]
    fn invalid_value_is_reported_beside_conflicts_and_conflicts_with_nothing() {
        let all = problems(
            "telemetry {\n  retention = \"11m\"\n  retention_max = \"never\"\n}\notlp {\n  endpoint = \"c:4318\"\n}\n",
        );
        assert_eq!(all.len(), 2, "{all:#?}");
        assert!(
            all[0].starts_with("3:19 telemetry.retention_max") && all[1].starts_with("6:14 otlp.endpoint"),
            "{all:#?}"
        );
    }

    #[test]
    fn config_error_from_a_variable_has_no_place_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.hcl");
        std::fs::write(&path, "telemetry {\n  retention = \"1m\"\n}\notlp {\n  endpoint = \"c:4318\"\n}\n").unwrap();
        let env = vec![("ALLOSTAT_RETENTION".to_owned(), "11m".to_owned())];
        let refused = ConfigSources { file: Some(path), env, ..ConfigSources::default() }.load().unwrap_err();
        let ConfigError::Refused(placed, rest) = refused else { panic!("{refused:?}") };
        assert_eq!((placed.0.len(), rest.len()), (1, 1), "{placed} {rest:?}");
        assert!(rest[0].contains("telemetry.retention (11m0s)"), "{rest:?}");
    }

    #[test]
    fn otlp_stanza_without_endpoint_is_reported_at_its_place() {
        let warnings = |text: &str| {
            let file = read_text("agent.hcl", text, &mut Config::new("/var/lib/allostat".into()));
            file.warnings.iter().map(|w| (w.line, w.column, w.message.clone())).collect::<Vec<_>>()
        };
        for text in ["\notlp {}\n", "\notlp {\n  timeout = \"3s\"\n}\n"] {
            let [(line, column, message)] = &warnings(text)[..] else { panic!("{text}") };
            assert_eq!((*line, *column), (2, 1));
            assert!(message.starts_with("nothing is pushed"), "{message}");
        }
        assert_eq!(warnings("otlp {\n  logs_endpoint = \"http://c:1/x\"\n}\n"), []);
        assert_eq!(warnings("otlp {\n  disabled = true\n}\n").len(), 0);
        assert_eq!(warnings(""), []);
    }
}
