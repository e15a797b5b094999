//! Base64, JSON, URLs and digests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use ring::digest;

use super::arguments::{Function, Outcome, pure, text};
use crate::jobspec::evaluate::value::HclValue;

pub(super) static FUNCTIONS: &[Function] = &[
    pure("base64decode", (1, 1), |a| {
        let bytes = STANDARD.decode(text(a, 0)?).map_err(|_| "that is no base64")?;
        String::from_utf8(bytes).map(HclValue::Text).map_err(|_| "it decodes to bytes that are no UTF-8".to_owned())
    }),
    pure("base64encode", (1, 1), |a| Ok(HclValue::Text(STANDARD.encode(text(a, 0)?)))),
    pure("jsondecode", (1, 1), |a| {
        serde_json::from_str(&text(a, 0)?).map(HclValue::from_json).map_err(|error| error.to_string())
    }),
    pure("jsonencode", (1, 1), |a| {
        let json = a.first().and_then(HclValue::to_json).ok_or("a number in it has no form in JSON")?;
        Ok(HclValue::Text(json.to_string()))
    }),
    pure("md5", (1, 1), |a| Ok(HclValue::Text(hex(&Md5::digest(text(a, 0)?))))),
    pure("sha1", (1, 1), |a| hash(&digest::SHA1_FOR_LEGACY_USE_ONLY, a)),
    pure("sha256", (1, 1), |a| hash(&digest::SHA256, a)),
    pure("sha512", (1, 1), |a| hash(&digest::SHA512, a)),
    pure("urlencode", (1, 1), |a| Ok(HclValue::Text(urlencode(&text(a, 0)?)))),
];

fn hash(algorithm: &'static digest::Algorithm, arguments: &[HclValue]) -> Outcome {
    let digest = digest::digest(algorithm, text(arguments, 0)?.as_bytes());
    Ok(HclValue::Text(hex(digest.as_ref())))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn urlencode(text: &str) -> String {
    let encoded = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        b' ' => "+".to_owned(),
        other => format!("%{other:02X}"),
    });
    encoded.collect()
}
