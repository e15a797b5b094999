//! Which format and which encoding a scraper gets: pure.
//!
//! Source: RFC 9110 sections 12.4.2 (weights), 12.5.1 (Accept), 12.5.3 (Accept-Encoding); the Content-Types are those
//! of the Prometheus text formats 0.0.4 and 1.0.0, of its protocol buffers ("Content Negotiation"), and of OpenMetrics
//! 1.0.0.

use crate::model::answer::{Encoding, Format};

/// One element of a list header: what it names, its parameters but for the weight, that in thousandths.
struct Element<'a> {
    name: String,
    parameters: Vec<(String, &'a str)>,
    weight: u16,
}

impl Element<'_> {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }
}

fn elements(header: &str) -> impl Iterator<Item = Element<'_>> {
    header.split(',').filter_map(|element| {
        let mut parts = element.split(';').map(str::trim);
        let name = parts.next().filter(|n| !n.is_empty())?.to_ascii_lowercase();
        let (mut parameters, mut weight) = (Vec::new(), 1000);
        for (key, value) in parts.filter_map(|p| p.split_once('=')) {
            match key.trim().to_ascii_lowercase() {
                // A weight that cannot be read is no preference: the element counts for nothing.
                key if key == "q" => weight = parse_weight(value.trim()).unwrap_or(0),
                key => parameters.push((key, value.trim().trim_matches('"'))),
            }
        }
        Some(Element { name, parameters, weight })
    })
}

/// `0`, `0.5`, `1.000`: at most three digits after the point, at most 1.
fn parse_weight(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let thousandths: u16 = format!("{fraction:0<3}").parse().ok()?;
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1000),
        _ => None,
    }
}

/// What is answered, and what it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Representation {
    pub format: Format,
    pub content_type: &'static str,
}

/// How names would be escaped that are not of the old alphabet: ours all are, so that each of these gives the same
/// bytes. `dots` is not among them: it escapes underscores as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameEscaping {
    Utf8,
    Underscores,
    Values,
}

impl NameEscaping {
    fn of(element: &Element<'_>) -> Option<NameEscaping> {
        match element.parameter("escaping")? {
            "allow-utf-8" => Some(NameEscaping::Utf8),
            "values" => Some(NameEscaping::Values),
            _ => Some(NameEscaping::Underscores),
        }
    }
}

macro_rules! called {
    ($base:literal, $escaping:expr) => {
        match $escaping {
            None => $base,
            Some(NameEscaping::Utf8) => concat!($base, "; escaping=allow-utf-8"),
            Some(NameEscaping::Underscores) => concat!($base, "; escaping=underscores"),
            Some(NameEscaping::Values) => concat!($base, "; escaping=values"),
        }
    };
}

/// Whether the client names HTML, and plain text no earlier: browsers do, and `*/*` does not.
pub fn prefers_html(accept: Option<&str>) -> bool {
    let weight = |name: &str| {
        let found = elements(accept.unwrap_or_default()).filter(|element| element.name == name);
        found.map(|element| element.weight).max().unwrap_or(0)
    };
    let html = weight("text/html").max(weight("application/xhtml+xml"));
    html > 0 && html >= weight("text/plain")
}

/// What can be written, the best first: of equal weights it wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpositionKind {
    Protobuf,
    OpenMetrics,
    Text1,
    Text,
}

impl ExpositionKind {
    const ALL: [ExpositionKind; 4] =
        [ExpositionKind::Protobuf, ExpositionKind::OpenMetrics, ExpositionKind::Text1, ExpositionKind::Text];

    /// Those that an element means, and how exactly: `type/sub` over `type/*` over `*/*`.
    fn matching(element: &Element<'_>) -> Option<(ExpositionKind, u8)> {
        let version = element.parameter("version");
        match element.name.as_str() {
            "application/vnd.google.protobuf" => {
                let is_own = element.parameter("proto") == Some("io.prometheus.client.MetricFamily")
                    && element.parameter("encoding") == Some("delimited");
                is_own.then_some((ExpositionKind::Protobuf, 2))
            }
            "application/openmetrics-text" if matches!(version, None | Some("1.0.0")) => {
                Some((ExpositionKind::OpenMetrics, 2))
            }
            "text/plain" if version == Some("1.0.0") => Some((ExpositionKind::Text1, 2)),
            "text/plain" if matches!(version, None | Some("0.0.4")) => Some((ExpositionKind::Text, 2)),
            "text/*" => Some((ExpositionKind::Text, 1)),
            "*/*" => Some((ExpositionKind::Text, 0)),
            _ => None,
        }
    }

