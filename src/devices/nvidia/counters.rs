//! Continues counters across resets of the driver or the device.

use std::collections::HashMap;

use crate::model::device::DeviceUsage;
use crate::model::id::DeviceId;

/// A PCIe counter that drops from above this value wrapped; otherwise it was reset.
const NEARLY_ROUND: u64 = 3 << 30;
const ROUND: u64 = 1 << 32;

/// The offset to add to the driver's value, and the driver's last value.
#[derive(Debug, Default, Clone, Copy)]
struct ContinuousCounter {
    base: u64,
    last: Option<u64>,
}

impl ContinuousCounter {
    fn follow(&mut self, now: Option<u64>, comes_round: bool) -> Option<u64> {
        let now = now?;
        if let Some(last) = self.last.filter(|last| now < *last) {
            let round = comes_round && (NEARLY_ROUND..ROUND).contains(&last);
            self.base = self.base.saturating_add(if round { ROUND } else { last });
        }
        self.last = Some(now);
        Some(self.base.saturating_add(now))
    }
}

/// The counters of all GPUs seen so far.
#[derive(Debug, Default)]
pub struct GpuCounters(HashMap<DeviceId, Vec<ContinuousCounter>>);

impl GpuCounters {
    /// Replaces the driver's values by continuous counters.
    pub fn follow(&mut self, device: &DeviceId, values: &mut DeviceUsage) {
        let known = self.0.entry(device.clone()).or_default();
        let [corrected, uncorrected] = &mut values.ecc_errors;
        let fields: Vec<(&mut Option<u64>, bool)> = [
            (&mut values.energy_millijoules, false),
            (&mut values.pcie_transmit_bytes, true),
            (&mut values.pcie_receive_bytes, true),
            (&mut values.pcie_replays, false),
            (&mut values.nvlink_transmit_bytes, false),
            (&mut values.nvlink_receive_bytes, false),
        ]
        .into_iter()
        .chain(corrected.iter_mut().chain(uncorrected).map(|field| (field, false)))
        .chain(values.throttled_nanos.iter_mut().chain(&mut values.nvlink_errors).map(|field| (field, false)))
        .collect();
        known.resize(fields.len(), ContinuousCounter::default());
        for (counter, (field, comes_round)) in known.iter_mut().zip(fields) {
            *field = counter.follow(*field, comes_round);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(numbers: &[Option<u64>], comes_round: bool) -> Vec<Option<u64>> {
        let mut counter = ContinuousCounter::default();
        numbers.iter().map(|n| counter.follow(*n, comes_round)).collect()
    }

    #[test]
    fn restarted_gpu_counter_continues_and_an_absent_one_is_still_absent() {
        assert_eq!(
            follow(&[Some(5), Some(9), None, Some(2), Some(4)], false),
            [Some(5), Some(9), None, Some(11), Some(13)]
        );
    }

    #[test]
    fn wrapped_32_bit_gpu_counter_continues() {
        assert_eq!(follow(&[Some(ROUND - 10), Some(5)], true), [Some(ROUND - 10), Some(ROUND + 5)]);
        assert_eq!(follow(&[Some(1000), Some(5)], true), [Some(1000), Some(1005)], "reset");
    }

    #[test]
    fn each_device_counts_by_itself() {
        let mut counters = GpuCounters::default();
        let mut follow = |device: &str, energy| {
            let mut values = DeviceUsage { energy_millijoules: Some(energy), ..DeviceUsage::default() };
            counters.follow(&device.into(), &mut values);
            values.energy_millijoules
        };
        assert_eq!(
            (follow("a", 10), follow("b", 3), follow("a", 1), follow("b", 4)),
            (Some(10), Some(3), Some(11), Some(4))
        );
    }
}
