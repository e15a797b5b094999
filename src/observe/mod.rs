//! Observed allocs: workloads of other runtimes, found in the cgroup tree, named by their sources and measured like
//! managed ones (floor 3).
//!
//! ```text
//! identity         recognises a cgroup by its path ── one file per source, one line in ALL
//! tree             the cgroups of the host and which of them are tasks: no task contains another one
//! scanner          follows the cgroup directories into the tree
//! journal          persists usage across agent restarts (earlier_agent: what becomes of tasks that do not go on)
//! exits            how lives end, as sources and the kernel report it
//! patterns         include, exclude and workload rules of the configuration
//! lives            state machine of the cgroups at one path: created, named, shown, ended
//! processes        processes without a cgroup of their own, if enabled
//! runtime_queries  queries runtimes for names and exits, each on its own thread: names first (query_queue)
//! services         queries the host's systemd how its services ended
//! runtime_json     JSON and timestamps of runtimes, for the sources (process_environment: variables of a process)
//! texts            truncates, cleans and counts names chosen by others
//! observed_allocs  the allocs: begun, named, ended; what is published on the board
//! observer         the thread that runs all of it
//! ```
//! Values come from the readers of [`collectors`](crate::collectors), as for managed tasks; observed cgroups are never
//! written to.

mod containerd;
mod docker;
mod earlier_agent;
pub mod exits;
pub mod identity;
mod journal;
mod kubernetes;
mod libvirt;
mod lives;
mod lxc;
mod nomad;
pub mod observed_allocs;
pub mod observer;
mod patterns;
mod podman;
mod process_environment;
pub mod processes;
mod query_queue;
mod runtime_json;
pub mod runtime_queries;
pub mod scanner;
mod services;
mod slurm;
mod systemd;
mod texts;
pub mod tree;

use std::collections::BTreeSet;
use std::path::PathBuf;

use self::identity::{AllocCgroupRule, CgroupParts, CgroupVerdict, RecognisedTask, TaskNaming};
use self::observed_allocs::ObservedAllocs;
use self::runtime_queries::{Runtime, RuntimePaths};
use crate::host::untrusted::own_user;
use crate::model::alloc::AllocSource;
use crate::model::observed::SelectedLabel;
use crate::model::text::label_value;

pub use journal::RecordLocation;
pub use observer::{Observer, Parts};
pub use patterns::{ObservedPattern, RuleWorkload, WorkloadRule};

/// Settings of observed workloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Default: true.
    pub enabled: bool,
    /// Sources to observe. Empty: all.
    pub sources: BTreeSet<AllocSource>,
    /// Observe processes without a cgroup of their own. Default: false.
    pub processes: bool,
    /// Show only these. Empty: all.
    pub include: Vec<ObservedPattern>,
    /// Never show these, even if they are included.
    pub exclude: Vec<ObservedPattern>,
    /// The first matching rule sets the workload. Default: none.
    pub workloads: Vec<WorkloadRule>,
    /// Paths of parent cgroups to show even without a limit; `*` matches any text. Default: none.
    pub parents: Vec<String>,
    /// Maximum number of tasks. Default: 5,000.
    pub max_allocs: usize,
    /// Container labels to expose on `alloc_info`. Default: none.
    pub labels: Vec<String>,
    /// Default: `/var/run/docker.sock`.
    pub docker_socket: PathBuf,
    /// Root of the host's `run` and `var`. Default: `/`.
    pub root: PathBuf,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            enabled: true,
            sources: BTreeSet::new(),
            processes: false,
            include: Vec::new(),
            exclude: Vec::new(),
            workloads: Vec::new(),
            parents: Vec::new(),
            max_allocs: 5_000,
            labels: Vec::new(),
            docker_socket: "/var/run/docker.sock".into(),
            root: "/".into(),
        }
    }
}

