//! The paths that systemd and runtimes give to cgroups, as their documentation and their tools show them, and what each
//! is to us.
//!
//! Promise (Observed workloads): Each runtime's cgroups are recognized by their paths; lookalikes belong to no runtime
//! Promise (Observed workloads): One cgroup is one task, once; those above it are none; what a container runs is the
//! container's

use allostat::model::alloc::AllocSource::{
    Containerd, Docker, Kubernetes, Libvirt, Lxc, Nomad, Podman, Slurm, Systemd,
};
use allostat::observe::identity::{AllocCgroupRule, RecognisedTask};
use allostat::observe::tree::{CgroupTree, TaskCgroup};

const ID: &str = "3f2a9c0b1d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcd";
const SHORT: &str = "3f2a9c0b1d4e";
const UUID: &str = "8d4c3a52-5ef4-4b2e-9c4d-0a1b2c3d4e5f";

/// Where no directory belongs to a user.
fn identify(path: &str) -> Option<(String, RecognisedTask)> {
    CgroupTree::new("/allostat").identify(path)
}

/// `{id}` is a container's, `{uuid}` a pod's or an alloc's, `{uuid_}` the same as systemd's slices have it.
fn path(pattern: &str) -> String {
    pattern.replace("{id}", ID).replace("{uuid_}", &UUID.replace('-', "_")).replace("{uuid}", UUID)
}

