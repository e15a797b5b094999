//! The settings of OTLP, in the words of OpenTelemetry's variables.
//!
//! Source: OpenTelemetry specification, "OTLP Exporter Configuration", "Environment Variable Specification".

use std::path::Path;
use std::time::Duration;

use super::setting::{A_DAY, Setting, SettingKind, TEN_YEARS};
use super::values::{absolute, millis, short, word};
use crate::exporters::otlp;

pub(super) const STANZA: &str = "otlp";

pub(super) fn shown(path: Option<&Path>) -> Option<String> {
    path.map(|path| path.display().to_string())
}

pub(super) static OTLP: &[Setting] = &[
    Setting {
        stanza: STANZA,
        key: "endpoint",
        env: "OTEL_EXPORTER_OTLP_ENDPOINT",
        about: "Endpoint for metrics, logs and traces: http://host:port or https://host:port, with /v1/metrics, \
                /v1/logs and /v1/traces below it. Default: none, nothing is pushed.",
        kind: SettingKind::Text(|c, text| otlp::endpoint(text, true).map(|endpoint| c.otlp.endpoint = Some(endpoint))),
        get: |c| c.otlp.endpoint.as_ref().map(ToString::to_string),
    },
    Setting {
        stanza: STANZA,
        key: "disabled",
        env: "OTEL_SDK_DISABLED",
        about: "true: push nothing, whatever endpoints are set; in a destination, nothing to it.",
        kind: SettingKind::Bool(|c, on| c.otlp.disabled = on),
        get: |c| Some(c.otlp.disabled.to_string()),
    },
    Setting {
        stanza: STANZA,
        key: "protocol",
        env: "OTEL_EXPORTER_OTLP_PROTOCOL",
        about: "http/protobuf or grpc.",
        kind: SettingKind::Text(|c, text| {
            c.otlp.protocol = word(&text.to_lowercase(), otlp::Protocol::ALL, otlp::Protocol::as_str)?;
            Ok(())
        }),
        get: |c| Some(c.otlp.protocol.as_str().to_owned()),
    },
    Setting {
        stanza: STANZA,
        key: "insecure",
        env: "OTEL_EXPORTER_OTLP_INSECURE",
        about: "gRPC, with an endpoint of host:port alone: use http rather than https.",
        kind: SettingKind::Bool(|c, on| c.otlp.insecure = on),
        get: |c| Some(c.otlp.insecure.to_string()),
    },
    Setting {
        stanza: STANZA,
        key: "certificate",
        env: "OTEL_EXPORTER_OTLP_CERTIFICATE",
        about: "https: trusted CA certificates, PEM. Reloaded for each connection. Default: those of the system.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.otlp.certificate = Some(path))),
        get: |c| shown(c.otlp.certificate.as_deref()),
    },
    Setting {
        stanza: STANZA,
        key: "client_certificate",
        env: "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
        about: "https: client certificate for a collector that requires one, PEM with its chain.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.otlp.client_certificate = Some(path))),
        get: |c| shown(c.otlp.client_certificate.as_deref()),
    },
    Setting {
        stanza: STANZA,
        key: "client_key",
        env: "OTEL_EXPORTER_OTLP_CLIENT_KEY",
        about: "https: key of the client certificate, PEM.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.otlp.client_key = Some(path))),
        get: |c| shown(c.otlp.client_key.as_deref()),
    },
    Setting {
        stanza: STANZA,
        key: "headers",
        env: "OTEL_EXPORTER_OTLP_HEADERS",
        about: "Headers of each request: name=value, separated by commas, values percent-encoded.",
        kind: SettingKind::Text(|c, text| otlp::headers(text).map(|headers| c.otlp.headers = headers)),
        get: |c| Some(&c.otlp.headers).filter(|headers| !headers.is_empty()).map(|headers| otlp::joined(headers)),
    },
    Setting {
        stanza: STANZA,
        key: "timeout",
        env: "OTEL_EXPORTER_OTLP_TIMEOUT",
        about: "Timeout of one request. In the environment a number is milliseconds.",
        kind: SettingKind::Text(|c, text| {
            c.otlp.timeout = millis(text, Duration::from_millis(100), Duration::from_secs(600))?;
            Ok(())
        }),
        get: |c| Some(short(c.otlp.timeout)),
    },
    Setting {
        stanza: STANZA,
        key: "compression",
        env: "OTEL_EXPORTER_OTLP_COMPRESSION",
        about: "gzip, zstd or none.",
        kind: SettingKind::Text(|c, text| {
            c.otlp.compression = word(&text.to_lowercase(), otlp::Compression::ALL, otlp::Compression::as_str)?;
            Ok(())
        }),
        get: |c| Some(c.otlp.compression.as_str().to_owned()),
    },
    Setting {
        stanza: STANZA,
        key: "temporality_preference",
        env: "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
        about: "Temporality of sums and histograms. cumulative: since their start; delta: since the last export that \
                the collector accepted; lowmemory: histograms as delta, sums as cumulative.",
        kind: SettingKind::Text(|c, text| {
            c.otlp.temporality = word(&text.to_lowercase(), otlp::Temporality::ALL, otlp::Temporality::as_str)?;
            Ok(())
        }),
        get: |c| Some(c.otlp.temporality.as_str().to_owned()),
    },
    Setting {
        stanza: STANZA,
        key: "default_histogram_aggregation",
        env: "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
        about: "explicit_bucket_histogram: the buckets of /metrics; base2_exponential_bucket_histogram: finer \
                buckets, as in native histograms.",
        kind: SettingKind::Text(|c, text| {
            c.otlp.aggregation =
                word(&text.to_lowercase(), otlp::HistogramAggregation::ALL, otlp::HistogramAggregation::as_str)?;
            Ok(())
        }),
        get: |c| Some(c.otlp.aggregation.as_str().to_owned()),
    },
    Setting {
        stanza: STANZA,
        key: "names",
        env: "ALLOSTAT_OTLP_NAMES",
        about: "Names of pushed metrics. conventions: those of OpenTelemetry; prometheus: names, labels and profile of \
                /metrics, so that the boards and alerts work on pushed data.",
        kind: SettingKind::Text(|c, text| {
            c.otlp.names = word(&text.to_lowercase(), otlp::MetricNames::ALL, otlp::MetricNames::as_str)?;
            Ok(())
        }),
        get: |c| Some(c.otlp.names.as_str().to_owned()),
    },
    Setting {
        stanza: STANZA,
        key: "flat",
        env: "ALLOSTAT_OTLP_FLAT",
        about: "Repeat resource attributes on each of its points, for stores that drop resources.",
        kind: SettingKind::Bool(|c, on| c.otlp.flat = on),
        get: |c| Some(c.otlp.flat.to_string()),
    },
    Setting {
        stanza: STANZA,
        key: "interval",
        env: "OTEL_METRIC_EXPORT_INTERVAL",
        about: "Export interval. In the environment a number is milliseconds.",
        kind: SettingKind::Text(|c, text| {
            c.otlp.interval = millis(text, Duration::from_millis(100), A_DAY)?;
            Ok(())
        }),
        get: |c| Some(short(c.otlp.interval)),
    },
    Setting {
        stanza: STANZA,
        key: "service_name",
        env: "OTEL_SERVICE_NAME",
        about: "service.name of the host and of the agent. Tasks and allocs have that of their workload. Default: \
                allostat.",
        kind: SettingKind::Text(|c, text| {
            c.otlp.service_name = Some(text.to_owned()).filter(|name| !name.is_empty());
            Ok(())
        }),
        get: |c| c.otlp.service_name.clone(),
    },
    Setting {
        stanza: STANZA,
        key: "resource_attributes",
        env: "OTEL_RESOURCE_ATTRIBUTES",
        about: "Attributes of every resource: key=value, separated by commas, percent-encoded. Attributes that the \
                agent sets itself win.",
        kind: SettingKind::Text(|c, text| otlp::pairs(text).map(|attributes| c.otlp.resource_attributes = attributes)),
        get: |c| Some(&c.otlp.resource_attributes).filter(|all| !all.is_empty()).map(|all| otlp::joined(all)),
    },
    Setting {
        stanza: STANZA,
        key: "queue_bytes",
        env: "ALLOSTAT_OTLP_QUEUE_BYTES",
        about: "Maximum size of the queue for the collector, in the data directory: the oldest points are dropped.",
        kind: SettingKind::Whole(1 << 20, 1 << 40, |c, n| c.otlp.queue_bytes = n),
        get: |c| Some(c.otlp.queue_bytes.to_string()),
    },
    Setting {
        stanza: STANZA,
        key: "queue_age",
        env: "ALLOSTAT_OTLP_QUEUE_AGE",
        about: "Maximum age of queued points: older ones are dropped.",
        kind: SettingKind::Duration(Duration::from_secs(60), TEN_YEARS, |c, d| c.otlp.queue_age = d),
        get: |c| Some(short(c.otlp.queue_age)),
    },
    Setting {
        stanza: STANZA,
        key: "logs_tasks",
        env: "ALLOSTAT_OTLP_LOGS_TASKS",
        about: "Push the output of managed tasks with the logs: stdout, stderr, or both separated by a comma. \
                Default: none.",
        kind: SettingKind::Text(|c, text| {
            c.otlp.task_streams = streams(text)?;
            Ok(())
        }),
        get: |c| {
            Some(&c.otlp.task_streams)
                .filter(|all| !all.is_empty())
                .map(|all| all.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(","))
        },
    },
    Setting {
        stanza: STANZA,
        key: "logs_tasks_rate",
        env: "ALLOSTAT_OTLP_LOGS_TASKS_RATE",
        about: "Maximum output of one task to push, in bytes per second; each line counts 64 more. Bursts may have \
                four seconds of it.",
        kind: SettingKind::Whole(1 << 10, 1 << 30, |c, n| c.otlp.task_rate = n),
        get: |c| Some(c.otlp.task_rate.to_string()),
    },
    Setting {
        stanza: STANZA,
        key: "logs_tasks_total_rate",
        env: "ALLOSTAT_OTLP_LOGS_TASKS_TOTAL_RATE",
        about: "Maximum output of all tasks together to push, in bytes per second.",
        kind: SettingKind::Whole(1 << 10, 1 << 30, |c, n| c.otlp.tasks_rate = n),
        get: |c| Some(c.otlp.tasks_rate.to_string()),
    },
];

