//! Hooks under faults: an agent that dies before any of their changes, disks that fill up, and a host that boots again.

// Its helpers are test code too: a step that fails must end the test.
#![allow(clippy::unwrap_used)]

mod full_disk;
mod picture;
mod reboot;
mod steps;

use std::time::Duration;

use crate::common::patience;

fn limit() -> Duration {
    Duration::from_secs(60) * patience()
}

/// An archive of directories, files and a link.
fn archive() -> Vec<u8> {
    let mut tar = ::tar::Builder::new(Vec::new());
    let header = |kind, mode, size| {
        let mut header = ::tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(1_000_000_000);
        header
    };
    let text = b"deep\n";
    tar.append_data(&mut header(::tar::EntryType::Directory, 0o750, 0), "sub/deeper", &[][..]).unwrap();
    tar.append_data(&mut header(::tar::EntryType::Regular, 0o640, 5), "sub/deeper/file", &text[..]).unwrap();
    tar.append_link(&mut header(::tar::EntryType::Symlink, 0o777, 0), "sub/link", "deeper/file").unwrap();
    tar.append_data(&mut header(::tar::EntryType::Regular, 0o755, 5), "top", &text[..]).unwrap();
    tar.into_inner().unwrap()
}
