//! Decides what follows when the texts of templates have changed. Pure.
//!
//! ```text
//! changed ─► quiet for `wait` ─► written ─► owed ─► a random part of `splay` ─► actions: one restart, or each signal and script once
//! ```

use std::time::Duration;

use crate::model::template::{ChangeScript, TaskTemplate, TemplateChange, TemplateWait};
use crate::model::units::{Nanos, Steady};

/// What is done to the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateAction<'t> {
    Restart,
    Signal(&'t str),
    Script(&'t ChangeScript),
}

/// What follows from the templates that changed, together: a restart replaces everything else, because the task reads
/// all of it then; otherwise each signal and each script follows once, signals first.
pub fn template_actions<'t>(changed: &[&'t TaskTemplate]) -> Vec<TemplateAction<'t>> {
    if changed.iter().any(|template| template.change == TemplateChange::Restart) {
        return vec![TemplateAction::Restart];
    }
    let signals = changed.iter().filter_map(|template| match &template.change {
        TemplateChange::Signal(name) => Some(TemplateAction::Signal(name)),
        TemplateChange::Noop | TemplateChange::Restart | TemplateChange::Script(_) => None,
    });
    let scripts = changed.iter().filter_map(|template| match &template.change {
        TemplateChange::Script(script) => Some(TemplateAction::Script(script)),
        TemplateChange::Noop | TemplateChange::Restart | TemplateChange::Signal(_) => None,
    });
    let mut actions: Vec<TemplateAction<'t>> = Vec::new();
    for action in signals.chain(scripts) {
        if !actions.contains(&action) {
            actions.push(action);
        }
    }
    actions
}

/// How long they wait for more changes: the longest `splay` of the changed templates, times `share`, which is random
/// and below 1.
pub fn splay_of(changed: &[&TaskTemplate], share: f64) -> Duration {
    changed.iter().map(|template| template.splay).max().unwrap_or_default().mul_f64(share.clamp(0.0, 1.0))
}

/// Between two actions of one task, at least.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// As above, after restarts that came too early again and again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A change so soon after the start is too early for a restart: its next start may see the same.
const EARLY: Duration = Duration::from_secs(10);

/// How fast the actions on one task follow each other, over its attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ActionPace {
    last: Option<Steady>,
    pause: Duration,
}

impl ActionPace {
    /// What is owed since `now` is done then, at the earliest.
    pub fn due(&self, now: Steady, splay: Duration) -> Steady {
        let after = |from: Steady, wait| from.plus(Nanos::from_duration(wait));
        self.last.map_or(Steady(0), |last| after(last, self.pause)).max(after(now, splay))
    }
    /// `after`: the age of the attempt when the action became due for the first time.
    pub fn acted(&mut self, restarts: bool, after: Duration, now: Steady) {
        let pause = if restarts && after < EARLY { self.pause.saturating_mul(2) } else { SHORTEST_PAUSE };
        *self = ActionPace { last: Some(now), pause: pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE) };
    }
}

/// A new text that waits until nothing more changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuietPeriod {
    digest: String,
    first: Steady,
    /// When it is written.
    pub due: Steady,
}

/// A text differs from the one that was written: when it is to be written.
pub fn quiet_until(wait: TemplateWait, known: Option<&QuietPeriod>, digest: &str, now: Steady) -> QuietPeriod {
    let first = known.map_or(now, |quiet| quiet.first);
    let due = match known {
        Some(quiet) if quiet.digest == digest => quiet.due,
        Some(_) | None => {
            let after = |from: Steady, wait| from.plus(Nanos::from_duration(wait));
            after(now, wait.min).min(after(first, wait.max))
        }
    };
    QuietPeriod { digest: digest.to_owned(), first, due }
}

/// Promise (Input validation): Templates act on a task at a distance that grows with early restarts
#[cfg(test)]
mod tests {
    use super::*;