    fn representation(self, escaping: Option<NameEscaping>) -> Representation {
        let (format, content_type) = match self {
            ExpositionKind::Protobuf => (
                Format::Protobuf,
                called!(
                    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
                    escaping
                ),
            ),
            ExpositionKind::OpenMetrics => {
                (Format::OpenMetrics, called!("application/openmetrics-text; version=1.0.0; charset=utf-8", escaping))
            }
            ExpositionKind::Text1 => (Format::Text, called!("text/plain; version=1.0.0; charset=utf-8", escaping)),
            ExpositionKind::Text => (Format::Text, "text/plain; version=0.0.4; charset=utf-8"),
        };
        Representation { format, content_type }
    }
}

/// The format for this `Accept` header. Nothing that we can write is wanted: text, as every Prometheus exporter does,
/// because a scraper can do more with it than with a refusal.
pub fn representation(accept: Option<&str>) -> Representation {
    let mut requested: [Option<(u8, u16, Option<NameEscaping>)>; 4] = [None; 4];
    for element in elements(accept.unwrap_or("")) {
        let Some((kind, exactness)) = ExpositionKind::matching(&element) else { continue };
        // The more exact range decides the weight of a format.
        let slot = &mut requested[kind as usize];
        if slot.is_none_or(|(have, weight, _)| (exactness, element.weight) > (have, weight)) {
            *slot = Some((exactness, element.weight, NameEscaping::of(&element)));
        }
    }
    let weight = |kind: &ExpositionKind| requested[*kind as usize].map_or(0, |(_, weight, _)| weight);
    let best = ExpositionKind::ALL
        .into_iter()
        .rev()
        .max_by_key(weight)
        .filter(|kind| weight(kind) > 0)
        .unwrap_or(ExpositionKind::Text);
    best.representation(requested[best as usize].and_then(|(_, _, escaping)| escaping))
}

