//! Asks each fingerprinter, and goes on asking. A start waits for all of them, but no longer than [`START`].
//!
//! | it | then |
//! |---|---|
//! | answers | its diff is applied, whole; it is asked again after its period, or never |
//! | fails, panics | degraded: what it found before stays; it is asked again after a pause that doubles, for ever |
//! | does not answer within [`LIMIT`] | the same. Its thread runs on; it is asked again beside it, at most [`AT_ONCE`] |
//!
//! Each is on its own: none waits for another. No two set the same attribute, so the order in which they answer means
//! nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::{FingerprintError, FingerprintRequest, Fingerprinter};
use crate::board::facts::Facts;
use crate::host::clock::Clock;
use crate::model::attributes::AttributeDiff;
use crate::model::units::Timestamp;
use crate::telemetry::metrics::FingerprintFailure;
use crate::telemetry::{Metrics, chain, lock, panics};

/// How long a start waits for the first answers; they take some milliseconds.
pub const START: Duration = Duration::from_secs(2);
/// How long an answer may take.
pub const LIMIT: Duration = Duration::from_secs(5);
/// Before one that failed is asked again; doubled each time, up to the second.
pub const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// So many calls of one fingerprinter may hang; then it is asked again when one of them comes back.
pub const AT_ONCE: usize = 3;

/// What fingerprints are made with.
pub struct Parts {
    pub fingerprinters: Vec<&'static dyn Fingerprinter>,
    pub request: FingerprintRequest,
    pub facts: Arc<Facts>,
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<Metrics>,
}

/// How what is known by a fingerprinter stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FingerprinterState {
    /// It has not answered yet.
    Pending,
    Current,
    /// Why it could not look the last time.
    Degraded(String),
}

impl FingerprinterState {
    pub fn as_str(&self) -> &'static str {
        match self {
            FingerprinterState::Pending => "pending",
            FingerprinterState::Current => "current",
            FingerprinterState::Degraded(_) => "degraded",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FingerprinterInfo {
    pub name: &'static str,
    pub state: FingerprinterState,
    /// It is in this state since then, be it for another reason.
    pub since: Timestamp,
}

/// Of each that is asked, in the order of [`super::ALL`].
#[derive(Debug, Default)]
pub struct FingerprinterStates(Mutex<Vec<FingerprinterInfo>>);

impl FingerprinterStates {
    pub fn now(&self) -> Vec<FingerprinterInfo> {
        lock(&self.0).clone()
    }

    /// Gives the state before, if it was another.
    fn set(&self, at: usize, state: FingerprinterState, now: Timestamp) -> Option<FingerprinterState> {
        let mut all = lock(&self.0);
        let info = all.get_mut(at)?;
        let other = std::mem::discriminant(&info.state) != std::mem::discriminant(&state);
        let before = std::mem::replace(&mut info.state, state);
        if other {
            info.since = now;
        }
        other.then_some(before)
    }
}

/// Asks for as long as it is held.
pub struct Fingerprinting {
    states: Arc<FingerprinterStates>,
    _runs: JoinSet<()>,
}

impl Fingerprinting {
    /// Returns when each has answered or failed once, or after [`START`].
    pub async fn start(parts: Parts) -> Fingerprinting {
        let now = parts.clock.now();
        let pending = |one: &&'static dyn Fingerprinter| {
            parts.metrics.fingerprinter_known(one.name());
            FingerprinterInfo { name: one.name(), state: FingerprinterState::Pending, since: now }
        };
        let states = FingerprinterStates(Mutex::new(parts.fingerprinters.iter().map(pending).collect()));
        let states = Arc::new(states);
        let parts = Arc::new(parts);
        let mut runs = JoinSet::new();
        let (answered, mut all_answered) = mpsc::channel::<()>(1);
        for (at, fingerprinter) in parts.fingerprinters.iter().enumerate() {
            let requested = FingerprinterRun {
                at,
                fingerprinter: *fingerprinter,
                parts: Arc::clone(&parts),
                states: Arc::clone(&states),
                places: Arc::new(Semaphore::new(AT_ONCE)),
            };
            runs.spawn(requested.run(answered.clone()));
        }
        drop(answered);
        // Nothing is ever sent: it ends when no sender is left.
        if tokio::time::timeout(START, all_answered.recv()).await.is_err() {
            let pending = states.now().into_iter().filter(|info| info.state == FingerprinterState::Pending);
            let names = pending.map(|info| info.name).collect::<Vec<_>>().join(", ");
            tracing::warn!(names, "fingerprints are slow; the agent continues without them");
        }
        Fingerprinting { states, _runs: runs }
    }

    pub fn states(&self) -> Arc<FingerprinterStates> {
        Arc::clone(&self.states)
    }
}

/// One fingerprinter.
struct FingerprinterRun {
    at: usize,
    fingerprinter: &'static dyn Fingerprinter,
    parts: Arc<Parts>,
    states: Arc<FingerprinterStates>,
    places: Arc<Semaphore>,
}

impl FingerprinterRun {
    /// Runs until the agent stops, or until it has answered once and will not be asked again. `first`: dropped at its
    /// first answer.
    async fn run(self, first: mpsc::Sender<()>) {
        let mut first = Some(first);
        let mut pause = PAUSES.0;
        loop {
            let next = match self.fingerprint().await {
                Ok(diff) => {
                    self.take(diff);
                    pause = PAUSES.0;
                    self.fingerprinter.period()
                }
                Err(error) => {
                    self.degrade(&error);
                    let now = pause;
                    pause = (pause * 2).min(PAUSES.1);
                    Some(now)
                }
            };
            first.take();
            let Some(next) = next else { return };
            tokio::time::sleep(next).await;
        }
    }

