//! Where a driver says what it does for a task, as it does it: "pulling image".

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::telemetry::lock;

/// So much may be said at once, and from then on once in so long: a task keeps its newest ten events, and each is written.
const AT_ONCE: u32 = 5;
const EVERY: Duration = Duration::from_secs(10);

/// Concurrency: any thread, at once; cheap to clone. By default nobody listens. Whoever says too much is not heard, and that is said with what is.
#[derive(Clone, Default)]
pub struct EventSink(Option<Arc<Sink>>);

struct Sink {
    tell: Box<dyn Fn(String) + Send + Sync>,
    room: Mutex<Room>,
}

/// What may still be said.
struct Room {
    left: u32,
    /// The last one that came back did so then.
    since: Instant,
    unheard: u32,
}

impl EventSink {
    pub fn new(tell: impl Fn(String) + Send + Sync + 'static) -> EventSink {
        let room = Mutex::new(Room { left: AT_ONCE, since: Instant::now(), unheard: 0 });
        EventSink(Some(Arc::new(Sink { tell: Box::new(tell), room })))
    }

    pub fn say(&self, text: &str) {
        let Some(sink) = &self.0 else { return };
        match lock(&sink.room).take() {
            Some(0) => (sink.tell)(text.to_owned()),
            Some(unheard) => (sink.tell)(format!("{text} ({unheard} before it are left out)")),
            None => {}
        }
    }
}

impl Room {
    /// `None`: there is none. Else how many were not heard since the last one.
    fn take(&mut self) -> Option<u32> {
        let now = Instant::now();
        while self.left < AT_ONCE && now.duration_since(self.since) >= EVERY {
            self.left += 1;
            self.since += EVERY;
        }
        if self.left == 0 {
            self.unheard = self.unheard.saturating_add(1);
            return None;
        }
        if self.left == AT_ONCE {
            self.since = now;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.unheard))
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "EventSink" } else { "EventSink (nowhere)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_says_too_much_is_heard_seldom_and_what_was_left_out_is_counted() {
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = EventSink::new({
            let heard = Arc::clone(&heard);
            move |text| lock(&heard).push(text)
        });
        for n in 0..1_000 {
            sink.say(&n.to_string());
        }
        assert_eq!(*lock(&heard), ["0", "1", "2", "3", "4"]);
        tokio::time::sleep(EVERY).await;
        sink.say("later");
        assert_eq!(lock(&heard).last().unwrap(), "later (995 before it are left out)");
        tokio::time::sleep(EVERY * 1_000).await;
        (0..10).for_each(|_| sink.say("again"));
        assert_eq!(lock(&heard).len(), 6 + 5);
        EventSink::default().say("unheard");
    }
}
