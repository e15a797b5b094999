//! How often the observer wakes: a user who makes and removes cgroups without end would wake it for each, thousands of
//! times a second. Later events wait a moment, and most of them cancel each other.

use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(1);
/// Turns in a window that begin at once.
const PROMPT: u32 = 50;
/// Before each further turn in it.
const PAUSE: Duration = Duration::from_millis(20);

/// Counts the turns of the observer in a window of a second, and delays those above the limit.
pub(super) struct TurnPace {
    since: Instant,
    turns: u32,
}

impl TurnPace {
    pub(super) fn new(now: Instant) -> TurnPace {
        TurnPace { since: now, turns: 0 }
    }

    /// A turn is to begin. Returns how long it waits first.
    pub(super) fn pause(&mut self, now: Instant) -> Option<Duration> {
        if now.saturating_duration_since(self.since) >= WINDOW {
            *self = TurnPace::new(now);
        }
        self.turns = self.turns.saturating_add(1);
        (self.turns > PROMPT).then_some(PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_above_fifty_in_a_second_wait_and_the_next_second_begins_at_zero() {
        let now = Instant::now();
        let mut pace = TurnPace::new(now);
        let waits = |pace: &mut TurnPace, at: Instant| (0..60).filter(|_| pace.pause(at).is_some()).count();
        assert_eq!(waits(&mut pace, now), 10);
        assert_eq!(waits(&mut pace, now + WINDOW / 2), 60);
        assert_eq!(waits(&mut pace, now + WINDOW), 10);
    }
}
