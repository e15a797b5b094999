//! Reads one GPU at each tick on its own thread, and counts the driver's error events.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::shared::{DANGEROUS, NvidiaState, thread};
use crate::devices::plugin::{PluginError, PluginReports};
use crate::host::clock::Clock;
use crate::host::gpu::{Gpu, GpuError, GpuEvents, GpuReading, Library};
use crate::model::device::{DeviceReading, DeviceUsage, Xid};
use crate::model::id::DeviceId;
use crate::model::units::Nanos;
use crate::telemetry::lock;

/// Retry interval for a lost GPU.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Interval for sampling the processes of a GPU between two readings. A computing process stays longer: setting up and
/// tearing down its context alone takes more time (docs/figures.md).
const PROCESS_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout of one wait for events; bounds the delay until the thread sees that it should stop.
const EVENT_WAIT: u32 = 1_000;

/// State of the thread that reads a GPU.
#[derive(Debug)]
pub(super) struct GpuWatch {
    started: Instant,
    /// Start of the call in progress, in nanoseconds since `started`, plus 1; 0: none.
    since: AtomicU64,
    lost: AtomicBool,
    ended: AtomicBool,
    /// The state that was reported last.
    stuck: Mutex<bool>,
}

/// What the thread that reads a GPU uses.
struct Reader {
    id: DeviceId,
    library: Arc<Library>,
    shared: Arc<NvidiaState>,
    clock: Arc<dyn Clock>,
    reports: PluginReports,
    watch: Arc<GpuWatch>,
    /// Failures and unsupported calls that were reported already.
    reported: std::collections::BTreeSet<String>,
}

impl GpuWatch {
    /// Errors: a thread cannot be created.
    pub(super) fn begin(
        id: &DeviceId,
        library: &Arc<Library>,
        shared: &Arc<NvidiaState>,
        clock: &Arc<dyn Clock>,
        reports: &PluginReports,
    ) -> Result<Arc<GpuWatch>, PluginError> {
        let watch = Arc::new(GpuWatch {
            started: Instant::now(),
            since: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            stuck: Mutex::new(false),
        });
        let mut reader = Reader {
            id: id.clone(),
            library: Arc::clone(library),
            shared: Arc::clone(shared),
            clock: Arc::clone(clock),
            reports: reports.clone(),
            watch: Arc::clone(&watch),
            reported: Default::default(),
        };
        let sampler = ProcessSampler {
            id: id.clone(),
            library: Arc::clone(library),
            reports: reports.clone(),
            watch: Arc::clone(&watch),
        };
        thread("gpu-read", move || reader.read_all())?;
        if reports.samples_processes {
            // Without the stop a second reader would later start beside the first.
            thread("gpu-glance", move || sampler.sample_all()).inspect_err(|_| watch.end())?;
        }
        Ok(watch)
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether a call is late, if that changed since the last report.
    pub(super) fn changed(&self, deadline: Duration) -> Option<bool> {
        let since = self.since.load(Ordering::Relaxed);
        let age = Nanos::from_duration(self.started.elapsed()).0.saturating_sub(since.saturating_sub(1));
        let late = since > 0 && age > Nanos::from_duration(deadline).0;
        let mut reported = lock(&self.stuck);
        let changed = *reported != late;
        *reported = late;
        changed.then_some(late)
    }

    /// Runs a call that may hang.
    fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        self.since.store(Nanos::from_duration(self.started.elapsed()).0 + 1, Ordering::Relaxed);
        let done = call();
        self.since.store(0, Ordering::Relaxed);
        done
    }
}

/// Samples processes on a separate thread, because a reading may take longer than a process lives.
struct ProcessSampler {
    id: DeviceId,
    library: Arc<Library>,
    reports: PluginReports,
    watch: Arc<GpuWatch>,
}

impl ProcessSampler {
    fn sample_all(&self) {
        let goes_on = |pause| self.reports.wait(pause) && !self.watch.ended.load(Ordering::Relaxed);
        while goes_on(Duration::ZERO) {
            let Ok(mut gpu) = self.library.gpu(&self.id) else {
                // The reader reports the loss.
                self.reports.wait(RETRY_INTERVAL);
                continue;
            };
            while goes_on(PROCESS_INTERVAL) {
                match gpu.processes_if_changed() {
                    Ok(None) => {}
                    Ok(Some(processes)) => drop(self.reports.processes(self.id.clone(), processes)),
                    // The reader reports this as well.
                    Err(_) => {
                        self.reports.wait(RETRY_INTERVAL);
                        break;
                    }
                }
            }
        }
    }
}

impl Reader {
    fn read_all(&mut self) {
        let library = Arc::clone(&self.library);
        let mut was_up = true;
        while self.pause_and_check(Duration::ZERO) {
            let found = self.watch.during(|| library.gpu(&self.id));
            let why = match found {
                Ok(gpu) => self.read_while_there(gpu, &mut was_up),
                Err(error) => error,
            };
            self.watch.lost.store(true, Ordering::Relaxed);
            if std::mem::replace(&mut was_up, false) {
                tracing::debug!(device = %self.id, error = %why, "GPU lost");
                self.report(false, DeviceUsage::default(), None);
            }
            if !self.pause_and_check(RETRY_INTERVAL.min(self.reports.tick * 2)) {
                return;
            }
        }
    }

