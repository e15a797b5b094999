//! Runner and devices stand on one floor and do not know each other: what each asks of the other is put together here.
//!
//! ```text
//! runner ── DeviceKeeper ──► ReservationKeeper ── DeviceInventory ──► DeviceStock ──► DeviceManager, made after the runner,
//!                                                                                whose board it reads
//! ```

use std::sync::{Arc, OnceLock};

use crate::devices::DeviceManager;
use crate::devices::keeper::{DeviceInventory, OwnedGroup, ReservationKeeper};
use crate::model::demand::DeviceRequest;
use crate::model::device::{DeviceHolder, ReservedDevices};
use crate::model::device_used::DeviceUsed;
use crate::model::id::DeviceId;
use crate::runner::DeviceKeeper;
use crate::runner::drivers::BoxFuture;
use crate::telemetry::chain;

/// What there is, as soon as the device manager knows it.
#[derive(Default)]
pub struct DeviceStock(OnceLock<Arc<DeviceManager>>);

impl DeviceStock {
    pub fn open(&self, manager: &Arc<DeviceManager>) {
        self.0.get_or_init(|| Arc::clone(manager));
    }
}

impl DeviceInventory for DeviceStock {
    fn groups(&self) -> Vec<OwnedGroup> {
        self.0.get().map_or_else(Vec::new, |manager| manager.groups())
    }
    fn is_complete(&self) -> bool {
        self.0.get().is_some_and(|manager| manager.is_complete())
    }
    fn used(&self, holder: &DeviceHolder) -> Vec<DeviceUsed> {
        self.0.get().map_or_else(Vec::new, |manager| manager.used(holder))
    }
}

impl DeviceKeeper for ReservationKeeper {
    fn reserve<'a>(
        &'a self,
        holder: &'a DeviceHolder,
        requests: &'a [DeviceRequest],
    ) -> BoxFuture<'a, Result<ReservedDevices, String>> {
        Box::pin(async move { ReservationKeeper::reserve(self, holder, requests).await.map_err(|error| chain(&error)) })
    }
    fn hold(&self, holder: &DeviceHolder, ids: &[DeviceId]) -> Result<(), String> {
        ReservationKeeper::hold(self, holder, ids).map_err(|error| chain(&error))
    }
    fn free(&self, holder: &DeviceHolder) {
        ReservationKeeper::free(self, holder);
    }
    fn used(&self, holder: &DeviceHolder) -> Vec<DeviceUsed> {
        ReservationKeeper::used(self, holder)
    }
}
