//! The page that an exposition is written on, shaped for speed: this and the loops in `encode.rs` run for every series
//! of every body.
//!
//! The page keeps its whole length initialised, so that writing is a bounds check and a copy, never a growth. Text that
//! is written again and again is a [`TextPiece`]: padded to 16 bytes, so that it is copied in whole registers without a
//! call; the next write covers the padding.
//!
//! A page with a sink is handed over whenever it is full, and goes on on the next one: of a body of any size no more
//! stands in memory, and what is written stays in the cache. A page without one grows.

use crate::model::metric::Value;

const CHUNK: usize = 16;
/// Room that every write may overrun by.
const MARGIN: usize = 64;
/// The longest number: 20 digits, or 11 digits, a point and 9 digits.
const NUMBER: usize = 24;

/// Text that is rendered once and written often.
#[derive(Debug, Clone, Default)]
pub(super) struct TextPiece {
    chunks: Box<[[u8; CHUNK]]>,
    len: usize,
}

impl TextPiece {
    pub(super) fn new(text: &str) -> TextPiece {
        let bytes = text.as_bytes();
        let chunks = bytes.chunks(CHUNK).map(|part| {
            let mut chunk = [0; CHUNK];
            chunk[..part.len()].copy_from_slice(part);
            chunk
        });
        TextPiece { chunks: chunks.collect(), len: bytes.len() }
    }
    fn padded(&self) -> usize {
        self.chunks.len() * CHUNK
    }
}

/// Takes a full page and how much of it is text, and gives the next one: any bytes, initialised.
pub type PageSink<'s> = &'s mut dyn FnMut(Vec<u8>, usize) -> Vec<u8>;

#[derive(Default)]
pub(super) struct PageBuffer<'s> {
    /// Initialised to its whole length; text up to `at`.
    bytes: Vec<u8>,
    at: usize,
    /// Where the family that is written begins.
    family: usize,
    /// Where its first sample does; `None`: its header is being written.
    samples: Option<usize>,
    sink: Option<PageSink<'s>>,
}

