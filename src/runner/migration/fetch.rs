//! One transfer: from the peer into a directory of the agent's own, verified before anything else sees it.

use std::cell::Cell;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use rustix::fs::{Mode, OFlags};
use tokio::runtime::Runtime;

use super::install::has_place;
use super::scope::{FETCHED, FetchedData, MigrationError, MigrationScope, STAGING};
use crate::host::http::exchange::{HttpAnswer, Payload, RequestMethod, send_request};
use crate::host::http::{Address, TlsFiles};
use crate::host::peer::Trust;
use crate::host::{access, untrusted};
use crate::model::bounded_json;
use crate::model::migration::MigrationSource;
use crate::runner::artifacts::{
    ArchiveTree, ArtifactOutcome, Cancellation, MeterBounds, MeteredReader, SealedArchive, SetLimit, Staging,
    UnpackMeter, fault, unpack_sealed,
};
use crate::telemetry::chain;

/// A peer that sends less while `migrate.idle_timeout` is spent on waiting for it is too slow.
const LEAST: u64 = 256 << 10;
/// Of a token and of the body of an error.
const LONGEST_TOKEN: usize = 4096;
const LARGEST_ERROR: usize = 16 << 10;
/// Between attempts to go on after the connection broke off.
const RESUME_FIRST: Duration = Duration::from_millis(500);
const RESUME_MOST: Duration = Duration::from_secs(15);
/// The peer reads what it has sent once more before it sends the rest: at this rate at least, in bytes per second.
const REREAD_RATE: u64 = 32 << 20;
/// More interruptions of one transfer are not reported.
const MOST_REPORTED: u32 = 10;
/// Mode of the staging directory: the agent alone gets into it.
const MODE: u32 = 0o700;

/// Fetches and verifies all of it. Blocks; ends soon once it is cancelled. Nothing stays unless all of it came.
pub fn fetch(source: &MigrationSource, scope: &MigrationScope) -> Result<FetchedData, MigrationError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| MigrationError::Retry(format!("cannot set up a client: {e}")))?;
    let fetched = Transfer { source, scope, runtime: &runtime, resumed: Cell::new(0) }.run();
    // A name lookup that hangs is not waited for.
    runtime.shutdown_background();
    fetched
}

struct Transfer<'a> {
    source: &'a MigrationSource,
    scope: &'a MigrationScope,
    runtime: &'a Runtime,
    resumed: Cell<u32>,
}

