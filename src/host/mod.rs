//! Layer 1: access to the machine. A trait where tests need a fake, with a real and a fake implementation. Nothing here
//! parses kernel text (see `kernel/`) or knows a task.

pub mod access;
pub mod addresses;
pub mod beneath;
pub mod bpf;
pub mod cgroup;
pub mod clock;
pub mod disk_usage;
pub mod fd_passing;
pub mod foreign_tree;
pub mod foreign_walk;
pub mod gpu;
pub mod hierarchy;
pub mod http;
pub mod inotify;
pub mod machine;
pub mod netns;
pub mod own_names;
pub mod pci;
pub mod peer;
pub mod plugin;
pub mod ports;
pub mod process;
pub mod project_quota;
pub mod pty;
pub mod roots;
pub mod seccomp;
pub mod secrets_fs;
pub mod shim;
pub mod subject_name;
pub mod systemd;
pub mod timex;
pub mod transfer;
pub mod tree;
pub mod untrusted;
pub mod whole_dir;
