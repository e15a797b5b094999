//! Messages of a driver about its work for a task, such as "pulling image".

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::telemetry::lock;

/// Rate limit: this number at once, then one per interval. A task keeps its newest ten events, and each is persisted.
const AT_ONCE: u32 = 5;
const EVERY: Duration = Duration::from_secs(10);

/// Concurrency: any thread, without blocking; cheap to clone. Disabled by default. Messages beyond the rate limit are
/// dropped, and the next message has their number.
#[derive(Clone, Default)]
pub struct EventSink(Option<Arc<Sink>>);

struct Sink {
    report: Box<dyn Fn(String) + Send + Sync>,
    limit: Mutex<RateLimit>,
}

/// State of the rate limit.
struct RateLimit {
    left: u32,
    /// Time of the last refill.
    since: Instant,
    dropped: u32,
}

impl EventSink {
    pub fn new(report: impl Fn(String) + Send + Sync + 'static) -> EventSink {
        let limit = Mutex::new(RateLimit { left: AT_ONCE, since: Instant::now(), dropped: 0 });
        EventSink(Some(Arc::new(Sink { report: Box::new(report), limit })))
    }

    pub fn report(&self, text: &str) {
        let Some(sink) = &self.0 else { return };
        match lock(&sink.limit).take() {
            Some(0) => (sink.report)(text.to_owned()),
            Some(dropped) => (sink.report)(format!("{text} ({dropped} before it are left out)")),
            None => {}
        }
    }
}

impl RateLimit {
    /// `None`: the message is dropped. Otherwise the number of dropped messages before it.
    fn take(&mut self) -> Option<u32> {
        let now = Instant::now();
        while self.left < AT_ONCE && now.duration_since(self.since) >= EVERY {
            self.left += 1;
            self.since += EVERY;
        }
        if self.left == 0 {
            self.dropped = self.dropped.saturating_add(1);
            return None;
        }
        if self.left == AT_ONCE {
            self.since = now;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.dropped))
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "EventSink" } else { "EventSink (disabled)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn messages_beyond_the_rate_limit_are_dropped_and_counted() {
        let received: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = EventSink::new({
            let received = Arc::clone(&received);
            move |text| lock(&received).push(text)
        });
        for n in 0..1_000 {
            sink.report(&n.to_string());
        }
        assert_eq!(*lock(&received), ["0", "1", "2", "3", "4"]);
        tokio::time::sleep(EVERY).await;
        sink.report("later");
        assert_eq!(lock(&received).last().unwrap(), "later (995 before it are left out)");
        tokio::time::sleep(EVERY * 1_000).await;
        (0..10).for_each(|_| sink.report("again"));
        assert_eq!(lock(&received).len(), 6 + 5);
        EventSink::default().report("dropped");
    }
}
