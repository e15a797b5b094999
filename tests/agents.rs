//! Tests with real agents and the real programs around them: Prometheus, Docker, collectors, terminals.

#[macro_use]
mod common;
#[path = "common/otlp_python.rs"]
mod by_python;
#[path = "common/certificates.rs"]
mod certificates;
#[path = "common/otlp_points.rs"]
mod otlp_points;

mod access;
mod artifacts;
mod boards;
mod commands;
mod completions;
mod containers;
mod devices;
mod documented;
mod ended;
mod endpoints;
mod exec;
mod failing_disk;
mod full_disk;
mod gpu;
mod hooks;
mod hostile;
mod launches;
mod logs;
mod migration;
mod network;
mod newcomer;
mod openapi;
mod other_users;
mod otlp;
mod outputs;
mod pages;
mod plugins;
mod prometheus;
mod questions;
mod raw_exec;
mod replaced;
mod reserve;
mod services;
mod templates;
mod terminals;
mod top;
mod variables;
mod volumes;
