//! `allostat metrics` where no agent runs: one pass has the observed workloads, as `top` without an agent has it.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Cgroups, Cli, Exposition, Sample, allostat, is_root, patience};

/// An observed cgroup and a container, whose runtime takes the request and never answers: it costs its name alone.
///
/// Promise (Devices): `metrics` without an agent has observed workloads, in bounded time though a runtime hangs
#[test]
fn sweep_without_an_agent_has_observed_workloads_within_a_bounded_time() {
    const HUNG: &str = "88aa9c0b1d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcd";
    if !is_root() {
        skip_test!("not-root");
    }
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("docker.sock");
    let _silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let observed = Cgroups::new();
    let (container, plain) = (format!("docker/{HUNG}"), "plain".to_owned());
    let mut children = [&container, &plain].map(|path| observed.sleeper(path));
    let pass = |observe: &str| -> Cli {
        let mut command = Command::new(allostat());
        command.arg("metrics").env_remove("ALLOSTAT_ADDR").stdin(Stdio::null());
        command.env("HOME", place.path()).env("XDG_STATE_HOME", place.path().join("state"));
        command.env("ALLOSTAT_OBSERVE", observe).env("ALLOSTAT_OBSERVE_DOCKER_SOCKET", &socket);
        let include = format!("docker:{},cgroup:{}/*", &HUNG[..12], observed.parent);
        command.env("ALLOSTAT_OBSERVE_INCLUDE", include);
        command.output().expect("the binary under test must start").into()
    };
    let ids = [format!("docker:{}", &HUNG[..12]), format!("cgroup:{}/plain", observed.parent)];
    let began = Instant::now();
    let output = pass("true");
    let took = began.elapsed();
    // Where another agent answers on the usual port, that one is asked instead.
    if output.stderr.contains("one pass without an agent") {
        let body = Exposition::parse(&output.ok());
        for id in &ids {
            let of = |family: &str| body.one(family, &[("alloc_id", id)]).map(Sample::u64);
            assert_eq!(of("allostat_task_pids_current"), Some(1), "{id}");
            assert_eq!(of("allostat_alloc_info"), Some(1), "{id}");
            // Not known from one pass.
            assert!(body.all("allostat_task_restarts_total", &[("alloc_id", id)]).is_empty(), "{id}");
        }
        let began = Instant::now();
        let none = Exposition::parse(&pass("false").ok());
        let without = began.elapsed();
        assert!(
            took < without + Duration::from_secs(10) * patience(),
            "{took:?}, and {without:?} with nothing observed"
        );
        assert!(
            none.all("allostat_task_pids_current", &[("alloc_id", &ids[1])]).is_empty(),
            "observe.enabled is heeded"
        );
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
