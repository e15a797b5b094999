//! A task's (or an alloc's) descriptors and what they said last.
//!
//! ```text
//! tick ── probes: memory usage, CPU time
//!           ├─ neither moved, now and at the last tick ── 9 s since the last look? ─── no ── done: two system calls
//!           │                                                └─ yes ── what can change while all sleep
//!           └─ moved ── everything that can have changed with it; settings each 9 s
//! ```
//! What the kernel pass tells of a tick ([`kernel_pass`](super::kernel_pass)) is not read from files, probes included.
//! The tick after a movement counts as one too, so that what the kernel writes a moment late is not missed.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::cgroup::{CgroupFiles, Due, Gone};
use super::inner;
use super::kernel_ends::{self, EndedCgroup};
use super::kernel_pass::Readers;
use super::networks::Networks;
use super::pass_rows::PassRows;
use super::process;
use super::raw::Raw;
use super::sampling::Sampling;
use super::scratch::{self, Scratch};
use super::subjects::files;
use super::told::{How, Told};
use super::traffic::Network;
use super::window::{Window, kept_peak};
use crate::kernel::bpf::walk::RowValue;
use crate::model::id::{CgroupPath, ProcessId};
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::{Field, Usage};
use crate::telemetry::lock;

/// Even where nothing seems to move no sample gets older than 10 s: with a tick each second this is due at each ninth, since what
/// the tenth reads is shown only when its pass is over.
const LOOK_EACH: Duration = Duration::from_millis(8_500);
/// Settings of a cgroup in which nothing moves are looked at this often.
const SETTINGS_EACH: Duration = Duration::from_secs(60);

/// Of a task that runs on with as many processes and threads as before they are listed this often, which costs as much as all else that is
/// read of it.
const LIST_EACH: Duration = LOOK_EACH;
/// More processes are listed at that time only, whatever comes and goes among them: each costs as much as one alone.
const MANY: u64 = 64;

/// What a task used, and when that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Of this attempt alone; shared and replaced as a whole: the same `Arc` as before means that nothing changed.
    pub usage: Arc<Usage>,
    /// When more than the probes was read last: up to 10 s ago where nothing moves.
    pub at: Timestamp,
    /// It is what the end of its attempt says: nothing is used now.
    pub is_end: bool,
    /// The reading that rates are taken against.
    pub before: Option<EarlierReading>,
}

/// A reading at least [`RATES_OVER`] older than the one that it stands in.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlierReading {
    pub usage: Arc<Usage>,
    pub at: Timestamp,
}

/// Rates over less time are noise: a reading that a client requests between two ticks is no reference for the next one.
const RATES_OVER: Nanos = Nanos(500_000_000);

impl Reading {
    /// Of an attempt that goes on, as far as is known.
    pub fn of(usage: Arc<Usage>, at: Timestamp) -> Reading {
        Reading { usage, at, is_end: false, before: None }
    }
    /// It replaces `old`, and takes it, or what that was compared with, as its reference.
    fn after(self, old: Option<&Reading>) -> Reading {
        let before = old.and_then(|old| old.reference(self.at));
        Reading { before, ..self }
    }
    fn reference(&self, at: Timestamp) -> Option<EarlierReading> {
        let itself = || EarlierReading { usage: Arc::clone(&self.usage), at: self.at };
        if at.since(self.at) >= RATES_OVER { Some(itself()) } else { self.before.clone() }
    }
}

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Nothing moved and nothing was due: the reading is the one before.
    None,
    /// Everything is as it was, at a later time.
    Later,
    /// Another usage.
    Changed,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadingError {
    /// The cgroup was removed: not an error, and never a zero.
    #[error("the cgroup is gone")]
    Gone,
}

/// Owns a task's descriptors.
///
/// Concurrency: the runner and the sampler both hold it; a read excludes another one, [`TaskReader::latest`] waits for none.
#[derive(Debug)]
pub struct TaskReader {
    sampling: Arc<Sampling>,
    inner: Mutex<Inner>,
    latest: Mutex<Latest>,
    /// What its first reading said, of one that counts from there. Unset: from 0.
    from: Option<Box<OnceLock<Usage>>>,
    /// Where what is read is kept, of a source that keeps nothing itself.
    keep: OnceLock<Box<dyn Keeps>>,
}

#[derive(Debug, Default)]
struct Latest {
    reading: Option<Reading>,
    /// It is the last one.
    closed: bool,
}

