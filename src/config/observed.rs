//! What can be set of what others run.

use super::setting::{Kind, Setting};
use super::values::{absolute, each, listed, observed_sources, size, written};
use crate::observe::{ObservedPattern, WorkloadRule};

pub(super) static SETTINGS: &[Setting] = &[
    Setting {
        stanza: "observe",
        key: "enabled",
        env: "ALLOSTAT_OBSERVE",
        about: "Whether allocs that others run (services, containers, pods, jobs, plain cgroups) are shown beside our own. They are \
                read and nothing else.",
        kind: Kind::Bool(|c, on| c.observe.enabled = on),
        get: |c| Some(c.observe.enabled.to_string()),
    },
    Setting {
        stanza: "observe",
        key: "sources",
        env: "ALLOSTAT_OBSERVE_SOURCES",
        about: "Whose: systemd, docker, podman, containerd, kubernetes, nomad, slurm, lxc, libvirt, cgroup. Default: all.",
        kind: Kind::Texts(|c, words| {
            c.observe.sources = observed_sources(&words)?;
            Ok(())
        }),
        get: |c| listed(&c.observe.sources.iter().map(|source| source.as_str().to_owned()).collect::<Vec<_>>()),
    },
    Setting {
        stanza: "observe",
        key: "processes",
        env: "ALLOSTAT_OBSERVE_PROCESSES",
        about: "Whether processes in no cgroup of their own are shown as well, by process group. Each process of the host is looked at \
                each second for that.",
        kind: Kind::Bool(|c, on| c.observe.processes = on),
        get: |c| Some(c.observe.processes.to_string()),
    },
    Setting {
        stanza: "observe",
        key: "include",
        env: "ALLOSTAT_OBSERVE_INCLUDE",
        about: "Those that are shown: ids, as `allostat status` has them; image:registry.example/ci-*; label:com.example.team=core. * is any \
                text. Default: all.",
        kind: Kind::Texts(|c, texts| {
            c.observe.include = each(&texts, ObservedPattern::parse)?;
            Ok(())
        }),
        get: |c| written(&c.observe.include),
    },
    Setting {
        stanza: "observe",
        key: "exclude",
        env: "ALLOSTAT_OBSERVE_EXCLUDE",
        about: "Those that are not, whatever the other list says; written likewise. Default: none.",
        kind: Kind::Texts(|c, texts| {
            c.observe.exclude = each(&texts, ObservedPattern::parse)?;
            Ok(())
        }),
        get: |c| written(&c.observe.exclude),
    },
    Setting {
        stanza: "observe",
        key: "workloads",
        env: "ALLOSTAT_OBSERVE_WORKLOADS",
        about: "Which workload those are of whose names come once; the first that fits: \"cgroup:/ci/* -> ci\", or by what a label says: \
                \"label:com.example.job=* -> label:com.example.project\". Default: none, each as its source names it.",
        kind: Kind::Texts(|c, texts| {
            c.observe.workloads = each(&texts, WorkloadRule::parse)?;
            Ok(())
        }),
        get: |c| written(&c.observe.workloads),
    },
    Setting {
        stanza: "observe",
        key: "parents",
        env: "ALLOSTAT_OBSERVE_PARENTS",
        about: "Paths of cgroups above those of tasks (slices, users, parents of containers) that are shown as allostat_parent_* though \
                they have no limit of memory or CPU time of their own; * is any text. Default: none; those with a limit always are.",
        kind: Kind::Texts(|c, patterns| {
            c.observe.parents = patterns;
            Ok(())
        }),
        get: |c| listed(&c.observe.parents),
    },
    Setting {
        stanza: "observe",
        key: "max_allocs",
        env: "ALLOSTAT_OBSERVE_MAX_ALLOCS",
        about: "So many tasks of others are shown at most. Those above it are counted in allostat_observed_left_out.",
        kind: Kind::Whole(0, 100_000, |c, n| c.observe.max_allocs = size(n)),
        get: |c| Some(c.observe.max_allocs.to_string()),
    },
    Setting {
        stanza: "observe",
        key: "labels",
        env: "ALLOSTAT_OBSERVE_LABELS",
        about: "Labels of containers and annotations of pods that are shown on allostat_alloc_info: com.example/team is \
                label_com_example_team. Default: none.",
        kind: Kind::Texts(|c, names| {
            c.observe.labels = names;
            Ok(())
        }),
        get: |c| listed(&c.observe.labels),
    },
    Setting {
        stanza: "observe",
        key: "docker_socket",
        env: "ALLOSTAT_OBSERVE_DOCKER_SOCKET",
        about: "Where Docker is asked for names of containers and for how they ended. It is not believed if it is neither root's nor ours.",
        kind: Kind::Text(|c, text| absolute(text).map(|path| c.observe.docker_socket = path)),
        get: |c| Some(c.observe.docker_socket.display().to_string()),
    },
    Setting {
        stanza: "observe",
        key: "root",
        env: "ALLOSTAT_OBSERVE_ROOT",
        about: "Where the host's files are: /run and /var, which name containers, and /etc/os-release. For an agent in a container that \
                has them mounted elsewhere than at /.",
        kind: Kind::Text(|c, text| absolute(text).map(|path| c.observe.root = path)),
        get: |c| Some(c.observe.root.display().to_string()),
    },
];
