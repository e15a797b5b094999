//! The image of pause containers: one static program of some hundred bytes, imported into the engine, never pulled.
//!
//! The program opens `/ns`, enters that network namespace and sleeps. On a failure it exits with the errno. Its machine
//! code is here, because no other static program can be expected on a host.

use bytes::Bytes;

/// The image in the engine. The tag increases with the program.
pub const REPOSITORY: &str = "allostat/pause";
pub const TAG: &str = "1";
/// The program in the image, and the namespace that it enters.
pub const PROGRAM: &str = "/pause";
pub const NAMESPACE: &str = "/ns";

/// ```text
///       lea rdi, [rip + path];  xor esi, esi;  mov eax, 2 (open);  syscall;  test eax, eax;  js fail
///       mov edi, eax;  mov esi, CLONE_NEWNET;  mov eax, 308 (setns);  syscall;  test eax, eax;  js fail
/// wait: mov eax, 34 (pause);  syscall;  jmp wait
/// fail: neg eax;  mov edi, eax;  mov eax, 60 (exit);  syscall
/// path: "/ns"
/// ```
#[cfg(target_arch = "x86_64")]
const CODE: Option<(u16, &[u8])> = Some((
    62,
    &[
        0x48, 0x8d, 0x3d, 0x33, 0x00, 0x00, 0x00, 0x31, 0xf6, 0xb8, 0x02, 0x00, 0x00, 0x00, 0x0f, 0x05, 0x85, 0xc0,
        0x78, 0x1b, 0x89, 0xc7, 0xbe, 0x00, 0x00, 0x00, 0x40, 0xb8, 0x34, 0x01, 0x00, 0x00, 0x0f, 0x05, 0x85, 0xc0,
        0x78, 0x09, 0xb8, 0x22, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xeb, 0xf7, 0xf7, 0xd8, 0x89, 0xc7, 0xb8, 0x3c, 0x00,
        0x00, 0x00, 0x0f, 0x05, b'/', b'n', b's', 0x00,
    ],
));

/// ```text
///       mov x0, AT_FDCWD;  adr x1, path;  mov x2, 0;  mov x3, 0;  mov x8, 56 (openat);  svc 0;  tbnz w0, 31, fail
///       mov x1, CLONE_NEWNET;  mov x8, 268 (setns);  svc 0;  tbnz w0, 31, fail
/// wait: mov x0..x4, 0;  mov x8, 73 (ppoll);  svc 0;  b wait
/// fail: neg w0, w0;  mov x8, 93 (exit);  svc 0
/// path: "/ns"
/// ```
#[cfg(target_arch = "aarch64")]
const CODE: Option<(u16, &[u8])> = Some((
    183,
    &[
        0x60, 0x0c, 0x80, 0x92, 0xa1, 0x02, 0x00, 0x10, 0x02, 0x00, 0x80, 0xd2, 0x03, 0x00, 0x80, 0xd2, 0x08, 0x07,
        0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4, 0xa0, 0x01, 0xf8, 0x37, 0x01, 0x00, 0xa8, 0xd2, 0x88, 0x21, 0x80, 0xd2,
        0x01, 0x00, 0x00, 0xd4, 0x20, 0x01, 0xf8, 0x37, 0x00, 0x00, 0x80, 0xd2, 0x01, 0x00, 0x80, 0xd2, 0x02, 0x00,
        0x80, 0xd2, 0x03, 0x00, 0x80, 0xd2, 0x04, 0x00, 0x80, 0xd2, 0x28, 0x09, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4,
        0xf9, 0xff, 0xff, 0x17, 0xe0, 0x03, 0x00, 0x4b, 0xa8, 0x0b, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4, b'/', b'n',
        b's', 0x00,
    ],
));

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const CODE: Option<(u16, &[u8])> = None;

/// The program as an ELF file with one segment. `None`: not for this processor. Source: elf(5).
pub fn program() -> Option<Vec<u8>> {
    const BASE: u64 = 0x0040_0000;
    const HEADERS: u64 = 64 + 56;
    let (machine, code) = CODE?;
    let size = HEADERS + u64::try_from(code.len()).ok()?;
    let mut file = Vec::new();
    // ELFCLASS64, ELFDATA2LSB, EV_CURRENT, and padding.
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // ET_EXEC, the machine, EV_CURRENT.
    file.extend([2u16, machine].into_iter().flat_map(u16::to_le_bytes));
    file.extend(1u32.to_le_bytes());
    // The entry, the program headers, and no section headers; no flags.
    file.extend([BASE + HEADERS, 64, 0].into_iter().flat_map(u64::to_le_bytes));
    file.extend(0u32.to_le_bytes());
    // Sizes of the headers, and their number.
    file.extend([64u16, 56, 1, 0, 0, 0].into_iter().flat_map(u16::to_le_bytes));
    // PT_LOAD, PF_R | PF_X, all of the file.
    file.extend([1u32, 5].into_iter().flat_map(u32::to_le_bytes));
    file.extend([0, BASE, BASE, size, size, 0x1000].into_iter().flat_map(u64::to_le_bytes));
    file.extend_from_slice(code);
    Some(file)
}

/// An archive with the program, as engines import it. Source: tar(5), "POSIX ustar Archives".
pub fn archive() -> Option<Bytes> {
    const BLOCK: usize = 512;
    let program = program()?;
    let mut header = [0u8; BLOCK];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, PROGRAM.trim_start_matches('/').as_bytes());
    put(100, b"0000555\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", program.len()).as_bytes());
    put(136, b"00000000000\0");
    // The checksum is computed with spaces in its field.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut archive = header.to_vec();
    archive.extend_from_slice(&program);
    archive.resize(archive.len().next_multiple_of(BLOCK) + 2 * BLOCK, 0);
    Some(archive.into())
}

/// The digest of the layer that engines create from the archive: `sha256:...`. Source: OCI image specification,
/// "DiffID".
pub fn layer(archive: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, archive);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    /// Without the namespace file it exits with ENOENT: so it is a program for this processor, and opens that path.
    #[test]
    fn program_without_its_namespace_ends_with_the_number_of_the_error() {
        let Some(program) = program() else { return };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pause");
        std::fs::write(&path, program).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!std::path::Path::new(NAMESPACE).exists());
        let ended = Command::new(&path).status().unwrap();
        assert_eq!(ended.code(), Some(rustix::io::Errno::NOENT.raw_os_error()), "{ended}");
    }

    #[test]
    fn archive_is_one_executable_file() {
        let Some(archive) = archive() else { return };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar");
        std::fs::write(&path, &archive).unwrap();
        let listed = Command::new("tar").arg("-tvf").arg(&path).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.starts_with("-r-xr-xr-x") && listed.ends_with(" pause\n"), "{listed}");
    }
}
