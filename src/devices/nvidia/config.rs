//! Settings of NVIDIA GPUs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvidiaConfig {
    /// `None`: the default name of the library.
    pub library: Option<PathBuf>,
    /// UUIDs of GPUs that are neither listed nor read.
    pub ignored: Vec<String>,
}
