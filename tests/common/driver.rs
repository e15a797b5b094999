//! A driver of this host without an agent.

use std::sync::Arc;

use allostat::collectors::{FdBudget, SamplingContext};
use allostat::host::clock::SystemClock;
use allostat::host::hierarchy::Layout;
use allostat::host::process;
use allostat::host::roots::Roots;
use allostat::runner::drivers::{DriverContext, SupervisorPool};

use super::programs::allostat;

pub fn sampling() -> Arc<SamplingContext> {
    let roots = Roots::default();
    let layout = Layout::detect(&roots).expect("mountinfo must be readable");
    SamplingContext::new(roots, layout, FdBudget::from_limit())
}

pub fn driver_context(sampling: Arc<SamplingContext>) -> DriverContext {
    DriverContext {
        boot_id: process::boot_id(&sampling.roots).expect("/proc must be there"),
        sampling,
        clock: Arc::new(SystemClock),
        supervisors: SupervisorPool::new(allostat(), None, 10_000),
        descriptors: Some(300),
        no_cgroups: None,
        settings: Default::default(),
        metrics: Arc::default(),
    }
}
