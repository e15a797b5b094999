//! `allostat devices`

use serde_json::Value;

use super::CliSession;
use super::api_types::{DeviceReport, DeviceRow, PluginRow, TaskOnDevice, short};
use super::exit::{CliExit, CliResult};
use super::human::{self, ABSENT, or_absent};
use super::output::{self, Alignment, Narrowing, Paint, Style, TableCell, TextTable, printable};

/// Show the devices of this host, their health, and which tasks hold and use them
///
/// Examples: `allostat devices`, `allostat devices --json`
#[derive(Debug, clap::Args)]
pub struct DevicesCommand {
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
}

impl DevicesCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let mut agent = session.connect()?;
        if self.json {
            let answer = agent.get_json("/v1/devices")?;
            session.json(&answer)?;
            return Ok(CliExit::Done);
        }
        let report: DeviceReport = agent.get("/v1/devices")?;
        if report.devices.is_empty() {
            session.remark("no devices");
        } else {
            write!(session.out, "{}", table(&report.devices, output::screen(), session.paint))?;
        }
        for plugin in report.plugins.iter().filter(|plugin| !plugin.up) {
            session.remark(&down(plugin));
        }
        Ok(CliExit::Done)
    }
}

/// Why a plugin does not run.
pub(super) fn down(plugin: &PluginRow) -> String {
    let PluginRow { name, reason, message, .. } = plugin;
    if reason == "missing" {
        return format!("{}: no driver is installed on this host, so it has no devices to show", printable(name));
    }
    format!("{} does not run ({}): {}", printable(name), printable(reason), printable(message))
}

/// Each device with the tasks on it below, and so each instance of one that is divided.
pub(super) fn table(devices: &[DeviceRow], screen: Option<u16>, paint: Paint) -> String {
    let mut table = TextTable::new(&[
        ("DEVICE", Alignment::Left),
        ("MODEL", Alignment::Left),
        ("STATE", Alignment::Left),
        ("MEMORY", Alignment::Right),
        ("BUSY", Alignment::Right),
        ("POWER", Alignment::Right),
        ("TEMPERATURE", Alignment::Right),
    ]);
    let known = |id: &str| devices.iter().any(|device| device.id == id);
    let wholes = devices.iter().filter(|device| device.parent.as_deref().is_none_or(|parent| !known(parent)));
    for whole in wholes {
        device(&mut table, whole, "");
        for part in devices.iter().filter(|part| part.parent.as_deref() == Some(&whole.id)) {
            device(&mut table, part, "  ");
        }
    }
    let order = [
        (1, Narrowing::End(14)),
        (0, Narrowing::Middle(24)),
        (2, Narrowing::End(24)),
        (6, Narrowing::Away),
        (5, Narrowing::Away),
        (0, Narrowing::Middle(14)),
        (1, Narrowing::Away),
        (2, Narrowing::End(12)),
    ];
    table.fit(screen, &order);
    table.render(paint)
}

fn device(table: &mut TextTable, of: &DeviceRow, indent: &str) {
    let (values, stats) = (&of.values, &of.stats);
    let (state, style) = state(of);
    let busy = values.utilization_ratio.get("general").copied().map(human::percent_of);
    let power = values.power_watts.map(|watts| format!("{watts:.0} W"));
    let temperature = values.temperature_celsius.get("gpu").map(|degrees| format!("{degrees} °C"));
    table.row(vec![
        TableCell::styled(format!("{indent}{}", printable(&of.id)), Style::Cyan),
        printable(&of.name).into(),
        TableCell::styled(state, style),
        or_absent(memory(values.memory_used_bytes, values.memory_total_bytes).or_else(|| reported(stats, "memory")))
            .into(),
        or_absent(busy.or_else(|| reported(stats, "utilization"))).into(),
        or_absent(power.or_else(|| reported(stats, "power"))).into(),
        or_absent(temperature.or_else(|| reported(stats, "temperature"))).into(),
    ]);
    for task in &of.tasks {
        table.row(vec![
            format!("{indent}  {} {}", short(&task.alloc_id), printable(&task.task)).into(),
            "".into(),
            use_of(task).into(),
            or_absent(task.memory_used_bytes.map(human::bytes)).into(),
            or_absent(task.sm_utilization_ratio.map(human::percent_of)).into(),
            "".into(),
            "".into(),
        ]);
    }
}

