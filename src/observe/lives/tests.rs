//! Single orders of events.
//!
//! Promise (Short tasks): Usage inside an observed task is counted once; a task that existed before continues from its
//! values
//! Promise (Observed workloads): The name of a renamed container follows; its ID, workload and start stay, over a
//! restart of the agent too
//! Promise (Observed workloads): Each life of containers that fail and restart at once is recorded once, at its own
//! time, with its CPU time

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::*;
use crate::kernel::bpf::exits::{EndNotes, ProcessEnd};
use crate::model::alloc::AllocSource;
use crate::model::units::Timestamp;
use crate::observe::exits::{EndReport, facts_of};
use crate::observe::identity::{CgroupParts, CgroupVerdict, RecognisedTask, TaskNaming};
use crate::observe::tree::{CgroupTree, PathVerdict};

const CODE_3: ProcessEnd = ProcessEnd { status: 3 << 8, oom_victim: false };
const NONE: EndNotes = EndNotes { count: 0, last: None, init: None, last_at: 0, first_start: 0 };

fn ended(at: u64) -> EndNotes {
    EndNotes { count: 1, last: Some(CODE_3), last_at: at, first_start: at - 5, ..NONE }
}

/// A host at one moment. A task is the number of its cgroup, and so is an end record.
struct MomentHost {
    now: Instant,
    inode: Option<u64>,
    stands: bool,
    numbers: Cell<u64>,
}

/// Lives are measured by numbers.
#[derive(Debug, Default)]
struct NumberMeasures;

impl LifeTypes for NumberMeasures {
    type Task = u64;
    type Cgroup = u64;
    type Record = u64;
}

impl PathFacts<NumberMeasures> for MomentHost {
    fn now(&self) -> Instant {
        self.now
    }
    fn number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }
    fn inode(&self) -> Option<u64> {
        self.inode
    }
    fn is_scanned(&self) -> bool {
        self.inode.is_some()
    }
    fn exists(&self) -> bool {
        self.stands
    }
    fn is_of(&self, task: &u64, raw: &u64) -> bool {
        task == raw
    }
    fn cgroup(&self, task: &u64) -> u64 {
        *task
    }
    fn is_of_cgroup(&self, cgroup: &u64, raw: &u64) -> bool {
        cgroup == raw
    }
    fn admits(&self, _: &RecognisedTask, naming: &TaskNaming) -> Result<(), HiddenReason> {
        if naming.native == "excluded" { Err(HiddenReason::Excluded) } else { Ok(()) }
    }
    fn keeps(&self, _: &RecognisedTask, naming: &TaskNaming) -> bool {
        naming.native != "excluded"
    }
    fn measure(&self, life: &RecordedLife<NumberMeasures>) -> Result<u64, HiddenReason> {
        Ok(life.records[0].raw)
    }
    fn has_room_for_name(&self) -> bool {
        true
    }
    fn is_named(&self, found: &RecognisedTask) -> bool {
        found.is_plain()
    }
    fn is_named_late(&self, _: &RecognisedTask) -> bool {
        false
    }
}

/// One path, and what was done there.
struct ScriptedPath {
    host: MomentHost,
    lives: Option<Lives<NumberMeasures>>,
    done: Vec<String>,
}

