//! Where the library is, and how a test puts it where a program searches for it.
//!
//! Each place has a copy of its own, with its scenario beside it: what is loaded from two places are two libraries, so
//! that tests of one process do not see each other's devices, and no environment is needed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::scenario::Scenario;

/// Programs search for it by this name.
pub const NAME: &str = "libnvidia-ml.so.1";

/// The built library. `FAKE_NVML_LIBRARY` names it where there is no build directory; else it lies where cargo puts it,
/// beside the binary of a test or one above.
///
/// Errors: it is in no such place.
pub fn library() -> io::Result<PathBuf> {
    if let Some(path) = std::env::var_os("FAKE_NVML_LIBRARY") {
        return Ok(path.into());
    }
    let own = std::env::current_exe()?;
    let places = own.ancestors().skip(1).take(3).flat_map(|dir| [dir.join("deps"), dir.to_owned()]);
    let mut files = places.map(|dir| dir.join("libfake_nvml.so"));
    files
        .find(|file| file.exists())
        .ok_or_else(|| io::Error::other("libfake_nvml.so is not built: cargo build -p fake-nvml"))
}

/// A library at its place, with the scenario that it plays.
#[derive(Debug, Clone)]
pub struct Installed {
    library: PathBuf,
}

/// Puts the library as [`NAME`] into `directory`, and its scenario beside it.
pub fn install(directory: &Path, scenario: &Scenario) -> io::Result<Installed> {
    install_without(directory, scenario, &[])
}

/// The same, but these functions are not in it: an old driver's library.
///
/// Errors: it has no such function.
pub fn install_without(directory: &Path, scenario: &Scenario, functions: &[&str]) -> io::Result<Installed> {
    let mut image = fs::read(library()?)?;
    for function in functions {
        hide(&mut image, function)?;
    }
    let installed = Installed { library: directory.join(NAME) };
    scenario.write(&installed.scenario())?;
    // A file of its own each time: a library that is loaded must not change below the process that runs it.
    let next = directory.join("next.so");
    fs::write(&next, image)?;
    fs::rename(&next, &installed.library)?;
    Ok(installed)
}

/// Changes the name in the table of names, where the loader compares it: no symbol is found by the old name any more.
fn hide(image: &mut [u8], function: &str) -> io::Result<()> {
    let entry = format!("\0{function}\0").into_bytes();
    let mut found = false;
    for at in 0..image.len().saturating_sub(entry.len()) {
        if image[at..].starts_with(&entry) {
            image[at + 1] = b'_';
            found = true;
        }
    }
    if found { Ok(()) } else { Err(io::Error::other(format!("the fake NVML has no function {function}"))) }
}

impl Installed {
    /// What is to be loaded.
    pub fn library(&self) -> &Path {
        &self.library
    }
    pub fn directory(&self) -> &Path {
        self.library.parent().unwrap_or(Path::new("."))
    }
    pub fn scenario(&self) -> PathBuf {
        scenario_path(&self.library)
    }
    /// From now on it plays another one.
    pub fn play(&self, scenario: &Scenario) -> io::Result<()> {
        scenario.write(&self.scenario())
    }
    /// Changes what it plays.
    pub fn edit(&self, change: impl FnOnce(&mut Scenario)) -> io::Result<()> {
        let text = fs::read_to_string(self.scenario())?;
        let mut scenario = Scenario::parse(&text).map_err(io::Error::other)?;
        change(&mut scenario);
        self.play(&scenario)
    }
    /// The calls noted so far, in their order: the function, and the position of the device.
    pub fn calls(&self) -> io::Result<Vec<(String, Option<usize>)>> {
        calls(&calls_path(&self.scenario()))
    }
    pub fn called(&self, function: &str) -> io::Result<usize> {
        Ok(self.calls()?.iter().filter(|(name, _)| name == function).count())
    }
}

/// The calls noted in a file; none where there was no call.
pub fn calls(path: &Path) -> io::Result<Vec<(String, Option<usize>)>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        other => other?,
    };
    let parts = text.lines().filter_map(|line| line.split_once('\t'));
    Ok(parts.map(|(function, device)| (function.to_owned(), device.parse().ok())).collect())
}

pub(crate) fn scenario_path(library: &Path) -> PathBuf {
    library.with_file_name("fake-nvml.json")
}

pub(crate) fn calls_path(scenario: &Path) -> PathBuf {
    let mut name = OsString::from(scenario);
    name.push(".calls");
    name.into()
}