fn state(of: &DeviceRow) -> (String, Style) {
    match (of.up, of.stuck, of.healthy) {
        (false, ..) => ("does not answer".into(), Style::Red),
        (true, true, _) => ("is stuck".into(), Style::Red),
        (true, false, false) => (format!("not well: {}", printable(of.why.as_deref().unwrap_or(ABSENT))), Style::Red),
        (true, false, true) => ("up".into(), Style::Green),
    }
}

/// What is used of it: `reserved, 2 processes`, `1 process`.
pub(super) fn use_of(task: &TaskOnDevice) -> String {
    let processes = task.processes.map(|n| match n {
        0 => "idle".to_owned(),
        1 => "1 process".to_owned(),
        n => format!("{n} processes"),
    });
    let words: Vec<String> = task.reserved.then(|| "reserved".to_owned()).into_iter().chain(processes).collect();
    if words.is_empty() { ABSENT.to_owned() } else { words.join(", ") }
}

fn memory(used: Option<u64>, total: Option<u64>) -> Option<String> {
    match (used, total) {
        (Some(used), Some(total)) => Some(format!("{} of {}", human::bytes(used), human::bytes(total))),
        (used, _) => used.map(human::bytes),
    }
}

/// A reading of a plugin that names its values as it likes (`Memory state`, `GPU utilization`): the shortest name with
/// this word.
fn reported(stats: &Value, word: &str) -> Option<String> {
    let attributes = stats["attributes"].as_object()?.iter();
    let named = attributes.filter(|(name, _)| name.to_lowercase().contains(word));
    let read = named.filter_map(|(name, stat)| Some((name.len(), quantity(&stat["value"]["ratio"])?)));
    read.min().map(|(_, text)| text)
}

