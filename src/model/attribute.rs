//! A fact about a host or a device: a number with its unit, a text or a boolean; compared exactly.
//!
//! ```text
//! "4 GiB" ── parse ──> Number { 4, GiB } ── wide ──> mantissa x 2^exponent in bytes ──> compare
//! ```
//!
//! Two facts can be compared if both are texts, both booleans, or both numbers of the same base (or both without a
//! unit). Within a base the order is total and transitive: 500 mW is more than 100 mW, and 20 EiB is more than 10 EB
//! although neither would fit 64 bits.

use std::cmp::Ordering;
use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    #[error("a number must be finite")]
    NotFinite,
    #[error("{0} does not fit 64 bits")]
    Overflow(String),
    #[error("{0} and {1} cannot be compared")]
    Incomparable(String, String),
}

/// A whole number between -2^63 and 2^64 - 1, or a finite float.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number(Repr);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Repr {
    Int(i128),
    Float(f64),
}

impl Number {
    /// Errors: [`AttributeError::Overflow`] where neither a signed nor an unsigned 64-bit number holds it.
    pub fn int(value: i128) -> Result<Number, AttributeError> {
        if value < i128::from(i64::MIN) || value > i128::from(u64::MAX) {
            return Err(AttributeError::Overflow(value.to_string()));
        }
        Ok(Number(Repr::Int(value)))
    }
    /// Errors: [`AttributeError::NotFinite`].
    pub fn float(value: f64) -> Result<Number, AttributeError> {
        if value.is_finite() { Ok(Number(Repr::Float(value))) } else { Err(AttributeError::NotFinite) }
    }
    pub fn as_int(self) -> Option<i128> {
        match self.0 {
            Repr::Int(n) => Some(n),
            Repr::Float(_) => None,
        }
    }
    /// For drawing and for ratios: whole numbers above 2^53 are rounded.
    #[allow(clippy::cast_precision_loss)]
    pub fn as_f64(self) -> f64 {
        match self.0 {
            Repr::Int(n) => n as f64,
            Repr::Float(f) => f,
        }
    }
    /// Exactly `mantissa x 2^exponent`; the mantissa has at most 64 bits.
    fn wide(self) -> (i128, i32) {
        match self.0 {
            Repr::Int(n) => (n, 0),
            Repr::Float(f) => {
                let bits = f.to_bits();
                let fraction = i128::from(bits & ((1 << 52) - 1));
                let biased = i32::try_from((bits >> 52) & 0x7ff).unwrap_or(0);
                let (mantissa, exponent) =
                    if biased == 0 { (fraction, -1074) } else { (fraction | 1 << 52, biased - 1075) };
                (if f.is_sign_negative() { -mantissa } else { mantissa }, exponent)
            }
        }
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Number {
        Number(Repr::Int(i128::from(value)))
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Number {
        Number(Repr::Int(i128::from(value)))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Repr::Int(n) => n.fmt(f),
            Repr::Float(float) => write!(f, "{float:?}"),
        }
    }
}

impl schemars::JsonSchema for Number {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Number".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "number" })
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Repr::Float(f) => serializer.serialize_f64(f),
            Repr::Int(n) => match (u64::try_from(n), i64::try_from(n)) {
                (Ok(n), _) => serializer.serialize_u64(n),
                (_, Ok(n)) => serializer.serialize_i64(n),
                _ => Err(serde::ser::Error::custom("a whole number must fit 64 bits")),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
        struct AnyNumber;
        impl Visitor<'_> for AnyNumber {
            type Value = Number;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a finite number")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Number, E> {
                Ok(value.into())
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Number, E> {
                Ok(value.into())
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Number, E> {
                Number::float(value).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(AnyNumber)
    }
}

/// What a unit measures. Units of one base can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Base {
    Bytes,
    BytesPerSecond,
    Hertz,
    Watts,
}

macro_rules! units {
    ($($name:ident $text:literal $base:ident $scale:expr;)*) => {
        /// A unit of the table. `scale` counts atoms: bytes, bytes per second, hertz, *milli*watts.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum AttributeUnit { $($name,)* }
        impl AttributeUnit {
            pub const ALL: &'static [AttributeUnit] = &[$(AttributeUnit::$name,)*];
            pub fn as_str(self) -> &'static str { match self { $(AttributeUnit::$name => $text,)* } }
            pub fn base(self) -> Base { match self { $(AttributeUnit::$name => Base::$base,)* } }
            fn scale(self) -> i128 { match self { $(AttributeUnit::$name => $scale,)* } }
        }
    };
}

units! {
    KiB "KiB" Bytes 1 << 10;
    MiB "MiB" Bytes 1 << 20;
    GiB "GiB" Bytes 1 << 30;
    TiB "TiB" Bytes 1 << 40;
    PiB "PiB" Bytes 1 << 50;
    EiB "EiB" Bytes 1 << 60;
    KB "kB" Bytes 1_000;
    CapitalKB "KB" Bytes 1_000;
    MB "MB" Bytes 1_000_000;
    GB "GB" Bytes 1_000_000_000;
    TB "TB" Bytes 1_000_000_000_000;
    PB "PB" Bytes 1_000_000_000_000_000;
    EB "EB" Bytes 1_000_000_000_000_000_000;
    KiBPerSecond "KiB/s" BytesPerSecond 1 << 10;
    MiBPerSecond "MiB/s" BytesPerSecond 1 << 20;
    GiBPerSecond "GiB/s" BytesPerSecond 1 << 30;
    TiBPerSecond "TiB/s" BytesPerSecond 1 << 40;
    PiBPerSecond "PiB/s" BytesPerSecond 1 << 50;
    EiBPerSecond "EiB/s" BytesPerSecond 1 << 60;
    KBPerSecond "kB/s" BytesPerSecond 1_000;
    CapitalKBPerSecond "KB/s" BytesPerSecond 1_000;
    MBPerSecond "MB/s" BytesPerSecond 1_000_000;
    GBPerSecond "GB/s" BytesPerSecond 1_000_000_000;
    TBPerSecond "TB/s" BytesPerSecond 1_000_000_000_000;
    PBPerSecond "PB/s" BytesPerSecond 1_000_000_000_000_000;
    EBPerSecond "EB/s" BytesPerSecond 1_000_000_000_000_000_000;
    MHz "MHz" Hertz 1_000_000;
    GHz "GHz" Hertz 1_000_000_000;
    MilliWatt "mW" Watts 1;
    Watt "W" Watts 1_000;
    KiloWatt "kW" Watts 1_000_000;
    MegaWatt "MW" Watts 1_000_000_000;
    GigaWatt "GW" Watts 1_000_000_000_000;
}

impl AttributeUnit {
    pub fn from_name(name: &str) -> Option<AttributeUnit> {
        AttributeUnit::ALL.iter().copied().find(|unit| unit.as_str() == name)
    }
    /// The longest unit at the end of a text.
    fn suffix_of(text: &str) -> Option<AttributeUnit> {
        AttributeUnit::ALL.iter().copied().filter(|u| text.ends_with(u.as_str())).max_by_key(|u| u.as_str().len())
    }
}

/// A unit of the table, or a name that is kept as it came and never compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(from = "String", into = "String")]
pub enum UnitName {
    Known(AttributeUnit),
    Opaque(String),
}

impl From<String> for UnitName {
    fn from(name: String) -> UnitName {
        AttributeUnit::from_name(&name).map_or(UnitName::Opaque(name), UnitName::Known)
    }
}

impl From<UnitName> for String {
    fn from(unit: UnitName) -> String {
        unit.as_str().to_owned()
    }
}

impl UnitName {
    pub fn as_str(&self) -> &str {
        match self {
            UnitName::Known(unit) => unit.as_str(),
            UnitName::Opaque(name) => name,
        }
    }
}

/// Exactly one of a number, a text and a boolean; only a number has a unit.
///
/// `==` compares the text (1 W is not 1000 mW); `Attribute::compare` compares the quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Attribute {
    Number {
        value: Number,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unit: Option<UnitName>,
    },
    Text(String),
    Bool(bool),
}

impl Attribute {
    /// Tries the longest unit at the end, then a whole number, a float, a boolean; else it is a text. An unknown unit
    /// makes a text.
    ///
    /// Errors: a number that is too large.
    pub fn parse(text: &str) -> Result<Attribute, AttributeError> {
        let unit = AttributeUnit::suffix_of(text);
        let digits = unit.map_or(text, |unit| text.strip_suffix(unit.as_str()).unwrap_or(text).trim());
        if let Some(value) = parse_number(digits)? {
            return Ok(Attribute::Number { value, unit: unit.map(UnitName::Known) });
        }
        Ok(match text {
            "true" | "True" | "TRUE" => Attribute::Bool(true),
            "false" | "False" | "FALSE" => Attribute::Bool(false),
            _ => Attribute::Text(text.to_owned()),
        })
    }

