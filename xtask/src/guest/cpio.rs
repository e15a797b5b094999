//! Writes a cpio archive in the format `newc`, which the kernel unpacks as its first root.
//! Source: Documentation/driver-api/early-userspace/buffer-format.rst.

#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    pub fn dir(&mut self, path: &str) {
        self.entry(path, 0o040_755, &[]);
    }
    pub fn file(&mut self, path: &str, mode: u32, contents: &[u8]) {
        self.entry(path, 0o100_000 | mode, contents);
    }
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, contents: &[u8]) {
        self.inode += 1;
        let size = u32::try_from(contents.len()).expect("a file of the first root must be below 4 GiB");
        let name = u32::try_from(path.len() + 1).expect("a path must be short");
        self.bytes.extend_from_slice(b"070701");
        // ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
        for field in [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name, 0] {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_aligned_and_ends_with_its_trailer() {
        let mut archive = Archive::default();
        archive.dir("bin");
        archive.file("bin/x", 0o755, b"abc");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.starts_with(b"07070100000001000041ed"));
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("bin/x\0") && text.contains("000081ed") && text.contains("TRAILER!!!"));
    }
}
