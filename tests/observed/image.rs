//! The agent in a container of a real Docker, built and started as `deploy/README.md` says.
//!
//! Promise (Observed workloads): In a container, started as documented, the agent sees the others under their names,
//! with their ends

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{Docker, Exposition, allostat, free_address, is_root, make_rootfs, tcp, wait_for};
use crate::observed::docker::{MIB, long};

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

/// What `docker run` gets there but for the name. `data`: what stands for its directory of data here.
fn documented(data: &Path) -> Vec<String> {
    let page = std::fs::read_to_string(Path::new(REPOSITORY).join("deploy/README.md")).unwrap().replace("\\\n", " ");
    let line = page.lines().find_map(|line| line.strip_prefix("docker run --detach --name=allostat ")).expect("a line");
    let (flags, image) = line.trim().rsplit_once(' ').expect("an image");
    assert_eq!(image, "allostat");
    let own = format!("--volume={}:", data.display());
    flags.split_whitespace().map(|flag| flag.replace("--volume=/var/lib/allostat:", &own)).collect()
}

/// A base with the libraries that the binary here wants, as far as a distribution's has them.
fn make_base(docker: &Docker) {
    let root = docker.dir.path().join("base");
    make_rootfs(&root).expect("the daemon has one");
    let output = Command::new("ldd").arg(allostat()).output().unwrap();
    for library in String::from_utf8(output.stdout).unwrap().split_whitespace().filter(|word| word.starts_with('/')) {
        let at = root.join(library.trim_start_matches('/'));
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::copy(library, at).unwrap();
    }
    docker.import(&root, "base:1");
}

#[test]
fn in_a_container_of_its_own_it_sees_those_beside_it_under_their_names() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    make_base(&docker);
    let context = docker.dir.path().join("image");
    std::fs::create_dir(&context).unwrap();
    std::fs::copy(allostat(), context.join("allostat")).unwrap();
    let file = Path::new(REPOSITORY).join("deploy/Dockerfile").display().to_string();
    let words = ["build", "--build-arg=BASE=base:1", "--tag=allostat", "--file", &file, &context.display().to_string()];
    let built = docker.docker(&words);
    assert!(built.status.success(), "{built:?}");

    let before = docker.run(&["-d", "--name", "before", "-m", "64m", "bb:1", "sleep", "1000"]);
    assert!(before.status.success(), "{before:?}");
    let (address, home) = (free_address(), docker.dir.path().display().to_string());
    let own = [
        "run".to_owned(),
        "--detach".to_owned(),
        "--name=monitor".to_owned(),
        format!("--volume={home}:{home}:ro"),
        format!("--env=ALLOSTAT_OBSERVE_DOCKER_SOCKET={}", docker.socket.display()),
        format!("--env=ALLOSTAT_LISTEN={address}"),
    ];
    let mut words: Vec<String> =
        own.into_iter().chain(documented(&docker.dir.path().join("state"))).chain(["allostat".to_owned()]).collect();
    let start = |words: &[String]| docker.docker(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let mut started = start(&words);
    if String::from_utf8_lossy(&started.stderr).contains("unknown capability") {
        words
            .iter_mut()
            .filter(|word| *word == "--cap-add=BPF")
            .for_each(|word| *word = "--cap-add=SYS_ADMIN".to_owned());
        words.retain(|word| word != "--cap-add=PERFMON");
        started = start(&words);
    }
    assert!(started.status.success(), "{started:?}");
    let get = |target: &str| {
        let answer = tcp(address, "GET", target, &[], b"").ok()?;
        (answer.status == 200).then(|| answer.text().to_owned())
    };
    let output = || String::from_utf8_lossy(&docker.docker(&["logs", "monitor"]).stderr).into_owned();
    wait_for("the agent to answer", long() / 4, || {
        let runs = docker.inspect("monitor", "{{.State.Running}}");
        assert_eq!(runs, "true", "{}", output());
        get("/readyz")
    });
    let metrics = || Exposition::parse(&get("/metrics").unwrap_or_default());
    let of = |family: &str, name: &str| {
        metrics().one(family, &[("alloc_id", &format!("docker:{name}"))]).map(|sample| sample.f64())
    };
    // What was there before it, what came after, and itself.
    docker.run(&["-d", "--name", "after", "-m", "64m", "bb:1", "sh", "-c", "while :; do :; done"]);
    for name in ["before", "after"] {
        let limit = wait_for("it under its name", long(), || of("allostat_task_memory_limit_bytes", name));
        assert_eq!(limit, (64 * MIB) as f64, "{name}");
    }
    wait_for("CPU time", long(), || of("allostat_task_cpu_usage_seconds_total", "after").filter(|cpu| *cpu > 0.1));
    assert!(of("allostat_task_memory_usage_bytes", "monitor").is_some_and(|bytes| bytes > 1e6), "{}", output());

    // One that ends has the end that Docker reports.
    docker.run(&["--name", "short", "bb:1", "sh", "-c", "sleep 0.3; exit 3"]);
    let over = wait_for("its end", long(), || {
        let over: Value = serde_json::from_str(&get("/v1/allocs/docker:short")?).ok()?;
        Some(over).filter(|alloc| !alloc["finished_at"].is_null())
    });
    assert_eq!(over["tasks"]["short"]["last_exit"]["status"]["code"], 3, "{over}");
    docker.docker(&["stop", "-t", "5", "monitor"]);
    assert_eq!(docker.inspect("monitor", "{{.State.ExitCode}}"), "0", "asked to end, it does: {}", output());
}