/// Each path with what it is: source, alloc, task, workload.
#[test]
fn each_runtimes_cgroups_are_recognised() {
    let own = |name: &str| format!("1000/{name}");
    let expected = [
        // Docker.
        ("/system.slice/docker-{id}.scope", Docker, SHORT, SHORT, ""),
        ("/docker/{id}", Docker, SHORT, SHORT, ""),
        ("/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{id}.scope", Docker, &own(SHORT), SHORT, ""),
        // Docker below a custom parent: `--cgroup-parent`, `cgroup_parent`, Amazon ECS.
        ("/ecs/0123456789abcdef0123456789abcdef/{id}", Docker, SHORT, SHORT, ""),
        ("/custom/{id}", Docker, SHORT, SHORT, ""),
        ("/a/b/pod{uuid}/{id}", Docker, SHORT, SHORT, ""),
        ("/system.slice/{id}", Docker, SHORT, SHORT, ""),
        ("/nomad/{id}", Docker, SHORT, SHORT, ""),
        ("/{id}", Docker, SHORT, SHORT, ""),
        // Podman.
        ("/machine.slice/libpod-{id}.scope", Podman, SHORT, SHORT, ""),
        ("/libpod_parent/libpod-{id}", Podman, SHORT, SHORT, ""),
        ("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{id}.scope", Podman, &own(SHORT), SHORT, ""),
        ("/system.slice/web.service/libpod-payload-{id}", Podman, "web.service", "web.service", "web.service"),
        // containerd.
        ("/default/redis", Containerd, "redis", "redis", ""),
        ("/default/{id}", Containerd, SHORT, SHORT, ""),
        ("/system.slice/nerdctl-{id}.scope", Containerd, SHORT, SHORT, ""),
        // Kubernetes.
        ("/kubepods/burstable/pod{uuid}/{id}", Kubernetes, UUID, SHORT, ""),
        ("/kubepods/pod{uuid}/{id}", Kubernetes, UUID, SHORT, ""),
        ("/kubepods/besteffort/pod{uuid}/crio-{id}", Kubernetes, UUID, SHORT, ""),
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uuid_}.slice/cri-containerd-{id}.scope",
            Kubernetes,
            UUID,
            SHORT,
            "",
        ),
        ("/kubepods.slice/kubepods-pod{uuid_}.slice/crio-{id}.scope", Kubernetes, UUID, SHORT, ""),
        ("/kubepods.slice/kubepods-pod{uuid_}.slice/docker-{id}.scope", Kubernetes, UUID, SHORT, ""),
        // The kubelet has the systemd driver, its runtime the other one.
        (
            "/system.slice/containerd.service/kubepods-burstable-pod{uuid_}.slice:cri-containerd:{id}",
            Kubernetes,
            UUID,
            SHORT,
            "",
        ),
        ("/system.slice/crio.service/kubepods-pod{uuid_}.slice:crio:{id}", Kubernetes, UUID, SHORT, ""),
        // crun and youki make it at the root.
        ("/kubepods-pod{uuid_}.slice:cri-containerd:{id}", Kubernetes, UUID, SHORT, ""),
        (
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{uuid_}.slice/cri-containerd-{id}.scope",
            Kubernetes,
            UUID,
            SHORT,
            "",
        ),
        (
            "/kubepods/burstable/pod0123456789abcdef0123456789abcdef/{id}",
            Kubernetes,
            "0123456789abcdef0123456789abcdef",
            SHORT,
            "",
        ),
        // Nomad.
        ("/nomad.slice/share.slice/{uuid}.web.scope", Nomad, UUID, "web", ""),
        ("/nomad.slice/reserve.slice/{uuid}.web.scope", Nomad, UUID, "web", ""),
        ("/nomad.slice/{uuid}.web.v2.scope", Nomad, UUID, "web.v2", ""),
        ("/nomad/{uuid}.web", Nomad, UUID, "web", ""),
        ("/nomad/share/{uuid}.web", Nomad, UUID, "web", ""),
        // Slurm.
        ("/slurm/uid_1000/job_42/step_batch", Slurm, "42", "batch", ""),
        ("/slurm/uid_1000/job_42/step_0", Slurm, "42", "0", ""),
        ("/slurm_node7/uid_1000/job_42/step_extern", Slurm, "42", "extern", ""),
        ("/system.slice/slurmstepd.scope/job_7/step_0", Slurm, "7", "0", ""),
        ("/system.slice/node7_slurmstepd.scope/job_7/step_interactive", Slurm, "7", "interactive", ""),
        ("/system.slice/slurmstepd.scope/s7Q2MMXBYH4E00/step_0", Slurm, "s7Q2MMXBYH4E00", "0", ""),
        ("/slurm/uid_1000/s7Q2MMXBYH4E00/step_batch", Slurm, "s7Q2MMXBYH4E00", "batch", ""),
        // LXC, libvirt.
        ("/lxc.payload.web", Lxc, "web", "web", "web"),
        ("/lxc.payload/web", Lxc, "web", "web", "web"),
        ("/lxc/web", Lxc, "web", "web", "web"),
        ("/lxc/{id}", Lxc, ID, ID, ID),
        ("/user.slice/user-1000.slice/session-2.scope/lxc.payload.web", Lxc, "web", "web", "web"),
        ("/machine.slice/machine-qemu\\x2d1\\x2ddb\\x2dserver.scope", Libvirt, "db-server", "db-server", "db-server"),
        ("/machine/qemu-12-web.libvirt-qemu", Libvirt, "web", "web", "web"),
        ("/machine/web.libvirt-qemu", Libvirt, "web", "web", "web"),
        // systemd.
        ("/system.slice/nginx.service", Systemd, "nginx.service", "nginx.service", "nginx.service"),
        ("/init.scope", Systemd, "init.scope", "init.scope", ""),
        (
            "/system.slice/system-getty.slice/getty@tty1.service",
            Systemd,
            "getty@tty1.service",
            "getty@tty1.service",
            "getty@.service",
        ),
        (
            "/user.slice/user-1000.slice/session-3.scope",
            Systemd,
            "session-3.scope",
            "session-3.scope",
            "user-1000.slice",
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/a.service",
            Systemd,
            "1000/a.service",
            "a.service",
            "1000/a.service",
        ),
        (
            "/machine.slice/systemd-nspawn@web.service",
            Systemd,
            "systemd-nspawn@web.service",
            "systemd-nspawn@web.service",
            "machine.slice",
        ),
    ];
    for (pattern, source, alloc, task, workload) in expected {
        let at = path(pattern);
        let (whole, found) = identify(&at).unwrap_or_else(|| panic!("{pattern} has no source"));
        let naming = &found.naming;
        let seen =
            (found.source, naming.native.as_str(), naming.task.as_str(), naming.workload.as_deref().unwrap_or(""));
        assert_eq!((whole.as_str(), seen), (at.as_str(), (source, alloc, task, workload)), "{pattern}");
    }
}

