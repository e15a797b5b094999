//! Starts and ends of observed workloads as OTLP log records.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::common::{is_root, wait_for};
use crate::observed::live::{Scene, long};

/// A collector that accepts everything, and the bodies that it got.
fn collector() -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let bodies: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let taken = Arc::clone(&bodies);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let taken = Arc::clone(&taken);
            std::thread::spawn(move || serve(stream, &taken));
        }
    });
    (address, bodies)
}

fn serve(mut stream: TcpStream, taken: &Mutex<Vec<Vec<u8>>>) {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 65536]);
    loop {
        let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
        let length = head.and_then(|head| {
            let head = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok())
        });
        if let (Some(head), Some(length)) = (head, length)
            && bytes.len() >= head + length
        {
            let body = bytes[head..head + length].to_vec();
            bytes.drain(..head + length);
            taken.lock().expect("no thread panics with it").push(body);
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err() {
                return;
            }
            continue;
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
        }
    }
}

#[test]
fn starts_and_ends_of_observed_workloads_are_log_records_once_over_a_kill() {
    if !is_root() {
        skip_test!("not-root");
    }
    let (address, bodies) = collector();
    let endpoint = format!("http://{address}");
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_TRACES_EXPORTER", "none"),
    ];
    let mut scene = Scene::new(&env);
    let id = scene.id("short");
    let count = |what: &str| -> usize {
        let has =
            |body: &[u8], text: &str| body.windows(text.len()).filter(|window| *window == text.as_bytes()).count();
        let bodies = bodies.lock().expect("no thread panics with it");
        bodies.iter().filter(|body| has(body, &id) > 0).map(|body| has(body, what)).sum()
    };
    let child = scene.run("short", "exec sleep 1000");
    wait_for("its start", long(), || (count("allostat.task.started") == 1).then_some(()));
    scene.end("short", child);
    wait_for("its end", long(), || (count("allostat.task.terminated") == 1).then_some(()));
    scene.agent.kill();
    scene.start_again();
    let child = scene.run("short", "exec sleep 1000");
    wait_for("its second start", long(), || (count("allostat.task.started") == 2).then_some(()));
    scene.end("short", child);
    wait_for("its second end", long(), || (count("allostat.task.terminated") == 2).then_some(()));
    assert_eq!((count("allostat.task.started"), count("allostat.exit.outcome")), (2, 2), "each once");
}
