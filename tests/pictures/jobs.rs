//! What runs: each does one thing that a board is to show.

use crate::common::{allostat, workload};
use crate::gpus::{IDLE, WORKING};

/// One task: what it runs, more of its `config`, its `resources`.
fn task(name: &str, runs: &[&str], config: &str, resources: &str) -> String {
    let (command, args) = runs.split_first().expect("a program");
    format!(
        "task {name:?} {{\n driver = \"raw_exec\"\n kill_timeout = \"200ms\"\n config {{\n command = {command:?}\n args = {args:?}\n {config}\n }}\n \
         resources {{\n {resources}\n }}\n }}\n"
    )
}

/// A service that ends is started again after `delay` seconds, a batch (0) is not.
fn job(name: &str, delay: u32, group: &str, count: u32, tasks: &[String]) -> String {
    let (kind, restart) = match delay {
        0 => {
            let never = "reschedule {\n attempts = 0\n unlimited = false\n }";
            ("batch", format!("{never}\n restart {{\n attempts = 0\n mode = \"fail\"\n }}"))
        }
        _ => (
            "service",
            format!("restart {{\n attempts = 500\n interval = \"24h\"\n delay = \"{delay}s\"\n mode = \"delay\"\n }}"),
        ),
    };
    let tasks = tasks.concat();
    format!("job {name:?} {{\n type = {kind:?}\n group {group:?} {{\n count = {count}\n {restart}\n {tasks} }}\n}}\n")
}

/// Pages in the cache beside a log that grows, pictures that are made smaller at a quota and written, something that
/// leaks, something that gives up now and then.
///
/// The limits on writing are far off: only with one on its disk does cgroup v1 count who writes.
pub fn shop() -> String {
    let (own, work) = (allostat().display().to_string(), workload().display().to_string());
    let resize = format!("while true; do {work} burn 4000 1; sleep 3; {work} touch 40 2500; {work} write 24 .; done");
    let serve = format!("{work} cache 70 100000000 . & while true; do {work} write 1 .; sleep 1; done");
    let tasks = [
        task("frontend", &["/bin/sh", "-c", &serve], "io_write_bps = 1000000000", "memory = 128\n cpu = 300"),
        task(
            "resizer",
            &["/bin/sh", "-c", &resize],
            "cpu_hard_limit = true\n pids_limit = 32\n io_write_bps = 1000000000",
            "memory = 64\n cpu = 300",
        ),
        task("recommender", &[&own, "workload", "leak", "1", "500"], "", "memory = 96\n cpu = 100"),
        task("mailer", &["/bin/sh", "-c", "sleep 130; exit 3"], "", "memory = 32\n cpu = 100"),
    ];
    job("shop", 3, "web", 1, &tasks)
}

/// One that seldom runs: it waits to be started again.
pub fn sync() -> String {
    job("sync", 90, "calendar", 1, &[task("pull", &["/bin/sh", "-c", "sleep 2; exit 1"], "", "memory = 32")])
}

/// Two of the same, with little to do.
pub fn mail() -> String {
    let own = allostat().display().to_string();
    job("mail", 3, "queue", 2, &[task("worker", &[&own, "workload", "steady", "24"], "", "memory = 48\n cpu = 200")])
}

/// Two that hold GPUs.
pub fn training() -> String {
    let (own, work) = (allostat().display().to_string(), workload().display().to_string());
    let tasks = [
        task(
            "train",
            &[&own, "workload", "bursty", "2000", "6000"],
            "",
            &format!("memory = 128\n cpu = 500\n device {WORKING:?} {{}}"),
        ),
        task(
            "notebook",
            &[&work, "touch", "48", "100000000"],
            "",
            &format!("memory = 96\n cpu = 100\n device {IDLE:?} {{}}"),
        ),
    ];
    job("training", 3, "llm", 1, &tasks)
}

/// Two short ones, that end well.
pub fn nightly() -> String {
    let own = allostat().display().to_string();
    job("nightly", 0, "reports", 2, &[task("report", &[&own, "workload", "short", "50"], "", "memory = 32")])
}

/// One that fails.
pub fn import() -> String {
    let work = workload().display().to_string();
    job("import", 0, "csv", 1, &[task("load", &[&work, "exit", "3"], "", "memory = 32")])
}

/// One that ends on SIGTERM, and one that does not.
pub fn ended_by_hand() -> String {
    let work = workload().display().to_string();
    let tasks = ["hold", "stubborn"].map(|does| task(does, &[&work, does, "100000000"], "", "memory = 32"));
    job("migrate", 0, "schema", 1, &tasks)
}

/// A service with one check that passes and one that fails; another version is an update, which fails too.
pub fn services(version: u32, open: u16, closed: u16) -> String {
    let check = |name: &str, port: u16| {
        let tcp = "type = \"tcp\"\n interval = \"5s\"\n timeout = \"1s\"";
        format!("check {{\n name = {name:?}\n port = \"{port}\"\n {tcp}\n }}\n")
    };
    let checks = [check("listens", open), check("backend", closed)].concat();
    let own = allostat().display().to_string();
    let task = task("server", &[&own, "workload", "steady", "16"], "", "memory = 48");
    format!(
        "job \"front\" {{\n type = \"service\"\n meta {{\n version = \"{version}\"\n }}\n group \"edge\" {{\n \
         update {{\n min_healthy_time = \"1s\"\n healthy_deadline = \"20s\"\n progress_deadline = \"0s\"\n }}\n \
         service {{\n name = \"front\"\n port = \"{open}\"\n address = \"127.0.0.1\"\n provider = \"nomad\"\n {checks} }}\n {task} }}\n}}\n"
    )
}

/// One that is launched each minute.
pub fn rotate() -> String {
    let task = task("rotate", &["/bin/sleep", "5"], "", "memory = 32");
    format!(
        "job \"rotate\" {{\n type = \"batch\"\n periodic {{\n cron = \"* * * * *\"\n }}\n group \"g\" {{\n {task} }}\n}}\n"
    )
}
