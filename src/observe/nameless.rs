//! Retries names that a source could not provide. A Slurm step or a Nomad task has its cgroup before a process that
//! identifies it; the kubelet links a log after the container started; a runtime may be down. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// By cgroup path.
#[derive(Debug, Default)]
pub(super) struct Nameless(HashMap<String, Again>);

#[derive(Debug)]
struct Again {
    next: Instant,
    /// Doubled each time, so that a source that never answers costs less and less.
    pause: Duration,
}

impl Nameless {
    /// Another cgroup has the path now, or the name is known.
    pub(super) fn forget(&mut self, path: &str) {
        self.0.remove(path);
    }
    /// The source had no name.
    pub(super) fn add(&mut self, path: &str, now: Instant) {
        let again = || Again { next: now + FIRST_PAUSE, pause: FIRST_PAUSE };
        self.0.entry(path.to_owned()).or_insert_with(again);
    }
    /// The queue was full: try again soon, without backoff.
    pub(super) fn was_not_asked(&mut self, path: &str, now: Instant) {
        self.forget(path);
        self.add(path, now);
    }
    /// The paths to ask about now, of those that still exist.
    pub(super) fn due(&mut self, now: Instant, is_there: impl Fn(&str) -> bool) -> Vec<String> {
        self.0.retain(|path, _| is_there(path));
        let due = self.0.iter_mut().filter(|(_, again)| again.next <= now);
        due.map(|(path, again)| {
            again.pause *= 2;
            again.next = now + again.pause;
            path.clone()
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_about_again_after_longer_and_longer_pauses_until_it_is_named_or_gone() {
        let (mut nameless, start) = (Nameless::default(), Instant::now());
        nameless.add("/a", start);
        nameless.add("/b", start);
        let mut asked = |second: u64, gone: &str| {
            let now = start + Duration::from_secs(second);
            let due = nameless.due(now, |path| path != gone);
            // Without a name again.
            due.iter().for_each(|path| nameless.add(path, now));
            due.len()
        };
        let times: Vec<u64> = (0..20).filter(|second| asked(*second, "/b") > 0).collect();
        assert_eq!(times, [1, 3, 7, 15]);
        assert_eq!(asked(31, "none"), 1, "of one that was gone nothing is known");
        nameless.was_not_asked("/a", start + Duration::from_secs(32));
        assert_eq!(nameless.due(start + Duration::from_secs(33), |_| true), ["/a"]);
        nameless.forget("/a");
        assert!(nameless.due(start + Duration::from_secs(1_000), |_| true).is_empty());
    }
}