impl ScriptedPath {
    fn new() -> ScriptedPath {
        let host = MomentHost { now: Instant::now(), inode: None, stands: false, numbers: Cell::new(0) };
        ScriptedPath { host, lives: Some(Lives::default()), done: Vec::new() }
    }
    fn happens(&mut self, event: LifeEvent<NumberMeasures>) -> &mut ScriptedPath {
        let (lives, actions) = step(self.lives.take().unwrap(), event, &self.host);
        self.lives = Some(lives);
        self.done.extend(actions.iter().filter_map(|action| match action {
            LifeAction::QueryName { .. } => Some("query name".to_owned()),
            LifeAction::QueryExit { number, .. } => Some(format!("query exit {number}")),
            LifeAction::Show { task, naming, .. } => Some(format!("show {task} as {}", naming.native)),
            LifeAction::End { life, .. } => Some(format!("end {}", life.task)),
            LifeAction::Stop { life, facts: Some(_), .. } => Some(format!("stop {}", life.task)),
            LifeAction::Stop { life, facts: None, .. } => Some(format!("stop {}, unknown", life.task)),
            LifeAction::Cover => Some("cover".to_owned()),
            LifeAction::Add { task, raw, .. } => Some(format!("add {raw} to {task}")),
            LifeAction::Miss(why) => Some(format!("miss {why:?}")),
            LifeAction::Rename { naming, .. } => Some(format!("rename to {}", naming.native)),
            LifeAction::Listen
            | LifeAction::Watch { .. }
            | LifeAction::Measure(_)
            | LifeAction::Release { .. }
            | LifeAction::Hide(_) => None,
            LifeAction::DropRecovered => Some("drop recovered".to_owned()),
        }));
        self
    }
    fn after(&mut self, ms: u64) -> &mut ScriptedPath {
        self.host.now += Duration::from_millis(ms);
        self
    }
    fn lives(&self) -> &Lives<NumberMeasures> {
        self.lives.as_ref().unwrap()
    }
    fn done(&mut self) -> Vec<String> {
        std::mem::take(&mut self.done)
    }
    /// A cgroup with this number is checked and found to be a task.
    fn begins(&mut self, found: RecognisedTask, inode: u64) -> &mut ScriptedPath {
        self.host.inode = Some(inode);
        let life = MeasuredLife { found, task: inode, inode: Some(inode), notes: LifeExits::default() };
        self.happens(LifeEvent::Checked(CheckOutcome::Ready(Box::new(life))))
    }
    fn recovers(&mut self, naming: TaskNaming, is_counted: bool) -> &mut ScriptedPath {
        self.happens(LifeEvent::Recovered(Box::new(RecoveredLife { naming, since: None, is_counted })))
    }
    fn record(
        &mut self,
        found: RecognisedTask,
        hierarchy: usize,
        notes: EndNotes,
        raw: u64,
        below: Option<&str>,
    ) -> &mut ScriptedPath {
        let record = RemovalRecord { hierarchy, notes, is_whole: hierarchy == 9, raw };
        let below = below.map(str::to_owned);
        self.happens(LifeEvent::Record { below, record, found: Box::new(found) })
    }
}

fn plain() -> RecognisedTask {
    RecognisedTask::plain("/a/b")
}
fn container() -> RecognisedTask {
    RecognisedTask::container(AllocSource::Docker, &"0123456789abcdef".repeat(4))
}
fn named(name: &str) -> LifeEvent<NumberMeasures> {
    LifeEvent::Named(Some(Box::new(TaskNaming::of(name))))
}

#[test]
fn cgroup_that_existed_throughout_counts_again_and_a_recreated_one_does_not() {
    let mut path = ScriptedPath::new();
    assert!(!path.lives().includes_other_usage(1));
    path.begins(plain(), 1).happens(LifeEvent::NoTask);
    assert_eq!(path.done(), ["show 1 as /a/b", "cover"], "something is inside of it");
    assert!(path.lives().includes_other_usage(1) && !path.lives().includes_other_usage(2));
    path.begins(plain(), 1);
    path.host.inode = None;
    path.happens(LifeEvent::NoTask);
    assert_eq!(path.done(), ["show 1 as /a/b", "end 1"], "it was removed");
    assert!(!path.lives().includes_other_usage(1));
    path.begins(plain(), 2);
    path.host.inode = Some(3);
    path.happens(LifeEvent::NoTask);
    assert_eq!(path.done(), ["show 2 as /a/b", "end 2"], "it was created again before it was seen");
}

#[test]
fn cgroup_above_tasks_counts_for_its_inode_until_it_is_removed() {
    let mut path = ScriptedPath::new();
    path.happens(LifeEvent::Above(Some(5)));
    assert!(path.lives().includes_other_usage(5));
    assert!(!path.lives().includes_other_usage(8), "it was created again");
    path.happens(LifeEvent::Removed);
    assert!(!path.lives().includes_other_usage(5), "the number is used again");
}

#[test]
fn created_cgroup_is_young_until_it_has_a_child() {
    let mut path = ScriptedPath::new();
    path.happens(LifeEvent::Made(Some(Timestamp(5)))).happens(LifeEvent::Made(Some(Timestamp(6))));
    assert_eq!(path.lives().made_at(), Some(Timestamp(5)));
    path.happens(LifeEvent::Grew);
    assert_eq!(path.lives().made_at(), None);
    path.happens(LifeEvent::Made(Some(Timestamp(7)))).happens(LifeEvent::Removed);
    assert_eq!(path.lives().made_at(), None);
}

