//! Host volumes in containers.

use super::{alloc_of, job, logs, long, over};
use crate::common::{Agent, Docker, is_root, wait_for};

#[test]
fn a_container_has_its_host_volumes_and_cannot_write_a_read_only_one() {
    if !is_root() {
        skip_test!("not-root");
    }
    let Some(docker) = Docker::start() else { skip_test!("no-docker") };
    let top = tempfile::tempdir().unwrap();
    let (data, certs) = (top.path().join("data"), top.path().join("certs"));
    for path in [&data, &certs] {
        std::fs::create_dir(path).unwrap();
    }
    std::fs::write(certs.join("ca"), "authority\n").unwrap();
    let mut options = docker.driver();
    options.config +=
        &format!("\nnode {{\n  host_volumes = [\"data={}\", \"certs={}:ro\"]\n}}\n", data.display(), certs.display());
    let agent = Agent::with(options);
    let script = "busybox cat /certs/ca; echo written > /data/out; (echo x > /certs/no) 2> /dev/null || echo refused";
    let mounts = "volume_mount {\n volume = \"data\"\n destination = \"/data\"\n}\n volume_mount {\n volume = \"certs\"\n \
                  destination = \"/certs\"\n}\n";
    let volume =
        |name: &str, more: &str| format!("volume \"{name}\" {{\n type = \"host\"\n source = \"{name}\"\n {more}\n}}\n");
    let in_group = format!("{}{}task \"main\"", volume("data", ""), volume("certs", "read_only = true"));
    agent.run(&job("stored", "batch", script, mounts).replace("task \"main\"", &in_group));
    let alloc = wait_for("its end", long(), || over(&agent, "stored"));
    assert_eq!(alloc["status"], "complete", "{alloc}");
    assert_eq!(logs(&agent, &alloc_of(&agent, "stored").unwrap()), "authority\nrefused\n");
    assert_eq!(std::fs::read_to_string(data.join("out")).unwrap(), "written\n");
    assert!(!certs.join("no").exists());
    agent.stop();
}
