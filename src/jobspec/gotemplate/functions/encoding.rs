//! Base64, JSON, YAML, TOML and digests.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use md5::{Digest as _, Md5};
use ring::{digest, hmac};

use super::arguments::{TemplateFunction, TemplateFunctionResult, argument, pure, text};
use super::{json, toml, yaml, yaml_writer};

pub(super) static FUNCTIONS: &[TemplateFunction] = &[
    pure("base64Decode", (1, 1), |a| decoded(&STANDARD, &text(a, 0)?)),
    pure("base64Encode", (1, 1), |a| Ok(STANDARD.encode(&*text(a, 0)?).into())),
    pure("base64URLDecode", (1, 1), |a| decoded(&URL_SAFE, &text(a, 0)?)),
    pure("base64URLEncode", (1, 1), |a| Ok(URL_SAFE.encode(&*text(a, 0)?).into())),
    pure("parseJSON", (1, 1), |a| json::parsed(&text(a, 0)?)),
    pure("parseYAML", (1, 1), |a| match &*text(a, 0)? {
        "" => json::parsed(""),
        document => Ok(yaml::parsed(document)?),
    }),
    pure("toJSON", (1, 1), |a| Ok(json::written(argument(a, 0), false, true)?.into())),
    pure("toJSONPretty", (1, 1), |a| Ok(json::written(argument(a, 0), true, true)?.into())),
    pure("toUnescapedJSON", (1, 1), |a| Ok(json::written(argument(a, 0), false, false)?.into())),
    pure("toUnescapedJSONPretty", (1, 1), |a| Ok(json::written(argument(a, 0), true, false)?.into())),
    pure("toYAML", (1, 1), |a| Ok(yaml_writer::written(argument(a, 0))?.into())),
    pure("toTOML", (1, 1), |a| toml::written(argument(a, 0))),
    pure("md5sum", (1, 1), |a| Ok(hexadecimal(&Md5::digest(&*text(a, 0)?)).into())),
    pure("sha256Hex", (1, 1), |a| Ok(sha256(&text(a, 0)?).into())),
    // The message, then the key.
    pure("hmacSHA256Hex", (2, 2), |a| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, text(a, 1)?.as_bytes());
        Ok(hexadecimal(hmac::sign(&key, text(a, 0)?.as_bytes()).as_ref()).into())
    }),
];

pub(super) fn decoded(engine: &impl base64::Engine, encoded: &str) -> TemplateFunctionResult {
    // Go skips line ends.
    let joined: String = encoded.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let bytes = engine.decode(joined).map_err(|error| format!("that is no base64: {error}"))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.into()),
        Err(_) => Err("it decodes to bytes that are not UTF-8, and templates are text".into()),
    }
}

pub(super) fn sha256(text: &str) -> String {
    hexadecimal(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.extend(char::from_digit(digit.into(), 16));
        }
    }
    out
}
