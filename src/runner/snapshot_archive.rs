//! Writes the directory of an alloc as a tar archive, while its tasks write to it. Private directories of tasks, and
//! everything outside, are left out.
//!
//! A file has the size that it had when it was opened: growth is cut off, and a file that shrank is padded with zeros,
//! as GNU tar does. Files that disappeared, mounts, devices, FIFOs and sockets are left out. Links stay links.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use ::tar::{Builder, EntryType, Header};
use rustix::fs::FileType;

use crate::host::foreign_tree::{FileFacts, ForeignTree, FoundFile};
use crate::host::foreign_walk::{ForeignWalk, WalkBounds};

/// The kernel opens no path of more components: `PATH_MAX`.
const BOUNDS: WalkBounds = WalkBounds { entries: 1_000_000, name_bytes: 64 << 20, depth: 2048 };

/// Writes all entries below `from`, or one file. Blocks as long as the disk and the reader do.
///
/// Errors: of the writer or of the disk; `FileTooLarge`: more than a million entries, or 64 MiB of names.
pub fn write_snapshot(tree: &ForeignTree, from: FoundFile, into: &mut dyn Write) -> io::Result<()> {
    let mut archive = Builder::new(into);
    let top = from.names.len().saturating_sub(usize::from(from.facts.kind != FileType::Directory));
    let mut walk = ForeignWalk::below(from.names.clone(), BOUNDS);
    let mut first = Some(from);
    while let Some(names) = walk.next_path() {
        let found = match first.take() {
            Some(found) => found,
            None => match tree.exactly(names) {
                Ok(found) => found,
                Err(e) if is_left_out(&e) => continue,
                Err(e) => return Err(e),
            },
        };
        let path: PathBuf = found.names.iter().skip(top).collect();
        match found.facts.kind {
            FileType::Directory => {
                // The top directory has no name in the archive.
                if found.names.len() > top {
                    let mut header = header(&found.facts, EntryType::Directory, 0);
                    archive.append_data(&mut header, &path, io::empty())?;
                }
                match walk.enter(tree, &found) {
                    Err(e) if !is_left_out(&e) => return Err(e),
                    Ok(()) | Err(_) => {}
                }
            }
            FileType::RegularFile => {
                let file = match found.open() {
                    Ok(file) => file,
                    Err(e) if is_left_out(&e) => continue,
                    Err(e) => return Err(e),
                };
                let left = file.metadata()?.len();
                let mut header = header(&found.facts, EntryType::Regular, left);
                archive.append_data(&mut header, &path, FixedLengthReader { file, left })?;
            }
            FileType::Symlink => {
                let target = match found.target() {
                    Ok(target) => target,
                    Err(e) if is_left_out(&e) => continue,
                    Err(e) => return Err(e),
                };
                let mut header = header(&found.facts, EntryType::Symlink, 0);
                archive.append_link(&mut header, &path, &target)?;
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {}
        }
    }
    archive.finish()?;
    archive.into_inner()?.flush()
}

/// It disappeared, was replaced by a link, or is a mount.
fn is_left_out(error: &io::Error) -> bool {
    let is_link = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    let kinds = matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::CrossesDevices
            | io::ErrorKind::PermissionDenied
    );
    is_link || kinds
}

fn header(facts: &FileFacts, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(facts.mode);
    header.set_uid(facts.uid.into());
    header.set_gid(facts.gid.into());
    header.set_mtime(facts.modified_nanos.unwrap_or(0) / 1_000_000_000);
    header.set_size(size);
    header
}

/// Reads exactly this number of bytes, whatever happens to the file.
struct FixedLengthReader {
    file: std::fs::File,
    left: u64,
}

impl Read for FixedLengthReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(into.len()).min(into.len());
        let into = &mut into[..most];
        let read = match self.file.read(into)? {
            0 => {
                into.fill(0);
                most
            }
            read => read,
        };
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    fn is_hidden(names: &[OsString]) -> bool {
        names.iter().any(|name| name == "secrets")
    }
    fn snapshot(dir: &Path, path: &str) -> Vec<(String, EntryType, u32, String)> {
        let tree = ForeignTree::open(dir, is_hidden).unwrap();
        let found = tree.find(path).unwrap();
        let mut bytes = Vec::new();
        write_snapshot(&tree, found, &mut bytes).unwrap();
        assert_eq!(bytes.len() % 512, 0);
        let mut archive = ::tar::Archive::new(bytes.as_slice());
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let (path, kind) = (entry.path().unwrap().display().to_string(), entry.header().entry_type());
            let mode = entry.header().mode().unwrap();
            let mut text = String::new();
            match entry.link_name().unwrap() {
                Some(target) => text = target.display().to_string(),
                None => drop(entry.read_to_string(&mut text).unwrap()),
            }
            (path, kind, mode, text)
        });
        entries.collect()
    }

    #[test]
    fn snapshot_has_files_modes_and_links_and_no_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let long = "n".repeat(200);
        std::fs::create_dir_all(dir.path().join("t/secrets")).unwrap();
        std::fs::create_dir_all(dir.path().join("alloc/data")).unwrap();
        std::fs::write(dir.path().join("t/secrets/token"), "SECRET").unwrap();
        std::fs::write(dir.path().join(format!("alloc/data/{long}")), "long").unwrap();
        std::fs::write(dir.path().join("t/run.sh"), "echo").unwrap();
        std::fs::set_permissions(dir.path().join("t/run.sh"), std::fs::Permissions::from_mode(0o750)).unwrap();
        symlink("/etc/shadow", dir.path().join("t/out")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("t/pipe"),
            FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let all = snapshot(dir.path(), "/");
        let names: Vec<&str> = all.iter().map(|(path, ..)| path.trim_end_matches('/')).collect();
        assert_eq!(names, ["alloc", "alloc/data", &format!("alloc/data/{long}"), "t", "t/out", "t/run.sh"]);
        assert_eq!((all[2].3.as_str(), &all[4].3, all[4].1), ("long", &"/etc/shadow".to_owned(), EntryType::Symlink));
        assert_eq!((all[5].2, all[5].3.as_str()), (0o750, "echo"));
        assert!(!format!("{all:?}").contains("SECRET"));
        assert_eq!(snapshot(dir.path(), "t/run.sh")[0].0, "run.sh", "one file");
        assert_eq!(snapshot(dir.path(), "alloc")[0].0.trim_end_matches('/'), "data");
    }

    #[test]
    fn archived_file_that_shrank_is_padded_to_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "abc").unwrap();
        let mut read = Vec::new();
        let file = std::fs::File::open(&path).unwrap();
        FixedLengthReader { file, left: 5 }.read_to_end(&mut read).unwrap();
        assert_eq!(read, b"abc\0\0");
        std::fs::write(&path, "longer than it was").unwrap();
        read.clear();
        let file = std::fs::File::open(&path).unwrap();
        FixedLengthReader { file, left: 6 }.read_to_end(&mut read).unwrap();
        assert_eq!(read, b"longer");
    }
}
