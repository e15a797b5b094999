//! The table of device holders, indexed both ways: looking up one task costs only its own devices. Pure.

use std::collections::BTreeMap;

use super::choose::{ChooseError, choose};
use crate::model::demand::DeviceRequest;
use crate::model::device::{DeviceGroup, DeviceHolder};
use crate::model::id::DeviceId;

/// Invariants: a device has at most one holder; a holder without devices has no entry.
#[derive(Debug, Default)]
pub struct Reservations {
    holders: BTreeMap<DeviceId, DeviceHolder>,
    held: BTreeMap<DeviceHolder, Vec<DeviceId>>,
}

/// Another task holds the device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device {device} is held by {by}")]
pub struct ReservationConflict {
    pub device: DeviceId,
    pub by: DeviceHolder,
}

impl Reservations {
    /// Reserves all requests or none. A holder that already has devices gets the same ones again, whatever it requests.
    ///
    /// Errors: not all are available; the table is unchanged.
    pub fn reserve(
        &mut self,
        holder: &DeviceHolder,
        requests: &[DeviceRequest],
        groups: &[&DeviceGroup],
    ) -> Result<Vec<DeviceId>, ChooseError> {
        if let Some(held) = self.held.get(holder) {
            return Ok(held.clone());
        }
        let ids = choose(groups, requests, |id| self.holders.get(id).cloned())?;
        self.enter(holder, &ids);
        Ok(ids)
    }

    /// Records these devices for the holder and replaces what it held before.
    ///
    /// Errors: another task holds one of them; the table is unchanged.
    pub fn hold(&mut self, holder: &DeviceHolder, ids: &[DeviceId]) -> Result<(), ReservationConflict> {
        let rest = ids.iter().filter_map(|id| Some((id, self.holders.get(id).filter(|by| *by != holder)?)));
        if let Some((device, by)) = rest.into_iter().next() {
            return Err(ReservationConflict { device: device.clone(), by: by.clone() });
        }
        self.free(holder);
        self.enter(holder, ids);
        Ok(())
    }

    /// Returns the devices that the holder had. Idempotent.
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