/// Takes each new reading before anybody sees it.
pub trait Keeps: std::fmt::Debug + Send + Sync {
    fn keep(&self, reading: &Reading);
}

#[derive(Debug)]
struct Inner {
    pace: Pace,
    source: Source,
    raw: Raw,
    gone: bool,
}

/// What a tick decides by. Together, because a thousand readers do not stay in a processor's cache from one tick to the next.
#[derive(Debug, Default)]
struct Pace {
    /// What the probes said last: memory in use, CPU time used.
    probed: (Option<u64>, Option<u64>),
    next_look: Option<Instant>,
    next_settings: Option<Instant>,
    /// The last tick saw a movement.
    stirred: bool,
    /// When its processes are listed again, and how many processes and threads there were at the last time.
    next_list: Option<Instant>,
    listed: Option<u64>,
    /// They were more than [`MANY`] processes.
    many: bool,
}

impl Pace {
    /// Whether processes are to be listed now; if so the next time is set.
    fn lists(&mut self, pids: Option<u64>, now: Instant, everything: bool, stagger: impl FnOnce() -> Duration) -> bool {
        let first = self.next_list.is_none();
        // Where nobody tells how many there are, there may be others.
        let same = self.many || (pids.is_some() && pids == self.listed);
        if !first && !everything && same && self.next_list.is_some_and(|at| at > now) {
            return false;
        }
        (self.listed, self.next_list) = (pids, Some(now + if first { stagger() } else { LIST_EACH }));
        true
    }
}

#[derive(Debug)]
enum Source {
    Cgroup {
        files: CgroupFiles,
        network: Network,
        /// Its processes are listed. An alloc's are the sum of its tasks'.
        processes: bool,
        /// It is told when its tasks have moved, and does not look for itself at every tick.
        told: bool,
        /// It was there before this agent.
        found: bool,
        /// It is not ours: nothing is reset in it.
        only_reads: bool,
        window: Option<Box<Window>>,
    },
    Processes(ProcessId),
    /// Somebody tells; what was handed on last.
    Told(Option<Reading>),
}

impl Source {
    /// Ours, and made after this agent began.
    fn cgroup(files: CgroupFiles, processes: bool, told: bool) -> Source {
        let network = Network::default();
        Source::Cgroup { files, network, processes, told, found: false, only_reads: false, window: None }
    }
}

impl TaskReader {
    /// Reads a task's cgroup, which exists by now. Opens nothing yet.
    pub fn for_cgroup(sampling: &Arc<Sampling>, path: CgroupPath) -> TaskReader {
        let files = CgroupFiles::new(sampling, path, &[], false);
        TaskReader::new(sampling, Source::cgroup(files, true, false))
    }
    /// Reads an alloc's own cgroup. Its processes and descriptors are the sum of its tasks' and not looked at. It has no
    /// probes: who sees one of its tasks change asks it for `everything`, and otherwise it looks each 9 s only.
    pub fn for_alloc_cgroup(sampling: &Arc<Sampling>, path: CgroupPath) -> TaskReader {
        let files = CgroupFiles::new(sampling, path, &[], true);
        TaskReader::new(sampling, Source::cgroup(files, false, true))
    }
    /// Reads a cgroup above those of tasks, which others made: what each cgroup counts of its own limits, too. Processes are its tasks' and
    /// not looked at.
    pub fn for_parent_cgroup(sampling: &Arc<Sampling>, path: CgroupPath) -> TaskReader {
        TaskReader::of_several(sampling, path, false)
    }
    /// The same of an alloc's own, which is asked for `everything` by who sees one of its tasks change.
    pub fn for_limited_alloc_cgroup(sampling: &Arc<Sampling>, path: CgroupPath) -> TaskReader {
        TaskReader::of_several(sampling, path, true)
    }
    fn of_several(sampling: &Arc<Sampling>, path: CgroupPath, told: bool) -> TaskReader {
        let mut files = CgroupFiles::new(sampling, path, &[], false);
        files.are_of_several();
        TaskReader::new(sampling, Source::cgroup(files, false, told)).that_only_reads()
    }
    /// The same, of a cgroup that was there before this agent: what it says of the last minute has to wait for that.
    pub fn found(self) -> TaskReader {
        if let Source::Cgroup { found, .. } = &mut lock(&self.inner).source {
            *found = true;
        }
        self
    }
    /// The same, of a cgroup that is somebody else's: it is read and nothing else, so of the last minute it has no peak.
    pub fn that_only_reads(self) -> TaskReader {
        if let Source::Cgroup { files, only_reads, .. } = &mut lock(&self.inner).source {
            *only_reads = true;
            files.are_of_others();
        }
        self
    }
    /// The same, of a cgroup whose counters hold what others used, or what was told before: what they say at its first reading is left
    /// out of each. Of its peaks nobody knows when they were reached, so it has none.
    pub fn that_counts_anew(self) -> TaskReader {
        TaskReader { from: Some(Box::default()), ..self }
    }
    /// Reads some files of a cgroup only, by their keys: for measurements of the reading itself.
    pub fn for_files(sampling: &Arc<Sampling>, path: CgroupPath, keys: &[&str]) -> TaskReader {
        let files = CgroupFiles::new(sampling, path, keys, false);
        TaskReader::new(sampling, Source::cgroup(files, false, false))
    }
    /// Adds up the processes below a supervisor (itself left out): where no cgroup could be made. Shared pages count in
    /// each process, and what a process did that nobody waited for is lost.
    pub fn for_processes(sampling: &Arc<Sampling>, supervisor: ProcessId) -> TaskReader {
        TaskReader::new(sampling, Source::Processes(supervisor))
    }

