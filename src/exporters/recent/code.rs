//! A value in 2 bytes: absent, 0, or one of 65,534 steps of 0.075% from 1e-6 to 1e15.

/// Ordered like the value that it stands for; absent is below all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CurveCode(u16);

const LEAST: f64 = 1e-6;
const MOST: f64 = 1e15;
/// The codes 0 and 1 are absent and 0.
const FIRST: f64 = 2.0;
const LAST: f64 = 65_535.0;

fn step() -> f64 {
    (MOST / LEAST).ln() / (LAST - FIRST)
}

impl CurveCode {
    pub const ABSENT: CurveCode = CurveCode(0);
    const ZERO: CurveCode = CurveCode(1);

    /// What is below the least step is 0. No number, or a negative one, is absent.
    pub fn of(value: Option<f64>) -> CurveCode {
        match value {
            Some(value) if (0.0..LEAST).contains(&value) => CurveCode::ZERO,
            Some(value) if value >= LEAST => {
                let at = ((value.min(MOST) / LEAST).ln() / step()).round() + FIRST;
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 2 to 65,535")]
                CurveCode(at.clamp(FIRST, LAST) as u16)
            }
            _ => CurveCode::ABSENT,
        }
    }

    pub fn value(self) -> Option<f64> {
        match self {
            CurveCode::ABSENT => None,
            CurveCode::ZERO => Some(0.0),
            CurveCode(code) => Some(LEAST * ((f64::from(code) - FIRST) * step()).exp()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn curve_codes_of_absent_and_zero_differ_from_every_value() {
        assert_eq!(CurveCode::of(None).value(), None);
        assert_eq!(CurveCode::of(Some(f64::NAN)).value(), None);
        assert_eq!(CurveCode::of(Some(-1.0)).value(), None);
        assert_eq!(CurveCode::of(Some(0.0)).value(), Some(0.0));
        assert_eq!(CurveCode::of(Some(1e-9)).value(), Some(0.0));
        assert!(CurveCode::of(Some(LEAST)).value().is_some_and(|value| value > 0.0));
        let most = CurveCode::of(Some(f64::INFINITY)).value();
        assert!(most.is_some_and(|most| (most / MOST - 1.0).abs() < 1e-9), "{most:?}");
    }

    proptest! {
        #[test]
        fn a_value_comes_back_within_half_a_step_and_in_order(a in 1e-6..1e15f64, b in 1e-6..1e15f64) {
            let [codes, back] = [[a, b].map(|v| CurveCode::of(Some(v))), [a, b].map(|v| CurveCode::of(Some(v)))];
            let back = back[0].value().unwrap_or(0.0);
            prop_assert!((back / a - 1.0).abs() < 0.000_4, "{} came back as {}", a, back);
            prop_assert!(a > b || codes[0] <= codes[1]);
        }
    }
}
