//! Derives the outcome of an attempt from its exit. Pure.

use crate::model::task::{ExitStatus, Outcome};

pub const SIGKILL: u8 = 9;

/// `oom_kills`: in the task's cgroup during this attempt; `None` if the kernel does not count them. `killed`: the agent
/// requested the end before the exit.
pub fn outcome(status: &ExitStatus, oom_kills: Option<u64>, killed: bool) -> Outcome {
    if killed {
        return Outcome::Killed;
    }
    match status {
        ExitStatus::Code(0) => Outcome::Success,
        // A shell whose child was OOM-killed exits with 137: the shell itself was not killed.
        ExitStatus::Code(_) | ExitStatus::NotStarted(_) => Outcome::Error,
        ExitStatus::Signal(SIGKILL) if oom_kills.is_some_and(|n| n > 0) => Outcome::Oom,
        ExitStatus::Signal(_) => Outcome::Signal,
        ExitStatus::Unknown(_) => Outcome::Unknown,
    }
}

/// The outcome if the runtime reports an exit code alone, and whether the main process was OOM-killed.
pub fn with_oom(outcome: Outcome, oom_killed: bool) -> Outcome {
    if oom_killed && outcome == Outcome::Error { Outcome::Oom } else { outcome }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_has_its_outcome() {
        let not_started = ExitStatus::NotStarted("exec: no such file".to_owned());
        let unknown = ExitStatus::Unknown("the host restarted".to_owned());
        for (status, oom_kills, killed, expected) in [
            (ExitStatus::Code(0), Some(0), false, Outcome::Success),
            // A child was OOM-killed; the main process continued and succeeded.
            (ExitStatus::Code(0), Some(1), false, Outcome::Success),
            (ExitStatus::Code(137), Some(1), false, Outcome::Error),
            (ExitStatus::Code(1), None, false, Outcome::Error),
            (ExitStatus::Signal(9), Some(1), false, Outcome::Oom),
            (ExitStatus::Signal(9), Some(0), false, Outcome::Signal),
            (ExitStatus::Signal(9), None, false, Outcome::Signal),
            (ExitStatus::Signal(11), Some(1), false, Outcome::Signal),
            (ExitStatus::Code(0), Some(0), true, Outcome::Killed),
            (ExitStatus::Signal(9), Some(1), true, Outcome::Killed),
            (not_started.clone(), None, false, Outcome::Error),
            (not_started, None, true, Outcome::Killed),
            (unknown.clone(), None, false, Outcome::Unknown),
            (unknown, None, true, Outcome::Killed),
        ] {
            assert_eq!(outcome(&status, oom_kills, killed), expected, "{status:?} {oom_kills:?} killed={killed}");
        }
        assert_eq!(with_oom(Outcome::Error, true), Outcome::Oom);
        assert_eq!(with_oom(Outcome::Error, false), Outcome::Error);
        // Stopped on request, or a child was OOM-killed and the main process succeeded.
        assert_eq!(
            [Outcome::Killed, Outcome::Success].map(|of| with_oom(of, true)),
            [Outcome::Killed, Outcome::Success]
        );
    }
}
