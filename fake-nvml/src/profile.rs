//! Devices as they are sold: `profiles/*.json`, each with its values and the calls that this hardware refuses.

use serde_json::Value;

const PROFILES: &[(&str, &str)] = &[
    ("geforce", include_str!("../profiles/geforce.json")),
    ("t4", include_str!("../profiles/t4.json")),
    ("a100-mig", include_str!("../profiles/a100-mig.json")),
    ("h100", include_str!("../profiles/h100.json")),
    ("b200", include_str!("../profiles/b200.json")),
    ("jetson", include_str!("../profiles/jetson.json")),
];

pub fn names() -> impl Iterator<Item = &'static str> {
    PROFILES.iter().map(|(name, _)| *name)
}

/// A device's own values over those of the profile that it names.
pub(crate) fn merged(own: Value) -> Result<Value, String> {
    let Some(name) = own.get("profile").and_then(Value::as_str).filter(|name| !name.is_empty()) else { return Ok(own) };
    let (_, text) = PROFILES
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| format!("no profile {name}, there are {}", names().collect::<Vec<_>>().join(", ")))?;
    let mut all = serde_json::from_str(text).map_err(|e| format!("profiles/{name}.json: {e}"))?;
    overlay(&mut all, own);
    Ok(all)
}

/// What is an object in both goes together, anything else is replaced; a null takes the profile's value away.
fn overlay(below: &mut Value, above: Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                overlay(below.entry(key).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above,
    }
}
