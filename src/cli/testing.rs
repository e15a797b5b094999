//! An agent as the commands see it: whatever the test says, over a Unix socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use super::connect::AgentConnection;
use crate::host::http::Address;

/// Status and body of the answer to a target; nothing: it breaks off. Events, if the body begins as these do.
pub type Answers = Arc<dyn Fn(&str) -> Option<(u16, String)> + Send + Sync>;

pub const RESTORING: &str = r#"{"code":"not_ready","message":"still restoring"}"#;

/// Goes with the test's process: each connection carries one request.
pub fn agent(answers: Answers) -> (AgentConnection, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answers) = (stream.unwrap(), Arc::clone(&answers));
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let Some(Ok(first)) = lines.next() else { return };
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                let target = first.split(' ').nth(1).unwrap();
                let Some((status, body)) = answers(target) else { return };
                let kind = if body.starts_with("id:") { "text/event-stream" } else { "application/json" };
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                // It may not want the rest.
                let _ = stream.write_all((head + &body).as_bytes());
            });
        }
    });
    (AgentConnection::at(Address::Unix(path)).unwrap(), dir)
}
