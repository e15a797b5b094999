//! Pids that belong to others by now: records that name them cost their own task, and no other process.
//!
//! Promise (Durability and recovery): T-12.2 Processes that now belong to another owner are not touched, whatever a
//! record or handle names

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use allostat::host::process::identity;
use allostat::host::roots::Roots;
use allostat::model::id::{BootId, ProcessId};
use allostat::store::{Batch, SledStore, Store};
use allostat::supervisor::record::{SupervisedStart, SupervisorRecord};

use crate::common::{Agent, patience, wait_for};
use crate::live::survive::{main_pid, parent};
use crate::live::work::{Alloc, Work};

/// What is on record of a task whose processes are gone.
struct Case {
    name: &'static str,
    /// The pids in it are those of living processes; these began at another time.
    stale: bool,
    /// It is of this boot.
    this_boot: bool,
    /// The record of its supervisor is there.
    recorded: bool,
}

const CASES: [Case; 4] = [
    Case { name: "stale", stale: true, this_boot: true, recorded: true },
    Case { name: "stale-removed", stale: true, this_boot: true, recorded: false },
    // Nothing distinguishes them from ours but the boot: another one gave the same numbers.
    Case { name: "booted", stale: false, this_boot: false, recorded: true },
    Case { name: "booted-removed", stale: false, this_boot: false, recorded: false },
];

/// Two processes of ours, each at the head of a session, as a supervisor and a main process are; they end with the
/// test.
pub struct Foreign(Vec<Child>);

impl Foreign {
    pub fn new() -> Foreign {
        let start = |_| Command::new("setsid").args(["sleep", "600"]).spawn().expect("setsid and sleep are there");
        Foreign((0..2).map(start).collect())
    }
    pub fn ids(&self, stale: bool) -> Vec<ProcessId> {
        let id = |child: &Child| {
            let id = identity(child.id()).expect("/proc can be read").expect("it lives");
            ProcessId { start_ticks: id.start_ticks - u64::from(stale), ..id }
        };
        self.0.iter().map(id).collect()
    }
    pub fn untouched(&mut self) -> bool {
        self.0.iter_mut().all(|child| child.try_wait().expect("our own child").is_none())
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// T-12.2. `learned`: main process and supervisor.
fn forge(data: &Path, id: &str, case: &Case, learned: &[ProcessId]) {
    let this = allostat::host::process::boot_id(&Roots::default()).expect("this boot has an id");
    let boot_id = if case.this_boot { this } else { BootId("another-boot".to_owned()) };
    let run_dir = data.join("run").join(id).join(case.name).join("0");
    std::fs::remove_file(run_dir.join("record")).expect("it was there");
    if case.recorded {
        let record = SupervisorRecord::create(&run_dir).expect("a new record");
        let (main, supervisor) = (Some(learned[0]), learned[1]);
        let start = SupervisedStart { boot_id: boot_id.clone(), supervisor, main, started_at: None };
        record.write_start(&start).expect("the record is ours");
        record.unlock().expect("the record is ours");
    }
    let store = SledStore::open(&data.join("state")).expect("no agent is there");
    let key = format!("task/{id}/{}", case.name);
    let value = store.get(&key).expect("it can be read").expect("it is on record");
    let mut task: serde_json::Value = serde_json::from_slice(&value).expect("JSON");
    let handle = &mut task["handle"];
    assert!(handle["supervisor"]["pid"].is_u64(), "its start is on record: {handle}");
    handle["boot_id"] = serde_json::json!(boot_id);
    handle["main"] = serde_json::json!(learned[0]);
    handle["supervisor"] = serde_json::json!(learned[1]);
    let mut batch = Batch::default();
    batch.put(key, serde_json::to_vec(&task).expect("JSON"));
    store.commit(&batch).expect("the disk takes it");
}

#[test]
fn reused_pid_is_left_alone_over_a_whole_restart() {
    let mut agent = Agent::start();
    let running: Vec<(String, u64)> = CASES
        .iter()
        .map(|case| {
            let alloc = Work::batch(case.name, &["hold", "600000"]).run(&agent);
            alloc.ready();
            let pid = main_pid(&alloc);
            (alloc.id, pid)
        })
        .collect();
    // What the record says of each start comes some milliseconds after it.
    let recorded = |agent: &Agent| {
        let of = |(id, _): &(String, u64)| agent.json(&format!("/v1/allocs/{id}"))["tasks"].to_string();
        running.iter().all(|alloc| of(alloc).contains("\"started\""))
    };
    wait_for("all starts to be recorded", Duration::from_secs(10) * patience(), || recorded(&agent).then_some(()));
    agent.kill();
    for (_, main) in &running {
        let supervisor = parent(*main).expect("it runs");
        for pid in [supervisor, *main] {
            let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
            assert!(killed.is_ok_and(|status| status.success()));
            let limit = Duration::from_secs(5) * patience();
            wait_for("it to be gone", limit, || parent(pid).is_none().then_some(()));
        }
    }
    let mut foreign: Vec<Foreign> = CASES.iter().map(|_| Foreign::new()).collect();
    for ((case, (id, _)), foreign) in CASES.iter().zip(&running).zip(&foreign) {
        forge(&agent.data_dir(), id, case, &foreign.ids(case.stale));
    }
    agent.start_again();

    let allocs = || CASES.iter().zip(&running).map(|(case, (id, _))| (case, id));
    let alloc = |case: &Case, id: &String| Alloc { agent: &agent, id: id.clone(), task: case.name.into() };
    allocs().for_each(|(case, id)| alloc(case, id).wait_dead());
    for (case, foreign) in CASES.iter().zip(&mut foreign) {
        assert!(foreign.untouched(), "{}: a foreign process was ended", case.name);
    }
    for (case, id) in allocs() {
        let alloc = alloc(case, id);
        assert_eq!(alloc.exits("unknown"), 1, "{}: how it ended is not known", case.name);
        let shown = agent.json(&format!("/v1/allocs/{id}"));
        let why = shown["tasks"][case.name]["last_exit"]["status"]["unknown"].as_str().unwrap_or_default().to_owned();
        let expected = match (case.this_boot, case.recorded) {
            (false, _) => "the host was restarted meanwhile",
            (true, true) => "its supervisor was killed",
            (true, false) => "its record was removed",
        };
        assert!(why.contains(expected), "{}: {shown}", case.name);
        assert!(shown.get("may_run").is_none(), "{}: {shown}", case.name);
    }
    assert_eq!(agent.metrics().u64("allostat_restore_tasks", &[("outcome", "lost")]), 4);
    agent.stop();
    assert!(foreign.iter_mut().all(Foreign::untouched), "by the agent's end");
}
