//! BTF, the kernel's description of its own types: finds the offsets of fields.
//!
//! Source: `/sys/kernel/btf/vmlinux` (5.4, `CONFIG_DEBUG_INFO_BTF`); Documentation/bpf/btf.rst. It has about 5 MB and
//! 130,000 types, so types are looked up on demand.

use std::collections::HashMap;
use std::fmt;

/// Why a field cannot be read. Fields without a description are never guessed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    #[error("invalid kernel BTF: {0}")]
    Damaged(&'static str),
    #[error("this kernel has no {0}")]
    Missing(String),
    #[error("unsupported kernel: {0} has changed")]
    Unsupported(String),
}

/// Location of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BtfMember {
    /// From the start of the outermost type, in bytes.
    pub offset: u32,
    /// Of the whole field, in bytes.
    pub size: u32,
    /// Number of array elements; 1 if it is no array.
    pub count: u32,
    /// The field is a pointer.
    pub is_pointer: bool,
}

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
/// Maximum nesting of types: typedefs of typedefs, structs in structs.
const DEPTH: usize = 32;

mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const POINTER: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FORWARD: u32 = 7;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNCTION: u32 = 12;
    pub(super) const PROTOTYPE: u32 = 13;
    pub(super) const VARIABLE: u32 = 14;
    pub(super) const SECTION: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// Parsed BTF: all types are known to be complete.
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Offset of each type in `types`, by ID; 0 is `void`.
    begins: Vec<u32>,
    /// Structs, unions and enums by name; the first of each name.
    named: HashMap<&'a [u8], u32>,
}

impl fmt::Debug for Btf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Btf").field("types", &self.begins.len()).finish_non_exhaustive()
    }
}

/// Header of a type.
#[derive(Clone, Copy)]
struct BtfType {
    id: u32,
    name: u32,
    kind: u32,
    /// Number of members, parameters or enumerators.
    count: u32,
    /// Members have bit-field sizes; enumerators are signed.
    flag: bool,
    /// Size in bytes, or the ID of another type.
    size_or_type: u32,
}