#[test]
fn cgroup_paths_inside_of_a_task_belong_to_the_task() {
    let inside = [
        ("/docker/{id}/system.slice/inner.service", "/docker/{id}"),
        ("/ecs/task/{id}/docker/{id}", "/ecs/task/{id}"),
        ("/docker/{id}/kubepods/pod{uuid}/{id}", "/docker/{id}"),
        ("/machine.slice/libpod-{id}.scope/container", "/machine.slice/libpod-{id}.scope"),
        ("/slurm/uid_1000/job_42/step_0/task_3", "/slurm/uid_1000/job_42/step_0"),
        ("/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", "/system.slice/slurmstepd.scope/job_7/step_0"),
        (
            "/machine.slice/machine-qemu\\x2d1\\x2da.scope/libvirt/vcpu0",
            "/machine.slice/machine-qemu\\x2d1\\x2da.scope",
        ),
        ("/lxc.payload.web/init.scope", "/lxc.payload.web"),
        (
            "/machine.slice/systemd-nspawn@web.service/payload/system.slice/docker-{id}.scope",
            "/machine.slice/systemd-nspawn@web.service",
        ),
        ("/machine.slice/machine-web.scope/payload/system.slice/nginx.service", "/machine.slice/machine-web.scope"),
        (
            "/machine.slice/systemd-nspawn@web.service/payload/system.slice/nginx.service",
            "/machine.slice/systemd-nspawn@web.service",
        ),
        // Machines under a unit of another name.
        (
            "/system.slice/container@web.service/payload/system.slice/docker-{id}.scope",
            "/system.slice/container@web.service",
        ),
        ("/system.slice/container@web.service/payload/docker/{id}", "/system.slice/container@web.service"),
        (
            "/system.slice/container@web.service/payload/user.slice/user@1000.service/app.slice/a.service",
            "/system.slice/container@web.service",
        ),
        ("/system.slice/container@web.service/payload/kubepods/pod{uuid}/{id}", "/system.slice/container@web.service"),
        (
            "/system.slice/containerd.service/kubepods-pod{uuid_}.slice:cri-containerd:{id}/inner/{id}",
            "/system.slice/containerd.service/kubepods-pod{uuid_}.slice:cri-containerd:{id}",
        ),
        ("/system.slice/own.service/system.slice/nginx.service", "/system.slice/own.service"),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/a.service/b.service",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/a.service",
        ),
        ("/system.slice/own.service/worker/7", "/system.slice/own.service"),
    ];
    for (pattern, whole) in inside {
        assert_eq!(identify(&path(pattern)).map(|(at, _)| at), Some(path(whole)), "{pattern}");
    }
}

#[test]
fn parents_helpers_and_lookalikes_of_runtimes_have_no_source() {
    for pattern in [
        "/",
        "/system.slice",
        "/docker",
        "/docker/buildx",
        "/docker/0123",
        "/kubepods/burstable/pod{uuid}",
        "/kubepods.slice/kubepods-pod{uuid_}.slice",
        "/kubepods/burstable/pod{uuid}/cri-containerd-short.scope/x",
        "/system.slice/crio-conmon-{id}.scope",
        "/machine.slice/libpod-conmon-{id}.scope",
        "/libpod_parent/conmon",
        "/system.slice/web.service/runtime",
        "/system.slice/slurmstepd.scope/s7Q2MMXBYH4E00",
        "/system.slice/slurmstepd.scope/s7Q2MMXBYH4E0/step_0",
        "/system.slice/slurmstepd.scope/s7Q2MMXBYH4EIL/step_0",
        "/lxc.monitor.web",
        "/slurm/uid_1000/job_42",
        "/slurm/uid_1000",
        "/slurm/system",
        "/nomad/{uuid}",
        "/nomad.slice/share.slice/web.scope.d",
        "/{uuid}.web",
        "/ecs/0123456789abcdef0123456789abcdef",
        "/custom/x{id}",
        "/custom/{id}0",
        "/machine/notes.txt",
        "/sys-kernel-debug.mount",
        "/.service",
        "/a/b/c",
    ] {
        let found = identify(&path(pattern));
        assert!(found.as_ref().is_none_or(|(at, _)| *at != path(pattern)), "{pattern}: {found:?}");
    }
}

