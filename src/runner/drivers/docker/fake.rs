//! A fake engine for tests: each test determines its responses.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::collectors::{FdBudget, SamplingContext};
use crate::host::clock::SystemClock;
use crate::host::hierarchy::Layout;
use crate::host::roots::Roots;
use crate::model::id::BootId;
use crate::runner::drivers::{DriverContext, DriverSettings, SupervisorPool};

/// `GET /info`, with its body.
pub type RecordedRequest = (String, String);

pub struct FakeEngine {
    _dir: tempfile::TempDir,
    pub socket: PathBuf,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

/// A complete response.
pub fn answer(status: u16, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

impl FakeEngine {
    /// `respond`: the bytes for each request. `None`: the connection is closed.
    pub fn start(respond: impl Fn(&str, &str) -> Option<Vec<u8>> + Send + Sync + 'static) -> FakeEngine {
        FakeEngine::streaming(move |requested, body, stream| {
            if let Some(bytes) = respond(requested, body) {
                let _ = stream.write_all(&bytes);
            }
        })
    }

    /// `respond`: writes to the connection, which is closed when it returns.
    pub fn streaming(respond: impl Fn(&str, &str, &mut UnixStream) + Send + Sync + 'static) -> FakeEngine {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("d.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let requested: Arc<Mutex<Vec<RecordedRequest>>> = Arc::default();
        let (seen, respond) = (Arc::clone(&requested), Arc::new(respond));
        // Ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, respond) = (Arc::clone(&seen), Arc::clone(&respond));
                std::thread::spawn(move || serve(stream, &seen, respond.as_ref()));
            }
        });
        FakeEngine { _dir: dir, socket, requests: requested }
    }

    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }

    pub fn context(&self) -> DriverContext {
        let roots = Roots::default();
        let layout = Layout::detect(&roots).unwrap();
        let endpoint = format!("unix:{}", self.socket.display());
        DriverContext {
            sampling: SamplingContext::new(roots, layout, FdBudget::from_limit()),
            clock: Arc::new(SystemClock),
            boot_id: BootId("b".into()),
            supervisors: SupervisorPool::new("/nowhere".into(), None, 2),
            descriptors: None,
            no_cgroups: Some("a test".to_owned()),
            settings: DriverSettings::from([(("docker", "endpoint"), endpoint)]),
            metrics: Arc::default(),
        }
    }
}

/// Samples come from the container's cgroup: the engine's own statistics cost it a second of work each time.
impl Drop for FakeEngine {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let requests = self.requests();
            assert!(requests.iter().all(|(line, _)| !line.contains("/stats")), "{requests:?}");
        }
    }
}

fn serve(mut stream: UnixStream, seen: &Mutex<Vec<RecordedRequest>>, respond: &dyn Fn(&str, &str, &mut UnixStream)) {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                let line = head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
                seen.lock().unwrap().push((line.clone(), body.to_owned()));
                return respond(&line, body, &mut stream);
            }
        }
        match stream.read(&mut piece) {
            Ok(read) if read > 0 => all.extend_from_slice(&piece[..read]),
            _ => return,
        }
    }
}
