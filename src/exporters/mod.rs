//! Floor 5: the snapshot in the words of others. Views: nothing here measures anything.
//!
//! An exporter is a listener of the [`walk`] in its file, and its entry in [`ALL`]. `json` is what the API answers and
//! shows what an alloc is rather than its series.

pub mod catalogue;
pub mod dropin;
pub mod history;
pub mod json;
pub mod otlp;
pub mod prometheus;
pub mod recent;
pub mod renamed;
pub mod walk;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::board::events::EventLog;
use crate::model::metric::MetricDesc;
use crate::snapshot::Snapshots;
use crate::telemetry::Metrics;
use walk::Walk;

pub use prometheus::{Encoding, Format};
pub use walk::Selection;

/// A way in which metrics leave the agent.
#[derive(Debug)]
pub struct Exporter {
    pub name: &'static str,
    /// The families that it exposes about itself, beside those of the walk.
    pub metrics: &'static [&'static MetricDesc],
    /// A walk in each of its formats.
    pub write: fn(&Walk<'_>) -> Vec<Written>,
    /// What it does by itself as long as there are snapshots; `None`: nothing.
    pub run: fn(&Parts) -> Option<JoinHandle<()>>,
}

/// One format: what a file of it ends in, and what would stand in that.
pub type Written = (&'static str, Vec<u8>);

/// What exporters run with.
#[derive(Debug)]
pub struct Parts {
    pub bodies: Arc<prometheus::Bodies>,
    pub snapshots: Snapshots,
    /// What happens.
    pub events: Arc<EventLog>,
    /// The sampling interval.
    pub tick: Duration,
    pub metrics: Arc<Metrics>,
    pub otlp: otlp::Config,
    /// `None`: what has ended is not kept.
    pub history: Option<Arc<history::History>>,
    /// `None`: the last hour is not kept.
    pub recent: Option<Arc<recent::RecentHistory>>,
    pub data_dir: PathBuf,
}

pub static ALL: &[Exporter] = &[
    Exporter {
        name: "prometheus",
        metrics: prometheus::METRICS,
        write: |walk| {
            vec![
                ("prom", prometheus::encode(walk, Format::Text)),
                ("om", prometheus::encode(walk, Format::OpenMetrics)),
            ]
        },
        run: |parts| Some(tokio::spawn(Arc::clone(&parts.bodies).precompute(parts.snapshots.clone(), parts.tick))),
    },
    Exporter {
        name: "otlp",
        metrics: &[],
        write: |walk| vec![("otlp", otlp::encode(walk))],
        run: |parts| {
            let config = (&parts.otlp, &parts.bodies.selection(None));
            otlp::run(config, &parts.data_dir, &parts.metrics, &parts.snapshots, &parts.events)
        },
    },
    Exporter {
        name: "history",
        metrics: &[],
        write: |_| Vec::new(),
        run: |parts| history::run(parts.history.as_ref(), &parts.snapshots, &parts.metrics),
    },
    Exporter {
        name: "recent",
        metrics: &[],
        write: |_| Vec::new(),
        run: |parts| recent::run(parts.recent.as_ref(), &parts.snapshots, &parts.metrics),
    },
];