    async fn fingerprint(&self) -> Result<AttributeDiff, FingerprintError> {
        // Until a call that hung comes back. The semaphore is never closed.
        let place = Arc::clone(&self.places).acquire_owned().await;
        let (fingerprinter, parts) = (self.fingerprinter, Arc::clone(&self.parts));
        let call = tokio::task::spawn_blocking(move || {
            let _place = place;
            panics::catch(|| fingerprinter.fingerprint(&parts.request))
        });
        match tokio::time::timeout(LIMIT, call).await {
            Ok(Ok(Ok(answer))) => answer,
            Ok(Ok(Err(panic))) => Err(FingerprintError::Died(panic.message)),
            // The runtime ends.
            Ok(Err(error)) => Err(FingerprintError::Died(error.to_string())),
            Err(_) => Err(FingerprintError::Late(LIMIT)),
        }
    }

    fn take(&self, diff: AttributeDiff) {
        let changed = self.parts.facts.apply(diff);
        let before = self.states.set(self.at, FingerprinterState::Current, self.parts.clock.now());
        let fingerprinter = self.fingerprinter.name();
        match before {
            Some(FingerprinterState::Degraded(_)) => tracing::info!(fingerprinter, "fingerprint recovered"),
            Some(FingerprinterState::Pending | FingerprinterState::Current) | None => {
                tracing::debug!(fingerprinter, changed, "fingerprint taken");
            }
        }
    }

    fn degrade(&self, error: &FingerprintError) {
        let (fingerprinter, why) = (self.fingerprinter.name(), chain(error));
        let reason = match error {
            FingerprintError::Late(_) => FingerprintFailure::Timeout,
            FingerprintError::Died(_) => FingerprintFailure::Panic,
            FingerprintError::Read(_) | FingerprintError::Parse(_) | FingerprintError::Socket(_) => {
                FingerprintFailure::Error
            }
        };
        self.parts.metrics.fingerprint_failed(fingerprinter, reason);
        let state = FingerprinterState::Degraded(why.clone());
        // Once: it may go on for days.
        match self.states.set(self.at, state, self.parts.clock.now()) {
            Some(_) => tracing::warn!(fingerprinter, error = why, "fingerprint failed; its previous values stay"),
            None => tracing::debug!(fingerprinter, error = why, "fingerprint failed again"),
        }
    }
}
