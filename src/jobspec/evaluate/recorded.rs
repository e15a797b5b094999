//! What a command read while it evaluated a job file, for an agent that evaluates it again and reads nothing itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::basis::ExternalInputs;
use super::inputs::GivenVariables;

/// A job file with everything that its evaluation needs: the body of `POST /v1/jobs?form=inputs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WithInputs {
    /// The job file itself.
    pub source: String,
    #[serde(default)]
    pub variables: GivenVariables,
    #[serde(default)]
    pub recorded: RecordedInputs,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedInputs {
    /// By path, in base64.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Whether there is such a file.
    #[serde(default)]
    pub exists: BTreeMap<String, bool>,
    /// By directory, then by pattern.
    #[serde(default)]
    pub lists: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    /// Where the command ran, if a path depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl RecordedInputs {
    pub fn is_empty(&self) -> bool {
        *self == RecordedInputs::default()
    }
}

/// Answers with what was recorded.
pub struct ReplayedInputs<'a> {
    pub recorded: &'a RecordedInputs,
}

impl ExternalInputs for ReplayedInputs<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        use base64::Engine as _;
        let text = self.recorded.files.get(path).ok_or_else(|| unread(path))?;
        let decoded = base64::engine::general_purpose::STANDARD.decode(text);
        decoded.map_err(|_| format!("{path}: its content came damaged"))
    }
    fn exists(&self, path: &str) -> Result<bool, String> {
        self.recorded.exists.get(path).copied().ok_or_else(|| unread(path))
    }
    fn list(&self, directory: &str, pattern: &str) -> Result<Vec<String>, String> {
        let found = self.recorded.lists.get(directory).and_then(|of| of.get(pattern));
        found.cloned().ok_or_else(|| unread(directory))
    }
    fn directory(&self) -> Result<String, String> {
        self.recorded.directory.clone().ok_or_else(|| unread("the directory of the command"))
    }
    fn uuid(&self) -> Result<String, String> {
        Ok(uuid::Uuid::new_v4().to_string())
    }
}

fn unread(path: &str) -> String {
    format!("{path}: the agent reads no files: submit it with `allostat run`, which reads them as you")
}
