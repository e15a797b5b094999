//! Values that the user who submits a job file gives its variables.

use serde::{Deserialize, Serialize};

/// Values for variables, the most important last: each as text, and where it was given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GivenVariables(pub Vec<(String, GivenValue)>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenValue {
    /// A string as it is, anything else as an HCL expression.
    pub text: String,
    /// `--var`, `NOMAD_VAR_x`, or the name of a file.
    pub from: String,
    /// Without a variable of that name it is no mistake: one file of variables may serve many jobs.
    pub may_be_unused: bool,
}
