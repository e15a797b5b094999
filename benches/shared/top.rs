//! What looking costs.

use std::time::{Duration, Instant};

use super::{cpu, cpu_per_minute, report, settle};
use crate::common::{Agent, OnTerminal};

/// Names of the rows: what `allostat top` takes, what the agent takes beside it, and what it takes unseen.
pub struct Rows {
    pub top: String,
    pub viewed: String,
    pub unseen: String,
}

/// `allostat top` on a terminal, a frame each second: what it takes, and what the agent takes beside what it takes
/// unseen. In turns: a machine gets slower and faster by more than looking costs. `shown`: a word of its first frame.
pub fn measure_viewed(agent: &Agent, shown: &str, rows: &Rows) {
    const SPAN: Duration = Duration::from_secs(30);
    const TURNS: [(); 3] = [(); 3];
    let turns = TURNS.map(|()| {
        settle();
        let unseen = cpu_per_minute(agent.pid(), SPAN, || {});
        let mut top = OnTerminal::of(agent);
        top.shows(shown);
        settle();
        top.forget();
        let pid = u32::try_from(top.pid().as_raw_nonzero().get()).expect("a pid");
        let (began, before) = (Instant::now(), cpu(pid));
        let viewed = cpu_per_minute(agent.pid(), SPAN, || {});
        let share = cpu(pid).saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64();
        assert!(!top.text().is_empty(), "it drew all the while");
        top.press("q");
        assert_eq!(top.ends().code(), Some(0));
        (unseen, viewed, share)
    });
    #[allow(clippy::cast_precision_loss)] // Three.
    let mean = |of: fn(&(f64, f64, f64)) -> f64| turns.iter().map(of).sum::<f64>() / turns.len() as f64;
    let (unseen, viewed) = (mean(|turn| turn.0), mean(|turn| turn.1));
    report(&rows.top, mean(|turn| turn.2) * 100.0, "% of a core: `allostat top`, a frame each second", None);
    report(&rows.unseen, unseen, "CPU-s/min, in turns with", None);
    report(&rows.viewed, viewed, "CPU-s/min beside `allostat top`", Some((viewed / unseen, &rows.unseen)));
}
