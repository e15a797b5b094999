//! The steps of a start. Each has a deadline, and the one that does not end is named: a disk that hangs, a thread that
//! cannot be had, a program that does not answer must not leave an agent that says that it is alive and does nothing.

use std::time::Duration;

use tokio::sync::watch;

use super::DaemonError;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    DataDir,
    Sockets,
    Host,
    Database,
    Restore,
    Sampler,
}

impl Step {
    pub fn name(self) -> &'static str {
        match self {
            Step::DataDir => "opening the data directory",
            Step::Sockets => "listening",
            Step::Host => "reading this host and its cgroups",
            Step::Database => "opening the state database",
            Step::Restore => "reading what ran before",
            Step::Sampler => "starting to measure",
        }
    }

    /// Far more than it ever takes; what is read whole may be large.
    fn deadline(self) -> Duration {
        match self {
            Step::DataDir | Step::Sockets => Duration::from_secs(30),
            Step::Host | Step::Sampler => Duration::from_secs(120),
            Step::Database | Step::Restore => Duration::from_secs(600),
        }
    }
}

/// Where a start is.
#[derive(Debug)]
pub(super) struct StartSteps(watch::Sender<Step>);

impl StartSteps {
    pub fn begin() -> (StartSteps, watch::Receiver<Step>) {
        let (steps, now) = watch::channel(Step::Sockets);
        (StartSteps(steps), now)
    }
    pub fn at(&self, step: Step) {
        self.0.send_replace(step);
    }
}

/// Returns when a step has taken too long: what is then.
pub(super) async fn late(mut now: watch::Receiver<Step>) -> DaemonError {
    loop {
        let step = *now.borrow_and_update();
        match tokio::time::timeout(step.deadline(), now.changed()).await {
            Ok(Ok(())) => {}
            // Through, or failed: the step itself reports that.
            Ok(Err(_)) => std::future::pending().await,
            Err(_) => return DaemonError::Late { step: step.name(), after: step.deadline() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_step_that_does_not_end_is_named_and_those_before_it_cost_it_nothing() {
        let (steps, now) = StartSteps::begin();
        let began = tokio::time::Instant::now();
        let watching = tokio::spawn(late(now));
        tokio::time::sleep(Duration::from_secs(20)).await;
        steps.at(Step::Database);
        let error = watching.await.unwrap();
        assert_eq!(error.to_string(), "opening the state database did not end within 600 s");
        assert_eq!(began.elapsed().as_secs(), 620);
        assert!(error.hint().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_that_is_through_is_never_late() {
        let (steps, now) = StartSteps::begin();
        steps.at(Step::Sampler);
        drop(steps);
        tokio::time::timeout(Duration::from_secs(100_000), late(now)).await.unwrap_err();
    }
}
