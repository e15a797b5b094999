//! Promise (Input validation): A hostile archive writes nothing outside, and a bomb ends at its limit (P-14.5)

use proptest::prelude::*;

use super::archives::{add, header, link, tar_of, zip_of};
use super::*;

/// Sets the name as it is: the library that writes archives refuses such ones.
fn raw(builder: &mut ::tar::Builder<Vec<u8>>, mut header: ::tar::Header, name: &str, target: &str, data: &[u8]) {
    let gnu = header.as_gnu_mut().unwrap();
    gnu.name[..name.len()].copy_from_slice(name.as_bytes());
    gnu.linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_size(data.len() as u64);
    header.set_cksum();
    builder.append(&header, data).unwrap();
}

fn file(mode: u32) -> ::tar::Header {
    header(::tar::EntryType::Regular, mode, 0)
}

#[test]
fn hostile_archives_of_tar_write_nothing_outside_and_leave_nothing() {
    use ::tar::EntryType::{Block, Char, Fifo, Link, Symlink};
    type Build = fn(&mut ::tar::Builder<Vec<u8>>);
    let cases: &[(&str, Build, &str)] = &[
        ("absolute", |tar| raw(tar, file(0o644), "/tmp/allostat-escaped", "", b"x"), "absolute path"),
        ("parent", |tar| raw(tar, file(0o644), "a/../../escaped", "", b"x"), "component `..`"),
        ("link out", |tar| raw(tar, header(Symlink, 0o777, 0), "out", "../../..", b""), "out of the archive"),
        ("absolute link", |tar| raw(tar, header(Symlink, 0o777, 0), "out", "/etc", b""), "out of the archive"),
        ("link by a link", |tar| raw(tar, header(Symlink, 0o777, 0), "a/out", "b/../../..", b""), "out of the archive"),
        (
            "write through a link",
            |tar| {
                add(tar, "dir/x", 0o644, b"x");
                link(tar, Symlink, "way", "dir");
                add(tar, "way/planted", 0o644, b"x");
            },
            "written through it",
        ),
        ("hard link out", |tar| raw(tar, header(Link, 0o644, 0), "out", "/etc/passwd", b""), "absolute path"),
        ("hard link up", |tar| raw(tar, header(Link, 0o644, 0), "out", "../../x", b""), "component `..`"),
        (
            "hard link through a link",
            |tar| {
                link(tar, Symlink, "way", "dir");
                raw(tar, header(Link, 0o644, 0), "out", "way/x", b"");
            },
            "no file of the archive",
        ),
        (
            "hard link to a link",
            |tar| {
                link(tar, Symlink, "way", "x");
                raw(tar, header(Link, 0o644, 0), "out", "way", b"");
            },
            "no file of the archive",
        ),
        ("device", |tar| raw(tar, header(Block, 0o666, 0), "disk", "", b""), "device node"),
        ("character device", |tar| raw(tar, header(Char, 0o666, 0), "null", "", b""), "device node"),
        ("FIFO", |tar| raw(tar, header(Fifo, 0o666, 0), "pipe", "", b""), "FIFO"),
        ("deep", |tar| add(tar, &"d/".repeat(200), 0o644, b""), "directories deep"),
        (
            "a file for a directory",
            |tar| {
                add(tar, "dir", 0o644, b"x");
                add(tar, "dir/x", 0o644, b"x");
            },
            "written through it",
        ),
        (
            "endless name",
            |tar| raw(tar, header(::tar::EntryType::GNULongName, 0, 0), "x", "", &vec![b'a'; 1 << 20]),
            "extended header",
        ),
        ("sparse", |tar| raw(tar, header(::tar::EntryType::GNUSparse, 0o644, 0), "x", "", b""), "sparse"),
    ];
    for (what, build, words) in cases {
        let server = serve_files(vec![(
            "/a.tar",
            tar_of(|tar| {
                add(tar, "good", 0o644, b"good");
                build(tar);
            }),
        )]);
        let bench = ArtifactFixture::new();
        let message = bench.refuses(&format!("{server}/a.tar"), ArtifactOutcome::Archive, words);
        assert_eq!(listed(bench.dir.path()), ["alloc/", "alloc/web/", "alloc/web/local/"], "{what}: {message}");
    }
    assert!(!Path::new("/tmp/allostat-escaped").exists());
}

