use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> Attribute {
    Attribute::parse(text).unwrap()
}
fn number(value: i128, unit: Option<AttributeUnit>) -> Attribute {
    Attribute::Number { value: Number::int(value).unwrap(), unit: unit.map(UnitName::Known) }
}
fn float(value: f64, unit: Option<AttributeUnit>) -> Attribute {
    Attribute::Number { value: Number::float(value).unwrap(), unit: unit.map(UnitName::Known) }
}
fn compare(a: &str, b: &str) -> Option<Ordering> {
    parsed(a).compare(&parsed(b)).ok()
}

#[test]
fn the_longest_unit_then_int_float_bool_and_text() {
    for (text, attribute) in [
        ("true", Attribute::Bool(true)),
        ("False", Attribute::Bool(false)),
        ("0", number(0, None)),
        ("-100", number(-100, None)),
        ("+7", number(7, None)),
        ("-1.5", float(-1.5, None)),
        (".5", float(0.5, None)),
        ("1e3", float(1000.0, None)),
        ("5 GiB", number(5, Some(AttributeUnit::GiB))),
        ("5GiB", number(5, Some(AttributeUnit::GiB))),
        ("  5 GiB", number(5, Some(AttributeUnit::GiB))),
        ("-2.25 kW", float(-2.25, Some(AttributeUnit::KiloWatt))),
        ("10 mW", number(10, Some(AttributeUnit::MilliWatt))),
        ("10 W", number(10, Some(AttributeUnit::Watt))),
        ("10 EB", number(10, Some(AttributeUnit::EB))),
        ("3 MB/s", number(3, Some(AttributeUnit::MBPerSecond))),
        ("1.24GHz", float(1.24, Some(AttributeUnit::GHz))),
        ("18446744073709551615", number(u64::MAX.into(), None)),
    ] {
        assert_eq!(parsed(text), attribute, "{text}");
    }
    for text in ["", "foo", "10 foo", "10 gib", "GiB", "MW", "inf", "nan", "-", ".", "1 2 GiB", "0x10", "truely", "t"] {
        assert_eq!(parsed(text), Attribute::Text(text.to_owned()), "{text}");
    }
}

#[test]
fn every_unit_is_its_own_longest_suffix() {
    for unit in AttributeUnit::ALL {
        assert_eq!(parsed(&format!("7{}", unit.as_str())), number(7, Some(*unit)));
        assert_eq!(AttributeUnit::from_name(unit.as_str()), Some(*unit));
    }
}

#[test]
fn numbers_that_do_not_fit_and_those_that_are_none_are_refused() {
    assert_eq!(
        Attribute::parse("18446744073709551616 MiB"),
        Err(AttributeError::Overflow("18446744073709551616".to_owned()))
    );
    assert!(matches!(Attribute::parse("1e999"), Err(AttributeError::Overflow(_))));
    assert!(matches!(Attribute::parse(&"9".repeat(60)), Err(AttributeError::Overflow(_))));
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(Number::float(bad), Err(AttributeError::NotFinite));
    }
}

#[test]
fn small_units_compare_without_loss_of_precision() {
    assert_eq!(compare("500 mW", "100 mW"), Some(Ordering::Greater));
    assert_eq!(compare("500 mW", "0 W"), Some(Ordering::Greater));
    assert_eq!(compare("1 W", "1000 mW"), Some(Ordering::Equal));
    assert_eq!(compare("1023 MiB", "1 GiB"), Some(Ordering::Less));
    assert_eq!(compare("1 kB", "1 KB"), Some(Ordering::Equal));
    assert_eq!(compare("1500 MHz", "1.5 GHz"), Some(Ordering::Equal));
}

#[test]
fn large_numbers_are_compared_without_overflow() {
    assert_eq!(compare("10 EB", "9 EiB"), Some(Ordering::Less));
    assert_eq!(compare("20 EiB", "10 EB"), Some(Ordering::Greater));
    assert_eq!(compare("18446744073709551615 EiB", "18446744073709551614 EiB"), Some(Ordering::Greater));
    assert_eq!(compare("1e308 EiB", "-1e308 EiB"), Some(Ordering::Greater));
}

#[test]
fn whole_numbers_and_floats_are_compared_exactly() {
    assert_eq!(compare("9007199254740993", "9007199254740992.0"), Some(Ordering::Greater));
    assert_eq!(compare("0.1", "0"), Some(Ordering::Greater));
    assert_eq!(compare("-0.0", "0"), Some(Ordering::Equal));
    assert_eq!(compare("5e-324", "0"), Some(Ordering::Greater));
    assert_eq!(compare("-5e-324", "-1e-323"), Some(Ordering::Greater));
}

#[test]
fn attributes_without_common_unit_base_are_not_comparable() {
    for (a, b) in [("1", "1 MiB"), ("1 MiB", "1 MiB/s"), ("1 W", "1 MHz"), ("1", "x"), ("true", "1"), ("true", "x")] {
        assert!(parsed(a).compare(&parsed(b)).is_err(), "{a} {b}");
    }
    let opaque = |n| Attribute::Number { value: Number::from(n), unit: Some(UnitName::from("Mbit/s".to_owned())) };
    assert!(opaque(1u64).compare(&opaque(1u64)).is_err(), "an unknown unit is never compared");
    assert_eq!(compare("a", "b"), Some(Ordering::Less));
    assert_eq!(compare("false", "true"), Some(Ordering::Less));
}

