//! Makes unpacked packages usable where they lie.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, run};

const TRIPLE: &str = "x86_64-linux-gnu";

/// The modules that a guest loads for its disk and the quotas on it, in order; what is built into a kernel is not among
/// its files.
pub const GUEST_MODULES: &[&str] = &[
    "virtio",
    "virtio_ring",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "quota_tree",
    "quota_v2",
];

/// `bin/<program>`: runs it with the libraries, the loader and the data of its own root.
pub fn write_script(root: &Path, program: &str, bin: &Path) -> Result<()> {
    let places = ["usr/bin", "usr/sbin", "bin", "sbin"];
    let path = places.iter().map(|place| root.join(place).join(program)).find(|path| path.exists());
    let path = path.ok_or_else(|| format!("the packages have no {program}"))?;
    let script = bin.join(program);
    if script.symlink_metadata().is_ok() {
        fs::remove_file(&script)?;
    }
    let libraries: Vec<PathBuf> =
        [format!("lib/{TRIPLE}"), format!("usr/lib/{TRIPLE}"), "lib".into(), "usr/lib".into()]
            .iter()
            .map(|dir| root.join(dir))
            .filter(|dir| dir.exists())
            .collect();
    // Alone and static: busybox, which looks at the name it is called by.
    if libraries.is_empty() {
        return Ok(symlink(path, script)?);
    }
    let libraries: Vec<String> = libraries.iter().map(|dir| dir.display().to_string()).collect();
    let libraries = libraries.join(":");
    let path = path.display();
    let (before, after) = surroundings(root, program);
    let run = match loader(root) {
        Some(loader) => {
            format!("exec '{}' --library-path '{libraries}' --argv0 '{program}' '{path}' {after}", loader.display())
        }
        // It finds its companions by the path, and they their libraries.
        None => format!(
            "export LD_LIBRARY_PATH='{libraries}' PATH='{root}/usr/sbin:{root}/usr/bin':\"$PATH\"\nexec '{path}' {after}",
            root = root.display()
        ),
    };
    let text = format!(
        "#!/bin/sh\n# Written by `cargo xtask`: runs {program} out of its unpacked packages.\n{before}{run}\"$@\"\n"
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn loader(root: &Path) -> Option<PathBuf> {
    let places = ["lib", "usr/lib"];
    places.iter().map(|p| root.join(p).join(TRIPLE).join("ld-linux-x86-64.so.2")).find(|path| path.exists())
}

/// What a program needs because it does not lie where it was built for: lines before it, arguments after it.
fn surroundings(root: &Path, program: &str) -> (String, String) {
    let root = root.display();
    match program {
        "qemu-system-x86_64" => (
            format!("export QEMU_MODULE_DIR='{root}/usr/lib/{TRIPLE}/qemu'\n"),
            ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"]
                .iter()
                .fold(String::new(), |text, dir| text + &format!("-L '{root}/{dir}' ")),
        ),
        "python3" => (format!("export PYTHONHOME='{root}/usr' PYTHONDONTWRITEBYTECODE=1\n"), String::new()),
        "openssl" => (format!("export OPENSSL_CONF='{root}/etc/ssl/openssl.cnf'\n"), String::new()),
        "iptables-nft" | "ip6tables-nft" => {
            (format!("export XTABLES_LIBDIR='{root}/usr/lib/{TRIPLE}/xtables'\n"), String::new())
        }
        "mke2fs" => (format!("export MKE2FS_CONFIG='{root}/etc/mke2fs.conf'\n"), String::new()),
        _ => (String::new(), String::new()),
    }
}

/// A kernel package holds some thousand modules: what stays is the image, its configuration and [`GUEST_MODULES`],
/// uncompressed, in `modules/`.
pub fn keep_only_what_a_guest_needs(root: &Path, busybox: &Path) -> Result<()> {
    let modules = root.join("modules");
    fs::create_dir_all(&modules)?;
    let mut found = Vec::new();
    files(&root.join("lib/modules"), &mut found);
    files(&root.join("usr/lib/modules"), &mut found);
    for file in found {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some((stem, ending)) = name.split_once(".ko") else { continue };
        let Some(expected) = GUEST_MODULES.iter().find(|m| stem.replace('-', "_") == **m) else { continue };
        let copy = modules.join(format!("{expected}.ko{ending}"));
        fs::copy(&file, &copy)?;
        if ending == ".xz" {
            run::output(Command::new(busybox).arg("unxz").arg("-f").arg(&copy))?;
        }
    }
    for tree in ["lib", "usr"] {
        let tree = root.join(tree);
        if tree.exists() {
            fs::remove_dir_all(tree)?;
        }
    }
    Ok(())
}

/// Makes unpacked packages the root of a machine: `/bin`, `/lib` and others become links into `/usr`, which is what the
/// packages expect, and what is only for people or for installing goes.
pub fn merge_usr(root: &Path) -> Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        let (top, below) = (root.join(name), root.join("usr").join(name));
        fs::create_dir_all(&below)?;
        if top.exists() {
            run::output(Command::new("cp").arg("-a").arg("--").arg(top.join(".")).arg(&below))?;
            fs::remove_dir_all(&top)?;
        }
        symlink(Path::new("usr").join(name), &top)?;
    }
    let share = ["doc", "man", "locale", "perl", "info", "lintian", "i18n"].map(|dir| format!("usr/share/{dir}"));
    let lib = ["perl", "perl-base", "gconv"].map(|dir| format!("usr/lib/{TRIPLE}/{dir}"));
    for dir in share.into_iter().chain(lib).chain(["usr/lib/udev/hwdb.d".to_owned()]) {
        let dir = root.join(dir);
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
    }
    Ok(())
}

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), out),
            Ok(kind) if kind.is_file() => out.push(entry.path()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacked_kernel_retains_only_disk_modules() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("lib/modules/6.1/kernel/drivers");
        fs::create_dir_all(&kernel).unwrap();
        fs::create_dir_all(dir.path().join("boot")).unwrap();
        for file in ["virtio_blk.ko", "nothing.ko"] {
            fs::write(kernel.join(file), file).unwrap();
        }
        keep_only_what_a_guest_needs(dir.path(), Path::new("busybox")).unwrap();
        let retained = fs::read_dir(dir.path().join("modules")).unwrap().count();
        assert_eq!(retained, 1);
        assert!(dir.path().join("modules/virtio_blk.ko").exists() && !dir.path().join("lib").exists());
    }

    #[test]
    fn a_machines_root_has_its_programs_below_usr_and_finds_them_at_both_places() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["bin/a", "usr/bin/b", "lib/systemd/c", "usr/share/doc/d"] {
            fs::create_dir_all(dir.path().join(file).parent().unwrap()).unwrap();
            fs::write(dir.path().join(file), "").unwrap();
        }
        merge_usr(dir.path()).unwrap();
        for file in ["bin/a", "usr/bin/a", "bin/b", "usr/lib/systemd/c", "lib/systemd/c", "lib64"] {
            assert!(dir.path().join(file).exists(), "{file}");
        }
        assert!(!dir.path().join("usr/share/doc").exists());
    }

    #[test]
    fn a_script_runs_its_program_by_its_own_loader() {
        let dir = tempfile::tempdir().unwrap();
        let (root, bin) = (dir.path().join("root"), dir.path().join("bin"));
        for path in ["root/usr/bin", "bin", "root/lib/x86_64-linux-gnu"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        fs::write(root.join("usr/bin/tool"), "").unwrap();
        fs::write(root.join("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"), "").unwrap();
        write_script(&root, "tool", &bin).unwrap();
        let text = fs::read_to_string(bin.join("tool")).unwrap();
        assert!(text.contains("ld-linux-x86-64.so.2' --library-path '") && text.ends_with("/usr/bin/tool' \"$@\"\n"));
        assert!(write_script(&root, "absent", &bin).is_err());
    }
}
