use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use super::super::packed::read;
use super::*;
use crate::store::queue::{Queue, QueueFiles, QueueLimits, SegmentFiles};
use crate::telemetry::otlp::{Lane, OtlpSignal};

const ALLOC: &str = "6f1c2f3e-5b0a-4c1d-9a57-2d0c3b4a5e61";

/// A data directory with the logs of one task, and agents that read it one after the other.
struct LogHost {
    dir: TempDir,
    config: Config,
    metrics: Arc<Metrics>,
    now: Instant,
    is_rewritten: bool,
}

/// A disk that may refuse everything.
struct RefusingFiles(SegmentFiles, Arc<AtomicBool>);

impl RefusingFiles {
    fn disk(&self) -> io::Result<()> {
        if self.1.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl QueueFiles for RefusingFiles {
    fn list(&mut self) -> io::Result<Vec<u64>> {
        self.0.list()
    }
    fn read(&mut self, segment: u64) -> io::Result<Vec<u8>> {
        self.0.read(segment)
    }
    fn read_at(&mut self, segment: u64, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.0.read_at(segment, offset, length)
    }
    fn create(&mut self, segment: u64) -> io::Result<()> {
        self.disk().and_then(|()| self.0.create(segment))
    }
    fn write_at(&mut self, segment: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk().and_then(|()| self.0.write_at(segment, offset, bytes))
    }
    fn sync(&mut self, segment: u64) -> io::Result<()> {
        self.0.sync(segment)
    }
    fn truncate(&mut self, segment: u64, length: u64) -> io::Result<()> {
        self.0.truncate(segment, length)
    }
    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.0.remove(segment)
    }
}

/// A running agent.
struct LogAgent {
    maker: WorkloadMaker,
    outbox: Outbox,
}

impl LogHost {
    fn new(config: Config) -> LogHost {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(logs_of(&dir.path().join("alloc"), &ALLOC.into())).unwrap();
        let config = Config { task_streams: ForwardedStream::ALL.into(), compression: Compression::None, ..config };
        LogHost { dir, config, metrics: Arc::new(Metrics::new()), now: Instant::now(), is_rewritten: false }
    }

    fn file(&self, name: &str) -> PathBuf {
        logs_of(&self.dir.path().join("alloc"), &ALLOC.into()).join(name)
    }

    fn write(&self, name: &str, text: &[u8]) {
        OpenOptions::new().create(true).append(true).open(self.file(name)).unwrap().write_all(text).unwrap();
    }

    fn start(&self) -> LogAgent {
        self.start_on(|files| Box::new(files))
    }

    fn start_on(&self, disk: impl FnOnce(SegmentFiles) -> Box<dyn QueueFiles>) -> LogAgent {
        let queue_dir = self.dir.path().join("otlp/logs/workload_logs");
        let limits = QueueLimits { bytes: 1 << 30, age: Duration::from_secs(3_600), memory_bytes: 8 << 20 };
        let queue = Queue::open(disk(SegmentFiles::new(&queue_dir)), limits);
        let next = queue.next_id();
        let lane: Lane = ("default".into(), OtlpSignal::WorkloadLogs);
        let outbox = Outbox::new(lane, queue, 1 << 30, Arc::clone(&self.metrics));
        let dirs = (self.dir.path(), queue_dir.as_path());
        let maker = WorkloadMaker::open(
            "default",
            &self.config,
            HostIdentity::default(),
            dirs,
            next,
            Arc::clone(&self.metrics),
        );
        LogAgent { maker, outbox }
    }

    fn lost(&self) -> [u64; 3] {
        self.metrics.push.outputs_lost().get("default").copied().unwrap_or_default()
    }

