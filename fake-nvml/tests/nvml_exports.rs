//! What the library exports, and the functions that nvml-wrapper has no method for: called as C does.

#![allow(unsafe_code, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::zeroed;

use fake_nvml::abi::types::{ProcessInfo, ProcessInfoV1};
use fake_nvml::{Device, Installed, Process, Scenario, codes, functions, install};
use nvml_wrapper::Nvml;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlTemperature_v1_t};

fn play(scenario: &Scenario) -> (tempfile::TempDir, Installed, Nvml) {
    let directory = tempfile::tempdir().unwrap();
    let gpus = install(directory.path(), scenario).unwrap();
    let nvml = Nvml::builder().lib_path(gpus.library().as_os_str()).init().unwrap();
    (directory, gpus, nvml)
}

/// Where a function of the library is, as the loader knows it.
fn symbol(gpus: &Installed, name: &str) -> *mut c_void {
    let path = CString::new(gpus.library().to_str().unwrap()).unwrap();
    let name = CString::new(name).unwrap();
    // SAFETY: both names end in a zero; the library was loaded before.
    unsafe { libc::dlsym(libc::dlopen(path.as_ptr(), libc::RTLD_NOW), name.as_ptr()) }
}

#[test]
fn the_library_exports_what_the_crate_says() {
    let (_directory, gpus, _nvml) = play(&Scenario::new());
    let image = std::fs::read(gpus.library()).unwrap();
    // All that stands between two zeros like a name: the table of names is among it.
    let words = image.split(|byte| *byte == 0).filter(|word| word.starts_with(b"nvml"));
    let words: BTreeSet<&str> = words.filter_map(|word| std::str::from_utf8(word).ok()).collect();
    let exported: BTreeSet<&str> = words.into_iter().filter(|name| !symbol(&gpus, name).is_null()).collect();
    assert_eq!(exported, functions::ALL.iter().copied().collect());
    assert_eq!(exported.len(), functions::ALL.len(), "none is listed twice");
}

#[test]
fn memory_in_its_first_form_counts_what_is_reserved_as_used() {
    let (_directory, _gpus, nvml) = play(&Scenario::new().with(Device::of("t4")));
    let device = nvml.device_by_index(0).unwrap();
    let function = nvml.lib().nvmlDeviceGetMemoryInfo.as_ref().unwrap();
    // SAFETY: the handle is that of a living device, the place is ours.
    let first = unsafe {
        let mut info = zeroed();
        assert_eq!(function(device.handle(), &raw mut info), codes::SUCCESS);
        info
    };
    let second = device.memory_info().unwrap();
    assert_eq!((first.total, first.free), (second.total, second.free));
    assert_eq!(first.used, second.used + second.reserved);
}

#[test]
fn a_structure_of_another_version_is_refused() {
    let (_directory, _gpus, nvml) = play(&Scenario::new().with(Device::of("t4")));
    let device = nvml.device_by_index(0).unwrap();
    let (memory, celsius) = (
        nvml.lib().nvmlDeviceGetMemoryInfo_v2.as_ref().unwrap(),
        nvml.lib().nvmlDeviceGetTemperatureV.as_ref().unwrap(),
    );
    // SAFETY: the handle is that of a living device, each place is ours.
    unsafe {
        let mut info = zeroed();
        assert_eq!(memory(device.handle(), &raw mut info), codes::ARGUMENT_VERSION_MISMATCH);
        let mut temperature: nvmlTemperature_v1_t = zeroed();
        assert_eq!(celsius(device.handle(), &raw mut temperature), codes::ARGUMENT_VERSION_MISMATCH);
        temperature.version = 0x0100_000c;
        assert_eq!((celsius(device.handle(), &raw mut temperature), temperature.temperature), (codes::SUCCESS, 36));
    }
}

#[test]
fn the_newer_name_of_throttling_answers_the_same() {
    let (_directory, _gpus, nvml) = play(&Scenario::new().with(Device::of("h100")));
    let device = nvml.device_by_index(0).unwrap();
    let lib = nvml.lib();
    for (function, expected) in [
        (&lib.nvmlDeviceGetCurrentClocksEventReasons, device.current_throttle_reasons()),
        (&lib.nvmlDeviceGetSupportedClocksEventReasons, device.supported_throttle_reasons()),
    ] {
        let mut bits = 0;
        // SAFETY: the handle is that of a living device, the place is ours.
        assert_eq!(unsafe { function.as_ref().unwrap()(device.handle(), &raw mut bits) }, codes::SUCCESS);
        assert_eq!(bits, expected.unwrap().bits());
    }
}

