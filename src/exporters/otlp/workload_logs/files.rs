//! The rotated files of a stream, read in order. They stand where tasks may write, so no link is followed, only plain
//! files are read, and the directory must belong to the agent.
//!
//! Source: `<data>/alloc/<alloc>/alloc/logs/<task>.<stdout|stderr>.<n>`; n grows by one, the oldest files are removed.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::positions::OutputPlace;
use crate::supervisor::rotate::{numbers_within, open_own};

/// Bytes of a stream that are read at once.
pub(super) const PIECE: usize = 64 << 10;
/// Entries of a log directory. A task may create any number of files there; more than these are not listed.
const MOST_ENTRIES: usize = 8_192;
/// A larger gap between two numbers is no rotation: a task created a file with a number of its own.
const MOST_ROTATED: u64 = 10_000;

#[derive(Debug)]
pub(super) struct OutputDirectory(OwnedFd);

/// What comes next in a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Where the bytes begin.
    pub place: OutputPlace,
    pub bytes: Vec<u8>,
    /// They are all of their file that is there.
    pub is_end: bool,
    /// Bytes of the file behind them.
    pub left: u64,
    /// That file is complete.
    pub is_closed: bool,
    /// Bytes behind the given place that rotation has removed; estimated from the size of a file.
    pub rotated: u64,
    /// The stream ends before the given place: its files were truncated or removed. `place` is their end.
    pub is_cut: bool,
}

impl OutputDirectory {
    /// Errors: it is a link, absent, or another user's.
    pub fn open(path: &Path) -> io::Result<OutputDirectory> {
        open_own(path).map(OutputDirectory)
    }