/// What one host has, as `find -type d` lists it, and what is a task of it.
fn tasks(listing: &str) -> Vec<(String, &'static str)> {
    let mut tree = CgroupTree::new("/allostat");
    for line in listing.lines().map(str::trim).filter(|line| !line.is_empty()) {
        tree.add(0, &path(line));
    }
    let word = |cgroup: TaskCgroup<'_>| match cgroup {
        TaskCgroup::Recognised(task) => task.source.as_str(),
        TaskCgroup::Plain => "cgroup",
    };
    let mut tasks = Vec::new();
    tree.each_task(|path, cgroup| tasks.push((path.replace(ID, "{id}").replace(UUID, "{uuid}"), word(cgroup))));
    tasks
}

#[test]
fn a_node_of_kubernetes_under_systemd_has_each_container_once() {
    let found = tasks(
        "/init.scope
         /system.slice
         /system.slice/containerd.service
         /system.slice/kubelet.service
         /system.slice/systemd-journald.service
         /system.slice/tmp.mount
         /kubepods.slice
         /kubepods.slice/kubepods-besteffort.slice
         /kubepods.slice/kubepods-burstable.slice
         /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uuid_}.slice
         /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uuid_}.slice/cri-containerd-{id}.scope
         /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uuid_}.slice/cri-containerd-{id}.scope/inner",
    );
    let pod = path("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uuid_}.slice");
    let container = format!("{pod}/cri-containerd-{{id}}.scope");
    let expected = [
        ("/init.scope", "systemd"),
        (&container, "kubernetes"),
        ("/system.slice/containerd.service", "systemd"),
        ("/system.slice/kubelet.service", "systemd"),
        ("/system.slice/systemd-journald.service", "systemd"),
    ];
    assert_eq!(found, expected.map(|(path, word)| (path.to_owned(), word)));
}

/// The host's own nginx is a task, what a machine runs under that name is part of the machine.
#[test]
fn units_of_a_machine_are_not_taken_for_those_of_the_host() {
    let found = tasks(
        "/machine.slice
         /machine.slice/systemd-nspawn@web.service
         /machine.slice/systemd-nspawn@web.service/payload
         /machine.slice/systemd-nspawn@web.service/payload/system.slice
         /machine.slice/systemd-nspawn@web.service/payload/system.slice/nginx.service
         /machine.slice/systemd-nspawn@web.service/payload/init.scope
         /machine.slice/systemd-nspawn@web.service/supervisor
         /system.slice
         /system.slice/container@db.service
         /system.slice/container@db.service/payload
         /system.slice/container@db.service/payload/system.slice
         /system.slice/container@db.service/payload/system.slice/nginx.service
         /system.slice/container@db.service/payload/docker/{id}
         /system.slice/container@db.service/supervisor
         /system.slice/nginx.service",
    );
    let expected = [
        ("/machine.slice/systemd-nspawn@web.service", "systemd"),
        ("/system.slice/container@db.service", "systemd"),
        ("/system.slice/nginx.service", "systemd"),
    ];
    assert_eq!(found, expected.map(|(path, word)| (path.to_owned(), word)));
}

#[test]
fn a_host_of_slurm_and_docker_on_v1_has_each_step_and_container_once() {
    let found = tasks(
        "/docker
         /docker/{id}
         /docker/{id}/docker
         /slurm
         /slurm/uid_1000
         /slurm/uid_1000/job_42
         /slurm/uid_1000/job_42/step_batch
         /slurm/uid_1000/job_42/step_batch/task_0
         /slurm/uid_1000/job_42/step_extern
         /slurm/uid_1000/job_43
         /system
         /system/sshd
         /allostat
         /allostat/x",
    );
    let expected = [
        ("/docker/{id}", "docker"),
        ("/slurm/uid_1000/job_42/step_batch", "slurm"),
        ("/slurm/uid_1000/job_42/step_extern", "slurm"),
        ("/system/sshd", "cgroup"),
    ];
    assert_eq!(found, expected.map(|(path, word)| (path.to_owned(), word)));
}

/// Promise (Observed workloads): A Docker container is recognized below any parent; a lookalike stays plain if Docker
/// does not know it
#[test]
fn amazon_ecs_host_has_each_container_once_and_no_managed_cgroup() {
    let found = tasks(
        "/ecs
         /ecs/0123456789abcdef0123456789abcdef
         /ecs/0123456789abcdef0123456789abcdef/{id}
         /ecs/0123456789abcdef0123456789abcdef/{id}/inner
         /batch
         /batch/1
         /allostat
         /allostat/{id}",
    );
    let expected = [("/batch/1", "cgroup"), ("/ecs/0123456789abcdef0123456789abcdef/{id}", "docker")];
    assert_eq!(found, expected.map(|(path, word)| (path.to_owned(), word)));
}

