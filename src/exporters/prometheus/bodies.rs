//! Bodies: written while their reader takes them, or kept. A body is kept if several clients request it of one
//! snapshot, and if it is compressed. It is compressed ahead only for a scraper that comes regularly.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::body_stream::{BodyStream, PIECE};
use super::encode::{Encoder, write};
use super::page::PageSink;
use super::precompute::Visits;
use crate::exporters::walk::{Filter, Selection, Walk};
use crate::model::answer::{Encoding, Format};
use crate::model::profile::Profile;
use crate::snapshot::{ScraperKey, Snapshot, Snapshots};
use crate::telemetry::{Metrics, lock};

/// A kept body that is not requested for so long is freed.
const IDLE: Duration = Duration::from_secs(10);

/// Concurrency: any thread. A request for a body that is being made waits for it.
#[derive(Debug)]
pub struct Bodies {
    metrics: Arc<Metrics>,
    /// Of the whole body.
    filter: Filter,
    /// Of the whole body while memory is short: without observed allocs, then of the profile `lean` too.
    short: [Filter; 2],
    /// Which of them, from 1; 0: none.
    shed: AtomicUsize,
    selection: Arc<Selection>,
    encoder: Mutex<Encoder>,
    /// In the order of [`Format::ALL`].
    slots: [Mutex<FormatSlot>; Format::ALL.len()],
    visits: Mutex<Visits>,
}

/// What is kept of one format.
#[derive(Debug)]
struct FormatSlot {
    /// The snapshot of the bodies.
    version: u64,
    /// In the order of [`Encoding::ALL`].
    bodies: [Option<Bytes>; Encoding::ALL.len()],
    /// The snapshot that was streamed to its first client: for the next one the body is kept.
    streamed: u64,
    requested_at: Instant,
}

impl FormatSlot {
    fn new() -> FormatSlot {
        FormatSlot { version: 0, bodies: Default::default(), streamed: 0, requested_at: Instant::now() }
    }
    /// Of this snapshot or of a newer one.
    fn ready(&mut self, version: u64, encoding: Encoding) -> Option<Bytes> {
        let body = self.bodies[encoding.index()].clone().filter(|_| self.version >= version)?;
        self.requested_at = Instant::now();
        Some(body)
    }
    fn keep(&mut self, version: u64, encoding: Encoding, body: &Bytes) {
        if self.version != version {
            self.bodies = Default::default();
        }
        self.version = version;
        self.bodies[encoding.index()] = Some(body.clone());
        self.requested_at = Instant::now();
    }
}

impl Bodies {
    /// `selection`: the families of a body that no request narrows.
    pub fn new(metrics: Arc<Metrics>, selection: Arc<Selection>) -> Bodies {
        for format in Format::ALL {
            for encoding in Encoding::ALL {
                metrics.scrape_known(format.as_str(), encoding.as_str());
            }
        }
        Bodies {
            metrics,
            filter: Filter::default().selecting(Arc::clone(&selection)),
            short: [&*selection, &Selection { profile: Profile::Lean, ..(*selection).clone() }]
                .map(|selection| Filter::default().selecting(Arc::new(selection.clone())).without_observed()),
            shed: AtomicUsize::new(0),
            selection,
            encoder: Mutex::default(),
            slots: Format::ALL.map(|_| Mutex::new(FormatSlot::new())),
            visits: Mutex::default(),
        }
    }

    /// What the whole body leaves out from the next snapshot on; what is kept is freed.
    pub fn shed(&self, observed: bool, detail: bool) {
        let shed = usize::from(observed) + usize::from(detail);
        if self.shed.swap(shed, Ordering::Relaxed) != shed {
            self.slots.iter().for_each(|slot| lock(slot).bodies = Default::default());
        }
    }

    fn filter(&self) -> &Filter {
        let short = self.shed.load(Ordering::Relaxed).checked_sub(1).and_then(|at| self.short.get(at));
        short.unwrap_or(&self.filter)
    }

    /// The whole body of this snapshot, or of a newer one that is there already; kept. Blocks while it is made: some
    /// milliseconds for a thousand tasks.
    pub fn get(&self, snapshot: &Snapshot, format: Format, encoding: Encoding) -> Bytes {
        let mut slot = self.slot(format);
        if let Some(body) = slot.ready(snapshot.version, encoding) {
            return body;
        }
        let identity = slot.ready(snapshot.version, Encoding::Identity).filter(|_| slot.version == snapshot.version);
        let body = match (encoding, identity) {
            (Encoding::Identity, _) | (_, None) => self.written(snapshot, format, encoding, self.filter()),
            (_, Some(identity)) => compressed(&identity, encoding),
        };
        slot.keep(snapshot.version, encoding, &body);
        body
    }

    /// The body if it needs no work: for those who must not block.
    pub fn ready(&self, snapshot: &Snapshot, format: Format, encoding: Encoding) -> Option<Bytes> {
        self.slots[format.index()].try_lock().ok()?.ready(snapshot.version, encoding)
    }