impl Config {
    /// Whether an alloc with these names is shown.
    pub fn shows(&self, source: AllocSource, naming: &TaskNaming) -> bool {
        let owner = naming.source.unwrap_or(source);
        self.shows_source(owner) && self.shows_as(&ObservedAllocs::id_of(owner, &naming.native), naming)
    }
    /// As [`Config::shows`], for an ID of any source.
    pub fn shows_as(&self, id: &str, naming: &TaskNaming) -> bool {
        let any = |patterns: &[ObservedPattern]| patterns.iter().any(|pattern| pattern.matches(id, naming));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }
    /// Applies the workload rules. Returns the index of the rule as well.
    pub fn ruled(
        &self,
        source: AllocSource,
        alloc_cgroup: AllocCgroupRule,
        naming: TaskNaming,
    ) -> (TaskNaming, Option<usize>) {
        let id = ObservedAllocs::id_of(naming.source.unwrap_or(source), &naming.native);
        patterns::ruled(&self.workloads, &id, alloc_cgroup, naming)
    }
    /// Whether allocs of this source are shown.
    pub fn shows_source(&self, source: AllocSource) -> bool {
        self.sources.is_empty() || self.sources.contains(&source)
    }
    /// Whether patterns exclude anything.
    pub fn chooses(&self) -> bool {
        !self.include.is_empty() || !self.exclude.is_empty()
    }
    /// Labels that are shown or used by rules. Others may hold secrets and are dropped.
    pub fn known_labels(&self) -> BTreeSet<String> {
        let deciding = self.include.iter().chain(&self.exclude).filter_map(ObservedPattern::label);
        let deciding = deciding.chain(self.workloads.iter().flat_map(WorkloadRule::labels));
        self.labels.iter().cloned().chain(deciding.map(str::to_owned)).collect()
    }
    /// The labels to show, as Prometheus labels: `com.example/team` becomes `label_com_example_team`.
    pub fn chosen(&self, labels: &[(String, String)]) -> Vec<SelectedLabel> {
        let mut names = BTreeSet::new();
        let selected = self.labels.iter().filter_map(|name| labels.iter().find(|(known, _)| known == name));
        let clean =
            |name: &str| name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect::<String>();
        let shown = selected.map(|(key, value)| SelectedLabel {
            key: label_value(key).into_owned(),
            name: format!("label_{}", clean(key)),
            value: label_value(value).into_owned(),
        });
        shown.filter(|label| names.insert(label.name.clone())).collect()
    }
}

type MakeRuntime = fn(&RuntimePaths) -> Box<dyn Runtime>;

/// A kind of runtime that runs workloads in cgroups.
#[derive(Debug)]
pub struct ObservedSource {
    pub word: AllocSource,
    /// Recognises a cgroup by its path. `None`: not of this source. Ancestors are no containers.
    pub recognise: fn(&CgroupParts<'_>) -> Option<CgroupVerdict>,
    /// The runtime to query for names and exits. `None`: the path contains everything.
    pub runtime: Option<MakeRuntime>,
}

/// All sources. The first match wins: an orchestrator before the runtime that it uses, a runtime before systemd.
pub static ALL: [&ObservedSource; 9] = [
    &nomad::NOMAD,
    &kubernetes::KUBERNETES,
    &slurm::SLURM,
    &docker::DOCKER,
    &podman::PODMAN,
    &containerd::CONTAINERD,
    &lxc::LXC,
    &libvirt::LIBVIRT,
    &systemd::SYSTEMD,
];

/// Recognises a cgroup. `None`: no source matches; it is a plain cgroup if it has no children.
///
/// In a subtree that is delegated to a user, names are prefixed with the user, and no name hides a cgroup.
pub fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    if systemd::is_in_machine(at) {
        return None;
    }
    let is_shown = |verdict: &CgroupVerdict| at.user().is_none() || *verdict != CgroupVerdict::Helper;
    let verdict = ALL.iter().find_map(|source| (source.recognise)(at).filter(is_shown));
    Some(match (verdict.or_else(|| docker::recognise_by_name(at))?, at.user()) {
        (CgroupVerdict::Task(found), Some(user)) => found.of_user(user).into(),
        (verdict, _) => verdict,
    })
}

