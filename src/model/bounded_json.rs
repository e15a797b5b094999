//! JSON from untrusted sources: memory is bounded by the number of values, not by the length of the text.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Of one answer or file: at most 20 MB of memory, as `{"":0}` takes 7 bytes of text and 700 of memory. A container in
/// Podman's list has 20 values.
pub const MOST_VALUES: usize = 50_000;

/// `None`: invalid JSON, or more than [`MOST_VALUES`].
pub fn parse(text: &[u8]) -> Option<Value> {
    parse_up_to(text, MOST_VALUES).ok()
}

/// Errors: invalid JSON, or more values than `most`.
pub fn parse_up_to(text: &[u8], most: usize) -> serde_json::Result<Value> {
    let left = Cell::new(most);
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = CountedValue(&left).deserialize(&mut reader)?;
    reader.end().map(|()| value)
}

/// Consecutive values, up to the first invalid one.
pub fn parse_all(text: &[u8]) -> Vec<Value> {
    let left = Cell::new(MOST_VALUES);
    let mut reader = serde_json::Deserializer::from_slice(text);
    std::iter::from_fn(|| CountedValue(&left).deserialize(&mut reader).ok()).collect()
}

/// One value, with the number of values that may follow.
#[derive(Clone, Copy)]
struct CountedValue<'a>(&'a Cell<usize>);

impl<'de> DeserializeSeed<'de> for CountedValue<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        let left = self.0.get().checked_sub(1).ok_or_else(|| D::Error::custom("too many values"))?;
        self.0.set(left);
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CountedValue<'_> {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = all.next_element_seed(self)? {
            list.push(value);
        }
        Ok(list.into())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = all.next_key::<String>()? {
            map.insert(name, all.next_value_seed(self)?);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn json_small_as_text_and_large_in_memory_is_refused() {
        let list = |of: &str, n: usize| format!("[{}]", vec![of; n].join(","));
        assert_eq!(parse(list("{}", 10).as_bytes()).unwrap().as_array().map(Vec::len), Some(10));
        for of in ["0", "[]", r#"{"":0}"#, r#""a""#] {
            assert_eq!(parse(list(of, MOST_VALUES).as_bytes()), None, "{of}");
            assert!(parse_all(vec![of; 2 * MOST_VALUES].join(" ").as_bytes()).len() <= MOST_VALUES, "{of}");
        }
        assert_eq!(parse("[".repeat(1 << 20).as_bytes()), None);
        assert_eq!(parse(b"{} {}"), None, "one alone");
    }

    proptest! {
        #[test]
        fn any_value_is_read_as_it_is_read_without_a_bound(text in r#"([\[\]{}:, ]|"[a-z\\n\\"]{0,3}"|-?[0-9]{1,22}|1e[0-9]|true|null){0,12}"#) {
            prop_assert_eq!(parse(text.as_bytes()), serde_json::from_slice(text.as_bytes()).ok());
            let all = serde_json::Deserializer::from_str(&text).into_iter::<Value>().map_while(Result::ok);
            prop_assert!(parse_all(text.as_bytes()).len() >= all.count());
        }
    }
}
