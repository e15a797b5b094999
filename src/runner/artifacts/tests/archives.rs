use std::io::Write as _;

use super::*;

/// A small tree as an archive of tar.
pub(super) fn tar_of(build: impl FnOnce(&mut ::tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = ::tar::Builder::new(Vec::new());
    build(&mut builder);
    builder.into_inner().unwrap()
}

pub(super) fn header(kind: ::tar::EntryType, mode: u32, size: u64) -> ::tar::Header {
    let mut header = ::tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(1_000_000_000);
    header.set_cksum();
    header
}

pub(super) fn add(builder: &mut ::tar::Builder<Vec<u8>>, name: &str, mode: u32, data: &[u8]) {
    let mut header = header(::tar::EntryType::Regular, mode, data.len() as u64);
    builder.append_data(&mut header, name, data).unwrap();
}

pub(super) fn link(builder: &mut ::tar::Builder<Vec<u8>>, kind: ::tar::EntryType, name: &str, target: &str) {
    let mut header = header(kind, 0o777, 0);
    builder.append_link(&mut header, name, target).unwrap();
}

/// Name, mode with its type (0: none) and data.
pub(super) fn zip_of(entries: &[(&str, u32, &[u8])], method: u16) -> Vec<u8> {
    let (mut bytes, mut central) = (Vec::new(), Vec::new());
    for (name, mode, data) in entries {
        let packed = match method {
            8 => {
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(data).unwrap();
                encoder.finish().unwrap()
            }
            _ => data.to_vec(),
        };
        let offset = u32::try_from(bytes.len()).unwrap();
        let mut common = Vec::new();
        for field in [20, 0, method, 0, 0] {
            common.extend(u16::to_le_bytes(field));
        }
        common.extend(crc32fast::hash(data).to_le_bytes());
        common.extend(u32::try_from(packed.len()).unwrap().to_le_bytes());
        common.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
        common.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        common.extend([0, 0]);
        bytes.extend(0x0403_4b50_u32.to_le_bytes());
        bytes.extend(&common);
        bytes.extend(name.as_bytes());
        bytes.extend(&packed);
        central.extend(0x0201_4b50_u32.to_le_bytes());
        central.extend([20, 3]);
        central.extend(&common);
        central.extend([0; 6]);
        central.extend((mode << 16).to_le_bytes());
        central.extend(offset.to_le_bytes());
        central.extend(name.as_bytes());
    }
    let count = u16::try_from(entries.len()).unwrap().to_le_bytes();
    let (begin, length) = (u32::try_from(bytes.len()).unwrap(), u32::try_from(central.len()).unwrap());
    bytes.extend(central);
    bytes.extend(0x0605_4b50_u32.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(count);
    bytes.extend(count);
    bytes.extend(length.to_le_bytes());
    bytes.extend(begin.to_le_bytes());
    bytes.extend([0; 2]);
    bytes
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn bzip2(data: &[u8]) -> Vec<u8> {
    let mut encoder = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn xz(data: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn zst(data: &[u8]) -> Vec<u8> {
    zstd::encode_all(data, 1).unwrap()
}

fn small_tar() -> Vec<u8> {
    tar_of(|tar| {
        let mut directory = header(::tar::EntryType::Directory, 0o555, 0);
        tar.append_data(&mut directory, "app/", std::io::empty()).unwrap();
        add(tar, "app/run", 0o4755, b"#!/bin/sh\n");
        add(tar, &format!("app/{}", "long/".repeat(60) + "name"), 0o640, b"deep");
        link(tar, ::tar::EntryType::Symlink, "app/lib/so", "../run");
        link(tar, ::tar::EntryType::Link, "app/again", "app/run");
    })
}

#[test]
fn every_format_is_unpacked_with_its_modes_links_and_long_names() {
    let tar = small_tar();
    let (a, b, c, d) = (gzip(&tar), bzip2(&tar), xz(&tar), zst(&tar));
    let zip = |method| {
        zip_of(
            &[
                ("app/", 0o040_755, b""),
                ("app/run", 0o104_755, b"#!/bin/sh\n"),
                ("app/lib/so", 0o120_777, b"../run"),
                ("app/again", 0o100_755, b"#!/bin/sh\n"),
            ],
            method,
        )
    };
    let server = serve_files(vec![
        ("/a.tar", tar),
        ("/a.tar.gz", a.clone()),
        ("/a.tgz", a),
        ("/a.tar.bz2", b.clone()),
        ("/a.tbz2", b),
        ("/a.tar.xz", c.clone()),
        ("/a.txz", c),
        ("/a.tar.zst", d.clone()),
        ("/a.tzst", d),
        ("/a.zip", zip(8)),
        ("/stored.zip", zip(0)),
    ]);
    for name in [
        "a.tar",
        "a.tar.gz",
        "a.tgz",
        "a.tar.bz2",
        "a.tbz2",
        "a.tar.xz",
        "a.txz",
        "a.tar.zst",
        "a.tzst",
        "a.zip",
        "stored.zip",
    ] {
        for mode in [ArtifactMode::Any, ArtifactMode::Dir] {
            let bench = ArtifactFixture::new();
            bench.fetch(&format!("{server}/{name}"), mode, "local/x").unwrap_or_else(|e| panic!("{name}: {e:?}"));
            let app = bench.task().join("local/x/app");
            assert_eq!(std::fs::read(app.join("again")).unwrap(), b"#!/bin/sh\n", "{name}");
            assert_eq!(std::fs::read(app.join("lib/so")).unwrap(), b"#!/bin/sh\n", "{name}");
            assert_eq!((mode_of(&app.join("run")), mode_of(&app)), (0o755, 0o755), "{name}");
            if !name.ends_with("zip") {
                assert_eq!(std::fs::read(app.join("long/".repeat(60)).join("name")).unwrap(), b"deep");
                let modified = app.join("run").metadata().unwrap().modified().unwrap();
                assert_eq!(modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), 1_000_000_000);
            }
        }
    }
}

#[test]
fn a_compressed_file_loses_its_ending_or_is_the_destination() {
    let text = b"text ".repeat(1000);
    let server = serve_files(vec![
        ("/x.gz", gzip(&text)),
        ("/x.bz2", bzip2(&text)),
        ("/x.xz", xz(&text)),
        ("/x.zst", zst(&text)),
        ("/two.gz", [gzip(b"one "), gzip(b"two")].concat()),
    ]);
    for name in ["x.gz", "x.bz2", "x.xz", "x.zst"] {
        let bench = ArtifactFixture::new();
        bench.fetch(&format!("{server}/{name}"), ArtifactMode::Any, "local").unwrap();
        bench.fetch(&format!("{server}/{name}"), ArtifactMode::File, "local/own").unwrap();
        bench.fetch(&format!("{server}/{name}?archive=false"), ArtifactMode::Any, "local").unwrap();
        assert_eq!(listed(&bench.task().join("local")), ["own", "x", name]);
        assert_eq!(std::fs::read(bench.task().join("local/own")).unwrap(), text, "{name}");
        assert_eq!(std::fs::read(bench.task().join("local/x")).unwrap(), text, "{name}");
        let error = bench.fetch(&format!("{server}/{name}"), ArtifactMode::Dir, "local").unwrap_err();
        assert!(error.message.contains("one compressed file"), "{error:?}");
    }
    let bench = ArtifactFixture::new();
    bench.fetch(&format!("{server}/two.gz"), ArtifactMode::Any, "local").unwrap();
    assert_eq!(std::fs::read(bench.task().join("local/two")).unwrap(), b"one two");
}

#[test]
fn in_mode_file_an_archive_has_one_file_and_a_subdirectory_is_taken_out() {
    let one = gzip(&tar_of(|tar| add(tar, "deep/only", 0o644, b"1")));
    let many = tar_of(|tar| {
        add(tar, "app-1.2/bin/x", 0o755, b"x");
        add(tar, "app-1.2/etc/y", 0o644, b"y");
        link(tar, ::tar::EntryType::Symlink, "app-1.2/bin/y", "../etc/y");
        add(tar, "README", 0o644, b"r");
    });
    let server = serve_files(vec![("/one.tgz", one), ("/many.tar", many)]);
    let bench = ArtifactFixture::new();
    bench.fetch(&format!("{server}/one.tgz"), ArtifactMode::File, "local/it").unwrap();
    assert_eq!(listed(&bench.task().join("local")), ["it"]);
    let error = bench.fetch(&format!("{server}/many.tar"), ArtifactMode::File, "local/it").unwrap_err();
    assert!(error.message.contains("exactly one file"), "{error:?}");
    for sub in ["app-1.2", "app-*", "./*p-1*2/"] {
        let bench = ArtifactFixture::new();
        bench.fetch(&format!("{server}/many.tar//{sub}"), ArtifactMode::Any, "local").unwrap();
        assert_eq!(listed(&bench.task().join("local")), ["bin/", "bin/x", "bin/y -> ../etc/y", "etc/", "etc/y"]);
    }
    let bench = ArtifactFixture::new();
    let archive = ArtifactOutcome::Archive;
    bench.refuses(&format!("{server}/many.tar//none"), archive, "is not in it");
    bench.refuses(&format!("{server}/many.tar//README"), archive, "is no directory");
    bench.refuses(&format!("{server}/many.tar//app-1.2/bin"), archive, "out of the tree");
    bench.refuses(&format!("{server}/many.tar//*"), archive, "more than one");
}

#[test]
fn archive_merges_into_existing_files_and_replaces_planted_links() {
    let tar = tar_of(|tar| {
        add(tar, "etc/new", 0o644, b"new");
        add(tar, "file", 0o644, b"new");
        add(tar, "dir/inner/x", 0o644, b"new");
    });
    let server = serve_files(vec![("/a.tar", tar)]);
    let bench = ArtifactFixture::new();
    let (local, outside) = (bench.task().join("local"), bench.dir.path().join("outside"));
    std::fs::create_dir_all(local.join("etc")).unwrap();
    std::fs::create_dir_all(outside.join("inner")).unwrap();
    std::fs::write(outside.join("victim"), "untouched").unwrap();
    std::fs::write(local.join("etc/old"), "old").unwrap();
    std::os::unix::fs::symlink(outside.join("victim"), local.join("file")).unwrap();
    std::os::unix::fs::symlink(&outside, local.join("dir")).unwrap();
    bench.fetch(&format!("{server}/a.tar"), ArtifactMode::Any, "local").unwrap();
    assert_eq!(listed(&local), ["dir/", "dir/inner/", "dir/inner/x", "etc/", "etc/new", "etc/old", "file"]);
    assert_eq!(listed(&outside), ["inner/", "victim"]);
    assert_eq!(std::fs::read(outside.join("victim")).unwrap(), b"untouched");
    // A link on the way to the destination is refused.
    std::os::unix::fs::symlink(&outside, bench.task().join("way")).unwrap();
    let error = bench.fetch(&format!("{server}/a.tar"), ArtifactMode::Any, "way/deeper").unwrap_err();
    assert_eq!(error.outcome, ArtifactOutcome::Install, "{error:?}");
    assert_eq!(listed(&outside), ["inner/", "victim"]);
    // A file never replaces a directory.
    std::fs::remove_file(local.join("file")).unwrap();
    std::fs::create_dir(local.join("file")).unwrap();
    let error = bench.fetch(&format!("{server}/a.tar"), ArtifactMode::Any, "local").unwrap_err();
    assert!(error.message.contains("is a directory there"), "{error:?}");
}

#[test]
fn files_belong_to_the_user_of_the_task() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let server = serve_files(vec![("/a.tar", small_tar()), ("/x", b"x".to_vec())]);
    let mut bench = ArtifactFixture::new();
    bench.scope.owner = Some((65_534, 65_534));
    bench.fetch(&format!("{server}/a.tar"), ArtifactMode::Any, "local/deep/er").unwrap();
    bench.fetch(&format!("{server}/x"), ArtifactMode::Any, "local/deep").unwrap();
    let local = bench.task().join("local");
    for name in listed(&local) {
        let path = local.join(name.split(" -> ").next().unwrap());
        let owner = std::os::unix::fs::MetadataExt::uid(&path.symlink_metadata().unwrap());
        assert_eq!(owner, 65_534, "{}", path.display());
    }
}