#[test]
fn unnamed_container_is_queried_with_growing_pauses_until_it_is_named_or_gone() {
    let mut path = ScriptedPath::new();
    path.begins(container(), 1).happens(LifeEvent::Named(None));
    assert_eq!(path.done(), ["query name", "show 1 as 0123456789ab"]);
    let mut queried = Vec::new();
    for second in 1..20 {
        path.after(1_000).happens(LifeEvent::Due);
        if !path.done().is_empty() {
            queried.push(second);
            path.happens(LifeEvent::Named(None));
        }
    }
    assert_eq!(queried, [1, 3, 7, 15]);
    path.happens(LifeEvent::NotQueued { again: true }).after(1_000).happens(LifeEvent::Due);
    assert_eq!(path.done(), ["query name"], "soon, if it was not queued");
    path.happens(named("web")).after(1_000_000).happens(LifeEvent::Due);
    assert_eq!(path.done(), ["rename to web"]);
}

#[test]
fn renamed_container_is_queried_for_its_name_and_retains_its_workload() {
    let of = |name: &str, workload: &str| TaskNaming { workload: Some(workload.to_owned()), ..TaskNaming::of(name) };
    let mut path = ScriptedPath::new();
    path.begins(container(), 1).happens(LifeEvent::Renamed);
    assert_eq!(path.done(), ["query name"], "the query is under way");
    path.happens(LifeEvent::Named(Some(Box::new(of("web", "web"))))).happens(LifeEvent::Renamed);
    path.happens(LifeEvent::Named(Some(Box::new(of("web-old", "web-old")))));
    assert_eq!(path.done(), ["show 1 as web", "query name", "rename to web-old"]);
    let known = path.lives().name.as_ref().map(|known| (known.0.native.clone(), known.0.workload.clone()));
    assert_eq!(known, Some(("web-old".to_owned(), Some("web".to_owned()))));

    // What an earlier agent counted under a name is counted there.
    let mut path = ScriptedPath::new();
    path.recovers(of("web", "web"), false).begins(container(), 1);
    path.happens(LifeEvent::Named(Some(Box::new(of("web-old", "web-old")))));
    assert_eq!(path.done(), ["query name", "show 1 as web", "rename to web-old"]);
    let workload = path.lives().name.as_ref().and_then(|known| known.0.workload.clone());
    assert_eq!(workload.as_deref(), Some("web"));
}

#[test]
fn cgroup_removals_from_each_hierarchy_are_one_life_and_a_later_removal_another() {
    let mut path = ScriptedPath::new();
    for hierarchy in [3, 7, 9] {
        path.record(plain(), hierarchy, ended(50), 1, None);
    }
    let hierarchies = path.lives().gathers().expect("records are gathered");
    assert!([3, 7, 9].iter().all(|hierarchy| hierarchies(*hierarchy)) && !hierarchies(4));
    path.happens(LifeEvent::Gathered { is_followed: false });
    assert!(path.done().is_empty(), "more may come");
    path.host.stands = true;
    path.after(30).happens(LifeEvent::Gathered { is_followed: false });
    assert!(path.done().is_empty() && !path.lives().is_gathered(path.host.now), "another hierarchy has it yet");
    path.host.stands = false;
    path.after(20).happens(LifeEvent::Gathered { is_followed: false });
    assert_eq!(path.done(), ["show 1 as /a/b", "end 1"]);

    // A late record is no life of its own; a second removal is.
    path.record(plain(), 1, ended(50), 1, None);
    assert!(path.lives().gathers().is_none());
    path.record(plain(), 3, ended(90), 2, None);
    assert!(path.lives().gathers().is_some());
    path.after(20).happens(LifeEvent::Gathered { is_followed: false });
    assert_eq!(path.done(), ["show 2 as /a/b", "end 2"]);
    path.after(10_000).happens(LifeEvent::Sweep).happens(LifeEvent::NoTask).after(20).happens(LifeEvent::NoTask);
    assert!(path.lives().is_blank(), "{:?}", path.lives());
}

