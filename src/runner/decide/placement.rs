//! Decides whether an alloc can be placed on this node, and if not, why. Pure.
//!
//! ```text
//! submitted ──► unplaced() ── no reason ──► reserve cores ── reserved ──► placed: its tasks start
//!                   └─ some: NotPlaced ──► it waits; a changed attribute or a released resource triggers a retry
//! ```
//! An alloc that has started keeps its place, whatever changes.

use super::volumes::missing_volumes;
use crate::model::constraint::{NodeAffinity, NodeConstraint, NodeValues};
use crate::model::host::NodeIdentity;
use crate::model::job::{Job, PlacementRules, Task, TaskGroup};
use crate::model::placement::{NotPlaced, PlacementReason};

/// The node as placement sees it.
#[derive(Debug, Clone)]
pub struct PlacementNode {
    pub identity: NodeIdentity,
    pub values: NodeValues,
    /// Cores that tasks can reserve. Empty: this node has none to reserve.
    pub cores: Vec<u32>,
}

/// Every reason why the alloc with this index cannot run on this node, other allocs aside. Empty: it can.
pub fn unplaced(job: &Job, group: &TaskGroup, index: u32, node: &PlacementNode) -> Vec<NotPlaced> {
    let (mut reasons, volumes) = (node_mismatches(job, node), missing_volumes(group, index, &node.identity));
    let before_in_job: u64 = job.groups.iter().take_while(|g| g.name != group.name).map(|g| u64::from(g.count)).sum();
    let (index, in_job) = (u64::from(index), before_in_job + u64::from(index));
    reasons.extend(unmet(&job.placing, "job", in_job, node));
    reasons.extend(unmet(&group.placing, &format!("group {}", group.name), index, node));
    for task in &group.tasks {
        reasons.extend(unmet(&task.placing, &format!("task {}", task.name), index, node));
    }
    reasons.extend(too_many_cores(group, node));
    reasons.extend(volumes);
    for reason in reasons.iter_mut().filter(|_| !job.sensitive.is_empty()) {
        reason.message = job.sensitive.hide(&reason.message).into_owned();
    }
    reasons
}

/// Checks the job's datacenters and node pool, if the agent's settings name its own.
fn node_mismatches(job: &Job, node: &PlacementNode) -> Vec<NotPlaced> {
    let mut reasons = Vec::new();
    if let Some(own) = &node.identity.datacenter
        && !job.datacenters.iter().any(|pattern| matches_glob(pattern, own))
    {
        let message =
            format!("the datacenters of the job ({}) do not include this node's, {own}", job.datacenters.join(", "));
        reasons.push(NotPlaced::new(PlacementReason::Datacenter, message));
    }
    if let Some(own) = &node.identity.pool
        && job.node_pool != *own
        && job.node_pool != Job::ANY_POOL
    {
        let message = format!("the node_pool of the job is {}, this node's is {own}", job.node_pool);
        reasons.push(NotPlaced::new(PlacementReason::NodePool, message));
    }
    reasons
}

fn unmet(placing: &PlacementRules, of: &str, before: u64, node: &PlacementNode) -> Vec<NotPlaced> {
    let unmet = placing.constraints.iter().filter(|constraint| !constraint.holds(&node.values, before));
    let reason = |constraint: &NodeConstraint| match constraint {
        NodeConstraint::Holds(comparison) => {
            let found = comparison.found(&node.values);
            let found = if found.is_empty() { String::new() } else { format!(": {found}") };
            NotPlaced::new(PlacementReason::Constraint, format!("constraint of {of} not met: {comparison}{found}"))
        }
        NodeConstraint::DistinctHosts => {
            let message = format!("constraint of {of} not met: distinct_hosts: another alloc of it has this node");
            NotPlaced::new(PlacementReason::DistinctHosts, message)
        }
        NodeConstraint::DistinctProperty { .. } => {
            let message = format!(
                "constraint of {of} not met: {constraint}: other allocs of it have the value, or this node has none"
            );
            NotPlaced::new(PlacementReason::DistinctProperty, message)
        }
    };
    unmet.map(reason).collect()
}

/// Number of cores that the tasks of an alloc of this group reserve.
pub fn cores_of(group: &TaskGroup) -> usize {
    group.tasks.iter().map(cores_of_task).sum()
}

fn cores_of_task(task: &Task) -> usize {
    task.resources.cores.map_or(0, |cores| usize::try_from(cores).unwrap_or(usize::MAX))
}

fn too_many_cores(group: &TaskGroup, node: &PlacementNode) -> Option<NotPlaced> {
    let (requested, there) = (cores_of(group), node.cores.len());
    (requested > there).then(|| {
        let message = match there {
            0 => {
                format!(
                    "group {} reserves {}: this node has no cpuset controller for tasks",
                    group.name,
                    count(requested)
                )
            }
            _ => format!("group {} reserves {}: this node has {there}", group.name, count(requested)),
        };
        NotPlaced::new(PlacementReason::Cores, message)
    })
}