impl Transfer<'_> {
    fn run(&self) -> Result<FetchedData, MigrationError> {
        let scope = self.scope;
        let broken = |e: io::Error| MigrationError::Final(format!("cannot write to the directory of the alloc: {e}"));
        let answer = self.answer(0)?;
        let staging = Staging::at(scope.alloc_dir.join(STAGING), MODE, &scope.cancelled).map_err(broken)?;
        let meter = UnpackMeter::new(bounds(scope), Arc::clone(&scope.cancelled), staging.directory());
        let tree = ArchiveTree::new(&staging, None, &meter).map_err(broken)?;
        let body = TransferBody::new(self, answer);
        let mut from =
            SealedArchive::new(MeteredReader { from: BufReader::with_capacity(128 << 10, body), meter: &meter });
        let seal = unpack_sealed(&mut from, &tree, &meter).map_err(|e| classify(&e, self.resumed.get() > 0))?;
        if !has_place(scope).map_err(broken)? {
            let what = "alloc/data nor the local directory of a task of the group";
            return Err(MigrationError::Final(format!("the peer has no data of it: neither {what}")));
        }
        // It is never fetched again: so it must be there after a loss of power.
        rustix::fs::syncfs(staging.directory()).map_err(|e| broken(e.into()))?;
        if scope.cancelled.is() {
            return Err(MigrationError::Cancelled);
        }
        let way = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let committed = rustix::fs::open(&scope.alloc_dir, way, Mode::empty()).and_then(|alloc| {
            rustix::fs::renameat(&alloc, STAGING, &alloc, FETCHED)?;
            rustix::fs::fsync(alloc)
        });
        committed.map_err(|e| broken(e.into()))?;
        Ok(FetchedData { entries: seal.entries, bytes: seal.bytes, resumed: self.resumed.get() })
    }

    /// The head of the response, for the archive without its first `offset` bytes. Errors: the peer refuses, or says
    /// that the alloc has not ended.
    fn answer(&self, offset: u64) -> Result<HttpAnswer, MigrationError> {
        let MigrationSource { peer, alloc, .. } = self.source;
        let config = &self.scope.config;
        let known = config.peer(peer);
        let known = known.ok_or_else(|| MigrationError::Final(format!("peer {peer:?} is not in migrate.peers")))?;
        let (address, trust) = match &known.address {
            Address::Tls(host, _) => {
                let client = config.cert_file.clone().zip(config.key_file.clone());
                let files = TlsFiles { authorities: config.ca_file.clone(), client, ..TlsFiles::default() };
                (Address::Tls(host.clone(), Arc::new(files)), Trust::Named)
            }
            // Any user of this host could serve there.
            local => (local.clone(), Trust::OwnUser),
        };
        let mut headers = Vec::new();
        let token = config.token_file(peer).map(|file| {
            let unread = |e: io::Error| MigrationError::Final(format!("cannot read {}: {e}", file.display()));
            let bytes = access::open_secret(file).and_then(|file| untrusted::read_all(file, LONGEST_TOKEN));
            let text = String::from_utf8(bytes.map_err(unread)?);
            let text = text.map_err(|_| MigrationError::Final(format!("{} is no text", file.display())))?;
            let token = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
            let token =
                token.ok_or_else(|| MigrationError::Final(format!("there is no token in {}", file.display())))?;
            Ok(format!("Bearer {token}"))
        });
        let token = token.transpose()?;
        headers.extend(token.iter().map(|token| ("authorization", token.as_str())));
        let mut target = format!("/v1/allocs/{alloc}/migration");
        if offset > 0 {
            target.push_str(&format!("?offset={offset}"));
        }
        let request =
            send_request((&address, trust), (RequestMethod::Get, &target), &headers, Payload::Whole(Bytes::new()));
        let answer = self.wait(request)?.map_err(|e| {
            let why = chain(&e);
            // A wrong certificate or user does not become right by itself.
            if e.is_untrusted() || e.is_tls_failure() { MigrationError::Final(why) } else { MigrationError::Retry(why) }
        })?;
        if answer.is_success() {
            return Ok(answer);
        }
        let status = answer.status;
        let whole = self.wait(answer.whole(LARGEST_ERROR))?;
        let body = whole.map(|whole| whole.body).unwrap_or_default();
        Err(refused(status, &body, offset > 0))
    }

    /// Waits until the peer sends the rest of the archive. Errors: it will not, or the deadline passed.
    fn resume(&self, offset: u64, why: &MigrationError) -> Result<HttpAnswer, MigrationError> {
        let MigrationError::Retry(why) = why else { return Err(why.clone()) };
        if self.resumed.get() < MOST_REPORTED {
            (self.scope.on_interruption)(offset, why);
        }
        let mut pause = RESUME_FIRST;
        loop {
            if self.sleep(pause)? {
                return Err(MigrationError::Retry(why.clone()));
            }
            match self.answer(offset) {
                Ok(answer) => {
                    self.resumed.set(self.resumed.get().saturating_add(1));
                    return Ok(answer);
                }
                Err(MigrationError::Retry(_)) => pause = (pause * 2).min(RESUME_MOST),
                // The whole of it is asked for again, which shows whether that is final.
                Err(MigrationError::Final(why)) => return Err(MigrationError::Retry(why)),
                Err(MigrationError::Cancelled) => return Err(MigrationError::Cancelled),
            }
        }
    }

    /// Returns whether the deadline has passed. Errors: cancelled.
    fn sleep(&self, pause: Duration) -> Result<bool, MigrationError> {
        let left = self.scope.until.saturating_duration_since(Instant::now());
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.scope.cancelled.wait() => Err(MigrationError::Cancelled),
                () = tokio::time::sleep(pause.min(left)) => Ok(pause >= left),
            }
        })
    }

    /// Errors: cancelled, or nothing came in time.
    fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, MigrationError> {
        self.wait_for(self.scope.config.idle_timeout, work)
    }

    fn wait_for<T>(&self, idle: Duration, work: impl Future<Output = T>) -> Result<T, MigrationError> {
        let cancelled: &Cancellation = &self.scope.cancelled;
        let left = self.scope.until.saturating_duration_since(Instant::now());
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = cancelled.wait() => Err(MigrationError::Cancelled),
                done = tokio::time::timeout(idle.min(left), work) => done.map_err(|_| late(idle, left)),
            }
        })
    }
}

fn late(idle: Duration, left: Duration) -> MigrationError {
    MigrationError::Retry(if left < idle {
        "not all of it came in time (migrate.deadline)".to_owned()
    } else {
        format!("the peer sent nothing for {} s (migrate.idle_timeout)", idle.as_secs_f32())
    })
}

fn bounds(scope: &MigrationScope) -> MeterBounds {
    let set = |limit, setting| SetLimit { limit, setting };
    MeterBounds {
        bytes: set(scope.config.max_size, "migrate.max_size_mib"),
        entries: set(scope.config.max_entries, "migrate.max_entries"),
        reserve: set(scope.config.free_space_reserve, "migrate.free_space_reserve_mib"),
    }
}

