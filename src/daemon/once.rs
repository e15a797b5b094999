//! One pass without an agent: this host, the cgroups below the configured parent, and observed workloads.
//!
//! What only an agent can know (states, exits, restarts, totals of what has ended) is left out: it would be invented.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::error::DaemonError;
use super::{node, observed, placement};
use crate::board::{Board, PublishedAlloc};
use crate::collectors::{self, FdBudget, SamplingContext, TaskReader};
use crate::config::Config;
use crate::exporters::prometheus::encode;
use crate::exporters::walk::{Filter, OF_ALLOCS, OF_TASKS, Selection, Walk};
use crate::exporters::{Format, catalogue};
use crate::host::clock::SystemClock;
use crate::host::hierarchy::Layout;
use crate::host::roots::Roots;
use crate::model::alloc::AllocIdentity;
use crate::model::id::{AllocId, CgroupPath, TaskName};
use crate::model::usage::Usage;
use crate::observe::{self, Observer};
use crate::snapshot::sampler;
use crate::telemetry::Metrics;

/// The exposition of one pass. It makes nothing and changes nothing. It searches for observed workloads no longer than
/// `until_named` waits.
pub fn one_pass(config: &Config, format: Format) -> Result<String, DaemonError> {
    let observes = config.observe.enabled;
    let roots = if observes { Roots::default().with_root(&config.observe.root) } else { Roots::default() };
    let parent = placement::last(config);
    let layout = Layout::detect(&roots)?;
    // Cgroups of others have what their parents hand down.
    let layout = if observes { layout } else { layout.narrow(&parent) };
    let may = node::AgentAbilities {
        ends: Some("a single reading does not wait for what ends".to_owned()),
        reset_peaks: config.cgroup.peak_window_v1,
        pass: Some("a single pass, without an agent, reads files".to_owned()),
        observe: observes,
        runs: false,
    };
    let info = Arc::new(node::info(&roots, &layout, &parent, may, None)?);
    let allocs = found(&layout, &parent);
    let sampling = SamplingContext::new(roots, layout, FdBudget::from_limit());
    let board = Arc::new(Board::default());
    let published = allocs.iter().map(|(id, tasks)| published(&sampling, &parent, id, tasks));
    board.publish(published.collect::<Vec<_>>(), |_| {});
    let (metrics, clock) = (Arc::new(Metrics::new()), Arc::new(SystemClock));
    // Until the end of this pass, which reads what it has found.
    let observer = observes.then(|| {
        Observer::start(observe::Parts {
            config: config.observe.clone(),
            sampling: Arc::clone(&sampling),
            ends: None,
            board: Arc::clone(&board),
            managed_parent: parent.clone(),
            clock: clock.clone(),
            metrics: Arc::clone(&metrics),
            keep: None,
        })
    });
    let observer = observer.transpose().map_err(DaemonError::Setup)?;
    if let Some(observer) = &observer {
        observed::until_named(|| observer.is_settled());
    }
    let snapshot = sampler::once(sampler::Parts {
        config: config.telemetry,
        board,
        devices: None,
        sampling,
        collectors: collectors::host(vec![("data", config.data_dir.clone())]),
        info,
        metrics: Arc::clone(&metrics),
        scrapers: Arc::default(),
        clock,
    });
    drop(observer);
    let body = encode(&Walk::new(&snapshot, &metrics, &known(&Arc::new(config.selection.clone()))), format);
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// What one pass can know: usage of tasks and allocs, the host, and what can be measured.
fn known(selection: &Arc<Selection>) -> Filter {
    let usage = OF_TASKS.families.iter().chain(&*OF_ALLOCS.families).map(|f| &f.desc);
    let hosts = collectors::host(Vec::new());
    let host = hosts.iter().flat_map(|c| c.metrics()).copied();
    let itself = [
        "allostat_alloc_info",
        "allostat_task_info",
        "allostat_build_info",
        "allostat_capability",
        "allostat_exposition_info",
    ]
    .into_iter()
    .filter_map(catalogue::find);
    let selected = usage.chain(host).chain(itself).filter(|desc| selection.has(desc, false)).map(|desc| desc.name);
    let known = Filter::new(selected, []).expect("no source is named, so none can be unknown");
    known.without_process().selecting(Arc::clone(selection))
}

/// `<parent>/<alloc>/<task>`, of all hierarchies together.
pub(super) fn found(layout: &Layout, parent: &CgroupPath) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for hierarchy in layout.placements() {
        let top = hierarchy.mount.join(parent.relative());
        for alloc in directories(&top) {
            let tasks = directories(&top.join(&alloc));
            all.entry(alloc).or_default().extend(tasks);
        }
    }
    all
}

fn directories(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let dirs = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    dirs.filter_map(|e| e.file_name().into_string().ok()).collect()
}

/// To be read, and nothing else.
pub(super) fn published(
    sampling: &Arc<SamplingContext>,
    parent: &CgroupPath,
    id: &str,
    tasks: &BTreeSet<String>,
) -> PublishedAlloc {
    let cgroup = parent.child(id);
    let reader = |path: CgroupPath| Arc::new(TaskReader::for_cgroup(sampling, path));
    let names = tasks.iter().map(|name| TaskName::from(name.as_str()));
    PublishedAlloc {
        // Whose job it is stands in the agent's state, not in the cgroup.
        identity: Arc::new(AllocIdentity::of_cgroup(AllocId::from(id), cgroup.clone(), names)),
        status: None,
        observed: None,
        readers: tasks.iter().map(|name| Some(reader(cgroup.child(name)))).collect(),
        until: Vec::new(),
        alloc_reader: Some(reader(cgroup)),
        alloc_base: Arc::new(Usage::default()),
    }
}
