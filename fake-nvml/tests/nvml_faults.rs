//! Each thing that can go wrong, as nvml-wrapper meets it: the scenario is changed while the library is loaded.
//!
//! Promise (Code, boards and alerts): Each fault of the fake NVML shows in the call that it names, and in no other
//! device's

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use fake_nvml::scenario::{Accounted, EVENT_XID, Event, Instance, NOT_AVAILABLE, ProcessSample, RetiredPage};
use fake_nvml::{Device, Fault, Installed, Process, Scenario, codes, install, install_without};
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, RetirementCause, TemperatureSensor};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::structs::device::FieldId;
use tempfile::TempDir;

const A_WHILE: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(20);
/// The UUID of the first device, where none is given.
const FIRST: &str = "GPU-fa4e0000-0000-4000-8000-000000000000";

/// Two devices of one kind.
fn pair() -> Scenario {
    Scenario::new().with(Device::of("h100")).with(Device::of("h100"))
}

fn play(scenario: &Scenario) -> (TempDir, Installed, Nvml) {
    let directory = tempfile::tempdir().unwrap();
    let gpus = install(directory.path(), scenario).unwrap();
    let nvml = load(&gpus).unwrap();
    (directory, gpus, nvml)
}

fn load(gpus: &Installed) -> Result<Nvml, NvmlError> {
    Nvml::builder().lib_path(gpus.library().as_os_str()).init()
}

fn celsius(nvml: &Nvml, device: u32) -> Result<u32, NvmlError> {
    nvml.device_by_index(device)?.temperature(TemperatureSensor::Gpu)
}

fn field(nvml: &Nvml, id: u32) -> Result<SampleValue, NvmlError> {
    let values = nvml.device_by_index(0)?.field_values_for(&[FieldId(id)])?;
    values.into_iter().next().unwrap()?.value
}

fn listens(nvml: &Nvml) -> EventSet<'_> {
    let set = nvml.create_event_set().unwrap();
    nvml.device_by_index(0).unwrap().register_events(EventTypes::CRITICAL_XID_ERROR, set).unwrap()
}

/// What a thread answers, if it does within a while.
fn answered<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> std::sync::mpsc::Receiver<T> {
    let (send, receive) = channel();
    std::thread::spawn(move || send.send(work()));
    receive
}

#[test]
fn a_driver_that_is_not_loaded_or_another_version_says_so_and_then_works() {
    let scenario = pair()
        .fault(Fault::answers("nvmlInit_v2", codes::DRIVER_NOT_LOADED).times(2))
        .fault(Fault::answers("nvmlInit_v2", codes::LIB_RM_VERSION_MISMATCH).after(2).times(1));
    let directory = tempfile::tempdir().unwrap();
    let gpus = install(directory.path(), &scenario).unwrap();
    // The wrapper unloads the library after each failure: that the third is another one shows that it was kept.
    assert!(matches!(load(&gpus), Err(NvmlError::DriverNotLoaded)));
    assert!(matches!(load(&gpus), Err(NvmlError::DriverNotLoaded)));
    assert!(matches!(load(&gpus), Err(NvmlError::LibRmVersionMismatch)));
    assert_eq!(load(&gpus).unwrap().device_count().unwrap(), 2);
}

#[test]
fn an_old_library_lacks_a_function_and_has_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let lacks = ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3"];
    let gpus = install_without(directory.path(), &pair(), &lacks).unwrap();
    let nvml = load(&gpus).unwrap();
    let device = nvml.device_by_index(0).unwrap();
    assert!(matches!(device.memory_info(), Err(NvmlError::FailedToLoadSymbol(_))));
    assert!(matches!(device.running_compute_processes(), Err(NvmlError::FailedToLoadSymbol(_))));
    assert_eq!(device.running_graphics_processes().unwrap(), []);
    assert!(nvml.lib().nvmlDeviceGetMemoryInfo.is_ok());
    assert!(install_without(directory.path(), &pair(), &["nvmlDeviceGetNothing"]).is_err());
}

