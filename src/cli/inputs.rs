//! Variables of job files: `--var`, `--var-file`, `NOMAD_VAR_*`, and the files that a job file reads, with the caller's
//! rights.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use super::exit::{CliError, CliExit};
use crate::host::untrusted;
use crate::jobspec::evaluate::basis::ExternalInputs;
use crate::jobspec::evaluate::recorded::RecordedInputs;
use crate::jobspec::{GivenValue, GivenVariables, variables_of};

/// `file()` reads no larger one.
const LARGEST_FILE: usize = 256 << 10;
/// `fileset()` finds no more.
const MOST_FILES: usize = 1_000;
const PREFIX: &str = "NOMAD_VAR_";

#[derive(Debug, Clone, Default, clap::Args)]
pub struct Variables {
    /// Set a variable of the job file; repeatable (-var works as well)
    #[arg(long = "var", value_name = "NAME=VALUE")]
    var: Vec<String>,
    /// Read variables from a file of NAME = VALUE lines, HCL or JSON; repeatable (-var-file works as well)
    #[arg(long = "var-file", value_name = "FILE")]
    var_file: Vec<PathBuf>,
}

impl Variables {
    /// The environment first, then files, then the command line: the last one counts.
    ///
    /// Errors: a file cannot be read or is wrong; a value without a name.
    pub fn given(&self) -> Result<GivenVariables, CliError> {
        let mut given = GivenVariables::default();
        for (name, value) in std::env::vars_os() {
            let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
            if let Some(variable) = name.strip_prefix(PREFIX) {
                let value = GivenValue { text: value.to_owned(), from: name.to_owned(), may_be_unused: true };
                given.0.push((variable.to_owned(), value));
            }
        }
        for path in &self.var_file {
            let name = path.display().to_string();
            let text = untrusted::read_to_string(path, LARGEST_FILE)
                .map_err(|e| CliError::new(CliExit::NotFound, format!("cannot read {name}: {e}")))?;
            let found = variables_of(&name, &text).map_err(|errors| {
                CliError::new(CliExit::InvalidFile, format!("the file of variables is refused\n\n{errors}"))
            })?;
            given.0.extend(found.0);
        }
        for (at, pair) in self.var.iter().enumerate() {
            // It may be a sensitive value whose name was forgotten: it is not shown.
            let (name, text) = pair.split_once('=').ok_or_else(|| {
                CliError::new(CliExit::Usage, format!("--var takes NAME=VALUE: number {} has no `=`", at + 1))
            })?;
            let value = GivenValue { text: text.to_owned(), from: "--var".to_owned(), may_be_unused: false };
            given.0.push((name.trim().to_owned(), value));
        }
        Ok(given)
    }
}

/// Reads files as the caller, relative to where the command runs, and records what it gave.
#[derive(Default)]
pub struct CallersFiles(RefCell<RecordedInputs>);

impl CallersFiles {
    pub fn recorded(self) -> RecordedInputs {
        self.0.into_inner()
    }
}

impl ExternalInputs for CallersFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        use base64::Engine as _;
        let bytes = untrusted::read(Path::new(path), LARGEST_FILE).map_err(|error| format!("{path}: {error}"))?;
        let encoded = base64::engine::general_purpose::STANDARD.encode(&bytes);
        self.0.borrow_mut().files.insert(path.to_owned(), encoded);
        Ok(bytes)
    }
    fn exists(&self, path: &str) -> Result<bool, String> {
        let is_there = Path::new(path).try_exists().map_err(|error| format!("{path}: {error}"))?;
        self.0.borrow_mut().exists.insert(path.to_owned(), is_there);
        Ok(is_there)
    }
    fn list(&self, directory: &str, pattern: &str) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        walk(Path::new(directory), "", pattern, &mut found).map_err(|error| format!("{directory}: {error}"))?;
        found.sort_unstable();
        let mut recorded = self.0.borrow_mut();
        recorded.lists.entry(directory.to_owned()).or_default().insert(pattern.to_owned(), found.clone());
        Ok(found)
    }
    fn directory(&self) -> Result<String, String> {
        let here = std::env::current_dir().map_err(|error| error.to_string())?;
        let here = here.into_os_string().into_string().map_err(|_| "its name is no UTF-8".to_owned())?;
        self.0.borrow_mut().directory = Some(here.clone());
        Ok(here)
    }
    fn uuid(&self) -> Result<String, String> {
        Ok(uuid::Uuid::new_v4().to_string())
    }
}

