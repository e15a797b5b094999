//! NVIDIA GPUs through NVML, which is loaded at run time.
//!
//! ```text
//! Library::load ─► inventory: the GPUs and their instances
//!               ─► gpu(id): one GPU, for repeated readings (read.rs)
//!               ─► events: XID errors reported by the driver (events.rs)
//! ```
//! Every call enters the kernel driver and may block, for ever if a GPU hangs. Call from a thread that nothing waits
//! for. Nothing here changes a setting. Source: `nvml.h`, through `nvml-wrapper`.

mod activity;
mod events;
mod fabric;
mod lists;
mod number;
mod read;

use std::collections::BTreeMap;
use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::error::NvmlError;

use crate::model::attribute::{Attribute, AttributeUnit, Number, UnitName};
use crate::model::device::{Device, DeviceFacts, DeviceKind};
use crate::model::id::DeviceId;

pub use events::GpuEvents;
pub use read::{Gpu, GpuReading};

/// The library's name in the driver package.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// Why an NVML call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The library or the kernel driver is missing.
    #[error("{0}")]
    Missing(String),
    #[error("the kernel driver and its library have different versions, as after an upgrade without a restart")]
    VersionMismatch,
    #[error("{0}: no permission")]
    NoPermission(&'static str),
    /// The GPU has fallen off the bus or needs a reset.
    #[error("the GPU is lost: {0}")]
    Lost(String),
    /// This device or driver lacks the feature.
    #[error("{0}: not supported")]
    Unsupported(&'static str),
    /// The call found no data now.
    #[error("{0}: no data")]
    Nothing(&'static str),
    #[error("{0}: {1}")]
    Failed(&'static str, String),
}

impl GpuError {
    /// `call`: the NVML function.
    fn of(call: &'static str, error: &NvmlError) -> GpuError {
        use NvmlError as E;
        match error {
            E::LibloadingError(_) | E::LibraryNotFound | E::DriverNotLoaded => GpuError::Missing(error.to_string()),
            E::LibRmVersionMismatch => GpuError::VersionMismatch,
            E::NoPermission => GpuError::NoPermission(call),
            E::GpuLost | E::ResetRequired | E::IrqIssue => GpuError::Lost(error.to_string()),
            E::NotSupported | E::FailedToLoadSymbol(_) | E::FunctionNotFound => GpuError::Unsupported(call),
            E::NotFound | E::NoData => GpuError::Nothing(call),
            _ => GpuError::Failed(call, error.to_string()),
        }
    }
}

/// Loaded and initialised. Dropping it shuts NVML down, which may block while a GPU hangs.
#[derive(Debug)]
pub struct Library(Nvml);

/// A GPU or a MIG instance.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundGpu {
    pub kind: DeviceKind,
    /// With all its attributes.
    pub device: Device,
}

impl Library {
    /// `path`: `None` lets the loader find the library by its package name.
    ///
    /// Errors: no library, no driver, or a version mismatch.
    pub fn load(path: Option<&Path>) -> Result<Library, GpuError> {
        let mut builder = Nvml::builder();
        let name = path.map_or(std::ffi::OsStr::new(LIBRARY), Path::as_os_str);
        builder.lib_path(name);
        builder.init().map(Library).map_err(|e| GpuError::of("nvmlInit_v2", &e))
    }

    /// Every GPU in index order, each followed by its instances. `None`: a GPU that does not report its identity.
    ///
    /// Errors: the library does not report the number of GPUs.
    pub fn inventory(&self) -> Result<Vec<(u32, Option<FoundGpu>)>, GpuError> {
        let count = self.0.device_count().map_err(|e| GpuError::of("nvmlDeviceGetCount_v2", &e))?;
        let driver = self.0.sys_driver_version().unwrap_or_default();
        let mut all = Vec::new();
        for index in 0..count.min(lists::MOST_GPUS) {
            let Ok(gpu) = self.0.device_by_index(index) else {
                all.push((index, None));
                continue;
            };
            let Ok(found) = self.found(index, &gpu, &driver) else {
                all.push((index, None));
                continue;
            };
            let id = found.device.id.clone();
            all.push((index, Some(found)));
            all.extend(instances(&gpu).into_iter().map(|instance| (index, Some(part(&instance, &id, &driver)))));
        }
        Ok(all)
    }

    fn found(&self, index: u32, gpu: &nvml_wrapper::Device<'_>, driver: &str) -> Result<FoundGpu, NvmlError> {
        let (id, name) = (gpu.uuid()?, gpu.name()?);
        let facts = DeviceFacts {
            index: Some(index),
            pci_bus_id: gpu.pci_info().map(|pci| pci.bus_id).unwrap_or_default(),
            serial: gpu.serial().unwrap_or_default(),
            driver_version: driver.to_owned(),
            vbios_version: gpu.vbios_version().unwrap_or_default(),
            numa_node: gpu.numa_node_id().ok(),
            nodes: gpu.minor_number().map(|minor| format!("/dev/nvidia{minor}")).into_iter().collect(),
            ..DeviceFacts::default()
        };
        let attributes = self.attributes(gpu, driver);
        Ok(FoundGpu { kind: kind(&name), device: Device { facts, attributes, ..Device::of(id.as_str().into()) } })
    }

    /// The attribute names of Nomad's NVIDIA device plugin, and further ones for job constraints.
    fn attributes(&self, gpu: &nvml_wrapper::Device<'_>, driver: &str) -> BTreeMap<String, Attribute> {
        let number = |n: u64, unit: AttributeUnit| Attribute::Number {
            value: Number::from(n),
            unit: Some(UnitName::Known(unit)),
        };
        let text = |text: &str| Attribute::Text(text.to_owned());
        let capability = gpu.cuda_compute_capability().ok();
        let cuda = self.0.sys_cuda_driver_version().ok();
        let all = [
            ("memory", lists::memory(gpu).ok().map(|memory| number(memory.total >> 20, AttributeUnit::MiB))),
            ("power", gpu.enforced_power_limit().ok().map(|mw| number(u64::from(mw) / 1000, AttributeUnit::Watt))),
            ("bar1", gpu.bar1_memory_info().ok().map(|bar1| number(bar1.total >> 20, AttributeUnit::MiB))),
            ("driver_version", Some(text(driver))),
            ("cores_clock", gpu.max_clock_info(Clock::SM).ok().map(|mhz| number(u64::from(mhz), AttributeUnit::MHz))),
            (
                "memory_clock",
                gpu.max_clock_info(Clock::Memory).ok().map(|mhz| number(u64::from(mhz), AttributeUnit::MHz)),
            ),
            ("persistence_mode", gpu.is_in_persistent_mode().ok().map(Attribute::Bool)),
            ("display_state", gpu.is_display_active().ok().map(|on| text(if on { "Enabled" } else { "Disabled" }))),
            ("compute_capability", capability.map(|of| text(&format!("{}.{}", of.major, of.minor)))),
            ("cuda_version", cuda.map(|version| text(&format!("{}.{}", version / 1000, version % 1000 / 10)))),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// A GPU for repeated readings. Errors: it is not present.
    pub fn gpu(&self, id: &DeviceId) -> Result<Gpu<'_>, GpuError> {
        match self.0.device_by_uuid(id.as_str()) {
            Ok(gpu) => Ok(Gpu::new(gpu)),
            Err(error @ (NvmlError::NotFound | NvmlError::InvalidArg)) => Err(GpuError::Lost(error.to_string())),
            Err(error) => Err(GpuError::of("nvmlDeviceGetHandleByUUID", &error)),
        }
    }
}

fn kind(name: &str) -> DeviceKind {
    DeviceKind { vendor: "nvidia".to_owned(), kind: "gpu".to_owned(), name: name.to_owned() }
}

/// The MIG instances (since Ampere) of a GPU; empty if MIG is off or unsupported.
fn instances<'l>(gpu: &nvml_wrapper::Device<'l>) -> Vec<nvml_wrapper::Device<'l>> {
    if !gpu.mig_mode().is_ok_and(|mode| mode.current == 1) {
        return Vec::new();
    }
    // Up to the maximum number of instances: indices may have gaps.
    let most = gpu.mig_device_count().unwrap_or(0).min(lists::MOST_INSTANCES);
    (0..most).filter_map(|n| gpu.mig_device_by_index(n).ok()).collect()
}

fn part(instance: &nvml_wrapper::Device<'_>, whole: &DeviceId, driver: &str) -> FoundGpu {
    let name = instance.name().unwrap_or_else(|_| "MIG".to_owned());
    let memory = lists::memory(instance).ok().map(|memory| Attribute::Number {
        value: Number::from(memory.total >> 20),
        unit: Some(UnitName::Known(AttributeUnit::MiB)),
    });
    let (gpu_instance, compute_instance) = read::instance_ids(instance);
    let facts = DeviceFacts {
        parent: Some(whole.clone()),
        driver_version: driver.to_owned(),
        gpu_instance,
        compute_instance,
        ..DeviceFacts::default()
    };
    let id = instance.uuid().unwrap_or_else(|_| format!("{whole}/{}", gpu_instance.unwrap_or(0)));
    let attributes = memory.into_iter().map(|memory| ("memory".to_owned(), memory)).collect();
    FoundGpu { kind: kind(&name), device: Device { facts, attributes, ..Device::of(id.as_str().into()) } }
}