    /// Of a task that nothing of this host tells about: its driver does, when it likes ([`TaskReader::tell`]), and nobody waits
    /// for it. One that tells no more leaves its last reading, with the time at which it told.
    pub fn told(sampling: &Arc<Sampling>) -> TaskReader {
        TaskReader::new(sampling, Source::Told(None))
    }
    /// Counters never fall, whatever is told; of what cannot be the last possible value stays.
    pub fn tell(&self, mut usage: Usage, at: Timestamp) {
        let impossible = usage.drop_impossible();
        let before = self.latest();
        match &before {
            Some(before) if impossible => usage.not_below(&before.usage),
            Some(before) => usage.keep_rising(&before.usage),
            None => {}
        }
        self.set_latest(Reading::of(Arc::new(usage), at));
    }

    /// Whether its source counts on by itself and can be asked by the next agent: a cgroup does.
    pub fn counts_by_itself(&self) -> bool {
        matches!(lock(&self.inner).source, Source::Cgroup { .. })
    }
    /// Goes on from what an earlier reader of the same attempt has kept, and keeps what it reads.
    pub fn keep_in(&self, earlier: Option<Reading>, keep: Box<dyn Keeps>) {
        // Told already: a driver that was asked again for an attempt may give the reader that it had.
        if self.keep.set(keep).is_err() {
            return;
        }
        let mut latest = lock(&self.latest);
        latest.reading = match (latest.reading.take(), earlier) {
            (Some(reading), Some(earlier)) => {
                let mut usage = Usage::clone(&reading.usage);
                usage.keep_rising(&earlier.usage);
                Some(Reading { usage: Arc::new(usage), ..reading })
            }
            (reading, earlier) => reading.or(earlier),
        };
    }

    /// From now on nobody sees another reading than this one, the last: it is what its attempt will have used.
    pub fn close(&self) -> Option<Reading> {
        let mut latest = lock(&self.latest);
        latest.closed = true;
        latest.reading.clone()
    }
    /// The same, where it is known what its end says. Where nothing was ever read of it, as right after a restart of the agent, that is seen
    /// until it is shown: else sums would be smaller for a moment.
    pub fn close_with(&self, end: &Usage, at: Timestamp) -> Option<Reading> {
        let last = self.close();
        if last.is_none() && *end != Usage::default() {
            lock(&self.latest).reading =
                Some(Reading { is_end: true, ..Reading::of(Arc::new(end.without_live()), at) });
        }
        last
    }

    fn set_latest(&self, reading: Reading) {
        if let Some(keep) = self.keep.get() {
            keep.keep(&reading);
        }
        let mut latest = lock(&self.latest);
        if !latest.closed {
            latest.reading = Some(reading.after(latest.reading.as_ref()));
        }
    }

    fn new(sampling: &Arc<Sampling>, source: Source) -> TaskReader {
        let inner = Inner { pace: Pace::default(), source, raw: Raw::default(), gone: false };
        let (inner, latest, keep) = (Mutex::new(inner), Mutex::default(), OnceLock::new());
        TaskReader { sampling: Arc::clone(sampling), inner, latest, from: None, keep }
    }

