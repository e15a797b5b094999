//! What a container sees of the fields of its config and resources.

use std::fs;

use super::{MIB, alloc_of, job, logs, long, over};
use crate::common::{Agent, Docker, Sample, is_root, wait_for};
use crate::plugins::Plugins;

#[test]
fn container_has_the_limits_mounts_and_rights_of_its_config() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let mut options = docker.driver();
    options.config += "\ndocker {\n  volumes_enabled = true\n}\n";
    let agent = Agent::with(options);
    let given = agent.data_dir().join("given");
    fs::create_dir(&given).unwrap();
    fs::write(given.join("file"), "bound\n").unwrap();
    let script = "echo from entrypoint $0
        busybox grep -E 'Max open files|Max core' /proc/self/limits
        busybox grep -E 'CapEff|NoNewPrivs|Cpus_allowed_list' /proc/self/status
        busybox grep -E ' /dev/shm | /scratch ' /proc/mounts
        (echo x > /in-root) 2> /dev/null || echo read-only root
        echo x > /scratch/x && echo scratch
        busybox cat /bound/file
        (echo x > /bound/y) 2> /dev/null || echo read-only mount
        busybox cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2> /dev/null
        busybox test -c /dev/of-host && echo device
        busybox hostname
        busybox sleep 1000";
    let config = format!(
        r#"entrypoint = ["sh", "-c", {script:?}, "arg"]
        ulimit {{
          nofile = "123:456"
          core   = "0"
        }}
        cap_drop        = ["all"]
        cap_add         = ["net_bind_service"]
        security_opt    = ["no-new-privileges"]
        readonly_rootfs = true
        shm_size        = 1048576
        pids_limit      = 77
        hostname        = "inside"
        devices = [{{
          host_path          = "/dev/null"
          container_path     = "/dev/of-host"
        }}]
        mount {{
          type   = "tmpfs"
          target = "/scratch"
          tmpfs_options {{
            size = 65536
          }}
        }}
        mount {{
          type     = "bind"
          source   = "{}"
          target   = "/bound"
          readonly = true
        }}
        network_mode = "none""#,
        given.display()
    );
    let job = job("fields", "service", "", "resources {\n cores = 1\n memory = 32\n memory_max = -1\n }")
        .replace("network_mode = \"none\"", &config)
        .replace("command      = \"sh\"\n", "")
        .replace("args         = [\"-c\", \"\"]\n", "");
    agent.run(&job);
    let alloc = wait_for("the container to run", long(), || {
        alloc_of(&agent, "fields").filter(|alloc| alloc["tasks"]["main"]["state"] == "running")
    });
    let output =
        wait_for("its output", long(), || Some(logs(&agent, &alloc)).filter(|output| output.contains("inside")));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = output.lines().map(words).collect();
    let core = alloc["cores"].as_array().and_then(|cores| cores.first()).and_then(serde_json::Value::as_u64);
    let core = core.or_else(|| lines.iter().find_map(|line| line.strip_prefix("Cpus_allowed_list: ")?.parse().ok()));
    for expected in [
        "from entrypoint arg",
        "Max open files 123 456 files",
        "Max core file size 0 0 bytes",
        // net_bind_service alone is bit 10.
        "CapEff: 0000000000000400",
        "NoNewPrivs: 1",
        &format!("Cpus_allowed_list: {}", core.expect("one core, not a range")),
        "read-only root",
        "scratch",
        "bound",
        "read-only mount",
        "77",
        "device",
        "inside",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}: {output}");
    }
    let mount = |place: &str, option: &str| {
        let line = lines.iter().find(|line| line.contains(&format!(" {place} ")));
        assert!(line.is_some_and(|line| line.contains(option)), "{place} {option}: {output}");
    };
    mount("/dev/shm", "size=1024k");
    mount("/scratch", "size=64k");
    // Without a limit; `memory` is the reservation.
    let id = alloc["id"].as_str().unwrap();
    let limits = docker.inspect(&format!("main-{id}"), "{{.HostConfig.Memory}} {{.HostConfig.MemoryReservation}}");
    assert_eq!(limits, format!("0 {}", 32 * MIB));
    let limit = agent.metrics().one("allostat_task_memory_limit_bytes", &[("alloc_id", id)]).map(Sample::f64);
    assert_eq!(limit, None, "a container without a limit has none");
    agent.cli(&["stop", id]).ok();
    wait_for("its end", long(), || over(&agent, "fields"));
    agent.stop();
}

#[test]
fn container_gets_the_kill_signal_of_its_job_and_its_stop_is_no_failure() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let agent = Agent::with(docker.driver());
    let script = "trap 'echo got INT; exit 0' INT; echo ready; while :; do busybox sleep 0.1; done";
    agent.run(&job("asked", "service", script, "kill_signal = \"SIGINT\"\n kill_timeout = \"60s\""));
    let alloc = wait_for("the trap", long(), || {
        alloc_of(&agent, "asked").filter(|alloc| logs(&agent, alloc).contains("ready"))
    });
    agent.cli(&["stop", alloc["id"].as_str().unwrap()]).ok();
    let alloc = wait_for("its end", long(), || over(&agent, "asked"));
    assert_eq!(logs(&agent, &alloc), "ready\ngot INT\n");
    assert_eq!((&alloc["status"], &alloc["tasks"]["main"]["failed"]), (&"complete".into(), &false.into()), "{alloc}");
    agent.stop();
}

/// Promise (Device plugins): Node, mount and variables of a reserved device are in the container of its task
#[test]
fn reserved_device_of_a_plugin_is_in_the_container_of_its_task() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(plugins) = Plugins::new() else { skip_test!("no-python") };
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    plugins.add("sound", "");
    let agent = Agent::with(plugins.with(docker.driver()));
    wait_for("the device", long(), || {
        agent.metrics().one("allostat_device_up", &[("device_uuid", "sound-0")]).filter(|up| up.f64() == 1.0).map(drop)
    });
    // The plugin's node is the host's /dev/null.
    let script = "echo $ACME_VISIBLE_DEVICES; busybox test -c /dev/acme0 && echo x > /dev/acme0 && echo written; \
                  busybox stat -c %t:%T /dev/acme0; busybox test -d /opt/acme/bin && echo mounted; \
                  (echo y > /opt/acme/y) 2> /dev/null || echo read-only";
    agent.run(&job("device", "batch", script, "resources {\n device \"acme/fpga\" {\n }\n }"));
    let alloc = wait_for("its end", long(), || over(&agent, "device"));
    assert_eq!(logs(&agent, &alloc), "sound-0\nwritten\n1:3\nmounted\nread-only\n", "{alloc}");
    agent.stop();
}
