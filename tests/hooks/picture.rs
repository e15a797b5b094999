//! What an alloc has on the disk, so that two of them can be compared.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// A line for each entry below a directory: path, kind and mode, owner, and content. What differs between two allocs of
/// one job is left out: identifiers, and what the agent records for itself.
pub fn picture(top: &Path, ids: &[&str]) -> Vec<String> {
    let (mut all, mut open) = (Vec::new(), vec![top.to_owned()]);
    while let Some(path) = open.pop() {
        let about = path.symlink_metadata().expect("it is there");
        if about.is_dir() {
            open.extend(std::fs::read_dir(&path).expect("a directory").map(|entry| entry.expect("an entry").path()));
        }
        let name = path.strip_prefix(top).expect("below").to_string_lossy().into_owned();
        let is_own = name.starts_with(".templates-") || name.starts_with("alloc/logs/");
        let content = if about.is_symlink() {
            format!("-> {}", path.read_link().expect("a link").display())
        } else if about.file_type().is_fifo() || is_own || !about.is_file() {
            String::new()
        } else {
            let text = String::from_utf8_lossy(&std::fs::read(&path).expect("a file")).into_owned();
            ids.iter().fold(text, |text, id| text.replace(id, "ID"))
        };
        all.push(format!("{name} {:o} {}:{} {content:?}", about.mode(), about.uid(), about.gid()));
    }
    all.sort();
    all
}
