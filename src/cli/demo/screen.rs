//! What the demo shows beside the table of `allostat top`: its addresses, the devices, the batch and the newest events.
//! Pure.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::board::devices::{DeviceView, DevicesView};
use crate::cli::human::{self, or_absent};
use crate::cli::output::{Style, printable};
use crate::cli::top::{self, Pen, RateFrame};
use crate::model::device::{Engine, Sensor};

/// All tasks of one batch run together: what 50 ms used.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BatchSums {
    pub done: usize,
    pub cpu_seconds: Option<f64>,
    pub peak: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub struct DemoScene {
    /// Above everything: addresses, and what cannot be measured.
    pub head: Vec<(String, Style)>,
    pub tasks: RateFrame,
    pub batches: BatchSums,
    /// A line for each.
    pub devices: Vec<String>,
    /// Newest last.
    pub events: Vec<String>,
}

impl DemoScene {
    /// Below the table.
    pub fn below(&self) -> impl Iterator<Item = String> {
        self.devices.iter().cloned().chain([batches(&self.batches)])
    }
}

/// `batch: 35 tasks of 50 ms ended, 1.8 s of CPU in all, largest peak 3.4 MiB`
fn batches(batches: &BatchSums) -> String {
    let BatchSums { done, cpu_seconds, peak } = batches;
    if *done == 0 {
        return "batch: none has ended yet".to_owned();
    }
    let mut text = format!("batch: {} of 50 ms ended", human::count(*done, "task"));
    if let Some(seconds) = cpu_seconds {
        text.push_str(&format!(", {} of CPU in all", top::seconds(*seconds)));
    }
    if let Some(peak) = peak {
        text.push_str(&format!(", largest peak {}", human::bytes(*peak)));
    }
    text
}

/// The newest events fill what the rest leaves.
pub fn draw(buffer: &mut Buffer, scene: &DemoScene, colour: bool) {
    let area = buffer.area;
    let mut pen = Pen::new(buffer, colour);
    let emit = |pen: &mut Pen<'_>, y: usize, text: &str, style: Style| {
        if let Some(y) = u16::try_from(y).ok().filter(|y| *y < area.height) {
            pen.text(0, y, area.width, text, style);
        }
    };
    for (y, (text, style)) in scene.head.iter().enumerate() {
        emit(&mut pen, y, text, *style);
    }
    let (first, rows) = (scene.head.len() + 1, scene.tasks.rows.len() + 1);
    let [y, height] = [first, rows].map(|n| u16::try_from(n).unwrap_or(u16::MAX));
    let table = Rect { y: area.y + y.min(area.height), height: height.min(area.height.saturating_sub(y)), ..area };
    if table.height > 0 {
        top::draw_tasks(&mut pen, table, &scene.tasks);
    }
    let mut y = first + rows + 1;
    for line in scene.below() {
        emit(&mut pen, y, &line, Style::Plain);
        y += 1;
    }
    let room = usize::from(area.height).saturating_sub(y + 1);
    let newest = scene.events.iter().skip(scene.events.len().saturating_sub(room));
    for (at, event) in newest.enumerate() {
        emit(&mut pen, y + 1 + at, event, Style::Plain);
    }
}

/// `gpu 0, scripted (not real): held by model, 92.0 % busy, 14.0 GiB of 24.0 GiB, 64 C, 310 W`
pub fn devices(view: &DevicesView) -> Vec<String> {
    let line = |device: &DeviceView| {
        let holds = view.uses.iter().filter(|of| of.reserved && !of.ended && of.whole == device.device.id);
        device_line(device, &holds.map(|of| printable(of.task.as_str())).collect::<Vec<_>>())
    };
    view.devices.iter().filter(|device| !device.is_instance()).map(|device| line(device)).collect()
}