    /// The whole body for the first client, written while it is read; `waited`: so long already. `None`: it was
    /// requested before, so that it is worth keeping ([`Bodies::get`]).
    pub fn stream_first(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        format: Format,
        waited: Duration,
    ) -> Option<BodyStream> {
        let mut slot = self.slots[format.index()].try_lock().ok()?;
        let is_first = slot.streamed < snapshot.version && slot.version < snapshot.version;
        slot.streamed = slot.streamed.max(snapshot.version);
        drop(slot);
        is_first.then(|| self.stream(snapshot, format, self.filter().clone(), waited))
    }

    /// What a body has, of another profile than the whole one if that is wanted.
    pub fn selection(&self, profile: Option<Profile>) -> Arc<Selection> {
        let whole = &self.selection;
        profile.map_or_else(|| Arc::clone(whole), |profile| Arc::new(Selection { profile, ..(**whole).clone() }))
    }

    /// A body for this reader alone, written while it is read.
    pub fn stream(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        format: Format,
        filter: Filter,
        waited: Duration,
    ) -> BodyStream {
        let (bodies, snapshot) = (Arc::clone(self), Arc::clone(snapshot));
        let metrics = Arc::clone(&self.metrics);
        BodyStream::begin(
            move |page, full| bodies.write(&snapshot, format, &filter, page, full),
            move |took| metrics.scraped(format.as_str(), Encoding::Identity.as_str(), 200, waited + took),
        )
    }

    /// A body in one piece: encoded for this request alone.
    pub fn written(&self, snapshot: &Snapshot, format: Format, encoding: Encoding, filter: &Filter) -> Bytes {
        let mut packer = Packer::new(encoding);
        let (rest, len) = self.write(snapshot, format, filter, vec![0; PIECE], &mut |page, len| {
            packer.take(&page[..len]);
            page
        });
        packer.take(&rest[..len]);
        packer.done()
    }

    fn write(
        &self,
        snapshot: &Snapshot,
        format: Format,
        filter: &Filter,
        page: Vec<u8>,
        full: PageSink<'_>,
    ) -> (Vec<u8>, usize) {
        let walk = Walk::new(snapshot, &self.metrics, filter);
        // Held no longer than this: its reader may be slow.
        let labels = lock(&self.encoder).labels(&walk, format);
        write(&walk, format, &labels, page, Some(full))
    }

    /// A scraper came: after some regular visits its body is made before it asks, where it takes time.
    pub fn record_visit(&self, scraper: &ScraperKey, format: Format, encoding: Encoding) {
        lock(&self.visits).record_visit(scraper, (format, encoding), Instant::now());
    }

    /// A scraper that comes regularly is about to come.
    pub fn is_visited_within(&self, tick: Duration) -> bool {
        !lock(&self.visits).expected(Instant::now(), tick).is_empty()
    }

    /// Compresses ahead, tick by tick, until there are no more snapshots.
    pub async fn precompute(self: Arc<Self>, mut snapshots: Snapshots, tick: Duration) {
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
                for (format, encoding) in expected.into_iter().filter(|(_, encoding)| *encoding != Encoding::Identity) {
                    bodies.get(&snapshot, format, encoding);
                }
            };
            if tokio::task::spawn_blocking(work).await.is_err() {
                tracing::error!("failed to encode a body in advance");
            }
        }
    }

    fn give_back_idle(&self) {
        for format in Format::ALL {
            let mut slot = self.slot(format);
            if slot.requested_at.elapsed() > IDLE {
                slot.bodies = Default::default();
            }
        }
    }

    fn slot(&self, format: Format) -> MutexGuard<'_, FormatSlot> {
        lock(&self.slots[format.index()])
    }
}

/// Takes a body piece by piece and keeps what is to be sent of it.
enum Packer {
    Identity(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::Encoder<'static, Vec<u8>>),
}

/// Why writing to memory cannot fail.
const MEMORY: &str = "compressing in memory must succeed";

impl Packer {
    fn new(encoding: Encoding) -> Packer {
        match encoding {
            Encoding::Identity => Packer::Identity(Vec::new()),
            // Level 1: a fifth of the size at a third of level 6's time.
            Encoding::Gzip => Packer::Gzip(GzEncoder::new(Vec::new(), Compression::new(1))),
            // Level 1, in one frame: its window is that of the level, whatever the size of the body.
            Encoding::Zstd => Packer::Zstd(zstd::Encoder::new(Vec::new(), 1).expect(MEMORY)),
        }
    }
    fn take(&mut self, bytes: &[u8]) {
        match self {
            Packer::Identity(all) => all.extend_from_slice(bytes),
            Packer::Gzip(encoder) => encoder.write_all(bytes).expect(MEMORY),
            Packer::Zstd(encoder) => encoder.write_all(bytes).expect(MEMORY),
        }
    }
    fn done(self) -> Bytes {
        let packed = match self {
            Packer::Identity(all) => all,
            Packer::Gzip(encoder) => encoder.finish().expect(MEMORY),
            Packer::Zstd(encoder) => encoder.finish().expect(MEMORY),
        };
        Bytes::from(packed)
    }
}

/// A body that is there, as it is to be sent.
pub fn compressed(body: &[u8], encoding: Encoding) -> Bytes {
    let mut packer = Packer::new(encoding);
    packer.take(body);
    packer.done()
}
