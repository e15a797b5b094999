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

/// How a family differs from that of a peer; empty if it does not.
fn differs(desc: &MetricDesc) -> &'static str {
    if desc.absent == "never" { "" } else { desc.absent }
}

/// Of a family of a peer: what it is called, what of ours it is, and how it differs. A remark that the row above has is
/// not repeated.
fn row(desc: &MetricDesc, above: &str) -> String {
    let remark = differs(desc);
    let remark = if !remark.is_empty() && remark == above { "as above" } else { remark };
    format!("| `{}` | {} | {remark} |\n", desc.name, desc.source)
}

/// Both tables, as docs/dropin.md has them.
pub fn tables() -> [(&'static str, String); 2] {
    let table = |all: Vec<&'static MetricDesc>| {
        let above = std::iter::once("").chain(all.iter().map(|desc| differs(desc)));
        let rows: String = all.iter().zip(above).map(|(desc, above)| row(desc, above)).collect();
        format!("| name | allostat | what differs |\n|---|---|---|\n{rows}")
    };
    [("cadvisor", table(cadvisor::descriptors())), ("nomad", table(nomad::descriptors()))]
}
