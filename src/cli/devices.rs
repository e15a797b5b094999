//! `allostat devices`

use super::Session;
use super::exit::{CliResult, Exit};
use super::human::{self, ABSENT, or_absent};
use super::output::{Align, Paint, Style, Table, TableCell, printable};
use super::shape::{DeviceReport, DeviceRow, PluginRow, TaskOnDevice, short};

/// Show the devices of this host, their health, and which tasks hold and use them
#[derive(Debug, clap::Args)]
pub struct Devices {
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
}

impl Devices {
    pub fn run(self, session: &mut Session<'_>) -> CliResult {
        let mut agent = session.connect()?;
        if self.json {
            let answer = agent.get_json("/v1/devices")?;
            session.json(&answer)?;
            return Ok(Exit::Done);
        }
        let report: DeviceReport = agent.get("/v1/devices")?;
        if report.devices.is_empty() {
            session.remark("no devices");
        } else {
            write!(session.out, "{}", table(&report.devices, session.paint))?;
        }
        for plugin in report.plugins.iter().filter(|plugin| !plugin.up) {
            session.remark(&down(plugin));
        }
        Ok(Exit::Done)
    }
}

/// Why a plugin does not run.
pub(super) fn down(plugin: &PluginRow) -> String {
    let PluginRow { name, reason, message, .. } = plugin;
    format!("{} does not run ({}): {}", printable(name), printable(reason), printable(message))
}

/// Each device with the tasks on it below, and so each instance of one that is divided.
pub(super) fn table(devices: &[DeviceRow], paint: Paint) -> String {
    let mut table = Table::new(&[
        ("DEVICE", Align::Left),
        ("MODEL", Align::Left),
        ("STATE", Align::Left),
        ("MEMORY", Align::Right),
        ("BUSY", Align::Right),
        ("POWER", Align::Right),
        ("TEMPERATURE", Align::Right),
    ]);
    let known = |id: &str| devices.iter().any(|device| device.id == id);
    let wholes = devices.iter().filter(|device| device.parent.as_deref().is_none_or(|parent| !known(parent)));
    for whole in wholes {
        device(&mut table, whole, "");
        for part in devices.iter().filter(|part| part.parent.as_deref() == Some(&whole.id)) {
            device(&mut table, part, "  ");
        }
    }
    table.render(paint)
}

fn device(table: &mut Table, of: &DeviceRow, indent: &str) {
    let values = &of.values;
    let (state, style) = state(of);
    table.row(vec![
        TableCell::styled(format!("{indent}{}", printable(&of.id)), Style::Cyan),
        printable(&of.name).into(),
        TableCell::styled(state, style),
        memory(values.memory_used_bytes, values.memory_total_bytes).into(),
        or_absent(values.utilization_ratio.get("general").copied().map(human::percent_of)).into(),
        or_absent(values.power_watts.map(|watts| format!("{watts:.0} W"))).into(),
        or_absent(values.temperature_celsius.get("gpu").map(|degrees| format!("{degrees} °C"))).into(),
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

fn memory(used: Option<u64>, total: Option<u64>) -> String {
    match (used, total) {
        (Some(used), Some(total)) => format!("{} of {}", human::bytes(used), human::bytes(total)),
        (used, _) => or_absent(used.map(human::bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_stand_below_their_device_and_instances_below_theirs() {
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
        let shown = table(&devices, Paint(false));
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected, "{shown}");
    }
}
