//! Each profile as nvml-wrapper reads it: every function that it called with the value or the error, in
//! `tests/golden/<profile>.txt`; and what the profile says that its hardware refuses is what is refused.
//!
//! Promise (Code, boards and alerts): Each profile of the fake NVML answers nvml-wrapper as its golden file says, and
//! names all refused calls

// Some functions have no method in the wrapper.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};

use fake_nvml::{Device, Installed, Scenario, install};
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, PerformancePolicy, RetirementCause, TemperatureSensor,
    TemperatureThreshold,
};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device as Gpu, Nvml};

/// The fields that a GPU monitor asks for, by their numbers in NVML 12.
const FIELDS: &[u32] = &[
    1, 2, 3, 4, 5, 6, 29, 30, 31, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 90, 91, 94, 142, 143, 144, 145, 185, 186,
    187, 188, 189, 190, 191, 192, 197, 198, 230, 251, 252, 253,
];

/// Who refuses the one refuses the other, which is asked only after the first, or is another form of it.
const WITH: &[(&str, &[&str])] = &[
    ("nvmlDeviceGetAccountingMode", &["nvmlDeviceGetAccountingStats"]),
    ("nvmlDeviceGetCurrentClocksThrottleReasons", &["nvmlDeviceGetCurrentClocksEventReasons"]),
    ("nvmlDeviceGetMemoryInfo_v2", &["nvmlDeviceGetMemoryInfo"]),
    ("nvmlDeviceGetRetiredPages", &["nvmlDeviceGetRetiredPages_v2"]),
    ("nvmlDeviceGetSupportedClocksThrottleReasons", &["nvmlDeviceGetSupportedClocksEventReasons"]),
    ("nvmlDeviceGetSupportedEventTypes", &["nvmlDeviceRegisterEvents"]),
    ("nvmlDeviceGetTemperature", &["nvmlDeviceGetTemperatureV"]),
    ("nvmlGpmSampleGet", &["nvmlGpmMigSampleGet"]),
];

/// What was said, and by which functions.
struct ProfileReport<'a> {
    gpus: &'a Installed,
    nvml: &'a Nvml,
    text: String,
    refused: BTreeSet<String>,
}

impl ProfileReport<'_> {
    /// Of the function that was called last.
    fn line<T: Debug>(&mut self, argument: &str, value: &Result<T, NvmlError>) {
        let (function, _) = self.gpus.calls().unwrap().pop().unwrap();
        self.line_of(&function, argument, value);
    }
    fn line_of<T: Debug>(&mut self, function: &str, argument: &str, value: &Result<T, NvmlError>) {
        if matches!(value, Err(NvmlError::NotSupported)) {
            self.refused.insert(function.to_owned());
        }
        writeln!(self.text, "{function}({argument}): {value:?}").unwrap();
    }
}

fn identity(gpu: &Gpu, said: &mut ProfileReport) {
    said.line("", &gpu.uuid());
    said.line("", &gpu.name());
    said.line("", &gpu.index());
    said.line("", &gpu.minor_number());
    said.line("", &gpu.serial());
    said.line("", &gpu.board_part_number());
    said.line("", &gpu.vbios_version());
    said.line("", &gpu.pci_info());
    said.line("", &gpu.brand());
    said.line("", &gpu.architecture());
    said.line("", &gpu.cuda_compute_capability());
    said.line("", &gpu.num_cores());
}

