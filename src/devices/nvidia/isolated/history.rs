//! State that outlives a helper: the counters of each helper start with its driver and its own process.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::devices::nvidia::counters::GpuCounters;
use crate::model::device::{DeviceReading, Xid};
use crate::model::id::DeviceId;

type Xids = HashMap<DeviceId, BTreeMap<u64, Xid>>;

/// Continues the counters over all helpers.
#[derive(Debug, Default)]
pub(super) struct CounterHistory {
    counters: GpuCounters,
    /// Counts of all earlier helpers.
    before: Xids,
    seen: Xids,
}

impl CounterHistory {
    /// A new helper started and has seen no error yet.
    pub(super) fn begin(&mut self) {
        self.before.clone_from(&self.seen);
    }

    /// Replaces the helper's values by continuous counters.
    pub(super) fn follow(&mut self, reading: &mut DeviceReading) {
        if !reading.up {
            return;
        }
        let values = Arc::make_mut(&mut reading.values);
        self.counters.follow(&reading.device, values);
        for (number, before) in self.before.get(&reading.device).into_iter().flatten() {
            let xid = values.xids.entry(*number).or_default();
            (xid.count, xid.last) = (xid.count + before.count, xid.last.max(before.last));
        }
        if self.seen.get(&reading.device) != Some(&values.xids) {
            self.seen.insert(reading.device.clone(), values.xids.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::device::DeviceUsage;
    use crate::model::units::Timestamp;

    fn follow(history: &mut CounterHistory, energy: u64, xids: &[(u64, u64)]) -> (u64, Vec<(u64, u64)>) {
        let one = |(number, count): &(u64, u64)| {
            let last = (*count > 0).then_some(Timestamp(*count));
            (*number, Xid { count: *count, last })
        };
        let values = DeviceUsage {
            energy_millijoules: Some(energy),
            xids: xids.iter().map(one).collect(),
            ..DeviceUsage::default()
        };
        let mut reading = DeviceReading {
            device: "0".into(),
            at: Timestamp(1),
            up: true,
            values: Arc::new(values),
            stats: Arc::default(),
            processes: None,
        };
        history.follow(&mut reading);
        let xids = reading.values.xids.iter().map(|(number, xid)| (*number, xid.count)).collect();
        (reading.values.energy_millijoules.unwrap(), xids)
    }

    #[test]
    fn no_counter_falls_with_a_helper_and_each_error_is_counted_once() {
        let mut history = CounterHistory::default();
        history.begin();
        assert_eq!(follow(&mut history, 500, &[(31, 2), (79, 0)]), (500, vec![(31, 2), (79, 0)]));
        assert_eq!(follow(&mut history, 600, &[(31, 3), (79, 0)]), (600, vec![(31, 3), (79, 0)]));
        history.begin();
        // The helper does not receive events yet.
        assert_eq!(follow(&mut history, 650, &[]), (650, vec![(31, 3), (79, 0)]));
        assert_eq!(follow(&mut history, 700, &[(31, 4), (79, 0)]), (700, vec![(31, 7), (79, 0)]));
        // After a reload of the driver.
        history.begin();
        assert_eq!(follow(&mut history, 10, &[(31, 0), (79, 1)]), (710, vec![(31, 7), (79, 1)]));
        assert_eq!(follow(&mut history, 30, &[(31, 0), (79, 1)]), (730, vec![(31, 7), (79, 1)]));
    }
}
