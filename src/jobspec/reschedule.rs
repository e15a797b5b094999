//! Pure: how often a failed alloc is replaced by a new one, and whether Nomad takes that.

use std::time::Duration;

use super::quantity::format_duration;
use crate::model::job::JobKind;
use crate::model::reschedule::{DelayFunction, ReschedulePolicy};
use crate::model::service::HealthRule;
use crate::model::update::UpdatePolicy;

/// Nomad's least delay before an alloc is replaced, and its least interval of attempts.
const MIN_DELAY: Duration = Duration::from_secs(5);
const MIN_INTERVAL: Duration = Duration::from_secs(15);

/// What a `reschedule` names; the rest comes from the job's, then from the kind of job.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reschedule {
    pub attempts: Option<u64>,
    pub interval: Option<Duration>,
    pub delay: Option<Duration>,
    pub function: Option<DelayFunction>,
    pub max_delay: Option<Duration>,
    pub unlimited: Option<bool>,
}

/// What a job passes on to its groups.
#[derive(Debug, Clone, Copy, Default)]
pub struct OfJob {
    pub reschedule: Option<Reschedule>,
    pub health: Option<HealthRule>,
    pub update: Option<UpdatePolicy>,
}

impl Reschedule {
    pub fn or(self, other: Reschedule) -> Reschedule {
        Reschedule {
            attempts: self.attempts.or(other.attempts),
            interval: self.interval.or(other.interval),
            delay: self.delay.or(other.delay),
            function: self.function.or(other.function),
            max_delay: self.max_delay.or(other.max_delay),
            unlimited: self.unlimited.or(other.unlimited),
        }
    }

    /// With Nomad's defaults for the kind of job.
    fn over_defaults(self, kind: JobKind) -> ReschedulePolicy {
        // Nomad checks a `sysbatch` job as a batch job, and a `system` job has none.
        let of_kind = if kind.is_service() { JobKind::Service } else { JobKind::Batch };
        let default = of_kind.reschedule_policy().expect("services and batch jobs must have a default");
        ReschedulePolicy {
            attempts: self.attempts.unwrap_or(default.attempts),
            interval: self.interval.unwrap_or(default.interval),
            delay: self.delay.unwrap_or(default.delay),
            function: self.function.unwrap_or(default.function),
            max_delay: self.max_delay.unwrap_or(default.max_delay),
            unlimited: self.unlimited.unwrap_or(default.unlimited),
        }
    }

    /// What a group of such a job says. `None`: allocs of that kind of job are not replaced.
    pub fn policy(self, kind: JobKind) -> Option<ReschedulePolicy> {
        kind.reschedule_policy().map(|_| self.over_defaults(kind))
    }

    /// Nomad's rules. Errors: a sentence.
    pub fn check(self, kind: JobKind) -> Result<(), String> {
        let ReschedulePolicy { attempts, interval, delay, function, max_delay, unlimited } = self.over_defaults(kind);
        if attempts == 0 && !unlimited {
            return Ok(());
        }
        if attempts > 0 && unlimited {
            return Err(format!(
                "{attempts} attempts and `unlimited` exclude each other: write unlimited = false, or no attempts"
            ));
        }
        if attempts > 0 && interval.is_zero() {
            return Err("`attempts` needs an `interval`".to_owned());
        }
        if delay < MIN_DELAY {
            return Err(format!("`delay` must be at least {}", format_duration(MIN_DELAY)));
        }
        if function != DelayFunction::Constant {
            if max_delay < MIN_DELAY {
                return Err(format!("`max_delay` must be at least {}", format_duration(MIN_DELAY)));
            }
            if max_delay < delay {
                return Err("`max_delay` must be at least `delay`".to_owned());
            }
        }
        if unlimited {
            return Ok(());
        }
        if interval < MIN_INTERVAL {
            return Err(format!("`interval` must be at least {}", format_duration(MIN_INTERVAL)));
        }
        match last_attempt(attempts, delay, function, max_delay) {
            Some(last) if last < interval || last == interval && function != DelayFunction::Exponential => Ok(()),
            Some(_) | None => {
                let interval = format_duration(interval);
                Err(format!("{attempts} attempts do not fit into an `interval` of {interval}: write a longer one"))
            }
        }
    }
}

/// The interval that the attempts need, as Nomad counts it. `None`: longer than can be counted.
fn last_attempt(attempts: u64, delay: Duration, function: DelayFunction, max_delay: Duration) -> Option<Duration> {
    match function {
        DelayFunction::Constant => delay.checked_mul(u32::try_from(attempts).ok()?),
        DelayFunction::Exponential => {
            // The delays double up to the maximum, and from then on they add up.
            let (mut next, mut needed) = (delay, delay);
            for _ in 1..attempts {
                next = next.checked_mul(2)?;
                needed = if next > max_delay { needed.checked_add(max_delay)? } else { next };
                next = next.min(max_delay.checked_mul(2)?);
            }
            Some(needed)
        }
        DelayFunction::Fibonacci => {
            let (mut before, mut last, mut at_most) = (delay, delay, false);
            for _ in 2..attempts {
                let sum = last.checked_add(if at_most { max_delay } else { before })?;
                let next = if at_most { sum } else { sum.min(max_delay) };
                at_most = at_most || sum > max_delay;
                (before, last) = (last, next);
            }
            Some(last)
        }
    }
}
