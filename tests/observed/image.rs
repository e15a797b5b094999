//! The agent in a container of a real Docker, started as `deploy/README.md` says: of the image that this page builds,
//! and of that of a package.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{Docker, Exposition, allostat, free_address, is_root, make_rootfs, tcp, wait_for, xtask};
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

/// The libraries that the binary here wants, where this host has them.
fn libraries() -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(allostat()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// A base with those, as far as a distribution's has them.
fn make_base(docker: &Docker) {
    let root = docker.dir.path().join("base");
    make_rootfs(&root).expect("the daemon has one");
    for library in libraries() {
        let at = root.join(library.strip_prefix("/").unwrap());
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::copy(library, at).unwrap();
    }
    docker.import(&root, "base:1");
}

/// Starts an image of the agent as the container `monitor`, and waits until it answers.
fn start(docker: &Docker, image: &str, address: SocketAddr) {
    let home = docker.dir.path().display().to_string();
    let own = [
        "run".to_owned(),
        "--detach".to_owned(),
        "--name=monitor".to_owned(),
        format!("--volume={home}:{home}:ro"),
        format!("--env=ALLOSTAT_OBSERVE_DOCKER_SOCKET={}", docker.socket.display()),
        format!("--env=ALLOSTAT_LISTEN={address}"),
    ];
    let mut words: Vec<String> =
        own.into_iter().chain(documented(&docker.dir.path().join("state"))).chain([image.to_owned()]).collect();
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
    wait_for("the agent to answer", long() / 4, || {
        let runs = docker.inspect("monitor", "{{.State.Running}}");
        assert_eq!(runs, "true", "{}", output(docker));
        get(address, "/readyz")
    });
}

fn get(address: SocketAddr, target: &str) -> Option<String> {
    let answer = tcp(address, "GET", target, &[], b"").ok()?;
    (answer.status == 200).then(|| answer.text().to_owned())
}

fn output(docker: &Docker) -> String {
    String::from_utf8_lossy(&docker.docker(&["logs", "monitor"]).stderr).into_owned()
}

fn stop(docker: &Docker) {
    docker.docker(&["stop", "-t", "5", "monitor"]);
    assert_eq!(docker.inspect("monitor", "{{.State.ExitCode}}"), "0", "asked to end, it does: {}", output(docker));
}

/// The image of `cargo xtask package`, of the binary under test and the libraries of this host.
///
/// Promise (Under systemd): Docker loads the image of the package, and its agent measures the other containers
#[test]
fn image_of_the_package_is_loaded_by_docker_and_its_agent_measures_other_containers() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    // As packages of Debian have it.
    let (base, out) = (docker.dir.path().join("libc"), docker.dir.path().join("package"));
    let directory = base.join("lib/x86_64-linux-gnu");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::create_dir_all(&out).unwrap();
    for library in libraries() {
        std::fs::copy(&library, directory.join(library.file_name().unwrap())).unwrap();
    }
    let mut package = Command::new(xtask());
    package.args(["package", "--binary"]).arg(allostat()).arg("--image").arg(&base).arg(&out);
    let made = package.output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let archive = String::from_utf8(made.stdout).unwrap();
    let loaded = docker.docker(&["load", "--input", archive.trim_end()]);
    let image = format!("allostat:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8_lossy(&loaded.stdout), format!("Loaded image: {image}\n"), "{loaded:?}");
    std::fs::remove_dir_all(&out).unwrap();

    let version = docker.run(&["--rm", &image, "version"]);
    let own = Command::new(allostat()).arg("version").output().unwrap();
    assert_eq!((version.status.code(), &version.stdout), (Some(0), &own.stdout), "{version:?}");
    let before = docker.run(&["-d", "--name", "before", "-m", "64m", "bb:1", "sleep", "1000"]);
    assert!(before.status.success(), "{before:?}");
    let address = free_address();
    start(&docker, &image, address);
    let limit = wait_for("the other one under its name", long(), || {
        let metrics = Exposition::parse(&get(address, "/metrics")?);
        let sample = metrics.one("allostat_task_memory_limit_bytes", &[("alloc_id", "docker:before")]);
        sample.map(|sample| sample.f64())
    });
    assert_eq!(limit, (64 * MIB) as f64);
    // It has no shell, and its own command.
    let listed = docker.docker(&["exec", "monitor", "allostat", "status", "--all"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("docker:before"), "{listed:?}");
    stop(&docker);
}

/// Promise (Observed workloads): In a container, started as documented, the agent sees the others under their names,
/// with their ends
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
    let address = free_address();
    start(&docker, "allostat", address);
    let metrics = || Exposition::parse(&get(address, "/metrics").unwrap_or_default());
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
    assert!(of("allostat_task_memory_usage_bytes", "monitor").is_some_and(|bytes| bytes > 1e6), "{}", output(&docker));

    // One that ends has the end that Docker reports.
    docker.run(&["--name", "short", "bb:1", "sh", "-c", "sleep 0.3; exit 3"]);
    let over = wait_for("its end", long(), || {
        let over: Value = serde_json::from_str(&get(address, "/v1/allocs/docker:short")?).ok()?;
        Some(over).filter(|alloc| !alloc["finished_at"].is_null())
    });
    assert_eq!(over["tasks"]["short"]["last_exit"]["status"]["code"], 3, "{over}");
    stop(&docker);
}