    /// Reads what can have changed. `now` decides what is due; with `everything` all is, but an alloc's settings at their
    /// time.
    ///
    /// Errors: `Gone`, from then on for ever: this attempt's cgroup was removed, or its supervisor has ended. Anything else
    /// that goes wrong costs its own field, and is counted in `Sampling::errors`.
    pub fn read(&self, now: Instant, at: Timestamp, everything: bool) -> Result<Reading, ReadingError> {
        self.look(now, at, everything)?;
        // Only a reader that is gone has never read anything.
        self.latest().ok_or(ReadingError::Gone)
    }

    /// [`TaskReader::read`] without the reading: whether it is another one than before.
    pub fn look(&self, now: Instant, at: Timestamp, everything: bool) -> Result<News, ReadingError> {
        let mut inner = lock(&self.inner);
        if let Source::Told(handed_on) = &mut inner.source {
            let mut latest = lock(&self.latest);
            let reading = latest.reading.get_or_insert_with(|| Reading::of(Arc::default(), at)).clone();
            drop(latest);
            let news = match handed_on {
                Some(last) if *last == reading => News::None,
                Some(last) if last.usage == reading.usage => News::Later,
                Some(_) | None => News::Changed,
            };
            *handed_on = Some(reading);
            return Ok(news);
        }
        let read = match inner.gone {
            true => Err(Gone),
            false => {
                let rows = self.sampling.rows(now);
                scratch::with(|s| inner.read(&self.sampling, s, rows.as_deref(), now, everything))
            }
        };
        match read {
            Ok(Read::Nothing) => Ok(News::None),
            Ok(Read::Window) => {
                let earlier = self.latest().map(|reading| reading.at);
                Ok(self.keep(&inner.raw, earlier.unwrap_or(at)))
            }
            Ok(Read::All) => Ok(self.keep(&inner.raw, at)),
            Err(Gone) => {
                inner.close(&self.sampling.networks);
                Err(ReadingError::Gone)
            }
        }
    }

    /// Makes what was read the newest reading.
    fn keep(&self, raw: &Raw, at: Timestamp) -> News {
        let before = self.latest().map(|reading| reading.usage);
        let mut usage = raw.finish();
        if let Some(from) = &self.from {
            let first = from.get_or_init(|| usage.counters());
            usage.count_from(first);
        }
        if let Some(before) = &before {
            usage.keep_rising(before);
        }
        if raw.peak_missing {
            let seen = before.as_ref().and_then(|b| b.memory_sampled_peak_bytes());
            usage.set(Field::memory_sampled_peak_bytes, usage.memory_usage_bytes().max(seen));
        }
        match before {
            Some(before) if *before == usage => {
                if let Some(reading) = &mut lock(&self.latest).reading {
                    *reading = Reading { at, before: reading.reference(at), ..reading.clone() };
                }
                News::Later
            }
            _ => {
                self.set_latest(Reading::of(Arc::new(usage), at));
                News::Changed
            }
        }
    }

    /// Whether it was this very cgroup that was removed. `None`: this reader knows of none in that hierarchy.
    pub fn is_of(&self, ended: &EndedCgroup) -> Option<bool> {
        match &lock(&self.inner).source {
            Source::Cgroup { files, .. } => files.inode_in(ended.home).map(|inode| inode == ended.inode),
            Source::Processes(_) | Source::Told(_) => None,
        }
    }

    /// Takes what the kernel said of the cgroup as it was removed: of one hierarchy, and each tells its own. It looks at nothing.
    pub fn end(&self, ended: &EndedCgroup, at: Timestamp) {
        let mut inner = lock(&self.inner);
        let Some(home) = self.sampling.layout.hierarchies().get(ended.home) else { return };
        let pass = self.sampling.kernel_pass();
        for file in files().filter(|file| pass.is_none_or(|pass| pass.distrust.trusts(file))) {
            let Some(Told { how: How::Says(says), .. }) = kernel_ends::says(file) else { continue };
            if file.home.is(&self.sampling.layout, home) {
                // What its row lacks stays as it was read last.
                let _ = says(&mut inner.raw, ended.row());
            }
        }
        self.keep(&inner.raw, at);
    }

