//! Driver events: critical errors with an XID number.

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;

use super::{GpuError, Library};
use crate::model::id::DeviceId;

/// Waits for events of some GPUs. Events from before its creation are not reported.
#[derive(Debug)]
pub struct GpuEvents<'l> {
    set: EventSet<'l>,
    /// The GPUs whose driver supports these events.
    pub of: Vec<DeviceId>,
}

impl Library {
    /// Errors: NVML creates no event set. A GPU without event support is left out.
    pub fn events(&self, ids: &[DeviceId]) -> Result<GpuEvents<'_>, GpuError> {
        let failed = |e: &NvmlError| GpuError::of("nvmlEventSetCreate", e);
        let mut set = self.0.create_event_set().map_err(|e| failed(&e))?;
        let mut of = Vec::new();
        for id in ids {
            let Ok(gpu) = self.0.device_by_uuid(id.as_str()) else { continue };
            let is_supported =
                gpu.supported_event_types().is_ok_and(|types| types.contains(EventTypes::CRITICAL_XID_ERROR));
            if !is_supported {
                continue;
            }
            // A failed registration consumes the set.
            match gpu.register_events(EventTypes::CRITICAL_XID_ERROR, set) {
                Ok(registered) => {
                    set = registered;
                    of.push(id.clone());
                }
                Err(_) => {
                    let rest: Vec<DeviceId> = ids.iter().filter(|other| *other != id).cloned().collect();
                    return self.events(&rest);
                }
            }
        }
        Ok(GpuEvents { set, of })
    }
}

impl GpuEvents<'_> {
    /// Waits for the next event; `None`: the timeout passed. Blocks longer than the timeout while a GPU hangs.
    pub fn next(&self, milliseconds: u32) -> Result<Option<(DeviceId, u64)>, GpuError> {
        let event = match self.set.wait(milliseconds) {
            Ok(event) => event,
            Err(NvmlError::Timeout) => return Ok(None),
            Err(error) => return Err(GpuError::of("nvmlEventSetWait_v2", &error)),
        };
        let number = match event.event_data {
            Some(XidError::Value(number)) => number,
            Some(XidError::Unknown) => 999,
            None => return Ok(None),
        };
        let id = event.device.uuid().map_err(|e| GpuError::of("nvmlDeviceGetUUID", &e))?;
        Ok(Some((DeviceId::from(id.as_str()), number)))
    }
}
