//! Packages: a tarball, a .deb, an .rpm and an image, with checksums and a list of what is in the binary.
//!
//! ```text
//! build      the binary, linked so that it runs from glibc 2.17 on
//! tree       the files of a package, as they lie below `/`
//! deb, rpm   that tree with the scripts of deploy/package, by dpkg-deb and rpmbuild
//! tarball    the same files for those who have neither
//! image      the binary on Debian's C library, for `docker load` and registries
//! sbom       the crates in it, as CycloneDX
//! ```
//! All of it goes to `target/package`.

mod build;
mod deb;
mod image;
mod rpm;
mod sbom;
mod tarball;
#[cfg(test)]
mod testing;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, parts, run};

/// That of `Cargo.toml`, which is the one place that has it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, PartialEq)]
pub struct Options {
    /// Not built, but this one.
    binary: Option<PathBuf>,
    /// Only an image of it, with the C library below the first directory, into the second: as tests run it.
    image: Option<(PathBuf, PathBuf)>,
}

impl Options {
    pub fn parse(words: &[&str]) -> Result<Options> {
        match words {
            [] => Ok(Options { binary: None, image: None }),
            ["--binary", path] => Ok(Options { binary: Some(path.into()), image: None }),
            ["--binary", path, "--image", base, to] => {
                Ok(Options { binary: Some(path.into()), image: Some((base.into(), to.into())) })
            }
            _ => Err("say nothing, or which binary: cargo xtask package --binary PATH [--image BASE TO]".into()),
        }
    }
}

pub fn run(options: &Options) -> Result<bool> {
    let root = crate::root();
    if let (Some(binary), Some((base, to))) = (&options.binary, &options.image) {
        let work = tempfile::tempdir_in(to)?;
        println!("{}", image::make(&PackageSources::new(&root, binary), base, false, work.path(), to)?.display());
        return Ok(true);
    }
    let parts = parts::get(&root, parts::Purpose::Package)?;
    if let Some(missing) = parts.first_missing() {
        return Err(format!("the part {} is missing: {}", missing.part, missing.why).into());
    }
    let binary = match &options.binary {
        Some(binary) => fs::canonicalize(binary).map_err(|e| format!("{}: {e}", binary.display()))?,
        None => build::dist(&root, &parts)?,
    };
    let needed = build::newest_glibc(&fs::read(&binary)?);
    if options.binary.is_none() && needed > build::GLIBC {
        return Err(format!("the binary needs glibc {needed:?}, and {:?} is promised", build::GLIBC).into());
    }
    // A checkout knows its commit: reports about a package are useless without it.
    if options.binary.is_none() && root.join(".git").exists() {
        names_its_commit(&run::output(Command::new(&binary).arg("version"))?)?;
    }
    let out = crate::cargo::target_dir(&root).join("package");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;
    let work = tempfile::tempdir_in(&out)?;
    let sources = PackageSources::new(&root, &binary);
    deb::make(&sources, (VERSION, "xz"), work.path(), &out)?;
    rpm::make(&sources, &parts, work.path(), &out)?;
    tarball::make(&sources, work.path(), &out)?;
    image::make(&sources, &parts.root("image-base"), true, work.path(), &out)?;
    fs::write(out.join(format!("allostat-{VERSION}.cdx.json")), sbom::of(&root)?)?;
    drop(work);
    checksums(&out)?;
    println!("{}", table(&out)?);
    println!("needs glibc {}.{} or newer", needed.0, needed.1);
    Ok(true)
}

/// What `allostat version` of a package prints. Errors: another version, or no commit.
fn names_its_commit(printed: &str) -> Result<()> {
    let value = |name: &str| printed.lines().find_map(|line| Some(line.trim().strip_prefix(name)?.trim()));
    let is_commit = |text: &str| text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_right = value("version ") == Some(VERSION) && value("commit ").is_some_and(is_commit);
    match is_right && !printed.contains("unknown") {
        true => Ok(()),
        false => Err(format!("`allostat version` of the package is not {VERSION} with its commit:\n{printed}").into()),
    }
}