/// Whether no runtime is queried for the name: the path has it, or no runtime may be queried.
fn is_named_by_path(found: &RecognisedTask) -> bool {
    found.source == AllocSource::Systemd || !has_own_runtime(found)
}

/// Whether a runtime may be queried: the source has one, and the cgroup does not belong to a user whose own runtime
/// would know it. The runtime of the agent's user is queried.
fn has_own_runtime(found: &RecognisedTask) -> bool {
    let agent_user = own_user();
    source(found.source).is_some_and(|source| source.runtime.is_some())
        && found.user.is_none_or(|user| agent_user != 0 && user == agent_user)
}

fn source(word: AllocSource) -> Option<&'static ObservedSource> {
    ALL.into_iter().find(|source| source.word == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order documented in `docs/observed.md`.
    #[test]
    fn documented_order_of_sources_equals_the_order_in_code() {
        let page = include_str!("../../docs/observed.md");
        let line = page.lines().find(|line| line.contains("the first of this order has it")).unwrap();
        let documented: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        let sources: Vec<&str> = ALL.iter().map(|source| source.word.as_str()).chain(["cgroup"]).collect();
        assert_eq!(documented, sources);
    }

    fn patterns(texts: &[&str]) -> Vec<ObservedPattern> {
        texts.iter().map(|text| ObservedPattern::parse(text).unwrap()).collect()
    }

    #[test]
    fn excluded_observed_alloc_is_hidden_even_if_included() {
        let (include, exclude) = (patterns(&["docker:*"]), patterns(&["*secret*", "label:ci=true"]));
        let config = Config { include, exclude, ..Config::default() };
        let accepts = |source, naming: TaskNaming| config.shows(source, &naming);
        let of_ci = TaskNaming { labels: vec![("ci".to_owned(), "true".to_owned())], ..TaskNaming::of("web") };
        assert!(
            accepts(AllocSource::Docker, TaskNaming::of("web"))
                && !accepts(AllocSource::Docker, TaskNaming::of("secret"))
        );
        assert!(!accepts(AllocSource::Systemd, TaskNaming::of("web")) && !accepts(AllocSource::Docker, of_ci.clone()));
        assert!(Config::default().shows(AllocSource::Docker, &of_ci));
    }

    /// Labels used by rules are needed before the runtime has replied to the next agent.
    #[test]
    fn labels_used_by_rules_are_persisted_and_no_other_hidden_labels() {
        let workloads = vec![WorkloadRule::parse("label:job=* -> label:project").unwrap()];
        let config = Config { exclude: patterns(&["label:team=a"]), workloads, ..Config::default() };
        let labels = ["team", "job", "project", "password"].map(|name| (name.to_owned(), "x".to_owned())).to_vec();
        assert_eq!(config.known_labels(), ["team", "job", "project"].map(str::to_owned).into());
        assert!(config.chosen(&labels).is_empty());
    }

    /// Promise (Observed workloads): No label of a container is shown that was not chosen
    #[test]
    fn no_label_is_shown_that_was_not_chosen_and_a_long_one_is_cut() {
        let labels = [("com.example/team", "a"), ("password", "x"), ("com.example.team", "b")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.repeat(300)));
        assert!(Config::default().chosen(&labels).is_empty());
        let names = ["com.example/team", "com.example.team", "none"].map(str::to_owned).to_vec();
        let shown = Config { labels: names, ..Config::default() }.chosen(&labels);
        let value = label_value(&"a".repeat(300)).into_owned();
        let (key, name) = ("com.example/team".to_owned(), "label_com_example_team".to_owned());
        assert_eq!(shown, [SelectedLabel { key, name, value }], "one name, one label");
    }
}