/// `none`, or streams separated by commas.
fn streams(text: &str) -> Result<Vec<otlp::ForwardedStream>, String> {
    let text = text.to_lowercase();
    if text == "none" {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let stream = otlp::ForwardedStream::parse(one)
            .ok_or_else(|| format!("{one:?} is no output of a task: none, stdout, stderr, or stdout,stderr"))?;
        if !all.contains(&stream) {
            all.push(stream);
        }
    }
    if all.is_empty() { Err("must be none, stdout, stderr, or stdout,stderr".to_owned()) } else { Ok(all) }
}

/// Promise (Measured values): An unknown value of an OTLP variable is refused by name; variables override the file,
/// metric variables override all
#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigError, ConfigSources, print, read_text};
    use crate::telemetry::otlp::OtlpSignal;

    fn read(name: &str, text: &str) -> Result<Config, String> {
        let mut config = Config::new("/var/lib/allostat".into());
        let problems = read_text(name, text, &mut config).problems;
        if problems.0.is_empty() { Ok(config) } else { Err(problems.to_string()) }
    }

    const TWO: &str = "otlp {\n  endpoint = \"http://first:4318\"\n  headers = \"authorization=secret\"\n  service_name = \"edge\"\n  \
                       timeout = \"3s\"\n  destination \"second\" {\n    endpoint = \"https://second:4317\"\n    protocol = \"grpc\"\n  \
                       }\n  destination \"third\" {\n    metrics_endpoint = \"http://third:1/x\"\n    service_name = \"other\"\n  }\n}\n";

    #[test]
    fn further_destinations_are_set_for_themselves_and_are_of_the_same_host() {
        let config = read("agent.hcl", TWO).unwrap();
        let all = config.otlp.all();
        let destination = |at: usize| {
            let (name, config) = &all[at];
            (
                name.as_str(),
                config.target(OtlpSignal::Metrics).unwrap().to_string(),
                config.service_name.as_deref().unwrap(),
            )
        };
        assert_eq!(destination(0), ("default", "http://first:4318/v1/metrics".to_owned(), "edge"));
        assert_eq!(destination(1), ("second", "https://second:4317/v1/metrics".to_owned(), "edge"));
        assert_eq!(destination(2), ("third", "http://third:1/x".to_owned(), "other"));
        assert!(all[1].1.headers.is_empty(), "no secret of one goes to another");
        assert_eq!(all[1].1.timeout.as_secs(), 10);
    }

    #[test]
    fn disabled_otlp_destinations_are_left_out() {
        let names = |text: &str, variable: Option<&str>| -> Vec<String> {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("agent.hcl");
            std::fs::write(&file, text).unwrap();
            let env = variable.map(|value| ("OTEL_SDK_DISABLED".to_owned(), value.to_owned())).into_iter().collect();
            let config = ConfigSources { file: Some(file), env, ..ConfigSources::default() }.load().unwrap();
            config.otlp.all().into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(TWO, Some("false")), ["default", "second", "third"]);
        assert_eq!(names(TWO, Some("TRUE")), [""; 0]);
        assert_eq!(names(&TWO.replace("service_name = \"other\"", "disabled = true"), None), ["default", "second"]);
    }

    #[test]
    fn printed_otlp_destinations_and_their_json_form_parse_to_the_same_config() {
        let config = read("agent.hcl", TWO).unwrap();
        assert_eq!(read("agent.hcl", &print(&config)).unwrap(), config);
        let json = "{\"otlp\": {\"endpoint\": \"http://first:4318\", \"destination\": {\"second\": {\"endpoint\": \
                    \"https://second:4317\", \"protocol\": \"grpc\"}}}}";
        let json = read("agent.json", json).unwrap();
        assert_eq!(json.otlp.destinations[0], config.otlp.destinations[0]);
    }

    #[test]
    fn a_destination_that_cannot_be_is_refused_with_its_place() {
        let one = |head: &str, body: &str| format!("otlp {{\n  destination {head} {{\n    {body}\n  }}\n}}\n");
        let endpoint = "endpoint = \"http://c:1\"";
        let twice =
            format!("otlp {{\n  destination \"a\" {{\n{endpoint}\n}}\n  destination \"a\" {{\n{endpoint}\n}}\n}}\n");
        for (text, place, message) in [
            (one("\"default\"", endpoint), ":2:", "is what the settings of otlp itself are called"),
            (one("\"../a\"", endpoint), ":2:", "is no name of a destination"),
            (one("\"a\"", "timeout = \"1s\""), ":2:", "has no endpoint"),
            (one("\"a\"", "endpiont = \"http://c:1\""), ":3:", "did you mean `endpoint`?"),
            (one("\"a\"", "endpoint = \"c\""), ":3:", "is no endpoint"),
            (one("", endpoint), ":2:", "takes one name"),
            (twice, ":5:", "there are two destinations"),
        ] {
            let why = read("agent.hcl", &text).unwrap_err();
            assert!(why.contains(&format!("agent.hcl{place}")) && why.contains(message), "{text}{why}");
        }
    }

    #[test]
    fn variables_win_over_the_file_and_those_of_metrics_over_those_of_all_signals() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent.hcl");
        let text = "otlp {\n  endpoint = \"http://file:1\"\n  timeout = \"3s\"\n  certificate = \"/file.pem\"\n  compression = \"none\"\n  \
                    destination \"b\" {\n    endpoint = \"http://b:1\"\n    timeout = \"4s\"\n  }\n}\n";
        std::fs::write(&file, text).unwrap();
        let mut sources = ConfigSources { file: Some(file), ..ConfigSources::default() };
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://variable:1"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/variable.pem"),
            ("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "/metrics.pem"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "5000"),
            ("OTEL_EXPORTER_OTLP_METRICS_INSECURE", "TRUE"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "gRPC"),
        ];
        for (name, value) in variables {
            sources.env.push((name.to_owned(), value.to_owned()));
        }
        let config = sources.load().unwrap();
        let otlp = &config.otlp;
        assert_eq!(otlp.target(OtlpSignal::Metrics).unwrap().authority, "variable:1");
        let metrics = otlp.of(OtlpSignal::Metrics);
        assert_eq!(metrics.certificate.as_deref().unwrap(), std::path::Path::new("/metrics.pem"));
        assert_eq!((metrics.timeout.as_secs(), metrics.insecure, metrics.protocol.as_str()), (5, true, "grpc"));
        let logs = otlp.of(OtlpSignal::Logs);
        assert_eq!(logs.certificate.as_deref().unwrap(), std::path::Path::new("/variable.pem"));
        assert_eq!((logs.timeout.as_secs(), logs.insecure, logs.protocol.as_str()), (5, false, "http/protobuf"));
        assert_eq!(otlp.compression.as_str(), "none", "what no variable says is the file's");
        assert_eq!(otlp.destinations[0].1.timeout.as_secs(), 4, "variables are of the one without a name");
    }

    #[test]
    fn output_of_tasks_is_off_unless_streams_are_named() {
        use crate::exporters::otlp::ForwardedStream::{Stderr, Stdout};
        let of = |more: &str| {
            let text = format!("otlp {{\n  endpoint = \"http://c:1\"\n  {more}\n}}\n");
            let config = read("agent.hcl", &text).unwrap();
            assert_eq!(read("agent.hcl", &print(&config)).unwrap(), config);
            config.otlp.task_streams
        };
        assert_eq!(of(""), []);
        assert_eq!(of("logs_tasks = \"none\""), []);
        assert_eq!(of("logs_tasks = \"stderr\""), [Stderr]);
        assert_eq!(of("logs_tasks = \"STDOUT, stderr,stdout\""), [Stdout, Stderr]);
    }

    /// Every variable of the specification that has a list of words or a shape.
    #[test]
    fn a_variable_that_means_nothing_is_refused_by_name_before_anything_starts() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_METRICS_INSECURE", "perhaps"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "no pair"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli"),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "gamma"),
            ("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "summary"),
            ("ALLOSTAT_OTLP_NAMES", "nomad"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "-1"),
            ("OTEL_RESOURCE_ATTRIBUTES", "no pair"),
            ("OTEL_LOGS_EXPORTER", "console"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://"),
            ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "brotli"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "no pair"),
            ("ALLOSTAT_OTLP_LOGS_TASKS", "stdin"),
            ("ALLOSTAT_OTLP_LOGS_TASKS", " , "),
            ("ALLOSTAT_OTLP_LOGS_TASKS_RATE", "0"),
        ] {
            let sources = ConfigSources { env: vec![(name.to_owned(), value.to_owned())], ..ConfigSources::default() };
            match sources.load() {
                Err(ConfigError::Value { name: reported, .. }) => assert_eq!(reported, name),
                other => panic!("{name}={value}: {other:?}"),
            }
        }
    }
}