#[test]
fn base_units_are_bytes_hertz_and_watts_and_overflow_is_an_error() {
    let base = |text: &str| parsed(text).in_base();
    let int = |n: i128, base| Ok(Some((Number::int(n).unwrap(), Some(base))));
    assert_eq!(base("4 GiB"), int(4 << 30, Base::Bytes));
    assert_eq!(base("10 EB"), int(10_000_000_000_000_000_000, Base::Bytes));
    assert_eq!(base("2 W"), int(2, Base::Watts));
    assert_eq!(base("2000 mW"), int(2, Base::Watts));
    assert_eq!(base("500 mW"), Ok(Some((Number::float(0.5).unwrap(), Some(Base::Watts)))));
    assert_eq!(base("1.5 GHz"), Ok(Some((Number::float(1.5e9).unwrap(), Some(Base::Hertz)))));
    assert_eq!(base("7"), Ok(Some((Number::from(7u64), None))));
    assert_eq!(base("20 EiB"), Err(AttributeError::Overflow("20 EiB".to_owned())));
    assert!(matches!(base("1e308 GW"), Err(AttributeError::Overflow(_))));
    assert_eq!(base("x"), Ok(None));
}

#[test]
fn attribute_json_round_trips() {
    for text in ["0", "0.0", "-7", "18446744073709551615", "5 MiB", "", "x", "true", "false"] {
        let attribute = parsed(text);
        let json = serde_json::to_string(&attribute).unwrap();
        assert_eq!(serde_json::from_str::<Attribute>(&json).unwrap(), attribute, "{json}");
        assert!(!json.contains("null"), "{json}");
    }
}

fn any_number() -> impl Strategy<Value = Number> {
    let edge = prop_oneof![Just(0), Just(1), Just(-1), Just(i128::from(u64::MAX)), Just(i128::from(i64::MIN))];
    prop_oneof![
        edge.prop_map(|n| Number::int(n).unwrap()),
        (-2000i128..2000).prop_map(|n| Number::int(n).unwrap()),
        any::<u64>().prop_map(Number::from),
        any::<i64>().prop_map(Number::from),
        (-2000i32..2000).prop_map(|n| Number::float(f64::from(n) / 8.0).unwrap()),
        any::<f64>().prop_filter_map("finite", |f| Number::float(f).ok()),
    ]
}

fn of_one_base() -> impl Strategy<Value = Vec<Attribute>> {
    prop_oneof![Just(None), Just(Some(Base::Bytes)), Just(Some(Base::Watts)), Just(Some(Base::Hertz))].prop_flat_map(
        |base| {
            let units: Vec<Option<AttributeUnit>> = match base {
                None => vec![None],
                Some(base) => AttributeUnit::ALL.iter().copied().filter(|u| u.base() == base).map(Some).collect(),
            };
            let one = (any_number(), proptest::sample::select(units))
                .prop_map(|(value, unit)| Attribute::Number { value, unit: unit.map(UnitName::Known) });
            proptest::collection::vec(one, 3)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn within_a_base_the_order_is_antisymmetric_and_transitive(abc in of_one_base()) {
        let order = |i: usize, j: usize| abc[i].compare(&abc[j]).unwrap();
        prop_assert_eq!(order(0, 0), Ordering::Equal);
        prop_assert_eq!(order(0, 1), order(1, 0).reverse());
        if order(0, 1) == order(1, 2) {
            prop_assert_eq!(order(0, 2), order(0, 1));
        }
        if order(0, 1) == Ordering::Equal {
            prop_assert_eq!(order(0, 2), order(1, 2));
        }
    }

    #[test]
    fn whole_numbers_of_one_unit_are_ordered_as_whole_numbers(
        a in any::<i64>(),
        b in any::<i64>(),
        u in 0..AttributeUnit::ALL.len(),
    ) {
        let unit = Some(AttributeUnit::ALL[u]);
        prop_assert_eq!(number(a.into(), unit).compare(&number(b.into(), unit)), Ok(a.cmp(&b)));
    }

    #[test]
    fn finite_floats_are_ordered_as_floats(a in any::<f64>(), b in any::<f64>()) {
        if let (Ok(x), Ok(y)) = (Number::float(a), Number::float(b)) {
            let (x, y) = (Attribute::Number { value: x, unit: None }, Attribute::Number { value: y, unit: None });
            prop_assert_eq!(x.compare(&y).ok(), a.partial_cmp(&b));
        }
    }

    #[test]
    fn no_text_panics_and_what_is_shown_means_the_same(text in ".{0,30}", near in "[-+.0-9eE ]{0,12}( ?[kKMGTPE]i?B(/s)?| ?[mkMG]?W| ?[MG]Hz)?") {
        for text in [text, near] {
            if let Ok(attribute) = Attribute::parse(&text) {
                prop_assert_eq!(Attribute::parse(&attribute.to_string()), Ok(attribute));
            }
        }
    }

    #[test]
    fn any_number_survives_json(value in any_number()) {
        let json = serde_json::to_string(&value).unwrap();
        prop_assert_eq!(serde_json::from_str::<Number>(&json).unwrap(), value);
    }
}
