//! What the whole host uses, in words: above the screen's table, and in one line where there is no screen. Pure.

use super::columns;
use super::rates::{HostNow, RateFrame};
use crate::cli::human::{self, ABSENT, or_absent};
use crate::cli::output::printable;

/// A share of all there is, and how much that is.
pub struct Gauge {
    pub share: Option<f64>,
    value: Option<String>,
}

impl Gauge {
    pub fn text(&self, between: &str) -> String {
        let share = self.share.map_or(ABSENT.to_owned(), columns::percent);
        self.value.as_ref().map_or_else(|| share.clone(), |value| format!("{share}{between}{value}"))
    }
}

#[allow(clippy::cast_precision_loss)] // for the eye
pub fn cpu(host: &HostNow) -> Gauge {
    Gauge {
        share: host.busy_cores.filter(|_| host.cpus > 0).map(|busy| busy / host.cpus as f64),
        value: host.busy_cores.map(|busy| format!("{} of {} cores", columns::cores(busy), host.cpus)),
    }
}

#[allow(clippy::cast_precision_loss)] // for the eye
pub fn memory(host: &HostNow) -> Gauge {
    let memory = host.memory_used.zip(host.memory_total).filter(|(_, total)| *total > 0);
    Gauge {
        share: memory.map(|(used, total)| used as f64 / total as f64),
        value: memory.map(|(used, total)| format!("{} of {}", human::bytes(used), human::bytes(total))),
    }
}

/// The shares of time in which something waited: in words, and short.
pub fn waits(host: &HostNow) -> [String; 2] {
    let [cpu, memory, io] = host.pressure.map(|share| or_absent(share.map(columns::percent)));
    [format!("waits: CPU {cpu}, memory {memory}, I/O {io}"), format!("waits {cpu}, {memory}, {io}")]
}

/// Cores that no row has, where that is known.
pub fn unattributed_cores(frame: &RateFrame) -> Option<String> {
    frame.elsewhere_cores().map(|cores| format!("elsewhere {cores:.1} cores"))
}

/// All of it in one line.
pub fn line(frame: &RateFrame) -> String {
    let host = &frame.host;
    let [waits, _] = waits(host);
    let text = [format!("CPU {}", cpu(host).text(", ")), format!("memory {}", memory(host).text(", ")), waits];
    let text: Vec<String> = text.into_iter().chain(unattributed_cores(frame)).collect();
    format!("{}: {}", printable(&host.name), text.join("; "))
}
