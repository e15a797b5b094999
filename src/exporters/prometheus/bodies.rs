//! Bodies, encoded at most once per snapshot and format, ahead of a scraper that comes regularly, else when first asked
//! for; compressed likewise, never for nobody.
//!
//! One body per format is kept, on a page that is used again: the memory of a body is touched anew only when it grows.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::ahead::Visits;
use super::encode::Encoder;
use crate::exporters::walk::{Filter, Selection, Walk};
use crate::model::answer::{Encoding, Format};
use crate::model::profile::Profile;
use crate::snapshot::{ScraperKey, Snapshot, Snapshots};
use crate::telemetry::{Metrics, lock};

/// A format that nobody asked for during so long gives its memory back.
const IDLE: Duration = Duration::from_secs(120);

/// Concurrency: any thread. Who asks for a body that is being encoded waits for it.
#[derive(Debug)]
pub struct Bodies {
    metrics: Arc<Metrics>,
    /// Of the whole body.
    wanted: Filter,
    selection: Arc<Selection>,
    encoder: Mutex<Encoder>,
    /// In the order of [`Format::ALL`].
    slots: [Mutex<Slot>; Format::ALL.len()],
    visits: Mutex<Visits>,
}

#[derive(Debug)]
struct Slot {
    /// Of which snapshot; 0: none.
    version: u64,
    identity: Bytes,
    gzip: Option<Bytes>,
    zstd: Option<Bytes>,
    asked: Instant,
    spare: Arc<Spare>,
}

/// The page that is free, if one is.
#[derive(Debug, Default)]
struct Spare(Mutex<Vec<u8>>);

/// A body on its page, which comes back when the last scraper is done with it.
struct OnPage {
    bytes: Vec<u8>,
    len: usize,
    spare: Arc<Spare>,
}

impl AsRef<[u8]> for OnPage {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for OnPage {
    fn drop(&mut self) {
        let mut spare = lock(&self.spare.0);
        // A page of which most is not used any more is let go.
        if self.bytes.len() > spare.len() && self.bytes.len() / 4 <= self.len {
            *spare = std::mem::take(&mut self.bytes);
        }
    }
}

impl Slot {
    fn new() -> Slot {
        let (identity, spare) = (Bytes::new(), Arc::default());
        Slot { version: 0, identity, gzip: None, zstd: None, asked: Instant::now(), spare }
    }
    fn empty(&mut self) {
        self.version = 0;
        self.identity = Bytes::new();
        (self.gzip, self.zstd) = (None, None);
    }
    fn body(&mut self, encoding: Encoding) -> Bytes {
        match encoding {
            Encoding::Identity => self.identity.clone(),
            Encoding::Gzip => self.gzip.get_or_insert_with(|| gzip(&self.identity)).clone(),
            Encoding::Zstd => self.zstd.get_or_insert_with(|| zstd(&self.identity)).clone(),
        }
    }
}

impl Bodies {
    /// `selection`: what a body has that nobody narrows.
    pub fn new(metrics: Arc<Metrics>, selection: Arc<Selection>) -> Bodies {
        for format in Format::ALL {
            for encoding in Encoding::ALL {
                metrics.scrape_known(format.as_str(), encoding.as_str());
            }
        }
        Bodies {
            metrics,
            wanted: Filter::default().selecting(Arc::clone(&selection)),
            selection,
            encoder: Mutex::default(),
            slots: Format::ALL.map(|_| Mutex::new(Slot::new())),
            visits: Mutex::default(),
        }
    }

    /// The whole body of this snapshot, or of a newer one that is there already. Blocks while it is encoded: some
    /// milliseconds for a thousand tasks.
    pub fn get(&self, snapshot: &Snapshot, format: Format, encoding: Encoding) -> Bytes {
        let mut slot = self.slot(format);
        slot.asked = Instant::now();
        if slot.version < snapshot.version || slot.identity.is_empty() {
            // First the old body goes, so that its page is free.
            slot.empty();
            let page = std::mem::take(&mut *lock(&slot.spare.0));
            let walk = Walk::new(snapshot, &self.metrics, &self.wanted);
            let (bytes, len) = lock(&self.encoder).encode(&walk, format, page);
            slot.identity = Bytes::from_owner(OnPage { bytes, len, spare: Arc::clone(&slot.spare) });
            slot.version = snapshot.version;
        }
        slot.body(encoding)
    }

