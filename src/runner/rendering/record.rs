//! What the templates of a running task were rendered from, and what the task knows of them: for the next agent.

use std::io;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::host::beneath::{self, FileRights};
use crate::jobspec::interpolate::Resolver;
use crate::model::id::{AllocId, TaskName};
use crate::model::units::Timestamp;
use crate::runner::persistence::datadir::DataDir;

/// Of the file: it has the environment of the task.
const LARGEST: usize = 16 << 20;

/// Written at the start of an attempt, and before and after each change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TemplateRecord {
    pub attempt: u32,
    /// As they were at the start: a template does not change because its environment would be another one now.
    pub values: Resolver,
    pub owner: Option<(u32, u32)>,
    /// In the order of the task's templates.
    pub states: Vec<TemplateState>,
}

/// What is known of one template of the attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateState {
    /// Whether anything that it reads can change.
    pub is_watched: bool,
    /// Of the last text that was written, or is about to be.
    pub digest: String,
    /// Its `change_mode` has to act: a text was written since it last did.
    pub is_owed: bool,
    /// Of the text that it last acted on: at the start of the task or since. Empty: of an earlier version.
    #[serde(default)]
    pub acted_on: String,
    /// That text may not be in its file: an agent died before it was written, or the disk failed.
    #[serde(default)]
    pub is_unwritten: bool,
    /// The time in that text: it is another text only if something else has changed.
    #[serde(default)]
    pub rendered_at: Timestamp,
}

impl TemplateState {
    /// No action follows a text that is not there yet.
    pub fn has_to_act(&self) -> bool {
        let is_other = !self.acted_on.is_empty() && self.acted_on != self.digest;
        (self.is_owed || is_other) && !self.is_unwritten
    }
    /// Nothing is owed any more but what is not written yet.
    pub fn acted(&mut self) {
        if !self.is_unwritten {
            self.is_owed = false;
            self.acted_on.clone_from(&self.digest);
        }
    }
}

impl TemplateRecord {
    /// `None`: there is nothing to watch. Errors: it cannot be read.
    pub fn load(data_dir: &DataDir, alloc: &AllocId, task: &TaskName) -> io::Result<Option<TemplateRecord>> {
        match beneath::read(&data_dir.alloc(alloc), &[&name(task)], LARGEST) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
    /// Errors: those of [`beneath::write`]; `FileTooLarge`: it could not be loaded again.
    pub fn save(&self, data_dir: &DataDir, alloc: &AllocId, task: &TaskName) -> io::Result<()> {
        let bytes = serde_json::to_vec(self)?;
        if bytes.len() > LARGEST {
            let message = format!("it has more than {} MiB", LARGEST >> 20);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        // It has the environment of the task, which may have secrets.
        let rights = FileRights { mode: 0o600, owner: None };
        beneath::write(&data_dir.alloc(alloc), &[&name(task)], &bytes, rights)
    }
    pub fn remove(data_dir: &DataDir, alloc: &AllocId, task: &TaskName) {
        // Fails if there is none. One of an earlier attempt is not used either.
        let _ = std::fs::remove_file(data_dir.alloc(alloc).join(name(task)));
    }
}

fn name(task: &TaskName) -> String {
    format!(".templates-{task}")
}

/// Of a rendered text, in hexadecimal digits.
pub fn digest_of(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_record_too_large_is_not_saved_and_a_malformed_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::open(dir.path()).unwrap();
        let (alloc, task) = (AllocId::random(), TaskName::new("t"));
        std::fs::create_dir_all(data_dir.alloc(&alloc)).unwrap();
        assert!(TemplateRecord::load(&data_dir, &alloc, &task).unwrap().is_none());
        let of = |digest: String| TemplateRecord {
            attempt: 1,
            values: serde_json::from_str(r#"{"env":{},"meta":{},"attributes":{}}"#).unwrap(),
            owner: None,
            states: vec![TemplateState { digest, ..TemplateState::default() }],
        };
        of("a".to_owned()).save(&data_dir, &alloc, &task).unwrap();
        let refused = of("x".repeat(LARGEST)).save(&data_dir, &alloc, &task).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        let retained = TemplateRecord::load(&data_dir, &alloc, &task).unwrap().unwrap();
        assert_eq!(retained.states[0].digest, "a");
        std::fs::write(data_dir.alloc(&alloc).join(name(&task)), "{").unwrap();
        assert!(TemplateRecord::load(&data_dir, &alloc, &task).is_err());
    }
}
