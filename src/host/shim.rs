//! Queries the shim of a containerd task for its state. `State` changes nothing; the shim keeps the exit of a stopped
//! task until a client deletes the task.
//!
//! ```text
//! frame   length u32, stream u32, kind u8, flags u8 │ message
//! ```
//! Source: ttrpc's PROTOCOL.md; `runtime/task/v2/shim.proto` and `types/task/task.proto` of containerd's API, whose
//! third version has the same messages.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use prost::Message;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::peer::Trust;
use crate::model::units::Timestamp;

/// Timeout of a query.
const PATIENCE: Duration = Duration::from_secs(1);
const HEAD: usize = 10;
/// More than a state with all its paths has.
const LARGEST: usize = 64 << 10;
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
/// Clients use odd numbers.
const STREAM: u32 = 1;
const STOPPED: i32 = 3;

/// What a shim reports of its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShimState {
    /// Created, running or paused.
    Alive,
    Stopped {
        code: u8,
        exited_at: Option<Timestamp>,
    },
}

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, tag = "1")]
    service: String,
    #[prost(string, tag = "2")]
    method: String,
    #[prost(bytes = "vec", tag = "3")]
    payload: Vec<u8>,
    #[prost(int64, tag = "4")]
    timeout_ns: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    status: Option<Status>,
    #[prost(bytes = "vec", tag = "2")]
    payload: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct StateRequest {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct StateResponse {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(int32, tag = "4")]
    status: i32,
    #[prost(uint32, tag = "9")]
    exit_status: u32,
    #[prost(message, optional, tag = "10")]
    exited_at: Option<ExitTime>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ExitTime {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// The state of a task. `version`: of the shim's API, 2 or 3.
///
/// Errors: no shim of root's is behind the socket, or it does not answer in time with the state of this task.
pub fn state(socket: &Path, version: u8, id: &str) -> io::Result<ShimState> {
    state_as(socket, version, id, Trust::Root)
}

fn state_as(socket: &Path, version: u8, id: &str, trust: Trust) -> io::Result<ShimState> {
    let until = Instant::now() + PATIENCE;
    let mut stream = connect(socket, trust)?;
    let request = Request {
        service: format!("containerd.task.v{version}.Task"),
        method: "State".to_owned(),
        payload: StateRequest { id: id.to_owned() }.encode_to_vec(),
        timeout_ns: i64::try_from(PATIENCE.as_nanos()).unwrap_or(i64::MAX),
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&frame(&request.encode_to_vec())?)?;
    let mut head = [0; HEAD];
    read_until(&mut stream, &mut head, until)?;
    let mut message = vec![0; length_of(head)?];
    read_until(&mut stream, &mut message, until)?;
    answer(&message, id)
}

/// Never blocks: a shim that accepts no connection has none free.
fn connect(socket: &Path, trust: Trust) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let descriptor: OwnedFd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&descriptor, &SocketAddrUnix::new(socket)?)?;
    let uid = rustix::net::sockopt::socket_peercred(&descriptor)?.uid.as_raw();
    if !trust.covers(uid) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("user {uid} listens on it")));
    }
    let stream = UnixStream::from(descriptor);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn frame(message: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend(STREAM.to_be_bytes());
    frame.extend([REQUEST, 0]);
    frame.extend(message);
    Ok(frame)
}