#[test]
fn one_device_refuses_a_call_and_the_other_answers_it() {
    let (_directory, _gpus, nvml) =
        play(&Scenario::new().with(Device::of("h100").refuses("nvmlDeviceGetTemperature")).with(Device::of("h100")));
    assert!(matches!(celsius(&nvml, 0), Err(NvmlError::NotSupported)));
    assert_eq!(celsius(&nvml, 1).unwrap(), 32);
}

#[test]
fn a_call_fails_with_any_code_from_the_nth_on_and_so_often_as_was_said() {
    let fault = Fault::answers("nvmlDeviceGetTemperature", codes::IRQ_ISSUE).on(1).after(2).times(2);
    let (_directory, gpus, nvml) = play(&pair().fault(fault));
    let well: Vec<bool> = (0..6).map(|_| celsius(&nvml, 1).is_ok()).collect();
    assert_eq!(well, [true, true, false, false, true, true]);
    assert!(celsius(&nvml, 0).is_ok());
    // One that stood there before goes on counting, a new one begins.
    gpus.edit(|scenario| scenario.faults.push(Fault::answers("nvmlDeviceGetName", 30).after(1))).unwrap();
    assert!(celsius(&nvml, 1).is_ok());
    let device = nvml.device_by_index(0).unwrap();
    assert!(device.name().is_ok());
    assert!(matches!(device.name(), Err(NvmlError::UnexpectedVariant(30))));
}

#[test]
fn every_call_about_a_lost_device_says_so_and_the_other_goes_on() {
    let (_directory, gpus, nvml) = play(&pair());
    let (lost, other) = (nvml.device_by_index(0).unwrap(), nvml.device_by_index(1).unwrap());
    gpus.edit(|scenario| scenario.devices[0].lost = true).unwrap();
    assert!(matches!(lost.uuid(), Err(NvmlError::GpuLost)));
    assert!(matches!(lost.power_usage(), Err(NvmlError::GpuLost)));
    assert!(matches!(lost.running_compute_processes(), Err(NvmlError::GpuLost)));
    assert!(matches!(lost.field_values_for(&[FieldId(83)]), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_index(0), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_uuid(FIRST), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_pci_bus_id("0000:01:00.0"), Err(NvmlError::GpuLost)));
    assert_eq!(nvml.device_count().unwrap(), 2);
    assert!(other.power_usage().is_ok());
    gpus.edit(|scenario| scenario.devices[0].lost = false).unwrap();
    assert!(lost.power_usage().is_ok());
}

#[test]
fn a_device_falls_off_the_bus_at_its_nth_call() {
    let fault = Fault::answers("nvmlDeviceGetName", codes::GPU_IS_LOST).everywhere().on(0).after(3);
    let (_directory, _gpus, nvml) = play(&pair().fault(fault));
    let device = nvml.device_by_index(0).unwrap();
    assert!(device.name().is_ok() && device.power_usage().is_ok());
    assert!(matches!(device.name(), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_index(0), Err(NvmlError::GpuLost)));
    assert!(nvml.device_by_index(1).unwrap().name().is_ok());
}

#[test]
fn a_device_comes_back_with_another_uuid_and_its_old_handle_stays_lost() {
    let (_directory, gpus, nvml) = play(&pair());
    let before = nvml.device_by_index(0).unwrap();
    gpus.edit(|scenario| {
        "GPU-new".clone_into(&mut scenario.devices[0].uuid);
        scenario.devices[0].energy_mj = Some(5);
    })
    .unwrap();
    assert!(matches!(before.name(), Err(NvmlError::GpuLost)));
    let after = nvml.device_by_index(0).unwrap();
    assert_eq!((after.uuid().unwrap().as_str(), after.total_energy_consumption().unwrap()), ("GPU-new", 5));
    assert!(matches!(nvml.device_by_uuid(FIRST), Err(NvmlError::NotFound)));
}

