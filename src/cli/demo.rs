//! `allostat demo`: an agent of its own with a job of its own, shown as it goes; everything is removed at the end.
//!
//! ```text
//! demo ── agent (in this process) ── supervisors ── tasks: this binary's own `workload`
//!   └──── sweep: a process of its own that waits for the demo's end, however that comes, and removes what is left
//! ```

mod screen;
mod watch;

use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use serde_json::Value;

use super::api_types::{AllocList, AllocRow};
use super::connect::AgentConnection;
use super::exit::{CliError, CliExit, CliResult};
use super::output::{self, Paint, Style};
use super::top::{self, TaskFeed};
use super::{CliSession, agent, follow, sweep};
use crate::api::{DEFAULT_PORT, encode};
use crate::collectors::capability;
use crate::config::Config;
use crate::daemon::{self, Daemon, DaemonError};
use crate::host::http::Address;
use crate::telemetry::{LogLevel, logging};
use watch::DemoWatch;

const SERVICES: &str = include_str!("demo/services.hcl");
const BATCH: &str = include_str!("demo/batch.hcl");

/// What to try after the demo.
const NEXT: [(&str, &str); 3] = [
    ("sudo allostat top", "what runs on this host now"),
    ("sudo allostat agent", "measure it all the time, for Prometheus"),
    ("sudo allostat run web.hcl", "run a job file of Nomad"),
];

const POLL_EVERY: Duration = Duration::from_millis(100);
const BATCH_EVERY: Duration = Duration::from_secs(5);
const REDRAW_EVERY: Duration = Duration::from_millis(500);
/// In a pipe.
const PRINT_EVERY: Duration = Duration::from_secs(5);
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Run a live demo that needs no setup
///
/// Examples: `allostat demo`, `allostat demo --duration 30s`
///
/// Starts an agent on 127.0.0.1 in a temporary directory and runs a built-in job: a steady service, a worker throttled
/// by its quota, a leak that is OOM killed and restarted, and a batch of 50 ms tasks. Shows the usage of each, and the
/// GPUs of this host; on a host without GPUs a simulated one, marked as such.
///
/// `q` or Ctrl-C stops the demo and removes everything that it created. It uses cgroups as root, or where the user's
/// systemd delegates them; otherwise it names what cannot be measured, and continues.
#[derive(Debug, clap::Args)]
pub struct DemoCommand {
    /// Stop after this time: 30s, 2m
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,
    /// Print lines instead of redrawing the screen
    #[arg(long)]
    plain: bool,
}

impl DemoCommand {
    pub fn run(self, session: &mut CliSession<'_>) -> CliResult {
        let duration = self.duration.as_deref().map(time).transpose()?;
        let interrupted = follow::interrupts()?;
        let live = !self.plain && top::is_on_terminal() && std::io::stdin().is_terminal();
        // On a screen of its own the agent's log would only be noise.
        let level = if live { LogLevel::Off } else { LogLevel::Error };
        logging::init(level).map_err(|e| CliError::failed(e.to_string()))?;

        let made = DemoResources::new()?;
        let runtime = daemon::runtime().map_err(|e| agent::cannot_start(&e))?;
        let daemon = runtime.block_on(start(&made)).map_err(|e| agent::cannot_start(&e))?;
        let shown = show(session, &daemon, live, duration, &interrupted);
        session.remark("\nstopping and removing everything ...");
        let stopped = stop_all(&daemon);
        runtime.block_on(daemon.stop());
        drop(runtime);
        made.remove()?;
        session.remark("nothing is left behind.\n\nType next:");
        for (command, about) in NEXT {
            session.remark(&format!("  {command:<36}{about}"));
        }
        shown.and(stopped).map(|()| CliExit::Done)
    }
}

fn time(text: &str) -> Result<Duration, CliError> {
    let parsed = crate::jobspec::quantity::parse_duration(text);
    parsed.map_err(|e| CliError::new(CliExit::Usage, format!("--duration {text:?}: {e}; write 30s or 2m")))
}

/// What must not outlive the demo.
struct DemoResources {
    dir: PathBuf,
    cgroup_parent: String,
    sweeper: Child,
}