fn count(cores: usize) -> String {
    if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
}

/// Selects the lowest free cores for each task of a group, in task order. `taken`: the cores of other allocs.
///
/// Errors: too few are free.
pub fn choose_cores(group: &TaskGroup, all: &[u32], taken: &[u32]) -> Result<Vec<Vec<u32>>, NotPlaced> {
    let mut free = all.iter().copied().filter(|core| !taken.contains(core));
    let requested = cores_of(group);
    let there = free.clone().count();
    if there < requested {
        let message = format!("group {} reserves {}: {there} of {} are free", group.name, count(requested), all.len());
        return Err(NotPlaced::new(PlacementReason::Cores, message));
    }
    Ok(group.tasks.iter().map(|task| free.by_ref().take(cores_of_task(task)).collect()).collect())
}

/// Affinity score of this node from -1 to 1: the sum of the weights that hold over the sum of all weights. `None`:
/// there are no affinities.
pub fn affinity_score<'a>(affinities: impl IntoIterator<Item = &'a NodeAffinity>, node: &PlacementNode) -> Option<f64> {
    let (mut held, mut all) = (0_i32, 0_i32);
    for affinity in affinities {
        let weight = i32::from(affinity.weight);
        all = all.saturating_add(weight.abs());
        held = held.saturating_add(if affinity.comparison.holds(&node.values) { weight } else { 0 });
    }
    (all > 0).then(|| f64::from(held) / f64::from(all))
}