/// The encoding for this `Accept-Encoding` header. A loopback peer gets identity, because compressing costs both sides
/// more than copying, unless it refuses identity. zstd wins over gzip where both are wanted alike: it takes less time.
pub fn encoding(accept_encoding: Option<&str>, loopback: bool) -> Encoding {
    let (mut zstd, mut gzip, mut identity, mut any) = (None, None, None, None);
    for e in elements(accept_encoding.unwrap_or("")) {
        match e.name.as_str() {
            "zstd" => zstd = Some(e.weight),
            "gzip" | "x-gzip" => gzip = Some(e.weight),
            "identity" => identity = Some(e.weight),
            "*" => any = Some(e.weight),
            _ => {}
        }
    }
    // Who takes anything knows gzip.
    let (zstd, gzip) = (zstd.unwrap_or(0), gzip.or(any).unwrap_or(0));
    let (packed, weight) = if zstd > 0 && zstd >= gzip { (Encoding::Zstd, zstd) } else { (Encoding::Gzip, gzip) };
    let identity_refused = identity.or(any.filter(|w| *w == 0)) == Some(0);
    let is_preferred = weight > 0 && identity.is_none_or(|w| weight >= w);
    if weight > 0 && (identity_refused || (is_preferred && !loopback)) { packed } else { Encoding::Identity }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn format(accept: Option<&str>) -> Format {
        representation(accept).format
    }

    #[test]
    fn prometheus_2_42_gets_openmetrics() {
        let accept = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(format(Some(accept)), Format::OpenMetrics);
    }

    #[test]
    fn accept_header_absent_or_unspecific_selects_text() {
        for accept in
            [None, Some(""), Some("*/*"), Some("text/*"), Some("application/json"), Some("text/html, */*;q=0.8")]
        {
            assert_eq!(format(accept), Format::Text, "{accept:?}");
        }
    }

    #[test]
    fn weights_and_versions_decide() {
        let cases = [
            ("text/plain;q=0.9, application/openmetrics-text;q=0.8", Format::Text),
            ("text/plain;q=0.5, application/openmetrics-text;q=0.8", Format::OpenMetrics),
            ("application/openmetrics-text;q=0", Format::Text),
            ("application/openmetrics-text; version=2.0.0, text/plain;version=0.0.4;q=0.1", Format::Text),
            ("application/openmetrics-text; version=\"1.0.0\"", Format::OpenMetrics),
            ("*/*, application/openmetrics-text;q=0.1", Format::Text),
            ("*/*;q=1, text/plain;q=0.1, application/openmetrics-text;q=0.2", Format::OpenMetrics),
            ("application/openmetrics-text;q=nonsense", Format::Text),
        ];
        for (accept, expected) in cases {
            assert_eq!(format(Some(accept)), expected, "{accept}");
        }
    }

    /// As version 2.42 asks with native histograms, and 3 without and with.
    #[test]
    fn accept_header_of_prometheus_with_native_histograms_selects_protobuf() {
        let pb = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        let accept = format!(
            "{pb},application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
        );
        let called = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
        assert_eq!(representation(Some(&accept)), Representation { format: Format::Protobuf, content_type: called });
        let three = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                     application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
                     text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        let called = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8";
        assert_eq!(representation(Some(three)), Representation { format: Format::OpenMetrics, content_type: called });
        let three = format!("{pb};escaping=allow-utf-8;q=0.6,{three}");
        assert_eq!(format(Some(&three)), Format::Protobuf);
        for other in [
            "application/vnd.google.protobuf",
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
            "application/vnd.google.protobuf;proto=some.Other;encoding=delimited",
        ] {
            assert_eq!(format(Some(other)), Format::Text, "{other}");
        }
    }

    #[test]
    fn text_1_0_0_is_negotiated_with_its_content_type_and_escaping() {
        for (accept, called) in [
            ("text/plain;version=1.0.0", "text/plain; version=1.0.0; charset=utf-8"),
            (
                "text/plain;version=1.0.0;escaping=allow-utf-8,text/plain;version=0.0.4;q=0.5",
                "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
            ),
            ("text/plain;version=1.0.0;escaping=values", "text/plain; version=1.0.0; charset=utf-8; escaping=values"),
            // It would escape underscores, which stand in all our names: what is done instead is said.
            (
                "text/plain;version=1.0.0;escaping=dots",
                "text/plain; version=1.0.0; charset=utf-8; escaping=underscores",
            ),
            ("text/plain;version=0.0.4", "text/plain; version=0.0.4; charset=utf-8"),
            ("text/plain", "text/plain; version=0.0.4; charset=utf-8"),
            ("text/plain;version=2.0.0", "text/plain; version=0.0.4; charset=utf-8"),
        ] {
            assert_eq!(
                representation(Some(accept)),
                Representation { format: Format::Text, content_type: called },
                "{accept}"
            );
        }
    }

    #[test]
    fn a_remote_scraper_that_offers_gzip_gets_it() {
        assert_eq!(encoding(Some("gzip"), false), Encoding::Gzip);
        assert_eq!(encoding(Some("br;q=1.0, gzip;q=0.5, *;q=0"), false), Encoding::Gzip);
        assert_eq!(encoding(Some("*"), false), Encoding::Gzip);
        assert_eq!(encoding(None, false), Encoding::Identity);
        assert_eq!(encoding(Some("gzip;q=0"), false), Encoding::Identity);
        assert_eq!(encoding(Some("identity, gzip;q=0.5"), false), Encoding::Identity);
        assert_eq!(encoding(Some("br"), false), Encoding::Identity);
    }

    #[test]
    fn zstd_is_used_only_for_clients_that_accept_it() {
        assert_eq!(encoding(Some("zstd"), false), Encoding::Zstd);
        assert_eq!(encoding(Some("gzip, deflate, br, zstd"), false), Encoding::Zstd);
        assert_eq!(encoding(Some("gzip, zstd;q=0.5"), false), Encoding::Gzip);
        assert_eq!(encoding(Some("zstd;q=0, gzip;q=0"), false), Encoding::Identity);
        assert_eq!(encoding(Some("zstd"), true), Encoding::Identity);
        assert_eq!(encoding(Some("zstd, identity;q=0"), true), Encoding::Zstd);
    }

    #[test]
    fn a_loopback_peer_gets_identity_unless_it_refuses_it() {
        assert_eq!(encoding(Some("gzip"), true), Encoding::Identity);
        assert_eq!(encoding(Some("gzip, identity;q=0"), true), Encoding::Gzip);
        assert_eq!(encoding(Some("gzip, *;q=0"), true), Encoding::Gzip);
    }

    #[test]
    fn a_browser_prefers_html_and_no_other_client_does() {
        for browser in [
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
            "text/html, */*; q=0.01",
            "application/xhtml+xml",
            "text/plain;q=0.5, text/html",
        ] {
            assert!(prefers_html(Some(browser)), "{browser}");
        }
        for other in
            ["*/*", "text/*", "text/plain", "text/html;q=0", "text/plain, text/html;q=0.5", "application/json", ""]
        {
            assert!(!prefers_html(Some(other)), "{other}");
        }
        assert!(!prefers_html(None));
    }

    proptest! {
        #[test]
        fn no_header_panics(accept in ".*") {
            let _ = prefers_html(Some(&accept));
            let _ = (format(Some(&accept)), encoding(Some(&accept), true), encoding(Some(&accept), false));
        }
        #[test]
        fn a_weight_is_read_as_it_is_written(thousandths in 0u16..=1000) {
            prop_assert_eq!(parse_weight(&format!("{}.{:03}", thousandths / 1000, thousandths % 1000)), Some(thousandths));
        }
    }
}
