//! Writes a plugin's output to the agent's log: lines of HashiCorp's logger with their level, other lines at `debug`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::model::text::log_text;
use crate::telemetry::limit::Limiter;
use crate::telemetry::lock;

/// Longer lines are split.
const MOST_LINE_BYTES: usize = 64 << 10;
/// Rate limit: at most this many lines per window.
const BURST: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// Splits bytes into complete lines. Pure.
#[derive(Debug, Default)]
pub(super) struct LineSplitter {
    bytes: Vec<u8>,
}

impl LineSplitter {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
    /// The next line without its newline. `None`: incomplete.
    pub(super) fn next(&mut self) -> Option<String> {
        let end = self.bytes.iter().take(MOST_LINE_BYTES).position(|byte| *byte == b'\n');
        let (length, taken) = match end {
            Some(at) => (at, at + 1),
            None if self.bytes.len() >= MOST_LINE_BYTES => (MOST_LINE_BYTES, MOST_LINE_BYTES),
            None => return None,
        };
        let line = String::from_utf8_lossy(&self.bytes[..length]).trim_end_matches('\r').to_owned();
        self.bytes.drain(..taken);
        Some(line)
    }
    /// The rest, which has no newline.
    pub(super) fn rest(&mut self) -> Option<String> {
        let rest = String::from_utf8_lossy(&std::mem::take(&mut self.bytes)).into_owned();
        (!rest.is_empty()).then_some(rest)
    }
}

/// A line of HashiCorp's logger.
#[derive(Debug, Deserialize)]
struct LogLine {
    #[serde(rename = "@level")]
    level: String,
    #[serde(rename = "@message")]
    message: String,
    #[serde(flatten)]
    fields: BTreeMap<String, Value>,
}

impl LogLine {
    /// `None`: another format.
    fn parse(line: &str) -> Option<LogLine> {
        let mut parsed: LogLine = serde_json::from_str(line).ok()?;
        // The agent's log has its own timestamp and names the plugin.
        parsed.fields.retain(|name, _| !name.starts_with('@'));
        Some(parsed)
    }
    fn text(&self) -> String {
        let field = |(name, value): (&String, &Value)| match value {
            Value::String(text) => format!(" {name}={text:?}"),
            other => format!(" {name}={other}"),
        };
        self.message.clone() + &self.fields.iter().map(field).collect::<String>()
    }
}

/// The output of one plugin. Clones share the rate limit.
#[derive(Debug, Clone)]
pub(super) struct PluginOutput {
    plugin: String,
    limiter: Arc<Mutex<Limiter<()>>>,
    /// The last line on standard error.
    last: Arc<Mutex<Option<String>>>,
}

/// The stream of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PluginStream {
    Output,
    Error,
}

impl PluginOutput {
    pub(super) fn new(plugin: &str) -> PluginOutput {
        let limiter = Arc::new(Mutex::new(Limiter::new(BURST, WINDOW)));
        PluginOutput { plugin: plugin.to_owned(), limiter, last: Arc::default() }
    }
    pub(super) fn log_line(&self, line: &str, on: PluginStream) {
        if line.trim().is_empty() {
            return;
        }
        let parsed = LogLine::parse(line);
        let text = log_text(&parsed.as_ref().map_or_else(|| line.to_owned(), LogLine::text));
        if self.may() {
            self.log(parsed.as_ref().map_or("debug", |parsed| parsed.level.as_str()), &text);
        }
        if on == PluginStream::Error {
            *lock(&self.last) = Some(text);
        }
    }
    /// The last line on standard error: usually why the plugin ended.
    pub(super) fn last(&self) -> Option<String> {
        lock(&self.last).clone()
    }

    fn may(&self) -> bool {
        let (mut limiter, now) = (lock(&self.limiter), Instant::now());
        for suppressed in limiter.drain(now) {
            tracing::warn!(plugin = %self.plugin, lines = suppressed.lines, "device plugin output suppressed");
        }
        limiter.pass(&(), now)
    }
    fn log(&self, level: &str, line: &str) {
        let plugin = &self.plugin;
        match level {
            "error" => tracing::error!(%plugin, line, "device plugin output"),
            "warn" => tracing::warn!(%plugin, line, "device plugin output"),
            "info" => tracing::info!(%plugin, line, "device plugin output"),
            _ => tracing::debug!(%plugin, line, "device plugin output"),
        }
    }

    /// Logs the output until the stream ends.
    pub(super) async fn read_all(&self, on: PluginStream, mut from: impl AsyncRead + Unpin, mut lines: LineSplitter) {
        let mut buffer = [0; 4096];
        loop {
            while let Some(line) = lines.next() {
                self.log_line(&line, on);
            }
            match from.read(&mut buffer).await {
                Ok(read @ 1..) => lines.push(&buffer[..read]),
                Ok(0) | Err(_) => break,
            }
        }
        lines.rest().into_iter().for_each(|rest| self.log_line(&rest, on));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_of_their_logger_is_read_with_its_level_and_fields() {
        let line = r#"{"@level":"warn","@message":"no driver","@module":"x","@timestamp":"t","error":"e","n":3}"#;
        let parsed = LogLine::parse(line).unwrap();
        assert_eq!((parsed.level.as_str(), parsed.text().as_str()), ("warn", "no driver error=\"e\" n=3"));
        assert!(LogLine::parse("{}").is_none() && LogLine::parse("panic: x").is_none());
    }

    #[test]
    fn last_plugin_output_is_retained_even_above_the_log_rate() {
        let output = PluginOutput::new("x");
        (0..BURST + 5).for_each(|n| output.log_line(&n.to_string(), PluginStream::Error));
        output.log_line("", PluginStream::Error);
        output.log_line("x", PluginStream::Output);
        assert_eq!(output.last(), Some((BURST + 4).to_string()));
        output.log_line(&format!("\u{1b}[2J{}", "x".repeat(60_000)), PluginStream::Error);
        let last = output.last().unwrap();
        assert!(last.len() < 1_100 && !last.contains('\u{1b}'), "{last}");
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let mut lines = LineSplitter::default();
        lines.push(&vec![b'x'; MOST_LINE_BYTES + 3]);
        assert_eq!(lines.next().unwrap().len(), MOST_LINE_BYTES);
        assert_eq!((lines.next(), lines.rest(), lines.rest()), (None, Some("xxx".into()), None));
    }

    proptest! {
        #[test]
        fn lines_come_back_however_they_are_cut(all in prop::collection::vec("[^\n\r]{0,9}", 0..5), cut in 1..5usize) {
            let text: String = all.iter().map(|line| format!("{line}\r\n")).collect();
            let (mut lines, mut found) = (LineSplitter::default(), Vec::new());
            for piece in text.as_bytes().chunks(cut) {
                lines.push(piece);
                found.extend(std::iter::from_fn(|| lines.next()));
            }
            prop_assert_eq!(found, all);
        }
    }
}
