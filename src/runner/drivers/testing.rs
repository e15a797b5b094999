//! What the unit tests of drivers share.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{StartRequest, TaskDirs};
use crate::model::id::AllocId;
use crate::model::job::{JobKind, LogConfig, Resources, RestartPolicy, Task};

/// A task of that driver, with a JSON object as its `config`.
pub fn task(driver: &str, config: &str) -> Task {
    Task {
        name: "web".into(),
        driver: driver.to_owned(),
        config: serde_json::from_str(config).unwrap(),
        env: BTreeMap::new(),
        meta: BTreeMap::new(),
        user: None,
        resources: Resources::default(),
        restart: RestartPolicy::default_for(JobKind::Batch),
        logs: LogConfig::default(),
        kill_timeout: Duration::from_secs(5),
        kill_signal: None,
    }
}

/// For drivers that touch no directory.
pub fn request(task: Task) -> StartRequest {
    let none = std::path::PathBuf::new;
    StartRequest {
        alloc_id: AllocId::from("00000000-0000-4000-8000-000000000000"),
        attempt: 0,
        task,
        env: BTreeMap::new(),
        dirs: TaskDirs {
            shared: none(),
            task: none(),
            local: none(),
            secrets: none(),
            tmp: none(),
            logs: none(),
            run: none(),
        },
        alloc_cgroup: None,
    }
}