    /// `None`: there is no such plain file.
    pub fn size(&self, name: &str) -> io::Result<Option<u64>> {
        match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => Ok(u64::try_from(stat.st_size).ok()),
            Ok(_) | Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// At most `limit` bytes from `offset` on.
    pub fn read(&self, name: &str, offset: u64, limit: usize) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(rustix::fs::openat(&self.0, name, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is not a plain file")));
        }
        let (mut bytes, mut length) = (vec![0; limit], 0);
        while length < limit {
            match file.read_at(&mut bytes[length..], offset + length as u64) {
                Ok(0) => break,
                Ok(n) => length += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Numbers of the plain files with this prefix, in order.
    ///
    /// Errors: the directory has too many entries to list.
    pub fn numbers(&self, prefix: &str) -> io::Result<Vec<u64>> {
        let mut all = numbers_within(&self.0, prefix, MOST_ENTRIES)?;
        all.sort_unstable();
        all.retain(|number| self.size(&format!("{prefix}{number}")).is_ok_and(|size| size.is_some()));
        Ok(all)
    }

    /// Reads on. `from`: `None` begins with the oldest file. `file_bytes`: the limit of a file.
    pub fn next(
        &self,
        prefix: &str,
        from: Option<OutputPlace>,
        (limit, file_bytes): (usize, u64),
    ) -> io::Result<Chunk> {
        let (mut place, mut rotated) = (from, 0);
        // Each file is passed at most once, and rotation is slower than this.
        for _ in 0..64 {
            let Some(at) = place else {
                let Some(oldest) = self.numbers(prefix)?.first().copied() else { return Ok(Chunk::default()) };
                place = Some(OutputPlace { file: oldest, bytes: 0 });
                continue;
            };
            // First whether there is a next one: if so, the size of this one is final.
            let following = at.file.checked_add(1).map(|file| self.size(&format!("{prefix}{file}"))).transpose()?;
            let is_closed = following.flatten().is_some();
            match self.size(&format!("{prefix}{}", at.file))? {
                Some(size) if size > at.bytes => {
                    let bytes = match self.read(&format!("{prefix}{}", at.file), at.bytes, limit) {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        bytes => bytes?,
                    };
                    let left = size.saturating_sub(at.bytes + bytes.len() as u64);
                    return Ok(Chunk { place: at, bytes, is_end: left == 0, left, is_closed, rotated, is_cut: false });
                }
                Some(_) if is_closed => place = Some(OutputPlace { file: at.file.saturating_add(1), bytes: 0 }),
                Some(size) if size < at.bytes => return Ok(cut(at.file, size, rotated)),
                Some(_) => return Ok(Chunk { place: at, is_end: true, rotated, ..Chunk::default() }),
                None => {
                    let all = self.numbers(prefix)?;
                    let Some(newest) = all.last().copied() else {
                        return Ok(Chunk { place: at, is_end: true, rotated, ..Chunk::default() });
                    };
                    let Some(file) = all.into_iter().find(|number| *number > at.file) else {
                        match self.size(&format!("{prefix}{newest}"))? {
                            Some(size) if newest < at.file => return Ok(cut(newest, size, rotated)),
                            _ => continue,
                        }
                    };
                    let files = Some(file - at.file).filter(|files| *files <= MOST_ROTATED).unwrap_or(1);
                    let passed = files.saturating_mul(file_bytes).saturating_sub(at.bytes);
                    rotated = rotated.saturating_add(passed);
                    place = Some(OutputPlace { file, bytes: 0 });
                }
            }
        }
        Ok(Chunk { place: place.unwrap_or_default(), rotated, ..Chunk::default() })
    }

    /// Moves on until at most `most` bytes are left, to the beginning of a line if one is near. Gives the bytes passed.
    pub fn skip(&self, prefix: &str, from: OutputPlace, most: u64) -> io::Result<(OutputPlace, u64)> {
        let mut sizes = Vec::new();
        for file in self.numbers(prefix)?.into_iter().filter(|file| *file >= from.file) {
            let size = self.size(&format!("{prefix}{file}"))?.unwrap_or(0);
            let start = if file == from.file { from.bytes.min(size) } else { 0 };
            sizes.push((file, start, size));
        }
        let left: u64 = sizes.iter().map(|(_, start, size)| size - start).sum();
        let mut excess = left.saturating_sub(most);
        if excess == 0 {
            return Ok((from, 0));
        }
        let mut passed = 0;
        for (file, start, size) in sizes {
            let here = size - start;
            if here <= excess {
                (excess, passed) = (excess - here, passed + here);
                continue;
            }
            let mut place = OutputPlace { file, bytes: start + excess };
            let ahead = self.read(&format!("{prefix}{file}"), place.bytes, PIECE).unwrap_or_default();
            // At the beginning of a file a line begins.
            if place.bytes > 0 {
                place.bytes += ahead.iter().position(|byte| *byte == b'\n').map_or(0, |at| at as u64 + 1);
            }
            return Ok((place, passed + place.bytes - start));
        }
        Ok((from, 0))
    }
}

/// Whether the rest of these files was read before cannot be known. It is not read again, and counts as removed.
fn cut(file: u64, size: u64, rotated: u64) -> Chunk {
    let place = OutputPlace { file, bytes: size };
    Chunk { place, is_end: true, rotated: rotated.saturating_add(size), is_cut: true, ..Chunk::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: (usize, u64) = (100, 10);

    fn place(file: u64, bytes: u64) -> OutputPlace {
        OutputPlace { file, bytes }
    }

    fn directory(files: &[(u64, &str)]) -> (tempfile::TempDir, OutputDirectory) {
        let dir = tempfile::tempdir().unwrap();
        for (number, text) in files {
            std::fs::write(dir.path().join(format!("t.stdout.{number}")), text).unwrap();
        }
        std::fs::write(dir.path().join("t.stderr.9"), "another stream\n").unwrap();
        let opened = OutputDirectory::open(dir.path()).unwrap();
        (dir, opened)
    }

    /// What is read until nothing comes, in chunks of three bytes.
    fn whole(directory: &OutputDirectory, mut from: Option<OutputPlace>) -> (String, u64) {
        let (mut text, mut rotated) = (Vec::new(), 0);
        loop {
            let chunk = directory.next("t.stdout.", from, (3, 10)).unwrap();
            rotated += chunk.rotated;
            from = Some(OutputPlace { bytes: chunk.place.bytes + chunk.bytes.len() as u64, ..chunk.place });
            if chunk.bytes.is_empty() {
                return (String::from_utf8(text).unwrap(), rotated);
            }
            text.extend(chunk.bytes);
        }
    }

    #[test]
    fn output_stream_is_read_over_its_files_and_reports_complete_ones() {
        let (_dir, directory) = directory(&[(8, "one\n"), (9, "two\n"), (10, "thr")]);
        assert_eq!(whole(&directory, None), ("one\ntwo\nthr".to_owned(), 0));
        assert_eq!(whole(&directory, Some(place(9, 1))), ("wo\nthr".to_owned(), 0));
        let first = directory.next("t.stdout.", None, LIMITS).unwrap();
        assert!(first.is_end && first.is_closed && first.place == place(8, 0));
        let last = directory.next("t.stdout.", Some(place(10, 0)), LIMITS).unwrap();
        assert!(last.is_end && !last.is_closed);
        assert_eq!(directory.next("none.", None, LIMITS).unwrap(), Chunk::default());
    }

    #[test]
    fn output_that_rotation_has_removed_is_counted() {
        let (dir, directory) = directory(&[(8, "one\n"), (9, "two\n")]);
        assert_eq!(whole(&directory, Some(place(6, 4))), ("one\ntwo\n".to_owned(), 16), "the rest of 6, and 7");
        // Numbers that no rotation reaches: a task creates these files.
        let plant = |number| std::fs::write(dir.path().join(format!("t.stdout.{number}")), "x\n").unwrap();
        plant(u64::MAX - 1);
        std::fs::remove_file(dir.path().join("t.stdout.9")).unwrap();
        assert_eq!(whole(&directory, Some(place(9, 4))), ("x\n".to_owned(), 6), "one file");
        plant(u64::MAX);
        assert_eq!(whole(&directory, Some(place(u64::MAX, 2))), (String::new(), 0));
    }

    #[test]
    fn stream_that_was_cut_continues_at_its_end_and_is_counted() {
        let (dir, directory) = directory(&[(8, "one\n"), (9, "two\n")]);
        let cut = |from| {
            let chunk = directory.next("t.stdout.", Some(from), LIMITS).unwrap();
            (chunk.is_cut, chunk.place, chunk.rotated, chunk.bytes.len())
        };
        assert_eq!(cut(place(50, 3)), (true, place(9, 4), 4, 0), "its newest files were removed");
        assert_eq!(cut(place(9, 100)), (true, place(9, 4), 4, 0), "its newest file was truncated");
        assert_eq!(cut(place(9, 4)), (false, place(9, 4), 0, 0));
        assert_eq!(cut(place(8, 100)), (false, place(9, 0), 0, 4), "a file that is complete");
        std::fs::write(dir.path().join("t.stdout.9"), "two\nthree\n").unwrap();
        assert_eq!(whole(&directory, Some(place(9, 4))).0, "three\n");
    }

    #[test]
    fn directory_with_too_many_files_is_listed_in_part_only_and_read_on() {
        let (dir, directory) = directory(&[(0, "one\n"), (1, "two\n")]);
        for number in 0..=MOST_ENTRIES {
            std::fs::write(dir.path().join(format!("t.order.{number}")), "").unwrap();
        }
        assert!(directory.numbers("t.order.").unwrap_err().to_string().contains("more than 8192 entries"));
        assert_eq!(whole(&directory, Some(place(0, 0))), ("one\ntwo\n".to_owned(), 0), "the next number is known");
    }

    #[test]
    fn symlinks_pipes_and_foreign_directories_are_not_read_as_output() {
        let (dir, directory) = directory(&[(0, "one\n")]);
        std::fs::write(dir.path().join("secret"), "SECRET\n").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), dir.path().join("t.stdout.1")).unwrap();
        let pipe = dir.path().join("t.stdout.2");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert_eq!(whole(&directory, None).0, "one\n");
        assert!(directory.read("t.stdout.1", 0, 10).is_err() && directory.read("t.stdout.2", 0, 10).is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(OutputDirectory::open(&link).is_err());
    }

    #[test]
    fn skip_leaves_the_newest_output_from_the_beginning_of_a_line() {
        let (_dir, directory) = directory(&[(0, "aaa\nbbb\n"), (1, "ccc\nddd\n"), (2, "eee\n")]);
        let skip = |from, most| directory.skip("t.stdout.", from, most).unwrap();
        assert_eq!(skip(place(0, 0), 100), (place(0, 0), 0));
        assert_eq!(skip(place(0, 0), 10), (place(1, 4), 12));
        assert_eq!(skip(place(0, 0), 12), (place(1, 0), 8));
        assert_eq!(skip(place(1, 4), 4), (place(2, 0), 4));
        assert_eq!(skip(place(0, 5), 1), (place(2, 4), 15));
    }
}