#[test]
fn hostile_archives_of_zip_write_nothing_outside_and_leave_nothing() {
    let mut lies = zip_of(&[("x", 0o100_644, b"abc")], 8);
    let at = lies.len() - 22 - 47 + 24;
    lies[at] = 2;
    let mut wrong = zip_of(&[("x", 0o100_644, b"abcdef")], 0);
    wrong[31] ^= 1;
    let mut encrypted = zip_of(&[("x", 0o100_644, b"abc")], 0);
    let at = encrypted.len() - 22 - 47 + 8;
    encrypted[at] = 1;
    let cases = vec![
        (zip_of(&[("/tmp/allostat-escaped", 0, b"x")], 8), "absolute path"),
        (zip_of(&[("a/../../escaped", 0, b"x")], 8), "component `..`"),
        (zip_of(&[("out", 0o120_777, b"../../x")], 8), "out of the archive"),
        (zip_of(&[("d/x", 0, b"x"), ("way", 0o120_777, b"d"), ("way/y", 0, b"x")], 8), "written through it"),
        (zip_of(&[("null", 0o020_666, b"")], 0), "device node"),
        (zip_of(&[("pipe", 0o010_666, b"")], 0), "FIFO"),
        (zip_of(&[(&"d/".repeat(200), 0, b"")], 0), "directories deep"),
        (zip_of(&[("x", 0, b"x")], 99), "method 99"),
        (lies, "its length is not"),
        (wrong, "checksum is wrong"),
        (encrypted, "encrypted"),
        (b"no zip at all".to_vec(), "no archive of ZIP"),
        (zip_of(&[("x", 0, b"x")], 8)[..40].to_vec(), "no archive of ZIP"),
    ];
    for (at, (archive, words)) in cases.into_iter().enumerate() {
        let server = serve_files(vec![("/a.zip", archive)]);
        let bench = ArtifactFixture::new();
        let message = bench.refuses(&format!("{server}/a.zip"), ArtifactOutcome::Archive, words);
        assert_eq!(listed(bench.dir.path()), ["alloc/", "alloc/web/", "alloc/web/local/"], "{at}: {message}");
    }
}

#[test]
fn bombs_of_size_and_of_count_end_at_their_limit() {
    let zeros = vec![0; 4 << 20];
    let gz = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&tar_of(|tar| add(tar, "zeros", 0o644, &zeros))).unwrap();
        encoder.finish().unwrap()
    };
    assert!(gz.len() < 64 << 10);
    let single = zstd::encode_all(zeros.as_slice(), 1).unwrap();
    let names: Vec<String> = (0..200).map(|at| format!("f{at}")).collect();
    let many: Vec<(&str, u32, &[u8])> = names.iter().map(|name| (name.as_str(), 0, b"".as_slice())).collect();
    let of_tar = tar_of(|tar| names.iter().for_each(|name| add(tar, name, 0o644, b"")));
    // One entry that makes directories without end.
    let of_directories =
        tar_of(|tar| (0..3).for_each(|at| add(tar, &format!("{at}/{}x", "d/".repeat(60)), 0o644, b"")));
    let server = serve_files(vec![
        ("/a.tgz", gz),
        ("/a.zst", single),
        ("/a.zip", zip_of(&[("zeros", 0, &zeros)], 8)),
        ("/many.zip", zip_of(&many, 0)),
        ("/many.tar", of_tar),
        ("/directories.tar", of_directories),
    ]);
    let bench = ArtifactFixture::new().config(|config| {
        config.decompression_size_limit = 1 << 20;
        config.decompression_file_count_limit = 100;
    });
    for (name, words) in [
        ("a.tgz", "decompression_size_limit_mib"),
        ("a.zst", "decompression_size_limit_mib"),
        ("a.zip", "decompression_size_limit_mib"),
        ("many.zip", "decompression_file_count_limit"),
        ("many.tar", "decompression_file_count_limit"),
        ("directories.tar", "decompression_file_count_limit"),
    ] {
        bench.refuses(&format!("{server}/{name}"), ArtifactOutcome::Limit, words);
    }
    let free = ArtifactFixture::new().config(|config| config.decompression_file_count_limit = 0);
    free.fetch(&format!("{server}/many.tar"), ArtifactMode::Any, "local").unwrap();
}