#[test]
fn hierarchy_record_after_the_one_of_the_shown_life_is_a_later_life() {
    let mut path = ScriptedPath::new();
    path.begins(plain(), 1);
    path.record(plain(), 3, ended(50), 2, None).after(20).happens(LifeEvent::Gathered { is_followed: false });
    assert_eq!(path.done(), ["show 1 as /a/b"], "the observed life has no record: it was part of that");
    path.record(plain(), 3, ended(40), 1, None).record(plain(), 3, ended(60), 2, None);
    path.after(20).host.inode = None;
    path.happens(LifeEvent::Gathered { is_followed: false });
    assert_eq!(path.done(), ["add 1 to 1", "end 1", "show 2 as /a/b", "end 2"]);
}

#[test]
fn ends_inside_of_a_container_belong_to_the_container() {
    let mut path = ScriptedPath::new();
    path.record(container(), 9, ended(50), 7, Some("/docker/c/inner")).record(container(), 9, NONE, 1, None);
    path.after(20).happens(LifeEvent::Gathered { is_followed: false });
    assert_eq!(path.done(), ["query name"], "it has run, although its own record has nothing of it");
    path.happens(named("web"));
    assert_eq!(path.done(), ["show 1 as web", "query exit 1"]);
}

#[test]
fn container_lives_are_shown_in_order_once_the_name_is_available() {
    let mut path = ScriptedPath::new();
    path.begins(container(), 1);
    path.host.inode = None;
    path.record(container(), 3, ended(40), 1, None).happens(LifeEvent::NoTask);
    for life in [2, 3] {
        path.record(container(), 3, ended(40 + life), life, None)
            .after(20)
            .happens(LifeEvent::Gathered { is_followed: false });
    }
    assert_eq!(path.done(), ["query name", "add 1 to 1"], "they wait for the name");
    path.happens(named("web"));
    let shown = ["show 1 as web", "query exit 1", "end 1", "show 2 as web", "query exit 2", "end 2", "show 3 as web"];
    assert_eq!(path.done(), [&shown[..], &["query exit 3"]].concat());
    path.happens(LifeEvent::Exited { number: 2, report: EndReport::Refused });
    assert!(path.done().is_empty(), "that one has ended");
    path.happens(LifeEvent::Exited { number: 3, report: EndReport::Refused });
    assert_eq!(path.done(), ["end 3"]);
}

#[test]
fn records_that_come_below_it_all_the_time_are_gathered_for_two_seconds_at_most() {
    let mut path = ScriptedPath::new();
    let mut most = 0;
    for _ in 0..1_000 {
        path.after(10).record(container(), 9, ended(50), 7, Some("/docker/c/inner"));
        if path.lives().is_gathered(path.host.now) {
            path.happens(LifeEvent::Gathered { is_followed: false });
        }
        most = most.max(path.lives().gathering.as_ref().map_or(0, |life| life.records_below.len()));
    }
    assert!((190..210).contains(&most), "{most} records wait");
    for _ in 0..5_000 {
        path.record(container(), 9, ended(50), 7, Some("/docker/c/inner"));
    }
    let waits = path.lives().gathering.as_ref().map(|life| life.records_below.len());
    assert_eq!(waits, Some(1_000), "of a burst");
}

#[test]
fn records_below_one_that_is_not_measured_yet_do_not_hide_it_and_are_its_own() {
    let mut path = ScriptedPath::new();
    path.record(container(), 9, ended(50), 7, Some("/docker/c/inner"));
    assert!(path.lives().gathers().is_none(), "no hierarchy has reported the removal of the container");
    path.begins(container(), 1).after(20).happens(LifeEvent::Gathered { is_followed: false });
    assert_eq!(path.done(), ["query name", "add 7 to 1"]);
}

#[test]
fn container_gone_from_one_hierarchy_is_still_leaving_the_remaining_ones() {
    let mut path = ScriptedPath::new();
    path.begins(container(), 1).happens(named("web")).happens(LifeEvent::Removed);
    path.host.inode = None;
    path.happens(LifeEvent::Vanished);
    assert_eq!(path.done(), ["query name", "show 1 as web", "query exit 1"]);
    assert!(path.lives().is_leaving(path.host.now), "what remains of it is not a new one");
    path.happens(LifeEvent::NoTask);
    assert!(!path.lives().is_leaving(path.host.now));
}

