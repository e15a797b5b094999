//! Event sets: a client that registered receives each event that came later, once, in order.

use std::collections::HashMap;
use std::ffi::{c_uint, c_ulonglong};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::frame::{exports, handle, known, write};
use super::types::{EventData, Handle};
use crate::codes::{self, Code};
use crate::scenario::Event;
use crate::state::{POLL_INTERVAL, Target, call, state};

exports! {
    value nvmlDeviceGetSupportedEventTypes() -> c_ulonglong = |at| known(at.whole()?.events.as_ref());
}

#[derive(Debug, Clone, Default)]
struct Set {
    registered: Vec<Registration>,
    /// The last event that was delivered, or that there was at the first registration.
    seen: u64,
}

#[derive(Debug, Clone)]
struct Registration {
    handle: usize,
    uuid: String,
    kinds: u64,
}

/// By number, from 1.
static SETS: LazyLock<Mutex<HashMap<usize, Set>>> = LazyLock::new(Mutex::default);

fn sets() -> MutexGuard<'static, HashMap<usize, Set>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(out: *mut Handle) -> Code {
    call("nvmlEventSetCreate", Target::Library, |_| {
        let mut sets = sets();
        let number = sets.keys().max().map_or(1, |last| last + 1);
        sets.insert(number, Set::default());
        // SAFETY: the caller gives a place for one value, or null.
        unsafe { write(out, number as Handle) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(set: Handle) -> Code {
    call("nvmlEventSetFree", Target::Library, |_| {
        sets().remove(&(set as usize)).map(|_| ()).ok_or(codes::INVALID_ARGUMENT)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(device: Handle, kinds: c_ulonglong, set: Handle) -> Code {
    call("nvmlDeviceRegisterEvents", handle(device), |at| {
        let values = at.whole()?;
        let supported = known(values.events.as_ref())?;
        if kinds & !supported != 0 {
            return Err(codes::NOT_SUPPORTED);
        }
        let mut sets = sets();
        let set = sets.get_mut(&(set as usize)).ok_or(codes::INVALID_ARGUMENT)?;
        if set.registered.is_empty() {
            set.seen = at.scenario.events.iter().map(|event| event.id).max().unwrap_or(0);
        }
        set.registered.push(Registration { handle: device as usize, uuid: values.uuid.clone(), kinds });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait_v2(set: Handle, out: *mut EventData, milliseconds: c_uint) -> Code {
    call("nvmlEventSetWait_v2", Target::Library, |_| {
        let limit = Instant::now() + Duration::from_millis(milliseconds.into());
        loop {
            if let Some(data) = next(set as usize)? {
                // SAFETY: the caller gives a place for one value, or null.
                return unsafe { write(out, data) };
            }
            if Instant::now() >= limit {
                return Err(codes::TIMEOUT);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    })
}

/// The next event of those registered for. What is already there comes first, also of a device that is lost by now.
fn next(number: usize) -> Result<Option<EventData>, Code> {
    let state = state();
    let mut sets = sets();
    let set = sets.get_mut(&number).ok_or(codes::INVALID_ARGUMENT)?;
    let seen = set.seen;
    for event in state.scenario.events.iter().filter(|event| event.id > seen) {
        set.seen = event.id;
        let uuid = state.scenario.devices.get(event.device).map(|device| &device.uuid);
        let accepts = |one: &&Registration| Some(&one.uuid) == uuid && one.kinds & event.kind != 0;
        if let Some(one) = set.registered.iter().find(accepts) {
            return Ok(Some(event_data(event, one.handle)));
        }
    }
    if set.registered.iter().any(|one| state.is_lost(one.handle)) {
        return Err(codes::GPU_IS_LOST);
    }
    Ok(None)
}

fn event_data(event: &Event, handle: usize) -> EventData {
    EventData {
        device: handle as Handle,
        kind: event.kind,
        data: event.data,
        gpu_instance: event.gpu_instance.unwrap_or(c_uint::MAX),
        compute_instance: event.compute_instance.unwrap_or(c_uint::MAX),
    }
}
