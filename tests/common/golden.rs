//! What stands in a file of the repository and is made by a test: written again with `ALLOSTAT_BLESS=1`, and then read
//! like code.

use std::path::Path;

/// `path`: below the root of the repository, or a whole one.
#[track_caller]
pub fn golden(path: impl AsRef<Path>, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("ALLOSTAT_BLESS").is_some_and(|v| v == "1") {
        std::fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("it can be made");
        return std::fs::write(&path, text).expect("golden files can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let other = expected.lines().zip(text.lines()).enumerate().find(|(_, (expected, is))| expected != is);
    if let Some((n, (expected, is))) = other {
        panic!("{}, line {}: {expected:?} has become {is:?}; ALLOSTAT_BLESS=1 writes it again", path.display(), n + 1);
    }
    assert!(
        expected == text,
        "{} has {} lines, and would have {}; ALLOSTAT_BLESS=1 writes it again",
        path.display(),
        expected.lines().count(),
        text.lines().count()
    );
}

/// What stands in a page between two marks.
#[track_caller]
#[allow(dead_code, reason = "other tests use all of it")]
pub fn golden_part(path: impl AsRef<Path>, (begin, end): (&str, &str), text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let page = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (before, rest) = page.split_once(begin).unwrap_or_else(|| panic!("{} has no {begin:?}", path.display()));
    let (_, after) = rest.split_once(end).unwrap_or_else(|| panic!("{} has no {end:?}", path.display()));
    golden(path, &format!("{before}{begin}{text}{end}{after}"));
}
