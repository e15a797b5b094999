//! Which format and which encoding a scraper gets: pure.
//!
//! Source: RFC 9110 sections 12.4.2 (weights), 12.5.1 (Accept), 12.5.3 (Accept-Encoding); the Content-Types are those of
//! the Prometheus text format 0.0.4 and of OpenMetrics 1.0.0.

use crate::model::answer::{Encoding, Format};

/// One element of a list header: what it names, its parameters, its weight in thousandths.
struct Element<'a> {
    name: String,
    version: Option<&'a str>,
    weight: u16,
}

fn elements(header: &str) -> impl Iterator<Item = Element<'_>> {
    header.split(',').filter_map(|element| {
        let mut parts = element.split(';').map(str::trim);
        let name = parts.next().filter(|n| !n.is_empty())?.to_ascii_lowercase();
        let (mut version, mut weight) = (None, 1000);
        for (key, value) in parts.filter_map(|p| p.split_once('=')) {
            match key.trim().to_ascii_lowercase().as_str() {
                // A weight that cannot be read is no wish: the element counts for nothing.
                "q" => weight = parse_weight(value.trim()).unwrap_or(0),
                "version" => version = Some(value.trim().trim_matches('"')),
                _ => {}
            }
        }
        Some(Element { name, version, weight })
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

/// The format for this `Accept` header. Nothing that we can write is wanted: text, as every Prometheus exporter does,
/// because a scraper can do more with it than with a refusal.
pub fn format(accept: Option<&str>) -> Format {
    let (mut text, mut openmetrics) = (None::<(u8, u16)>, None::<(u8, u16)>);
    // The more exact range decides the weight of a format: `type/sub` over `type/*` over `*/*`.
    let better = |slot: &mut Option<(u8, u16)>, exactness: u8, weight: u16| {
        if slot.is_none_or(|(have, _)| exactness > have) {
            *slot = Some((exactness, weight));
        } else if let Some((have, old)) = slot
            && *have == exactness
        {
            *old = weight.max(*old);
        }
    };
    for e in elements(accept.unwrap_or("")) {
        match (e.name.as_str(), e.version) {
            ("application/openmetrics-text", None | Some("1.0.0")) => better(&mut openmetrics, 2, e.weight),
            ("text/plain", None | Some("0.0.4")) => better(&mut text, 2, e.weight),
            ("text/*", _) => better(&mut text, 1, e.weight),
            ("*/*", _) => better(&mut text, 0, e.weight),
            _ => {}
        }
    }
    let weight = |slot: Option<(u8, u16)>| slot.map_or(0, |(_, w)| w);
    // Equal weights: who names OpenMetrics knows what it is.
    if weight(openmetrics) > 0 && weight(openmetrics) >= weight(text) { Format::OpenMetrics } else { Format::Text }
}

/// The encoding for this `Accept-Encoding` header. A loopback peer gets identity, because compressing costs both sides
/// more than copying, unless it refuses identity.
pub fn encoding(accept_encoding: Option<&str>, loopback: bool) -> Encoding {
    let (mut gzip, mut identity, mut any) = (None, None, None);
    for e in elements(accept_encoding.unwrap_or("")) {
        match e.name.as_str() {
            "gzip" | "x-gzip" => gzip = Some(e.weight),
            "identity" => identity = Some(e.weight),
            "*" => any = Some(e.weight),
            _ => {}
        }
    }
    let gzip = gzip.or(any).unwrap_or(0);
    let identity_refused = identity.or(any.filter(|w| *w == 0)) == Some(0);
    let gzip_preferred = gzip > 0 && identity.is_none_or(|w| gzip >= w);
    if gzip > 0 && (identity_refused || (gzip_preferred && !loopback)) { Encoding::Gzip } else { Encoding::Identity }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prometheus_2_42_gets_openmetrics() {
        let accept = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(format(Some(accept)), Format::OpenMetrics);
    }

    #[test]
    fn who_says_nothing_or_anything_gets_text() {
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

    #[test]
    fn a_remote_scraper_that_offers_gzip_gets_it() {
        assert_eq!(encoding(Some("gzip"), false), Encoding::Gzip);
        assert_eq!(encoding(Some("br;q=1.0, gzip;q=0.5, *;q=0"), false), Encoding::Gzip);
        assert_eq!(encoding(Some("*"), false), Encoding::Gzip);
        assert_eq!(encoding(None, false), Encoding::Identity);
        assert_eq!(encoding(Some("gzip;q=0"), false), Encoding::Identity);
        assert_eq!(encoding(Some("identity, gzip;q=0.5"), false), Encoding::Identity);
        assert_eq!(encoding(Some("zstd"), false), Encoding::Identity);
    }

    #[test]
    fn a_loopback_peer_gets_identity_unless_it_refuses_it() {
        assert_eq!(encoding(Some("gzip"), true), Encoding::Identity);
        assert_eq!(encoding(Some("gzip, identity;q=0"), true), Encoding::Gzip);
        assert_eq!(encoding(Some("gzip, *;q=0"), true), Encoding::Gzip);
    }

    proptest! {
        #[test]
        fn no_header_panics(accept in ".*") {
            let _ = (format(Some(&accept)), encoding(Some(&accept), true), encoding(Some(&accept), false));
        }
        #[test]
        fn a_weight_is_read_as_it_is_written(thousandths in 0u16..=1000) {
            prop_assert_eq!(parse_weight(&format!("{}.{:03}", thousandths / 1000, thousandths % 1000)), Some(thousandths));
        }
    }
}