/// Files only; no link to a directory is followed.
fn walk(directory: &Path, below: &str, pattern: &str, found: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.file_type()?.is_dir() {
            if pattern.contains("**") || pattern.matches('/').count() > below.matches('/').count() {
                walk(&entry.path(), &path, pattern, found)?;
            }
        } else if fits(pattern, &path) {
            if found.len() == MOST_FILES {
                return Err(std::io::Error::other(format!("there are more than {MOST_FILES} files")));
            }
            found.push(path);
        }
    }
    Ok(())
}

/// `*` is any text without a slash, `**` any text, `?` one character.
fn fits(pattern: &str, text: &str) -> bool {
    if let Some(rest) = pattern.strip_prefix("**") {
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        return text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| fits(rest, &text[at..]));
    }
    if let Some(rest) = pattern.strip_prefix('*') {
        let end = text.find('/').unwrap_or(text.len());
        return text
            .char_indices()
            .map(|(at, _)| at)
            .chain([text.len()])
            .take_while(|at| *at <= end)
            .any(|at| fits(rest, &text[at..]));
    }
    let (mut pattern_chars, mut had) = (pattern.chars(), text.chars());
    match (pattern_chars.next(), had.next()) {
        (None, None) => true,
        (Some('?'), Some(c)) if c != '/' => fits(pattern_chars.as_str(), had.as_str()),
        (Some(a), Some(b)) if a == b => fits(pattern_chars.as_str(), had.as_str()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_shells_have_them() {
        for (pattern, text, does) in [
            ("*.tpl", "a.tpl", true),
            ("*.tpl", "d/a.tpl", false),
            ("**/*.tpl", "d/e/a.tpl", true),
            ("**/*.tpl", "a.tpl", true),
            ("d/?.x", "d/a.x", true),
            ("d/?.x", "d/ab.x", false),
            ("", "", true),
        ] {
            assert_eq!(fits(pattern, text), does, "{pattern} {text}");
        }
    }

    #[test]
    fn the_directory_of_the_command_is_recorded_where_a_path_depends_on_it() {
        let reading = CallersFiles::default();
        let here = std::env::current_dir().unwrap().display().to_string();
        assert_eq!(reading.directory(), Ok(here.clone()));
        let recorded = reading.recorded();
        let replay = crate::jobspec::evaluate::recorded::ReplayedInputs { recorded: &recorded };
        assert_eq!(replay.directory(), Ok(here));
        let sent = serde_json::to_string(&RecordedInputs::default()).unwrap();
        assert!(!sent.contains("directory"), "an older agent takes it: {sent}");
    }

    #[test]
    fn files_are_read_as_the_caller_and_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(path("a.tpl"), "hello").unwrap();
        let reading = CallersFiles::default();
        assert_eq!(reading.read(&path("a.tpl")).unwrap(), b"hello");
        assert!(reading.read(&path("none")).unwrap_err().contains("No such file"));
        assert!(reading.read("/dev/zero").unwrap_err().contains("regular file"));
        assert_eq!((reading.exists(&path("a.tpl")), reading.exists(&path("none"))), (Ok(true), Ok(false)));
        assert_eq!(reading.list(&path(""), "*.tpl").unwrap(), ["a.tpl"]);
        let recorded = reading.recorded();
        assert_eq!(recorded.files[&path("a.tpl")], "aGVsbG8=");
        let replay = crate::jobspec::evaluate::recorded::ReplayedInputs { recorded: &recorded };
        assert_eq!(replay.read(&path("a.tpl")).unwrap(), b"hello");
        assert!(replay.directory().is_err(), "no path of the file depended on it");
        assert!(replay.read("/etc/shadow").unwrap_err().contains("reads no files"));
    }
}
