//! What the templates of a running task were rendered from, and what the task knows of them: for the next agent.

use std::io;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::host::beneath::{self, FileRights};
use crate::jobspec::interpolate::Resolver;
use crate::model::id::{AllocId, TaskName};
use crate::runner::kept::datadir::DataDir;

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
    /// That text was written, and its `change_mode` has not acted yet.
    pub is_owed: bool,
}

impl TemplateRecord {
    /// `None`: there is nothing to watch.
    pub fn load(data_dir: &DataDir, alloc: &AllocId, task: &TaskName) -> Option<TemplateRecord> {
        let bytes = beneath::read(&data_dir.alloc(alloc), &[&name(task)], LARGEST).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
    pub fn save(&self, data_dir: &DataDir, alloc: &AllocId, task: &TaskName) -> io::Result<()> {
        let bytes = serde_json::to_vec(self)?;
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
