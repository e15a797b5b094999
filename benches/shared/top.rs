//! What looking costs.

use std::time::{Duration, Instant};

use super::{cpu, cpu_per_minute, report, settle};
use crate::common::{Agent, OnTerminal};

/// Names of the rows: what `allostat top` takes, what the agent takes beside it, and what it takes unseen.
pub struct Rows<'a> {
    pub top: &'a str,
    pub looked_at: &'a str,
    pub unseen: &'a str,
}

/// `allostat top` on a terminal, a frame each second: what it takes, and what the agent takes beside what it takes unseen, `alone`. `shown`: a
/// word of its first frame.
pub fn looked_at(agent: &Agent, shown: &str, alone: f64, rows: &Rows) {
    const SPAN: Duration = Duration::from_secs(60);
    let mut top = OnTerminal::of(agent);
    top.shows(shown);
    settle();
    top.forget();
    let pid = u32::try_from(top.pid().as_raw_nonzero().get()).expect("a pid");
    let (began, before) = (Instant::now(), cpu(pid));
    let beside = cpu_per_minute(agent.pid(), SPAN, || {});
    let share = cpu(pid).saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64();
    assert!(!top.text().is_empty(), "it drew all the while");
    top.press("q");
    assert_eq!(top.ends().code(), Some(0));
    report(rows.top, share * 100.0, "% of a core: `allostat top`, a frame each second", None);
    report(rows.looked_at, beside, "CPU-s/min beside `allostat top`", Some((beside / alone, rows.unseen)));
}