/// What an answer that is no success means. `is_rest`: the beginning of the archive is there.
fn refused(status: u16, body: &[u8], is_rest: bool) -> MigrationError {
    let body = bounded_json::parse(body).unwrap_or_default();
    let text = |name: &str| body.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
    let message: String = text("message").chars().filter(|c| !c.is_control()).take(300).collect();
    let why = if message.is_empty() {
        format!("the peer answered with status {status}")
    } else {
        format!("the peer answered with status {status}: {message}")
    };
    match status {
        // Ambiguous IDs have this status too.
        // What came is of the alloc as it was before.
        _ if is_rest && !matches!(status, 408 | 429 | 500..=599) => MigrationError::Final(why),
        409 if text("code") == "conflict" => MigrationError::Retry(message),
        408 | 429 | 500..=599 => MigrationError::Retry(why),
        _ => MigrationError::Final(why),
    }
}

/// What an error of the unpacker means. A connection that breaks off is one that may come again, and two parts that do
/// not fit are of an alloc that changed in between.
fn classify(error: &io::Error, is_resumed: bool) -> MigrationError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<TransferInterruption>()) {
        Some(TransferInterruption(MigrationError::Cancelled)) => return MigrationError::Cancelled,
        Some(TransferInterruption(why)) => return why.clone(),
        None => {}
    }
    let failed = fault(error, ArtifactOutcome::Archive, "cannot unpack what the peer sends");
    match failed.outcome {
        ArtifactOutcome::Cancelled => MigrationError::Cancelled,
        ArtifactOutcome::Archive if is_resumed || error.kind() == io::ErrorKind::UnexpectedEof => {
            MigrationError::Retry(failed.message)
        }
        _ => MigrationError::Final(failed.message),
    }
}

/// An error of the transfer, inside of an `io::Error`.
#[derive(Debug, thiserror::Error)]
#[error("the transfer was interrupted")]
struct TransferInterruption(MigrationError);

/// The body of the response, over as many connections as it takes.
struct TransferBody<'t, 'a> {
    transfer: &'t Transfer<'a>,
    answer: HttpAnswer,
    held: Bytes,
    /// Of the archive.
    came: u64,
    /// Of this connection.
    came_of_answer: u64,
    /// For so long so many bytes: since the rate was checked.
    waited: Duration,
    received: u64,
}

impl<'t, 'a> TransferBody<'t, 'a> {
    fn new(transfer: &'t Transfer<'a>, answer: HttpAnswer) -> TransferBody<'t, 'a> {
        let (held, waited) = (Bytes::new(), Duration::ZERO);
        TransferBody { transfer, answer, held, came: 0, came_of_answer: 0, waited, received: 0 }
    }

    /// The next piece of this connection; `None`: its end.
    fn piece(&mut self) -> Result<Option<Bytes>, MigrationError> {
        let began = Instant::now();
        let mut idle = self.transfer.scope.config.idle_timeout;
        let is_first = self.came_of_answer == 0;
        if is_first {
            idle += Duration::from_secs(self.came / REREAD_RATE);
        }
        let piece = self.transfer.wait_for(idle, self.answer.piece())?;
        let piece = piece.map_err(|e| MigrationError::Retry(chain(&e)))?;
        if let Some(piece) = &piece {
            let waited = if is_first && self.came > 0 { Duration::ZERO } else { began.elapsed() };
            self.check_rate(waited, piece.len())?;
            self.came += piece.len() as u64;
            self.came_of_answer += piece.len() as u64;
        }
        Ok(piece)
    }

    /// Only the wait for the peer counts: the disk here may be slower.
    fn check_rate(&mut self, waited: Duration, came: usize) -> Result<(), MigrationError> {
        let idle = self.transfer.scope.config.idle_timeout;
        (self.waited, self.received) = (self.waited + waited, self.received + came as u64);
        if self.waited < idle {
            return Ok(());
        }
        if self.received < LEAST {
            let (kib, secs) = (LEAST >> 10, idle.as_secs_f32());
            return Err(MigrationError::Retry(format!("the peer sent less than {kib} KiB in {secs} s")));
        }
        (self.waited, self.received) = (Duration::ZERO, 0);
        Ok(())
    }
}

impl Read for TransferBody<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let interrupted = |why| io::Error::other(TransferInterruption(why));
        while self.held.is_empty() {
            match self.piece() {
                Ok(Some(piece)) => self.held = piece,
                Ok(None) => return Ok(0),
                // A connection of a few bytes is not worth another one: the peer or the link is no good for now.
                Err(why @ MigrationError::Retry(_)) if self.came_of_answer >= LEAST => {
                    self.answer = self.transfer.resume(self.came, &why).map_err(interrupted)?;
                    (self.came_of_answer, self.waited, self.received) = (0, Duration::ZERO, 0);
                }
                Err(why) => return Err(interrupted(why)),
            }
        }
        let length = self.held.len().min(into.len());
        self.held.copy_to_slice(into.get_mut(..length).unwrap_or_default());
        Ok(length)
    }
}
