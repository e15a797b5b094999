//! Whether the time of a refusal reveals which part was wrong: users, passwords and tokens that are wrong in different
//! ways, asked of a real agent in turns and in random order, each way beside another.
//!
//! z is that of the rank-sum test: of one way beside itself it is below 2 in 19 of 20 runs, of two that differ it grows
//! with the number of questions. The hash of the passwords is of the lowest cost, so that what else there is stands out
//! the most. A token of another length than the right one fills as many blocks of its sum.
//!
//! `cargo bench --bench access [-- QUESTIONS]`: so many of each way; of passwords a tenth.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../src/model/fuzzed.rs"]
#[allow(dead_code)]
mod fuzzed;
mod shared;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use common::{Agent, AgentOptions, is_root};
use fuzzed::Fuzz;
use shared::{end, median, report};

/// 32 characters.
const TOKEN: &str = "2f9c1d7e55aa4b0c9d3e8f7a61b2c3d4";

fn main() {
    let questions = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(20_000);
    if !is_root() {
        println!("the agent's figures need root: cgroups");
        return;
    }
    let files = common::test_dir();
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        fs::write(&path, text).expect("our own directory");
        path.display().to_string()
    };
    let hash = bcrypt::hash("secret", 4).expect("a hash");
    let web = file("web.yml", &format!("basic_auth_users:\n  alice: {hash}\n  berta: {hash}\n"));
    let tokens = file("tokens", &format!("{TOKEN}\n"));
    let config = format!("agent {{\n  web_config_file = \"{web}\"\n  token_file = \"{tokens}\"\n}}\n");
    let mut agent = Agent::to_start(AgentOptions { config, ..AgentOptions::default() });
    agent.start_behind_its_socket();

    let basic = |user: &str, password: &str| format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
    let bearer = |token: &str| format!("Bearer {token}");
    let mut line = Line::to(agent.address);
    assert_eq!(line.request(&basic("alice", "secret")), 200, "she is remembered from now on");
    compare(
        &mut line,
        "access/password-most",
        questions / 10,
        &[
            ("wrong-password", basic("alice", "sfcret")),
            ("wrong-password-again", basic("alice", "sfcret")),
            ("wrong-user", basic("malle", "sfcret")),
            ("wrong-user-right-password", basic("malle", "secret")),
            ("user-not-remembered", basic("berta", "sfcret")),
            ("nearly-right-password", basic("alice", "secreu")),
        ],
    );
    let wrong = "0".repeat(32);
    compare(
        &mut line,
        "access/token-most",
        questions,
        &[
            ("wrong-token", bearer(&wrong)),
            ("wrong-token-again", bearer(&wrong)),
            ("nearly-right-token", bearer(&format!("{}5", &TOKEN[..31]))),
            ("half-right-token", bearer(&format!("{}{}", &TOKEN[..16], &wrong[..16]))),
            ("shorter-token", bearer(&wrong[..31])),
            ("longer-token", bearer(&format!("{wrong}0"))),
        ],
    );
    drop(line);
    end(agent);
}

/// Asks each of these so often, and reports how each differs from the first.
fn compare(line: &mut Line, row: &str, questions: usize, ways: &[(&str, String)]) {
    let (mut fuzz, mut took) = (Fuzz::new(1), vec![Vec::with_capacity(questions); ways.len()]);
    let mut order: Vec<usize> = (0..ways.len()).collect();
    for round in 0..questions + questions / 10 {
        // Each round all of them, in an order of its own.
        (1..order.len()).rev().for_each(|at| order.swap(at, fuzz.below(at + 1)));
        for way in &order {
            let began = Instant::now();
            assert_eq!(line.request(&ways[*way].1), 401);
            // The first ones warm up.
            if round >= questions / 10 {
                took[*way].push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
    }
    let base = median(&mut took[0]);
    let (first, rest) = took.split_first_mut().expect("there are ways");
    report(&format!("access/{}", ways[0].0), base, "us, median", None);
    let mut most = 0.0_f64;
    for ((name, _), times) in ways[1..].iter().zip(rest) {
        let (middle, z) = (median(times), rank_sum(first, times));
        report(
            &format!("access/{name}"),
            middle - base,
            &format!("us more, median; z {z:.2}"),
            Some((middle / base, ways[0].0)),
        );
        most = most.max(z.abs());
    }
    report(row, most, "z, the greatest of them", None);
}

/// The z of the Mann-Whitney test: how far two samples are from being of one kind.
#[allow(clippy::cast_precision_loss)] // Some ten thousands.
fn rank_sum(a: &[f64], b: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> =
        a.iter().map(|value| (*value, true)).chain(b.iter().map(|value| (*value, false))).collect();
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    // Times of nanoseconds hardly ever tie.
    let ranks: f64 = all.iter().enumerate().filter(|(_, (_, is_a))| *is_a).map(|(rank, _)| rank as f64 + 1.0).sum();
    let (n, m) = (a.len() as f64, b.len() as f64);
    let expected = n * (n + m + 1.0) / 2.0;
    (expected - ranks) / (n * m * (n + m + 1.0) / 12.0).sqrt()
}

/// One connection, question after question.
struct Line(BufReader<TcpStream>);

impl Line {
    fn to(address: SocketAddr) -> Line {
        let stream = TcpStream::connect(address).expect("the agent listens");
        stream.set_nodelay(true).expect("a socket");
        Line(BufReader::new(stream))
    }
    /// The status of the answer.
    fn request(&mut self, authorization: &str) -> u16 {
        let request = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).expect("the agent listens");
        let (mut line, mut status, mut length) = (String::new(), 0, 0);
        while line != "\r\n" {
            line.clear();
            self.0.read_line(&mut line).expect("it answers");
            let lower = line.to_ascii_lowercase();
            if let Some(rest) = lower.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().expect("a status");
            } else if let Some(rest) = lower.strip_prefix("content-length: ") {
                length = rest.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a whole answer");
        status
    }
}
