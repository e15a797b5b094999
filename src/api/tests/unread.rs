//! Clients that request a large answer and read nothing of it.

use super::*;
use crate::model::alloc::AllocIdentity;
use crate::model::id::{AllocId, CgroupPath};
use crate::snapshot::{Aggregation, AllocView};
use crate::telemetry::access::AccessRefusal;

const CLIENTS: u64 = 100;
/// Large answers that are written at once: `unsent::TURNS`.
const TURNS: u64 = 2;
/// Length of the one ID that every alloc of the snapshot has.
const ID: usize = 4 << 10;

/// Its `/v1/stats` has more than [`BODY`] bytes, and the snapshot itself only one alloc.
fn large_stats() -> Snapshot {
    let identity =
        AllocIdentity::of_cgroup(AllocId::from("x".repeat(ID).as_str()), CgroupPath::new("/a".to_owned()), []);
    let alloc = Arc::new(AllocView {
        identity: Arc::new(identity),
        status: None,
        observed: None,
        tasks: Default::default(),
        usage: Arc::default(),
        aggregation: Aggregation::Cgroup,
        sampled_at: None,
        ended: false,
        retired: false,
    });
    Snapshot { allocs: vec![alloc; BODY / ID + 1], ..snapshot() }
}

#[test]
fn unread_stats_hold_two_turns_and_every_other_request_for_them_is_refused() {
    let server = start_on(Config::default(), true, large_stats());
    let is_whole = |answer: &TestResponse| answer.status == 200 && answer.body.len() > BODY;
    assert!(is_whole(&server.tcp("GET", "/v1/stats", "")), "in pieces, whole");
    let unread: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let mut stream = TcpStream::connect(server.tcp).unwrap();
            stream.write_all(request("GET", "/v1/stats", "", "").as_bytes()).unwrap();
            stream
        })
        .collect();
    let refused = || server.metrics.access.count(AccessRefusal::UnsentAnswers);
    eventually("all but two are refused", || refused() == CLIENTS - TURNS);
    assert_eq!(server.tcp("GET", "/healthz", "").status, 200, "small answers wait for no turn");
    assert!(is_whole(&server.unix("GET", "/v1/stats", "")), "the socket has turns of its own");
    assert_eq!(refused(), CLIENTS - TURNS);
    drop(unread);
    eventually("the turns are free again", || is_whole(&server.tcp("GET", "/v1/stats", "")));
}