impl DemoResources {
    fn new() -> Result<DemoResources, CliError> {
        let dir = tempfile::Builder::new().prefix(sweep::PREFIX).tempdir();
        let dir =
            dir.map_err(|e| CliError::new(CliExit::CannotStart, format!("cannot make a temporary directory: {e}")))?;
        let cgroup_parent = format!("/{}{}", sweep::PREFIX, std::process::id());
        let sweeper = Command::new("/proc/self/exe")
            .arg("sweep")
            .arg(dir.path())
            .arg(&cgroup_parent)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for the demo: the sweeper works after it.
            .process_group(0)
            .spawn()
            .map_err(|e| CliError::new(CliExit::CannotStart, format!("cannot start a process: {e}")))?;
        // From here on the sweeper removes it.
        Ok(DemoResources { dir: dir.keep(), cgroup_parent, sweeper })
    }

    fn remove(mut self) -> Result<(), CliError> {
        drop(self.sweeper.stdin.take());
        let status = self.sweeper.wait().map_err(|e| CliError::failed(format!("cannot wait for the sweeper: {e}")))?;
        if status.success() && !self.dir.exists() {
            return Ok(());
        }
        let (dir, parent) = (self.dir.display(), &self.cgroup_parent);
        Err(CliError::failed(format!("something may be left: check {dir} and /sys/fs/cgroup/*{parent}")))
    }
}

async fn start(made: &DemoResources) -> Result<Daemon, DaemonError> {
    let mut config = Config::new(sweep::data_dir(&made.dir));
    // A user's own are below a scope of the data directory, if any; elsewhere an agent beside us has those that are
    // usual.
    config.cgroup.parent = (!daemon::has_scope_of_user()).then(|| made.cgroup_parent.clone());
    let at = |port| Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    config.api.listen = at(DEFAULT_PORT);
    config.devices.scripted = true;
    // Its cgroups are its own: no other program reads their peaks.
    config.cgroup.peak_window_v1 = true;
    // It shows its own job.
    config.observe.enabled = false;
    match Daemon::start(config.clone()).await {
        // Another process has the usual port: any free one will do.
        Err(DaemonError::Listen { .. }) => {
            config.api.listen = at(0);
            Daemon::start(config).await
        }
        started => started,
    }
}

fn show(
    session: &mut CliSession<'_>,
    daemon: &Daemon,
    live: bool,
    duration: Option<Duration>,
    interrupted: &AtomicBool,
) -> Result<(), CliError> {
    let paint = session.paint;
    let mut agent = AgentConnection::at(Address::Unix(daemon.socket.clone()))?;
    submit(&mut agent, "services.hcl", SERVICES)?;
    let mut tasks = TaskFeed::of(AgentConnection::at(Address::Unix(daemon.socket.clone()))?);
    let mut watch = DemoWatch::new(head(daemon));
    let end = duration.map(|d| Instant::now() + d);
    let mut screen = if live { Some(top::Screen::open()?) } else { None };
    // The screen has colours of its own.
    let of_events = if live { Paint(false) } else { paint };
    if !live {
        for (text, style) in &watch.scene.head {
            writeln!(session.out, "{}", paint.paint(*style, text))?;
        }
        writeln!(session.out)?;
    }
    let (mut next_batch, mut next_check) = (Instant::now() + Duration::from_secs(1), Instant::now());
    let mut next_draw = next_check;
    let period = if live { REDRAW_EVERY } else { PRINT_EVERY };
    let accepts = || !interrupted.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end);
    while accepts() && !session.out.is_closed() && !(live && is_left()) {
        let events = watch.events(&mut agent, of_events)?;
        if !live {
            for event in &events {
                writeln!(session.out, "{event}")?;
            }
            session.out.flush()?;
        }
        if Instant::now() >= next_batch {
            next_batch = Instant::now() + BATCH_EVERY;
            if !watch.batch_runs() {
                submit(&mut agent, "batch.hcl", BATCH)?;
            }
        }
        // A rate is of two samples: one of each tick, however seldom the table is printed.
        if Instant::now() >= next_check {
            next_check = Instant::now() + REDRAW_EVERY;
            watch.refresh(&mut tasks)?;
        }
        if Instant::now() >= next_draw {
            next_draw = Instant::now() + period;
            watch.scene.devices = screen::devices(&daemon.devices());
            match &mut screen {
                Some(screen) => screen.draw(|buffer| screen::draw(buffer, &watch.scene, paint.0))?,
                None => print(session, &watch)?,
            }
        }
        std::thread::sleep(POLL_EVERY);
    }
    let was_live = screen.is_some();
    drop(screen);
    if was_live {
        // The screen is gone with what it showed: the last of it stays to be read.
        print(session, &watch)?;
    }
    Ok(())
}

