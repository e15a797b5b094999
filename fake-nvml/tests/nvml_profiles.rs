//! Each profile as nvml-wrapper reads it: every function that it called with the value or the error, in
//! `tests/golden/<profile>.txt`; and what the profile says that its hardware refuses is what is refused.
//!
//! Promise (Code, boards and alerts): Each profile of the fake NVML answers nvml-wrapper as its golden file has it, and
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

fn identity(gpu: &Gpu, report: &mut ProfileReport) {
    report.line("", &gpu.uuid());
    report.line("", &gpu.name());
    report.line("", &gpu.index());
    report.line("", &gpu.minor_number());
    report.line("", &gpu.serial());
    report.line("", &gpu.board_part_number());
    report.line("", &gpu.vbios_version());
    report.line("", &gpu.pci_info());
    report.line("", &gpu.brand());
    report.line("", &gpu.architecture());
    report.line("", &gpu.cuda_compute_capability());
    report.line("", &gpu.num_cores());
}

fn values(gpu: &Gpu, report: &mut ProfileReport) {
    report.line("", &gpu.utilization_rates());
    report.line("", &gpu.encoder_utilization());
    report.line("", &gpu.decoder_utilization());
    report.line("", &gpu.memory_info());
    report.line("", &gpu.bar1_memory_info());
    report.line("", &gpu.temperature(TemperatureSensor::Gpu));
    for threshold in [TemperatureThreshold::Shutdown, TemperatureThreshold::Slowdown, TemperatureThreshold::GpuMax] {
        report.line(&format!("{threshold:?}"), &gpu.temperature_threshold(threshold));
    }
    report.line("", &gpu.num_fans());
    report.line("0", &gpu.fan_speed(0));
    report.line("", &gpu.power_usage());
    report.line("", &gpu.power_management_limit());
    report.line("", &gpu.power_management_limit_default());
    report.line("", &gpu.power_management_limit_constraints());
    report.line("", &gpu.enforced_power_limit());
    report.line("", &gpu.total_energy_consumption());
    for clock in [Clock::Graphics, Clock::SM, Clock::Memory, Clock::Video] {
        report.line(&format!("{clock:?}"), &gpu.clock_info(clock));
        report.line(&format!("{clock:?}"), &gpu.max_clock_info(clock));
    }
    report.line("", &gpu.performance_state());
    report.line("", &gpu.current_throttle_reasons_strict());
    report.line("", &gpu.supported_throttle_reasons());
    let throttled = gpu.violation_status(PerformancePolicy::Thermal).map(|time| time.violation_time);
    report.line("Thermal", &throttled);
}

fn health(gpu: &Gpu, report: &mut ProfileReport) {
    report.line("", &gpu.is_ecc_enabled());
    for counter in [EccCounter::Volatile, EccCounter::Aggregate] {
        let errors = gpu.total_ecc_errors(MemoryError::Uncorrected, counter);
        report.line(&format!("Uncorrected, {counter:?}"), &errors);
    }
    report.line("double bit", &gpu.retired_pages(RetirementCause::DoubleBitEccError));
    report.line("", &gpu.are_pages_pending_retired());
    let rows = remapped_rows(report.nvml, gpu);
    report.line("", &rows);
    report.line("", &gpu.current_pcie_link_gen());
    report.line("", &gpu.max_pcie_link_gen());
    report.line("", &gpu.current_pcie_link_width());
    report.line("", &gpu.max_pcie_link_width());
    report.line("", &gpu.pcie_replay_counter());
    let link = gpu.link_wrapper_for(11);
    report.line("11", &link.is_active());
    report.line("11", &link.version());
    report.line("11, DlReplay", &link.error_counter(ErrorCounter::DlReplay));
    report.line("send", &gpu.pcie_throughput(PcieUtilCounter::Send));
    report.line("", &gpu.supported_event_types());
    report.line("", &gpu.compute_mode());
    report.line("", &gpu.is_in_persistent_mode());
    report.line("", &gpu.is_display_connected());
    report.line("", &gpu.is_display_active());
}

fn fields(gpu: &Gpu, report: &mut ProfileReport) {
    let ids: Vec<FieldId> = FIELDS.iter().map(|id| FieldId(*id)).collect();
    match gpu.field_values_for(&ids) {
        // The answers come in the order of the questions.
        Ok(values) => FIELDS.iter().zip(values).for_each(|(id, value)| {
            report.line_of(&format!("field:{id}"), "", &value.unwrap().value);
        }),
        Err(error) => report.line::<()>("", &Err(error)),
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

fn work(gpu: &Gpu, report: &mut ProfileReport) {
    report.line("", &gpu.running_compute_processes());
    report.line("", &gpu.running_graphics_processes());
    report.line("", &gpu.mps_running_compute_processes());
    report.line("since 0", &gpu.process_utilization_stats(0));
    report.line("", &gpu.is_accounting_enabled());
    report.line("", &gpu.accounting_buffer_size());
    report.line("", &gpu.accounting_pids());
    report.line("", &gpu.mig_mode());
    report.line("", &gpu.mig_device_count());
    report.line("", &gpu.mig_is_mig_device_handle());
    report.line("", &gpu.gpm_support());
}

fn gpm(gpu: &Gpu, report: &mut ProfileReport) {
    let measured = gpu.gpm_sample().and_then(|first| {
        let metrics = [GpmMetricId::SmUtil, GpmMetricId::DramBwUtil];
        let measured = gpm_metrics_get(report.nvml, &first, &gpu.gpm_sample()?, &metrics)?;
        Ok(measured.into_iter().map(|metric| metric.unwrap().value).collect::<Vec<_>>())
    });
    report.line_of("nvmlGpmSampleGet", "SmUtil, DramBwUtil", &measured);
}

fn mig_devices(gpu: &Gpu, report: &mut ProfileReport) {
    for index in 0.. {
        let instance = match gpu.mig_device_by_index(index) {
            Ok(instance) => instance,
            Err(error) => return report.line::<()>(&index.to_string(), &Err(error)),
        };
        // What the device as a whole has and its parts have not is no refusal.
        let refused = report.refused.clone();
        writeln!(report.text, "\n# MIG device {index}").unwrap();
        report.line("", &instance.mig_parent_device().map(|parent| parent.uuid()));
        report.line("", &instance.attributes());
        identity(&instance, report);
        values(&instance, report);
        work(&instance, report);
        report.refused = refused;
    }
}

fn read<'a>(gpus: &'a Installed, nvml: &'a Nvml) -> ProfileReport<'a> {
    let mut report = ProfileReport { gpus, nvml, text: String::new(), refused: BTreeSet::new() };
    let gpu = nvml.device_by_index(0).unwrap();
    identity(&gpu, &mut report);
    values(&gpu, &mut report);
    health(&gpu, &mut report);
    fields(&gpu, &mut report);
    work(&gpu, &mut report);
    gpm(&gpu, &mut report);
    mig_devices(&gpu, &mut report);
    for (one, rest) in WITH {
        if report.refused.contains(*one) {
            report.refused.extend(rest.iter().map(|other| (*other).to_owned()));
        }
    }
    report
}

fn reads(device: Device) -> (String, BTreeSet<String>) {
    let directory = tempfile::tempdir().unwrap();
    let mut scenario = Scenario::new().with(device);
    scenario.record_calls = true;
    let gpus = install(directory.path(), &scenario).unwrap();
    let nvml = Nvml::builder().lib_path(gpus.library().as_os_str()).init().unwrap();
    let report = read(&gpus, &nvml);
    (report.text, report.refused)
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
