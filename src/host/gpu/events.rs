//! What drivers tell of by themselves: errors with a number (XID).

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;

use super::{GpuError, Library};
use crate::model::id::DeviceId;

/// Waits for events of some GPUs. What happened before it was made is not told.
#[derive(Debug)]
pub struct Events<'l> {
    set: EventSet<'l>,
    /// Those whose drivers tell.
    pub of: Vec<DeviceId>,
}

impl Library {
    /// Errors: no set can be had. A GPU that tells of nothing is left out.
    pub fn events(&self, ids: &[DeviceId]) -> Result<Events<'_>, GpuError> {
        let failed = |e: &NvmlError| GpuError::of("nvmlEventSetCreate", e);
        let mut set = self.0.create_event_set().map_err(|e| failed(&e))?;
        let mut of = Vec::new();
        for id in ids {
            let Ok(gpu) = self.0.device_by_uuid(id.as_str()) else { continue };
            let tells = gpu.supported_event_types().is_ok_and(|types| types.contains(EventTypes::CRITICAL_XID_ERROR));
            if !tells {
                continue;
            }
            // Where it is refused the set is gone with it.
            match gpu.register_events(EventTypes::CRITICAL_XID_ERROR, set) {
                Ok(registered) => {
                    set = registered;
                    of.push(id.clone());
                }
                Err(_) => {
                    let others: Vec<DeviceId> = ids.iter().filter(|other| *other != id).cloned().collect();
                    return self.events(&others);
                }
            }
        }
        Ok(Events { set, of })
    }
}

impl Events<'_> {
    /// The next one; `None`: none came for so long. Blocks, and longer than that where a GPU hangs.
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
