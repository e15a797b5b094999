//! The program of a task and its limits: the fields of `config` that all of these drivers have.

use super::limits::LimitsConfig;
use crate::model::job::Task;
use crate::runner::drivers::DriverError;
use crate::runner::drivers::fields::ConfigFields;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramConfig {
    pub command: String,
    pub args: Vec<String>,
    pub work_dir: Option<String>,
    pub limits: LimitsConfig,
}

impl ProgramConfig {
    /// `fields`: the driver has taken its own fields already. Pure. Errors: every field that is unknown, missing, of
    /// the wrong type or impossible.
    pub fn of(mut fields: ConfigFields, task: &Task) -> Result<ProgramConfig, DriverError> {
        let work = ProgramConfig {
            command: fields.needed_text("command", "/path/to/program"),
            args: fields.texts("args"),
            work_dir: fields.text("work_dir"),
            limits: LimitsConfig::of(&mut fields, task),
        };
        fields.done()?;
        Ok(work)
    }
}
