//! Logs: one line per event, fields instead of prose, on standard error. `tracing` is the one way to log.

use std::collections::hash_map::DefaultHasher;
use std::fmt::{self, Write as _};
use std::hash::{Hash as _, Hasher};
use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::fields::QuotedFields;
use super::limit::{Limiter, Repeats};
use super::line::OneLine;
use super::metrics::Metrics;
use super::panics::{self, lock};
use crate::model::words;

/// Warnings and errors of one place in the code: this many in ten seconds, the rest is counted.
const BURST: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

words! {
    /// How much is logged.
    #[derive(Default)]
    pub enum LogLevel {
        Off = "off",
        Error = "error",
        Warn = "warn",
        #[default]
        Info = "info",
        Debug = "debug",
        Trace = "trace",
    }
}

impl LogLevel {
    fn filter(self) -> LevelFilter {
        match self {
            LogLevel::Off => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    #[error("{0:?} is no log level; there are off, error, warn, info, debug and trace")]
    Level(String),
    #[error("logging was set up already")]
    Twice,
}

impl FromStr for LogLevel {
    type Err = LoggingError;
    fn from_str(text: &str) -> Result<LogLevel, LoggingError> {
        let known = LogLevel::ALL.into_iter().find(|l| l.as_str().eq_ignore_ascii_case(text));
        known.ok_or_else(|| LoggingError::Level(text.to_owned()))
    }
}

/// Sets logging up for the whole process: once, before anything else runs. Panics are lines too from then on.
///
/// Errors: [`LoggingError::Twice`].
pub fn init(level: LogLevel) -> Result<(), LoggingError> {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    tracing_subscriber::registry()
        .with(level.filter())
        .with(RepeatLimit { lines: Arc::clone(held_back()) })
        .with(lines(std::io::stderr, colour))
        .try_init()
        .map_err(|_| LoggingError::Twice)?;
    panics::log();
    Ok(())
}

/// The layer that writes lines.
fn lines<S, W>(writer: W, colour: bool) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(OneLine(writer)).with_target(false).with_ansi(colour);
    // It would print that a line could not be printed, and panic where it cannot: such a line is lost, and nothing
    // else.
    lines.fmt_fields(QuotedFields).log_internal_errors(false)
}

/// The place in the code, and how the line begins.
#[derive(Clone, PartialEq, Eq, Hash)]
struct LogCallsite {
    callsite: Identifier,
    name: &'static str,
}

/// Which warnings and errors are held back.
struct SuppressionState {
    /// A place, and the text of its line without numbers: one fault, as often as it comes.
    faults: Repeats<(LogCallsite, u64)>,
    places: Limiter<LogCallsite>,
    /// Since the last tick.
    lines: u64,
}

impl SuppressionState {
    fn new(burst: u32) -> SuppressionState {
        SuppressionState { faults: Repeats::default(), places: Limiter::new(burst, WINDOW), lines: 0 }
    }
    fn pass(&mut self, place: LogCallsite, fault: u64, now: Instant) -> bool {
        let key = (place, fault);
        let passes = self.faults.pass(&key, now) && self.places.pass(&key.0, now);
        self.lines += u64::from(!passes);
        passes
    }
}

fn held_back() -> &'static Arc<Mutex<SuppressionState>> {
    static HELD_BACK: OnceLock<Arc<Mutex<SuppressionState>>> = OnceLock::new();
    HELD_BACK.get_or_init(|| Arc::new(Mutex::new(SuppressionState::new(BURST))))
}

/// The text of a line. Numbers are left out, and digits of errors: a fault whose duration grows is the same fault.
#[derive(Default)]
struct FaultHasher {
    hash: DefaultHasher,
    is_error: bool,
}

impl FaultHasher {
    fn of(event: &Event<'_>) -> u64 {
        let mut fault = FaultHasher::default();
        event.record(&mut fault);
        fault.hash.finish()
    }
}

impl fmt::Write for FaultHasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().filter(|b| !self.is_error || !b.is_ascii_digit()).for_each(|b| b.hash(&mut self.hash));
        Ok(())
    }
}

impl Visit for FaultHasher {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.is_error = matches!(field.name(), "error" | "reason" | "why" | "problem");
        field.name().hash(&mut self.hash);
        let _ = write!(self, "{value:?}");
    }
    fn record_f64(&mut self, _: &Field, _: f64) {}
    fn record_i64(&mut self, _: &Field, _: i64) {}
    fn record_u64(&mut self, _: &Field, _: u64) {}
    fn record_i128(&mut self, _: &Field, _: i128) {}
    fn record_u128(&mut self, _: &Field, _: u128) {}
}

/// Holds back a warning or error that comes again and again, and those of a place that logs too many of them.
struct RepeatLimit {
    lines: Arc<Mutex<SuppressionState>>,
}

impl<S: Subscriber> Layer<S> for RepeatLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata: &Metadata<'static> = event.metadata();
        if *metadata.level() > tracing::Level::WARN {
            return true;
        }
        let place = LogCallsite { callsite: metadata.callsite(), name: metadata.name() };
        lock(&self.lines).pass(place, FaultHasher::of(event), Instant::now())
    }
}