#[test]
fn a_slow_call_takes_its_time_and_answers() {
    let (_directory, _gpus, nvml) = play(&pair().fault(Fault::slow("nvmlDeviceGetTemperature", 50).on(0)));
    let began = Instant::now();
    assert_eq!(celsius(&nvml, 0).unwrap(), 32);
    assert!(began.elapsed() >= Duration::from_millis(50));
}

#[test]
fn call_hangs_until_its_fault_is_gone_and_delays_no_other() {
    let (_directory, gpus, nvml) = play(&pair().fault(Fault::hangs("nvmlDeviceGetTemperature").on(0)));
    let nvml = std::sync::Arc::new(nvml);
    let hangs = answered({
        let nvml = nvml.clone();
        move || celsius(&nvml, 0).unwrap()
    });
    assert_eq!(hangs.recv_timeout(A_WHILE), Err(RecvTimeoutError::Timeout));
    assert!(celsius(&nvml, 1).is_ok());
    gpus.edit(|scenario| {
        scenario.faults.clear();
        scenario.devices[0].temperature_celsius = Some(77);
    })
    .unwrap();
    assert_eq!(hangs.recv_timeout(LONG), Ok(77));
}

#[test]
fn waiting_for_events_and_shutting_down_hang_too() {
    let faults = [Fault::hangs("nvmlEventSetWait_v2"), Fault::hangs("nvmlShutdown")];
    let (_directory, gpus, nvml) = play(&faults.into_iter().fold(pair(), Scenario::fault));
    let waits = answered(move || {
        let waited = matches!(listens(&nvml).wait(1), Err(NvmlError::Timeout));
        (waited, nvml.shutdown().is_ok())
    });
    assert_eq!(waits.recv_timeout(A_WHILE), Err(RecvTimeoutError::Timeout));
    gpus.edit(|scenario| drop(scenario.faults.remove(0))).unwrap();
    assert_eq!(waits.recv_timeout(A_WHILE), Err(RecvTimeoutError::Timeout));
    gpus.edit(|scenario| scenario.faults.clear()).unwrap();
    assert_eq!(waits.recv_timeout(LONG), Ok((true, true)));
}

#[test]
fn values_that_no_hardware_should_have_are_handed_on() {
    let mut scenario = Scenario::new();
    let device = scenario.add(Device::of("geforce").runs(Process::new(7, NOT_AVAILABLE)));
    device.fans_percent = vec![137];
    device.utilization.as_mut().unwrap().gpu_percent = u32::MAX;
    device.memory.as_mut().unwrap().used_bytes = u64::MAX;
    device.fields.insert(90, 0xFFFF);
    device.refuses.remove("field:90");
    let (_directory, _gpus, nvml) = play(&scenario);
    let gpu = nvml.device_by_index(0).unwrap();
    assert_eq!(gpu.running_compute_processes().unwrap()[0].used_gpu_memory, UsedGpuMemory::Unavailable);
    assert_eq!(gpu.fan_speed(0).unwrap(), 137);
    assert_eq!(gpu.utilization_rates().unwrap().gpu, u32::MAX);
    assert_eq!((gpu.memory_info().unwrap().used, gpu.memory_info().unwrap().free), (u64::MAX, 0));
    assert_eq!(field(&nvml, 90).unwrap(), SampleValue::U32(0xFFFF));
    assert!(matches!(field(&nvml, 197), Err(NvmlError::NotSupported)), "one field fails, the call does not");
}

#[test]
fn counters_wrap_and_begin_again() {
    let (_directory, gpus, nvml) = play(&pair());
    for (energy, bytes) in [(u64::MAX, u64::from(u32::MAX)), (3, 12)] {
        gpus.edit(|scenario| {
            scenario.devices[0].energy_mj = Some(energy);
            scenario.devices[0].pcie.as_mut().unwrap().transmitted_bytes = Some(bytes);
        })
        .unwrap();
        assert_eq!(nvml.device_by_index(0).unwrap().total_energy_consumption().unwrap(), energy);
        assert_eq!(field(&nvml, 83).unwrap(), SampleValue::U64(energy));
        assert_eq!(field(&nvml, 197).unwrap(), SampleValue::U64(bytes));
    }
}

