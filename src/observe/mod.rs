//! Floor 3: allocs that others run: found in the tree of cgroups, named by whoever runs them, measured like our own.
//!
//! ```text
//! identity   whose a cgroup is, by its path ── one file per source, one line in ALL
//! tree       the cgroups that there are, and which of them are tasks: one cgroup is one task, those above it never
//! scanner    follows the directories of cgroups into the tree
//! kept       what was used, over the lives of agents
//! nameless   those that their source could not name: it is asked again
//! patterns   which are to be shown, and which workload they are of, as the configuration says it
//! lives      when a cgroup was made, and whether what is a task again was there all the time
//! ends       what the kernel tells of lives that are over
//! processes  those in no cgroup of their own, where that is wanted
//! naming     asks runtimes for names and ends, each on a thread of its own: names first (questions)
//! texts      cuts, cleans and counts the names that others gave
//! table      the allocs: begun, named, ended; what of them goes to the board
//! observer   the thread that does all that
//! ```
//! Nobody is asked for a value: readers of [`collectors`](crate::collectors) read these cgroups as they read ours, and only read.

mod containerd;
mod docker;
mod ends;
mod facts;
pub mod identity;
mod kept;
mod kubernetes;
mod libvirt;
mod lives;
mod lxc;
mod nameless;
pub mod naming;
mod nomad;
pub mod observer;
mod patterns;
mod podman;
pub mod processes;
mod questions;
pub mod scanner;
mod slurm;
mod systemd;
pub mod table;
mod texts;
pub mod tree;

use std::collections::BTreeSet;
use std::path::PathBuf;

use self::identity::{CgroupParts, CgroupVerdict, Naming, OwnCgroup, Recognised};
use self::naming::{Runtime, RuntimePlaces};
use self::table::ObservedAllocs;
use crate::host::untrusted::own_user;
use crate::model::alloc::AllocSource;
use crate::model::text::label_value;

pub use kept::Keep;
pub use observer::{Observer, Parts};
pub use patterns::{ObservedPattern, RuledName, WorkloadRule};

/// What is observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Default: yes.
    pub enabled: bool,
    /// Empty: all.
    pub sources: BTreeSet<AllocSource>,
    /// Processes in no cgroup of their own, too. Default: no.
    pub processes: bool,
    /// Nothing else is shown. Empty: all.
    pub include: Vec<ObservedPattern>,
    /// These are not shown, whatever else is said.
    pub exclude: Vec<ObservedPattern>,
    /// The first that fits gives the workload. Default: none.
    pub workloads: Vec<WorkloadRule>,
    /// Paths of cgroups above those of tasks, `*` for any text: they are shown without a limit of their own too. Default: none.
    pub parents: Vec<String>,
    /// So many tasks at most. Default 5,000.
    pub max_allocs: usize,
    /// Labels of containers that are shown on `alloc_info`. Default: none.
    pub labels: Vec<String>,
    /// Default: `/var/run/docker.sock`.
    pub docker_socket: PathBuf,
    /// Where `run` and `var` of this host are. Default: `/`.
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
    /// Whether an alloc that is called so is to be shown.
    pub fn wants(&self, source: AllocSource, naming: &Naming) -> bool {
        let whose = naming.source.unwrap_or(source);
        self.wants_of(whose) && self.wants_as(&ObservedAllocs::id_of(whose, &naming.native), naming)
    }
    /// The same of one that has this id, whoever runs it.
    pub fn wants_as(&self, id: &str, naming: &Naming) -> bool {
        let any = |patterns: &[ObservedPattern]| patterns.iter().any(|pattern| pattern.fits(id, naming));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }
    /// With the workload that a rule gives it, and which rule that is.
    pub fn ruled(&self, source: AllocSource, own: OwnCgroup, naming: Naming) -> (Naming, Option<usize>) {
        let id = ObservedAllocs::id_of(naming.source.unwrap_or(source), &naming.native);
        patterns::ruled(&self.workloads, &id, own, naming)
    }
    /// Whether allocs of this source are to be shown.
    pub fn wants_of(&self, source: AllocSource) -> bool {
        self.sources.is_empty() || self.sources.contains(&source)
    }
    /// It shows some and leaves others out.
    pub fn chooses(&self) -> bool {
        !self.include.is_empty() || !self.exclude.is_empty()
    }
    /// Labels that are to be shown, or decide: the others may hold secrets, and are not taken from a source.
    pub fn known_labels(&self) -> BTreeSet<String> {
        let deciding = self.include.iter().chain(&self.exclude).filter_map(ObservedPattern::label);
        let deciding = deciding.chain(self.workloads.iter().flat_map(WorkloadRule::labels));
        self.labels.iter().cloned().chain(deciding.map(str::to_owned)).collect()
    }
    /// Of these labels those that are to be shown, as labels of ours: `com.example/team` is `label_com_example_team`.
    pub fn chosen(&self, labels: &[(String, String)]) -> Vec<(String, String)> {
        let mut names = BTreeSet::new();
        let wanted = self.labels.iter().filter_map(|name| labels.iter().find(|(known, _)| known == name));
        let clean =
            |name: &str| name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect::<String>();
        let shown = wanted.map(|(name, value)| (format!("label_{}", clean(name)), label_value(value).into_owned()));
        shown.filter(|(name, _)| names.insert(name.clone())).collect()
    }
}

