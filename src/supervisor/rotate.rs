//! One output stream of a task, in numbered files of limited size: `<task>.stdout.0`, `.1` ...
//!
//! Never more than `max_files` files of at most `max_file_bytes` each, at any instant: the oldest goes before the next
//! one is made. A line is not split between two files as long as it arrives whole and fits. Bytes that the disk does
//! not take are dropped and counted; the task is never held up by them.
//!
//! The directory stands where tasks of other users may write, so it is opened once and only if it is ours, no link is
//! ever followed, and nothing but a plain file is written.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

/// Within this distance of its limit a file ends with the next line.
const LINE_WINDOW: u64 = 4096;

#[derive(Debug)]
pub struct Rotator {
    /// Or why it could not be opened. It is not tried again: by then the task runs, and the path may
    /// be of its choosing.
    directory: Result<OwnedFd, (io::ErrorKind, String)>,
    /// `<task>.stdout.`
    prefix: String,
    max_files: u64,
    max_file_bytes: u64,
    index: u64,
    /// `None`: the next write has to open one.
    file: Option<File>,
    size: u64,
    /// The file ends in the middle of a line.
    line_open: bool,
    lost_bytes: u64,
    first_error: Option<String>,
}

impl Rotator {
    /// Goes on in the newest file that is there. `stream` is `stdout` or `stderr`.
    pub fn open(directory: &Path, task: &str, stream: &str, max_files: u32, max_file_bytes: u64) -> Rotator {
        let mut rotator = Rotator {
            directory: open_own(directory)
                .map_err(|e| (e.kind(), format!("the log directory {}: {e}", directory.display()))),
            prefix: format!("{task}.{stream}."),
            max_files: u64::from(max_files.max(1)),
            max_file_bytes: max_file_bytes.max(1),
            index: 0,
            file: None,
            size: 0,
            line_open: false,
            lost_bytes: 0,
            first_error: None,
        };
        if let Err(error) = rotator.open_next_file() {
            rotator.note(&error);
        }
        rotator
    }

