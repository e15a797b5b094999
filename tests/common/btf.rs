//! The running kernel's description of its types, made wrong on purpose. Source: Documentation/bpf/btf.rst.

use std::collections::HashMap;
use std::fs;

/// Where the kernel has none, the tests of what reads it have nothing to try.
pub fn description() -> Option<Vec<u8>> {
    let found = fs::read("/sys/kernel/btf/vmlinux");
    assert!(found.is_ok() || !super::must_have_pass(), "a guest's kernel describes its types: {found:?}");
    found.ok()
}

/// A structure or an enumeration: where its first member stands, how many bytes each has, and how many there are.
#[derive(Clone, Copy)]
struct Members {
    at: usize,
    each: usize,
    count: usize,
}

/// One description, looked through once.
pub struct Description {
    bytes: Vec<u8>,
    strings: usize,
    by_name: HashMap<Vec<u8>, Members>,
    by_id: HashMap<u32, Members>,
}

impl Description {
    pub fn of(bytes: &[u8]) -> Description {
        let bytes = bytes.to_vec();
        let at = |place| word(&bytes, place) as usize;
        let (types, strings) = (at(4) + at(8), at(4) + at(16));
        let end = types + at(12);
        let (mut by_name, mut by_id, mut next) = (HashMap::new(), HashMap::new(), types);
        let mut id = 0;
        while next < end {
            let (name, info) = (word(&bytes, next) as usize, word(&bytes, next + 4));
            let (kind, count) = (info >> 24 & 31, info as usize & 0xffff);
            let each = match kind {
                4 | 5 | 15 | 19 => 12,
                6 | 13 => 8,
                _ => 0,
            };
            let alone = match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                _ => 0,
            };
            id += 1;
            if matches!(kind, 4..=6) {
                let members = Members { at: next + 12, each, count };
                let name = bytes[strings + name..].split(|b| *b == 0).next().expect("a name ends").to_vec();
                by_name.entry(name).or_insert(members);
                by_id.insert(id, members);
            }
            next += 12 + alone + each * count;
        }
        Description { bytes, strings, by_name, by_id }
    }

    /// Where a member stands, also inside of what has no name. `None`: this kernel has no such one.
    fn member(&self, of: &str, name: &str) -> Option<usize> {
        let expected = [name.as_bytes(), b"\0"].concat();
        self.find(*self.by_name.get(of.as_bytes())?, &expected)
    }
    fn find(&self, members: Members, expected: &[u8]) -> Option<usize> {
        (0..members.count).map(|n| members.at + n * members.each).find_map(|at| {
            let inner = (members.each == 12).then(|| self.by_id.get(&word(&self.bytes, at + 4))).flatten();
            match (word(&self.bytes, at) as usize, inner) {
                (0, Some(inner)) => self.find(*inner, expected),
                (name, _) => self.bytes[self.strings + name..].starts_with(expected).then_some(at),
            }
        })
    }
    pub fn has(&self, of: &str, name: &str) -> bool {
        self.member(of, name).is_some()
    }

    /// Each of the two has the other's name.
    pub fn exchanged(&self, of: &str, one: &str, other: &str) -> Vec<u8> {
        let at = |name| self.member(of, name).unwrap_or_else(|| panic!("{name} in {of}"));
        self.with_words(&[(at(one), word(&self.bytes, at(other))), (at(other), word(&self.bytes, at(one)))])
    }
    /// Nothing has the name any more.
    pub fn without(&self, of: &str, name: &str) -> Vec<u8> {
        let at = self.member(of, name).unwrap_or_else(|| panic!("{name} in {of}"));
        // The end of some name.
        self.with_words(&[(at, word(&self.bytes, at) + u32::try_from(name.len()).expect("names are short"))])
    }
    /// It stands where another one does.
    pub fn moved(&self, of: &str, name: &str, to: &str) -> Vec<u8> {
        let at = |name| self.member(of, name).unwrap_or_else(|| panic!("{name} in {of}"));
        self.with_words(&[(at(name) + 8, word(&self.bytes, at(to) + 8))])
    }

    /// It stands so many bytes from the beginning.
    pub fn placed(&self, of: &str, name: &str, offset: u32) -> Vec<u8> {
        let at = self.member(of, name).unwrap_or_else(|| panic!("{name} in {of}"));
        self.with_words(&[(at + 8, 8 * offset)])
    }
    /// Whatever has the name has another one of the same length.
    pub fn renamed(&self, one: &str, other: &str) -> Vec<u8> {
        assert_eq!(one.len(), other.len());
        let expected = [b"\0", one.as_bytes(), b"\0"].concat();
        let at = self.bytes.windows(expected.len()).position(|found| found == expected).expect("the kernel has it") + 1;
        let mut bytes = self.bytes.clone();
        bytes[at..at + one.len()].copy_from_slice(other.as_bytes());
        bytes
    }

    fn with_words(&self, words: &[(usize, u32)]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (at, word) in words {
            bytes[*at..*at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(*bytes[at..].first_chunk().expect("it is not cut off"))
}