    /// The same of a cgroup inside of it.
    pub fn end_below(&self, ended: &EndedCgroup, at: Timestamp) {
        let layout = &self.sampling.layout;
        let is_it = layout.hierarchies().get(ended.home).is_some_and(|home| inner::HOME.is(layout, home));
        let Some(kills) = ended.row().get(RowValue::OomKills).filter(|kills| is_it && *kills > 0) else { return };
        let mut inner = lock(&self.inner);
        inner.raw.inner.get_or_insert_default().ended(ended.inode, kills);
        self.keep(&inner.raw, at);
    }

    /// Whether a look is due even if nothing seems to move.
    pub fn is_due(&self, now: Instant) -> bool {
        lock(&self.inner).pace.next_look.is_none_or(|at| at <= now)
    }

    /// Somebody has limited the memory or the CPU time of this very cgroup, as far as was read.
    pub fn has_own_limit(&self) -> bool {
        let inner = lock(&self.inner);
        [inner.raw.memory_limit, inner.raw.quota].into_iter().flatten().any(|limit| limit.finite().is_some())
    }

    /// What is read is the cgroup that stands there now, wherever it stands.
    pub fn stands(&self) -> bool {
        match &lock(&self.inner).source {
            Source::Cgroup { files, .. } => files.stand(),
            Source::Processes(_) | Source::Told(_) => true,
        }
    }

    /// It was found to be gone.
    pub fn is_gone(&self) -> bool {
        lock(&self.inner).gone
    }

    /// The newest reading, without touching the kernel.
    pub fn latest(&self) -> Option<Reading> {
        lock(&self.latest).reading.clone()
    }
}

/// What a look read, beside the probes.
enum Read {
    Nothing,
    /// A sub-window ended, and the highest of the last minute is another one.
    Window,
    /// What was due: the first time always.
    All,
}

impl Inner {
    fn read(
        &mut self,
        sampling: &Arc<Sampling>,
        scratch: &mut Scratch,
        rows: Option<&PassRows>,
        now: Instant,
        everything: bool,
    ) -> Result<Read, Gone> {
        let (files, network, processes, told, found, only_reads, window) = match &mut self.source {
            Source::Processes(supervisor) => {
                process::sum(sampling, *supervisor, scratch, &mut self.raw.usage)?;
                self.pace.next_look = Some(now + LOOK_EACH);
                // The sums stand where a cgroup's own numbers would: nothing is derived from them.
                self.raw.user_ns = self.raw.usage.cpu_user_ns();
                self.raw.system_ns = self.raw.usage.cpu_system_ns();
                self.raw.major_faults = self.raw.usage.page_faults_major();
                self.raw.page_faults =
                    self.raw.usage.page_faults_minor().zip(self.raw.major_faults).map(|(a, b)| a.saturating_add(b));
                return Ok(Read::All);
            }
            Source::Cgroup { files, network, processes, told, found, only_reads, window } => {
                (files, network, *processes, *told, *found, *only_reads, window)
            }
            // Handed on where it was told.
            Source::Told(_) => return Ok(Read::Nothing),
        };
        let raw = &mut self.raw;
        let first = self.pace.next_look.is_none();
        let look_due = self.pace.next_look.is_none_or(|at| at <= now);
        if first {
            raw.kept_peak = kept_peak(&sampling.layout, files.path());
            if !only_reads {
                *window = Window::begin(sampling, files.path(), found, now, &mut raw.kept_peak).map(Box::new);
            }
        }
        // The first look is one at all files: what is not there is known from then on.
        let pass = sampling.kernel_pass().filter(|_| !first);
        // Where a pass tells everything, looking costs next to nothing.
        let told_all = pass.is_some() && rows.is_some_and(|rows| rows.are_all) && !told;
        let look = look_due || told_all;
        // The next rows of everything, in some seconds, tell what somebody has set: no file is opened for that.
        let waits = pass.is_some() && !told && rows.is_some_and(|rows| !rows.are_all);
        let rows = pass.zip(rows).map(|(pass, rows)| {
            if files.is_wanted(rows) {
                pass.offer(files.path());
            }
            files.rows(rows, &pass.distrust, only_reads)
        });
        let rows = rows.as_ref();
        if told && !everything && !look {
            return Ok(if close(window, files.path(), raw, now) { Read::Window } else { Read::Nothing });
        }
        files.probe(scratch, raw, rows)?;
        let probed = (raw.usage.memory_usage_bytes(), raw.usage.cpu_usage_ns());
        // Nobody knows whether it ran if nothing tells CPU time.
        let ran = probed.1 != self.pace.probed.1 || probed.1.is_none();
        let moved = ran || probed.0 != self.pace.probed.0;
        let unsettled = std::mem::replace(&mut self.pace.stirred, moved);
        self.pace.probed = probed;

        // Rows tell what somebody sets by themselves.
        let seldom = look_due && moved && !rows.is_some_and(|rows| files.show_settings(rows));
        let set = !waits && (seldom || self.pace.next_settings.is_none_or(|at| at <= now));
        let due = if first || (everything && !told) {
            Due::ALL
        } else {
            let (moved, ran) = (moved || unsettled || everything, ran || unsettled || everything);
            Due { asleep: moved || (look && !told), stirred: moved, ran, set }
        };
        if let Some(pass) = pass.filter(|_| moved || unsettled) {
            pass.note_moved(if only_reads { Readers::Others } else { Readers::Ours });
        }
        if look_due || everything || (told_all && !moved) {
            self.pace.next_look = Some(now + if first { sampling.stagger(LOOK_EACH) } else { LOOK_EACH });
        }
        if due.set {
            self.pace.next_settings = Some(now + if first { sampling.stagger(SETTINGS_EACH) } else { SETTINGS_EACH });
        }
        if let Some(window) = window {
            window.moved |= moved || unsettled || everything;
        }
        let closed = close(window, files.path(), raw, now);
        if !(due.asleep || due.stirred || due.ran || due.set) {
            return Ok(match (look, closed) {
                (true, _) => Read::All,
                (false, true) => Read::Window,
                (false, false) => Read::Nothing,
            });
        }
        files.read_due(scratch, raw, rows, due)?;
        let stagger = || sampling.stagger(LIST_EACH);
        let wanted = processes && (due.ran || self.pace.next_list.is_none());
        let lists = wanted && self.pace.lists(raw.usage.pids_current(), now, everything, stagger);
        // Whom the OOM killer chose had memory.
        if lists || (due.stirred && raw.inner.as_ref().is_some_and(|inner| inner.are_few())) {
            inner::look(&sampling.layout, files.path(), scratch, &mut raw.inner);
        }
        if lists {
            process::count(sampling, files, scratch, &mut raw.usage)?;
            self.pace.many = raw.usage.processes().is_some_and(|count| count > MANY);
        }
        let looks = processes && (due.ran || look_due);
        if looks && network.read(sampling, scratch, (now, lists), &mut raw.usage) {
            self.pace.next_list = None;
        }
        Ok(Read::All)
    }

