//! Tests with real cgroups. They run on the host and in the guests, where there is no source tree.

#[macro_use]
mod common;
#[path = "common/openmetrics.rs"]
#[allow(dead_code, reason = "each binary uses its own part")]
mod openmetrics;
#[path = "common/protobuf.rs"]
#[allow(dead_code, reason = "each binary uses its own part")]
mod protobuf;

mod chaos;
mod harness;
mod impostors;
mod kernel_ends;
mod kernel_pass;
mod live;
mod observed;
mod placement;
mod places;
mod reader;
mod supervisor;
mod systemd;