    fn later(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn tick(&self, agent: &mut LogAgent) {
        self.tick_of(agent, None, 1 << 20);
    }

    fn tick_of(&self, agent: &mut LogAgent, ended: Option<u32>, file_bytes: u64) {
        let open = ForwardedStream::ALL.map(|stream| {
            let key = StreamKey { alloc: ALLOC.into(), task: "t".into(), stream: stream.as_str() };
            OpenStream { key, index: stream.index(), ended, file_bytes, is_rewritten: self.is_rewritten }
        });
        agent.maker.push_output(&open, &|_, _| Resource::default(), &agent.outbox, self.now);
    }
}

impl LogAgent {
    /// All that is queued is delivered: stream, text, and whether the line goes on.
    fn taken(&self) -> Vec<(String, String, bool)> {
        let mut all = Vec::new();
        while self.outbox.queued() > 0 {
            let parcel = self.outbox.next().unwrap();
            let request: ExportLogsServiceRequest = read(&parcel.bytes).unwrap();
            let scopes = request.resource_logs.into_iter().flat_map(|of| of.scope_logs);
            all.extend(scopes.flat_map(|scope| scope.log_records).map(|record| {
                let text = |value: Option<any_value::Value>| match value {
                    Some(any_value::Value::StringValue(text)) => text,
                    other => panic!("{other:?}"),
                };
                let stream = text(record.attributes[0].value.clone().unwrap().value);
                (stream, text(record.body.unwrap().value), record.attributes.len() > 1)
            }));
            self.outbox.settle(parcel.id, 0);
        }
        all
    }

