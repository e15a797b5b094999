//! Derives the desired state of an alloc at a moment from the requests for it and from its deadline. Pure.

use super::coordinator::DesiredState;
use crate::model::alloc::Desired;
use crate::model::units::{Nanos, Steady};

pub struct AllocRequests {
    pub desired: Desired,
    pub stop_requested_at: Option<Steady>,
    pub expired: bool,
    /// All tasks are to start from the beginning.
    pub restart: bool,
    pub failed_setup: bool,
    pub began: Steady,
    pub shutdown_delay: Nanos,
    pub max_run: Option<Nanos>,
    pub anything_ran: bool,
}

/// Returns the desired state and when to evaluate it again. A stop waits for the group's `shutdown_delay` if any task
/// ran; an expiry does not wait.
pub fn desired_state(requests: &AllocRequests, now: Steady) -> (DesiredState, Option<Steady>) {
    if requests.failed_setup {
        return (DesiredState::SetupFailed, None);
    }
    let expires_at = requests.max_run.map(|most| requests.began.plus(most));
    if requests.expired || expires_at.is_some_and(|at| at <= now) {
        return (DesiredState::Expire, None);
    }
    if requests.desired == Desired::Run {
        return (if requests.restart { DesiredState::Restart } else { DesiredState::Run }, expires_at);
    }
    // A request in the future: the wall clock went back over a reboot, so the rest of the delay is unknown.
    let requested_at = requests.stop_requested_at.filter(|at| *at <= now);
    let stops_at = requested_at.map(|at| at.plus(requests.shutdown_delay)).filter(|at| *at > now);
    match stops_at {
        Some(at) if requests.anything_ran => {
            (DesiredState::Run, Some(expires_at.map_or(at, |expires_at| expires_at.min(at))))
        }
        Some(_) | None => (DesiredState::Stop, expires_at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Steady {
        Steady(0).plus(Nanos::from_secs(1_000 + secs))
    }
    fn running() -> AllocRequests {
        AllocRequests {
            desired: Desired::Run,
            stop_requested_at: None,
            expired: false,
            restart: false,
            failed_setup: false,
            began: at(0),
            shutdown_delay: Nanos::ZERO,
            max_run: None,
            anything_ran: true,
        }
    }

    #[test]
    fn a_stop_waits_for_the_delay_where_something_ran() {
        let request = AllocRequests {
            desired: Desired::Stop,
            stop_requested_at: Some(at(10)),
            shutdown_delay: Nanos::from_secs(5),
            ..running()
        };
        assert_eq!(desired_state(&request, at(12)), (DesiredState::Run, Some(at(15))));
        assert_eq!(desired_state(&request, at(15)), (DesiredState::Stop, None));
        assert_eq!(
            desired_state(&request, at(9)),
            (DesiredState::Stop, None),
            "a wall clock that went back over a boot"
        );
        assert_eq!(
            desired_state(&AllocRequests { anything_ran: false, ..request }, at(12)),
            (DesiredState::Stop, None)
        );
    }

    /// Promise (Task groups and lifecycle order): A time limit ends an alloc as complete and without poststop, also if
    /// it expires while no agent runs
    #[test]
    fn a_stop_and_the_end_of_its_time_win_over_a_restart() {
        let again = AllocRequests { restart: true, ..running() };
        assert_eq!(desired_state(&again, at(12)), (DesiredState::Restart, None));
        let stopped =
            AllocRequests { restart: true, desired: Desired::Stop, stop_requested_at: Some(at(10)), ..running() };
        assert_eq!(desired_state(&stopped, at(12)), (DesiredState::Stop, None));
        let limited = AllocRequests { restart: true, max_run: Some(Nanos::from_secs(60)), ..running() };
        assert_eq!(desired_state(&limited, at(60)), (DesiredState::Expire, None));
    }

    #[test]
    fn the_end_of_its_time_comes_once_and_before_any_delay() {
        let limited = AllocRequests { max_run: Some(Nanos::from_secs(60)), ..running() };
        assert_eq!(desired_state(&limited, at(59)), (DesiredState::Run, Some(at(60))));
        assert_eq!(desired_state(&limited, at(60)), (DesiredState::Expire, None));
        assert_eq!(desired_state(&AllocRequests { expired: true, ..limited }, at(60)), (DesiredState::Expire, None));
    }
}