#[test]
fn the_alloc_of_a_pod_and_of_a_job_is_the_cgroup_above_its_tasks() {
    let own = |pattern: &str| identify(&path(pattern)).unwrap().1.alloc_cgroup;
    assert_eq!(own("/kubepods/pod{uuid}/{id}"), AllocCgroupRule::Parent);
    assert_eq!(own("/slurm/uid_1/job_2/step_0"), AllocCgroupRule::Parent);
    assert_eq!(own("/nomad/{uuid}.web"), AllocCgroupRule::None);
    assert_eq!(own("/docker/{id}"), AllocCgroupRule::Task);
}

/// Every name that a runtime gives, in a directory of a user's: his own, under his namespace, and none that hides what
/// runs there.
#[test]
fn cgroups_named_by_a_user_belong_to_the_user_and_none_is_hidden() {
    let mut tree = CgroupTree::new("/allostat");
    tree.delegate("/jobs/u", 1001);
    for (pattern, alloc, workload) in [
        ("/jobs/u/docker-{id}.scope", &*format!("1001/{SHORT}"), None),
        ("/jobs/u/{id}", &format!("1001/{SHORT}"), None),
        ("/jobs/u/libpod-{id}.scope", &format!("1001/{SHORT}"), None),
        ("/jobs/u/cri-containerd-{id}.scope", &format!("1001/{SHORT}"), None),
        ("/jobs/u/kubepods/pod{uuid}/{id}", &format!("1001/{UUID}"), None),
        ("/jobs/u/nomad.slice/{uuid}.t.scope", &format!("1001/{UUID}"), None),
        ("/jobs/u/slurmstepd.scope/job_7/step_0", "1001/7", None),
        ("/jobs/u/lxc.payload.web", "1001/web", Some("1001/web")),
        ("/jobs/u/machine-qemu\\x2d1\\x2d\\x2ftmp\\x2fz.scope", "1001//tmp/z", Some("1001//tmp/z")),
        ("/jobs/u/system.slice/nginx.service", "1001/nginx.service", Some("1001/nginx.service")),
        ("/jobs/u/user@0.service/system.slice/nginx.service", "1001/nginx.service", Some("1001/nginx.service")),
    ] {
        let (at, found) = tree.identify(&path(pattern)).unwrap_or_else(|| panic!("{pattern} has no source"));
        let naming = &found.naming;
        let seen = (&*at, found.user, &*naming.native, naming.workload.as_deref(), naming.user.as_deref());
        assert_eq!(seen, (&*path(pattern), Some(1001), alloc, workload, Some("1001")), "{pattern}");
    }
    let hidden = ["lxc.monitor.x", "crio-conmon-z", "libpod-conmon-z", "hide.slice", "a/runtime", "lxc.monitor/x"];
    for name in hidden {
        tree.add(0, &format!("/jobs/u/{name}"));
    }
    let mut shown = Vec::new();
    tree.each_task(|path, cgroup| shown.push((path.to_owned(), cgroup == TaskCgroup::Plain)));
    assert_eq!(shown.len(), hidden.len(), "{shown:?}");
    assert!(shown.iter().all(|(_, is_plain)| *is_plain), "{shown:?}");
    // What root alone can name is what it was.
    assert_eq!(tree.identify(&path("/jobs/docker-{id}.scope")).unwrap().1.naming.native, SHORT);
    assert_eq!(tree.identify(&path("/jobs/u")), None);
}

/// The directory of a unit is its user's as soon as systemd gives it to him, and what he made there stays his after it
/// is gone.
#[test]
fn owner_of_a_removed_directory_is_remembered_for_a_while() {
    let mut tree = CgroupTree::new("/allostat");
    tree.add(0, "/system.slice/a.service");
    tree.delegate("/system.slice/a.service", 1001);
    tree.remove(0, "/system.slice/a.service");
    let user = |tree: &CgroupTree| tree.chooser("/system.slice/a.service/nomad.slice/x");
    tree.forget_removed();
    assert_eq!(user(&tree), Some(1001));
    tree.forget_removed();
    assert_eq!(user(&tree), None);
}