#[test]
fn removed_cgroup_with_tasks_below_it_does_not_count_their_usage_again() {
    let mut path = ScriptedPath::new();
    path.happens(LifeEvent::Above(Some(5))).record(plain(), 9, ended(50), 5, None).happens(LifeEvent::Removed);
    path.after(20).happens(LifeEvent::Gathered { is_followed: false });
    assert!(path.done().is_empty());
    assert!(path.lives().gathering.is_none());
}

#[test]
fn recreated_container_is_checked_while_its_previous_life_waits_for_a_name() {
    let mut path = ScriptedPath::new();
    path.begins(container(), 1).happens(LifeEvent::Removed);
    path.host.inode = None;
    path.happens(LifeEvent::NoTask);
    path.host.inode = Some(2);
    path.happens(LifeEvent::Made(Some(Timestamp(5)))).after(20);
    assert!(path.lives().is_due_for_check(path.host.now), "for what is above it");
    path.happens(LifeEvent::Due);
    assert!(!path.lives().is_due_for_check(path.host.now) && path.lives().next_deadline() > Some(path.host.now));
    path.happens(named("web")).after(20);
    assert!(path.lives().is_due_for_check(path.host.now), "as soon as that one has its name");
}

#[test]
fn cgroup_life_after_one_without_record_is_shown_and_a_late_record_hides_none() {
    let mut path = ScriptedPath::new();
    path.begins(plain(), 1);
    path.host.inode = None;
    path.record(plain(), 3, ended(50), 2, None).after(20).happens(LifeEvent::Gathered { is_followed: false });
    assert_eq!(path.done(), ["show 1 as /a/b", "end 1", "show 2 as /a/b", "end 2"]);
    let mut path = ScriptedPath::new();
    path.begins(plain(), 3).record(plain(), 3, ended(50), 2, None);
    path.after(20).happens(LifeEvent::Gathered { is_followed: false });
    assert_eq!(path.done(), ["show 3 as /a/b"], "it exists");
}

#[test]
fn container_recreated_after_an_excluded_one_is_checked() {
    let mut path = ScriptedPath::new();
    path.begins(container(), 1).happens(named("excluded")).happens(LifeEvent::Removed);
    path.host.inode = Some(2);
    path.happens(LifeEvent::Made(Some(Timestamp(5)))).after(20);
    assert!(path.lives().is_due_for_check(path.host.now));
}

#[test]
fn cgroup_gone_before_its_check_is_missed_once() {
    let mut path = ScriptedPath::new();
    path.host.inode = Some(1);
    path.happens(LifeEvent::Made(Some(Timestamp(5))));
    (path.host.inode, path.host.stands) = (None, true);
    path.happens(LifeEvent::Removed).happens(LifeEvent::Removed);
    assert_eq!(path.done(), ["miss Unseen"]);
}

#[test]
fn container_excluded_by_name_is_set_aside_and_checked_again_if_still_unnamed() {
    let mut path = ScriptedPath::new();
    path.begins(container(), 1).happens(named("excluded"));
    assert!(matches!(path.lives().state(), State::Aside(HiddenReason::Excluded)));
    let mut path = ScriptedPath::new();
    let found = RecognisedTask { naming: TaskNaming::of("excluded"), ..container() };
    path.begins(found, 1).happens(LifeEvent::Named(None));
    assert!(matches!(path.lives().state(), State::Aside(HiddenReason::Undecided)));
    path.happens(named("web"));
    assert!(path.lives().is_due_for_check(path.host.now));
    assert_eq!(path.done(), ["query name"]);
}

#[test]
fn slices_and_helper_cgroups_have_no_owner() {
    let owner = |path: &str| CgroupTree::new("/allostat").owner_of(path);
    assert_eq!(owner("/system.slice"), PathVerdict::None);
    assert_eq!(owner("/batch/1"), PathVerdict::Plain);
    let id = "0123456789abcdef".repeat(4);
    assert_eq!(owner(&format!("/machine.slice/libpod-conmon-{id}.scope")), PathVerdict::None);
    let PathVerdict::Task(path, _) = owner(&format!("/docker/{id}/a/b.service")) else { panic!("a container") };
    assert_eq!(path, format!("/docker/{id}"));
    let PathVerdict::Task(path, _) = owner("/system.slice/x.service/worker") else { panic!("a unit") };
    assert_eq!(path, "/system.slice/x.service");
}

