//! Pure: what is wanted of an alloc at a moment, from what was asked of it and from its clock.

use super::coordinator::Wish;
use crate::model::alloc::Desired;
use crate::model::units::{Nanos, Steady};

pub struct Wishes {
    pub desired: Desired,
    pub stop_asked_at: Option<Steady>,
    pub expired: bool,
    /// All its tasks are to begin anew.
    pub again: bool,
    pub failed_setup: bool,
    pub began: Steady,
    pub shutdown_delay: Nanos,
    pub max_run: Option<Nanos>,
    pub anything_ran: bool,
}

/// Pure: and when that is to be asked again. A stop waits for the group's delay, if there is something to wait for; an expiry does
/// not.
pub fn wanted(wishes: &Wishes, now: Steady) -> (Wish, Option<Steady>) {
    if wishes.failed_setup {
        return (Wish::Fail, None);
    }
    let expires_at = wishes.max_run.map(|most| wishes.began.plus(most));
    if wishes.expired || expires_at.is_some_and(|at| at <= now) {
        return (Wish::Expire, None);
    }
    if wishes.desired == Desired::Run {
        return (if wishes.again { Wish::Again } else { Wish::Run }, expires_at);
    }
    // Asked for in the future: the wall clock went back over a boot, and nobody knows how much of the delay is left.
    let asked_at = wishes.stop_asked_at.filter(|at| *at <= now);
    let stops_at = asked_at.map(|at| at.plus(wishes.shutdown_delay)).filter(|at| *at > now);
    match stops_at {
        Some(at) if wishes.anything_ran => (Wish::Run, Some(expires_at.map_or(at, |expires_at| expires_at.min(at)))),
        Some(_) | None => (Wish::Stop, expires_at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Steady {
        Steady(0).plus(Nanos::from_secs(1_000 + secs))
    }
    fn running() -> Wishes {
        Wishes {
            desired: Desired::Run,
            stop_asked_at: None,
            expired: false,
            again: false,
            failed_setup: false,
            began: at(0),
            shutdown_delay: Nanos::ZERO,
            max_run: None,
            anything_ran: true,
        }
    }

    #[test]
    fn a_stop_waits_for_the_delay_where_something_ran() {
        let asked = Wishes {
            desired: Desired::Stop,
            stop_asked_at: Some(at(10)),
            shutdown_delay: Nanos::from_secs(5),
            ..running()
        };
        assert_eq!(wanted(&asked, at(12)), (Wish::Run, Some(at(15))));
        assert_eq!(wanted(&asked, at(15)), (Wish::Stop, None));
        assert_eq!(wanted(&asked, at(9)), (Wish::Stop, None), "a wall clock that went back over a boot");
        assert_eq!(wanted(&Wishes { anything_ran: false, ..asked }, at(12)), (Wish::Stop, None));
    }

    #[test]
    fn a_stop_and_the_end_of_its_time_win_over_a_restart() {
        let again = Wishes { again: true, ..running() };
        assert_eq!(wanted(&again, at(12)), (Wish::Again, None));
        let stopped = Wishes { again: true, desired: Desired::Stop, stop_asked_at: Some(at(10)), ..running() };
        assert_eq!(wanted(&stopped, at(12)), (Wish::Stop, None));
        let limited = Wishes { again: true, max_run: Some(Nanos::from_secs(60)), ..running() };
        assert_eq!(wanted(&limited, at(60)), (Wish::Expire, None));
    }

    #[test]
    fn the_end_of_its_time_comes_once_and_before_any_delay() {
        let limited = Wishes { max_run: Some(Nanos::from_secs(60)), ..running() };
        assert_eq!(wanted(&limited, at(59)), (Wish::Run, Some(at(60))));
        assert_eq!(wanted(&limited, at(60)), (Wish::Expire, None));
        assert_eq!(wanted(&Wishes { expired: true, ..limited }, at(60)), (Wish::Expire, None));
    }
}
