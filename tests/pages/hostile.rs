//! Names from outside stay text: the files of a real agent, served with a table that no agent would answer.

use serde_json::json;

use super::altered;
use super::browser::document;
use super::devtools::chromium;
use crate::common::Agent;

const MARKUP: &str = "<script>document.title='BROKEN'</script><img src=x onerror=\"document.title='BROKEN'\">";
const ATTRIBUTE: &str = "\"><b onmouseover=alert(1)>x</b>";
const REORDERED: &str = "safe\u{202E}txt.exe\u{202C}";

/// A row of the task table, of a running task.
fn row(id: &str, job: &str, task: &str) -> serde_json::Value {
    json!({"alloc_id": id, "source": "docker", "job": job, "task": task, "of": 1, "measured": "cgroup",
           "state": "running", "restarts": 0, "sampled_at": 1_764_000_000_000_000_000_u64, "usage": [12_000_000, 4096]})
}

fn table() -> String {
    let long = "w".repeat(200);
    let tasks = [(MARKUP, MARKUP), (ATTRIBUTE, "t"), (REORDERED, REORDERED), (&long, &long)];
    let tasks: Vec<_> = tasks.iter().map(|(name, task)| row(name, name, task)).collect();
    json!({"epoch": 1, "since": 0, "taken_at": 1_764_000_000_000_000_000_u64, "ticked_at": 1_764_000_000_000_000_000_u64,
           "host": {"hostname": MARKUP, "cpus": 4}, "devices": 0,
           "fields": ["cpu_usage_ns", "memory_working_set_bytes"], "tasks": tasks})
    .to_string()
}

#[test]
fn browser_page_shows_names_with_markup_or_reordering_marks_as_text() {
    let Some(chromium) = chromium() else { crate::skip_test!("no-chromium") };
    let agent = Agent::start();
    let real = agent.address;
    let address = altered::serve(move |path| match path {
        "/v1/tasks" => altered::json("200 OK", &table()),
        _ if path.starts_with("/v1/") => {
            altered::json("404 Not Found", &json!({"code": "none", "message": MARKUP}).to_string())
        }
        _ => altered::of(real, path),
    });
    let dom = document(&chromium, &format!("http://{address}/"));
    assert_eq!(dom.matches("<script").count(), 1, "the page's own: {dom}");
    assert!(!dom.contains("<b onmouseover") && !dom.contains("<img src=\"x\"") && !dom.contains("<img src=x"), "{dom}");
    assert!(dom.contains("&lt;script&gt;document.title='BROKEN'&lt;/script&gt;"), "it is shown as it is: {dom}");
    let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).unwrap();
    assert!(title.ends_with("· allostat"), "no script of a name has run: {title}");
    assert!(dom.contains("safe\u{FFFD}txt.exe\u{FFFD}"), "marks that reorder text are shown: {dom}");
    assert!(!dom.contains('\u{202E}'), "they reorder nothing: {dom}");
    assert!(dom.contains(&"w".repeat(200)), "a long name is whole, and cut by its style alone");
    agent.stop();
}