    /// How far it is written: the number of the file, and the bytes in it.
    pub fn place(&self) -> (u64, u64) {
        (self.index, self.size)
    }
    pub fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }
    /// What the first loss was due to.
    pub fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// Takes everything: what cannot be written is counted as lost.
    pub fn write(&mut self, mut chunk: &[u8]) {
        while !chunk.is_empty() {
            let taken = self.write_some(chunk).unwrap_or_else(|error| {
                self.note(&error);
                self.lost_bytes = self.lost_bytes.saturating_add(chunk.len() as u64);
                chunk.len()
            });
            chunk = chunk.get(taken..).unwrap_or_default();
        }
    }

    /// Writes as much as belongs into the present file, or turns to the next one and writes nothing.
    fn write_some(&mut self, chunk: &[u8]) -> io::Result<usize> {
        let room = self.max_file_bytes.saturating_sub(self.size);
        let fits = chunk.len() as u64 <= room;
        let window = LINE_WINDOW.min(self.max_file_bytes / 8);
        let line_ends = |bytes: &[u8]| bytes.iter().rposition(|b| *b == b'\n').map(|at| at + 1);
        let far_from_full = self.size + chunk.len() as u64 + window <= self.max_file_bytes;
        if fits && (far_from_full || chunk.ends_with(b"\n")) {
            return self.append(chunk);
        }
        let within = &chunk[..chunk.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        match line_ends(within) {
            Some(whole_lines) => self.append(&chunk[..whole_lines]),
            None if self.size > 0 && !self.line_open => self.next_file().map(|()| 0),
            // In the middle of a line that has no end in sight: split where the file is full.
            None if within.is_empty() => self.next_file().map(|()| 0),
            None => self.append(within),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(create(directory(&self.directory)?, &name(&self.prefix, self.index))?),
        };
        let written = loop {
            match file.write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                result => break result?,
            }
        };
        self.size += written as u64;
        self.line_open = bytes.get(written - 1) != Some(&b'\n');
        Ok(written)
    }

    /// The oldest goes first, so that there are never too many. If it cannot go, no other is made.
    fn next_file(&mut self) -> io::Result<()> {
        let next = self.index.checked_add(1).filter(|next| *next < u64::MAX);
        let next = next.ok_or_else(|| io::Error::other("no number is left for another log file"))?;
        if let Some(oldest) = next.checked_sub(self.max_files) {
            self.remove(oldest)?;
        }
        let file = create(directory(&self.directory)?, &name(&self.prefix, next))?;
        (self.file, self.size, self.line_open) = (Some(file), 0, false);
        self.index = next;
        Ok(())
    }

    fn remove(&self, index: u64) -> io::Result<()> {
        match rustix::fs::unlinkat(directory(&self.directory)?, name(&self.prefix, index), AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn open_next_file(&mut self) -> io::Result<()> {
        let own = directory(&self.directory)?;
        let present = numbers(own, &self.prefix)?;
        if let Some(newest) = present.iter().copied().max() {
            self.index = newest;
            for old in present.iter().filter(|n| n.saturating_add(self.max_files) <= newest) {
                self.remove(*old)?;
            }
        }
        let file = create(own, &name(&self.prefix, self.index))?;
        self.size = file.metadata()?.len();
        let mut last = [0];
        self.line_open = self.size > 0 && file.read_at(&mut last, self.size - 1)? == 1 && last != *b"\n";
        self.file = Some(file);
        Ok(())
    }

    /// Removes what was written after `place`, in that file and in newer ones: it is written again. Errors are noted;
    /// then lines repeat.
    pub fn cut_back(&mut self, place: (u64, u64)) {
        if self.place() > place
            && let Err(error) = self.cut(place)
        {
            self.note(&error);
        }
    }

    fn cut(&mut self, (index, size): (u64, u64)) -> io::Result<()> {
        let own = directory(&self.directory)?;
        for newer in numbers(own, &self.prefix)?.into_iter().filter(|number| *number > index) {
            self.remove(newer)?;
        }
        let file = create(own, &name(&self.prefix, index))?;
        if file.metadata()?.len() > size {
            file.set_len(size)?;
        }
        self.open_next_file()
    }

    fn note(&mut self, error: &io::Error) {
        if self.first_error.is_none() {
            self.first_error = Some(error.to_string());
        }
    }
}

/// Of the files that are there.
pub(super) fn numbers(directory: &OwnedFd, prefix: &str) -> io::Result<Vec<u64>> {
    numbers_within(directory, prefix, usize::MAX)
}

/// The same. Errors: those of readdir(3), or the directory has more than `most` entries.
pub fn numbers_within(directory: &OwnedFd, prefix: &str, most: usize) -> io::Result<Vec<u64>> {
    let mut present = Vec::new();
    for (count, entry) in rustix::fs::Dir::read_from(directory)?.enumerate() {
        let entry = entry?;
        if count >= most {
            return Err(io::Error::other(format!("the log directory has more than {most} entries")));
        }
        let name = entry.file_name().to_str().ok();
        let number = name.and_then(|n| n.strip_prefix(prefix)).and_then(|n| n.parse::<u64>().ok());
        // We never come to the last number: such a name is none of ours.
        present.extend(number.filter(|n| *n < u64::MAX));
    }
    Ok(present)
}

pub(super) fn name(prefix: &str, index: u64) -> String {
    format!("{prefix}{index}")
}

/// Errors: why it could not be opened, each time again.
fn directory(opened: &Result<OwnedFd, (io::ErrorKind, String)>) -> io::Result<&OwnedFd> {
    opened.as_ref().map_err(|(kind, message)| io::Error::new(*kind, message.clone()))
}

/// Errors: it is a link, or no directory, or another user's, who could put anything into it.
pub fn open_own(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    let owner = rustix::fs::fstat(&directory)?.st_uid;
    if owner != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("it belongs to user {owner}, not to us")));
    }
    Ok(directory)
}