impl<'s> PageBuffer<'s> {
    /// Writes on `bytes` from the start; what stands there is overwritten.
    pub(super) fn on(bytes: Vec<u8>, sink: Option<PageSink<'s>>) -> PageBuffer<'s> {
        PageBuffer { bytes, sink, ..PageBuffer::default() }
    }
    /// The bytes that were not handed over, and how many of them are text.
    pub(super) fn finish(self) -> (Vec<u8>, usize) {
        (self.bytes, self.at)
    }
    /// The header of a family, whose samples follow.
    pub(super) fn header(&mut self, text: &str) {
        (self.family, self.samples) = (self.at, None);
        self.text(text);
        self.samples = Some(self.at);
    }
    /// Takes the header back if nothing followed it.
    pub(super) fn end_family(&mut self) {
        if self.samples == Some(self.at) {
            self.at = self.family;
        }
    }

    #[inline]
    fn ensure(&mut self, more: usize) {
        if self.bytes.len() - self.at < more + MARGIN {
            self.make_room(more);
        }
    }
    #[cold]
    fn make_room(&mut self, more: usize) {
        self.flush_settled();
        if self.bytes.len() - self.at < more + MARGIN {
            self.grow(more);
        }
    }
    /// All but what may be taken back yet: a header, or the end of the last line.
    fn flush_settled(&mut self) {
        let is_header = self.samples.is_none_or(|samples| samples == self.at);
        let settled = if is_header { self.family } else { self.at - 1 };
        let Some(sink) = self.sink.as_mut().filter(|_| settled > 0) else { return };
        let rest = self.bytes[settled..self.at].to_vec();
        self.bytes = sink(std::mem::take(&mut self.bytes), settled);
        self.family = self.family.saturating_sub(settled);
        self.samples = self.samples.map(|samples| samples.saturating_sub(settled));
        self.at = 0;
        if self.bytes.len() < rest.len() {
            self.grow(rest.len());
        }
        self.bytes[..rest.len()].copy_from_slice(&rest);
        self.at = rest.len();
    }
    fn grow(&mut self, more: usize) {
        // Zeroed memory comes from the kernel unwritten: what is never used is never resident.
        let mut bytes = vec![0; (self.bytes.len() * 2).max(self.at + more + MARGIN).max(1 << 16)];
        bytes[..self.at].copy_from_slice(&self.bytes[..self.at]);
        self.bytes = bytes;
    }

    pub(super) fn text(&mut self, text: &str) {
        self.ensure(text.len());
        self.bytes[self.at..self.at + text.len()].copy_from_slice(text.as_bytes());
        self.at += text.len();
    }

    /// One whole sample: name, labels, what closes them, the value.
    #[inline]
    pub(super) fn sample(&mut self, name: &TextPiece, labels: &TextPiece, tail: &TextPiece, value: Value) {
        self.ensure(name.padded() + labels.padded() + tail.padded() + NUMBER);
        let mut line = SampleLine { room: &mut self.bytes[self.at..], at: 0 };
        line.piece(name);
        line.piece(labels);
        line.piece(tail);
        match value {
            Value::Int(n) => line.digits(n),
            Value::Nanos(n) => line.nanos(n),
            Value::Float(f) => match exact_billionths(f) {
                Some(n) => line.nanos(n),
                None => {
                    self.at += line.at;
                    self.float(f);
                    return self.text("\n");
                }
            },
        }
        line.byte(b'\n');
        self.at += line.at;
    }

    /// One whole sample whose value and end of line were rendered before.
    #[inline]
    pub(super) fn constant(&mut self, name: &TextPiece, labels: &TextPiece, tail: &TextPiece, rest: &TextPiece) {
        self.ensure(name.padded() + labels.padded() + tail.padded() + rest.padded());
        let mut line = SampleLine { room: &mut self.bytes[self.at..], at: 0 };
        [name, labels, tail, rest].into_iter().for_each(|piece| line.piece(piece));
        self.at += line.at;
    }

    /// Takes the end of the last line back: more belongs to it.
    pub(super) fn end_of_line_again(&mut self) {
        debug_assert_eq!(self.bytes[..self.at].last(), Some(&b'\n'), "a whole line must have been written");
        self.at -= 1;
    }

    pub(super) fn number(&mut self, value: Value) {
        self.ensure(NUMBER);
        self.value(value);
    }

    /// A value and the end of the line.
    pub(super) fn end_line(&mut self, value: Value) {
        self.number(value);
        self.text("\n");
    }

    fn value(&mut self, value: Value) {
        let mut line = SampleLine { room: &mut self.bytes[self.at..], at: 0 };
        match value {
            Value::Int(n) => line.digits(n),
            Value::Nanos(n) => line.nanos(n),
            Value::Float(f) => match exact_billionths(f) {
                Some(n) => line.nanos(n),
                None => return self.float(f),
            },
        }
        self.at += line.at;
    }

    fn float(&mut self, f: f64) {
        // The shortest text that reads back as the same number; never an exponent.
        let text = if f.is_finite() { f.to_string() } else { non_finite(f).to_owned() };
        self.text(&text);
    }
}

/// The rest of the page while a sample is written: the cursor stays in a register.
struct SampleLine<'a> {
    room: &'a mut [u8],
    at: usize,
}

