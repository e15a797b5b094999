//! The staircase: how the agent reports on itself. Logs, its own metrics, errors in one line, limits on repeated lines.
//! Open to floors 1 to 6; knows only `model`.

pub mod access;
pub mod artifacts;
mod chain;
pub mod durations;
pub mod execs;
mod fields;
pub mod history;
pub mod images;
pub mod launches;
pub mod limit;
mod line;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod migrations;
pub mod observed;
pub mod otlp;
pub mod panics;
pub mod ports;
mod registered;
pub mod state_db;
pub mod templates;
pub mod timings;
pub mod updates;

pub use chain::chain;
pub use logging::{LogLevel, LoggingError};
pub use metrics::Metrics;
pub use panics::lock;