/// Goes on in a file that exists.
///
/// Errors: what stands there is a link, or no plain file.
pub(super) fn create(directory: &OwnedFd, name: &str) -> io::Result<File> {
    // NONBLOCK: a named pipe must not hold us up before we know what it is.
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o640))?;
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is not a plain file")));
    }
    Ok(File::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn files(directory: &Path) -> Vec<(u64, Vec<u8>)> {
        let mut found: Vec<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                let index = path.extension().unwrap().to_str().unwrap().parse().unwrap();
                (index, std::fs::read(path).unwrap())
            })
            .collect();
        found.sort();
        found
    }

    fn text(files: &[(u64, Vec<u8>)]) -> Vec<u8> {
        files.iter().flat_map(|(_, bytes)| bytes.clone()).collect()
    }

    #[test]
    fn lines_that_fit_are_never_split() {
        let dir = tempfile::tempdir().unwrap();
        let mut rotator = Rotator::open(dir.path(), "web", "stdout", 100, 64);
        for n in 0..100 {
            rotator.write(format!("line number {n:03}\n").as_bytes());
        }
        let files = files(dir.path());
        assert_eq!(files.len(), 25, "4 lines of 16 bytes in each");
        for (index, bytes) in &files {
            assert!(bytes.ends_with(b"\n"), "{index}: {:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_chunk_that_crosses_the_limit_is_cut_after_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut rotator = Rotator::open(dir.path(), "web", "stdout", 10, 20);
        rotator.write(b"one\ntwo\nthree\nfour\nfive\nsix\nsev");
        rotator.write(b"en\n");
        let parts: Vec<_> = files(dir.path()).into_iter().map(|(_, b)| String::from_utf8(b).unwrap()).collect();
        assert_eq!(parts, ["one\ntwo\nthree\nfour\n", "five\nsix\nseven\n"]);
    }

    #[test]
    fn rotator_after_restart_continues_in_the_newest_file() {
        let dir = tempfile::tempdir().unwrap();
        Rotator::open(dir.path(), "web", "stdout", 10, 8).write(b"1234567\nabc");
        let mut again = Rotator::open(dir.path(), "web", "stdout", 10, 8);
        again.write(b"def\nx\n");
        let files = files(dir.path());
        assert_eq!(files, [(0, b"1234567\n".to_vec()), (1, b"abcdef\n".to_vec()), (2, b"x\n".to_vec())]);
    }

    #[test]
    fn cut_back_leaves_what_was_written_up_to_the_place() {
        let dir = tempfile::tempdir().unwrap();
        for (written, place, expected) in [
            (&b"12345678\n"[..], (0, 4), vec![(0, b"1234".to_vec())]),
            (b"1\n2\n3\n4\n5\n", (0, 2), vec![(0, b"1\n".to_vec())]),
            (b"1\n2\n3\n4\n5\n", (9, 0), vec![(0, b"1\n2\n3\n4\n5\n".to_vec())]),
            // Its file is gone by now.
            (b"1234567\n8901234\n5678901\n2\n", (0, 8), vec![(0, Vec::new())]),
        ] {
            let max_file_bytes = if written.len() > 12 { 8 } else { 100 };
            let mut rotator = Rotator::open(dir.path(), "web", "stdout", 2, max_file_bytes);
            rotator.write(written);
            rotator.cut_back(place);
            assert_eq!(files(dir.path()), expected);
            rotator.write(b"more\n");
            assert!(text(&files(dir.path())).ends_with(b"more\n"));
            assert_eq!(rotator.first_error(), None);
            std::fs::read_dir(dir.path())
                .unwrap()
                .for_each(|entry| std::fs::remove_file(entry.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn rotation_of_one_stream_leaves_the_other_stream_untouched() {
        let dir = tempfile::tempdir().unwrap();
        let mut out = Rotator::open(dir.path(), "web", "stdout", 1, 4);
        let mut err = Rotator::open(dir.path(), "web", "stderr", 1, 4);
        for _ in 0..5 {
            out.write(b"out\n");
            err.write(b"err\n");
        }
        let names: std::collections::BTreeSet<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["web.stderr.4", "web.stdout.4"]);
    }

    #[test]
    fn rotator_write_failure_is_counted_and_later_writes_succeed() {
        let dir = tempfile::tempdir().unwrap();
        // Where the file should be is a directory.
        std::fs::create_dir(dir.path().join("web.stdout.0")).unwrap();
        let mut rotator = Rotator::open(dir.path(), "web", "stdout", 2, 100);
        rotator.write(b"lost\n");
        assert_eq!(rotator.lost_bytes(), 5);
        assert!(rotator.first_error().unwrap().contains("Is a directory"), "{:?}", rotator.first_error());
        std::fs::remove_dir(dir.path().join("web.stdout.0")).unwrap();
        rotator.write(b"kept\n");
        assert_eq!(rotator.lost_bytes(), 5);
        assert_eq!(text(&files(dir.path())), b"kept\n");
    }

    #[test]
    fn a_link_in_place_of_a_log_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("logs");
        std::fs::create_dir(&logs).unwrap();
        for target in ["present", "absent"] {
            let victim = dir.path().join(target);
            if target == "present" {
                std::fs::write(&victim, "as it was").unwrap();
            }
            std::os::unix::fs::symlink(&victim, logs.join("web.stdout.0")).unwrap();
            let mut rotator = Rotator::open(&logs, "web", "stdout", 2, 100);
            rotator.write(b"harm\n");
            assert_eq!(rotator.lost_bytes(), 5);
            std::fs::remove_file(logs.join("web.stdout.0")).unwrap();
        }
        assert_eq!(std::fs::read(dir.path().join("present")).unwrap(), b"as it was");
        assert!(!dir.path().join("absent").exists());
    }

    #[test]
    fn a_directory_that_takes_the_place_of_the_first_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let (logs, moved) = (dir.path().join("logs"), dir.path().join("moved"));
        std::fs::create_dir(&logs).unwrap();
        let mut rotator = Rotator::open(&logs, "web", "stdout", 3, 4);
        rotator.write(b"one\n");
        std::fs::rename(&logs, &moved).unwrap();
        std::fs::create_dir(&logs).unwrap();
        rotator.write(b"two\n");
        assert_eq!(text(&files(&moved)), b"one\ntwo\n");
        assert!(files(&logs).is_empty());
    }

    #[test]
    fn directory_that_is_a_link_or_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (logs, link) = (dir.path().join("logs"), dir.path().join("link"));
        std::fs::create_dir(&logs).unwrap();
        std::os::unix::fs::symlink(&logs, &link).unwrap();
        let mut rotator = Rotator::open(&link, "web", "stdout", 2, 100);
        rotator.write(b"lost\n");
        assert_eq!(rotator.lost_bytes(), 5);
        assert!(rotator.first_error().unwrap().contains("link"), "{:?}", rotator.first_error());
        // Giving a directory away takes root; anybody can look at one of root's.
        let foreign = match std::os::unix::fs::chown(&logs, Some(65534), None) {
            Ok(()) => logs.as_path(),
            Err(_) => Path::new("/usr"),
        };
        let mut rotator = Rotator::open(foreign, "web", "stdout", 2, 100);
        rotator.write(b"lost\n");
        assert!(rotator.first_error().unwrap().contains("not to us"), "{:?}", rotator.first_error());
        assert!(files(&logs).is_empty());
    }

    #[test]
    fn a_pipe_in_place_of_a_log_file_neither_blocks_nor_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("web.stdout.0");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let mut rotator = Rotator::open(dir.path(), "web", "stdout", 2, 100);
        rotator.write(b"lost\n");
        assert!(rotator.first_error().unwrap().contains("not a plain file"), "{:?}", rotator.first_error());
    }

    #[test]
    fn the_largest_number_in_a_name_overflows_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(format!("web.stdout.{}", u64::MAX)), "x\n").unwrap();
        let mut rotator = Rotator::open(dir.path(), "web", "stdout", 2, 4);
        rotator.write(b"abc\ndef\n");
        assert_eq!(rotator.lost_bytes(), 0);
        let present = files(dir.path());
        assert_eq!(present, [(0, b"abc\n".to_vec()), (1, b"def\n".to_vec()), (u64::MAX, b"x\n".to_vec())]);

        std::fs::write(dir.path().join(format!("web.stdout.{}", u64::MAX - 1)), "abc\n").unwrap();
        let mut rotator = Rotator::open(dir.path(), "web", "stdout", 2, 4);
        rotator.write(b"lost\n");
        assert!(rotator.first_error().unwrap().contains("no number is left"), "{:?}", rotator.first_error());
    }

    proptest! {
        /// Exact total order and the bound on size, whatever the chunks.
        #[test]
        fn rotated_files_hold_the_end_of_the_stream(
            chunks in proptest::collection::vec(
                proptest::collection::vec(prop_oneof![4 => any::<u8>(), 1 => Just(b'\n')], 0..90),
                0..40,
            ),
            max_files in 1u32..5,
            max_file_bytes in 1u64..100,
            reopen in 0usize..40,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut rotator = Rotator::open(dir.path(), "t", "stdout", max_files, max_file_bytes);
            let mut stream = Vec::new();
            for (n, chunk) in chunks.iter().enumerate() {
                if n == reopen {
                    rotator = Rotator::open(dir.path(), "t", "stdout", max_files, max_file_bytes);
                }
                rotator.write(chunk);
                stream.extend_from_slice(chunk);
                let files = files(dir.path());
                prop_assert!(files.len() <= max_files as usize);
                prop_assert!(files.iter().all(|(_, bytes)| bytes.len() as u64 <= max_file_bytes));
                prop_assert!(files.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1));
                let retained = text(&files);
                prop_assert!(stream.ends_with(&retained));
                if files.first().is_some_and(|(index, _)| *index == 0) {
                    prop_assert_eq!(&retained, &stream, "nothing was dropped yet, so everything is there");
                }
            }
            prop_assert_eq!(rotator.lost_bytes(), 0);
        }

        #[test]
        fn no_line_is_split_that_came_whole_and_fits(lengths in proptest::collection::vec(0usize..63, 1..60)) {
            let dir = tempfile::tempdir().unwrap();
            let mut rotator = Rotator::open(dir.path(), "t", "stdout", 1000, 64);
            for length in lengths {
                let mut line = vec![b'x'; length];
                line.push(b'\n');
                rotator.write(&line);
            }
            for (_, bytes) in files(dir.path()) {
                prop_assert!(bytes.is_empty() || bytes.ends_with(b"\n"));
            }
        }
    }
}