    /// Reads until the GPU is lost or the thread should stop; returns the reason.
    fn read_while_there(&mut self, mut gpu: Gpu<'_>, was_up: &mut bool) -> GpuError {
        loop {
            match self.watch.during(|| gpu.read()) {
                Ok(reading) => {
                    *was_up = true;
                    self.watch.lost.store(false, Ordering::Relaxed);
                    self.forward(reading);
                }
                Err(error) => return error,
            }
            if !self.pause_and_check(self.reports.tick) {
                return GpuError::Lost("reading stopped".to_owned());
            }
        }
    }

    /// Pauses, then returns whether to continue.
    fn pause_and_check(&self, pause: Duration) -> bool {
        self.reports.wait(pause) && !self.watch.ended.load(Ordering::Relaxed)
    }

    fn forward(&mut self, reading: GpuReading) {
        let GpuReading { mut values, processes, instances, failed, unsupported } = reading;
        for error in failed {
            if self.reported.insert(error.to_string()) {
                let error = PluginError::from(error);
                let message = format!("{}: {}", self.id, error.message);
                self.reports.fault(PluginError::new(error.fault, message));
            }
        }
        let unsupported = unsupported.into_iter().filter(|name| self.reported.insert((*name).to_owned()));
        let unsupported: Vec<String> = unsupported.map(str::to_owned).collect();
        if !unsupported.is_empty() {
            self.reports.unsupported(self.id.clone(), unsupported);
        }
        if let Some(counters) = &self.shared.counters {
            lock(counters).follow(&self.id, &mut values);
        }
        values.xids = lock(&self.shared.xids).get(&self.id).cloned().unwrap_or_default();
        self.report(true, values, processes);
        for (id, values, processes) in instances {
            self.reports.reading(DeviceReading {
                device: id,
                at: self.clock.now(),
                up: true,
                values: Arc::new(values),
                stats: Arc::default(),
                processes,
            });
        }
    }

    fn report(&self, up: bool, values: DeviceUsage, processes: Option<Vec<crate::model::device::DeviceProcess>>) {
        if self.watch.ended.load(Ordering::Relaxed) {
            return;
        }
        self.reports.reading(DeviceReading {
            device: self.id.clone(),
            at: self.clock.now(),
            up,
            values: Arc::new(values),
            stats: Arc::default(),
            processes,
        });
    }
}

/// Counts error events of the GPUs that were sent last, until the sender is dropped.
pub(super) fn events(
    library: &Library,
    shared: &NvidiaState,
    clock: &dyn Clock,
    reports: &PluginReports,
    watched_rx: &Receiver<Vec<crate::model::id::DeviceId>>,
) {
    let mut ids = match watched_rx.recv() {
        Ok(ids) => ids,
        Err(_) => return,
    };
    loop {
        match library.events(&ids) {
            Ok(events) => {
                expose_dangerous(shared, &events.of);
                match count(&events, shared, clock, watched_rx) {
                    Some(now) => ids = now,
                    None => return,
                }
            }
            // The driver does not support events.
            Err(GpuError::Unsupported(_)) => match watched_rx.recv() {
                Ok(now) => ids = now,
                Err(_) => return,
            },
            Err(_) => {
                if !reports.wait(RETRY_INTERVAL) {
                    return;
                }
            }
        }
    }
}

/// Exposes the errors that require an action from the start.
fn expose_dangerous(shared: &NvidiaState, ids: &[DeviceId]) {
    let mut xids = lock(&shared.xids);
    for id in ids {
        let own: &mut BTreeMap<u64, Xid> = xids.entry(id.clone()).or_default();
        for number in DANGEROUS {
            own.entry(number).or_default();
        }
    }
}

/// Counts until other GPUs are requested (returns them), the event set fails (returns the same), or the sender is
/// dropped (`None`).
fn count(
    events: &GpuEvents<'_>,
    shared: &NvidiaState,
    clock: &dyn Clock,
    watched_rx: &Receiver<Vec<DeviceId>>,
) -> Option<Vec<DeviceId>> {
    loop {
        match watched_rx.try_recv() {
            Ok(ids) => return Some(ids),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {}
        }
        match events.next(EVENT_WAIT) {
            Ok(Some((id, number))) => {
                let mut xids = lock(&shared.xids);
                let xid = xids.entry(id).or_default().entry(number).or_default();
                (xid.count, xid.last) = (xid.count + 1, Some(clock.now()));
            }
            Ok(None) => {}
            Err(_) => {
                std::thread::sleep(Duration::from_millis(u64::from(EVENT_WAIT)));
                return Some(events.of.clone());
            }
        }
    }
}
