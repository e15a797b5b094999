//! The `config` of a task of the mock driver.

use std::time::Duration;

use super::faults::Faults;
use crate::model::job::Task;
use crate::model::task::ExitStatus;
use crate::runner::drivers::DriverError;
use crate::runner::drivers::fields::{ConfigFields, error};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub run_for: Option<Duration>,
    pub exit: ExitStatus,
    pub start_error: Option<String>,
    pub start_error_recoverable: bool,
    pub start_block_for: Duration,
    pub events: Vec<String>,
    pub kill_after: Duration,
    pub ignore_signals: bool,
    pub memory_samples: Vec<u64>,
    pub cpu_percent: Option<u64>,
    pub faults: Faults,
}

impl Config {
    /// The fields, for the documentation.
    pub const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("run_for", "how long it runs; absent: until it is stopped"),
        ("exit_code, exit_signal", "its exit code or signal then; absent: exit code 0"),
        ("start_error, start_error_recoverable", "the error of its start; whether a retry may help"),
        ("start_block_for", "how long its start takes"),
        ("events", "messages of the driver during the start: one event each"),
        ("kill_after", "how long it continues after a signal that ends it"),
        ("ignore_signals", "true: only SIGKILL ends it"),
        ("memory_samples", "bytes in use, one value per second; the last one stays; absent: not measured"),
        ("cpu_percent", "percent of one core; absent: not measured"),
        (
            "exit_err_msg, signal_error, stdout_string, stdout_repeat, stdout_repeat_duration",
            "as in Nomad's `mock_driver`; without effect",
        ),
        ("faults", "how the driver misbehaves: calls and faults as below"),
    ];

    pub fn of(task: &Task) -> Result<Config, DriverError> {
        let mut fields = ConfigFields::new(&task.config);
        let exit_code = small(&mut fields, "exit_code");
        let exit_signal = small(&mut fields, "exit_signal");
        if exit_code.is_some() && exit_signal.is_some() {
            fields.refuse(error("exit_signal", "excludes `exit_code`".to_owned()));
        }
        let config = Config {
            run_for: fields.duration("run_for"),
            exit: exit_signal.map_or(ExitStatus::Code(exit_code.unwrap_or(0)), ExitStatus::Signal),
            start_error: fields.text("start_error"),
            start_error_recoverable: fields.flag("start_error_recoverable"),
            start_block_for: fields.duration("start_block_for").unwrap_or_default(),
            events: fields.texts("events"),
            kill_after: fields.duration("kill_after").unwrap_or_default(),
            ignore_signals: fields.flag("ignore_signals"),
            memory_samples: fields.numbers("memory_samples"),
            cpu_percent: fields.number("cpu_percent"),
            faults: Faults::take(&mut fields),
        };
        for text in ["exit_err_msg", "signal_error", "stdout_string"] {
            fields.text(text);
        }
        fields.number("stdout_repeat");
        fields.duration("stdout_repeat_duration");
        fields.done()?;
        Ok(config)
    }
}

fn small(fields: &mut ConfigFields<'_>, name: &'static str) -> Option<u8> {
    let number = fields.number(name)?;
    fields.or_collect(u8::try_from(number).map_err(|_| error(name, format!("must be 0 to 255, not {number}"))))
}