type MakeRuntime = fn(&RuntimePlaces) -> Box<dyn Runtime>;

/// Somebody who runs things in cgroups.
#[derive(Debug)]
pub struct ObservedSource {
    pub word: AllocSource,
    /// What a cgroup is by its path; `None`: nothing of this source. Those above it are no containers.
    pub recognise: fn(&CgroupParts<'_>) -> Option<CgroupVerdict>,
    /// Who is asked for names and ends; `None`: the path tells all.
    pub runtime: Option<MakeRuntime>,
}

/// All of them. The first that recognises a cgroup has it: who runs containers stands before the runtime that it uses, and a
/// runtime before systemd.
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

/// What a cgroup is. `None`: nobody says; then it is a plain cgroup, where nothing is below it.
///
/// In a subtree that is delegated to a user it has his names, whatever it is called, and no name hides it.
pub fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let is_shown = |verdict: &CgroupVerdict| at.user().is_none() || *verdict != CgroupVerdict::Helper;
    let verdict = ALL.iter().find_map(|source| (source.recognise)(at).filter(is_shown));
    Some(match (verdict.or_else(|| docker::recognise_by_name(at))?, at.user()) {
        (CgroupVerdict::Task(found), Some(user)) => found.of_user(user).into(),
        (verdict, _) => verdict,
    })
}

/// Nobody is asked for its name: no runtime has one, or it is a user's, of which only a runtime of his could know. That of the user who the
/// agent runs as is asked.
fn is_named_by_path(found: &Recognised) -> bool {
    let own = own_user();
    source(found.source).is_none_or(|source| source.runtime.is_none())
        || found.user.is_some_and(|user| own == 0 || user != own)
}

fn source(word: AllocSource) -> Option<&'static ObservedSource> {
    ALL.into_iter().find(|source| source.word == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `docs/observed.md` says it.
    #[test]
    fn the_order_in_which_sources_claim_a_cgroup_is_the_documented_one() {
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
    fn what_is_excluded_is_not_shown_even_if_it_is_included() {
        let (include, exclude) = (patterns(&["docker:*"]), patterns(&["*secret*", "label:ci=true"]));
        let config = Config { include, exclude, ..Config::default() };
        let wants = |source, naming: Naming| config.wants(source, &naming);
        let of_ci = Naming { labels: vec![("ci".to_owned(), "true".to_owned())], ..Naming::of("web") };
        assert!(wants(AllocSource::Docker, Naming::of("web")) && !wants(AllocSource::Docker, Naming::of("secret")));
        assert!(!wants(AllocSource::Systemd, Naming::of("web")) && !wants(AllocSource::Docker, of_ci.clone()));
        assert!(Config::default().wants(AllocSource::Docker, &of_ci));
    }

    /// What decides is needed again before a runtime has answered the next agent.
    #[test]
    fn of_labels_that_are_not_shown_those_that_decide_are_kept_and_no_others() {
        let workloads = vec![WorkloadRule::parse("label:job=* -> label:project").unwrap()];
        let config = Config { exclude: patterns(&["label:team=a"]), workloads, ..Config::default() };
        let labels = ["team", "job", "project", "password"].map(|name| (name.to_owned(), "x".to_owned())).to_vec();
        assert_eq!(config.known_labels(), ["team", "job", "project"].map(str::to_owned).into());
        assert!(config.chosen(&labels).is_empty());
    }

    #[test]
    fn no_label_is_shown_that_was_not_chosen_and_a_long_one_is_cut() {
        let labels = [("com.example/team", "a"), ("password", "x"), ("com.example.team", "b")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.repeat(300)));
        assert!(Config::default().chosen(&labels).is_empty());
        let names = ["com.example/team", "com.example.team", "none"].map(str::to_owned).to_vec();
        let shown = Config { labels: names, ..Config::default() }.chosen(&labels);
        let value = label_value(&"a".repeat(300)).into_owned();
        assert_eq!(shown, [("label_com_example_team".to_owned(), value)], "one name, one label");
    }
}
