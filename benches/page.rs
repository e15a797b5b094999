//! What the page at `/` costs with 1,000 tasks in a real Chromium: its first paint, the browser while it only follows,
//! and the agent beside what it takes without a browser.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

/// The browser of the tests.
#[path = "."]
mod pages {
    use std::time::Duration;

    pub const LONG: Duration = Duration::from_secs(60);

    #[allow(clippy::unwrap_used)] // As in the tests.
    #[path = "../tests/pages/devtools.rs"]
    pub mod devtools;
}

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::{Agent, is_root};
use pages::devtools::{Browser, chromium};
use shared::{HOLD, as_a_unit, cpu_per_minute, end, report, settle, start};

const TASKS: usize = 1_000;
const SPAN: Duration = Duration::from_secs(30);
/// The machine gets slower and faster by more than a page costs.
const TURNS: usize = 3;
const PAINTED: &str = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1";
const SHOWN: &str = "document.querySelectorAll('tr.row').length > 10";

/// One turn: agent without a browser and with one, in CPU seconds per minute; browser in percent of a core; first
/// paint in milliseconds.
struct Turn {
    without: f64,
    with: f64,
    browser: f64,
    painted: f64,
}

fn main() {
    if !is_root() {
        println!("the figures of the page need root: cgroups");
        return;
    }
    let Some(chromium) = chromium() else {
        println!("the figures of the page need a Chromium, in PATH or named by CHROMIUM");
        return;
    };
    as_a_unit();
    let agent = Agent::start();
    start(&agent, TASKS, HOLD);
    let url = format!("http://{}/", agent.address);
    let turns: Vec<Turn> = (0..TURNS)
        .map(|_| {
            settle();
            let without = cpu_per_minute(agent.pid(), SPAN, || {});
            let mut browser = Browser::open(&chromium, &url);
            browser.waits_for(SHOWN);
            browser.waits_for(&format!("({PAINTED}) > 0"));
            let painted = browser.value(PAINTED).as_f64().expect("a number");
            settle();
            let (began, before) = (Instant::now(), cpu_below(browser.pid()));
            let with = cpu_per_minute(agent.pid(), SPAN, || {});
            let used = cpu_below(browser.pid()).saturating_sub(before);
            Turn { without, with, browser: used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0, painted }
        })
        .collect();
    #[allow(clippy::cast_precision_loss)] // A few.
    let mean = |of: fn(&Turn) -> f64| turns.iter().map(of).sum::<f64>() / turns.len() as f64;
    report("page/first-paint", mean(|turn| turn.painted), "ms, from the request to the first content", None);
    report("page/browser", mean(|turn| turn.browser), "% of a core: all processes of the browser", None);
    let (without, with) = (mean(|turn| turn.without), mean(|turn| turn.with));
    report("page/agent-without", without, "CPU-s/min, in turns with", None);
    report("page/agent-with", with, "CPU-s/min beside a browser", Some((with / without, "page/agent-without")));
    end(agent);
}

/// CPU time of a process and all processes below it that run now. Source: `/proc/PID/stat`, in ticks of 10 ms.
fn cpu_below(pid: u32) -> Duration {
    let entries = std::fs::read_dir("/proc").expect("Linux").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let stats: BTreeMap<u32, (u32, u64)> = pids.filter_map(|pid| Some((pid, parent_and_ticks(pid)?))).collect();
    let is_below = |of: u32| {
        let above = std::iter::successors(Some(of), |pid| stats.get(pid).map(|(parent, _)| *parent));
        above.take(64).any(|above| above == pid)
    };
    let ticks: u64 = stats.iter().filter(|(of, _)| is_below(**of)).map(|(_, (_, ticks))| *ticks).sum();
    Duration::from_millis(ticks * 10)
}

fn parent_and_ticks(pid: u32) -> Option<(u32, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of a program may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((u32::try_from(number(1)?).ok()?, number(11)? + number(12)?))
}