    /// Exact, and total within a base.
    ///
    /// Errors: [`AttributeError::Incomparable`] across kinds and bases, and with an unknown unit.
    pub fn compare(&self, other: &Attribute) -> Result<Ordering, AttributeError> {
        let known = |unit: &Option<UnitName>| match unit {
            None => Some(None),
            Some(UnitName::Known(unit)) => Some(Some(*unit)),
            Some(UnitName::Opaque(_)) => None,
        };
        match (self, other) {
            (Attribute::Text(a), Attribute::Text(b)) => Ok(a.cmp(b)),
            (Attribute::Bool(a), Attribute::Bool(b)) => Ok(a.cmp(b)),
            (Attribute::Number { value: a, unit: au }, Attribute::Number { value: b, unit: bu }) => {
                match (known(au), known(bu)) {
                    (Some(au), Some(bu)) if au.map(AttributeUnit::base) == bu.map(AttributeUnit::base) => {
                        Ok(compare_wide(atoms(*a, au), atoms(*b, bu)))
                    }
                    _ => Err(self.incomparable(other)),
                }
            }
            (Attribute::Number { .. } | Attribute::Text(_) | Attribute::Bool(_), _) => Err(self.incomparable(other)),
        }
    }

    /// The number in its base unit: bytes, bytes per second, hertz or watts; a number without a unit stays as it is.
    /// Whole numbers stay whole where the base unit can say it (500 mW is 0.5 W).
    ///
    /// Absent when: it is no number, or its unit is unknown. Errors: the result does not fit.
    pub fn in_base(&self) -> Result<Option<(Number, Option<Base>)>, AttributeError> {
        let Attribute::Number { value, unit } = self else { return Ok(None) };
        let unit = match unit {
            None => return Ok(Some((*value, None))),
            Some(UnitName::Opaque(_)) => return Ok(None),
            Some(UnitName::Known(unit)) => *unit,
        };
        let divisor: i128 = if unit.base() == Base::Watts { 1_000 } else { 1 };
        let number = match value.0 {
            Repr::Int(n) => {
                let atoms = n.checked_mul(unit.scale()).ok_or_else(|| AttributeError::Overflow(self.to_string()))?;
                match atoms % divisor {
                    0 => Number::int(atoms / divisor).map_err(|_| AttributeError::Overflow(self.to_string()))?,
                    _ => Number::float(ratio(atoms, divisor))?,
                }
            }
            Repr::Float(f) => Number::float(f * ratio(unit.scale(), divisor))
                .map_err(|_| AttributeError::Overflow(self.to_string()))?,
        };
        Ok(Some((number, Some(unit.base()))))
    }