#[test]
fn fields_have_the_numbers_of_their_driver() {
    let mut scenario = pair();
    scenario.devices[0].fields.extend([(252, 11), (256, 12)]);
    let (_directory, gpus, nvml) = play(&scenario);
    assert_eq!(field(&nvml, 252).unwrap(), SampleValue::U64(11));
    drop(nvml);
    gpus.edit(|scenario| "580.95.05".clone_into(&mut scenario.system.driver_version)).unwrap();
    // The wrapper asks for 270 and 251 of such a driver.
    let nvml = load(&gpus).unwrap();
    assert_eq!((field(&nvml, 252).unwrap(), field(&nvml, 256).unwrap()), (SampleValue::U64(11), SampleValue::U64(12)));
}

#[test]
fn a_list_that_grows_between_the_two_calls_does_not_fit_until_it_stops() {
    let grows = Fault::grows("nvmlDeviceGetComputeRunningProcesses_v3", 10).times(4);
    let mut scenario = Scenario::new().fault(grows);
    scenario.add(Device::of("t4").runs(Process::new(41, 1 << 30)));
    let (_directory, gpus, nvml) = play(&scenario);
    let device = nvml.device_by_index(0).unwrap();
    assert!(matches!(device.running_compute_processes(), Err(NvmlError::InsufficientSize(_))));
    assert!(matches!(device.running_compute_processes(), Err(NvmlError::InsufficientSize(_))));
    assert_eq!(device.running_compute_processes().unwrap().len(), 1);
    // Another process has the pid, then none.
    gpus.edit(|scenario| scenario.devices[0].compute[0].memory_bytes = 5).unwrap();
    assert_eq!(device.running_compute_processes().unwrap()[0].used_gpu_memory, UsedGpuMemory::Used(5));
    gpus.edit(|scenario| scenario.devices[0].compute.clear()).unwrap();
    assert_eq!(device.running_compute_processes().unwrap(), []);
}

#[test]
fn process_sample_is_returned_to_each_client_that_has_not_seen_it() {
    let mut scenario = Scenario::new();
    scenario.add(Device::of("t4").runs(Process::new(41, 1 << 30).uses(1000, 37)).runs(Process::new(42, 1 << 20)));
    let (_directory, gpus, nvml) = play(&scenario);
    let device = nvml.device_by_index(0).unwrap();
    let samples = device.process_utilization_stats(0).unwrap();
    assert_eq!(samples.iter().map(|s| (s.pid, s.sm_util, s.timestamp)).collect::<Vec<_>>(), [(41, 37, 1000)]);
    assert!(matches!(device.process_utilization_stats(1000), Err(NvmlError::NotFound)));
    let next = ProcessSample { timestamp_us: 1001, encoder_percent: 9, ..ProcessSample::default() };
    gpus.edit(|scenario| scenario.devices[0].compute[1].sample = Some(next)).unwrap();
    let samples = device.process_utilization_stats(1000).unwrap();
    assert_eq!(samples.iter().map(|s| (s.pid, s.enc_util)).collect::<Vec<_>>(), [(42, 9)]);
}

#[test]
fn accounting_keeps_what_ended_processes_used() {
    let mut scenario = Scenario::new();
    let accounting = scenario.add(Device::of("h100")).accounting.as_mut().unwrap();
    accounting.enabled = true;
    accounting.processes.push(Accounted { pid: 9, max_memory_bytes: 77, time_ms: 1500, ..Accounted::default() });
    let (_directory, _gpus, nvml) = play(&scenario);
    let device = nvml.device_by_index(0).unwrap();
    assert_eq!(device.accounting_pids().unwrap(), [9]);
    let stats = device.accounting_stats_for(9).unwrap();
    assert_eq!((stats.max_memory_usage, stats.time, stats.is_running), (Some(77), 1500, false));
    assert!(matches!(device.accounting_stats_for(10), Err(NvmlError::NotFound)));
}

