//! The life of an observed alloc: what can be known of it from outside.

use std::collections::VecDeque;
use std::sync::Arc;

use super::alloc::{AllocSource, AllocState};
use super::id::CgroupPath;
use super::task::{Exit, ExitStatus, Outcome, ShownState};
use super::units::Timestamp;
use super::usage::Usage;
use super::word::words;

words! {
    /// How an observed task ended before it began again: the reason of its restart is unknown.
    pub enum RestartCause {
        /// The kernel's OOM killer ended it.
        Oom = "oom",
        /// An error, or a signal that does not request an end.
        Failure = "failure",
        /// An end that was clean, requested, or not observed.
        Other = "other",
    }
}

/// Signals that request an end: SIGHUP, SIGINT, SIGPIPE, SIGTERM (a clean exit to systemd, too).
fn requests_end(signal: u8) -> bool {
    matches!(signal, 1 | 2 | 13 | 15)
}

/// Whether it ended by such a signal. Runtimes report a signal as 128 plus its number.
fn ended_on_request(status: &ExitStatus) -> bool {
    match status {
        ExitStatus::Code(code) => code.checked_sub(128).is_some_and(requests_end),
        ExitStatus::Signal(signal) => requests_end(*signal),
        ExitStatus::NotStarted(_) | ExitStatus::Unknown(_) => false,
    }
}

/// Whether this end is a failure. systemd decides for its services, as their settings say.
fn has_failed(exit: &Exit) -> bool {
    match (exit.outcome, exit.result) {
        (Outcome::Oom, _) => true,
        (Outcome::Error | Outcome::Signal, Some(result)) => result.is_failure(),
        (Outcome::Error | Outcome::Signal, None) => !ended_on_request(&exit.status),
        (Outcome::Success | Outcome::Killed | Outcome::Unknown, _) => false,
    }
}

impl RestartCause {
    pub fn of(exit: &Exit) -> RestartCause {
        match exit.outcome {
            Outcome::Oom => RestartCause::Oom,
            _ if has_failed(exit) => RestartCause::Failure,
            _ => RestartCause::Other,
        }
    }
}

/// Replaced as a whole at each change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObservedAlloc {
    /// As its source knows it, and as that one's own commands take it.
    pub native: String,
    /// When its last cgroup went; `None`: one is there.
    pub ended_at: Option<Timestamp>,
    /// The labels of its source that the configuration selects.
    pub labels: Vec<SelectedLabel>,
    /// In the order of the identity's tasks.
    pub tasks: Vec<Arc<ObservedTask>>,
}

/// A container label or pod annotation that is exposed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectedLabel {
    /// As its source has it: `com.example/team`.
    pub key: String,
    /// As a Prometheus label: `label_com_example_team`.
    pub name: String,
    pub value: String,
}

/// One task of it: all cgroups that it has had under its name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObservedTask {
    /// The one that is there, or the last one.
    pub cgroup: Option<CgroupPath>,
    pub runs: bool,
    /// The kernel's freezer has stopped it.
    pub is_paused: bool,
    /// It has ended, and its runtime waits before it starts it again.
    pub will_restart: bool,
    /// Since when it runs, or does not. `None`: it did when the agent began to look.
    pub since: Option<Timestamp>,
    /// Counters and peaks of all cgroups that are gone, together.
    pub base: Arc<Usage>,
    /// The newest 10, oldest first.
    pub exits: VecDeque<Arc<Exit>>,
    /// In the order of `Outcome::ALL`: all of them.
    pub exit_counts: [u64; 6],
    /// How often it began again under its name since the agent looks, in the order of `RestartCause::ALL`.
    pub restarts: [u64; 3],
    /// How it ended, until it begins again.
    pub ended: Option<RestartCause>,
}