/// Matches Nomad's datacenter patterns: `*` matches any text. Time is proportional to the product of both lengths.
fn matches_glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t, mut star): (usize, usize, Option<(usize, usize)>) = (0, 0, None);
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == text.get(t) {
            p += 1;
            t += 1;
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            p = at + 1;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern.iter().skip(p).all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::model::constraint::Comparison;
    use crate::model::job::{JobKind, RestartPolicy};
    use crate::model::operator::Operator;

    fn group(name: &str, count: u32, cores: &[Option<u32>]) -> TaskGroup {
        let task = |(at, cores): (usize, &Option<u32>)| {
            let mut task = Task::new(&format!("t{at}"), "mock", serde_json::Map::new(), JobKind::Service);
            task.resources.cores = *cores;
            task
        };
        TaskGroup {
            name: name.into(),
            count,
            meta: BTreeMap::new(),
            restart: RestartPolicy::default_for(JobKind::Service),
            shutdown_delay: std::time::Duration::ZERO,
            max_run_duration: None,
            placing: PlacementRules::default(),
            tasks: cores.iter().enumerate().map(task).collect(),
            network: None,
            storage: Default::default(),
            services: Vec::new(),
            health: None,
            update: None,
            reschedule: None,
            ephemeral_disk: crate::model::job::EphemeralDisk::default(),
        }
    }
    fn job(groups: Vec<TaskGroup>) -> Job {
        Job {
            id: "j".into(),
            name: "j".to_owned(),
            kind: JobKind::Service,
            namespace: "default".to_owned(),
            region: "global".to_owned(),
            datacenters: vec!["*".to_owned()],
            node_pool: Job::ANY_POOL.to_owned(),
            meta: BTreeMap::new(),
            placing: PlacementRules::default(),
            launching: crate::model::launching::JobLaunching::default(),
            groups,
            sensitive: Default::default(),
        }
    }
    fn node() -> PlacementNode {
        PlacementNode { identity: NodeIdentity::default(), values: NodeValues::default(), cores: vec![0, 1, 2, 3] }
    }
    fn rack(value: &str) -> NodeConstraint {
        let (attribute, operator) = ("${meta.rack}".to_owned(), Operator::Equal);
        NodeConstraint::Holds(Comparison { attribute, operator, value: value.to_owned() })
    }
    fn messages(job: &Job, group: usize, index: u32, node: &PlacementNode) -> Vec<String> {
        unplaced(job, &job.groups[group], index, node).into_iter().map(|one| one.message).collect()
    }

    #[test]
    fn each_constraint_that_fails_is_named_with_the_nodes_value() {
        let mut job = job(vec![group("g", 1, &[None])]);
        assert_eq!(messages(&job, 0, 0, &node()), Vec::<String>::new());
        job.placing.constraints = vec![rack("r1")];
        job.groups[0].placing.constraints = vec![rack("r2")];
        job.groups[0].tasks[0].placing.constraints = vec![rack("r3")];
        let expected = ["job", "group g", "task t0"].iter().zip(["r1", "r2", "r3"]).map(|(of, rack)| {
            format!("constraint of {of} not met: ${{meta.rack}} = {rack}: this node has no ${{meta.rack}}")
        });
        assert_eq!(messages(&job, 0, 0, &node()), expected.collect::<Vec<_>>());
    }

    /// Promise (Input validation): `distinct_hosts` leaves one alloc and the surplus unplaced
    #[test]
    fn distinct_hosts_leaves_one_alloc_of_what_it_stands_in() {
        let mut job = job(vec![group("a", 2, &[None]), group("b", 1, &[None])]);
        job.groups[0].placing.constraints = vec![NodeConstraint::DistinctHosts];
        let placed =
            |job: &Job| [(0, 0), (0, 1), (1, 0)].map(|(group, index)| messages(job, group, index, &node()).is_empty());
        assert_eq!(placed(&job), [true, false, true]);
        job.placing.constraints = vec![NodeConstraint::DistinctHosts];
        assert_eq!(placed(&job), [true, false, false], "of the job: over all its groups");
    }

    #[test]
    fn datacenter_and_pool_count_where_the_node_names_its_own() {
        let mut job = job(vec![group("g", 1, &[None])]);
        (job.datacenters, job.node_pool) = (vec!["dc1".to_owned(), "eu-*".to_owned()], "gpu".to_owned());
        assert_eq!(messages(&job, 0, 0, &node()), Vec::<String>::new());
        for (datacenter, pool, expected) in [
            (Some("dc1"), None, 0),
            (Some("eu-west"), None, 0),
            (Some("us"), None, 1),
            (Some("us"), Some("default"), 2),
            (None, Some("gpu"), 0),
        ] {
            let (datacenter, pool) = (datacenter.map(str::to_owned), pool.map(str::to_owned));
            let identity = NodeIdentity { datacenter, pool, ..NodeIdentity::default() };
            assert_eq!(messages(&job, 0, 0, &PlacementNode { identity, ..node() }).len(), expected);
        }
    }

    #[test]
    fn cores_are_the_lowest_free_ones_and_too_many_are_never_placed() {
        let three = group("g", 1, &[Some(1), None, Some(2)]);
        assert_eq!(choose_cores(&three, &[0, 1, 2, 3], &[1]).unwrap(), [vec![0], vec![], vec![2, 3]]);
        let refused = choose_cores(&three, &[0, 1, 2, 3], &[1, 2]).unwrap_err();
        assert_eq!(refused.message, "group g reserves 3 cores: 2 of 4 are free");
        let five = job(vec![group("g", 1, &[Some(5)])]);
        assert_eq!(messages(&five, 0, 0, &node()), ["group g reserves 5 cores: this node has 4"]);
        let none = PlacementNode { cores: Vec::new(), ..node() };
        assert_eq!(unplaced(&five, &five.groups[0], 0, &none)[0].reason, PlacementReason::Cores);
    }

    #[test]
    fn an_affinity_score_is_the_share_of_weights_that_hold() {
        let affinity = |operator, weight| NodeAffinity {
            comparison: Comparison { attribute: "${meta.rack}".to_owned(), operator, value: String::new() },
            weight,
        };
        let holds = |weight| affinity(Operator::IsNotSet, weight);
        let fails = |weight| affinity(Operator::IsSet, weight);
        for (affinities, expected) in [
            (vec![], None),
            (vec![holds(50)], Some(1.0)),
            (vec![holds(-50)], Some(-1.0)),
            (vec![holds(50), fails(50)], Some(0.5)),
            (vec![fails(100)], Some(0.0)),
        ] {
            assert_eq!(affinity_score(&affinities, &node()), expected);
        }
    }

    proptest! {
        #[test]
        fn chosen_cores_are_disjoint_and_free(
            cores in proptest::collection::vec(proptest::option::of(0..4_u32), 1..4),
            taken in proptest::collection::vec(0..16_u32, 0..16),
        ) {
            let group = group("g", 1, &cores);
            if let Ok(chosen) = choose_cores(&group, &(0..16).collect::<Vec<_>>(), &taken) {
                let mut all = chosen.concat();
                prop_assert!(all.iter().all(|core| !taken.contains(core)));
                let before = all.len();
                all.sort_unstable();
                all.dedup();
                prop_assert_eq!((all.len(), before), (cores_of(&group), cores_of(&group)));
            }
        }

        #[test]
        fn a_pattern_without_stars_matches_itself_alone(text in "[ab]{0,6}", other in "[ab*]{0,6}") {
            prop_assert!(matches_glob(&text, &text) && matches_glob("*", &text));
            let regex = format!("^{}$", other.replace('*', ".*"));
            prop_assert_eq!(matches_glob(&other, &text), regex::Regex::new(&regex).unwrap().is_match(&text));
        }
    }
}