#[test]
fn burst_of_a_thousand_xids_comes_one_by_one_and_earlier_ones_do_not() {
    let mut scenario = pair();
    scenario.xid(0, 13);
    let (_directory, gpus, nvml) = play(&scenario);
    let set = listens(&nvml);
    assert!(matches!(set.wait(20), Err(NvmlError::Timeout)));
    let excluded = Event { id: 2, device: 0, kind: 4, data: 0, gpu_instance: None, compute_instance: None };
    gpus.edit(|scenario| {
        scenario.events.push(excluded);
        scenario.xid(1, 94);
        (0..1000).for_each(|_| scenario.xid(0, 31));
        scenario.xid(0, 79);
    })
    .unwrap();
    let mut counts = std::collections::BTreeMap::new();
    while let Ok(event) = set.wait(100) {
        assert_eq!(event.device.index().unwrap(), 0);
        *counts.entry(format!("{:?}", event.event_data.unwrap())).or_insert(0) += 1;
    }
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [("Value(31)".to_owned(), 1000), ("Value(79)".to_owned(), 1)]);
}

#[test]
fn waiting_client_is_woken_by_an_event_and_sometimes_by_nothing() {
    let (_directory, gpus, nvml) = play(&pair().fault(Fault::answers("nvmlEventSetWait_v2", codes::TIMEOUT).times(3)));
    let (ready, is_ready) = channel();
    let woken = answered(move || {
        let set = listens(&nvml);
        let began = Instant::now();
        let early = (0..3).all(|_| matches!(set.wait(60_000), Err(NvmlError::Timeout)));
        assert!(early && began.elapsed() < LONG);
        ready.send(()).unwrap();
        set.wait(60_000).unwrap().event_type
    });
    is_ready.recv_timeout(LONG).unwrap();
    assert_eq!(woken.recv_timeout(A_WHILE), Err(RecvTimeoutError::Timeout));
    gpus.edit(|scenario| scenario.xid(0, 48)).unwrap();
    assert_eq!(woken.recv_timeout(LONG), Ok(EventTypes::CRITICAL_XID_ERROR));
}

#[test]
fn lost_device_reports_its_last_xid_and_ends_the_wait() {
    let (_directory, gpus, nvml) = play(&pair());
    let set = listens(&nvml);
    gpus.edit(|scenario| {
        scenario.xid(0, 79);
        scenario.devices[0].lost = true;
    })
    .unwrap();
    assert!(set.wait(60_000).is_ok());
    assert!(matches!(set.wait(60_000), Err(NvmlError::GpuLost)));
    assert_eq!(EVENT_XID, EventTypes::CRITICAL_XID_ERROR.bits());
}

#[test]
fn mig_devices_come_and_go() {
    let (_directory, gpus, nvml) = play(&Scenario::new().with(Device::of("a100-mig")));
    let device = nvml.device_by_index(0).unwrap();
    let first = device.mig_device_by_index(0).unwrap();
    gpus.edit(|scenario| {
        let instances = &mut scenario.devices[0].mig.as_mut().unwrap().instances;
        instances.remove(0);
        instances[0].compute.push(Process::new(55, 1 << 20));
        instances.push(Instance { gpu_instance: 11, ..Instance::default() });
    })
    .unwrap();
    assert!(matches!(first.name(), Err(NvmlError::GpuLost)));
    let of_all = device.running_compute_processes().unwrap();
    assert_eq!((of_all[0].pid, of_all[0].gpu_instance_id), (55, Some(3)));
    let of_one = device.mig_device_by_index(0).unwrap().running_compute_processes().unwrap();
    assert_eq!(of_one, of_all);
    assert_eq!(device.mig_device_by_index(1).unwrap().running_compute_processes().unwrap(), []);
    assert!(device.mig_device_by_index(2).is_ok());
    assert!(matches!(device.mig_device_by_index(3), Err(NvmlError::NotFound)));
    assert!(matches!(device.mig_device_by_index(7), Err(NvmlError::InvalidArg)));
    gpus.edit(|scenario| scenario.devices[0].mig.as_mut().unwrap().enabled = false).unwrap();
    assert!(matches!(device.mig_device_by_index(0), Err(NvmlError::NotFound)));
}

