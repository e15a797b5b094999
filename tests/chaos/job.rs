//! Job files in which every task notes its start.

use std::path::Path;

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
        "job \"{id}\" {{\ntype = \"{kind}\"\ngroup \"g\" {{\ncount = {count}\nrestart {{\nattempts = {attempts}\n{mode}\n}}\n{}}}\n}}\n",
        tasks.concat()
    )
}

pub fn hook(hook: &str, sidecar: bool) -> String {
    format!("lifecycle {{\nhook = \"{hook}\"\nsidecar = {sidecar}\n}}")
}

pub fn tasks(alloc: &Value) -> impl Iterator<Item = (&String, &Value)> {
    alloc["tasks"].as_object().unwrap().iter()
}
