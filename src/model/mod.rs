//! Floor 0: the values that everybody talks about. No I/O, no locks, no clock, no async.
//!
//! Absent is `None`, never `0`; the kernel's `max` is [`units::Limit::Max`]; a process is its pid *and* its start time.

pub mod address;
pub mod alloc;
pub mod answer;
pub mod archive;
pub mod artifact;
pub mod attribute;
pub mod attributes;
pub mod bits;
pub mod bounded_json;
pub mod capability;
pub mod checksum;
pub mod children;
pub mod constraint;
pub mod demand;
pub mod device;
pub mod device_used;
pub mod disk_io;
pub mod env;
pub mod event;
pub mod exit_text;
pub mod exponential;
#[cfg(test)]
pub mod fuzzed;
pub mod go_regex;
pub mod host;
pub mod id;
pub mod job;
pub mod last_output;
pub mod launching;
pub mod measure;
pub mod metric;
pub mod migration;
pub mod moment;
pub mod nearest;
pub mod network;
pub mod observed;
pub mod operator;
pub mod placement;
pub mod pod;
pub mod profile;
pub mod raw_name;
pub mod reschedule;
pub mod sensitive;
pub mod service;
pub mod signal;
pub mod sizing;
pub mod small_map;
pub mod stat;
pub mod task;
pub mod template;
pub mod text;
pub mod totals;
pub mod trace;
pub mod units;
pub mod update;
pub mod usage;
pub mod version;
pub mod volume;
mod word;

pub(crate) use word::words;