/// systemd is queried about a service, and its reply after the next start is of no use.
#[test]
fn end_of_a_service_waits_for_systemd_until_the_service_starts_again() {
    let service = || {
        let parts = ["system.slice", "web.service"];
        let Some(CgroupVerdict::Task(found)) = crate::observe::recognise(&CgroupParts::new(&parts)) else {
            panic!("it is a service")
        };
        *found
    };
    let mut path = ScriptedPath::new();
    path.begins(service(), 1).happens(named("web.service"));
    path.host.inode = None;
    path.happens(LifeEvent::NoTask);
    assert_eq!(path.done(), ["query name", "show 1 as web.service", "query exit 1"]);
    path.happens(LifeEvent::Exited { number: 1, report: EndReport::Refused });
    assert_eq!(path.done(), ["end 1"]);

    path.begins(service(), 2).happens(named("web.service"));
    path.host.inode = None;
    path.happens(LifeEvent::NoTask).begins(service(), 3).happens(named("web.service"));
    path.happens(LifeEvent::Exited { number: 2, report: EndReport::Refused });
    assert_eq!(
        path.done(),
        ["query name", "show 2 as web.service", "query exit 2", "query name", "end 2", "show 3 as web.service"]
    );
    // One of a user is not queried, and systemd need not respond at all.
    let mut of_user = ScriptedPath::new();
    of_user.begins(service().of_user(1000), 1).happens(named("1000/web.service"));
    of_user.host.inode = None;
    of_user.happens(LifeEvent::NoTask);
    assert_eq!(of_user.done().last().map(String::as_str), Some("end 1"));
    let mut silent = ScriptedPath::new();
    silent.begins(service(), 1).happens(named("web.service"));
    silent.host.inode = None;
    silent.happens(LifeEvent::NoTask).after(11_999).happens(LifeEvent::Due);
    assert_eq!(silent.done().last().map(String::as_str), Some("query exit 1"));
    silent.after(1).happens(LifeEvent::Due);
    assert_eq!(silent.done(), ["end 1"]);
}

/// Fewer fit than under the earlier agent, which counted it.
#[test]
fn recovered_cgroup_without_room_is_counted_once_and_later_counts_from_then_on() {
    let mut path = ScriptedPath::new();
    path.host.inode = Some(1);
    path.recovers(TaskNaming::of("web"), false);
    assert!(!path.lives().includes_other_usage(1), "all of its usage is its own");
    path.happens(LifeEvent::Checked(CheckOutcome::NoRoom)).happens(LifeEvent::Sweep);
    assert_eq!(path.done(), ["drop recovered"]);
    assert!(path.lives().includes_other_usage(1) && !path.lives().includes_other_usage(2));
    path.after(60_000).happens(LifeEvent::Sweep);
    assert_eq!(path.done(), [""; 0], "once");
    assert!(path.lives().includes_other_usage(1), "for as long as it exists");
    // Its end record has all of its usage.
    path.host.inode = None;
    path.happens(LifeEvent::NoTask).record(container(), 3, ended(50), 1, None).after(30);
    path.happens(LifeEvent::Gathered { is_followed: false });
    assert_eq!(path.done(), ["miss Limit"]);
    // What comes after it at the path is its own.
    path.record(container(), 3, ended(70), 2, None).after(30).happens(LifeEvent::Gathered { is_followed: false });
    assert_eq!(path.done(), ["query name"]);

    // There is room for it again.
    let mut path = ScriptedPath::new();
    path.host.inode = Some(1);
    path.recovers(TaskNaming::of("web"), false)
        .happens(LifeEvent::Checked(CheckOutcome::NoRoom))
        .happens(LifeEvent::Sweep);
    path.begins(container(), 1).happens(named("web"));
    assert_eq!(path.done(), ["drop recovered", "query name", "show 1 as web"]);
    path.host.inode = None;
    path.happens(LifeEvent::NoTask);
    assert!(!path.lives().includes_other_usage(1), "its end was counted");
}

#[test]
fn recovered_cgroup_excluded_by_its_name_still_counts() {
    let mut path = ScriptedPath::new();
    path.recovers(TaskNaming::of("excluded"), false).begins(container(), 1);
    assert_eq!(path.done(), ["query name", "drop recovered"]);
    assert!(path.lives().includes_other_usage(1));
}

