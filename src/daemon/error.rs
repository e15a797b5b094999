//! Why an agent cannot start, and what to do about it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::api::AccessError;
use crate::config::PathError;
use crate::host::process::GroupError;
use crate::host::roots::ReadError;
use crate::runner::RestoreError;
use crate::runner::datadir::DataDirError;
use crate::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot make the socket {}", path.display())]
    Socket { path: PathBuf, source: io::Error },
    /// No client was let in, since it is not clear which may be.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A path in the settings is in another user's hands.
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("the group of the socket cannot be {name:?}")]
    SocketGroup { name: String, source: GroupError },
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("an agent needs {least} descriptors to observe what runs, and may have {has}")]
    Descriptors { has: u64, least: u64 },
    #[error("an agent needs {needed} threads, and only {has} can be made")]
    Threads { has: usize, needed: usize, source: io::Error },
    #[error("{step} did not end within {} s", after.as_secs())]
    Late { step: &'static str, after: Duration },
    #[error("cannot read this host")]
    Host(#[from] ReadError),
    #[error("cannot set the agent up")]
    Setup(#[source] io::Error),
}

impl DaemonError {
    /// What to do, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            DaemonError::Listen { address, source } => match source.kind() {
                io::ErrorKind::AddrInUse => Some(format!(
                    "something listens there already, perhaps another agent (`ss -ltnp 'sport = :{}'` shows it): stop \
                     it, or choose another address with --listen",
                    address.port()
                )),
                io::ErrorKind::PermissionDenied => {
                    Some("ports below 1024 are for root: choose another with --listen".to_owned())
                }
                io::ErrorKind::AddrNotAvailable => {
                    Some("no interface of this host has that address: choose another with --listen".to_owned())
                }
                _ => None,
            },
            DaemonError::Socket { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some("a process answers there: stop it, or choose another path with agent.socket".to_owned())
            }
            // It says what to do itself.
            DaemonError::Store(StoreError::Newer { .. }) => None,
            DaemonError::Store(_) => {
                Some("is there room on the disk, and may this user write there? see `df -h` and `ls -ld`".to_owned())
            }
            DaemonError::Descriptors { .. } => Some(
                "raise the limit: LimitNOFILE= in its unit, `ulimit -Hn` in a shell. Tasks that run are left alone"
                    .to_owned(),
            ),
            DaemonError::Threads { .. } => Some(
                "raise the limit on processes: TasksMax= and LimitNPROC= in its unit, `ulimit -u` in a shell, pids.max \
                 of its cgroup. Tasks that run are left alone"
                    .to_owned(),
            ),
            DaemonError::Late { .. } => Some(
                "a disk that hangs, or processes that cannot be had: see `dmesg`, `df` and pids.max. Running tasks are \
                 left alone"
                    .to_owned(),
            ),
            DaemonError::Access(_) => Some("`allostat check` reads that file as the agent does".to_owned()),
            DaemonError::SocketGroup { .. } => Some("`getent group` lists the groups of this host".to_owned()),
            DaemonError::Path(_) => Some(
                "that path, each directory and each link on the way to it must belong to root or to this user"
                    .to_owned(),
            ),
            DaemonError::Socket { .. }
            | DaemonError::DataDir(_)
            | DaemonError::Restore(_)
            | DaemonError::Host(_)
            | DaemonError::Setup(_) => None,
        }
    }
}