#[test]
fn gpm_measures_each_mig_device_from_the_values_at_the_later_sample() {
    let mut scenario = pair();
    let mig = scenario.devices[0].mig.as_mut().unwrap();
    mig.enabled = true;
    mig.instances.push(Instance { gpu_instance: 4, gpm: [(2, 12.5)].into(), ..Instance::default() });
    let (_directory, gpus, nvml) = play(&scenario);
    let device = nvml.device_by_index(0).unwrap();
    let first = device.gpm_mig_sample(4).unwrap();
    gpus.edit(|scenario| {
        let instances = &mut scenario.devices[0].mig.as_mut().unwrap().instances;
        instances[0].gpm.insert(2, 80.0);
    })
    .unwrap();
    let second = device.gpm_mig_sample(4).unwrap();
    let expected = [GpmMetricId::SmUtil, GpmMetricId::DramBwUtil];
    let measured = gpm_metrics_get(&nvml, &first, &second, &expected).unwrap();
    assert!((measured[0].as_ref().unwrap().value - 80.0).abs() < f64::EPSILON);
    assert!(matches!(measured[1], Err(NvmlError::NotSupported)));
    assert!(matches!(device.gpm_mig_sample(5), Err(NvmlError::NotFound)));
    assert!(matches!(nvml.device_by_index(1).unwrap().gpm_mig_sample(4), Err(NvmlError::NotSupported)));
}

#[test]
fn links_go_down_and_count_their_errors() {
    let (_directory, gpus, nvml) = play(&pair());
    gpus.edit(|scenario| {
        let links = scenario.devices[0].nvlink.as_mut().unwrap();
        links.active[3] = false;
        links.errors.insert(3, [0, 7, 0, 0, 0]);
    })
    .unwrap();
    let device = nvml.device_by_index(0).unwrap();
    let link = |number| device.link_wrapper_for(number);
    assert_eq!((link(2).is_active().unwrap(), link(3).is_active().unwrap()), (true, false));
    assert_eq!(link(3).error_counter(ErrorCounter::DlRecovery).unwrap(), 7);
    assert_eq!(link(2).error_counter(ErrorCounter::DlRecovery).unwrap(), 0);
    assert!(matches!(link(18).is_active(), Err(NvmlError::InvalidArg)));
}

#[test]
fn errors_of_the_memory_are_counted() {
    let mut scenario = Scenario::new();
    let device = scenario.add(Device::of("t4"));
    device.ecc.as_mut().unwrap().volatile.uncorrected = 3;
    device.ecc.as_mut().unwrap().aggregate.corrected = 4;
    let pages = device.retired_pages.as_mut().unwrap();
    pages.double_bit = vec![RetiredPage { address: 0x1000, timestamp_us: 5 }, RetiredPage::default()];
    let (_directory, gpus, nvml) = play(&scenario);
    let gpu = nvml.device_by_index(0).unwrap();
    assert_eq!(gpu.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).unwrap(), 3);
    assert_eq!(gpu.total_ecc_errors(MemoryError::Corrected, EccCounter::Aggregate).unwrap(), 4);
    let pages = gpu.retired_pages(RetirementCause::DoubleBitEccError).unwrap();
    assert_eq!((pages.len(), pages[0].address, pages[0].timestamp), (2, 0x1000, 5));
    assert_eq!(field(&nvml, 30).unwrap(), SampleValue::U32(2));
    gpus.edit(|scenario| scenario.devices[0].ecc.as_mut().unwrap().enabled = false).unwrap();
    let errors = gpu.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    assert!(matches!(errors, Err(NvmlError::NotSupported)), "with ECC off there is no count");
}