/// It was covered, or had no room, under the earlier agent.
#[test]
fn recovered_cgroup_with_usage_counted_elsewhere_counts_from_the_agent_start() {
    let mut path = ScriptedPath::new();
    path.host.inode = Some(1);
    path.recovers(TaskNaming::of("web"), true);
    assert!(path.lives().includes_other_usage(1));
    path.begins(container(), 1);
    assert_eq!(path.done(), ["query name", "show 1 as web"], "at once, under its name");
}

/// Below a parent that a user chose, a container of containerd is taken for one of Docker until it is named.
#[test]
fn end_of_a_container_is_queried_at_the_source_of_its_name() {
    let of_containerd = || TaskNaming { source: Some(AllocSource::Containerd), ..TaskNaming::of("build/0123456789ab") };
    let name = |path: &mut ScriptedPath| {
        path.happens(LifeEvent::Named(Some(Box::new(of_containerd()))));
    };
    let mut early = ScriptedPath::new();
    name(early.begins(container(), 1));
    let mut late = ScriptedPath::new();
    name(late.begins(container(), 1).after(2_000).happens(LifeEvent::Due));
    for mut path in [early, late] {
        path.happens(LifeEvent::Emptied)
            .happens(LifeEvent::Exited { number: 1, report: EndReport::Exit(facts_of(3, false, None)) });
        let done = path.done();
        assert_eq!(done[done.len() - 2..], ["query exit 1", "stop 1"]);
    }
    // containerd has forgotten a task whose cgroup is gone.
    let mut removed = ScriptedPath::new();
    name(removed.begins(container(), 1));
    removed.host.inode = None;
    removed.happens(LifeEvent::NoTask);
    assert_eq!(removed.done(), ["query name", "show 1 as build/0123456789ab", "end 1"]);
    // What Nomad runs in a container is known to Docker.
    let mut of_nomad = ScriptedPath::new();
    let naming = TaskNaming { source: Some(AllocSource::Nomad), ..TaskNaming::of("web") };
    of_nomad.begins(container(), 1).happens(LifeEvent::Named(Some(Box::new(naming))));
    of_nomad.host.inode = None;
    of_nomad.happens(LifeEvent::NoTask);
    assert_eq!(of_nomad.done().last().map(String::as_str), Some("query exit 1"));
}

/// The events of what follows are lost: the queue was full, or no directory could be watched.
#[test]
fn stopped_container_does_not_hide_the_cgroup_that_follows_unreported() {
    let of_containerd = || RecognisedTask::container(AllocSource::Containerd, &"5e".repeat(32));
    let stopped = || {
        let mut path = ScriptedPath::new();
        path.begins(of_containerd(), 1).happens(named("web")).happens(LifeEvent::Emptied);
        path.happens(LifeEvent::Exited { number: 1, report: EndReport::Exit(facts_of(3, false, None)) });
        path.after(10_000).happens(LifeEvent::Sweep).happens(LifeEvent::Made(Some(Timestamp(5)))).after(20);
        assert!(!path.lives().is_due_for_check(path.host.now), "it is there in a further hierarchy");
        assert_eq!(path.done().last().map(String::as_str), Some("stop 1"));
        path
    };
    let mut swept = stopped();
    swept.host.inode = Some(2);
    swept.happens(LifeEvent::Sweep);
    assert!(swept.lives().is_due_for_check(swept.host.now) && !swept.lives().includes_other_usage(2));
    let mut made = stopped();
    made.host.inode = Some(2);
    made.happens(LifeEvent::Made(Some(Timestamp(6)))).after(20);
    assert!(made.lives().is_due_for_check(made.host.now));
    let mut occupied = stopped();
    occupied.host.inode = Some(2);
    occupied.happens(LifeEvent::Occupied);
    assert!(occupied.lives().is_due_for_check(occupied.host.now) && !occupied.lives().includes_other_usage(2));
    // Without one that follows.
    let mut removed = stopped();
    removed.host.inode = None;
    removed.happens(LifeEvent::Sweep).happens(LifeEvent::NoTask).after(20_000).happens(LifeEvent::Sweep);
    assert!(matches!(removed.lives().state(), State::Absent));
}

