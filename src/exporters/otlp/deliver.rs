//! What waits in the queue goes to the collector, the oldest first and one at a time: a thread of its own, which may
//! wait.
//!
//! ```text
//! front ──► send ──► taken, refused ──► settle ──► front ...
//!             │ bad: in halves, until the bad point is alone and refused
//!             └ later: when the collector says, else after a back-off, for as long as it is kept
//! ```

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::answer::PushAnswer;
use super::delta::{DeltaState, Notes};
use super::outbox::Outbox;
use super::parts::points;
use super::send::Sender;
use super::{batch, packed};

/// The first wait is up to this long, each one after it up to twice the one before.
pub(super) const FIRST_WAIT: Duration = Duration::from_secs(1);
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A collector that wants more than this is asked again all the same.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Of a parcel without a taken part, so many parts are refused before the rest is dropped: the fault is the
/// collector's then, not that of a point.
const MOST_BAD: u32 = 100;

/// A parcel on its way: what of it is still to be sent, the next part last.
struct ParcelDelivery {
    id: u64,
    rest: Vec<(u64, Vec<u8>)>,
    rejected: u64,
    /// How many parts were bad, as long as none was taken.
    bad: Option<u32>,
}

/// Why a parcel waits, and for how long if the collector names a time.
struct DeliveryRetry {
    after: Option<Duration>,
    /// As it is counted: of one that keeps on answering the same the text may differ each time.
    code: String,
    message: String,
}

/// Until the outbox is closed.
pub(super) fn run(outbox: &Arc<Outbox>, sender: &mut Sender, mut delta: Option<DeltaState>) {
    let (destination, signal) = (outbox.destination(), outbox.signal().as_str());
    let (mut way, mut tries, mut logged): (Option<ParcelDelivery>, u32, String) = (None, 0, String::new());
    while let Some(parcel) = outbox.next() {
        let mut current = match way.take() {
            Some(way) if way.id == parcel.id => way,
            _ => ParcelDelivery { id: parcel.id, rest: vec![(parcel.points, parcel.bytes)], rejected: 0, bad: Some(0) },
        };
        match send_rest(outbox, sender, &mut delta, (&mut current, tries > 0)) {
            None => {
                if tries > 0 {
                    tracing::info!(destination, signal, tries, "push recovered");
                }
                tries = 0;
                outbox.settle(current.id, current.rejected);
            }
            Some(DeliveryRetry { after, code, message }) => {
                if tries == 0 || logged != code {
                    tracing::warn!(destination, signal, reason = message, "push failed; points are queued");
                    logged = code;
                }
                let wait = wait(tries, after);
                tries = tries.saturating_add(1);
                way = Some(current);
                outbox.rest(wait);
            }
        }
    }
}

/// Sends what is left of a parcel. `None`: all of it has landed.
fn send_rest(
    outbox: &Outbox,
    sender: &mut Sender,
    delta: &mut Option<DeltaState>,
    (way, is_retry): (&mut ParcelDelivery, bool),
) -> Option<DeliveryRetry> {
    let mut is_retry = is_retry;
    while let Some((count, bytes)) = way.rest.last() {
        let count = *count;
        let part = match delta {
            None => Some((Cow::Borrowed(bytes), Notes::new())),
            Some(delta) => match packed::read(bytes) {
                Ok(mut request) => {
                    let notes = delta.convert(way.id, &mut request);
                    let is_empty = points(&request) == 0;
                    if is_empty {
                        delta.note(&notes);
                    }
                    (!is_empty).then(|| (Cow::Owned(packed::pack(&request, packed::compression(bytes))), notes))
                }
                Err(error) => {
                    refused(outbox, &error.to_string(), count);
                    way.rejected += count;
                    None
                }
            },
        };
        let Some((request, notes)) = part else {
            way.rest.pop();
            continue;
        };
        let requested_at = Instant::now();
        let (code, answer) = sender.send(&request);
        outbox.count_request(code.clone(), is_retry, requested_at.elapsed());
        is_retry = false;
        match answer {
            PushAnswer::Later { after, message } => return Some(DeliveryRetry { after, code, message }),
            PushAnswer::Taken { rejected, message } => {
                if rejected > 0 || !message.is_empty() {
                    tracing::warn!(
                        destination = outbox.destination(),
                        signal = outbox.signal().as_str(),
                        rejected,
                        message,
                        "partial success reported by the collector"
                    );
                }
                if let Some(delta) = delta {
                    delta.note(&notes);
                }
                way.rejected += rejected.min(count);
                way.bad = way.bad.filter(|_| rejected >= count);
                way.rest.pop();
            }
            PushAnswer::Refused { message } => {
                refused(outbox, &message, count);
                way.rejected += count;
                way.rest.pop();
            }
            PushAnswer::Bad { message } => {
                way.bad = way.bad.map(|bad| bad + 1);
                if way.bad.is_some_and(|bad| bad > MOST_BAD) {
                    let left = way.rest.drain(..).map(|(points, _)| points).sum();
                    refused(outbox, &message, left);
                    way.rejected += left;
                    return None;
                }
                let (_, bytes) = way.rest.pop()?;
                match batch::halves(outbox.signal(), &bytes) {
                    Ok(Some(both)) => way.rest.extend(both.into_iter().rev()),
                    Ok(None) | Err(_) => {
                        refused(outbox, &message, count);
                        way.rejected += count;
                    }
                }
            }
        }
    }
    None
}

fn refused(outbox: &Outbox, reason: &str, points: u64) {
    let (destination, signal) = (outbox.destination(), outbox.signal().as_str());
    tracing::warn!(destination, signal, reason, points, "collector rejected points; they are dropped");
}

/// As long as the collector asked, else anything up to a bound that doubles: many agents must not come together.
pub(super) fn wait(tries: u32, interval: Option<Duration>) -> Duration {
    let bound = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(tries.min(16))).min(LONGEST_WAIT);
    let spread = bound.mul_f64(random());
    match interval {
        Some(interval) => interval.min(MAX_RETRY_AFTER) + spread.min(FIRST_WAIT),
        None => spread,
    }
}

/// From 0 to 1. Each state of a hash map's hasher has its own keys.
fn random() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 32;
    f64::from(u32::try_from(bits).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn otlp_retry_wait_is_that_of_the_receiver_or_grows_to_a_minute_with_jitter() {
        let secs = Duration::from_secs;
        for tries in 0..200 {
            assert!(wait(tries, None) <= LONGEST_WAIT);
            let interval = wait(tries, Some(secs(7)));
            assert!(interval >= secs(7) && interval <= secs(8), "{interval:?}");
        }
        assert!(wait(0, None) <= FIRST_WAIT);
        assert!((0..100).map(|_| wait(10, None)).max() > Some(secs(30)));
        assert_ne!(wait(10, None), wait(10, None));
        assert!(wait(0, Some(secs(1 << 40))) <= MAX_RETRY_AFTER + FIRST_WAIT, "no collector delays a retry for ever");
    }
}
