//! Settings of observed workloads.

use super::setting::{Setting, SettingKind};
use super::values::{absolute, each, listed, observed_sources, size, written};
use crate::observe::{ObservedPattern, WorkloadRule};

pub(super) static SETTINGS: &[Setting] = &[
    Setting {
        stanza: "observe",
        key: "enabled",
        env: "ALLOSTAT_OBSERVE",
        about: "Observe allocs of other runtimes (services, containers, pods, jobs, plain cgroups) beside managed \
                ones. They are only read.",
        kind: SettingKind::Bool(|c, on| c.observe.enabled = on),
        get: |c| Some(c.observe.enabled.to_string()),
    },
    Setting {
        stanza: "observe",
        key: "sources",
        env: "ALLOSTAT_OBSERVE_SOURCES",
        about: "Sources to observe: systemd, docker, podman, containerd, kubernetes, nomad, slurm, lxc, libvirt, \
                cgroup. Default: all.",
        kind: SettingKind::Texts(|c, words| {
            c.observe.sources = observed_sources(&words)?;
            Ok(())
        }),
        get: |c| listed(&c.observe.sources.iter().map(|source| source.as_str().to_owned()).collect::<Vec<_>>()),
    },
    Setting {
        stanza: "observe",
        key: "processes",
        env: "ALLOSTAT_OBSERVE_PROCESSES",
        about: "Observe processes without a cgroup of their own as well, by process group. This reads each process \
                of the host every second.",
        kind: SettingKind::Bool(|c, on| c.observe.processes = on),
        get: |c| Some(c.observe.processes.to_string()),
    },
    Setting {
        stanza: "observe",
        key: "include",
        env: "ALLOSTAT_OBSERVE_INCLUDE",
        about: "Allocs to observe: IDs, as in `allostat status`; image:registry.example/ci-*; \
                label:com.example.team=core. * is any text. Default: all.",
        kind: SettingKind::Texts(|c, texts| {
            c.observe.include = each(&texts, ObservedPattern::parse)?;
            Ok(())
        }),
        get: |c| written(&c.observe.include),
    },
    Setting {
        stanza: "observe",
        key: "exclude",
        env: "ALLOSTAT_OBSERVE_EXCLUDE",
        about: "Allocs not to observe, even if in the other list; same syntax. Default: none.",
        kind: SettingKind::Texts(|c, texts| {
            c.observe.exclude = each(&texts, ObservedPattern::parse)?;
            Ok(())
        }),
        get: |c| written(&c.observe.exclude),
    },
    Setting {
        stanza: "observe",
        key: "workloads",
        env: "ALLOSTAT_OBSERVE_WORKLOADS",
        about: "Workload of allocs whose names are used once, by the first rule that matches: \"cgroup:/ci/* -> \
                ci\", or from a label: \"label:com.example.job=* -> label:com.example.project\". Default: none, the \
                name that the source gives.",
        kind: SettingKind::Texts(|c, texts| {
            c.observe.workloads = each(&texts, WorkloadRule::parse)?;
            Ok(())
        }),
        get: |c| written(&c.observe.workloads),
    },
    Setting {
        stanza: "observe",
        key: "parents",
        env: "ALLOSTAT_OBSERVE_PARENTS",
        about: "Parent cgroups (slices, users, parents of containers) to expose as allostat_parent_* although they \
                have no memory or CPU limit of their own; * is any text. Default: none; those with a limit are \
                always exposed.",
        kind: SettingKind::Texts(|c, patterns| {
            c.observe.parents = patterns;
            Ok(())
        }),
        get: |c| listed(&c.observe.parents),
    },
    Setting {
        stanza: "observe",
        key: "max_allocs",
        env: "ALLOSTAT_OBSERVE_MAX_ALLOCS",
        about: "Maximum number of observed tasks to expose. Those above it are counted in allostat_observed_left_out.",
        kind: SettingKind::Whole(0, 100_000, |c, n| c.observe.max_allocs = size(n)),
        get: |c| Some(c.observe.max_allocs.to_string()),
    },
    Setting {
        stanza: "observe",
        key: "labels",
        env: "ALLOSTAT_OBSERVE_LABELS",
        about: "Container labels and pod annotations to expose on allostat_alloc_info: com.example/team is \
                label_com_example_team. Default: none.",
        kind: SettingKind::Texts(|c, names| {
            c.observe.labels = names;
            Ok(())
        }),
        get: |c| listed(&c.observe.labels),
    },
    Setting {
        stanza: "observe",
        key: "docker_socket",
        env: "ALLOSTAT_OBSERVE_DOCKER_SOCKET",
        about: "Docker socket, for names of containers and how they ended. Ignored unless it belongs to root or to \
                the agent's user.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.observe.docker_socket = path)),
        get: |c| Some(c.observe.docker_socket.display().to_string()),
    },
    Setting {
        stanza: "observe",
        key: "root",
        env: "ALLOSTAT_OBSERVE_ROOT",
        about: "Root of the host's files: /run and /var, which name containers, and /etc/os-release. For an agent in \
                a container that has them mounted elsewhere than at /.",
        kind: SettingKind::Text(|c, text| absolute(text).map(|path| c.observe.root = path)),
        get: |c| Some(c.observe.root.display().to_string()),
    },
];