fn device_line(view: &DeviceView, holders: &[String]) -> String {
    let index = view.device.facts.index.map(|index| format!(" {index}")).unwrap_or_default();
    let name = printable(&format!("{}{index}, {}", view.kind.kind, view.kind.name));
    if !view.up {
        return format!("{name}: does not answer");
    }
    let Some(reading) = &view.reading else { return format!("{name}: not read yet") };
    let values = &reading.values;
    let memory = values.memory_used_bytes.zip(values.memory_total_bytes);
    let held = (!holders.is_empty()).then(|| format!("held by {}", holders.join(" and ")));
    let parts = [
        held,
        values.utilization[Engine::General.index()].map(|ratio| format!("{} busy", human::percent_of(ratio))),
        memory.map(|(used, all)| format!("{} of {}", human::bytes(used), human::bytes(all))),
        values.temperature[Sensor::Gpu.index()].map(|celsius| format!("{celsius} C")),
        values.power_milliwatts.map(|milliwatts| format!("{} W", milliwatts / 1_000)),
    ];
    let known: Vec<String> = parts.into_iter().flatten().collect();
    format!("{name}: {}", or_absent((!known.is_empty()).then(|| known.join(", "))))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cli::top::testing::row;
    use crate::model::device::{Device, DeviceFacts, DeviceKind, DeviceReading, DeviceUsage};
    use crate::model::id::DeviceId;
    use crate::model::units::Timestamp;
    use proptest::prelude::*;

    fn scene(rows: usize, events: usize) -> DemoScene {
        let rows = (0..rows).map(|n| row(&format!("task-{n}"), "managed", "demo")).collect();
        DemoScene {
            head: vec![("head".into(), Style::Bold)],
            tasks: RateFrame { rows, ..RateFrame::default() },
            events: (0..events).map(|n| format!("event {n}")).collect(),
            ..DemoScene::default()
        }
    }

    fn drawn(scene: &DemoScene, width: u16, height: u16) -> Vec<String> {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        draw(&mut buffer, scene, false);
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn a_device_line_shows_only_what_the_device_reports() {
        let reading = |values: DeviceUsage| DeviceReading {
            device: DeviceId::from("0"),
            at: Timestamp(0),
            up: true,
            values: Arc::new(values),
            stats: Arc::default(),
            processes: None,
        };
        let kind = DeviceKind { vendor: "v".into(), kind: "gpu".into(), name: "T\u{1b}4".into() };
        let facts = DeviceFacts { index: Some(3), ..DeviceFacts::default() };
        let view = |up: bool, values: Option<DeviceUsage>| DeviceView {
            plugin: "p".into(),
            kind: Arc::new(kind.clone()),
            attributes: Arc::default(),
            device: Arc::new(Device { facts: facts.clone(), ..Device::of(DeviceId::from("0")) }),
            info: Arc::new([]),
            up,
            stuck: false,
            reading: values.map(|values| Arc::new(reading(values))),
            unowned_bytes: None,
        };
        let mut some = DeviceUsage { power_milliwatts: Some(70_900), ..DeviceUsage::default() };
        some.utilization[Engine::General.index()] = Some(0.0);
        let name = format!("gpu 3, {}", printable("T\u{1b}4"));
        assert_eq!(device_line(&view(true, Some(some.clone())), &[]), format!("{name}: 0.0 % busy, 70 W"));
        let held = device_line(&view(true, Some(some.clone())), &["model".to_owned()]);
        assert_eq!(held, format!("{name}: held by model, 0.0 % busy, 70 W"));
        assert_eq!(device_line(&view(true, Some(DeviceUsage::default())), &[]), format!("{name}: -"));
        assert_eq!(device_line(&view(true, None), &[]), format!("{name}: not read yet"));
        assert_eq!(device_line(&view(false, Some(some)), &[]), format!("{name}: does not answer"));
    }

    #[test]
    fn screen_of_80_columns_has_the_important_columns_and_fills_up_with_events() {
        let lines = drawn(&scene(3, 100), 80, 24);
        assert_eq!((lines[0].as_str(), lines[23].as_str()), ("head", "event 99"));
        for column in ["NAME", "CPU", "THR", "MEMORY", "PEAK", "RST", "LAST EXIT"] {
            assert!(lines[2].contains(column), "{column}: {}", lines[2]);
        }
        assert!(lines[5].starts_with("task-2") && lines[7].starts_with("batch: none"), "{lines:?}");
    }

    proptest! {
        #[test]
        fn screen_of_any_size_takes_what_fits(
            width in 1_u16..120,
            height in 1_u16..40,
            rows in 0_usize..9,
            events in 0_usize..50,
        ) {
            drawn(&scene(rows, events), width, height);
        }
    }
}