    /// The body if it needs no work: for those who must not block.
    pub fn ready(&self, snapshot: &Snapshot, format: Format, encoding: Encoding) -> Option<Bytes> {
        let mut slot = self.slots[format.index()].try_lock().ok()?;
        if slot.version < snapshot.version || slot.identity.is_empty() {
            return None;
        }
        slot.asked = Instant::now();
        match encoding {
            Encoding::Identity => Some(slot.identity.clone()),
            Encoding::Gzip => slot.gzip.clone(),
            Encoding::Zstd => slot.zstd.clone(),
        }
    }

    /// What a body has, of another profile than the whole one if that is wanted.
    pub fn selection(&self, profile: Option<Profile>) -> Arc<Selection> {
        let whole = &self.selection;
        profile.map_or_else(|| Arc::clone(whole), |profile| Arc::new(Selection { profile, ..(**whole).clone() }))
    }

    /// A narrower body: encoded for this request alone, and it acknowledges nothing.
    pub fn filtered(&self, snapshot: &Snapshot, format: Format, encoding: Encoding, filter: &Filter) -> Bytes {
        let walk = Walk::new(snapshot, &self.metrics, filter);
        let (mut bytes, len) = lock(&self.encoder).encode(&walk, format, Vec::new());
        bytes.truncate(len);
        compressed(bytes, encoding)
    }

    /// A scraper came: after some regular visits its body is encoded before it asks.
    pub fn came(&self, scraper: &ScraperKey, format: Format, encoding: Encoding) {
        lock(&self.visits).came(scraper, (format, encoding), Instant::now());
    }

    /// Somebody who comes regularly is about to come.
    pub fn is_visited_within(&self, tick: Duration) -> bool {
        !lock(&self.visits).expected(Instant::now(), tick).is_empty()
    }

    /// Encodes ahead, tick by tick, until there are no more snapshots.
    pub async fn run_ahead(self: Arc<Self>, mut snapshots: Snapshots, tick: Duration) {
        let mut epoch = 0;
        while snapshots.changed().await.is_ok() {
            let snapshot = Arc::clone(&snapshots.borrow_and_update());
            if snapshot.epoch == epoch {
                continue;
            }
            epoch = snapshot.epoch;
            let expected = lock(&self.visits).expected(Instant::now(), tick);
            let bodies = Arc::clone(&self);
            let work = move || {
                bodies.give_back_idle();
                for (format, encoding) in expected {
                    bodies.get(&snapshot, format, encoding);
                }
            };
            if tokio::task::spawn_blocking(work).await.is_err() {
                tracing::error!("encoding ahead failed");
            }
        }
    }

    fn give_back_idle(&self) {
        for format in Format::ALL {
            let mut slot = self.slot(format);
            if slot.asked.elapsed() > IDLE {
                slot.empty();
                slot.spare = Arc::default();
            }
        }
    }

    fn slot(&self, format: Format) -> MutexGuard<'_, Slot> {
        lock(&self.slots[format.index()])
    }
}

/// A body that is used once.
pub fn compressed(body: Vec<u8>, encoding: Encoding) -> Bytes {
    match encoding {
        Encoding::Identity => Bytes::from(body),
        Encoding::Gzip => gzip(&body),
        Encoding::Zstd => zstd(&body),
    }
}

/// Level 1: a fifth of the size at a third of level 6's time.
fn gzip(body: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::new(1));
    let written = encoder.write_all(body).and_then(|()| encoder.finish());
    Bytes::from(written.expect("writing to memory must succeed"))
}

/// Level 1, in one frame: its window is that of the level, whatever the size of the body.
fn zstd(body: &[u8]) -> Bytes {
    Bytes::from(zstd::bulk::compress(body, 1).expect("compressing in memory must succeed"))
}
