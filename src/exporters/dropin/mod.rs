//! Pages under the names of other exporters, so that boards and rules made for those work: readers of the walk like any
//! other, a table of names each. Nothing is measured for them, and a page that is not requested costs nothing.
//!
//! ```text
//! Snapshot ─► rows: whose each is, in the peer's labels ─► Walk ─► a table, name to measure ─► the encoder of /metrics
//! ```
//! What is not measured is absent here too, whatever the peer prints in its place. docs/dropin.md holds the tables for
//! readers; a test compares it with these.

pub mod cadvisor;
pub mod nomad;
mod nomad_host;
mod root;
mod tables;

use crate::model::metric::MetricDesc;

/// Of a family of a peer: what it is called, whether it counts, what of ours it is, and how it differs.
fn row(desc: &MetricDesc) -> String {
    let differs = if desc.absent == "never" { "" } else { desc.absent };
    format!("| `{}` | {} | {} | {differs} |\n", desc.name, desc.kind.as_str(), desc.source)
}

/// Both tables, as docs/dropin.md has them.
pub fn tables() -> [(&'static str, String); 2] {
    let table = |all: Vec<&'static MetricDesc>| {
        let rows: String = all.into_iter().map(row).collect();
        format!("| name | type | ours | what differs |\n|---|---|---|---|\n{rows}")
    };
    [("cadvisor", table(cadvisor::descriptors())), ("nomad", table(nomad::descriptors()))]
}