/// A .deb of any binary and version, for the tests of its scripts: not compressed.
pub fn deb(binary: &Path, version: &str, to: &Path) -> Result<PathBuf> {
    let work = tempfile::tempdir_in(to)?;
    deb::make(&PackageSources::new(&crate::root(), binary), (version, "none"), work.path(), to)
}

/// What packages are made of.
#[derive(Debug)]
struct PackageSources<'a> {
    root: &'a Path,
    binary: &'a Path,
    /// Seconds since 1970 of the commit. Every file has it, so that the same commit gives the same packages.
    commit_time: String,
}

impl<'a> PackageSources<'a> {
    fn new(root: &'a Path, binary: &'a Path) -> PackageSources<'a> {
        let time = run::output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root));
        // Sources without their repository.
        let commit_time = time.map_or_else(|_| "1577836800".to_owned(), |time| time.trim().to_owned());
        PackageSources { root, binary, commit_time }
    }

    /// A tar whose bytes follow from `what` in `dir` alone.
    fn tar(&self, dir: &Path, what: &str, compress: bool, to: &Path) -> Result<()> {
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
        tar.arg(format!("--mtime=@{}", self.commit_time));
        if compress {
            tar.arg("--use-compress-program=gzip -9n");
        }
        run::output(tar.arg("--directory").arg(dir).arg("--create").arg("--file").arg(to).arg("--").arg(what))?;
        Ok(())
    }
}

fn sha256(file: &Path) -> Result<String> {
    let printed = run::output(Command::new("sha256sum").arg("--").arg(file))?;
    Ok(printed.split(' ').next().unwrap_or_default().to_owned())
}

fn files(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// For `sha256sum --check`.
fn checksums(dir: &Path) -> Result<()> {
    let mut text = String::new();
    for name in files(dir)? {
        text += &format!("{}  {name}\n", sha256(&dir.join(&name))?);
    }
    Ok(fs::write(dir.join("SHA256SUMS"), text)?)
}

fn table(dir: &Path) -> Result<String> {
    let mut text = format!("{}:", dir.display());
    for name in files(dir)? {
        text += &format!("\n  {:>9} KiB  {name}", fs::metadata(dir.join(&name))?.len().div_ceil(1024));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_can_be_named_and_other_words_are_refused() {
        assert_eq!(Options::parse(&[]).unwrap(), Options { binary: None, image: None });
        let named = Options::parse(&["--binary", "/x"]).unwrap();
        assert_eq!(named, Options { binary: Some("/x".into()), image: None });
        let image = Options::parse(&["--binary", "/x", "--image", "/base", "/to"]).unwrap();
        assert_eq!(image, Options { image: Some(("/base".into(), "/to".into())), ..named });
        assert!(Options::parse(&["--binary", "/x", "--image", "/base"]).is_err());
        assert!(Options::parse(&["--release"]).unwrap_err().to_string().contains("--binary"));
    }

    #[test]
    fn package_names_its_version_and_the_commit_of_its_build() {
        let printed = |version: &str, commit: &str| {
            format!("version   {version}\ncommit    {commit}\nbuild     release\nplatform  x86_64-linux\n")
        };
        names_its_commit(&printed(VERSION, &"0f".repeat(20))).unwrap();
        for (version, commit) in [(VERSION, "unknown"), (VERSION, ""), (VERSION, "0f3a"), ("0.0.0", &"0f".repeat(20))] {
            let refused = names_its_commit(&printed(version, commit)).unwrap_err().to_string();
            assert!(refused.contains("with its commit"), "{version} {commit}: {refused}");
        }
    }

    #[test]
    fn checksums_are_those_that_sha256sum_checks() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "abc").unwrap();
        checksums(dir.path()).unwrap();
        run::output(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(dir.path()))
            .unwrap();
    }
}
