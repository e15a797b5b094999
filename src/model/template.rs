//! The `template` stanzas of a task: files, and variables, in Go's template syntax.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One `template` stanza.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTemplate {
    /// Its text, or `source`, a file below the task's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// A path below the task's directory or the alloc's shared one; interpolated, as `source` is.
    pub destination: String,
    /// Mode of the file.
    pub perms: u32,
    /// `None`: the task's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// What it renders are variables of the task as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub env: bool,
    /// `None`: `{{` and `}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_delimiter: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right_delimiter: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub error_on_missing_key: bool,
    /// What follows when its text changes while the task runs. Earlier agents did not record it.
    #[serde(default, skip_serializing_if = "TemplateChange::is_noop")]
    pub change: TemplateChange,
    /// What follows a change is delayed by a random time up to this.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub splay: Duration,
    /// When a change is written; `None`: at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<TemplateWait>,
    /// It is not rendered again while the task runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
}

/// What follows when the text of a template has changed: `change_mode`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TemplateChange {
    /// The file changes, and nothing else.
    #[default]
    Noop,
    Restart,
    /// The name of the signal, as `SIGHUP`.
    Signal(String),
    Script(ChangeScript),
}

impl TemplateChange {
    pub fn is_noop(&self) -> bool {
        *self == TemplateChange::Noop
    }
}

/// A command that runs in the task. Its texts are interpolated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeScript {
    pub command: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    pub timeout: Duration,
    /// A failure ends the attempt, as a failure of the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_on_error: bool,
    /// It runs after each start of the task as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub run_on_first_render: bool,
}

/// A change is written when nothing has changed for `min`, and after `max` in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateWait {
    pub min: Duration,
    pub max: Duration,
}

impl TaskTemplate {
    /// Its script, if that runs after each start.
    pub fn first_script(&self) -> Option<&ChangeScript> {
        match &self.change {
            TemplateChange::Script(script) if script.run_on_first_render => Some(script),
            TemplateChange::Noop | TemplateChange::Restart | TemplateChange::Signal(_) | TemplateChange::Script(_) => {
                None
            }
        }
    }
}