impl<'a> Btf<'a> {
    /// Errors: wrong byte order or version, or truncated.
    pub fn parse(bytes: &'a [u8]) -> Result<Btf<'a>, BtfError> {
        let damaged = BtfError::Damaged;
        let magic = bytes.first_chunk::<2>().map(|b| u16::from_ne_bytes(*b));
        if magic != Some(MAGIC) || bytes.get(2) != Some(&1) {
            return Err(damaged("no BTF of this machine's byte order, version 1"));
        }
        let field = |at| word(bytes, at).map(|n| n as usize).ok_or(damaged("truncated header"));
        let [header, types_at, types_len, strings_at, strings_len] =
            [field(4)?, field(8)?, field(12)?, field(16)?, field(20)?];
        let part = |at: usize, len: usize| {
            let begin = header.checked_add(at)?;
            bytes.get(begin..begin.checked_add(len)?)
        };
        if header < HEADER {
            return Err(damaged("header too short"));
        }
        let types = part(types_at, types_len).ok_or(damaged("truncated types"))?;
        let strings = part(strings_at, strings_len).ok_or(damaged("truncated names"))?;
        let mut btf = Btf { types, strings, begins: vec![0], named: HashMap::new() };
        let mut at = 0;
        while at < types.len() {
            let begin = u32::try_from(at).map_err(|_| damaged("larger than 4 GiB"))?;
            let id = u32::try_from(btf.begins.len()).unwrap_or(u32::MAX);
            let head = btf.head_at(id, at).ok_or(damaged("truncated type"))?;
            at += 12 + rest_of(head).ok_or(damaged("a type of an unknown kind"))?;
            btf.begins.push(begin);
            if matches!(head.kind, kind::STRUCT | kind::UNION | kind::ENUM) && head.name > 0 {
                let name = strings.get(head.name as usize..).and_then(|rest| rest.split(|b| *b == 0).next());
                btf.named.entry(name.unwrap_or_default()).or_insert(id);
            }
        }
        if at != types.len() {
            return Err(damaged("truncated last type"));
        }
        Ok(btf)
    }

    /// The ID of a kernel function.
    pub fn function(&self, name: &str) -> Result<u32, BtfError> {
        let ids = 1..u32::try_from(self.begins.len()).unwrap_or(u32::MAX);
        let mut all = ids.filter_map(|id| self.head(id));
        let found = all.find(|t| t.kind == kind::FUNCTION && self.is_called(t.name, name));
        found.map(|t| t.id).ok_or_else(|| BtfError::Missing(format!("function {name}")))
    }

    /// The value of an enumerator.
    pub fn enumerator(&self, of: &str, name: &str) -> Result<u32, BtfError> {
        let missing = || BtfError::Missing(format!("{name} in enum {of}"));
        let found = self.named(of).filter(|t| t.kind == kind::ENUM).ok_or_else(missing)?;
        let mut all = (0..found.count as usize).filter_map(|n| {
            let at = self.rest(found) + 8 * n;
            Some((word(self.types, at)?, word(self.types, at + 4)?))
        });
        all.find(|(n, _)| self.is_called(*n, name)).map(|(_, value)| value).ok_or_else(missing)
    }

    /// A field by its path through nested structs, such as `memory.watermark`. Pointers are not followed. Anonymous
    /// structs and unions are searched as well.
    pub fn member(&self, of: &str, path: &str) -> Result<BtfMember, BtfError> {
        let (offset, at) = self.way(of, path)?;
        let foreign = || BtfError::Unsupported(format!("{path} in struct {of}"));
        let bare = self.bare(at).ok_or_else(foreign)?;
        let count = if bare.kind == kind::ARRAY { self.array(bare).ok_or_else(foreign)?.1 } else { 1 };
        let size = self.size(at, DEPTH).ok_or_else(foreign)?;
        Ok(BtfMember { offset, size, count, is_pointer: bare.kind == kind::POINTER })
    }

    /// Whether a field is a pointer to this struct.
    pub fn points_to(&self, of: &str, path: &str, structure: &str) -> Result<bool, BtfError> {
        let (_, at) = self.way(of, path)?;
        let inner = self.bare(at).filter(|t| t.kind == kind::POINTER).and_then(|t| self.bare(t.size_or_type));
        Ok(inner.is_some_and(|t| t.kind == kind::STRUCT && self.is_called(t.name, structure)))
    }

    /// Offset of a field of any type: a flexible array has no size.
    pub fn member_start(&self, of: &str, path: &str) -> Result<u32, BtfError> {
        self.way(of, path).map(|(offset, _)| offset)
    }

    /// The ID of a struct.
    pub fn structure(&self, name: &str) -> Result<u32, BtfError> {
        let found = self.named(name).filter(|t| t.kind == kind::STRUCT);
        found.map(|t| t.id).ok_or_else(|| BtfError::Missing(format!("struct {name}")))
    }

    /// Size of a struct in bytes.
    pub fn size_of(&self, of: &str) -> Result<u32, BtfError> {
        let found = self.named(of).filter(|t| t.kind == kind::STRUCT);
        found.map(|t| t.size_or_type).ok_or_else(|| BtfError::Missing(format!("struct {of}")))
    }

    /// Offset in bytes, and type.
    fn way(&self, of: &str, path: &str) -> Result<(u32, u32), BtfError> {
        let missing = || BtfError::Missing(format!("struct {of}"));
        let found = self.named(of).filter(|t| t.kind != kind::ENUM).ok_or_else(missing)?;
        let (mut offset, mut at) = (0_u32, found.id);
        for name in path.split('.') {
            let missing = || BtfError::Missing(format!("{path} in struct {of}"));
            let (bits, inner) = self.find_member(at, name, DEPTH).ok_or_else(missing)?;
            if bits % 8 != 0 {
                return Err(BtfError::Unsupported(format!("{path} in struct {of}")));
            }
            offset = offset.checked_add(bits / 8).ok_or_else(missing)?;
            at = inner;
        }
        Ok((offset, at))
    }

    /// Offset in bits from the start of the struct, and type. Bit fields are not found.
    fn find_member(&self, of: u32, name: &str, depth: usize) -> Option<(u32, u32)> {
        let found = self.bare(of).filter(|t| t.kind == kind::STRUCT || t.kind == kind::UNION)?;
        for n in 0..found.count as usize {
            let at = self.rest(found) + 12 * n;
            let (called, inner, place) = (word(self.types, at)?, word(self.types, at + 4)?, word(self.types, at + 8)?);
            let (bits, width) = if found.flag { (place & 0x00ff_ffff, place >> 24) } else { (place, 0) };
            if called == 0 && depth > 0 {
                if let Some((deeper, inner)) = self.find_member(inner, name, depth - 1) {
                    return Some((bits.checked_add(deeper)?, inner));
                }
            } else if self.is_called(called, name) {
                return (width == 0).then_some((bits, inner));
            }
        }
        None
    }

    /// The type without qualifiers and typedefs.
    fn bare(&self, id: u32) -> Option<BtfType> {
        let mut found = self.head(id)?;
        for _ in 0..DEPTH {
            match found.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    found = self.head(found.size_or_type)?;
                }
                _ => return Some(found),
            }
        }
        None
    }

    fn size(&self, id: u32, depth: usize) -> Option<u32> {
        let found = self.bare(id)?;
        match found.kind {
            kind::INT | kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64 | kind::FLOAT => {
                Some(found.size_or_type)
            }
            kind::POINTER => Some(8),
            kind::ARRAY if depth > 0 => {
                let (element, count) = self.array(found)?;
                self.size(element, depth - 1)?.checked_mul(count)
            }
            _ => None,
        }
    }

    /// Type and number of the elements.
    fn array(&self, found: BtfType) -> Option<(u32, u32)> {
        let at = self.rest(found);
        Some((word(self.types, at)?, word(self.types, at + 8)?))
    }

    fn named(&self, name: &str) -> Option<BtfType> {
        self.head(*self.named.get(name.as_bytes())?)
    }

    fn is_called(&self, at: u32, name: &str) -> bool {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        rest.strip_prefix(name.as_bytes()).is_some_and(|after| after.first() == Some(&0))
    }

    fn head(&self, id: u32) -> Option<BtfType> {
        // `void` has no header.
        let begin = self.begins.get(id as usize).filter(|_| id > 0)?;
        self.head_at(id, *begin as usize)
    }
    fn head_at(&self, id: u32, at: usize) -> Option<BtfType> {
        let (name, info, size_or_type) = (word(self.types, at)?, word(self.types, at + 4)?, word(self.types, at + 8)?);
        let (kind, count, flag) = (info >> 24 & 31, info & 0xffff, info >> 31 == 1);
        Some(BtfType { id, name, kind, count, flag, size_or_type })
    }
    /// Offset of the data after the header.
    fn rest(&self, of: BtfType) -> usize {
        self.begins.get(of.id as usize).map_or(usize::MAX - 4096, |at| *at as usize + 12)
    }
}

