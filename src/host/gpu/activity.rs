//! What a GPU measured of itself between two samples (GPM, Hopper and later): also of each instance of a divided one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};

/// Two samples that are closer say nothing.
const APART: Duration = Duration::from_millis(100);
/// In the order of [`GpuUnit`](crate::model::device::GpuUnit).
const UNITS: [GpmMetricId; 3] = [GpmMetricId::SmUtil, GpmMetricId::AnyTensorUtil, GpmMetricId::DramBwUtil];

pub(super) type Shares = [Option<f64>; 3];

/// Of a GPU (`None`) and of its instances, by their numbers. Concurrency: one thread.
#[derive(Debug, Default)]
pub(super) struct Activity<'l>(BTreeMap<Option<u32>, Last<'l>>);

#[derive(Debug)]
struct Last<'l> {
    sample: GpmSample<'l>,
    at: Instant,
    told: Shares,
}

impl<'l> Activity<'l> {
    /// Nothing at the first time. Errors: it measures nothing, or the instance is gone.
    pub(super) fn since_last(&mut self, gpu: &Device<'l>, instance: Option<u32>) -> Result<Shares, NvmlError> {
        if let Some(last) = self.0.get(&instance).filter(|last| last.at.elapsed() < APART) {
            return Ok(last.told);
        }
        let before = self.0.remove(&instance);
        let sample = match instance {
            None => gpu.gpm_sample()?,
            Some(instance) => gpu.gpm_mig_sample(instance)?,
        };
        let told = match &before {
            Some(before) => shares(gpu, &before.sample, &sample)?,
            None => Shares::default(),
        };
        self.0.insert(instance, Last { sample, at: Instant::now(), told });
        Ok(told)
    }
}

fn shares<'l>(gpu: &Device<'l>, before: &GpmSample<'l>, now: &GpmSample<'l>) -> Result<Shares, NvmlError> {
    let told = gpm_metrics_get(gpu.nvml(), before, now, &UNITS)?;
    let mut shares = Shares::default();
    for (share, told) in shares.iter_mut().zip(told) {
        // Percent, which may be overdrawn by a little.
        let percent = told.ok().map(|told| told.value).filter(|percent| percent.is_finite() && *percent >= 0.0);
        *share = percent.map(|percent| percent.min(100.0) / 100.0);
    }
    Ok(shares)
}
