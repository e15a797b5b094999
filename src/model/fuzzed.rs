//! Odd inputs for tests: cheap enough for millions of them, and the same ones for the same seed.
//!
//! `ALLOSTAT_FUZZ_CASES` is how many each test takes, `ALLOSTAT_FUZZ_SEED` begins others. A test that fails prints the
//! seed of the case that failed, and with `ALLOSTAT_FUZZ_CASES=1` that seed is this case.

#[derive(Debug)]
pub struct Fuzz(u64);

/// Says which case it was, where one panics.
struct FuzzCase<'n> {
    name: &'n str,
    seed: u64,
}

impl Drop for FuzzCase<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: ALLOSTAT_FUZZ_CASES=1 ALLOSTAT_FUZZ_SEED={} repeats this", self.name, self.seed);
        }
    }
}

pub fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `one` on as many inputs as are requested, `few` by default.
pub fn each(name: &str, few: u64, one: impl FnMut(&mut Fuzz)) {
    each_of(name, variable("ALLOSTAT_FUZZ_CASES").unwrap_or(few), one);
}

/// On so many.
pub fn each_of(name: &str, cases: u64, mut one: impl FnMut(&mut Fuzz)) {
    let (began, seed) = (std::time::Instant::now(), variable("ALLOSTAT_FUZZ_SEED").unwrap_or(1));
    for case in 0..cases {
        let running = FuzzCase { name, seed: seed.wrapping_add(case) };
        one(&mut Fuzz::new(running.seed));
    }
    println!("{name}: {cases} inputs from seed {seed} on, {:.1} s", began.elapsed().as_secs_f64());
}

impl Fuzz {
    pub fn new(seed: u64) -> Fuzz {
        Fuzz(seed)
    }
    /// SplitMix64: neighbouring seeds have nothing in common.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    /// From 0 to one less than `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.word() % n as u64).expect("it is below n")
    }
    /// In one of so many cases.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
    pub fn pick<'t, T: ?Sized>(&mut self, of: &[&'t T]) -> &'t T {
        of[self.below(of.len())]
    }
    /// Any byte, most often one that a text has.
    fn byte(&mut self) -> u8 {
        let [any, ..] = self.word().to_le_bytes();
        if self.one_in(3) { any } else { b' ' + any % 95 }
    }
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.byte()).collect()
    }
    /// Any character: of ASCII, of those that are written in odd ways, of all planes.
    pub fn char(&mut self) -> char {
        const ODD: [char; 20] = [
            '"',
            '\\',
            '\n',
            '\r',
            '\t',
            '\0',
            '\u{7f}',
            '\u{85}',
            '\u{a0}',
            '\u{2028}',
            '\u{202e}',
            '\u{feff}',
            '\u{fffd}',
            '\u{ffff}',
            '\u{10ffff}',
            '{',
            '}',
            '=',
            ',',
            '#',
        ];
        match self.below(4) {
            0 => ODD[self.below(ODD.len())],
            1 => char::from_u32(u32::try_from(self.word() % 0x11_0000).expect("it is below")).unwrap_or('\u{d7ff}'),
            _ => char::from(b' ' + self.byte() % 95),
        }
    }
    pub fn text(&mut self, most: usize) -> String {
        (0..self.below(most + 1)).map(|_| self.char()).collect()
    }
    /// Pieces of a language in any order, now and then something else between them.
    pub fn pieces(&mut self, pieces: &[&str], most: usize) -> String {
        let mut text = String::new();
        for _ in 0..self.below(most + 1) {
            if self.one_in(12) {
                text.push_str(&self.text(4));
            } else {
                text.push_str(self.pick(pieces));
            }
        }
        text
    }
    /// Something good with some damage: cut out, put in, doubled, a byte changed.
    pub fn damaged(&mut self, good: &[u8], pieces: &[&str]) -> Vec<u8> {
        let mut bytes = good.to_vec();
        for _ in 0..=self.below(3) {
            let (from, length) = (self.below(bytes.len() + 1), self.below(24));
            let to = (from + length).min(bytes.len());
            match self.below(5) {
                0 => drop(bytes.drain(from..to)),
                1 => drop(bytes.splice(from..to, self.bytes(12))),
                2 => drop(bytes.splice(from..to, self.pick(pieces).bytes())),
                3 => {
                    let again = bytes[from..to].to_vec();
                    bytes.splice(from..from, again);
                }
                _ if from < bytes.len() => bytes[from] = self.byte(),
                _ => bytes.truncate(from),
            }
        }
        bytes
    }
}