impl ObservedTask {
    /// `paused` only where the kernel reports it, `backoff` only where the runtime does.
    pub fn state(&self) -> ShownState {
        match (self.runs, self.is_paused, self.will_restart) {
            (true, true, _) => ShownState::Paused,
            (true, false, _) => ShownState::Running,
            (false, _, true) => ShownState::Backoff,
            (false, _, false) => ShownState::Dead,
        }
    }
    /// Since when it is in its state. `None`: unknown, as for a pause.
    pub fn state_since(&self) -> Option<Timestamp> {
        self.since.filter(|_| self.state() != ShownState::Paused)
    }
    pub fn restarts_total(&self) -> u64 {
        self.restarts.iter().sum()
    }
    /// It runs from now on. Gives after what it has begun again; `None`: it is its first time, or it has not ended.
    pub fn begins(&mut self) -> Option<RestartCause> {
        (self.runs, self.is_paused, self.will_restart) = (true, false, false);
        let after = self.ended.take()?;
        self.restarts[after.index()] += 1;
        Some(after)
    }
    pub fn add_exit(&mut self, exit: Exit) {
        const MAX_EXITS: usize = 10;
        self.exit_counts[exit.outcome.index()] += 1;
        self.ended = Some(RestartCause::of(&exit));
        self.exits.push_back(Arc::new(exit));
        if self.exits.len() > MAX_EXITS {
            self.exits.pop_front();
        }
    }
}

impl ObservedAlloc {
    /// In the words of our own allocs.
    pub fn state(&self) -> AllocState {
        let went_wrong = |task: &Arc<ObservedTask>| task.exits.back().is_some_and(|exit| has_failed(exit));
        match self.ended_at {
            None => AllocState::Running,
            Some(_) if self.will_restart() => AllocState::Pending,
            Some(_) if self.tasks.iter().any(went_wrong) => AllocState::Failed,
            Some(_) => AllocState::Complete,
        }
    }
    /// `None`: it runs, or waits for its restart.
    pub fn finished_at(&self) -> Option<Timestamp> {
        self.ended_at.filter(|_| !self.will_restart())
    }
    fn will_restart(&self) -> bool {
        self.tasks.iter().any(|task| task.state() == ShownState::Backoff)
    }
}

/// An action on an alloc, by the runtime that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeAction {
    Stop,
    Restart,
    Signal,
    Logs,
    Exec,
}

