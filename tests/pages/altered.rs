//! A server between a browser and an agent, which answers some paths itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use crate::common::tcp;

/// `answers`: the head and the body of the answer to a path.
pub fn serve(answers: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answers = Arc::new(answers);
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

pub fn json(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n");
    format!("{head}connection: close\r\n\r\n{body}").into_bytes()
}

/// The answer of the agent.
pub fn of(agent: SocketAddr, path: &str) -> Vec<u8> {
    let answer = tcp(agent, "GET", path, &[("accept", "text/html")], b"").unwrap();
    let mut bytes = format!("HTTP/1.1 {}\r\nconnection: close\r\n", answer.status).into_bytes();
    let own = answer.headers.iter().filter(|(name, _)| name != "connection" && name != "transfer-encoding");
    for (name, value) in own {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&answer.body);
    bytes
}
