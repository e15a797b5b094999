//! The door to NVIDIA's GPUs: NVML, loaded while the agent runs.
//!
//! ```text
//! Library::load ─► inventory: which there are, their instances
//!               ─► gpu(id): one, to be read again and again (read.rs)
//!               ─► events: what drivers tell of by themselves (events.rs)
//! ```
//! Every call goes into the kernel's driver and may take long, or for ever where a GPU hangs: who calls does so on a thread that nobody
//! waits for. Nothing here sets anything. Source: `nvml.h`, by `nvml-wrapper`.

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

use crate::model::attribute::{Attribute, Number, Unit, UnitName};
use crate::model::device::{Device, DeviceFacts, DeviceKind};
use crate::model::id::DeviceId;

pub use events::Events;
pub use read::{Gpu, GpuReading};

/// The name under which the driver's own package installs it.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// What NVML's answers come to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// There is no library, or the kernel has no driver.
    #[error("{0}")]
    Missing(String),
    #[error("the driver in the kernel and its library are of two versions, as after an upgrade without a restart")]
    VersionMismatch,
    #[error("{0}: no permission")]
    NoPermission(&'static str),
    /// It has fallen off its bus, or wants a reset.
    #[error("it is lost: {0}")]
    Lost(String),
    /// This device, or this driver, has no such thing.
    #[error("{0}: not supported")]
    Unsupported(&'static str),
    /// There is nothing of it now.
    #[error("{0}: nothing")]
    Nothing(&'static str),
    #[error("{0}: {1}")]
    Failed(&'static str, String),
}

impl GpuError {
    /// `call`: as NVML names it.
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

/// Loaded and initialised. Dropping it shuts NVML down, which may hang where a GPU does.
#[derive(Debug)]
pub struct Library(Nvml);

/// A GPU, or an instance of a divided one.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundGpu {
    pub kind: DeviceKind,
    pub attributes: BTreeMap<String, Attribute>,
    pub device: Device,
}

impl Library {
    /// `path`: `None`: by the name of the driver's package, where the loader finds it.
    ///
    /// Errors: no such library, no driver, or two versions of them.
    pub fn load(path: Option<&Path>) -> Result<Library, GpuError> {
        let mut builder = Nvml::builder();
        let name = path.map_or(std::ffi::OsStr::new(LIBRARY), Path::as_os_str);
        builder.lib_path(name);
        builder.init().map(Library).map_err(|e| GpuError::of("nvmlInit_v2", &e))
    }

    /// Every GPU in the order of its index, each followed by its instances. At `None` one that cannot be asked who it is.
    ///
    /// Errors: the library cannot say how many there are.
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
        let device = Device { id: DeviceId::from(id.as_str()), unhealthy: None, facts };
        Ok(FoundGpu { kind: kind(&name), attributes: self.attributes(gpu, driver), device })
    }

    /// In the words of Nomad's own plugin for these devices, and what jobs ask for besides.
    fn attributes(&self, gpu: &nvml_wrapper::Device<'_>, driver: &str) -> BTreeMap<String, Attribute> {
        let number =
            |n: u64, unit: Unit| Attribute::Number { value: Number::from(n), unit: Some(UnitName::Known(unit)) };
        let text = |text: &str| Attribute::Text(text.to_owned());
        let capability = gpu.cuda_compute_capability().ok();
        let cuda = self.0.sys_cuda_driver_version().ok();
        let all = [
            ("memory", lists::memory(gpu).ok().map(|memory| number(memory.total >> 20, Unit::MiB))),
            ("power", gpu.enforced_power_limit().ok().map(|mw| number(u64::from(mw) / 1000, Unit::Watt))),
            ("bar1", gpu.bar1_memory_info().ok().map(|bar1| number(bar1.total >> 20, Unit::MiB))),
            ("driver_version", Some(text(driver))),
            ("cores_clock", gpu.max_clock_info(Clock::SM).ok().map(|mhz| number(u64::from(mhz), Unit::MHz))),
            ("memory_clock", gpu.max_clock_info(Clock::Memory).ok().map(|mhz| number(u64::from(mhz), Unit::MHz))),
            ("persistence_mode", gpu.is_in_persistent_mode().ok().map(Attribute::Bool)),
            ("display_state", gpu.is_display_active().ok().map(|on| text(if on { "Enabled" } else { "Disabled" }))),
            ("compute_capability", capability.map(|of| text(&format!("{}.{}", of.major, of.minor)))),
            ("cuda_version", cuda.map(|version| text(&format!("{}.{}", version / 1000, version % 1000 / 10)))),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// One to be read. Errors: it is not there (any more).
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

/// Of a GPU that is divided (MIG, since Ampere); nothing where it is not, or cannot be.
fn instances<'l>(gpu: &nvml_wrapper::Device<'l>) -> Vec<nvml_wrapper::Device<'l>> {
    if !gpu.mig_mode().is_ok_and(|mode| mode.current == 1) {
        return Vec::new();
    }
    // As many as there could be; where none is, there may be one behind it.
    let most = gpu.mig_device_count().unwrap_or(0).min(lists::MOST_INSTANCES);
    (0..most).filter_map(|n| gpu.mig_device_by_index(n).ok()).collect()
}

fn part(instance: &nvml_wrapper::Device<'_>, whole: &DeviceId, driver: &str) -> FoundGpu {
    let name = instance.name().unwrap_or_else(|_| "MIG".to_owned());
    let memory = lists::memory(instance).ok().map(|memory| Attribute::Number {
        value: Number::from(memory.total >> 20),
        unit: Some(UnitName::Known(Unit::MiB)),
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
    FoundGpu {
        kind: kind(&name),
        attributes: memory.into_iter().map(|memory| ("memory".to_owned(), memory)).collect(),
        device: Device { id: DeviceId::from(id.as_str()), unhealthy: None, facts },
    }
}