/// Logs what was held back since the last time. Called by the sampler, once per tick.
pub fn log_suppressed(metrics: &Metrics) {
    let (now, mut held_back) = (Instant::now(), lock(held_back()));
    let (faults, places) = (held_back.faults.drain(now), held_back.places.drain(now));
    metrics.lines_suppressed(std::mem::take(&mut held_back.lines));
    drop(held_back);
    // `name` is `event src/file.rs:12`.
    let faults = faults.into_iter().map(|held| (held.lines, held.key.0.name));
    for (lines, place) in faults.chain(places.into_iter().map(|held| (held.lines, held.key.name))) {
        tracing::warn!(lines, place, "repeated log lines suppressed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_read_as_it_is_written() {
        for level in LogLevel::ALL {
            assert_eq!(level.as_str().parse::<LogLevel>().unwrap(), level);
        }
        assert_eq!("WARN".parse::<LogLevel>().unwrap(), LogLevel::Warn);
        let message = "loud".parse::<LogLevel>().unwrap_err().to_string();
        assert!(message.contains("\"loud\"") && message.contains("debug"), "{message}");
    }

    #[derive(Clone, Default)]
    struct CapturedLog(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for CapturedLog {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What is logged of what is done.
    fn logged(burst: u32, work: impl FnOnce()) -> String {
        logged_to(false, burst, work)
    }
    /// `colour`: on a terminal.
    fn logged_to(colour: bool, burst: u32, work: impl FnOnce()) -> String {
        let retained = CapturedLog::default();
        let writer = retained.clone();
        let limit = RepeatLimit { lines: Arc::new(Mutex::new(SuppressionState::new(burst))) };
        let lines = lines(move || writer.clone(), colour);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(limit).with(lines), work);
        String::from_utf8(retained.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_place_that_warns_without_end_is_held_back_and_information_is_not() {
        let text = logged(3, || {
            for n in 0..50 {
                tracing::warn!(task = format!("task-{n}"), "a fault");
                tracing::info!(n, "progress");
            }
        });
        assert_eq!(text.matches("a fault").count(), 3);
        assert_eq!(text.matches("progress").count(), 50);
        assert_eq!(text.lines().count(), 53, "one line per event");
    }

    #[test]
    fn repeated_fault_with_other_numbers_is_logged_once_and_another_fault_at_once() {
        let text = logged(20, || {
            for n in 0..50_u64 {
                for collector in ["cpu", "disk"] {
                    tracing::warn!(collector, so_far = n, error = %format!("no answer for {n} s"), "collector failed");
                }
            }
        });
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("cpu") && text.contains("disk"));
    }

    /// Promise (Input validation): An event is one log line whatever its fields contain: no value begins a line or a
    /// field, or controls a terminal
    #[test]
    fn no_value_begins_a_line_or_overwrites_one() {
        let command = "/bin/x\n2026-01-01T00:00:00Z ERROR forged\r\x1b[2Kforged\u{9b}2K";
        let text = logged(9, || {
            tracing::warn!(%command, ?command, error = command, "cannot start {command}");
        });
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(text.ends_with('\n') && !text.contains(['\r', '\x1b', '\u{9b}']), "{text:?}");
        assert!(text.contains("/bin/x\\n2026"), "{text}");
    }

    /// Names of fields, as a reader of `name=value` finds them: outside of quotes.
    fn fields(line: &str) -> Vec<String> {
        let (mut names, mut word, mut is_quoted, mut is_escaped) = (Vec::new(), String::new(), false, false);
        for c in line.chars() {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' if is_quoted => is_escaped = true,
                '"' => is_quoted = !is_quoted,
                _ if is_quoted => {}
                '=' => names.push(std::mem::take(&mut word)),
                ' ' => word.clear(),
                c => word.push(c),
            }
        }
        assert!(!is_quoted, "{line}");
        names
    }

    #[test]
    fn observed_name_in_any_field_forges_no_field_and_no_line() {
        let names = [
            "web".to_owned(),
            "web\n2026-01-01T00:00:00.000000Z ERROR disk lost".to_owned(),
            "web level=error msg=lost".to_owned(),
            "web\" level=error msg=\"lost".to_owned(),
            "web \"".to_owned(),
            "\"web\\\"".to_owned(),
            "\u{1b}[31mred\u{1b}[0m\u{1b}[8m".to_owned(),
            "\u{9b}31m\u{202e}\u{2028}\r\u{7f}".to_owned(),
            "long ".repeat(20_000),
        ];
        for name in &names {
            let error = std::io::Error::other(name.as_str());
            let log = |colour: bool| {
                logged_to(colour, 9, || {
                    let parts = [name];
                    tracing::warn!(%error, path = %name, name, ?parts, cause = ?error, last = "level=x", "ended: {name}");
                })
            };
            let text = log(false);
            assert!(text.ends_with('\n') && text.matches('\n').count() == 1, "{text:?}");
            assert!(!text.trim_end().chars().any(crate::model::text::steers_a_terminal), "{text:?}");
            assert_eq!(fields(&text), ["error", "path", "name", "parts", "cause", "last"], "{text}");
            assert!(text.len() < 7 * (5 << 10), "{} bytes", text.len());
            // On a terminal there are the colours of the line alone.
            let colours = |text: &str| text.matches('\u{1b}').count();
            let text = log(true);
            let plain = logged_to(true, 9, || {
                tracing::warn!(error = %1, path = %2, name = 3, parts = 4, cause = 5, last = 6, "ended");
            });
            assert_eq!(colours(&text), colours(&plain), "{text:?}");
            assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        }
        let text = logged(9, || tracing::warn!(error = "no \"x\" in /a/b", why = %"no \"x\" in /a/b", "ended"));
        assert!(text.ends_with(" ended error=\"no \\\"x\\\" in /a/b\" why=no \"x\" in /a/b\n"), "{text}");
    }
}