impl SampleLine<'_> {
    #[inline]
    fn piece(&mut self, piece: &TextPiece) {
        let target = &mut self.room[self.at..self.at + piece.padded()];
        for (to, from) in target.as_chunks_mut::<CHUNK>().0.iter_mut().zip(&piece.chunks) {
            *to = *from;
        }
        self.at += piece.len;
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.room[self.at] = byte;
        self.at += 1;
    }

    /// A `u64`, digit for digit.
    #[inline]
    fn digits(&mut self, n: u64) {
        if n < 10 {
            return self.byte(b'0' + low_byte(n));
        }
        self.padded_digits(n, n.ilog10() as usize + 1);
    }

    /// The last `count` digits of `n`, zeros in front.
    #[inline]
    fn padded_digits(&mut self, n: u64, count: usize) {
        let target = &mut self.room[self.at..self.at + count];
        let (mut rest, mut end) = (n, count);
        while end >= 4 {
            let four = (rest % 10_000) as usize;
            rest /= 10_000;
            target[end - 2..end].copy_from_slice(&PAIRS[four % 100]);
            target[end - 4..end - 2].copy_from_slice(&PAIRS[four / 100]);
            end -= 4;
        }
        if end >= 2 {
            target[end - 2..end].copy_from_slice(&PAIRS[(rest % 100) as usize]);
            rest /= 100;
            end -= 2;
        }
        if end == 1 {
            target[0] = b'0' + low_byte(rest % 10);
        }
        self.at += count;
    }

    /// Nanoseconds as seconds: exact, without trailing zeros.
    #[inline]
    fn nanos(&mut self, n: u64) {
        let (seconds, fraction) = (n / 1_000_000_000, n % 1_000_000_000);
        self.digits(seconds);
        if fraction == 0 {
            return;
        }
        self.byte(b'.');
        // Most clocks count micro- or milliseconds: then there are fewer digits to write and to take back.
        match (fraction % 1_000_000, fraction % 1_000) {
            (0, _) => self.padded_digits(fraction / 1_000_000, 3),
            (_, 0) => self.padded_digits(fraction / 1_000, 6),
            _ => self.padded_digits(fraction, 9),
        }
        while self.room[self.at - 1] == b'0' {
            self.at -= 1;
        }
    }
}

/// A number with at most nine decimals, as most quotas and ratios are: written some ten times as fast as in general.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "below 2^53")]
fn exact_billionths(f: f64) -> Option<u64> {
    let billionths = f * 1e9;
    // Below 2^53 the quotient is the float nearest to the decimal: it reads back as the same number.
    let whole = (0.0..9e15).contains(&billionths) && !f.is_sign_negative();
    let n = billionths.round() as u64;
    (whole && n as f64 / 1e9 == f).then_some(n)
}

