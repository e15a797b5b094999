//! Adds up the uses of one task of a workload. Pure.

use serde::{Deserialize, Serialize};

use crate::model::sizing::{self, MemoryAdvice, MemoryFacts};
use crate::model::task::Outcome;
use crate::model::units::{Nanos, Timestamp};
use crate::model::usage::Usage;

const GIB_HOUR: f64 = (1_u64 << 30) as f64 * 3_600.0;

/// One task of a workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct WorkloadUse {
    pub source: String,
    pub workload: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    pub task: String,
    #[serde(flatten)]
    pub sums: UseSums,
    /// Tasks that run now.
    pub running: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores_average: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_limit_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_throttled_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_suggested_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure_cpu_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure_memory_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    /// The highest that was sampled: the kernel keeps no peak.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub memory_peak_is_sampled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_request_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_suggestion: Option<MemoryAdvice>,
    /// For each alloc; negative: it needs more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_saved_bytes: Option<i64>,
}

/// What can be added. A sum has the parts that are known; `unmeasured` counts the runs that are not in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct UseSums {
    /// Attempts that ended.
    pub runs: u64,
    /// Of them, those that failed; and those whose end was not seen.
    pub failures: u64,
    pub unknown_ends: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// The memory request over the time that it was held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_requested_gib_hours: Option<f64>,
    /// The peak over that time: at most so much was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak_gib_hours: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_saved_gib_hours: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_hours: Option<f64>,
    /// Allocs whose CPU time or running time is not known.
    pub unmeasured: u64,
}

/// One task of one alloc, as it counts.
pub(super) struct OneUse<'a> {
    pub at: Timestamp,
    pub usage: &'a Usage,
    pub ran: Option<Nanos>,
    /// By outcome, in the order of `Outcome::ALL`.
    pub exits: [u64; Outcome::ALL.len()],
    /// It failed, also where no attempt ended.
    pub failed: bool,
    pub runs_now: bool,
    pub gpus: u64,
}

/// What is known so far. A sum is `None` until one part of it is known.
#[derive(Debug, Default)]
pub(super) struct UsageTally {
    runs: u64,
    failures: u64,
    unknown_ends: u64,
    running: u64,
    unmeasured: u64,
    oom_kills: Option<u64>,
    ran: Option<Nanos>,
    /// Of those whose CPU time is known too.
    ran_measured: Nanos,
    cpu: Option<u64>,
    requested: Option<f64>,
    peaked: Option<f64>,
    gpu: Option<u64>,
    peak: Option<u64>,
    peak_is_sampled: bool,
    periods: Option<u64>,
    throttled: Option<u64>,
    stalls: [PressureTally; 2],
    /// The limits of the newest.
    newest: Timestamp,
    request: Option<u64>,
    limit: Option<u64>,
    quota: Option<(u64, u64)>,
}

/// Pressure, beside the time in which it was counted.
#[derive(Debug, Default)]
struct PressureTally {
    stalled: Option<u64>,
    ran: Nanos,
}

impl UsageTally {
    pub(super) fn add(&mut self, one: &OneUse<'_>) {
        let (usage, ran) = (one.usage, one.ran);
        let count = |outcomes: &[Outcome]| outcomes.iter().map(|outcome| one.exits[outcome.index()]).sum::<u64>();
        let failures = count(&[Outcome::Error, Outcome::Signal, Outcome::Oom]);
        self.runs += one.exits.iter().sum::<u64>();
        // One that could not be started has no exit.
        self.failures += if one.failed { failures.max(1) } else { failures };
        self.unknown_ends += count(&[Outcome::Unknown]);
        self.running += u64::from(one.runs_now);
        let has_run = one.runs_now || one.exits.iter().any(|n| *n > 0);
        self.unmeasured += u64::from(has_run && (ran.is_none() || usage.cpu_usage_ns().is_none()));
        add(&mut self.oom_kills, usage.oom_kills());
        add(&mut self.cpu, usage.cpu_usage_ns());
        add(&mut self.periods, usage.cpu_cfs_periods());
        add(&mut self.throttled, usage.cpu_cfs_throttled_periods());
        let peak = usage.memory_peak_bytes().or_else(|| usage.memory_sampled_peak_bytes());
        if peak > self.peak {
            self.peak_is_sampled = usage.memory_peak_bytes().is_none();
            self.peak = peak;
        }
        let request = usage.memory_reservation_bytes().filter(|bytes| *bytes > 0).or(usage.memory_limit_bytes());
        if let Some(ran) = ran {
            self.ran = Some(self.ran.unwrap_or_default().saturating_add(ran));
            if usage.cpu_usage_ns().is_some() {
                self.ran_measured = self.ran_measured.saturating_add(ran);
            }
            for (all, stalled) in self.stalls.iter_mut().zip(stalls(usage)).filter(|(_, stalled)| stalled.is_some()) {
                add(&mut all.stalled, stalled);
                all.ran = all.ran.saturating_add(ran);
            }
            over_time(&mut self.requested, request, ran);
            over_time(&mut self.peaked, peak, ran);
            if one.gpus > 0 {
                add(&mut self.gpu, Some(ran.0.saturating_mul(one.gpus)));
            }
        }
        if one.at >= self.newest {
            self.newest = one.at;
            self.request = request.or(self.request);
            self.limit = usage.memory_limit_bytes().or(self.limit);
            self.quota = usage.cpu_quota_us().zip(usage.cpu_period_us()).or(self.quota);
        }
    }

