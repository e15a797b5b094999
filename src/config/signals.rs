//! The settings of OTLP that are of one signal alone: each word of all of them, with the signal in front.
//!
//! Source: OpenTelemetry specification, "OTLP Exporter Configuration", "Exporter Selection".

use std::time::Duration;

use super::otlp::{STANZA, shown};
use super::setting::{Setting, SettingKind};
use super::values::{absolute, millis, short, word};
use crate::exporters::otlp;
use crate::telemetry::otlp::OtlpSignal;

const OTLP: &str = "otlp";
const NONE: &str = "none";

fn on(text: &str) -> Result<bool, String> {
    word(&text.to_lowercase(), [OTLP, NONE], |name| name).map(|name| name == OTLP)
}

fn yes(text: &str) -> Result<bool, String> {
    text.to_lowercase().parse().map_err(|_| "must be true or false".to_owned())
}

macro_rules! signal {
    ($signal:expr, $lower:literal, $upper:literal) => {
        &[
            signal!(
                $signal,
                concat!($lower, "_exporter"),
                concat!("OTEL_", $upper, "_EXPORTER"),
                concat!("Push ", $lower, " if an endpoint is set: otlp or none."),
                |own, text| own.is_off = !on(text)?,
                |own| Some(if own.is_off { NONE } else { OTLP }.to_owned())
            ),
            signal!(
                $signal,
                concat!($lower, "_endpoint"),
                concat!("OTEL_EXPORTER_OTLP_", $upper, "_ENDPOINT"),
                concat!(
                    "Endpoint for ",
                    $lower,
                    ", with the whole path. Like all settings of one signal, it takes precedence over the common one."
                ),
                |own, text| own.endpoint = Some(otlp::endpoint(text, false)?),
                |own| own.endpoint.as_ref().map(ToString::to_string)
            ),
            signal!(
                $signal,
                concat!($lower, "_protocol"),
                concat!("OTEL_EXPORTER_OTLP_", $upper, "_PROTOCOL"),
                concat!("protocol for ", $lower, " only."),
                |own, text| own.protocol =
                    Some(word(&text.to_lowercase(), otlp::Protocol::ALL, otlp::Protocol::as_str)?),
                |own| own.protocol.map(|protocol| protocol.as_str().to_owned())
            ),
            signal!(
                $signal,
                concat!($lower, "_insecure"),
                concat!("OTEL_EXPORTER_OTLP_", $upper, "_INSECURE"),
                concat!("insecure for ", $lower, " only."),
                |own, text| own.insecure = Some(yes(text)?),
                |own| own.insecure.map(|on| on.to_string())
            ),
            signal!(
                $signal,
                concat!($lower, "_certificate"),
                concat!("OTEL_EXPORTER_OTLP_", $upper, "_CERTIFICATE"),
                concat!("certificate for ", $lower, " only."),
                |own, text| own.certificate = Some(absolute(text)?),
                |own| shown(own.certificate.as_deref())
            ),
            signal!(
                $signal,
                concat!($lower, "_client_certificate"),
                concat!("OTEL_EXPORTER_OTLP_", $upper, "_CLIENT_CERTIFICATE"),
                concat!("client_certificate for ", $lower, " only."),
                |own, text| own.client_certificate = Some(absolute(text)?),
                |own| shown(own.client_certificate.as_deref())
            ),
            signal!(
                $signal,
                concat!($lower, "_client_key"),
                concat!("OTEL_EXPORTER_OTLP_", $upper, "_CLIENT_KEY"),
                concat!("client_key for ", $lower, " only."),
                |own, text| own.client_key = Some(absolute(text)?),
                |own| shown(own.client_key.as_deref())
            ),
            signal!(
                $signal,
                concat!($lower, "_headers"),
                concat!("OTEL_EXPORTER_OTLP_", $upper, "_HEADERS"),
                concat!("headers for ", $lower, " only, instead of the common ones."),
                |own, text| own.headers = Some(otlp::headers(text)?),
                |own| own.headers.as_deref().map(otlp::joined)
            ),
            signal!(
                $signal,
                concat!($lower, "_timeout"),
                concat!("OTEL_EXPORTER_OTLP_", $upper, "_TIMEOUT"),
                concat!("timeout for ", $lower, " only."),
                |own, text| own.timeout = Some(millis(text, Duration::from_millis(100), Duration::from_secs(600))?),
                |own| own.timeout.map(short)
            ),
            signal!(
                $signal,
                concat!($lower, "_compression"),
                concat!("OTEL_EXPORTER_OTLP_", $upper, "_COMPRESSION"),
                concat!("compression for ", $lower, " only."),
                |own, text| {
                    own.compression =
                        Some(word(&text.to_lowercase(), otlp::Compression::ALL, otlp::Compression::as_str)?);
                },
                |own| own.compression.map(|compression| compression.as_str().to_owned())
            ),
        ]
    };
    ($signal:expr, $key:expr, $env:expr, $about:expr, |$own:ident, $text:ident| $put:expr, |$got:ident| $get:expr) => {
        Setting {
            stanza: STANZA,
            key: $key,
            env: $env,
            about: $about,
            kind: SettingKind::Text(|c, $text| {
                let $own = &mut c.otlp.signals[$signal.index()];
                $put;
                Ok(())
            }),
            get: |c| {
                let $got = &c.otlp.signals[$signal.index()];
                $get
            },
        }
    };
}

static METRICS: &[Setting] = signal!(OtlpSignal::Metrics, "metrics", "METRICS");
static LOGS: &[Setting] = signal!(OtlpSignal::Logs, "logs", "LOGS");
static TRACES: &[Setting] = signal!(OtlpSignal::Traces, "traces", "TRACES");

pub(super) static SIGNALS: [&[Setting]; 3] = [METRICS, LOGS, TRACES];
