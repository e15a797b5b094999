//! Tests that need nothing but files: fixtures, golden files, the source and the docs.

#[macro_use]
mod common;
#[path = "common/otlp_python.rs"]
mod by_python;
#[path = "common/openmetrics.rs"]
#[allow(dead_code, reason = "each binary uses its own part")]
mod openmetrics;
#[path = "common/otlp_points.rs"]
mod otlp_points;
#[path = "common/protobuf.rs"]
#[allow(dead_code, reason = "each binary uses its own part")]
mod protobuf;
mod synthetic;

mod conventions;
mod dropin;
mod evaluation;
mod exposition;
mod house;
mod jobfiles;
mod jobforms;
mod jobspec;
mod names;
mod nvml_header;
mod passes;
mod path_races;
mod readings;
mod snapshot;
mod texts;
mod untrusted;
mod worked_examples;
