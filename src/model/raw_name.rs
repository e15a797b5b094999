//! Names of directories as text. Linux lets a name be any bytes without `/` and 0; here each is one text, and no two
//! are the same one.
//!
//! A byte that is no UTF-8 where it stands is one character of Unicode's private use area: U+EF80 for 0x80 to U+EFFF
//! for 0xff. Where a name has such a character itself its bytes are written so, too: whatever stands for a byte is a
//! byte.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// What stands for byte 0.
const FIRST: u32 = 0xef00;
/// Each character that stands for a byte begins with this byte, as do some others.
const LEAD: u8 = 0xee;

/// One or many parts of a path, as the kernel gives them.
pub fn text(name: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(name)
        && !name.contains(&LEAD)
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::new();
    for piece in name.utf8_chunks() {
        for c in piece.valid().chars() {
            match byte(c) {
                None => text.push(c),
                Some(_) => text.extend(c.encode_utf8(&mut [0; 4]).bytes().map(placeholder)),
            }
        }
        text.extend(piece.invalid().iter().copied().map(placeholder));
    }
    Cow::Owned(text)
}

/// Where that is: the other way round.
pub fn path(text: &str) -> Cow<'_, Path> {
    if !text.as_bytes().contains(&LEAD) {
        return Cow::Borrowed(Path::new(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte(c) {
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Some(byte) => bytes.push(byte),
        }
    }
    Cow::Owned(OsString::from_vec(bytes).into())
}

/// As people read it: `\xff`. Two that differ may look alike.
pub fn shown(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        match byte(c) {
            None => shown.push(c),
            // Writing to a string does not fail.
            Some(byte) => _ = write!(shown, "\\x{byte:02x}"),
        }
        shown
    })
}

/// Only of bytes that are no ASCII.
fn placeholder(byte: u8) -> char {
    char::from_u32(FIRST + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

pub(super) fn byte(c: char) -> Option<u8> {
    u32::from(c).checked_sub(FIRST).and_then(|n| u8::try_from(n).ok()).filter(|byte| !byte.is_ascii())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use proptest::prelude::*;

    fn back(text: &str) -> Vec<u8> {
        path(text).as_os_str().as_bytes().to_vec()
    }

    #[test]
    fn a_byte_that_is_no_text_is_one_character_and_is_shown_as_systemd_shows_it() {
        let odd = text(b"o\xffdd");
        assert_eq!((&*odd, shown(&odd)), ("o\u{efff}dd", "o\\xffdd".to_owned()));
        assert!(matches!(text("/kubepods/pöd\\x2d".as_bytes()), Cow::Borrowed("/kubepods/pöd\\x2d")));
        assert!(matches!(path("/kubepods/pöd"), Cow::Borrowed(_)));
    }

    #[test]
    fn raw_name_characters_that_stand_for_bytes_are_escaped_in_names() {
        // Beside the name that is the byte, the two characters around them, and one that begins alike.
        let names = [&b"\xff"[..], "\u{efff}".as_bytes(), "\u{ef7f}".as_bytes(), "\u{f000}".as_bytes(), b"\\xff"];
        let texts: std::collections::BTreeSet<String> = names.iter().map(|name| text(name).into_owned()).collect();
        assert_eq!(texts.len(), names.len(), "{texts:?}");
        assert_eq!(text("\u{ef7f}\u{f000}\u{e000}".as_bytes()), "\u{ef7f}\u{f000}\u{e000}");
    }

    fn names() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..4),
            proptest::collection::vec(0xee_u8..0xf1, 0..2),
            proptest::collection::vec(0xbd_u8..0xc1, 0..3),
            any::<char>().prop_map(|c| c.to_string().into_bytes()),
            (0xef70_u32..0xf010).prop_map(|c| char::from_u32(c).unwrap().to_string().into_bytes()),
        ];
        proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn every_name_comes_back_so_no_two_are_one_text(name in names()) {
            let text = text(&name).into_owned();
            prop_assert_eq!(back(&text), &name[..]);
            prop_assert_eq!(super::text(&back(&text)).into_owned(), text);
        }
        #[test]
        fn raw_name_text_without_byte_stand_ins_is_unchanged(name in "[^\u{ef80}-\u{efff}]{0,40}") {
            prop_assert_eq!(&*text(name.as_bytes()), &name);
            prop_assert_eq!(back(&name), name.as_bytes());
            prop_assert_eq!(shown(&name), name);
        }
        #[test]
        fn a_path_is_cut_where_its_parts_are(one in names(), other in names()) {
            let whole = text(&[&one[..], b"/", &other[..]].concat()).into_owned();
            prop_assert_eq!(whole, format!("{}/{}", text(&one), text(&other)));
        }
    }
}
