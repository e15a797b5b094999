//! The last hour of one field, and of all fields of one task.

use std::collections::VecDeque;
use std::mem::size_of;

use super::code::CurveCode;
use super::sample::{CurveFields, FIELDS};

/// What a block on the heap costs beside its bytes.
const BLOCK: usize = 16;

/// Codes, oldest first. How many there are says the curve.
#[derive(Debug, Clone)]
enum CurveColumn {
    /// All are this one.
    Same(CurveCode),
    Each(VecDeque<CurveCode>),
}

impl CurveColumn {
    /// `have`: so many codes before this one. `most`: so many are kept.
    fn push(&mut self, code: CurveCode, have: usize, most: usize) {
        match self {
            CurveColumn::Same(same) if have == 0 => *same = code,
            CurveColumn::Same(same) if *same == code => {}
            CurveColumn::Same(same) => {
                let mut each: VecDeque<_> = std::iter::repeat_n(*same, have).collect();
                push(&mut each, code, most);
                *self = CurveColumn::Each(each);
            }
            CurveColumn::Each(each) => push(each, code, most),
        }
    }

    /// One that has become the same all over gives its memory back.
    fn fold(&mut self) {
        let CurveColumn::Each(each) = self else { return };
        if let Some(first) = each.front().copied()
            && each.iter().all(|code| *code == first)
        {
            *self = CurveColumn::Same(first);
        }
    }

    fn code(&self, at: usize) -> CurveCode {
        match self {
            CurveColumn::Same(same) => *same,
            CurveColumn::Each(each) => each.get(at).copied().unwrap_or(CurveCode::ABSENT),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            CurveColumn::Same(_) => 0,
            CurveColumn::Each(each) => each.capacity() * size_of::<CurveCode>() + BLOCK,
        }
    }
}

fn push(each: &mut VecDeque<CurveCode>, code: CurveCode, most: usize) {
    while each.len() >= most {
        each.pop_front();
    }
    if each.len() == each.capacity() {
        // By a quarter: doubled, half of it would be empty.
        each.reserve_exact((each.len() / 4).max(8).min(most - each.len()));
    }
    each.push_back(code);
}

/// The hour of one task, or of the host.
#[derive(Debug, Clone)]
pub(super) struct TaskCurve {
    /// The slot after the last one that has a point.
    next: u64,
    len: usize,
    columns: [CurveColumn; FIELDS],
}

impl Default for TaskCurve {
    fn default() -> TaskCurve {
        TaskCurve { next: 0, len: 0, columns: std::array::from_fn(|_| CurveColumn::Same(CurveCode::ABSENT)) }
    }
}

impl TaskCurve {
    /// Slots that it has missed are absent. `most`: so many points are kept.
    pub fn push(&mut self, slot: u64, values: &CurveFields, most: usize) {
        if self.len > 0 {
            let missed = usize::try_from(slot.saturating_sub(self.next)).unwrap_or(most).min(most);
            for _ in 0..missed {
                self.push_codes(&[CurveCode::ABSENT; FIELDS], most);
            }
        }
        self.push_codes(&values.map(CurveCode::of), most);
        self.next = slot + 1;
    }

    fn push_codes(&mut self, codes: &[CurveCode; FIELDS], most: usize) {
        for (column, code) in self.columns.iter_mut().zip(codes) {
            column.push(*code, self.len, most);
        }
        self.len = (self.len + 1).min(most);
    }

    pub fn fold(&mut self) {
        self.columns.iter_mut().for_each(CurveColumn::fold);
    }

    /// Of one field in one slot.
    pub fn code(&self, field: usize, slot: u64) -> CurveCode {
        let at = slot.checked_sub(self.first()).and_then(|at| usize::try_from(at).ok()).filter(|at| *at < self.len);
        at.zip(self.columns.get(field)).map_or(CurveCode::ABSENT, |(at, column)| column.code(at))
    }

    /// The slot of the oldest point.
    pub fn first(&self) -> u64 {
        self.next - u64::try_from(self.len).unwrap_or(self.next).min(self.next)
    }
    /// The slot after that of the newest point.
    pub fn next(&self) -> u64 {
        self.next
    }
    /// Beside its own size.
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(CurveColumn::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cpu: Option<f64>) -> CurveFields {
        let mut values = [None; FIELDS];
        values[0] = cpu;
        values
    }

    fn rounded(curve: &TaskCurve, slots: std::ops::Range<u64>) -> Vec<Option<u64>> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small whole numbers")]
        slots.map(|slot| curve.code(0, slot).value().map(|value| value.round() as u64)).collect()
    }

    #[test]
    fn an_idle_task_costs_no_memory_until_a_value_changes() {
        let mut curve = TaskCurve::default();
        for slot in 1..=100 {
            curve.push(slot, &of(Some(0.0)), 50);
        }
        assert_eq!((curve.bytes(), curve.first(), curve.next()), (0, 51, 101));
        curve.push(101, &of(Some(7.0)), 50);
        assert!(curve.bytes() >= 100, "{}", curve.bytes());
        assert_eq!(rounded(&curve, 99..103), [Some(0), Some(0), Some(7), None]);
        for slot in 102..=151 {
            curve.push(slot, &of(Some(7.0)), 50);
        }
        curve.fold();
        assert_eq!((curve.bytes(), rounded(&curve, 101..103)), (0, vec![None, Some(7)]));
    }

    #[test]
    fn slots_that_were_missed_are_absent_and_never_zero() {
        let mut curve = TaskCurve::default();
        curve.push(3, &of(Some(1.0)), 10);
        curve.push(6, &of(Some(2.0)), 10);
        assert_eq!(rounded(&curve, 2..8), [None, Some(1), None, None, Some(2), None]);
        curve.push(1_000_000, &of(Some(3.0)), 10);
        assert_eq!(rounded(&curve, 999_998..1_000_001), [None, None, Some(3)]);
        assert_eq!(curve.first(), 999_991);
    }
}