/// Number of bytes after the header.
fn rest_of(head: BtfType) -> Option<usize> {
    let each = |bytes: usize| Some(bytes * head.count as usize);
    match head.kind {
        kind::INT | kind::VARIABLE | kind::DECL_TAG => Some(4),
        kind::ARRAY => Some(12),
        kind::STRUCT | kind::UNION | kind::SECTION | kind::ENUM64 => each(12),
        kind::ENUM | kind::PROTOTYPE => each(8),
        kind::POINTER
        | kind::FORWARD
        | kind::TYPEDEF
        | kind::VOLATILE
        | kind::CONST
        | kind::RESTRICT
        | kind::FUNCTION
        | kind::FLOAT
        | kind::TYPE_TAG => Some(0),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|b| u32::from_ne_bytes(*b))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds BTF for tests, type by type; each call returns the type's ID.
    pub struct BtfBuilder {
        types: Vec<u8>,
        strings: Vec<u8>,
        last: u32,
    }

    impl BtfBuilder {
        pub fn new() -> BtfBuilder {
            BtfBuilder { types: Vec::new(), strings: vec![0], last: 0 }
        }
        fn add(&mut self, name: &str, kind: u32, count: usize, flag: bool, size_or_type: u32, rest: &[u32]) -> u32 {
            let name = self.name(name);
            let info = kind << 24 | u32::try_from(count).unwrap() | u32::from(flag) << 31;
            for word in [name, info, size_or_type].iter().chain(rest) {
                self.types.extend(word.to_ne_bytes());
            }
            self.last += 1;
            self.last
        }
        fn name(&mut self, name: &str) -> u32 {
            if name.is_empty() {
                return 0;
            }
            let at = u32::try_from(self.strings.len()).unwrap();
            self.strings.extend(name.as_bytes());
            self.strings.push(0);
            at
        }
        pub fn number(&mut self, name: &str, size: u32) -> u32 {
            self.add(name, kind::INT, 0, false, size, &[0])
        }
        pub fn pointer(&mut self, to: u32) -> u32 {
            self.add("", kind::POINTER, 0, false, to, &[])
        }
        pub fn also(&mut self, name: &str, of: u32) -> u32 {
            self.add(name, kind::TYPEDEF, 0, false, of, &[])
        }
        pub fn array(&mut self, of: u32, count: u32) -> u32 {
            self.add("", kind::ARRAY, 0, false, 0, &[of, of, count])
        }
        pub fn function(&mut self, name: &str) -> u32 {
            self.add(name, kind::FUNCTION, 0, false, 0, &[])
        }
        pub fn enumeration(&mut self, name: &str, all: &[(&str, u32)]) -> u32 {
            let rest: Vec<u32> = all.iter().flat_map(|(name, n)| [self.name(name), *n]).collect();
            self.add(name, kind::ENUM, all.len(), false, 4, &rest)
        }
        /// Members: name, type, offset in bytes.
        pub fn structure(&mut self, name: &str, size: u32, all: &[(&str, u32, u32)]) -> u32 {
            let rest: Vec<u32> = all.iter().flat_map(|(name, of, at)| [self.name(name), *of, at * 8]).collect();
            self.add(name, kind::STRUCT, all.len(), false, size, &rest)
        }
        pub fn done(&self) -> Vec<u8> {
            let length = |of: &[u8]| u32::try_from(of.len()).unwrap();
            let mut bytes = MAGIC.to_ne_bytes().to_vec();
            bytes.extend([1, 0]);
            for word in [24, 0, length(&self.types), length(&self.types), length(&self.strings)] {
                bytes.extend(word.to_ne_bytes());
            }
            [bytes, self.types.clone(), self.strings.clone()].concat()
        }
    }

    #[test]
    fn a_field_is_found_through_what_it_is_inside_of_and_under_its_other_names() {
        let mut made = BtfBuilder::new();
        let long = made.number("long", 8);
        let atomic = made.structure("", 8, &[("counter", long, 0)]);
        let atomic = made.also("atomic_long_t", atomic);
        let counter = made.structure("page_counter", 24, &[("usage", atomic, 0), ("failcnt", long, 8)]);
        let either = made.structure("", 24, &[("swap", counter, 0), ("memsw", counter, 0)]);
        let events = made.array(atomic, 9);
        let to = made.pointer(counter);
        let members = [("memory", counter, 8), ("", either, 40), ("events", events, 64), ("parent", to, 136)];
        made.structure("mem_cgroup", 144, &members);
        made.enumeration("event", &[("LOW", 0), ("OOM_KILL", 4)]);
        made.function("bpf_iter_cgroup");
        let bytes = made.done();
        let btf = Btf::parse(&bytes).unwrap();
        let member = |path| btf.member("mem_cgroup", path);
        let of = |offset, size, count, is_pointer| Ok(BtfMember { offset, size, count, is_pointer });
        assert_eq!(member("memory.usage"), of(8, 8, 1, false));
        assert_eq!(member("memsw.failcnt"), of(48, 8, 1, false), "through a union without a name");
        assert_eq!(member("events"), of(64, 72, 9, false));
        assert_eq!(member("parent"), of(136, 8, 1, true));
        assert_eq!(btf.enumerator("event", "OOM_KILL"), Ok(4));
        assert_eq!(btf.function("bpf_iter_cgroup"), Ok(10));
        // Missing fields are named; a prefix of a name does not match; pointers are not followed.
        assert_eq!(member("memory.watermark"), Err(BtfError::Missing("memory.watermark in struct mem_cgroup".into())));
        assert!(member("memory.usag").is_err() && member("parent.usage").is_err() && member("memory.usage.").is_err());
        assert!(btf.member("mem_cgrou", "memory").is_err() && btf.enumerator("event", "MAX").is_err());
    }

    #[test]
    fn types_that_go_in_circles_end() {
        let mut made = BtfBuilder::new();
        made.also("a", 2);
        made.also("b", 1);
        made.structure("s", 8, &[("x", 1, 0), ("", 3, 0)]);
        let bytes = made.done();
        let btf = Btf::parse(&bytes).unwrap();
        assert!(btf.member("s", "x").is_err() && btf.member("s", "y").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, at in 0_usize..200, byte: u8) {
            let _ = Btf::parse(&bytes).map(|btf| btf.member("s", "x"));
            let mut made = BtfBuilder::new();
            let long = made.number("long", 8);
            let many = made.array(long, 3);
            made.structure("s", 8, &[("x", many, 0), ("", 3, 0)]);
            made.enumeration("e", &[("A", 1)]);
            let mut wrong = made.done();
            let at = at % wrong.len();
            wrong[at] = byte;
            if let Ok(btf) = Btf::parse(&wrong) {
                let _ = (btf.member("s", "x"), btf.enumerator("e", "A"), btf.function("s"));
            }
        }
    }
}