fn print(session: &mut CliSession<'_>, watch: &DemoWatch) -> Result<(), CliError> {
    let table = top::text_of_tasks(&watch.scene.tasks, output::screen(), session.paint);
    let below: Vec<String> = watch.scene.below().collect();
    write!(session.out, "\n{table}{}\n\n", below.join("\n"))?;
    Ok(session.out.flush()?)
}

/// `q`, Esc or Ctrl-C was pressed, which is a key like any other on a screen of our own.
fn is_left() -> bool {
    let is_there = || event::poll(Duration::ZERO).unwrap_or(false);
    while is_there() {
        let Ok(Event::Key(KeyEvent { code, modifiers, .. })) = event::read() else { continue };
        let is_interrupt = code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL);
        if is_interrupt || matches!(code, KeyCode::Char('q') | KeyCode::Esc) {
            return true;
        }
    }
    false
}

fn head(daemon: &Daemon) -> Vec<(String, Style)> {
    let metrics = daemon.tcp.map_or_else(|| "no address".to_owned(), |a| format!("http://{a}/metrics"));
    let mut head = vec![
        (format!("allostat demo  {metrics}"), Style::Bold),
        (format!("another terminal:  curl -s {metrics} | grep memory_peak"), Style::Plain),
        (format!("                   allostat --address unix:{} status", daemon.socket.display()), Style::Plain),
    ];
    let missing = || daemon.info.capabilities.iter().filter(|c| !c.available);
    let mut warn = |text: String| head.push((text, Style::Yellow));
    if let Some(cgroup) = missing().find(|c| c.feature == "cgroup") {
        // Everything else is missing for the same reason.
        warn(format!("no cgroups: {}", cgroup.reason.replace("allostat agent", "allostat demo")));
        warn("tasks are measured by process: MEMORY is the sum of their RSS, PEAK that of the largest".into());
        warn("limits, throttling and OOM kills do not exist".into());
    } else {
        let features: Vec<&str> = missing()
            .filter(|c| !c.unknown)
            .map(|c| c.feature.as_ref())
            .filter(|name| !is_for_observed(name))
            .collect();
        if !features.is_empty() {
            warn(format!("not measured on this host: {} (`allostat node` has the reasons)", features.join(", ")));
        }
    }
    head
}

/// A capability for observed workloads, which the demo leaves alone: it lacks it by choice, whatever this host has.
fn is_for_observed(feature: &str) -> bool {
    feature == capability::KERNEL_ENDS
}

fn submit(agent: &mut AgentConnection, file: &str, job: &str) -> Result<(), CliError> {
    let ourselves = std::env::current_exe().map_err(|e| CliError::failed(format!("cannot find this binary: {e}")))?;
    let _: Value = agent.post(&format!("/v1/jobs?file={}", encode(file)), job_text(job, &ourselves))?;
    Ok(())
}

fn job_text(job: &str, ourselves: &Path) -> String {
    // As it may stand in a quoted HCL string that is a template.
    let path = ourselves.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"").replace("${", "$${");
    job.replace("@ALLOSTAT@", &path)
}

fn stop_all(daemon: &Daemon) -> Result<(), CliError> {
    let mut agent = AgentConnection::at(Address::Unix(daemon.socket.clone()))?;
    let live = |agent: &mut AgentConnection| -> Result<Vec<String>, CliError> {
        let list: AllocList = agent.get("/v1/allocs")?;
        Ok(list.allocs.into_iter().filter(AllocRow::is_unfinished).map(|a| a.id).collect())
    };
    for id in live(&mut agent)? {
        let _: Value = agent.post(&format!("/v1/allocs/{id}/stop"), "")?;
    }
    let began = Instant::now();
    while began.elapsed() < STOP_WITHIN && !live(&mut agent)?.is_empty() {
        std::thread::sleep(POLL_EVERY);
    }
    // The sweeper ends what is left.
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_jobs_are_sound_wherever_the_binary_is() {
        for path in ["/usr/bin/allostat", "/odd \"dir\\${x}/allostat"] {
            for job in [SERVICES, BATCH] {
                let parsed = crate::jobspec::parse("demo.hcl", &job_text(job, Path::new(path))).unwrap();
                assert_eq!(parsed.warnings, Vec::new());
                let command = parsed.job.groups[0].tasks[0].config["command"].as_str().unwrap().to_owned();
                assert_eq!(crate::jobspec::tree::plain(&command).as_deref(), Some(path));
            }
        }
    }

    #[test]
    fn a_duration_is_a_time_with_a_unit() {
        assert_eq!(time("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("30").unwrap_err().exit, CliExit::Usage);
    }
}
