//! The fingerprints of the mock driver, one after the other, on tokio's clock.
//!
//! `undetected 3s, healthy 1m, unhealthy`: each for its duration; the last one forever, unless `again` follows it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::faults::endless_text;
use crate::jobspec::quantity::parse_duration;
use crate::model::nearest::nearest;
use crate::runner::drivers::{BoxFuture, Fingerprint, Fingerprints, Health};
use crate::runner::wait_ends::{Ends, EndsWith};
use crate::telemetry::lock;

words! {
    /// A step of a script.
    FingerprintStep {
        Healthy = "healthy", "it starts tasks";
        Unhealthy = "unhealthy", "it cannot start tasks now: they wait";
        Undetected = "undetected", "a requirement is missing on this host: the same";
        Garbage = "garbage", "healthy, with an endless text and impossible attributes";
        End = "end", "it reports nothing more until the next query";
        Hang = "hang", "the query never returns";
        Die = "die", "the driver panics instead";
        Again = "again", "begins again with the first step";
    }
}

/// Its position outlives the stream: a new stream continues from there.
#[derive(Debug, Clone)]
pub struct Script(Arc<Mutex<ScriptPosition>>);

#[derive(Debug)]
struct ScriptPosition {
    steps: Vec<(FingerprintStep, Option<Duration>)>,
    at: usize,
    /// When the step at this position is due. `None`: with the first call.
    due: Option<Instant>,
}

/// Healthy, forever.
impl Default for Script {
    fn default() -> Script {
        Script::of(vec![(FingerprintStep::Healthy, None)])
    }
}

impl Script {
    fn of(steps: Vec<(FingerprintStep, Option<Duration>)>) -> Script {
        Script(Arc::new(Mutex::new(ScriptPosition { steps, at: 0, due: None })))
    }

    /// Errors: the invalid step.
    pub fn parse(text: &str) -> Result<Script, String> {
        let steps: Result<Vec<_>, String> = text.split(',').map(str::trim).map(step).collect();
        let steps = steps?;
        let last = steps.len() - 1;
        if let Some((at, _)) = steps.iter().enumerate().find(|(at, (_, lasts))| lasts.is_none() != (*at == last)) {
            let word = if at == last { "the last step has no end" } else { "missing duration" };
            return Err(format!("step {}: {word}", at + 1));
        }
        if steps[0].0 == FingerprintStep::Again {
            return Err("there is nothing before `again`".to_owned());
        }
        Ok(Script::of(steps))
    }

    /// Continues from its position.
    pub fn resume(&self) -> Box<dyn Fingerprints> {
        Box::new(self.clone())
    }

    /// When the next step is due. `None`: there is none.
    fn due(&self) -> Option<Instant> {
        let place = lock(&self.0);
        (place.at < place.steps.len()).then(|| place.due.unwrap_or_else(Instant::now))
    }

    /// Takes the step that is due.
    fn advance(&self) -> Option<FingerprintStep> {
        let mut place = lock(&self.0);
        if place.steps.get(place.at)?.0 == FingerprintStep::Again {
            place.at = 0;
        }
        let (step, lasts) = place.steps[place.at];
        place.at += 1;
        place.due = lasts.map(|lasts| Instant::now() + lasts);
        Some(step)
    }
}

fn step(text: &str) -> Result<(FingerprintStep, Option<Duration>), String> {
    let (word, lasts) = match text.split_once(' ') {
        Some((word, lasts)) => {
            let lasts = parse_duration(lasts.trim()).map_err(|e| format!("{text:?}: {e}"))?;
            (word, Some(lasts))
        }
        None => (text, None),
    };
    let known = FingerprintStep::ALL.iter().find(|known| known.word() == word);
    let words = || FingerprintStep::ALL.iter().map(|known| known.word());
    let advice = || match nearest(word, words()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", words().collect::<Vec<_>>().join(", ")),
    };
    known.map(|script_step| (*script_step, lasts)).ok_or_else(|| format!("{word:?} is no step; {}", advice()))
}

fn report(health: Health) -> Fingerprint {
    let text = match health {
        Health::Healthy => "runs nothing: for tests",
        Health::Unhealthy | Health::Undetected => "as configured",
    };
    let attributes =
        if health == Health::Healthy { [("pretends".to_owned(), "1".to_owned())].into() } else { BTreeMap::new() };
    Fingerprint { attributes, ..Fingerprint::of(health, text) }
}

impl Fingerprints for Script {
    #[allow(clippy::panic)] // The configured fault.
    fn next(&mut self) -> BoxFuture<'_, Option<Fingerprint>> {
        Box::pin(async move {
            let step = match self.due() {
                Some(due) => {
                    tokio::time::sleep_until(due).await;
                    self.advance()
                }
                None => None,
            };
            match step {
                Some(FingerprintStep::Healthy) => Some(report(Health::Healthy)),
                Some(FingerprintStep::Unhealthy) => Some(report(Health::Unhealthy)),
                Some(FingerprintStep::Undetected) => Some(report(Health::Undetected)),
                Some(FingerprintStep::Garbage) => {
                    let names = (0..1_000).map(|n| (format!("{n}\u{7}\n"), endless_text()));
                    let attributes =
                        names.chain([(String::new(), String::new()), ("known".to_owned(), "1".to_owned())]);
                    let text = endless_text();
                    Some(Fingerprint { attributes: attributes.collect(), ..Fingerprint::of(Health::Healthy, text) })
                }
                Some(FingerprintStep::End) => None,
                Some(FingerprintStep::Die) => panic!("the mock driver is configured to panic in `fingerprint`"),
                Some(FingerprintStep::Hang | FingerprintStep::Again) | None => {
                    std::future::pending().ends_with(Ends::Caller).await
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mock_script_errors_name_the_wrong_step() {
        let error = |text: &str| Script::parse(text).map(drop).unwrap_err();
        assert_eq!(error("helthy"), "\"helthy\" is no step; did you mean `healthy`?");
        assert!(error("").contains("is no step; there are healthy"));
        assert_eq!(error("healthy, unhealthy"), "step 1: missing duration");
        assert_eq!(error("healthy 3s"), "step 1: the last step has no end");
        assert!(error("healthy soon, end").starts_with("\"healthy soon\""));
        assert_eq!(error("again"), "there is nothing before `again`");
        Script::parse("undetected 3s, healthy 1m, unhealthy 250ms, end 1s, again").unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn steps_are_reported_in_time_and_continue_from_the_position() {
        let script = Script::parse("unhealthy 2s, end 1s, healthy").unwrap();
        let before = Instant::now();
        let mut first = script.resume();
        assert_eq!(first.next().await.map(|f| f.health), Some(Health::Unhealthy));
        assert_eq!(first.next().await, None);
        assert_eq!(before.elapsed(), Duration::from_secs(2));
        let mut second = script.resume();
        assert_eq!(second.next().await.map(|f| f.health), Some(Health::Healthy));
        assert_eq!(before.elapsed(), Duration::from_secs(3));
        assert!(tokio::time::timeout(Duration::from_secs(3600), second.next()).await.is_err(), "it stays so");
    }
}