fn non_finite(f: f64) -> &'static str {
    match (f.is_nan(), f > 0.0) {
        (true, _) => "NaN",
        (false, true) => "+Inf",
        (false, false) => "-Inf",
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a digit: below 10")]
#[inline]
fn low_byte(n: u64) -> u8 {
    n as u8
}

/// `00` to `99`.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut n = 0;
    while n < 100 {
        #[allow(clippy::cast_possible_truncation, reason = "below 100")]
        let (tens, ones) = ((n / 10) as u8, (n % 10) as u8);
        pairs[n] = [b'0' + tens, b'0' + ones];
        n += 1;
    }
    pairs
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(write: impl Fn(&mut PageBuffer)) -> String {
        let mut page = PageBuffer::default();
        write(&mut page);
        let (bytes, len) = page.finish();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    fn value(value: Value) -> String {
        written(|p| p.end_line(value)).trim_end().to_owned()
    }

    #[test]
    fn seconds_are_exact_decimals_without_trailing_zeros() {
        for (nanos, text) in [
            (0, "0"),
            (1, "0.000000001"),
            (1_500_000_000, "1.5"),
            (1_000_000_000, "1"),
            (10_000_001_000, "10.000001"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            assert_eq!(value(Value::Nanos(nanos)), text);
        }
    }

    #[test]
    fn every_power_of_ten_and_its_neighbours_come_out_whole() {
        for exponent in 0..20 {
            let n = 10_u64.pow(exponent);
            for n in [n - 1, n, n + 1] {
                assert_eq!(value(Value::Int(n)), n.to_string());
            }
        }
        assert_eq!(value(Value::Int((1 << 53) - 1)), "9007199254740991");
        assert_eq!(value(Value::Int(u64::MAX)), "18446744073709551615");
    }

    #[test]
    fn page_grows_from_empty_and_retains_its_content() {
        let long = "x".repeat(100_000);
        let text = written(|p| {
            p.text("start ");
            p.text(&long);
            p.text(" end");
        });
        assert_eq!(text, format!("start {long} end"));
    }

    #[test]
    fn reused_page_exposes_no_earlier_bytes() {
        let mut page = PageBuffer::on(vec![b'#'; 4_096], None);
        page.sample(&TextPiece::new("name"), &TextPiece::new("{a=\"b\""), &TextPiece::new("} "), Value::Int(7));
        page.sample(&TextPiece::new("name"), &TextPiece::default(), &TextPiece::new(" "), Value::Nanos(1));
        let (bytes, len) = page.finish();
        assert_eq!(std::str::from_utf8(&bytes[..len]).unwrap(), "name{a=\"b\"} 7\nname 0.000000001\n");
    }

    /// Writes families with that many samples each, on pages of `size` bytes; gives all, and how many were handed over.
    fn in_pages(size: usize, families: &[usize]) -> (String, usize) {
        let (mut all, mut handed) = (Vec::new(), 0);
        let mut sink = |bytes: Vec<u8>, len: usize| {
            all.extend_from_slice(&bytes[..len]);
            handed += 1;
            vec![b'#'; size]
        };
        let mut page = PageBuffer::on(vec![b'#'; size], Some(&mut sink));
        for (family, samples) in families.iter().enumerate() {
            page.header(&format!("# TYPE f{family} gauge\n"));
            for n in 0..*samples {
                page.sample(
                    &TextPiece::new("f"),
                    &TextPiece::new("{a=\"b\""),
                    &TextPiece::new("} "),
                    Value::Int(n as u64),
                );
                // As an exemplar does.
                page.end_of_line_again();
                page.text(" # ");
                page.end_line(Value::Float(0.1 + 0.2));
            }
            page.end_family();
        }
        let (rest, len) = page.finish();
        all.extend_from_slice(&rest[..len]);
        (String::from_utf8(all).unwrap(), handed)
    }

    #[test]
    fn floats_are_written_as_people_would() {
        let cases = [
            (0.5, "0.5"),
            (0.0, "0"),
            (1.5, "1.5"),
            (2.0, "2"),
            (1e-9, "0.000000001"),
            (0.1 + 0.2, "0.30000000000000004"),
        ];
        for (f, text) in cases {
            assert_eq!(value(Value::Float(f)), text);
        }
        assert_eq!(value(Value::Float(f64::INFINITY)), "+Inf");
        assert_eq!(value(Value::Float(f64::NAN)), "NaN");
    }

    proptest! {
        #[test]
        fn quotas_of_any_period_read_back(quota in 1_000_u32..10_000_000, period in 1_000_u32..1_000_000) {
            let cores = f64::from(quota) / f64::from(period);
            prop_assert_eq!(value(Value::Float(cores)).parse::<f64>().unwrap(), cores);
        }
        #[test]
        fn any_u64_survives(n: u64) {
            prop_assert_eq!(value(Value::Int(n)), n.to_string());
        }
        #[test]
        fn any_nanos_survive(n: u64) {
            let text = value(Value::Nanos(n));
            let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
            prop_assert!(!fraction.ends_with('0'));
            let back: u64 = format!("{whole}{fraction:0<9}").parse().unwrap();
            prop_assert_eq!(back, n);
        }
        #[test]
        fn any_finite_float_reads_back(f in prop::num::f64::NORMAL | prop::num::f64::ZERO) {
            prop_assert_eq!(value(Value::Float(f)).parse::<f64>().unwrap(), f);
        }
        #[test]
        fn a_body_is_the_same_on_pages_of_any_size(
            size in 0_usize..700,
            families in prop::collection::vec(0_usize..6, 0..30),
        ) {
            let (whole, once) = in_pages(1 << 20, &families);
            let (pieces, handed) = in_pages(size, &families);
            prop_assert_eq!(once, 0);
            // One that is too small for a line grows.
            prop_assert!(handed > 0 || whole.len() <= size || size < 300);
            prop_assert_eq!(pieces, whole);
        }
        #[test]
        fn pieces_of_any_length_are_written_whole(parts in prop::collection::vec("[a-z]{0,80}", 0..40)) {
            let text = written(|p| {
                for part in &parts {
                    p.sample(&TextPiece::new(part), &TextPiece::default(), &TextPiece::default(), Value::Int(0));
                }
            });
            let expected: String = parts.iter().map(|p| format!("{p}0\n")).collect();
            prop_assert_eq!(text, expected);
        }
    }
}
