//! An alloc that changes while its data is sent: by a replacement, garbage collection or a restart on its host.
//!
//! Promise (Input validation): P-14.3 An alloc that is restarted, replaced or collected during its transfer gets no
//! seal

use super::*;

/// Runs a function once the given bytes were written.
struct TriggerWriter<F> {
    written: Vec<u8>,
    after: &'static [u8],
    then: Option<F>,
}

impl<F: FnOnce()> Write for TriggerWriter<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.written.extend_from_slice(bytes);
        if bytes.windows(self.after.len()).any(|window| window == self.after)
            && let Some(then) = self.then.take()
        {
            then();
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn sent(old: &Path, after: &'static [u8], then: impl FnOnce(), unchanged: &dyn Fn() -> Result<(), String>) -> Vec<u8> {
    let tree = ForeignTree::open(old, is_hidden).unwrap();
    let mut into = TriggerWriter { written: Vec::new(), after, then: Some(then) };
    write_migration(&tree, unchanged, 0, &mut into).unwrap();
    assert!(into.then.is_none(), "it was written");
    into.written
}

#[test]
fn change_during_the_transfer_is_retried_and_its_part_is_never_installed() {
    type Change = fn(&Path);
    let cases: &[(&[u8], Change, &str)] = &[
        (b"alloc/data/a", |old| std::fs::remove_file(old.join("alloc/data/b")).unwrap(), "alloc/data/b: "),
        // The hook of a replacement, at its begin and after all of it was read.
        (b"alloc/data/a", |old| std::fs::rename(old.join("alloc/data"), old.join("taken")).unwrap(), "alloc/data/b: "),
        (b"web/local/last", |old| std::fs::rename(old.join("alloc/data"), old.join("taken")).unwrap(), "it was moved"),
        (
            b"web/local/last",
            |old| {
                std::fs::remove_dir_all(old.join("alloc/data")).unwrap();
                std::fs::create_dir(old.join("alloc/data")).unwrap();
            },
            "alloc/data: it was moved or removed",
        ),
    ];
    for (after, change, words) in cases {
        let (site, dir) = (Site::new(), tempfile::tempdir().unwrap());
        for path in ["alloc/data/a", "alloc/data/b", "web/local/last"] {
            std::fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join(path), "content").unwrap();
        }
        let archive = sent(dir.path(), after, || change(dir.path()), &|| Ok(()));
        match site.fetch(&serve_archive(archive)) {
            Err(MigrationError::Retry(why)) => assert!(why.contains(words), "{words:?} is not in: {why}"),
            other => panic!("{words}: {other:?}"),
        }
        site.is_untouched();
    }
}

/// The files disappear before their directory is listed: only the agent knows that they were there.
#[test]
fn alloc_that_is_another_at_the_end_is_retried() {
    let (site, dir) = (Site::new(), tempfile::tempdir().unwrap());
    std::fs::create_dir_all(dir.path().join("web/local")).unwrap();
    std::fs::write(dir.path().join("web/local/file"), "content").unwrap();
    let collect = || std::fs::remove_file(dir.path().join("web/local/file")).unwrap();
    let archive = sent(dir.path(), b"web/local", collect, &|| Err("alloc 5f0dc4f8 was started again".to_owned()));
    match site.fetch(&serve_archive(archive)) {
        Err(MigrationError::Retry(why)) => assert!(why.contains("5f0dc4f8 was started again"), "{why}"),
        other => panic!("{other:?}"),
    }
    site.is_untouched();
}

#[test]
fn alloc_without_data_is_refused() {
    for path in ["alloc/logs", "gone/local"] {
        let (site, dir) = (Site::new(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(dir.path().join(path)).unwrap();
        site.refuses(archive_of(dir.path()), "the peer has no data of it");
    }
}