/// Another process of the task's user cannot change what was verified.
#[test]
fn file_is_downloaded_where_no_other_user_reaches_it() {
    let bench = ArtifactFixture::new();
    let staging = bench.scope.alloc_dir.join(".artifacts-web");
    let modes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&modes);
    let server = serve(move |_, _, stream| {
        seen.lock().unwrap().push(mode_of(&staging));
        respond(stream, "200 OK", "", b"x");
    });
    bench.fetch(&format!("{server}/x"), ArtifactMode::Any, "local").unwrap();
    assert_eq!(*modes.lock().unwrap(), [0o700]);
}

#[test]
fn invalid_or_truncated_archive_is_refused() {
    let tar = tar_of(|tar| add(tar, "x", 0o644, &[1; 5000]));
    let mut broken = tar.clone();
    broken[10] ^= 1;
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&tar).unwrap();
    let gz = gz.finish().unwrap();
    let mut cut = gz.clone();
    cut.truncate(gz.len() - 4);
    let server = serve_files(vec![
        ("/cut.tar", tar[..3000].to_vec()),
        ("/broken.tar", broken),
        ("/html.tgz", b"<html>".to_vec()),
        ("/html.tar", b"<html>".to_vec()),
        ("/empty.tar", Vec::new()),
        ("/cut.tgz", cut),
        ("/html.txz", b"<html>".to_vec()),
        ("/html.tbz2", b"<html>".to_vec()),
        ("/html.tzst", b"<html>".to_vec()),
    ]);
    let bench = ArtifactFixture::new();
    for name in
        ["cut.tar", "broken.tar", "html.tgz", "html.tar", "empty.tar", "cut.tgz", "html.txz", "html.tbz2", "html.tzst"]
    {
        bench.refuses(&format!("{server}/{name}"), ArtifactOutcome::Archive, "cannot unpack it");
    }
}

/// The staging of a bench, to unpack into without a server.
fn unpacked(bench: &ArtifactFixture, bytes: &[u8], is_zip: bool) -> std::io::Result<()> {
    let staging = Staging::new(&bench.scope.alloc_dir, "web", &bench.scope.cancelled)?;
    let bounds = MeterBounds::of_artifact(&bench.scope.config);
    let meter = UnpackMeter::new(bounds, Arc::clone(&bench.scope.cancelled), staging.directory());
    let tree = tree::ArchiveTree::new(&staging, None, &meter)?;
    if is_zip {
        let mut file = tempfile::tempfile()?;
        file.write_all(bytes)?;
        zip::unpack(&file, &tree, &meter)
    } else {
        tar::unpack(&mut &*bytes, &tree, &meter)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn damaged_archive_causes_no_panic_and_writes_nothing_outside(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        length in any::<prop::sample::Index>(),
        is_zip in any::<bool>(),
    ) {
        let mut bytes = if is_zip {
            zip_of(&[("a/x", 0o100_644, b"abc"), ("l", 0o120_777, b"a/x"), ("a/y", 0, b"defghi")], 8)
        } else {
            tar_of(|tar| {
                add(tar, &format!("a/{}", "n".repeat(120)), 0o644, b"abc");
                link(tar, ::tar::EntryType::Symlink, "l", "a");
                add(tar, "b/y", 0o644, &[7; 600]);
            })
        };
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(length.index(bytes.len()) + bytes.len() / 2);
        let bench = ArtifactFixture::new();
        let _ = unpacked(&bench, &bytes, is_zip);
        prop_assert_eq!(listed(bench.dir.path()), ["alloc/", "alloc/web/", "alloc/web/local/"]);
    }

    #[test]
    fn accepted_archive_link_leads_to_no_place_above(target in "(\\.\\./|\\./|a/|/){0,6}(\\.\\.|b)?", depth in 0_usize..4) {
        if tree::link_stays(target.as_bytes(), depth) {
            let mut at = i64::try_from(depth).unwrap();
            for component in target.split('/') {
                at += match component { "" | "." => 0, ".." => -1, _ => 1 };
                prop_assert!(at >= 0, "{target} at {depth}");
            }
        }
    }
}
