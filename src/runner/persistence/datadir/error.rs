//! Errors of opening the data directory.

use std::io;
use std::path::PathBuf;

use crate::host::access::ExposedPath;

#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("the data directory {path} is a file; choose another with --data-dir")]
    File { path: PathBuf },
    #[error("cannot make the data directory {path}; choose another with --data-dir or give this user write access")]
    Make { path: PathBuf, source: io::Error },
    #[error(
        "the data directory {path} is in use by {owner}: stop it first, or give this one a directory of its own with \
         --data-dir"
    )]
    Locked { path: PathBuf, owner: String },
    #[error(
        "the data directory {path} is a link to {target}, which does not exist: create that directory, or choose \
         another with --data-dir"
    )]
    Dangling { path: PathBuf, target: PathBuf },
    #[error(
        "the data directory {path} is not safe: {why}, and could make this agent run anything; choose another with \
         --data-dir, or `chown` it if all that is in it may be trusted"
    )]
    Exposed { path: PathBuf, why: ExposedPath },
    #[error("cannot lock {path}: agent.data_dir (--data-dir) must be a directory that this user can write")]
    Lock { path: PathBuf, source: io::Error },
}
