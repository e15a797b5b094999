//! What the agent orders a supervisor to do: one JSON file in the attempt's run directory, read once.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host::cgroup::Cgroup;
use crate::host::process::{Account, Capabilities, ResourceLimit};
use crate::host::seccomp::FilterProgram;
use crate::model::id::BootId;
use crate::model::volume::TaskVolume;

/// Grows when a field changes its meaning. Orders are read only by a supervisor that the same binary started.
pub const VERSION: u32 = 1;

/// The file in the run directory. It holds the environment: mode 0600.
pub const FILE: &str = "orders.json";
/// What the supervisor says when something is wrong with itself.
pub const ERRORS_FILE: &str = "supervisor.err";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Orders {
    pub version: u32,
    pub boot_id: BootId,
    /// A path, or a name that is searched in the task's `PATH`.
    pub command: String,
    pub args: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    pub directory: PathBuf,
    /// The task's own, which the agent makes with each start: where it is gone, another start may help.
    pub task_dir: PathBuf,
    /// `None`: as the agent.
    pub account: Option<Account>,
    /// What limits each process of the task; the others are as the agent's.
    pub limits: Vec<ResourceLimit>,
    /// `None`: output goes nowhere.
    pub logs: Option<LogOrders>,
    /// Exists already, with its limits. `None`: no cgroups here.
    pub cgroup: Option<Cgroup>,
    /// What to read when the last process is gone, most precious first.
    pub final_files: Vec<FinalRead>,
    /// What the kernel's OOM killer adds to its score; `None`: as the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<u16>,
    /// A network namespace to join, by a file; `None`: the host's, or that of its sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<PathBuf>,
    /// `None`: it runs as a process of the host, in the host's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxOrders>,
}

/// What confines a task. Paths inside are absolute, in its own root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxOrders {
    /// The directory of the host that becomes its root.
    pub root: PathBuf,
    /// By `pivot_root`.
    pub pivots: bool,
    pub own_pids: bool,
    pub own_ipc: bool,
    /// A file to join a network namespace by; `None`: the host's network.
    pub network: Option<PathBuf>,
    /// In order: what is mounted over another comes after it.
    pub mounts: Vec<Mount>,
    /// Nothing is to be seen there: the path on the host, and inside.
    pub hidden: Vec<(PathBuf, PathBuf)>,
    /// Host volumes, over all of that.
    pub volumes: Vec<TaskVolume>,
    /// Nodes of devices, beside those that every program may expect.
    pub devices: Vec<SandboxNode>,
    pub capabilities: Capabilities,
    pub filters: Vec<FilterProgram>,
}

/// A part of the host's file system that the task sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    pub host: PathBuf,
    pub inside: PathBuf,
    pub read_only: bool,
    /// Else it is left out where the host has no such thing.
    pub needed: bool,
}

/// A device node of the host, and its path inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxNode {
    pub host: PathBuf,
    pub inside: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogOrders {
    pub directory: PathBuf,
    /// Files are `<task>.stdout.<n>` and `<task>.stderr.<n>`.
    pub task: String,
    pub max_files: u32,
    pub max_file_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinalRead {
    pub key: String,
    pub path: PathBuf,
}

impl Orders {
    /// Errors: a sentence that names the file.
    pub fn read(run_dir: &Path) -> Result<Orders, String> {
        let path = run_dir.join(FILE);
        let text = std::fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let orders: Orders = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        match orders.version {
            VERSION => Ok(orders),
            other => Err(format!("{} is of version {other}, this supervisor supports {VERSION}", path.display())),
        }
    }

    pub fn write(&self, run_dir: &Path) -> std::io::Result<()> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(run_dir.join(FILE))?;
        file.write_all(&serde_json::to_vec(self)?)
    }
}