fn values(gpu: &Gpu, said: &mut ProfileReport) {
    said.line("", &gpu.utilization_rates());
    said.line("", &gpu.encoder_utilization());
    said.line("", &gpu.decoder_utilization());
    said.line("", &gpu.memory_info());
    said.line("", &gpu.bar1_memory_info());
    said.line("", &gpu.temperature(TemperatureSensor::Gpu));
    for threshold in [TemperatureThreshold::Shutdown, TemperatureThreshold::Slowdown, TemperatureThreshold::GpuMax] {
        said.line(&format!("{threshold:?}"), &gpu.temperature_threshold(threshold));
    }
    said.line("", &gpu.num_fans());
    said.line("0", &gpu.fan_speed(0));
    said.line("", &gpu.power_usage());
    said.line("", &gpu.power_management_limit());
    said.line("", &gpu.power_management_limit_default());
    said.line("", &gpu.power_management_limit_constraints());
    said.line("", &gpu.enforced_power_limit());
    said.line("", &gpu.total_energy_consumption());
    for clock in [Clock::Graphics, Clock::SM, Clock::Memory, Clock::Video] {
        said.line(&format!("{clock:?}"), &gpu.clock_info(clock));
        said.line(&format!("{clock:?}"), &gpu.max_clock_info(clock));
    }
    said.line("", &gpu.performance_state());
    said.line("", &gpu.current_throttle_reasons_strict());
    said.line("", &gpu.supported_throttle_reasons());
    let throttled = gpu.violation_status(PerformancePolicy::Thermal).map(|time| time.violation_time);
    said.line("Thermal", &throttled);
}

fn health(gpu: &Gpu, said: &mut ProfileReport) {
    said.line("", &gpu.is_ecc_enabled());
    for counter in [EccCounter::Volatile, EccCounter::Aggregate] {
        let errors = gpu.total_ecc_errors(MemoryError::Uncorrected, counter);
        said.line(&format!("Uncorrected, {counter:?}"), &errors);
    }
    said.line("double bit", &gpu.retired_pages(RetirementCause::DoubleBitEccError));
    said.line("", &gpu.are_pages_pending_retired());
    let rows = remapped_rows(said.nvml, gpu);
    said.line("", &rows);
    said.line("", &gpu.current_pcie_link_gen());
    said.line("", &gpu.max_pcie_link_gen());
    said.line("", &gpu.current_pcie_link_width());
    said.line("", &gpu.max_pcie_link_width());
    said.line("", &gpu.pcie_replay_counter());
    let link = gpu.link_wrapper_for(11);
    said.line("11", &link.is_active());
    said.line("11", &link.version());
    said.line("11, DlReplay", &link.error_counter(ErrorCounter::DlReplay));
    said.line("send", &gpu.pcie_throughput(PcieUtilCounter::Send));
    said.line("", &gpu.supported_event_types());
    said.line("", &gpu.compute_mode());
    said.line("", &gpu.is_in_persistent_mode());
    said.line("", &gpu.is_display_connected());
    said.line("", &gpu.is_display_active());
}

fn fields(gpu: &Gpu, said: &mut ProfileReport) {
    let ids: Vec<FieldId> = FIELDS.iter().map(|id| FieldId(*id)).collect();
    match gpu.field_values_for(&ids) {
        // The answers come in the order of the questions.
        Ok(values) => FIELDS.iter().zip(values).for_each(|(id, value)| {
            said.line_of(&format!("field:{id}"), "", &value.unwrap().value);
        }),
        Err(error) => said.line::<()>("", &Err(error)),
    }
}

/// Corrected, uncorrected, pending, failed.
fn remapped_rows(nvml: &Nvml, gpu: &Gpu) -> Result<[u32; 4], NvmlError> {
    let [mut corrected, mut uncorrected, mut pending, mut failed] = [0; 4];
    let function = nvml.lib().nvmlDeviceGetRemappedRows.as_ref().unwrap();
    // SAFETY: the handle is that of a living device, each place is ours.
    match unsafe { function(gpu.handle(), &raw mut corrected, &raw mut uncorrected, &raw mut pending, &raw mut failed) }
    {
        0 => Ok([corrected, uncorrected, pending, failed]),
        code => Err(code.into()),
    }
}

