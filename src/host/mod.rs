//! Floor 1: the doors to the machine. A trait each where a fake is needed, one real and one fake. Nothing here parses
//! kernel text (that is `kernel/`), nothing here knows a task.

pub mod access;
pub mod beneath;
pub mod bpf;
pub mod cgroup;
pub mod clock;
pub mod disk_usage;
pub mod foreign_tree;
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
pub mod roots;
pub mod seccomp;
pub mod systemd;
pub mod timex;
pub mod transfer;
pub mod tree;
pub mod untrusted;