#[test]
fn a_mig_device_knows_its_instances_and_a_device_has_none() {
    let (_directory, _gpus, nvml) = play(&Scenario::new().with(Device::of("a100-mig")));
    let device = nvml.device_by_index(0).unwrap();
    let instance = device.mig_device_by_index(2).unwrap();
    for (function, expected) in
        [(&nvml.lib().nvmlDeviceGetGpuInstanceId, 9), (&nvml.lib().nvmlDeviceGetComputeInstanceId, 0)]
    {
        let mut id = 77;
        // SAFETY: each handle is that of a living device, the place is ours.
        unsafe {
            assert_eq!(function.as_ref().unwrap()(device.handle(), &raw mut id), codes::INVALID_ARGUMENT);
            assert_eq!(function.as_ref().unwrap()(instance.handle(), &raw mut id), codes::SUCCESS);
        }
        assert_eq!(id, expected);
    }
}

#[test]
fn processes_in_the_form_of_an_old_driver_are_the_same() {
    let scenario = Scenario::new().with(Device::of("t4").runs(Process::new(41, 1 << 30)));
    let (_directory, gpus, nvml) = play(&scenario);
    let device = nvml.device_by_index(0).unwrap();
    type Function = unsafe extern "C" fn(nvmlDevice_t, *mut u32, *mut ProcessInfo) -> u32;
    for (kind, there) in [("Compute", 1), ("Graphics", 0), ("MPSCompute", 0)] {
        let symbol = symbol(&gpus, &format!("nvmlDeviceGet{kind}RunningProcesses_v2"));
        assert!(!symbol.is_null());
        // SAFETY: the library is loaded and has this function with these parameters; there is room for four.
        unsafe {
            let function = std::mem::transmute::<*mut c_void, Function>(symbol);
            let (mut count, mut processes) = (4, [zeroed::<ProcessInfo>(); 4]);
            assert_eq!(function(device.handle(), &raw mut count, processes.as_mut_ptr()), codes::SUCCESS);
            assert_eq!((count, processes[0].pid), (there, 41 * there));
        }
    }
}

#[test]
fn processes_in_the_form_of_the_oldest_driver_have_no_instances() {
    let scenario = Scenario::new().with(Device::of("t4").runs(Process::new(41, 1 << 30)));
    let (_directory, gpus, nvml) = play(&scenario);
    let device = nvml.device_by_index(0).unwrap();
    type Function = unsafe extern "C" fn(nvmlDevice_t, *mut u32, *mut ProcessInfoV1) -> u32;
    for (kind, there) in [("Compute", 1), ("Graphics", 0), ("MPSCompute", 0)] {
        let symbol = symbol(&gpus, &format!("nvmlDeviceGet{kind}RunningProcesses"));
        assert!(!symbol.is_null());
        // SAFETY: the library is loaded and has this function with these parameters; there is room for four.
        unsafe {
            let function = std::mem::transmute::<*mut c_void, Function>(symbol);
            let (mut count, mut processes) = (4, [zeroed::<ProcessInfoV1>(); 4]);
            assert_eq!(function(device.handle(), &raw mut count, processes.as_mut_ptr()), codes::SUCCESS);
            assert_eq!((count, processes[0].pid), (there, 41 * there));
            assert_eq!(processes[0].memory, u64::from(there) << 30);
        }
    }
}

#[test]
fn the_driver_says_its_versions_and_an_error_its_sentence() {
    let (_directory, _gpus, nvml) = play(&Scenario::new());
    assert_eq!(nvml.sys_driver_version().unwrap(), "570.172.08");
    assert_eq!(nvml.sys_nvml_version().unwrap(), "12.570.172.08");
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 12080);
    assert!(!nvml.sys_process_name(std::process::id(), 4096).unwrap().is_empty());
    let function = nvml.lib().nvmlErrorString.as_ref().unwrap();
    // SAFETY: what it returns lives as long as the library.
    let text = |code| unsafe { CStr::from_ptr(function(code).cast::<c_char>()) }.to_str().unwrap();
    assert_eq!((text(15), text(12345)), ("GPU is lost", "Unknown Error"));
}

#[test]
fn calls_before_init_and_after_shutdown_are_refused() {
    let (_directory, gpus, nvml) = play(&Scenario::new().with(Device::of("t4")));
    let (init, shutdown, count) = {
        let lib = nvml.lib();
        (
            lib.nvmlInitWithFlags.as_ref().unwrap(),
            lib.nvmlShutdown.as_ref().unwrap(),
            lib.nvmlDeviceGetCount_v2.as_ref(),
        )
    };
    let mut devices = 0;
    // SAFETY: the place is ours.
    unsafe {
        assert_eq!((init(0), shutdown()), (codes::SUCCESS, codes::SUCCESS));
        assert_eq!(count.unwrap()(&raw mut devices), codes::SUCCESS, "begun twice, ended once");
        assert_eq!(shutdown(), codes::SUCCESS);
        assert_eq!(count.unwrap()(&raw mut devices), codes::UNINITIALIZED);
    }
    assert_eq!((devices, gpus.calls().unwrap().len()), (1, 0));
}
