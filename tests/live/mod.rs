//! Real tasks, really measured: a real agent runs work of known size, and what `/metrics` says is compared with the
//! kernel's own files and with what the work itself knows. Runs on the host (cgroup v1 or v2) and in the v2 guests.

mod again;
mod clock;
mod coherent;
mod confined;
mod contained;
mod disk;
mod follow;
mod history;
mod host;
mod ledger;
mod limits;
mod lost;
mod memory;
mod moved;
mod orphans;
mod records;
mod short;
mod stale;
mod starved;
mod survive;
mod window;
mod work;
