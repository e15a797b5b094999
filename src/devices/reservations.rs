//! Pure: the table of who holds which device, both ways round. Whoever asks for one task looks at that task's devices only.

use std::collections::BTreeMap;

use super::choose::{Refused, choose};
use crate::model::demand::DeviceRequest;
use crate::model::device::{DeviceGroup, DeviceHolder};
use crate::model::id::DeviceId;

/// No device is held twice, and whoever holds none is not in it.
#[derive(Debug, Default)]
pub struct Reservations {
    holders: BTreeMap<DeviceId, DeviceHolder>,
    held: BTreeMap<DeviceHolder, Vec<DeviceId>>,
}

/// Somebody else holds it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the device {device} is held by {by}")]
pub struct Conflict {
    pub device: DeviceId,
    pub by: DeviceHolder,
}

impl Reservations {
    /// All that is asked for, or nothing. Who holds devices already has them again, whatever is asked.
    ///
    /// Errors: they cannot be had; nothing has changed then.
    pub fn reserve(
        &mut self,
        holder: &DeviceHolder,
        requests: &[DeviceRequest],
        groups: &[&DeviceGroup],
    ) -> Result<Vec<DeviceId>, Refused> {
        if let Some(held) = self.held.get(holder) {
            return Ok(held.clone());
        }
        let ids = choose(groups, requests, |id| self.holders.get(id).cloned())?;
        self.enter(holder, &ids);
        Ok(ids)
    }

    /// These very ones, as they are on record; what it held before is replaced.
    ///
    /// Errors: one is somebody else's; nothing has changed then.
    pub fn hold(&mut self, holder: &DeviceHolder, ids: &[DeviceId]) -> Result<(), Conflict> {
        let others = ids.iter().filter_map(|id| Some((id, self.holders.get(id).filter(|by| *by != holder)?)));
        if let Some((device, by)) = others.into_iter().next() {
            return Err(Conflict { device: device.clone(), by: by.clone() });
        }
        self.free(holder);
        self.enter(holder, ids);
        Ok(())
    }

    /// What it held. Repeating it does no harm.
    pub fn free(&mut self, holder: &DeviceHolder) -> Vec<DeviceId> {
        let ids = self.held.remove(holder).unwrap_or_default();
        for id in &ids {
            self.holders.remove(id);
        }
        ids
    }

    fn enter(&mut self, holder: &DeviceHolder, ids: &[DeviceId]) {
        if ids.is_empty() {
            return;
        }
        self.holders.extend(ids.iter().map(|id| (id.clone(), holder.clone())));
        self.held.insert(holder.clone(), ids.to_vec());
    }

    pub fn holder(&self, device: &DeviceId) -> Option<&DeviceHolder> {
        self.holders.get(device)
    }
    pub fn held_by(&self, holder: &DeviceHolder) -> &[DeviceId] {
        self.held.get(holder).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
#[path = "reservations_tests.rs"]
mod tests;