fn work(gpu: &Gpu, said: &mut ProfileReport) {
    said.line("", &gpu.running_compute_processes());
    said.line("", &gpu.running_graphics_processes());
    said.line("", &gpu.mps_running_compute_processes());
    said.line("since 0", &gpu.process_utilization_stats(0));
    said.line("", &gpu.is_accounting_enabled());
    said.line("", &gpu.accounting_buffer_size());
    said.line("", &gpu.accounting_pids());
    said.line("", &gpu.mig_mode());
    said.line("", &gpu.mig_device_count());
    said.line("", &gpu.mig_is_mig_device_handle());
    said.line("", &gpu.gpm_support());
}

fn gpm(gpu: &Gpu, said: &mut ProfileReport) {
    let measured = gpu.gpm_sample().and_then(|first| {
        let metrics = [GpmMetricId::SmUtil, GpmMetricId::DramBwUtil];
        let measured = gpm_metrics_get(said.nvml, &first, &gpu.gpm_sample()?, &metrics)?;
        Ok(measured.into_iter().map(|metric| metric.unwrap().value).collect::<Vec<_>>())
    });
    said.line_of("nvmlGpmSampleGet", "SmUtil, DramBwUtil", &measured);
}

fn mig_devices(gpu: &Gpu, said: &mut ProfileReport) {
    for index in 0.. {
        let instance = match gpu.mig_device_by_index(index) {
            Ok(instance) => instance,
            Err(error) => return said.line::<()>(&index.to_string(), &Err(error)),
        };
        // What the device as a whole has and its parts have not is no refusal.
        let refused = said.refused.clone();
        writeln!(said.text, "\n# MIG device {index}").unwrap();
        said.line("", &instance.mig_parent_device().map(|parent| parent.uuid()));
        said.line("", &instance.attributes());
        identity(&instance, said);
        values(&instance, said);
        work(&instance, said);
        said.refused = refused;
    }
}

fn read<'a>(gpus: &'a Installed, nvml: &'a Nvml) -> ProfileReport<'a> {
    let mut said = ProfileReport { gpus, nvml, text: String::new(), refused: BTreeSet::new() };
    let gpu = nvml.device_by_index(0).unwrap();
    identity(&gpu, &mut said);
    values(&gpu, &mut said);
    health(&gpu, &mut said);
    fields(&gpu, &mut said);
    work(&gpu, &mut said);
    gpm(&gpu, &mut said);
    mig_devices(&gpu, &mut said);
    for (one, others) in WITH {
        if said.refused.contains(*one) {
            said.refused.extend(others.iter().map(|other| (*other).to_owned()));
        }
    }
    said
}

fn reads(device: Device) -> (String, BTreeSet<String>) {
    let directory = tempfile::tempdir().unwrap();
    let mut scenario = Scenario::new().with(device);
    scenario.record_calls = true;
    let gpus = install(directory.path(), &scenario).unwrap();
    let nvml = Nvml::builder().lib_path(gpus.library().as_os_str()).init().unwrap();
    let said = read(&gpus, &nvml);
    (said.text, said.refused)
}

#[test]
fn every_profile_reads_as_its_golden_file_says() {
    for profile in fake_nvml::profiles() {
        let (text, _) = reads(Device::of(profile));
        let golden = format!("{}/tests/golden/{profile}.txt", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("ALLOSTAT_BLESS").is_some() {
            std::fs::write(&golden, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&golden).unwrap(), "{profile}");
    }
}

#[test]
fn every_profile_names_what_its_hardware_refuses_whatever_is_switched_on() {
    for profile in fake_nvml::profiles() {
        let mut device = Device::of(profile);
        device.ecc.iter_mut().for_each(|ecc| ecc.enabled = true);
        device.accounting.iter_mut().for_each(|accounting| accounting.enabled = true);
        device.mig.iter_mut().for_each(|mig| mig.enabled = false);
        let refuses = device.refuses.clone();
        let (_, refused) = reads(device);
        let wrong: Vec<_> = refused.symmetric_difference(&refuses).collect();
        assert!(wrong.is_empty(), "profiles/{profile}.json refuses what it answers, or the other way: {wrong:?}");
    }
}