fn length_of(head: [u8; HEAD]) -> io::Result<usize> {
    let [a, b, c, d, stream @ .., kind, _flags] = head;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).map_err(io::Error::other)?;
    let is_it = stream == STREAM.to_be_bytes() && kind == RESPONSE && length <= LARGEST;
    if is_it { Ok(length) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn read_until(stream: &mut UnixStream, mut bytes: &mut [u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        // A timeout of zero would wait for ever.
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => bytes = &mut bytes[read..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if left.is_zero() && !bytes.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

fn answer(message: &[u8], id: &str) -> io::Result<ShimState> {
    let response = Response::decode(message).map_err(io::Error::other)?;
    if let Some(Status { code }) = response.status.filter(|status| status.code != 0) {
        return Err(io::Error::other(format!("the shim answers with status {code}")));
    }
    let state = StateResponse::decode(response.payload.as_slice()).map_err(io::Error::other)?;
    if state.id != id {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if state.status != STOPPED {
        return Ok(ShimState::Alive);
    }
    let code = u8::try_from(state.exit_status).map_err(io::Error::other)?;
    Ok(ShimState::Stopped { code, exited_at: state.exited_at.and_then(timestamp) })
}

/// `None`: before 1970, as times that were never set are.
fn timestamp(at: ExitTime) -> Option<Timestamp> {
    let (seconds, nanos) = (u64::try_from(at.seconds).ok()?, u64::try_from(at.nanos).ok()?);
    let ns = seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    (ns > 0).then_some(Timestamp(ns))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use proptest::prelude::*;

    use super::*;

    fn state_message(id: &str, status: i32, exit_status: u32) -> Vec<u8> {
        let exited_at = Some(ExitTime { seconds: 1_795_950_000, nanos: 5 });
        let state = StateResponse { id: id.to_owned(), status, exit_status, exited_at };
        Response { status: None, payload: state.encode_to_vec() }.encode_to_vec()
    }

    /// A shim that answers one request with these bytes. Returns the request as well.
    fn query(answer: Vec<u8>, trust: Trust) -> (io::Result<ShimState>, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let shim = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; HEAD];
            if stream.read_exact(&mut head).is_err() {
                return Vec::new();
            }
            let mut request = vec![0; u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize];
            stream.read_exact(&mut request).unwrap();
            let _ = stream.write_all(&answer);
            request
        });
        let state = state_as(&socket, 3, "web", trust);
        (state, shim.join().unwrap())
    }

    fn framed(kind: u8, message: &[u8]) -> Vec<u8> {
        let mut bytes = frame(message).unwrap();
        bytes[8] = kind;
        bytes
    }

    #[test]
    fn state_of_a_task_is_read_as_the_shim_reports_it() {
        let (state, request) = query(framed(RESPONSE, &state_message("web", STOPPED, 137)), Trust::OwnUser);
        let exited_at = Some(Timestamp(1_795_950_000_000_000_005));
        assert_eq!(state.unwrap(), ShimState::Stopped { code: 137, exited_at });
        let request = Request::decode(request.as_slice()).unwrap();
        assert_eq!((&*request.service, &*request.method), ("containerd.task.v3.Task", "State"));
        assert_eq!(StateRequest::decode(request.payload.as_slice()).unwrap().id, "web");
        for alive in [1, 2, 4, 5] {
            let (state, _) = query(framed(RESPONSE, &state_message("web", alive, 0)), Trust::OwnUser);
            assert_eq!(state.unwrap(), ShimState::Alive);
        }
    }

    #[test]
    fn answer_that_is_not_about_the_task_is_an_error() {
        let failed = Response { status: Some(Status { code: 5 }), payload: Vec::new() }.encode_to_vec();
        for answer in [
            framed(RESPONSE, &state_message("other", STOPPED, 0)),
            framed(RESPONSE, &state_message("web", STOPPED, 256)),
            framed(REQUEST, &state_message("web", STOPPED, 0)),
            framed(RESPONSE, &failed),
            framed(RESPONSE, &vec![0; LARGEST + 1]),
            framed(RESPONSE, b"\xff"),
            state_message("web", STOPPED, 0),
            Vec::new(),
        ] {
            assert!(query(answer.clone(), Trust::OwnUser).0.is_err(), "{answer:?}");
        }
    }

    /// Where root runs the tests, the listener is another user; elsewhere it is the user of the tests.
    #[test]
    fn shim_of_another_user_gets_no_byte() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let (socket, is_root) = (dir.path().join("s"), rustix::process::geteuid().is_root());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let at = socket.clone();
        let impostor = std::thread::spawn(move || {
            if is_root {
                let other = rustix::process::Uid::from_raw(65_534);
                // Of this thread alone. The kernel makes the process non-dumpable, as for a setuid program.
                rustix::thread::set_thread_res_uid(other, other, other).unwrap();
                rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable).unwrap();
            }
            let listener = UnixListener::bind(at).unwrap();
            ready.send(()).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        is_ready.recv().unwrap();
        let refused = state(&socket, 3, "web").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
        assert_eq!(impostor.join().unwrap(), b"");
        assert!(state(Path::new("/nowhere/s"), 2, "web").is_err());
    }

    /// Much more than its timeout, on a machine that is busy.
    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn shim_that_is_silent_or_slow_is_left_in_time() {
        let silent: fn(UnixStream) = |stream| {
            std::thread::sleep(LONG);
            drop(stream);
        };
        let slow: fn(UnixStream) = |mut stream| {
            let mut answer = frame(&vec![0; LARGEST]).unwrap();
            answer[8] = RESPONSE;
            for byte in answer.chunks(1).take(200) {
                std::thread::sleep(Duration::from_millis(200));
                if stream.write_all(byte).is_err() {
                    return;
                }
            }
        };
        for shim in [silent, slow] {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("s");
            let listener = UnixListener::bind(&socket).unwrap();
            // It ends with the process, or after its time.
            std::thread::spawn(move || shim(listener.accept().unwrap().0));
            let began = Instant::now();
            let late = state_as(&socket, 3, "web", Trust::OwnUser).unwrap_err();
            assert!(matches!(late.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{late}");
            assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
        }
    }

    #[test]
    fn shim_that_accepts_no_connection_is_left_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let began = Instant::now();
        let connect = |_| connect(&socket, Trust::OwnUser).ok();
        let waiting: Vec<UnixStream> = (0..100).map_while(connect).collect();
        assert!((1..100).contains(&waiting.len()), "{}", waiting.len());
        let full = state_as(&socket, 3, "web", Trust::OwnUser).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    }

    /// One change of an answer.
    #[derive(Debug, Clone)]
    enum Mutation {
        Set(prop::sample::Index, u8),
        Insert(prop::sample::Index, Vec<u8>),
        Cut(prop::sample::Index),
        Repeat(prop::sample::Index),
    }

    fn mutation() -> impl Strategy<Value = Mutation> {
        let index = any::<prop::sample::Index>;
        // Lengths, tags and numbers that do not end.
        let piece = prop_oneof![Just(vec![0xff; 11]), Just(vec![0x0a, 0x7f]), prop::collection::vec(any::<u8>(), 1..8)];
        prop_oneof![
            4 => (index(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
            2 => (index(), piece).prop_map(|(at, piece)| Mutation::Insert(at, piece)),
            1 => index().prop_map(Mutation::Cut),
            1 => index().prop_map(Mutation::Repeat),
        ]
    }

    fn mutated(mut bytes: Vec<u8>, mutations: &[Mutation]) -> Vec<u8> {
        for mutation in mutations {
            if bytes.is_empty() {
                break;
            }
            match mutation {
                Mutation::Set(at, byte) => {
                    let at = at.index(bytes.len());
                    bytes[at] = *byte;
                }
                Mutation::Insert(at, piece) => {
                    let at = at.index(bytes.len());
                    drop(bytes.splice(at..at, piece.iter().copied()));
                }
                Mutation::Cut(at) => {
                    let at = at.index(bytes.len());
                    bytes.truncate(at);
                }
                Mutation::Repeat(at) => {
                    let at = at.index(bytes.len());
                    bytes.extend_from_within(at..);
                }
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn no_answer_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = answer(&bytes, "web");
        }

        /// Of a valid answer, with any numbers.
        #[test]
        fn no_mutated_answer_panics_and_each_end_has_a_code_of_a_process(
            numbers in any::<(i32, u32, i64, i32)>(),
            is_stopped in any::<bool>(),
            mutations in prop::collection::vec(mutation(), 0..4),
        ) {
            let (status, exit_status, seconds, nanos) = numbers;
            let status = if is_stopped { STOPPED } else { status };
            let exited_at = Some(ExitTime { seconds, nanos });
            let state = StateResponse { id: "web".to_owned(), status, exit_status, exited_at };
            let valid = Response { status: None, payload: state.encode_to_vec() }.encode_to_vec();
            let head: [u8; HEAD] = framed(RESPONSE, &valid)[..HEAD].try_into().unwrap();
            prop_assert_eq!(length_of(head).unwrap(), valid.len());
            if let Ok(ShimState::Stopped { code, .. }) = answer(&valid, "web") {
                prop_assert!(status == STOPPED && u32::from(code) == exit_status);
            } else {
                prop_assert!(status != STOPPED || exit_status > 255);
            }
            let _ = answer(&mutated(valid, &mutations), "web");
            let head: Result<[u8; HEAD], _> = mutated(head.to_vec(), &mutations).try_into();
            if let Ok(length) = head.map_err(|_| ()).and_then(|head| length_of(head).map_err(|_| ())) {
                prop_assert!(length <= LARGEST);
            }
        }
    }
}
