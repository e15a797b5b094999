//! Base64, JSON, URLs and digests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use ring::digest;

use super::arguments::{HclFunction, HclFunctionResult, pure, text};
use crate::jobspec::evaluate::value::HclValue;
use crate::model::bounded_json::{self, MOST_VALUES};

pub(super) static FUNCTIONS: &[HclFunction] = &[
    pure("base64decode", (1, 1), |a| {
        let bytes = STANDARD.decode(text(a, 0)?).map_err(|_| "that is no base64")?;
        String::from_utf8(bytes).map(HclValue::Text).map_err(|_| "it decodes to bytes that are no UTF-8".to_owned())
    }),
    pure("base64encode", (1, 1), |a| Ok(HclValue::Text(STANDARD.encode(text(a, 0)?)))),
    pure("jsondecode", (1, 1), |a| {
        bounded_json::parse_up_to(text(a, 0)?.as_bytes(), MOST_VALUES)
            .map(HclValue::from_json)
            .map_err(|error| error.to_string())
    }),
    pure("jsonencode", (1, 1), |a| {
        let json = a.first().and_then(HclValue::to_json).ok_or("a number in it has no form in JSON")?;
        // As Go writes it.
        let escaped = json.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e");
        Ok(HclValue::Text(escaped.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")))
    }),
    pure("md5", (1, 1), |a| Ok(HclValue::Text(hex(&Md5::digest(text(a, 0)?))))),
    pure("sha1", (1, 1), |a| hash(&digest::SHA1_FOR_LEGACY_USE_ONLY, a)),
    pure("sha256", (1, 1), |a| hash(&digest::SHA256, a)),
    pure("uuidv5", (2, 2), |a| uuidv5(&text(a, 0)?, &text(a, 1)?)),
    pure("sha512", (1, 1), |a| hash(&digest::SHA512, a)),
    pure("csvdecode", (1, 1), |a| csvdecode(&text(a, 0)?)),
    pure("urlencode", (1, 1), |a| Ok(HclValue::Text(urlencode(&text(a, 0)?)))),
];

fn hash(algorithm: &'static digest::Algorithm, arguments: &[HclValue]) -> HclFunctionResult {
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

/// Source: RFC 9562, section 5.5 and appendix of the name spaces.
fn uuidv5(space: &str, name: &str) -> HclFunctionResult {
    const OF_NAMES: u128 = 0x6ba7_b810_9dad_11d1_80b4_00c0_4fd4_30c8;
    let known = ["dns", "url", "oid", "", "x500"].iter().position(|known| !known.is_empty() && *known == space);
    let space = match known.and_then(|at| u128::try_from(at).ok()) {
        // They differ in their first 32 bits.
        Some(at) => uuid::Uuid::from_u128(OF_NAMES + (at << 96)),
        None => space.parse().map_err(|_| "argument 1 is \"dns\", \"url\", \"oid\", \"x500\" or a UUID")?,
    };
    let whole = [space.as_bytes(), name.as_bytes()].concat();
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &whole);
    let first = digest.as_ref().get(..16).and_then(|first| <[u8; 16]>::try_from(first).ok());
    let made = uuid::Builder::from_sha1_bytes(first.ok_or("a digest is too short")?).into_uuid();
    Ok(HclValue::Text(made.to_string()))
}

/// Objects with the columns of the first line as keys. Source: RFC 4180.
fn csvdecode(text: &str) -> HclFunctionResult {
    let mut rows = rows(text)?.into_iter();
    let header = rows.next().ok_or("it has no header line")?;
    if let Some(twice) = header.iter().enumerate().find(|(at, name)| header.iter().take(*at).any(|one| one == *name)) {
        return Err(format!("it has two columns {:?}", twice.1));
    }
    let objects = rows.map(|row| match row.len() == header.len() {
        true => Ok(HclValue::Object(header.iter().cloned().zip(row.into_iter().map(HclValue::Text)).collect())),
        false => Err(format!("a line has {} fields, the header {}", row.len(), header.len())),
    });
    objects.collect::<Result<_, _>>().map(HclValue::List)
}

/// Empty lines are none.
fn rows(text: &str) -> Result<Vec<Vec<String>>, String> {
    let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut was_quoted) = (false, false);
    let normal = text.replace("\r\n", "\n");
    let mut chars = normal.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' if quoted => quoted = false,
            c if quoted => field.push(c),
            '"' if field.is_empty() && !was_quoted => (quoted, was_quoted) = (true, true),
            '"' => return Err("a quote stands inside of a field".to_owned()),
            ',' => {
                row.push(std::mem::take(&mut field));
                was_quoted = false;
            }
            '\n' if row.is_empty() && field.is_empty() && !was_quoted => {}
            '\n' => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
                was_quoted = false;
            }
            _ if was_quoted => return Err("a field goes on behind its closing quote".to_owned()),
            c => field.push(c),
        }
    }
    if quoted {
        return Err("a quote is not closed".to_owned());
    }
    if !row.is_empty() || !field.is_empty() || was_quoted {
        row.push(field);
        rows.push(row);
    }
    Ok(rows)
}