/// `1024 of 16384 MiB`, `71 W`, `41 °C`.
fn quantity(ratio: &Value) -> Option<String> {
    let part = ratio["numerator"].as_number()?;
    let whole = ratio["denominator"].as_number().map_or_else(String::new, |whole| format!(" of {whole}"));
    let unit = match ratio["unit"].as_str() {
        Some("C") => " °C".to_owned(),
        Some(unit) => format!(" {}", printable(unit)),
        None => String::new(),
    };
    Some(format!("{part}{whole}{unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_table_has_tasks_below_their_device_and_instances_below_their_gpu() {
        let json = serde_json::json!([
            {"id": "GPU-0", "name": "H100", "up": true, "stuck": false, "healthy": true,
             "values": {"memory_used_bytes": 42_949_672_960_u64, "memory_total_bytes": 85_899_345_920_u64,
                        "utilization_ratio": {"general": 0.875}, "power_watts": 412.3, "temperature_celsius": {"gpu": 41}},
             "tasks": [{"alloc_id": "ab12cd34-0000", "task": "train", "reserved": true, "final": false, "processes": 2,
                        "memory_used_bytes": 1_073_741_824, "sm_utilization_ratio": 0.25}]},
            {"id": "GPU-1", "name": "A100", "up": true, "stuck": false, "healthy": false, "why": "row remapping failed", "tasks": []},
            {"id": "GPU-2", "name": "T4", "up": false, "stuck": true, "healthy": true, "tasks": []},
            {"id": "MIG-1", "name": "1g.5gb", "parent": "GPU-1", "up": true, "stuck": false, "healthy": true,
             "tasks": [{"alloc_id": "ef56ab78-0000", "task": "serve", "reserved": true, "final": false, "processes": 0}]},
        ]);
        let devices: Vec<DeviceRow> = serde_json::from_value(json).unwrap();
        let expected = [
            "DEVICE              MODEL   STATE                                         MEMORY  BUSY  POWER  TEMPERATURE",
            "GPU-0               H100    up                              40.0 GiB of 80.0 GiB  88 %  412 W        41 °C",
            "  ab12cd34 train            reserved, 2 processes                        1.0 GiB  25 %",
            "GPU-1               A100    not well: row remapping failed                     -     -      -            -",
            "  MIG-1             1g.5gb  up                                                 -     -      -            -",
            "    ef56ab78 serve          reserved, idle                                     -     -",
            "GPU-2               T4      does not answer                                    -     -      -            -",
        ];
        let shown = table(&devices, None, Paint(false));
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected, "{shown}");
    }

    #[test]
    fn devices_fit_the_screen_with_their_state_and_memory() {
        let json = serde_json::json!([
            {"id": "GPU-5a3c1f00-1111-2222-3333-444455556666", "name": "NVIDIA H100 80GB HBM3", "up": true, "stuck": false, "healthy": true,
             "values": {"memory_used_bytes": 42_949_672_960_u64, "memory_total_bytes": 85_899_345_920_u64,
                        "utilization_ratio": {"general": 0.875}, "power_watts": 412.3, "temperature_celsius": {"gpu": 41}},
             "tasks": [{"alloc_id": "ab12cd34-0000", "task": "train", "reserved": true, "final": false, "processes": 2,
                        "memory_used_bytes": 1_073_741_824, "sm_utilization_ratio": 0.25}]},
        ]);
        let devices: Vec<DeviceRow> = serde_json::from_value(json).unwrap();
        for screen in [60, 80, 120, 200] {
            let shown = table(&devices, Some(screen), Paint(false));
            assert!(shown.lines().all(|line| super::super::width::columns_of(line) <= screen), "{screen}: {shown}");
            let rows: Vec<&str> = shown.lines().collect();
            assert!(rows[1].starts_with("GPU-5a") && rows[1].contains("40.0 GiB of 80.0 GiB"), "{screen}: {shown}");
            assert!(rows[2].starts_with("  ab12") && rows[2].contains("reserved"), "{screen}: {shown}");
        }
    }

    #[test]
    fn readings_of_other_plugins_fill_the_columns_whatever_they_are_called() {
        let number = |numerator: serde_json::Value, denominator: serde_json::Value, unit: &str| serde_json::json!({ "value": { "ratio": { "numerator": numerator, "denominator": denominator, "unit": unit } } });
        let null = || serde_json::Value::Null;
        let json = serde_json::json!([{ "id": "npu-0", "name": "N1", "up": true, "healthy": true, "stats": { "attributes": {
            "Memory state": number(1024.into(), 16384.into(), "MiB"), "Temperature": number(41.into(), null(), "C"),
            "Power usage": number(7.5.into(), 30.into(), "W"), "Core utilization": number(50.into(), null(), "%"),
            "Memory note": { "value": { "text": "fine" } } } } }]);
        let devices: Vec<DeviceRow> = serde_json::from_value(json).unwrap();
        let shown = table(&devices, None, Paint(false));
        let row = shown.lines().nth(1).unwrap();
        let parts = ["npu-0", "up", "1024 of 16384 MiB", "50 %", "7.5 of 30 W", "41 °C"];
        assert!(parts.iter().all(|part| row.contains(part)), "{shown}");
        let none: Vec<DeviceRow> = serde_json::from_value(serde_json::json!([{ "id": "x" }])).unwrap();
        assert_eq!(table(&none, None, Paint(false)).lines().nth(1).unwrap().matches(" -").count(), 4);
    }

    #[test]
    fn host_without_a_driver_reads_as_a_fact_and_not_as_a_fault() {
        let plugin = |reason: &str| PluginRow {
            name: "nvidia".into(),
            up: false,
            reason: reason.into(),
            message: "a libloading error occurred".into(),
        };
        let fact = down(&plugin("missing"));
        assert!(fact.contains("no driver is installed") && !fact.contains("error"), "{fact}");
        assert!(down(&plugin("died")).contains("a libloading error"), "a fault keeps its reason");
    }
}
