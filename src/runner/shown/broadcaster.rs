//! The latest value, for any number of listeners: who is slow skips what is stale, and nobody ever goes back.
//!
//! ```text
//! send(value) ──► { index + 1, value } ──► each listener: once, the latest of what it has not had
//! close()     ──► what a listener has not had yet, then the end; sending is an error from then on
//! ```
//! `tokio::sync::watch` carries it: one place for all, so a listener that never looks costs nobody anything, and one that is
//! dropped is gone. What it does not give is added here: an index, a beginning without a value, and an end that a sender asks for.

use tokio::sync::watch;

/// A value and its place in the order of all that were sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latest<T> {
    /// Grows by one with each value; the first has 1.
    pub index: u64,
    pub value: T,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nobody listens any more: the broadcaster is closed")]
pub struct Closed;

#[derive(Debug)]
struct State<T> {
    latest: Option<Latest<T>>,
    closed: bool,
}

/// Concurrency: any thread; sending waits for nobody.
#[derive(Debug)]
pub struct Broadcaster<T>(watch::Sender<State<T>>);

impl<T> Default for Broadcaster<T> {
    fn default() -> Broadcaster<T> {
        Broadcaster(watch::Sender::new(State { latest: None, closed: false }))
    }
}

impl<T: Clone> Broadcaster<T> {
    /// Tells its index. Errors: it was closed before.
    pub fn send(&self, value: T) -> Result<u64, Closed> {
        let mut sent = Err(Closed);
        self.0.send_if_modified(|state| {
            if state.closed {
                return false;
            }
            let index = state.latest.as_ref().map_or(0, |latest| latest.index) + 1;
            state.latest = Some(Latest { index, value });
            sent = Ok(index);
            true
        });
        sent
    }

    /// The end for all listeners, those that come later included.
    pub fn close(&self) {
        self.0.send_if_modified(|state| !std::mem::replace(&mut state.closed, true));
    }

    /// Begins with the last value, if there was one; after the end too.
    pub fn listen(&self) -> Listener<T> {
        Listener { state: self.0.subscribe(), had: 0 }
    }

    pub fn listeners(&self) -> usize {
        self.0.receiver_count()
    }
}

#[derive(Debug)]
pub struct Listener<T> {
    state: watch::Receiver<State<T>>,
    /// The index of what it was given last.
    had: u64,
}

impl<T: Clone> Listener<T> {
    /// Waits for something newer than it has had. `None`: closed, and it has had all.
    ///
    /// Concurrency: a dropped future loses nothing.
    pub async fn recv(&mut self) -> Option<Latest<T>> {
        loop {
            {
                let state = self.state.borrow_and_update();
                if let Some(latest) = state.latest.as_ref().filter(|latest| latest.index > self.had) {
                    self.had = latest.index;
                    return Some(latest.clone());
                }
                if state.closed {
                    return None;
                }
            }
            // Ends: with the next value, or with the broadcaster itself: then nothing can come, and all was seen.
            self.state.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    async fn within<T>(work: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), work).await.expect("it must come to an end")
    }

    #[tokio::test]
    async fn who_is_slow_gets_the_latest_and_nothing_twice() {
        let broadcaster = Broadcaster::default();
        let mut listener = broadcaster.listen();
        for n in 1..=5 {
            assert_eq!(broadcaster.send(n), Ok(n));
        }
        assert_eq!(within(listener.recv()).await, Some(Latest { index: 5, value: 5 }));
        broadcaster.send(6).unwrap();
        assert_eq!(within(listener.recv()).await, Some(Latest { index: 6, value: 6 }));
        tokio::select! {
            biased;
            again = listener.recv() => panic!("{again:?} came twice"),
            () = std::future::ready(()) => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_waits_until_something_is_sent() {
        let broadcaster = Arc::new(Broadcaster::default());
        let mut listener = broadcaster.listen();
        let waited = tokio::time::timeout(Duration::from_secs(60), listener.recv()).await;
        assert!(waited.is_err(), "nothing was sent: {waited:?}");
        let waiting = tokio::spawn(async move { listener.recv().await });
        tokio::task::yield_now().await;
        broadcaster.send("now").unwrap();
        assert_eq!(waiting.await.unwrap(), Some(Latest { index: 1, value: "now" }));
    }

    #[tokio::test]
    async fn who_comes_late_begins_with_the_last_value() {
        let broadcaster = Broadcaster::default();
        broadcaster.send("first").unwrap();
        broadcaster.send("last").unwrap();
        assert_eq!(within(broadcaster.listen().recv()).await, Some(Latest { index: 2, value: "last" }));
    }

    #[tokio::test]
    async fn after_the_end_sending_is_an_error_and_a_listener_gets_the_last_value_and_then_the_end() {
        let broadcaster = Broadcaster::default();
        let mut before = broadcaster.listen();
        broadcaster.send(7).unwrap();
        broadcaster.close();
        assert_eq!(broadcaster.send(8), Err(Closed));
        for mut listener in [broadcaster.listen(), broadcaster.listen()] {
            assert_eq!(within(listener.recv()).await.map(|latest| latest.value), Some(7));
            assert_eq!(within(listener.recv()).await, None);
            assert_eq!(within(listener.recv()).await, None);
        }
        assert_eq!(within(before.recv()).await.map(|latest| latest.value), Some(7));
        assert_eq!(within(before.recv()).await, None);
    }

    #[tokio::test]
    async fn who_waits_is_told_of_the_end_and_so_is_who_outlives_the_broadcaster() {
        for close in [true, false] {
            let broadcaster = Broadcaster::<u8>::default();
            let mut listener = broadcaster.listen();
            let waiting = tokio::spawn(async move { listener.recv().await });
            tokio::task::yield_now().await;
            if close {
                broadcaster.close();
            }
            drop(broadcaster);
            assert_eq!(within(waiting).await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn a_listener_that_is_dropped_is_gone() {
        let broadcaster = Broadcaster::<u8>::default();
        let listeners: Vec<_> = (0..1000).map(|_| broadcaster.listen()).collect();
        assert_eq!(broadcaster.listeners(), 1000);
        drop(listeners);
        assert_eq!(broadcaster.listeners(), 0);
        broadcaster.send(1).unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_listener_of_many_ever_goes_back_and_all_see_the_last_value_and_the_end() {
        const SENT: u64 = 10_000;
        let broadcaster = Arc::new(Broadcaster::default());
        let mut listening = tokio::task::JoinSet::new();
        for at in 0..100 {
            let mut listener = broadcaster.listen();
            listening.spawn(async move {
                let (mut last, mut had) = (0, 0);
                while let Some(Latest { index, value }) = listener.recv().await {
                    assert!(index > last, "{index} after {last}");
                    assert_eq!(value, index, "the value of another index");
                    (last, had) = (index, had + 1);
                    if at % 10 == 0 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                (last, had)
            });
        }
        let sending = Arc::clone(&broadcaster);
        let sender = std::thread::spawn(move || {
            for n in 1..=SENT {
                sending.send(n).unwrap();
                if n % 100 == 0 {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            sending.close();
        });
        while let Some(seen) = within(listening.join_next()).await {
            let (last, had) = seen.unwrap();
            assert_eq!(last, SENT, "the last value is seen by all");
            assert!(had > 0);
        }
        sender.join().unwrap();
        assert_eq!(broadcaster.listeners(), 0);
    }
}