#[test]
fn calls_are_noted_when_they_are_to_be_and_a_hung_one_as_well() {
    let mut scenario = pair();
    let (_directory, gpus, nvml) = play(&scenario);
    celsius(&nvml, 1).unwrap();
    assert_eq!(gpus.calls().unwrap(), []);
    scenario.record_calls = true;
    scenario.faults.push(Fault::hangs("nvmlDeviceGetClockInfo"));
    gpus.play(&scenario).unwrap();
    celsius(&nvml, 1).unwrap();
    let recorded =
        [("nvmlDeviceGetHandleByIndex_v2".to_owned(), Some(1)), ("nvmlDeviceGetTemperature".to_owned(), Some(1))];
    assert_eq!(gpus.calls().unwrap(), recorded);
    drop(answered(move || nvml.device_by_index(0).unwrap().clock_info(Clock::SM).is_ok()));
    let began = Instant::now();
    while gpus.called("nvmlDeviceGetClockInfo").unwrap() == 0 {
        assert!(began.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn two_libraries_of_one_process_do_not_see_each_others_devices() {
    let (_one, gpus, first) = play(&pair());
    let (_other, _gpus, second) = play(&Scenario::new().with(Device::of("t4")));
    gpus.edit(|scenario| scenario.devices[0].lost = true).unwrap();
    assert_eq!((first.device_count().unwrap(), second.device_count().unwrap()), (2, 1));
    assert!(celsius(&first, 0).is_err() && celsius(&second, 0).is_ok());
}

#[test]
fn a_scenario_that_cannot_be_read_fails_every_call_until_it_can() {
    let (_directory, gpus, nvml) = play(&pair());
    std::fs::write(gpus.scenario(), r#"{"devices": [{"temprature": 3}]}"#).unwrap();
    assert!(matches!(nvml.device_count(), Err(NvmlError::Unknown)));
    gpus.play(&pair()).unwrap();
    assert_eq!(nvml.device_count().unwrap(), 2);
}

/// [`a_process_of_its_own`], in one whose variables say what to play.
fn by_a_child(what: &str, directory: &Path) -> std::process::Output {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "a_process_of_its_own", "--nocapture"]).env("FAKE_NVML_CHILD", what);
    child.env("LD_LIBRARY_PATH", directory);
    child.env("FAKE_NVML", directory.join("named.json")).env("FAKE_NVML_CALLS", directory.join("named.calls"));
    child.output().unwrap()
}

/// Does nothing but in the process that [`by_a_child`] starts.
#[test]
fn a_process_of_its_own() {
    let Ok(what) = std::env::var("FAKE_NVML_CHILD") else { return };
    // By its name alone, as the real one is found.
    let nvml = Nvml::init().unwrap();
    let device = nvml.device_by_index(0).unwrap();
    match what.as_str() {
        "abort" => drop(device.name()),
        _ => println!("name: {}", device.name().unwrap()),
    }
}

#[test]
fn library_aborts_the_calling_process() {
    let directory = tempfile::tempdir().unwrap();
    let gpus = install(directory.path(), &Scenario::new()).unwrap();
    let scenario = pair().fault(Fault::aborts("nvmlDeviceGetName"));
    scenario.write(&gpus.directory().join("named.json")).unwrap();
    let status = by_a_child("abort", directory.path()).status;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6), "{status}");
}

#[test]
fn variables_name_another_scenario_and_where_calls_are_noted() {
    let directory = tempfile::tempdir().unwrap();
    install(directory.path(), &Scenario::new()).unwrap();
    let mut scenario = Scenario::new().with(Device::of("b200"));
    scenario.record_calls = true;
    scenario.write(&directory.path().join("named.json")).unwrap();
    let output = by_a_child("read", directory.path());
    assert!(String::from_utf8_lossy(&output.stdout).contains("name: NVIDIA B200"), "{output:?}");
    let calls = fake_nvml::calls(&directory.path().join("named.calls")).unwrap();
    assert!(calls.contains(&("nvmlDeviceGetName".to_owned(), Some(0))), "{calls:?}");
}
