//! What the library knows between calls: the scenario as it was last read, who was given which handle, how often what
//! was called.
//!
//! ```text
//! a call: arrive (read the scenario again if it changed, note the call, which faults are due)
//!         -> suffer them (sleep, hang, abort, answer a code; without the lock, so that other threads go on)
//!         -> look up the device, in what is then the scenario -> answer
//! ```

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::codes::{self, Code};
use crate::fault::{Effect, Fault};
use crate::install;
use crate::scenario::{Device, Instance, Scenario};

/// How often a call that hangs or waits checks whether the scenario has changed.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) struct State {
    path: PathBuf,
    stamp: Option<FileStamp>,
    pub(crate) scenario: Arc<Scenario>,
    /// Why the scenario could not be read: every call then fails.
    broken: Option<String>,
    inits: u32,
    /// By handle, from 1: the UUID of the device or MIG device that it was given for.
    handles: Vec<String>,
    /// Calls that each fault concerned, since it stands in the scenario.
    concerned: HashMap<Fault, u64>,
    calls: Option<File>,
}

/// By which a file is known to be another one.
#[derive(PartialEq)]
struct FileStamp(u64, u64, i64, i64);

/// What a call is about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    Library,
    Handle(usize),
    Index(u32),
    Uuid(&'a str),
    BusId(&'a str),
}

/// Where in the scenario that stands.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ScenarioPlace {
    device: usize,
    instance: Option<usize>,
}

/// What a call was found to be about, for those who answer it.
pub(crate) struct ResolvedTarget {
    pub(crate) scenario: Arc<Scenario>,
    place: Option<ScenarioPlace>,
    /// By how much a list is longer.
    pub(crate) grown: u32,
    /// The count that a list reports, whatever it has.
    pub(crate) claimed: Option<u32>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::new()));

pub(crate) fn state() -> MutexGuard<'static, State> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.refresh();
    state
}

/// One call from its arrival to its code.
pub(crate) fn call(function: &str, target: Target, answer: impl FnOnce(&ResolvedTarget) -> Result<(), Code>) -> Code {
    let answered = arrive_and_suffer(function, target).and_then(|found| answer(&found));
    answered.err().unwrap_or(codes::SUCCESS)
}

fn arrive_and_suffer(function: &str, target: Target) -> Result<ResolvedTarget, Code> {
    let mut now = state();
    let due = now.arrive(function, target)?;
    if due.is_empty() {
        return now.find(function, target, (0, None));
    }
    drop(now);
    let (mut grown, mut claimed) = (0, None);
    for (fault, number) in due {
        match fault.does {
            Effect::Answers(code) => return Err(code),
            Effect::SlowMs(milliseconds) => std::thread::sleep(Duration::from_millis(milliseconds)),
            Effect::Hangs => hang(&fault),
            Effect::Grows(by) => {
                grown = by.saturating_mul(u32::try_from(number - fault.after).unwrap_or(u32::MAX));
            }
            Effect::Claims(count) => claimed = Some(count),
            Effect::Aborts => std::process::abort(),
        }
    }
    state().find(function, target, (grown, claimed))
}

/// Until the fault is taken out of the scenario, or the process ends.
fn hang(fault: &Fault) {
    while state().scenario.faults.contains(fault) {
        std::thread::sleep(POLL_INTERVAL);
    }
}

impl State {
    fn new() -> State {
        let own = own_path();
        stay_loaded(own);
        let path = match std::env::var_os("FAKE_NVML") {
            Some(path) => path.into(),
            None => {
                own.map(|own| install::scenario_path(Path::new(OsStr::from_bytes(own.to_bytes())))).unwrap_or_default()
            }
        };
        State {
            path,
            stamp: None,
            scenario: Arc::default(),
            broken: None,
            inits: 0,
            handles: Vec::new(),
            concerned: HashMap::new(),
            calls: None,
        }
    }

    /// Reads the scenario if the file is another one than it was.
    fn refresh(&mut self) {
        let stamp = fs::metadata(&self.path).ok().map(|m| FileStamp(m.ino(), m.size(), m.mtime(), m.mtime_nsec()));
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        let text = fs::read_to_string(&self.path).map_err(|e| e.to_string());
        match text.and_then(|text| Scenario::parse(&text)) {
            Ok(scenario) => self.play(scenario),
            Err(why) => self.cannot(why),
        }
    }

    fn play(&mut self, scenario: Scenario) {
        self.broken = None;
        self.concerned.retain(|fault, _| scenario.faults.contains(fault));
        if scenario.record_calls && self.calls.is_none() {
            let path =
                std::env::var_os("FAKE_NVML_CALLS").map_or_else(|| install::calls_path(&self.path), PathBuf::from);
            self.calls = OpenOptions::new().create(true).append(true).open(path).ok();
        }
        self.scenario = Arc::new(scenario);
    }

    fn cannot(&mut self, why: String) {
        if self.broken.as_ref() != Some(&why) {
            eprintln!("fake NVML: no scenario in {}: {why}", self.path.display());
        }
        self.broken = Some(why);
    }

    /// Notes the call and says which faults befall it, each with the number of the call among those that it concerns.
    fn arrive(&mut self, function: &str, target: Target) -> Result<Vec<(Fault, u64)>, Code> {
        let place = self.place(target).ok().flatten();
        let device = place.map(|place| place.device);
        self.record(function, device);
        if self.broken.is_some() {
            return Err(codes::UNKNOWN);
        }
        if self.inits == 0 && !function.starts_with("nvmlInit") {
            return Err(codes::UNINITIALIZED);
        }
        let scenario = Arc::clone(&self.scenario);
        let mut due = Vec::new();
        for fault in scenario.faults.iter().filter(|fault| fault.concerns(function, device)) {
            let number = self.concerned.entry(fault.clone()).or_default();
            *number += 1;
            if fault.befalls(*number) {
                due.push((fault.clone(), *number));
            }
        }
        Ok(due)
    }