/// The command of the alloc's runtime for this action. `None`: there is none, as for a managed alloc or a plain cgroup.
/// A group of processes has no runtime that restarts it or keeps its logs.
pub fn command_elsewhere(source: AllocSource, native: &str, action: RuntimeAction) -> Option<String> {
    // In a directory of a user's: `1000/web`, which his own runtime knows.
    let is_of_runtime = !matches!(
        source,
        AllocSource::Managed
            | AllocSource::Cgroup
            | AllocSource::Process
            | AllocSource::Systemd
            | AllocSource::Kubernetes
    );
    if let Some((user, own)) = native.split_once('/').filter(|(user, _)| is_of_runtime && user.parse::<u32>().is_ok()) {
        return Some(format!("{} (as the user with UID {user})", command_elsewhere(source, own, action)?));
    }
    // Without a reported name it is known by its UID: the user has to find it first.
    let pod = |words: &dyn Fn(&str, &str) -> String| match native.split_once('/') {
        Some((namespace, pod)) => words(namespace, pod),
        None => format!("kubectl get pods --all-namespaces -o wide (the one whose metadata.uid is {native})"),
    };
    // In a namespace other than `default`: `build/redis`, `ns:1000/redis`.
    let nerdctl = |verb: &str| match native.split_once('/') {
        Some((namespace, name)) => {
            format!("nerdctl --namespace {} {verb} {name}", namespace.trim_start_matches("ns:"))
        }
        None => format!("nerdctl {verb} {native}"),
    };
    // A unit of a user's systemd: `1000/a.service`.
    let (of_user, unit) = native.split_once('/').map_or(("", native), |(_, unit)| ("--user ", unit));
    let words = match (source, action) {
        (AllocSource::Managed | AllocSource::Cgroup, _) => return None,
        // Known by its command and the number of its group.
        (AllocSource::Process, RuntimeAction::Stop) => format!("kill -- -{}", native.rsplit('/').next()?),
        (AllocSource::Process, RuntimeAction::Signal) => format!("kill -SIGNAL -- -{}", native.rsplit('/').next()?),
        (AllocSource::Process, RuntimeAction::Restart | RuntimeAction::Logs | RuntimeAction::Exec) => return None,
        (AllocSource::Systemd, RuntimeAction::Stop) => format!("systemctl {of_user}stop {unit}"),
        (AllocSource::Systemd, RuntimeAction::Restart) => format!("systemctl {of_user}restart {unit}"),
        (AllocSource::Systemd, RuntimeAction::Signal) => format!("systemctl {of_user}kill --signal=SIGNAL {unit}"),
        (AllocSource::Systemd, RuntimeAction::Logs) if of_user.is_empty() => format!("journalctl --unit={unit}"),
        (AllocSource::Systemd, RuntimeAction::Logs) => format!("journalctl --user-unit={unit}"),
        (AllocSource::Systemd, RuntimeAction::Exec) => {
            format!("nsenter --target $(systemctl {of_user}show --property=MainPID --value {unit}) --all COMMAND")
        }
        (AllocSource::Docker | AllocSource::Podman, RuntimeAction::Exec) => {
            format!("{} exec -it {native} COMMAND", source.as_str())
        }
        (AllocSource::Docker | AllocSource::Podman, action) => {
            let verb = match action {
                RuntimeAction::Stop => "stop",
                RuntimeAction::Restart => "restart",
                RuntimeAction::Signal => "kill --signal=SIGNAL",
                RuntimeAction::Logs | RuntimeAction::Exec => "logs",
            };
            format!("{} {verb} {native}", source.as_str())
        }
        (AllocSource::Containerd, RuntimeAction::Stop) => nerdctl("stop"),
        (AllocSource::Containerd, RuntimeAction::Signal) => nerdctl("kill --signal SIGNAL"),
        (AllocSource::Containerd, RuntimeAction::Restart) => nerdctl("restart"),
        (AllocSource::Containerd, RuntimeAction::Logs) => nerdctl("logs"),
        (AllocSource::Containerd, RuntimeAction::Exec) => nerdctl("exec -it") + " COMMAND",
        (AllocSource::Kubernetes, RuntimeAction::Stop | RuntimeAction::Restart) => {
            pod(&|namespace, pod| format!("kubectl --namespace {namespace} delete pod {pod}"))
        }
        (AllocSource::Kubernetes, RuntimeAction::Signal) => {
            pod(&|namespace, pod| format!("kubectl --namespace {namespace} exec {pod} -- kill -SIGNAL 1"))
        }
        (AllocSource::Kubernetes, RuntimeAction::Logs) => {
            pod(&|namespace, pod| format!("kubectl --namespace {namespace} logs {pod}"))
        }
        (AllocSource::Kubernetes, RuntimeAction::Exec) => {
            pod(&|namespace, pod| format!("kubectl --namespace {namespace} exec -it {pod} -- COMMAND"))
        }
        (AllocSource::Nomad, RuntimeAction::Exec) => format!("nomad alloc exec {native} COMMAND"),
        (AllocSource::Slurm, RuntimeAction::Exec) => format!("srun --jobid={native} --overlap --pty COMMAND"),
        (AllocSource::Lxc, RuntimeAction::Exec) => format!("lxc-attach --name {native} -- COMMAND"),
        (AllocSource::Nomad, RuntimeAction::Stop) => format!("nomad alloc stop {native}"),
        (AllocSource::Nomad, RuntimeAction::Restart) => format!("nomad alloc restart {native}"),
        (AllocSource::Nomad, RuntimeAction::Signal) => format!("nomad alloc signal -s SIGNAL {native}"),
        (AllocSource::Nomad, RuntimeAction::Logs) => format!("nomad alloc logs {native}"),
        (AllocSource::Slurm, RuntimeAction::Stop) => format!("scancel {native}"),
        (AllocSource::Slurm, RuntimeAction::Restart) => format!("scontrol requeue {native}"),
        (AllocSource::Slurm, RuntimeAction::Signal) => format!("scancel --signal=SIGNAL {native}"),
        (AllocSource::Slurm, RuntimeAction::Logs) => format!("scontrol show job {native} (StdOut)"),
        (AllocSource::Lxc, RuntimeAction::Stop) => format!("lxc-stop --name {native}"),
        (AllocSource::Lxc, RuntimeAction::Restart) => format!("lxc-stop --reboot --name {native}"),
        (AllocSource::Lxc, RuntimeAction::Signal) => format!("lxc-attach --name {native} -- kill -SIGNAL 1"),
        (AllocSource::Lxc, RuntimeAction::Logs) => format!("lxc-attach --name {native} -- journalctl"),
        (AllocSource::Libvirt, RuntimeAction::Stop) => format!("virsh shutdown {native}"),
        (AllocSource::Libvirt, RuntimeAction::Restart) => format!("virsh reboot {native}"),
        (AllocSource::Libvirt, RuntimeAction::Signal) => format!("virsh send-process-signal {native} 1 SIGNAL"),
        (AllocSource::Libvirt, RuntimeAction::Logs | RuntimeAction::Exec) => format!("virsh console {native}"),
    };
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::task::{LostOutput, ServiceResult};

    #[test]
    fn observed_state_after_requested_end_is_complete_and_after_kill_is_failed() {
        let reported = |outcome, status, result| {
            let exit = Exit {
                attempt: 0,
                outcome,
                status,
                started_at: None,
                finished_at: Timestamp(5),
                oom_kills: None,
                lost_output: LostOutput::default(),
                last_output: None,
                result,
                usage: Arc::default(),
            };
            let task = ObservedTask { exits: [Arc::new(exit)].into(), ..ObservedTask::default() };
            ObservedAlloc { ended_at: Some(Timestamp(5)), tasks: vec![Arc::new(task)], ..ObservedAlloc::default() }
                .state()
        };
        let ended = |outcome, status| reported(outcome, status, None);
        assert_eq!(ended(Outcome::Signal, ExitStatus::Signal(15)), AllocState::Complete);
        assert_eq!(ended(Outcome::Signal, ExitStatus::Signal(9)), AllocState::Failed);
        assert_eq!(ended(Outcome::Oom, ExitStatus::Signal(9)), AllocState::Failed);
        assert_eq!(ended(Outcome::Error, ExitStatus::Code(3)), AllocState::Failed);
        assert_eq!(ended(Outcome::Error, ExitStatus::Code(143)), AllocState::Complete, "as containers report SIGTERM");
        assert_eq!(ended(Outcome::Error, ExitStatus::Code(137)), AllocState::Failed);
        assert_eq!(ended(Outcome::Killed, ExitStatus::Code(137)), AllocState::Complete, "its runtime was asked");
        assert_eq!(ended(Outcome::Success, ExitStatus::Code(0)), AllocState::Complete);
        // Of a service systemd decides.
        for (outcome, status, result, state) in [
            (Outcome::Error, ExitStatus::Code(143), ServiceResult::ExitCode, AllocState::Failed),
            (Outcome::Signal, ExitStatus::Signal(15), ServiceResult::Timeout, AllocState::Failed),
            (Outcome::Error, ExitStatus::Code(0), ServiceResult::Protocol, AllocState::Failed),
            (Outcome::Signal, ExitStatus::Signal(9), ServiceResult::Success, AllocState::Complete),
            (Outcome::Signal, ExitStatus::Signal(15), ServiceResult::Success, AllocState::Complete),
        ] {
            assert_eq!(reported(outcome, status, Some(result)), state, "{result:?}");
        }
    }

    #[test]
    fn paused_and_restarting_tasks_have_states_of_their_own() {
        let since = Some(Timestamp(5));
        let running = ObservedTask { runs: true, since, ..ObservedTask::default() };
        let paused = ObservedTask { is_paused: true, ..running.clone() };
        let waits = ObservedTask { will_restart: true, since, ..ObservedTask::default() };
        let dead = ObservedTask { since, ..ObservedTask::default() };
        let states = [&running, &paused, &waits, &dead].map(|task| (task.state(), task.state_since()));
        let expected = [
            (ShownState::Running, since),
            (ShownState::Paused, None),
            (ShownState::Backoff, since),
            (ShownState::Dead, since),
        ];
        assert_eq!(states, expected);
        let alloc = |task: &ObservedTask| {
            let ended_at = since.filter(|_| !task.runs);
            let alloc = ObservedAlloc { ended_at, tasks: vec![Arc::new(task.clone())], ..ObservedAlloc::default() };
            (alloc.state(), alloc.finished_at())
        };
        assert_eq!(alloc(&paused), (AllocState::Running, None));
        assert_eq!(alloc(&waits), (AllocState::Pending, None));
        assert_eq!(alloc(&dead), (AllocState::Complete, since));
        // What begins again is neither.
        for mut task in [paused, waits] {
            task.begins();
            assert_eq!(task.state(), ShownState::Running);
        }
    }

    #[test]
    fn containers_of_a_namespace_are_reached_in_it() {
        let stop = |native: &str| command_elsewhere(AllocSource::Containerd, native, RuntimeAction::Stop);
        assert_eq!(stop("redis").as_deref(), Some("nerdctl stop redis"));
        assert_eq!(stop("build/redis").as_deref(), Some("nerdctl --namespace build stop redis"));
        // A namespace that is a number is no user.
        assert_eq!(stop("ns:1000/redis").as_deref(), Some("nerdctl --namespace 1000 stop redis"));
        let of_user = "nerdctl --namespace build stop redis (as the user with UID 1000)";
        assert_eq!(stop("1000/build/redis").as_deref(), Some(of_user));
    }

    /// The first run is none, nor is one after no end; and none is taken back by what comes later.
    #[test]
    fn observed_task_counts_restarts_by_outcome_of_the_previous_run() {
        let mut task = ObservedTask::default();
        let end = |task: &mut ObservedTask, outcome, status| {
            let exit = Exit {
                attempt: 0,
                outcome,
                status,
                started_at: None,
                finished_at: Timestamp(5),
                oom_kills: None,
                lost_output: LostOutput::default(),
                last_output: None,
                result: None,
                usage: Arc::default(),
            };
            task.runs = false;
            task.add_exit(exit);
        };
        assert_eq!(task.begins(), None);
        let ends = [
            (Outcome::Error, ExitStatus::Code(3), RestartCause::Failure),
            (Outcome::Oom, ExitStatus::Signal(9), RestartCause::Oom),
            (Outcome::Signal, ExitStatus::Signal(9), RestartCause::Failure),
            (Outcome::Signal, ExitStatus::Signal(15), RestartCause::Other),
            (Outcome::Error, ExitStatus::Code(143), RestartCause::Other),
            (Outcome::Success, ExitStatus::Code(0), RestartCause::Other),
            (Outcome::Unknown, ExitStatus::Unknown(String::new()), RestartCause::Other),
        ];
        for (n, (outcome, status, after)) in (0..).zip(ends) {
            end(&mut task, outcome, status);
            assert_eq!(task.restarts_total(), n, "it is over, and may stay so");
            assert_eq!(task.begins(), Some(after));
        }
        // Others' tasks began inside of its cgroup: it has not ended.
        task.runs = false;
        assert_eq!((task.begins(), task.restarts), (None, [1, 2, 4]));
    }

    #[test]
    fn every_source_with_a_runtime_has_its_own_command() {
        let of = |source, native, action| command_elsewhere(source, native, action).unwrap();
        assert_eq!(of(AllocSource::Docker, "web", RuntimeAction::Stop), "docker stop web");
        assert_eq!(of(AllocSource::Systemd, "a.service", RuntimeAction::Logs), "journalctl --unit=a.service");
        assert_eq!(of(AllocSource::Systemd, "1000/a.service", RuntimeAction::Stop), "systemctl --user stop a.service");
        let of_user = of(AllocSource::Docker, "1000/web", RuntimeAction::Stop);
        assert_eq!(of_user, "docker stop web (as the user with UID 1000)");
        assert_eq!(of(AllocSource::Process, "nginx/42", RuntimeAction::Stop), "kill -- -42");
        assert_eq!(
            of(AllocSource::Kubernetes, "shop/web-1", RuntimeAction::Logs),
            "kubectl --namespace shop logs web-1"
        );
        let unnamed = of(AllocSource::Kubernetes, "7f3e", RuntimeAction::Stop);
        assert!(unnamed.contains("uid is 7f3e") && !unnamed.contains("default"), "{unnamed}");
        let actions = [RuntimeAction::Stop, RuntimeAction::Restart, RuntimeAction::Signal, RuntimeAction::Logs];
        for (source, action) in AllocSource::ALL.into_iter().flat_map(|source| actions.map(|action| (source, action))) {
            let has_no_runtime = matches!(source, AllocSource::Managed | AllocSource::Cgroup)
                || source == AllocSource::Process && matches!(action, RuntimeAction::Restart | RuntimeAction::Logs);
            let text = command_elsewhere(source, "x", action);
            assert_eq!(text.is_none(), has_no_runtime, "{source:?} {action:?}");
            assert!(text.is_none_or(|text| text.contains('x')), "{source:?} {action:?}");
        }
    }
}