    pub(super) fn finished(self, row: WorkloadUse) -> WorkloadUse {
        let [memory_stall, cpu_stall] = &self.stalls;
        let facts = MemoryFacts {
            peak_bytes: self.peak,
            request_bytes: self.request,
            limit_bytes: self.limit,
            oom_kills: self.oom_kills,
            stall_ratio: memory_stall.ratio(),
        };
        let advice = sizing::memory(&facts);
        let quota = self.quota.filter(|(quota, period)| *quota > 0 && *period > 0);
        let limit_cores = quota.map(|(quota, period)| ratio(quota, period));
        let throttled = self.throttled.zip(self.periods.filter(|periods| *periods > 0));
        let throttled = throttled.map(|(throttled, periods)| ratio(throttled, periods));
        let saved = saved(&advice, self.request, self.limit);
        let saved_hours = saved.zip(self.ran).map(|(bytes, ran)| signed(bytes) * ran.as_secs_f64() / GIB_HOUR);
        WorkloadUse {
            sums: UseSums {
                runs: self.runs,
                failures: self.failures,
                unknown_ends: self.unknown_ends,
                oom_kills: self.oom_kills,
                run_seconds: self.ran.map(Nanos::as_secs_f64),
                cpu_seconds: self.cpu.map(|ns| Nanos(ns).as_secs_f64()),
                memory_requested_gib_hours: self.requested,
                memory_peak_gib_hours: self.peaked,
                memory_saved_gib_hours: saved_hours,
                gpu_hours: self.gpu.map(|ns| Nanos(ns).as_secs_f64() / 3_600.0),
                unmeasured: self.unmeasured,
            },
            running: self.running,
            cpu_cores_average: self.cpu.filter(|_| self.ran_measured.0 > 0).map(|ns| ratio(ns, self.ran_measured.0)),
            cpu_limit_cores: limit_cores,
            cpu_throttled_ratio: throttled,
            cpu_suggested_cores: sizing::cpu_quota(limit_cores, throttled),
            pressure_cpu_ratio: cpu_stall.ratio(),
            pressure_memory_ratio: memory_stall.ratio(),
            memory_peak_bytes: self.peak,
            memory_peak_is_sampled: self.peak_is_sampled,
            memory_request_bytes: self.request,
            memory_limit_bytes: self.limit,
            memory_suggestion: Some(advice),
            memory_saved_bytes: saved,
            ..row
        }
    }
}

/// For each alloc. `None`: it has nothing that could be made smaller or larger.
fn saved(advice: &MemoryAdvice, request: Option<u64>, limit: Option<u64>) -> Option<i64> {
    let now = if advice.is_of_max { limit } else { request };
    let (now, then) = (i64::try_from(now?).ok()?, i64::try_from(advice.bytes?).ok()?);
    Some(now - then)
}

fn stalls(usage: &Usage) -> [Option<u64>; 2] {
    [usage.pressure_memory_some_ns(), usage.pressure_cpu_some_ns()]
}

impl PressureTally {
    fn ratio(&self) -> Option<f64> {
        self.stalled.filter(|_| self.ran.0 > 0).map(|stalled| ratio(stalled, self.ran.0))
    }
}

impl UseSums {
    pub(super) fn add(&mut self, other: &UseSums) {
        self.runs += other.runs;
        self.failures += other.failures;
        self.unknown_ends += other.unknown_ends;
        self.unmeasured += other.unmeasured;
        add(&mut self.oom_kills, other.oom_kills);
        let pairs = [
            (&mut self.run_seconds, other.run_seconds),
            (&mut self.cpu_seconds, other.cpu_seconds),
            (&mut self.memory_requested_gib_hours, other.memory_requested_gib_hours),
            (&mut self.memory_peak_gib_hours, other.memory_peak_gib_hours),
            (&mut self.memory_saved_gib_hours, other.memory_saved_gib_hours),
            (&mut self.gpu_hours, other.gpu_hours),
        ];
        for (sum, more) in pairs {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0.0) + more);
            }
        }
    }
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

fn over_time(sum: &mut Option<f64>, bytes: Option<u64>, ran: Nanos) {
    if let Some(bytes) = bytes {
        *sum = Some(sum.unwrap_or(0.0) + ratio(bytes, 1) * ran.as_secs_f64() / GIB_HOUR);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share, or a number of some digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[expect(clippy::cast_precision_loss, reason = "a number of some digits")]
fn signed(bytes: i64) -> f64 {
    bytes as f64
}