    /// A reader of the calls misses one rather than that the device fails.
    fn record(&mut self, function: &str, device: Option<usize>) {
        if let Some(calls) = self.calls.as_mut().filter(|_| self.scenario.record_calls) {
            let device = device.map_or_else(|| "-".to_owned(), |device| device.to_string());
            let _ = calls.write_all(format!("{function}\t{device}\n").as_bytes());
        }
    }

    fn find(
        &self,
        function: &str,
        target: Target,
        (grown, claimed): (u32, Option<u32>),
    ) -> Result<ResolvedTarget, Code> {
        let place = self.place(target)?;
        let found = ResolvedTarget { scenario: Arc::clone(&self.scenario), place, grown, claimed };
        match place.map(|place| &self.scenario.devices[place.device]) {
            Some(device) if device.lost => Err(codes::GPU_IS_LOST),
            Some(device) if device.refuses.contains(function) => Err(codes::NOT_SUPPORTED),
            Some(_) | None => Ok(found),
        }
    }

    /// A handle stays that of the device for which it was given: one with a new UUID has a new handle.
    fn place(&self, target: Target) -> Result<Option<ScenarioPlace>, Code> {
        let devices = &self.scenario.devices;
        let whole = |device: usize| ScenarioPlace { device, instance: None };
        match target {
            Target::Library => Ok(None),
            Target::Index(index) => {
                let index = index as usize;
                devices.get(index).map(|_| Some(whole(index))).ok_or(codes::INVALID_ARGUMENT)
            }
            Target::BusId(id) => {
                let same = |device: &Device| device.pci.bus_id().eq_ignore_ascii_case(&long_bus_id(id));
                devices.iter().position(same).map(|at| Some(whole(at))).ok_or(codes::NOT_FOUND)
            }
            Target::Uuid(uuid) => self.named(uuid).map(Some).ok_or(codes::NOT_FOUND),
            Target::Handle(handle) => {
                let uuid = handle.checked_sub(1).and_then(|at| self.handles.get(at)).ok_or(codes::INVALID_ARGUMENT)?;
                self.named(uuid).map(Some).ok_or(codes::GPU_IS_LOST)
            }
        }
    }

    fn named(&self, uuid: &str) -> Option<ScenarioPlace> {
        self.scenario.devices.iter().enumerate().find_map(|(device, values)| {
            let instances = values.mig.iter().filter(|mig| mig.enabled).flat_map(|mig| &mig.instances);
            let instance = instances.enumerate().find(|(_, instance)| instance.uuid == uuid).map(|(at, _)| at);
            (values.uuid == uuid || instance.is_some()).then_some(ScenarioPlace { device, instance })
        })
    }

    pub(crate) fn handle(&mut self, uuid: &str) -> usize {
        let known = self.handles.iter().position(|known| known == uuid);
        known.unwrap_or_else(|| {
            self.handles.push(uuid.to_owned());
            self.handles.len() - 1
        }) + 1
    }

    pub(crate) fn init(&mut self) {
        self.inits += 1;
    }
    pub(crate) fn shut_down(&mut self) {
        self.inits = self.inits.saturating_sub(1);
    }
    /// Whether this handle's device still answers.
    pub(crate) fn is_lost(&self, handle: usize) -> bool {
        match self.place(Target::Handle(handle)) {
            Ok(Some(place)) => self.scenario.devices[place.device].lost,
            Ok(None) | Err(_) => true,
        }
    }
}

impl ResolvedTarget {
    fn place(&self) -> Result<ScenarioPlace, Code> {
        self.place.ok_or(codes::INVALID_ARGUMENT)
    }
    /// The device, whether it was asked for itself or for one of its MIG devices.
    pub(crate) fn device(&self) -> Result<&Device, Code> {
        Ok(&self.scenario.devices[self.place()?.device])
    }
    pub(crate) fn position(&self) -> Result<usize, Code> {
        Ok(self.place()?.device)
    }
    pub(crate) fn instance(&self) -> Option<&Instance> {
        let place = self.place?;
        self.scenario.devices[place.device].mig.as_ref()?.instances.get(place.instance?)
    }
    pub(crate) fn instance_position(&self) -> Option<usize> {
        self.place?.instance
    }
    /// The device, for what a MIG device does not have.
    pub(crate) fn whole(&self) -> Result<&Device, Code> {
        if self.instance().is_some() { Err(codes::NOT_SUPPORTED) } else { self.device() }
    }
}

/// Some ask with the four digits of a domain that the kernel shows, the library answers with eight.
fn long_bus_id(id: &str) -> String {
    match id.split_once(':') {
        Some((domain, rest)) => format!("{domain:0>8}:{rest}"),
        None => id.to_owned(),
    }
}

/// The file that this code was loaded from.
fn own_path() -> Option<&'static CStr> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let here = own_path as fn() -> Option<&'static CStr>;
    // SAFETY: `here` is an address in this library, and `info` is ours; the name lives as long as the library is
    // loaded, and it stays loaded.
    unsafe {
        if libc::dladdr(here as *const libc::c_void, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(CStr::from_ptr(info.dli_fname))
    }
}

/// A client that closes the library and loads it again finds the same handles and counts: a first `nvmlInit` that fails
/// is remembered.
fn stay_loaded(own: Option<&CStr>) {
    let Some(own) = own else { return };
    // SAFETY: the name ends in a zero; RTLD_NOLOAD runs no code of another library.
    unsafe { libc::dlopen(own.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
}