    fn script(command: &str) -> ChangeScript {
        ChangeScript {
            command: command.to_owned(),
            args: Vec::new(),
            timeout: Duration::from_secs(5),
            fail_on_error: false,
            run_on_first_render: false,
        }
    }
    fn template(change: TemplateChange, splay: u64) -> TaskTemplate {
        TaskTemplate {
            data: None,
            source: None,
            destination: String::new(),
            perms: 0o644,
            uid: None,
            gid: None,
            env: false,
            left_delimiter: None,
            right_delimiter: None,
            error_on_missing_key: false,
            change,
            splay: Duration::from_secs(splay),
            wait: None,
            once: false,
        }
    }
    fn signal(name: &str) -> TemplateChange {
        TemplateChange::Signal(name.to_owned())
    }

    #[test]
    fn a_restart_replaces_everything_and_the_rest_follows_once_each() {
        use TemplateAction::{Restart, Script, Signal};
        let (a, b) = (script("a"), script("b"));
        let cases: [(Vec<TemplateChange>, Vec<TemplateAction<'_>>); 6] = [
            (vec![], vec![]),
            (vec![TemplateChange::Noop, TemplateChange::Noop], vec![]),
            (vec![TemplateChange::Restart, TemplateChange::Restart], vec![Restart]),
            (vec![signal("SIGHUP"), TemplateChange::Script(a.clone()), TemplateChange::Restart], vec![Restart]),
            (vec![signal("SIGHUP"), signal("SIGUSR1"), signal("SIGHUP")], vec![Signal("SIGHUP"), Signal("SIGUSR1")]),
            (
                vec![
                    TemplateChange::Script(a.clone()),
                    signal("SIGHUP"),
                    TemplateChange::Script(b.clone()),
                    TemplateChange::Script(a.clone()),
                ],
                vec![Signal("SIGHUP"), Script(&a), Script(&b)],
            ),
        ];
        for (changes, expected) in cases {
            let changed: Vec<TaskTemplate> = changes.into_iter().map(|change| template(change, 0)).collect();
            assert_eq!(template_actions(&changed.iter().collect::<Vec<_>>()), expected);
        }
    }

    #[test]
    fn the_longest_splay_decides_and_none_is_no_delay() {
        let (none, short, long) =
            (template(signal("SIGHUP"), 0), template(signal("SIGHUP"), 4), template(signal("SIGHUP"), 8));
        assert_eq!(splay_of(&[&none], 0.9), Duration::ZERO);
        assert_eq!(splay_of(&[&short, &long, &none], 0.5), Duration::from_secs(4));
        assert_eq!(splay_of(&[], 0.5), Duration::ZERO);
    }

    #[test]
    fn template_actions_back_off_after_restarts_soon_after_the_start() {
        let at = |seconds: u64| Steady(1_000).plus(Nanos::from_duration(Duration::from_secs(seconds)));
        let seconds = Duration::from_secs;
        let mut pace = ActionPace::default();
        assert_eq!(pace.due(at(0), Duration::ZERO), at(0), "the first one");
        for _ in 0..3 {
            pace.acted(false, Duration::ZERO, at(0));
            assert_eq!((pace.due(at(0), Duration::ZERO), pace.due(at(0), seconds(5))), (at(1), at(5)));
            assert_eq!(pace.due(at(7), Duration::ZERO), at(7));
        }
        for expected in [2, 4, 8, 16, 30, 30] {
            pace.acted(true, seconds(9), at(0));
            assert_eq!(pace.due(at(0), Duration::ZERO), at(expected));
        }
        pace.acted(true, seconds(10), at(0));
        assert_eq!(pace.due(at(0), Duration::ZERO), at(1), "its start was long ago");
    }

    #[test]
    fn each_new_text_extends_the_wait_up_to_its_maximum() {
        let wait = TemplateWait { min: Duration::from_secs(2), max: Duration::from_secs(5) };
        let at = |seconds: u64| Steady(100).plus(Nanos::from_duration(Duration::from_secs(seconds)));
        let one = quiet_until(wait, None, "one", at(0));
        assert_eq!(one.due, at(2));
        assert_eq!(quiet_until(wait, Some(&one), "one", at(1)).due, at(2), "the same text");
        let two = quiet_until(wait, Some(&one), "two", at(1));
        assert_eq!(two.due, at(3));
        assert_eq!(quiet_until(wait, Some(&two), "three", at(4)).due, at(5), "no later than max");
    }
}
