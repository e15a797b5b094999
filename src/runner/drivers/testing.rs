//! What the unit tests of drivers share.

use crate::model::job::{JobKind, Task};

/// A task of that driver, with a JSON object as its `config`.
pub fn task(driver: &str, config: &str) -> Task {
    Task::new("web", driver, serde_json::from_str(config).unwrap(), JobKind::Batch)
}
