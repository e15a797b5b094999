//! Floor 3: allocs that others run: found in the tree of cgroups, named by whoever runs them, measured like our own.
//!
//! ```text
//! identity   whose a cgroup is, by its path ── one file per source, one line in ALL
//! tree       the cgroups that there are, and which of them are tasks: one cgroup is one task, those above it never
//! scanner    follows the directories of cgroups into the tree
//! kept       what was used, over the lives of agents
//! nameless   those that their source could not name: it is asked again
//! lives      when a cgroup was made, and whether what is a task again was there all the time
//! ends       what the kernel tells of lives that are over
//! processes  those in no cgroup of their own, where that is wanted
//! naming     asks runtimes for names and ends, each on a thread of its own
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
mod podman;
pub mod processes;
pub mod scanner;
mod slurm;
mod systemd;
pub mod table;
pub mod tree;

use std::collections::BTreeSet;
use std::path::PathBuf;

use self::identity::{CgroupParts, CgroupVerdict, Naming};
use self::naming::{Runtime, RuntimePlaces};
use self::table::cut;
use crate::model::alloc::AllocSource;

pub use kept::Keep;
pub use observer::{Observer, Parts};

/// What is observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Default: yes.
    pub enabled: bool,
    /// Empty: all.
    pub sources: BTreeSet<AllocSource>,
    /// Processes in no cgroup of their own, too. Default: no.
    pub processes: bool,
    /// Ids, `*` for any text: nothing else is shown. Empty: all.
    pub include: Vec<String>,
    /// Ids that are not shown, whatever else is said.
    pub exclude: Vec<String>,
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
            parents: Vec::new(),
            max_allocs: 5_000,
            labels: Vec::new(),
            docker_socket: "/var/run/docker.sock".into(),
            root: "/".into(),
        }
    }
}

/// A value is cut here.
const LONGEST_LABEL: usize = 256;

impl Config {
    /// Whether an alloc of this id is to be shown.
    pub fn wants(&self, id: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, id));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }
    /// Whether allocs of this source are to be shown.
    pub fn wants_of(&self, source: AllocSource) -> bool {
        self.sources.is_empty() || self.sources.contains(&source)
    }
    /// It shows some and leaves others out.
    pub fn chooses(&self) -> bool {
        !self.include.is_empty() || !self.exclude.is_empty()
    }
    /// With those labels alone that are to be shown: the others may hold secrets.
    fn without_secrets(&self, naming: &Naming) -> Naming {
        let labels = naming.labels.iter().filter(|(name, _)| self.labels.contains(name)).cloned().collect();
        Naming { labels, ..naming.clone() }
    }
    /// Of these labels those that are to be shown, as labels of ours: `com.example/team` is `label_com_example_team`.
    pub fn chosen(&self, labels: &[(String, String)]) -> Vec<(String, String)> {
        let mut names = BTreeSet::new();
        let wanted = self.labels.iter().filter_map(|name| labels.iter().find(|(known, _)| known == name));
        let clean =
            |name: &str| name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect::<String>();
        let shown =
            wanted.map(|(name, value)| (format!("label_{}", clean(name)), cut(value, LONGEST_LABEL).to_owned()));
        shown.filter(|(name, _)| names.insert(name.clone())).collect()
    }
}

/// `*` is any text, everything else itself.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = pattern.contains('*').then(|| parts.next_back()).flatten() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
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
pub fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    ALL.iter().find_map(|source| (source.recognise)(at)).or_else(|| docker::recognise_by_name(at))
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

    #[test]
    fn a_star_is_any_text() {
        for (pattern, text, matching) in [
            ("docker:web", "docker:web", true),
            ("docker:web", "docker:web-1", false),
            ("docker:*", "docker:web-1", true),
            ("*", "", true),
            ("*:web*1", "docker:web-1", true),
            ("*web*web", "a:web", false),
            ("docker:*", "systemd:a", false),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, text), matching, "{pattern} {text}");
        }
    }

    #[test]
    fn what_is_excluded_is_not_shown_even_if_it_is_included() {
        let config = Config { include: vec!["docker:*".into()], exclude: vec!["*secret*".into()], ..Config::default() };
        assert!(config.wants("docker:web") && !config.wants("docker:secret") && !config.wants("systemd:web"));
        assert!(Config::default().wants("anything"));
    }

    #[test]
    fn no_label_is_shown_that_was_not_chosen_and_a_long_one_is_cut() {
        let labels = [("com.example/team", "a"), ("password", "x"), ("com.example.team", "b")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.repeat(300)));
        assert!(Config::default().chosen(&labels).is_empty());
        let names = ["com.example/team", "com.example.team", "none"].map(str::to_owned).to_vec();
        let shown = Config { labels: names, ..Config::default() }.chosen(&labels);
        assert_eq!(shown, [("label_com_example_team".to_owned(), "a".repeat(256))], "one name, one label");
    }
}