/// Its shim is dead, speaks another protocol, or takes no connection from the agent.
#[test]
fn emptied_container_without_a_report_ends_with_an_unknown_outcome() {
    let begin = || {
        let mut path = ScriptedPath::new();
        let found = RecognisedTask::container(AllocSource::Containerd, &"5e".repeat(32));
        path.begins(found, 1).happens(named("web"));
        path.done();
        (path, 0)
    };
    fn sweep((path, number): &mut (ScriptedPath, u64), report: EndReport) -> Vec<String> {
        *number += 1;
        path.happens(LifeEvent::Emptied).happens(LifeEvent::Exited { number: *number, report });
        assert_eq!(path.done.remove(0), format!("query exit {number}"));
        path.after(10_000);
        path.done()
    }
    let none: [&str; 0] = [];
    let mut refused = begin();
    [(); 2].iter().for_each(|()| assert_eq!(sweep(&mut refused, EndReport::Refused), none));
    assert_eq!(sweep(&mut refused, EndReport::Refused), ["stop 1, unknown"]);
    assert!(matches!(refused.0.lives().state(), State::Aside(HiddenReason::Stopped)));

    // It runs without a process that the kernel counts: in a virtual machine.
    let mut runs = begin();
    for report in [EndReport::Refused, EndReport::Refused, EndReport::Runs].iter().cycle().take(30) {
        assert_eq!(sweep(&mut runs, report.clone()), none);
    }
    // It was not queried.
    let mut late = begin();
    (0..30).for_each(|_| assert_eq!(sweep(&mut late, EndReport::Late), none));
    // It has a process in between.
    let mut occupied = begin();
    for _ in 0..30 {
        assert_eq!(sweep(&mut occupied, EndReport::Refused), none);
        occupied.0.after(10_000);
    }
}

/// containerd keeps a stopped task, with its empty cgroup, until a client deletes it.
#[test]
fn container_stopped_by_its_runtime_ends_once_while_its_cgroup_exists() {
    let of_containerd = || RecognisedTask::container(AllocSource::Containerd, &"5e".repeat(32));
    let exited = |number: u64| LifeEvent::Exited { number, report: EndReport::Exit(facts_of(3, false, None)) };
    let mut path = ScriptedPath::new();
    path.begins(of_containerd(), 1).happens(named("web")).happens(LifeEvent::Emptied);
    path.happens(LifeEvent::Exited { number: 1, report: EndReport::Runs });
    assert_eq!(path.done(), ["query name", "show 1 as web", "query exit 1"], "its shim reports that it runs");
    path.happens(LifeEvent::Emptied).happens(exited(1)).happens(exited(2)).happens(LifeEvent::Emptied);
    assert_eq!(path.done(), ["query exit 2", "stop 1"]);
    assert!(matches!(path.lives().state(), State::Aside(HiddenReason::Stopped)));

    // However late the task is deleted, its end records are of the life that has ended.
    for _ in 0..30 {
        path.after(10_000).happens(LifeEvent::Sweep);
    }
    path.record(of_containerd(), 3, ended(50), 1, None).record(of_containerd(), 7, ended(50), 1, Some("/ns/web/inner"));
    path.happens(LifeEvent::Removed);
    path.host.inode = None;
    path.happens(LifeEvent::NoTask).after(2_000).happens(LifeEvent::Gathered { is_followed: false });
    path.begins(of_containerd(), 2).record(of_containerd(), 9, ended(50), 1, None);
    assert_eq!(path.done(), ["query name"]);
    path.happens(named("web"));
    path.host.inode = None;
    // Its cgroup is removed before its shim replies.
    path.happens(LifeEvent::Emptied).happens(exited(3)).happens(LifeEvent::NoTask);
    assert_eq!(path.done(), ["show 2 as web", "query exit 3", "end 2"]);

    // A process enters the cgroup of a stopped task: it counts from then on.
    let mut path = ScriptedPath::new();
    path.begins(of_containerd(), 1).happens(named("web")).happens(LifeEvent::Emptied).happens(exited(1));
    path.happens(LifeEvent::Occupied);
    assert!(path.lives().is_due_for_check(path.host.now) && path.lives().includes_other_usage(1));
    // The cgroup of any other container exists as long as it runs.
    let mut path = ScriptedPath::new();
    path.begins(container(), 1).happens(named("web")).happens(LifeEvent::Emptied);
    assert_eq!(path.done(), ["query name", "show 1 as web"]);
}