    fn texts(&self, stream: &str) -> Vec<String> {
        self.taken().into_iter().filter(|(of, ..)| of == stream).map(|(_, text, _)| text).collect()
    }
}

#[test]
fn output_of_both_streams_is_sent_once_and_in_order_over_rotation_and_restarts() {
    let mut host = LogHost::new(Config::default());
    host.write("t.stdout.0", b"one\ntwo\n");
    host.write("t.stderr.0", b"error\n");
    let mut agent = host.start();
    host.tick(&mut agent);
    let mut all = agent.taken();
    all.sort();
    let line = |stream: &str, text: &str| (stream.to_owned(), text.to_owned(), false);
    assert_eq!(all, [line("stderr", "error"), line("stdout", "one"), line("stdout", "two")]);
    host.write("t.stdout.0", b"three\n");
    host.write("t.stdout.1", b"four\n");
    host.later(1);
    drop(agent);
    let mut agent = host.start();
    host.tick(&mut agent);
    host.tick(&mut agent);
    assert_eq!(agent.texts("stdout"), ["three", "four"]);
    assert_eq!(host.lost(), [0; 3]);
}

#[test]
fn agent_killed_between_place_and_batch_sends_the_batch_again_and_no_other() {
    let host = LogHost::new(Config::default());
    host.write("t.stdout.0", b"one\n");
    let mut agent = host.start();
    host.tick(&mut agent);
    host.write("t.stdout.0", b"two\n");
    // The queue takes no more: as if the agent had been killed before it was written.
    agent.outbox.close();
    host.tick(&mut agent);
    drop(agent);
    let mut agent = host.start();
    host.tick(&mut agent);
    assert_eq!(agent.texts("stdout"), ["one", "two"]);
}

#[test]
fn output_waits_in_its_files_while_the_disk_refuses_batches_and_a_kill_loses_none() {
    let mut host = LogHost::new(Config { task_rate: 1 << 30, tasks_rate: 1 << 30, ..Config::default() });
    let lines: Vec<String> = (0..4_000).map(|n| format!("{n:<999}")).collect();
    host.write("t.stdout.0", (lines.join("\n") + "\n").as_bytes());
    let refuses = Arc::new(AtomicBool::new(true));
    let mut agent = host.start_on(|files| Box::new(RefusingFiles(files, Arc::clone(&refuses))));
    for _ in 0..3 {
        host.tick(&mut agent);
        host.later(1);
    }
    assert!((1..1_100).contains(&agent.outbox.queued()), "one batch in memory: {}", agent.outbox.queued());
    // Killed: memory is lost.
    drop(agent);
    let mut agent = host.start_on(|files| Box::new(RefusingFiles(files, Arc::clone(&refuses))));
    host.tick(&mut agent);
    refuses.store(false, Ordering::SeqCst);
    host.later(1);
    host.tick(&mut agent);
    assert!(agent.texts("stdout") == lines, "each line once and in order");
    host.write("t.stdout.0", b"after\n");
    host.later(1);
    host.tick(&mut agent);
    assert_eq!((agent.texts("stdout"), host.lost()), (vec!["after".to_owned()], [0; 3]));
}

#[test]
fn truncated_output_stream_continues_and_is_counted() {
    let mut host = LogHost::new(Config::default());
    host.write("t.stdout.3", b"0123456789\n");
    let mut agent = host.start();
    host.tick(&mut agent);
    assert_eq!(agent.texts("stdout"), ["0123456789"]);
    std::fs::write(host.file("t.stdout.3"), "new\n").unwrap();
    host.tick(&mut agent);
    host.write("t.stdout.3", b"newer\n");
    host.tick(&mut agent);
    assert_eq!((agent.texts("stdout"), host.lost()), (vec!["newer".to_owned()], [0, 4, 0]));
    // Its file is gone, and an older one is there: what was sent is not sent again.
    host.write("t.stdout.1", b"older\n");
    std::fs::remove_file(host.file("t.stdout.3")).unwrap();
    host.tick(&mut agent);
    host.write("t.stdout.1", b"newest\n");
    host.tick(&mut agent);
    assert_eq!((agent.texts("stdout"), host.lost()), (vec!["newest".to_owned()], [0, 10, 0]));

    // The driver of containers removes what was written after its position, and writes it again.
    host.is_rewritten = true;
    std::fs::write(host.file("t.stdout.1"), "old").unwrap();
    host.tick(&mut agent);
    host.write("t.stdout.1", b"er\nnewest\n");
    host.later(1);
    host.tick(&mut agent);
    host.write("t.stdout.1", b"last\n");
    host.tick(&mut agent);
    assert_eq!((agent.texts("stdout"), host.lost()), (vec!["last".to_owned()], [0, 10, 0]));
    std::fs::write(host.file("t.stdout.1"), "old\n").unwrap();
    host.tick(&mut agent);
    host.later(REWRITTEN.as_secs());
    host.tick(&mut agent);
    host.write("t.stdout.1", b"after\n");
    host.tick(&mut agent);
    assert_eq!((agent.texts("stdout"), host.lost()), (vec!["after".to_owned()], [0, 14, 0]));
}

#[test]
fn line_without_an_end_waits_for_it_and_is_sent_when_nothing_follows() {
    let mut host = LogHost::new(Config::default());
    let mut agent = host.start();
    host.write("t.stdout.0", b"prompt> ");
    host.tick(&mut agent);
    host.later(4);
    host.write("t.stdout.0", b"typed");
    host.tick(&mut agent);
    assert!(agent.taken().is_empty());
    host.later(4);
    host.tick(&mut agent);
    assert!(agent.taken().is_empty(), "it grew 4 seconds ago");
    host.later(2);
    host.tick(&mut agent);
    assert_eq!(agent.taken(), [("stdout".to_owned(), "prompt> typed".to_owned(), true)]);
    host.write("t.stdout.0", b"\nlast words");
    host.tick_of(&mut agent, Some(0), 1 << 20);
    assert_eq!(agent.texts("stdout"), ["", "last words"], "its task has ended");
}

#[test]
fn task_that_writes_too_much_is_bounded_and_what_it_loses_is_counted() {
    let mut host = LogHost::new(Config { task_rate: 10_000, ..Config::default() });
    let line = format!("{}\n", "x".repeat(999));
    for _ in 0..30 << 10 {
        host.write("t.stdout.0", line.as_bytes());
    }
    host.write("t.stderr.0", b"beside\n");
    let size = 30_720_u64 * 1_000;
    let mut agent = host.start();
    host.tick(&mut agent);
    let first = agent.taken();
    let cost: u64 = first.iter().map(|(_, text, _)| text.len() as u64 + RECORD_BYTES).sum();
    assert!((40_000..42_000).contains(&cost), "a burst of four seconds: {cost}");
    let [rate, rotated, removed] = host.lost();
    assert!(rate > size - MOST_BEHIND - 50_000 && rate < size - MOST_BEHIND && rotated + removed == 0, "{rate}");
    for _ in 0..5 {
        host.later(1);
        host.tick(&mut agent);
        let cost: u64 = agent.taken().iter().map(|(_, text, _)| text.len() as u64 + RECORD_BYTES).sum();
        assert!((9_000..12_000).contains(&cost), "{cost}");
    }
    // Whole lines, and each either sent or counted.
    host.config.task_rate = 1 << 30;
    host.config.tasks_rate = 1 << 30;
    let before = host.lost();
    drop(agent);
    let mut agent = host.start();
    host.tick(&mut agent);
    let rest = agent.texts("stdout");
    assert!(rest.iter().all(|text| text.len() == 999), "no line is cut");
    assert_eq!(host.lost(), before);
    assert!(rest.len() as u64 * 1_000 < MOST_BEHIND && rest.len() as u64 * 1_000 > MOST_BEHIND - 100_000);
}

#[test]
fn all_tasks_together_are_bounded_and_empty_lines_cost_too() {
    let host = LogHost::new(Config { tasks_rate: 1_000, ..Config::default() });
    host.write("t.stdout.0", &[b'\n'; 100_000]);
    let mut agent = host.start();
    host.tick(&mut agent);
    assert_eq!(agent.taken().len() as u64, 4_000_u64.div_ceil(RECORD_BYTES));
}

#[test]
fn output_that_rotation_or_garbage_collection_removes_is_counted() {
    let mut host = LogHost::new(Config { task_rate: 1_024, ..Config::default() });
    host.write("t.stdout.0", &b"0123456789abcde\n".repeat(1_000));
    let mut agent = host.start();
    host.tick_of(&mut agent, None, 16_000);
    let sent = agent.taken().len() as u64 * 16;
    std::fs::rename(host.file("t.stdout.0"), host.file("t.stdout.3")).unwrap();
    host.later(1);
    host.tick_of(&mut agent, None, 16_000);
    assert_eq!(host.lost(), [0, 3 * 16_000 - sent, 0]);
    let more = agent.taken().len() as u64 * 16;
    agent.maker.push_output(&[], &|_, _| Resource::default(), &agent.outbox, host.now);
    assert_eq!(host.lost()[2], 16_000 - more);
}

/// A task of another user may write into the directory above.
#[test]
fn hostile_names_and_bytes_in_the_log_directory_do_no_harm() {
    let host = LogHost::new(Config::default());
    std::fs::write(host.dir.path().join("secret"), "SECRET\n").unwrap();
    std::os::unix::fs::symlink(host.dir.path().join("secret"), host.file("t.stdout.0")).unwrap();
    std::fs::create_dir(host.file("t.stderr.0")).unwrap();
    let noise: Vec<u8> = (0..200_000_u32).map(|n| u8::try_from((n % 4_096).pow(2) % 251).unwrap()).collect();
    host.write("t.stderr.1", &noise);
    let mut agent = host.start();
    host.tick_of(&mut agent, Some(0), 1 << 20);
    let all = agent.taken();
    assert!(!all.is_empty() && all.iter().all(|(stream, text, _)| stream == "stderr" && !text.contains(['\0', '\n'])));
    assert!(all.iter().all(|(_, text, _)| text.len() <= 3 * lines::LONGEST));
}
