use ::tar::{Builder, EntryType, Header};

use super::*;

fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header
}

/// Sets the name as it is: the library that writes archives refuses such ones.
fn raw(builder: &mut Builder<Vec<u8>>, mut header: Header, name: &str, target: &str, data: &[u8]) {
    let gnu = header.as_gnu_mut().unwrap();
    gnu.name[..name.len()].copy_from_slice(name.as_bytes());
    gnu.linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_size(data.len() as u64);
    header.set_cksum();
    builder.append(&header, data).unwrap();
}

fn archive(build: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    raw(&mut builder, header(EntryType::Regular, 0o644), "alloc/data/good", "", b"good");
    build(&mut builder);
    builder.into_inner().unwrap()
}

fn records(all: &[(&str, &str)]) -> Vec<u8> {
    let one = |(key, value): &(&str, &str)| {
        let rest = key.len() + value.len() + 3;
        let length = (rest + 1..).find(|length| *length == rest + length.to_string().len()).unwrap();
        format!("{length} {key}={value}\n")
    };
    all.iter().map(one).collect::<String>().into_bytes()
}

#[test]
fn hostile_archives_write_nothing_outside_and_leave_nothing() {
    use EntryType::{Block, Char, Fifo, GNUSparse, Link, Regular, Symlink, XHeader};
    type Build = fn(&mut Builder<Vec<u8>>);
    let cases: &[(Build, &str)] = &[
        (|tar| raw(tar, header(Regular, 0o644), "/tmp/allostat-migrated", "", b"x"), "absolute path"),
        (|tar| raw(tar, header(Regular, 0o644), "alloc/../../escaped", "", b"x"), "component `..`"),
        (|tar| raw(tar, header(Symlink, 0o777), "alloc/data/out", "../../..", b""), "out of the archive"),
        (|tar| raw(tar, header(Symlink, 0o777), "alloc/data/out", "/etc", b""), "out of the archive"),
        (|tar| raw(tar, header(Symlink, 0o777), "alloc/out", "b/../../..", b""), "out of the archive"),
        (
            |tar| {
                raw(tar, header(Symlink, 0o777), "alloc/way", "data", b"");
                raw(tar, header(Regular, 0o644), "alloc/way/planted", "", b"x");
            },
            "written through it",
        ),
        (|tar| raw(tar, header(Link, 0o644), "alloc/data/out", "/etc/passwd", b""), "absolute path"),
        (|tar| raw(tar, header(Link, 0o644), "alloc/data/out", "../../x", b""), "component `..`"),
        (
            |tar| {
                raw(tar, header(Symlink, 0o777), "alloc/way", "data", b"");
                raw(tar, header(Link, 0o644), "alloc/data/out", "alloc/way/good", b"");
            },
            "no file of the archive",
        ),
        (|tar| raw(tar, header(Block, 0o666), "alloc/data/disk", "", b""), "device node"),
        (|tar| raw(tar, header(Char, 0o666), "alloc/data/null", "", b""), "device node"),
        (|tar| raw(tar, header(Fifo, 0o666), "alloc/data/pipe", "", b""), "FIFO"),
        (|tar| raw(tar, header(GNUSparse, 0o644), "alloc/data/x", "", b""), "sparse"),
        (|tar| raw(tar, header(EntryType::GNULongName, 0), "x", "", &vec![b'a'; 1 << 20]), "extended header"),
        (
            |tar| {
                // A directory is replaced by a link, after something was put into it.
                raw(tar, header(Regular, 0o644), "alloc/data/deep/x", "", b"x");
                raw(tar, header(Symlink, 0o777), "alloc/data/deep", ".", b"");
            },
            "alloc/data/deep",
        ),
        (
            |tar| {
                for _ in 0..8 {
                    let value = "v".repeat(60 << 10);
                    raw(tar, header(XHeader, 0o644), "x", "", &records(&[("SCHILY.xattr.user.a", &value)]));
                }
            },
            "extended attributes",
        ),
        (
            |tar| {
                let sparse = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "4")];
                raw(tar, header(XHeader, 0o644), "x", "", &records(&sparse));
                let mut map = b"1\n0\n512\n".to_vec();
                map.resize(1024, b'x');
                raw(tar, header(Regular, 0o644), "alloc/data/x", "", &map);
            },
            "map of a sparse file",
        ),
    ];
    for (build, words) in cases {
        Site::new().refuses(archive(build), words);
    }
    assert!(!Path::new("/tmp/allostat-migrated").exists());
}

#[test]
fn rights_that_a_hostile_peer_could_grant_are_not_taken_over() {
    let site = Site::new();
    let old = site.dir.path().join("old");
    std::fs::create_dir_all(old.join("alloc/data")).unwrap();
    std::fs::write(old.join("alloc/data/suid"), "x").unwrap();
    set_mode(&old.join("alloc/data/suid"), 0o6755);
    site.fetch(&serve_archive(archive_of(&old))).unwrap();
    install(&site.scope("127.0.0.1:1")).unwrap();
    assert_eq!(site.alloc_dir().join("alloc/data/suid").metadata().unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn bombs_of_size_count_and_holes_end_at_their_limits() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("alloc/data");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::File::create(data.join("hole")).unwrap().set_len(1 << 40).unwrap();
    let holes = archive_of(dir.path());
    assert!(holes.len() < 64 << 10);
    Site::with(|config| config.max_size = 1 << 30).refuses(holes, "more than 1024 MiB (migrate.max_size_mib)");
    std::fs::remove_file(data.join("hole")).unwrap();
    std::fs::write(data.join("large"), vec![7; 3 << 20]).unwrap();
    let large = archive_of(dir.path());
    Site::with(|config| config.max_size = 2 << 20).refuses(large.clone(), "more than 2 MiB (migrate.max_size_mib)");
    Site::with(|config| config.free_space_reserve = 1 << 60).refuses(large, "(migrate.free_space_reserve_mib)");
    for n in 0..50 {
        std::fs::write(data.join(format!("{n}")), "").unwrap();
    }
    let many = archive_of(dir.path());
    Site::with(|config| config.max_entries = 20).refuses(many, "more than 20 entries (migrate.max_entries)");
}

#[test]
fn archive_that_does_not_fit_its_seal_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("alloc/data")).unwrap();
    std::fs::write(dir.path().join("alloc/data/file"), "the content").unwrap();
    let good = archive_of(dir.path());
    let changed = |from: &[u8], to: &[u8]| {
        let at = good.windows(from.len()).position(|window| window == from).unwrap();
        let mut archive = good.clone();
        archive[at..at + to.len()].copy_from_slice(to);
        archive
    };
    Site::new().refuses(changed(b"the content", b"THE CONTENT"), "the SHA-256 of what was received");
    Site::new().refuses(changed(b"entries=2", b"entries=3"), "received 2 entries with 11 bytes; the seal has 3");
    Site::new().refuses(changed(b"bytes=11", b"bytes=12"), "the seal has 2 with 12");
    let at = good.windows(16).position(|window| window == b"ALLOSTAT.entries").unwrap() / 512 - 1;
    let (entries, seal) = good.split_at(at * 512);
    let seal = &seal[..1024];
    let twice = [entries, seal, &entries[..1024], &good[at * 512 + 1024..]].concat();
    Site::new().refuses(twice, "follows the seal");
    let endless = [good.as_slice(), &vec![0; 1 << 20]].concat();
    Site::new().refuses(endless, "does not end at its end mark");
    Site::new().refuses(b"<html>".repeat(100), "no archive of tar");
    assert!(Site::new().fetch(&serve_archive(good)).is_ok());
}
