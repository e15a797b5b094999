//! Under a real systemd: tasks in a delegated scope, which outlives the agent. Runs in the guest that boots systemd,
//! and nowhere else: it installs units.

mod containerd;
mod docker;
mod ends;
mod machine;
mod package;
mod root;
mod user;
