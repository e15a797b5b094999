//! A collector that others have written, with its own gRPC and HTTP.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use super::limit;
use crate::common::{Agent, AgentOptions, free_address, part_file, test_dir, wait_for};

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The value of a metric of one point that rotel shows below a resource of this service.
fn shown(log: &str, service: &str, metric: &str) -> Option<f64> {
    let of =
        log.split("Resource attributes:").find(|of| of.contains(&format!("Str({service})")) && of.contains(metric))?;
    let point = of.split(&format!("Name: {metric}\n")).nth(1)?;
    point.lines().find_map(|line| line.strip_prefix("Value: "))?.trim().parse().ok()
}

/// Points of metrics that rotel shows, of whatever kind.
fn points(log: &str) -> u64 {
    let kinds = ["NumberDataPoints #", "HistogramDataPoints #"];
    // `ExponentialHistogramDataPoints #` ends like the second.
    kinds.iter().map(|kind| log.matches(kind).count() as u64).sum()
}

#[test]
fn rotel_takes_everything_over_grpc_and_over_http() {
    let Some(program) = part_file("rotel", "rotel/rotel-agent") else { skip_test!("no-python") };
    let dir = test_dir();
    let rotel = dir.path().join("rotel-agent");
    // A wheel does not say that it can be run.
    std::fs::copy(program, &rotel).unwrap();
    std::fs::set_permissions(&rotel, std::fs::Permissions::from_mode(0o755)).unwrap();
    let version = Command::new(&rotel).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        skip_test!("no-libpython");
    }
    let (grpc, http) = (free_address(), free_address());
    let reported = dir.path().join("said");
    let output = File::create(&reported).unwrap();
    let child = Command::new(&rotel)
        .args([
            "start",
            "--exporter",
            "blackhole",
            "--debug-log",
            "metrics",
            "--debug-log",
            "logs",
            "--debug-log",
            "traces",
        ])
        .args(["--debug-log-verbosity", "detailed"])
        .args(["--otlp-grpc-endpoint", &grpc.to_string(), "--otlp-http-endpoint", &http.to_string()])
        .current_dir(dir.path())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn();
    let _rotel = Killed(child.unwrap());
    let config = format!(
        "otlp {{\n  endpoint = \"http://{http}\"\n  service_name = \"over-http\"\n  logs_tasks = \"stdout\"\n  interval = \"1s\"\n  destination \"grpc\" {{\n    \
         endpoint = \"{grpc}\"\n    protocol = \"grpc\"\n    insecure = true\n    logs_tasks = \"stdout\"\n    service_name = \"over-grpc\"\n    interval = \"1s\"\n    \
         compression = \"zstd\"\n  }}\n}}\n"
    );
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    let shown_by_both = wait_for("rotel to show both", limit(), || {
        let log = String::from_utf8_lossy(&std::fs::read(&reported).ok()?).into_owned();
        let of = |service| shown(&log, service, "system.memory.limit");
        Some([of("over-http")?, of("over-grpc")?])
    });
    agent.run(
        "job \"ends\" {\n type = \"batch\"\n group \"g\" {\n task \"t\" {\n driver = \"raw_exec\"\n config {\n command = \
         \"/bin/echo\"\n args = [\"output of a task\"]\n }\n }\n }\n}\n",
    );
    let trace = agent.alloc_ids()[0].replace('-', "");
    wait_for("rotel to show the logs and the trace of both", limit(), || {
        let log = String::from_utf8_lossy(&std::fs::read(&reported).ok()?).into_owned();
        let count = |text: &str| log.matches(text).count();
        let whole = [
            "EventName: allostat.task.terminated",
            "Name           : submit",
            "Name           : running",
            "Name           : alloc",
        ];
        let is_whole = whole.iter().all(|text| count(text) >= 2) && count("output of a task") == 2;
        (is_whole && count(&trace) > 16).then_some(())
    });
    let body = agent.metrics();
    assert_eq!(shown_by_both, [body.f64("allostat_host_memory_total_bytes", &[]); 2]);
    for destination in ["default", "grpc"] {
        let of = |what: &str| {
            let name = format!("allostat_otlp_points_{what}_total");
            let all = body.all(&name, &[("destination", destination)]);
            all.iter().map(|sample| sample.u64()).sum::<u64>()
        };
        for signal in ["logs", "traces"] {
            let labels = [("destination", destination), ("signal", signal)];
            assert!(body.u64("allostat_otlp_points_exported_total", &labels) >= 4, "{destination} {signal}");
        }
        assert!(of("exported") > 100 && of("rejected") + of("dropped") == 0, "{destination}");
    }
    // Not one point less than was taken, and not one more than was ever made.
    let of = |what: &str| -> u64 {
        let body = agent.metrics();
        let all = body.all(&format!("allostat_otlp_points_{what}_total"), &[("signal", "metrics")]);
        all.iter().map(|sample| sample.u64()).sum()
    };
    let taken = of("exported");
    let came = wait_for("rotel to show each point", limit(), || {
        let log = String::from_utf8_lossy(&std::fs::read(&reported).ok()?).into_owned();
        Some(points(&log)).filter(|came| *came >= taken)
    });
    // What was in flight at a mishap comes twice.
    let retries =
        agent.metrics().all("allostat_otlp_retries_total", &[]).iter().map(|sample| sample.u64()).sum::<u64>();
    assert!(retries > 0 || came <= of("enqueued"), "{came} came, {taken} were taken");
    agent.stop();
}
