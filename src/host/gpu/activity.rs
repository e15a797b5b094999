//! GPU performance monitoring (GPM, Hopper and later): averages between two samples, also of each MIG instance.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};

/// The minimum interval between two samples.
const APART: Duration = Duration::from_millis(100);
/// In the order of [`GpuUnit`](crate::model::device::GpuUnit).
const UNITS: [GpmMetricId; 3] = [GpmMetricId::SmUtil, GpmMetricId::AnyTensorUtil, GpmMetricId::DramBwUtil];

pub(super) type Shares = [Option<f64>; 3];

/// The last sample of the GPU (`None`) and of each instance, by instance id. Concurrency: one thread.
#[derive(Debug, Default)]
pub(super) struct GpmActivity<'l>(BTreeMap<Option<u32>, GpmReading<'l>>);

/// The last GPM sample of a GPU or an instance.
#[derive(Debug)]
struct GpmReading<'l> {
    sample: GpmSample<'l>,
    at: Instant,
    shares: Shares,
}

impl<'l> GpmActivity<'l> {
    /// Averages since the last call; empty at the first call, and the last result if that is less than 100 ms ago.
    /// Errors: GPM is not supported, or the instance is gone.
    pub(super) fn since_last(&mut self, gpu: &Device<'l>, instance: Option<u32>) -> Result<Shares, NvmlError> {
        if let Some(last) = self.0.get(&instance).filter(|last| last.at.elapsed() < APART) {
            return Ok(last.shares);
        }
        let before = self.0.remove(&instance);
        let sample = match instance {
            None => gpu.gpm_sample()?,
            Some(instance) => gpu.gpm_mig_sample(instance)?,
        };
        let shares = match &before {
            Some(before) => shares_between(gpu, &before.sample, &sample)?,
            None => Shares::default(),
        };
        self.0.insert(instance, GpmReading { sample, at: Instant::now(), shares });
        Ok(shares)
    }
}

fn shares_between<'l>(gpu: &Device<'l>, before: &GpmSample<'l>, now: &GpmSample<'l>) -> Result<Shares, NvmlError> {
    let metrics = gpm_metrics_get(gpu.nvml(), before, now, &UNITS)?;
    let mut shares = Shares::default();
    for (share, metric) in shares.iter_mut().zip(metrics) {
        // Percent; may slightly exceed 100.
        let percent = metric.ok().map(|metric| metric.value).filter(|percent| percent.is_finite() && *percent >= 0.0);
        *share = percent.map(|percent| percent.min(100.0) / 100.0);
    }
    Ok(shares)
}
