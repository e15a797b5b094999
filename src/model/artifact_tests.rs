use super::*;
use crate::model::checksum::{Checksum, ChecksumKind};
use proptest::prelude::*;

fn parsed(source: &str) -> Result<ArtifactSource, String> {
    ArtifactSource::parse(source, &BTreeMap::new())
}

fn git(source: &str) -> (String, Option<String>, Option<String>) {
    let parsed = parsed(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    let ArtifactOrigin::Git(git) = parsed.from else { panic!("{source} is no repository") };
    (git.url, git.reference, parsed.subdirectory)
}

#[test]
fn sources_of_go_getter_are_what_they_are_there() {
    let http = |source: &str| {
        let parsed = parsed(source).unwrap_or_else(|error| panic!("{source}: {error}"));
        let name = parsed.name();
        let ArtifactOrigin::Http(url) = parsed.from else { panic!("{source} is no http") };
        (url, parsed.subdirectory, parsed.archive, name)
    };
    let some = |text: &str| Some(text.to_owned());
    for (source, url, sub, archive, name) in [
        ("https://h/a.tar.gz", "https://h/a.tar.gz", None, Some(ArchiveFormat::TarGz), some("a.tar.gz")),
        ("https://h/a.tgz?x=1", "https://h/a.tgz?x=1", None, Some(ArchiveFormat::Tgz), some("a.tgz")),
        ("https://h/a.zip//b/c?x=1", "https://h/a.zip?x=1", some("b/c"), Some(ArchiveFormat::Zip), some("a.zip")),
        ("https://h/get?archive=zip&v=2", "https://h/get?v=2", None, Some(ArchiveFormat::Zip), some("get")),
        ("https://h/a.zip?archive=false", "https://h/a.zip", None, None, some("a.zip")),
        ("https://h/a.bin?filename=b", "https://h/a.bin", None, None, some("b")),
        ("http::https://h/x%20y", "https://h/x%20y", None, None, some("x y")),
        ("https://h", "https://h", None, None, some("")).clone(),
        ("HTTPS://u:p@h/tar", "HTTPS://u:p@h/tar", None, None, some("tar")),
        ("https://h/a?u=https://x//y", "https://h/a?u=https://x//y", None, None, some("a")),
    ] {
        let name = name.filter(|name: &String| !name.is_empty());
        assert_eq!(http(source), (url.to_owned(), sub, archive, name), "{source}");
    }
    let plain = |url: &str| (url.to_owned(), None, None);
    assert_eq!(git("git::https://h/r.git"), plain("https://h/r.git"));
    assert_eq!(git("github.com/o/r"), plain("https://github.com/o/r.git"));
    assert_eq!(
        git("github.com/o/r//sub/dir?ref=v1"),
        ("https://github.com/o/r.git".to_owned(), some("v1"), some("sub/dir"))
    );
    assert_eq!(
        git("git::git@github.com:o/r.git?ref=main"),
        ("ssh://git@github.com/o/r.git".to_owned(), some("main"), None)
    );
    assert_eq!(git("git@h.lan:o/r.git"), plain("ssh://git@h.lan/o/r.git"));
    assert_eq!(git("bitbucket.org/o/r.git"), plain("https://bitbucket.org/o/r.git"));
}

#[test]
fn unsupported_artifact_sources_are_refused_without_credentials_in_the_error() {
    for (source, words) in [
        ("s3::https://user:SECRET@s3.amazonaws.com/b/k", "object stores"),
        ("bucket.s3.amazonaws.com/b/k", "object stores"),
        ("gcs::https://www.googleapis.com/storage/v1/b/k", "object stores"),
        ("hg::http://SECRET@h/r", "`hg` are not supported"),
        ("file:///etc/passwd", "`file` are not supported"),
        ("git::file:///srv/r", "not over `file`"),
        ("git://h/r", "not over `git`"),
        ("git::ext::sh -c x", "names no server"),
        ("/etc/passwd", "names no server"),
        ("./local", "names no server"),
        ("github.com/o", "OWNER/NAME"),
        ("ftp://SECRET@h/x", "`ftp` are not supported"),
        ("https://h/a.zip//../x", "component `..`"),
        ("git::https://h/r?ref=--upload-pack=x", "begins with `-`"),
        ("git::https://h/r?depth=x", "no whole number"),
        ("git::https://h/r?checksum=md5:d41d8cd98f00b204e9800998ecf8427e", "no checksum"),
        ("https://h/x?checksum=sha256:00", "64 hexadecimal digits"),
        ("https://h/x?checksum=crc:00", "no type"),
    ] {
        let error = parsed(source).err().unwrap_or_else(|| panic!("{source} was taken"));
        assert!(error.contains(words) && !error.contains("SECRET"), "{source}: {error}");
    }
}

#[test]
fn options_go_into_the_query_and_win_over_it() {
    let options = [("checksum", "md5:d41d8cd98f00b204e9800998ecf8427e"), ("token", "a b&c"), ("archive", "false")];
    let options = options.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let source = ArtifactSource::parse("https://h/x.zip?token=old&archive=zip&keep=1", &options).unwrap();
    let ArtifactOrigin::Http(url) = &source.from else { panic!("it is http") };
    assert_eq!(url, "https://h/x.zip?keep=1&token=a%20b%26c");
    assert!(source.archive.is_none() && source.checksum.is_some());
    assert_eq!(source.shown(), "https://h/x.zip");
    assert_eq!(redacted("https://u:p@h:1/p?q=1#f"), "https://h:1/p");
    assert_eq!(redacted("git@h:o/r"), "h:o/r");
}

#[test]
fn a_file_of_checksums_names_the_file_or_has_one_line() {
    let of = |text: &str| Checksum::in_file(text, "a.zip").map(|found| found.to_text());
    let (a, b) = ("a".repeat(64), "b".repeat(64));
    let expected = Some(format!("sha256:{a}"));
    assert_eq!(of(&format!("{b}  b.zip\n{a} *./dist/a.zip\n")), expected);
    assert_eq!(of(&format!("SHA256 (b.zip) = {b}\nSHA256 (a.zip) = {a}\n")), expected);
    assert_eq!(of(&format!("{a}\n")), expected);
    assert_eq!(of(&format!("{b}  b.zip\n")), None);
    assert_eq!(of(&format!("{b}\n{a}\n")), None);
    assert_eq!(of("no checksum"), None);
    for kind in ChecksumKind::ALL {
        let digits = "0f".repeat(kind.length());
        assert!(
            ChecksumSource::parse(&format!("{}:{digits}", kind.as_str())).is_ok()
                && ChecksumSource::parse(&digits).is_ok()
        );
    }
    assert!(ChecksumSource::parse("").is_err() && ChecksumSource::parse("file:/etc/passwd").is_err());
}

proptest! {
    #[test]
    fn no_source_panics_and_none_leaks_its_password(text in "([a-z]{1,4}::)?([a-z]{2,5}://)?(u:pAsS@)?[a-z./?=&%:@#-]{0,40}") {
        match parsed(&text) {
            Ok(source) => prop_assert!(!source.shown().contains("pAsS") || !text.contains("://u:pAsS@"), "{}", source.shown()),
            Err(error) => prop_assert!(!error.contains("pAsS"), "{error}"),
        }
    }
}
