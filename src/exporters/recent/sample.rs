//! What one point of a task or of the host is made of: values of now, and rates since the point before.

use crate::exporters::json::tasks::HostRow;
use crate::model::units::Timestamp;
use crate::model::usage::Usage;

/// What is kept, in the order of the columns.
pub(super) const NAMES: [&str; FIELDS] = [
    "cpu_cores",
    "memory_bytes",
    "cpu_throttled_ratio",
    "cpu_pressure_ratio",
    "memory_pressure_ratio",
    "io_pressure_ratio",
    "io_read_bytes_per_second",
    "io_written_bytes_per_second",
    "network_receive_bytes_per_second",
    "network_transmit_bytes_per_second",
];
pub(super) const FIELDS: usize = 10;
pub(super) const CPU: usize = 0;
pub(super) const MEMORY: usize = 1;

/// A value of each of [`NAMES`].
pub(super) type CurveFields = [Option<f64>; FIELDS];

/// Counters of a reading, for the rates of the next one.
#[derive(Debug, Clone, Copy)]
pub(super) struct CounterReading {
    at: Timestamp,
    cpu_ns: Option<u64>,
    periods: Option<u64>,
    throttled_periods: Option<u64>,
    /// CPU, memory, I/O: nanoseconds.
    waits: [Option<u64>; 3],
    /// Read, written, received, sent: bytes.
    moved: [Option<u64>; 4],
}

impl CounterReading {
    pub fn of_task(at: Timestamp, usage: &Usage) -> CounterReading {
        CounterReading {
            at,
            cpu_ns: usage.cpu_usage_ns(),
            periods: usage.cpu_cfs_periods(),
            throttled_periods: usage.cpu_cfs_throttled_periods(),
            waits: [usage.pressure_cpu_some_ns(), usage.pressure_memory_some_ns(), usage.pressure_io_some_ns()],
            moved: [
                usage.io_read_bytes(),
                usage.io_written_bytes(),
                usage.network_receive_bytes(),
                usage.network_transmit_bytes(),
            ],
        }
    }

    pub fn of_host(at: Timestamp, host: &HostRow<'_>) -> CounterReading {
        CounterReading {
            at,
            cpu_ns: host.cpu_busy_ns,
            periods: None,
            throttled_periods: None,
            waits: [host.pressure_cpu_some_ns, host.pressure_memory_some_ns, host.pressure_io_some_ns],
            moved: [None, None, host.network_receive_bytes, host.network_transmit_bytes],
        }
    }

    /// A point with this memory. `before`: `None` where this is the first reading; then there is no rate.
    pub fn point(&self, before: Option<&CounterReading>, memory: Option<u64>) -> CurveFields {
        let mut values = [None; FIELDS];
        values[MEMORY] = memory.map(float);
        let Some(before) = before else { return values };
        let time = self.at.since(before.at).0;
        // A counter that fell is another one.
        let grown = |now: Option<u64>, before: Option<u64>| now?.checked_sub(before?).map(float);
        let rate = |now, before| grown(now, before).filter(|_| time > 0).map(|grown| grown / float(time));
        values[CPU] = rate(self.cpu_ns, before.cpu_ns);
        // Without a quota, or while it rests, there are no periods.
        let periods = grown(self.periods, before.periods).filter(|periods| *periods > 0.0);
        let throttled = grown(self.throttled_periods, before.throttled_periods);
        values[2] = throttled.zip(periods).map(|(some, all)| (some / all).min(1.0));
        for (at, (now, before)) in self.waits.into_iter().zip(before.waits).enumerate() {
            // The kernel adds up waits every 2 s: more than all of the time is possible.
            values[3 + at] = rate(now, before).map(|share| share.min(1.0));
        }
        for (at, (now, before)) in self.moved.into_iter().zip(before.moved).enumerate() {
            values[6 + at] = rate(now, before).map(|per_nano| per_nano * 1e9);
        }
        values
    }
}

/// As `allostat top` and the page show it: the working set, else resident sets.
pub(super) fn memory(usage: &Usage) -> Option<u64> {
    usage.memory_working_set_bytes().or(usage.memory_rss_bytes())
}

#[allow(clippy::cast_precision_loss, reason = "for curves")]
fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::usage::Field;

    const SECOND: u64 = 1_000_000_000;

    fn usage(fields: &[(Field, u64)]) -> Usage {
        let mut usage = Usage::default();
        for (field, value) in fields {
            usage.set(*field, Some(*value));
        }
        usage
    }

    #[test]
    fn a_point_has_rates_between_two_readings_and_nothing_of_what_is_absent() {
        let before = usage(&[(Field::cpu_usage_ns, SECOND), (Field::cpu_cfs_periods, 10), (Field::io_read_bytes, 100)]);
        let now = usage(&[
            (Field::cpu_usage_ns, 2 * SECOND),
            (Field::cpu_cfs_periods, 20),
            (Field::cpu_cfs_throttled_periods, 5),
            (Field::io_read_bytes, 50),
            (Field::memory_working_set_bytes, 4096),
        ]);
        let first = CounterReading::of_task(Timestamp(0), &before);
        assert_eq!(first.point(None, memory(&before)), [None; FIELDS], "one reading has no rate");
        let second = CounterReading::of_task(Timestamp(2 * SECOND), &now);
        let point = second.point(Some(&first), memory(&now));
        assert_eq!(point[CPU], Some(0.5));
        assert_eq!(point[MEMORY], Some(4096.0));
        assert_eq!(point[2], None, "the throttled periods of the first reading are not known");
        assert_eq!(point[6], None, "a counter that fell has no rate");
        assert_eq!(second.point(Some(&second), None)[CPU], None, "no time has passed");
    }
}