    fn close(&mut self, networks: &Networks) {
        self.gone = true;
        if let Source::Cgroup { files, network, window, .. } = &mut self.source {
            files.close();
            network.close(networks);
            *window = None;
        }
    }
}

/// Ends a sub-window, if it is time. Gives whether the highest of the last minute is another one now.
fn close(window: &mut Option<Box<Window>>, path: &CgroupPath, raw: &mut Raw, now: Instant) -> bool {
    let Some(window) = window.as_mut().filter(|w| w.is_due(now)) else { return false };
    let highest = window.close(path, now, raw.usage.memory_usage_bytes(), &mut raw.kept_peak);
    let changed = raw.usage.memory_window_peak_bytes() != highest;
    raw.usage.set(Field::memory_window_peak_bytes, highest);
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_processes_as_before_are_listed_at_their_time_and_others_at_once() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let mut lists = |pids, after, everything| pace.lists(pids, now + after, everything, || LIST_EACH);
        let second = Duration::from_secs(1);
        assert!(lists(Some(3), Duration::ZERO, false), "the first time");
        assert!(!lists(Some(3), second, false));
        assert!(lists(Some(4), 2 * second, false), "one more");
        assert!(!lists(Some(4), 10 * second, false));
        assert!(lists(Some(4), 11 * second, false), "it is time");
        assert!(lists(Some(4), 12 * second, true), "all is read, as at the end");
        assert!(lists(None, 13 * second, false) && lists(None, 14 * second, false), "nobody says how many there are");
        pace.many = true;
        let mut lists = |pids, after| pace.lists(pids, now + after, false, || LIST_EACH);
        assert!(
            !lists(Some(200), 15 * second) && !lists(Some(300), 22 * second),
            "so many are listed at their time only"
        );
        assert!(lists(Some(300), 23 * second) && !lists(Some(200), 24 * second));
    }
}
