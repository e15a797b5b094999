//! Requests in bytes, to the server's own loop: whatever comes, each answer is whole and none says that the agent
//! broke.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::api::http::Origin;
use crate::api::server::connection;
use crate::api::web::ConnectionIdentity;
use crate::model::fuzzed::{Fuzz, each};

const PIECES: [&str; 68] = [
    "GET ",
    "HEAD ",
    "POST ",
    "PUT ",
    "OPTIONS ",
    "get ",
    "CONNECT ",
    "/",
    "/metrics",
    "/metrics/cadvisor",
    "/healthz",
    "/readyz",
    "/v1/allocs",
    "/v1/allocs/",
    "/v1/jobs",
    "/v1/events",
    "/v1/node",
    "/v1/gc",
    "/v1/stats",
    "?",
    "&",
    "=",
    "name[]",
    "since",
    "plan=1",
    "%00",
    "%2e%2e",
    "%",
    "%ff",
    "..",
    "//",
    "*",
    "http://127.0.0.1/",
    " HTTP/1.1",
    " HTTP/1.0",
    " HTTP/2.0",
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    "Host: ",
    "127.0.0.1",
    "localhost:9740",
    "evil.example",
    "Accept: ",
    "text/plain;version=1.0.0",
    "application/openmetrics-text",
    ";q=",
    "0.5",
    "*/*",
    "Accept-Encoding: ",
    "gzip",
    "zstd",
    "Content-Length: ",
    "0",
    "3",
    "18446744073709551616",
    "-1",
    "Transfer-Encoding: chunked\r\n",
    "3\r\nabc\r\n0\r\n\r\n",
    "Authorization: ",
    "Basic ",
    "YTpi",
    "Bearer ",
    "Expect: 100-continue\r\n",
    "Connection: ",
    "Upgrade: websocket\r\n",
    "Content-Type: text/plain\r\n",
];

const GOOD: [&str; 6] = [
    "GET /metrics?name[]=allostat_node_info HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain\r\nAccept-Encoding: gzip;q=0.1, zstd\r\n\r\n",
    "GET /v1/allocs?source=managed&status=running HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YTpi\r\n\r\nHEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /v1/jobs?plan=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\nContent-Length: 62\r\n\r\njob \"j\" {\n group \"g\" {\n task \"t\" {\n driver = \"mock\"\n }\n }\n}\n",
    "POST /v1/jobs?plan=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "GET /v1/allocs/6f1c2f3e/logs/t?stream=stdout&offset=0&limit=10 HTTP/1.1\r\nHost: 127.0.0.1:9740\r\nRange: bytes=0-9\r\n\r\n",
    "GET /v1/events?since=0&limit=3 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /v1/node HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
];

fn request(fuzz: &mut Fuzz) -> Vec<u8> {
    match fuzz.below(5) {
        0 => fuzz.bytes(120),
        1 => fuzz.pieces(&PIECES, 40).into_bytes(),
        // A good line, and anything as headers.
        2 => format!(
            "GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n{}\r\n\r\n",
            fuzz.pieces(&PIECES[7..36], 8),
            fuzz.pieces(&PIECES[36..], 8)
        )
        .into_bytes(),
        _ => {
            let good = fuzz.pick(&GOOD).as_bytes();
            fuzz.damaged(good, &PIECES)
        }
    }
}

/// Every answer in it is whole. Gives how many there are.
fn whole_answers(requests: &[u8], mut rest: &[u8]) -> Result<usize, String> {
    // Behind an answer to a HEAD there is no body, whatever its length says.
    let heads = requests.windows(4).any(|word| word.eq_ignore_ascii_case(b"HEAD"));
    let mut answers = 0;
    while !rest.is_empty() {
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").ok_or("a head without its end")?;
        let head = std::str::from_utf8(&rest[..end]).map_err(|_| "a head that is no text")?;
        let mut lines = head.split("\r\n");
        let status: u16 = lines
            .next()
            .and_then(|line| line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 ")))
            .and_then(|line| line.get(..3)?.parse().ok())
            .ok_or_else(|| format!("no line of a status: {head}"))?;
        if status == 500 || !(100..=599).contains(&status) {
            return Err(format!("the agent says that it broke: {head}"));
        }
        let headers: Vec<(String, &str)> = lines
            .map(|line| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value)))
            .collect::<Option<_>>()
            .ok_or_else(|| format!("a header that is none: {head}"))?;
        let header = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        rest = &rest[end + 4..];
        answers += 1;
        if heads {
            return Ok(answers);
        }
        if status == 100 {
            continue;
        }
        let body = match (header("content-length"), header("transfer-encoding")) {
            (Some(length), None) => {
                let length: usize = length.parse().map_err(|_| format!("no length: {head}"))?;
                let body = rest.get(..length).ok_or_else(|| format!("a body that is cut off: {head}"))?;
                rest = &rest[length..];
                body
            }
            (None, Some("chunked")) => {
                let end = rest.windows(5).position(|five| five == b"0\r\n\r\n").ok_or("chunks without their end")?;
                let body = &rest[..end];
                rest = &rest[end + 5..];
                body
            }
            other => return Err(format!("{other:?} says nothing of the body: {head}")),
        };
        if status >= 400 && header("content-type").is_some_and(|kind| kind.starts_with("application/json")) {
            let error: Value = serde_json::from_slice(body).map_err(|error| format!("{error}: {head}"))?;
            error["code"].as_str().ok_or_else(|| format!("an error without its code: {error}"))?;
        }
    }
    Ok(answers)
}

/// Promise (Input validation): No bytes of a request break the server: each answer is complete, and none is a 500
#[test]
fn no_bytes_break_the_server_and_each_answer_is_whole() {
    let small = Snapshot { version: VERSION, ..Snapshot::empty(Arc::new(node()), Timestamp(1)) };
    let server = start_on(Config::default(), true, small);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 9740));
    let (_stop, stopped) = watch::channel(false);
    let (mut answered, mut waits) = (0, 0);
    each("HTTP requests", 3_000, |fuzz| {
        let requests = request(fuzz);
        let origin = match fuzz.below(4) {
            0 => Origin::Socket,
            _ => Origin::Tcp { peer: address, local: address, operator: false },
        };
        let (mut client, socket) = tokio::io::duplex(1 << 20);
        let reported = runtime.block_on(async {
            let served =
                connection(socket, origin, ConnectionIdentity::default(), Arc::clone(&server.door), stopped.clone());
            let talk = async {
                client.write_all(&requests).await?;
                client.shutdown().await?;
                let mut reported = Vec::new();
                client.read_to_end(&mut reported).await?;
                Ok::<_, std::io::Error>(reported)
            };
            // One that goes on and on is let go.
            let both = async { tokio::join!(served, talk).1 };
            tokio::time::timeout(Duration::from_millis(500), both).await
        });
        match reported {
            Ok(reported) => {
                let reported = reported.unwrap();
                match whole_answers(&requests, &reported) {
                    Ok(answers) => answered += answers,
                    Err(why) => panic!(
                        "{why}\nasked: {:?}\nsaid: {:?}",
                        requests.escape_ascii().to_string(),
                        reported.escape_ascii().to_string()
                    ),
                }
            }
            Err(_) => waits += 1,
        }
    });
    println!("{answered} answers, {waits} that went on");
    assert!(answered > 0);
}