    fn incomparable(&self, other: &Attribute) -> AttributeError {
        AttributeError::Incomparable(self.to_string(), other.to_string())
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attribute::Number { value, unit: None } => value.fmt(f),
            Attribute::Number { value, unit: Some(unit) } => write!(f, "{value} {}", unit.as_str()),
            Attribute::Text(text) => f.write_str(text),
            Attribute::Bool(b) => b.fmt(f),
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn ratio(numerator: i128, denominator: i128) -> f64 {
    numerator as f64 / denominator as f64
}

/// `None` if it is no number. Words that some parsers take for floats (`inf`, `nan`) are texts.
fn parse_number(text: &str) -> Result<Option<Number>, AttributeError> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Ok(None);
    }
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        let whole = text.parse().map_err(|_| AttributeError::Overflow(text.to_owned()))?;
        return Number::int(whole).map(Some);
    }
    match text.parse::<f64>() {
        Ok(float) => Number::float(float).map(Some).map_err(|_| AttributeError::Overflow(text.to_owned())),
        Err(_) => Ok(None),
    }
}

/// The number in atoms of its unit: 64 bits times at most 60 always fit.
fn atoms(number: Number, unit: Option<AttributeUnit>) -> (i128, i32) {
    let (mantissa, exponent) = number.wide();
    (mantissa * unit.map_or(1, AttributeUnit::scale), exponent)
}

fn compare_wide((a, a_exponent): (i128, i32), (b, b_exponent): (i128, i32)) -> Ordering {
    if a.signum() != b.signum() || a == 0 {
        return a.signum().cmp(&b.signum());
    }
    let top = |mantissa: i128, exponent: i32| {
        exponent.saturating_add(128).saturating_sub_unsigned(mantissa.unsigned_abs().leading_zeros())
    };
    let magnitude = top(a, a_exponent).cmp(&top(b, b_exponent)).then_with(|| {
        // Same highest bit: the one with the larger exponent has room for the shift.
        let shift = a_exponent.abs_diff(b_exponent);
        let (x, y) = (a.unsigned_abs(), b.unsigned_abs());
        if a_exponent >= b_exponent { (x << shift).cmp(&y) } else { x.cmp(&(y << shift)) }
    });
    if a < 0 { magnitude.reverse() } else { magnitude }
}

#[cfg(test)]
#[path = "attribute_tests.rs"]
mod tests;
