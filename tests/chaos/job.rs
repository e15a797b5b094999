//! Job files in which every task notes its start, and the ends that the pure model of the runner allows them.

use std::collections::BTreeSet;
use std::path::Path;

use allostat::model::task::Outcome;
use allostat::runner::explore::{self, Course, CourseEnd, Demand};
use serde_json::Value;

/// A task: `exec` replaces a shell that has noted the start. `head`: what else its stanza says.
pub fn task(name: &str, head: &str, starts: &Path, exec: &str) -> String {
    let note = format!("echo \\\"$NOMAD_ALLOC_ID $NOMAD_TASK_NAME\\\" >> {}", starts.display());
    format!(
        "task \"{name}\" {{\n{head}\ndriver = \"raw_exec\"\nkill_timeout = \"2s\"\nconfig {{\ncommand = \"/bin/sh\"\n\
         args = [\"-c\", \"{note}; {exec}\"]\n}}\n}}\n"
    )
}

pub fn job(id: &str, kind: &str, count: u32, attempts: u32, tasks: &[String]) -> String {
    let mode = "interval = \"1h\"\ndelay = \"100ms\"\nmode = \"fail\"";
    format!(
        "job \"{id}\" {{\ntype = \"{kind}\"\ngroup \"g\" {{\ncount = {count}\nreschedule {{\nattempts = 0\nunlimited = false\n}}\nrestart {{\nattempts = {attempts}\n{mode}\n}}\n{}}}\n}}\n",
        tasks.concat()
    )
}

pub fn hook(hook: &str, sidecar: bool) -> String {
    format!("lifecycle {{\nhook = \"{hook}\"\nsidecar = {sidecar}\n}}")
}

pub fn tasks(alloc: &Value) -> impl Iterator<Item = (&String, &Value)> {
    alloc["tasks"].as_object().unwrap().iter()
}

/// Every end that an alloc of this job can come to: of each of its tasks what it does by itself, then what is asked of
/// it.
pub fn ends(hcl: &str, scripts: &[Course], requests: &[Demand]) -> BTreeSet<CourseEnd> {
    explore::ends(&allostat::jobspec::parse("job.hcl", hcl).unwrap().job, scripts, requests)
}

/// How an alloc ended, as the API reports it.
pub fn end(alloc: &Value) -> CourseEnd {
    let tasks = alloc["definition"]["groups"][0]["tasks"].as_array().unwrap();
    let exits = |task: &Value| {
        let by_outcome = &alloc["tasks"][task["name"].as_str().unwrap()]["exits_by_outcome"];
        Outcome::ALL.map(|outcome| by_outcome[outcome.as_str()].as_u64().unwrap())
    };
    CourseEnd {
        state: serde_json::from_value(alloc["status"].clone()).unwrap(),
        exits: tasks.iter().map(exits).collect(),
    }
}
