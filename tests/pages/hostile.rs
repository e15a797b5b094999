//! Names from outside stay text: the files of a real agent, served with a table that no agent would answer.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use serde_json::json;

use super::browser::document;
use super::devtools::chromium;
use crate::common::{Agent, tcp};

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

/// The head and the body of an answer to a path.
type Answers = Arc<dyn Fn(&str) -> Vec<u8> + Send + Sync>;

fn serve(answers: Answers) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answers = Arc::clone(&answers);
            std::thread::spawn(move || answer(stream, &*answers));
        }
    });
    address
}

fn answer(mut stream: TcpStream, answers: &(dyn Fn(&str) -> Vec<u8> + Send + Sync)) {
    let (mut head, mut piece) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(read) if read > 0 => head.extend_from_slice(&piece[..read]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
    // A browser that has ended takes nothing.
    let _ = stream.write_all(&answers(&path));
}

#[test]
fn browser_page_shows_names_with_markup_or_reordering_marks_as_text() {
    let Some(chromium) = chromium() else { crate::skip_test!("no-chromium") };
    let agent = Agent::start();
    let real = agent.address;
    let answers = move |path: &str| {
        if path.starts_with("/v1/") {
            let body =
                if path == "/v1/tasks" { table() } else { json!({"code": "none", "message": MARKUP}).to_string() };
            let status = if path == "/v1/tasks" { "200 OK" } else { "404 Not Found" };
            let head =
                format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n", body.len());
            return format!("{head}connection: close\r\n\r\n{body}").into_bytes();
        }
        let answer = tcp(real, "GET", path, &[("accept", "text/html")], b"").unwrap();
        let mut bytes = b"HTTP/1.1 200 OK\r\nconnection: close\r\n".to_vec();
        for (name, value) in
            answer.headers.iter().filter(|(name, _)| name != "connection" && name != "transfer-encoding")
        {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&answer.body);
        bytes
    };
    let address = serve(Arc::new(answers));
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
