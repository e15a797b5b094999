//! The tree into a [`Job`]: every stanza by its table, every value checked, nothing read twice.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::env;
use crate::model::job::{
    EphemeralDisk, Job, JobKind, LogConfig, PlacementRules, Resources, RestartPolicy, Task, TaskGroup,
};
use crate::model::network::{AllocNetwork, AllocPort};
use crate::model::service::Service;
use crate::model::volume::{DiskSize, GroupStorage};

use super::diagnostic::{Problems, Span, quote};
use super::fields::{Fields, NamedBody, Spanned, Stanza, warn_ignored};
use super::interpolate::{self, ResolvableNames};
use super::reschedule::OfJob;
use super::service_names::{ServiceLocation, canonicalize};
use super::template::as_written;
use super::tree::{Literal, StanzaBody, join};
use super::{limits, names, unread, values, words};

type Meta = BTreeMap<String, String>;

/// `None`: reported, and there is no job to speak of. What is wrong in one stanza does not hide what is wrong in the
/// next: it is recorded, and absent from the job.
pub(super) fn file(body: &StanzaBody, problems: &Problems<'_>) -> Option<Job> {
    problems.keep_references();
    let builder = Builder { problems, seen: Vec::new(), ports: Vec::new(), volumes: Vec::new(), connected: None };
    let fields = builder.open(body, &words::FILE, String::new());
    let jobs = fields.named("job");
    let (first, rest) = match jobs.split_first() {
        Some(split) => split,
        None => {
            if !problems.has_errors() {
                let advice = "write job \"name\" { group \"name\" { task \"name\" { ... } } }".to_owned();
                problems.error(&(0..0), "", "the file has no `job`", Some(advice));
            }
            return None;
        }
    };
    for other in rest {
        let (line, _, _) = problems.source().locate(first.name_span.start);
        let message = format!("a file is one job, and the first one stands in line {line}");
        problems.error(other.name_span, "job", message, Some("put it into a file of its own".to_owned()));
    }
    let mut builder = builder;
    Some(builder.job(first))
}

pub(super) struct Builder<'p> {
    pub(super) problems: &'p Problems<'p>,
    /// Words without effect that were warned of.
    pub(super) seen: Vec<&'static str>,
    /// The ports of the group that is read, those of its tasks too: for references to them.
    pub(super) ports: Vec<AllocPort>,
    /// The labels of its volumes.
    pub(super) volumes: Vec<String>,
    /// As its network will be where it has one of its own that is connected: for the same.
    pub(super) connected: Option<AllocNetwork>,
}

impl<'p> Builder<'p> {
    pub(super) fn open<'a>(&self, body: &'a StanzaBody, stanza: &'static Stanza, path: String) -> Fields<'a>
    where
        'p: 'a,
    {
        Fields::open(body, stanza, words::ALL, path, self.problems)
    }

    fn job(&mut self, job: &NamedBody<'_>) -> Job {
        let path = join("job", job.name);
        let fields = self.open(job.body, &words::JOB, path.clone());
        self.warn_of_cluster_words(job.body, &path);
        warn_ignored(job.body, &words::JOB, &path, &mut self.seen, self.problems);
        names::check("job", job.name, job.name_span, &path, self.problems);
        unread::check(&fields, &[&unread::UI]);
        let id = fields.text("id");
        if let Some(id) = &id {
            names::check("job", &id.value, &id.span, &fields.path_of("id"), self.problems);
        }
        let name = fields.text("name");
        if let Some(name) = &name
            && (name.value.is_empty() || name.value.len() > names::MAX_BYTES)
        {
            let message = format!("`name` has 1 to {} bytes", names::MAX_BYTES);
            fields.error(&name.span, "name", message, None);
        }
        let kind = kind(&fields);
        let meta = self.meta(&fields);
        let placing = self.placing(&fields, kind);
        fields.integer("priority", limits::PRIORITY);
        fields.bool("all_at_once");
        let most = values::max_run_duration(&fields, kind);
        let launching = self.launching(&fields, kind);
        let mut groups = self.groups(&fields, job, kind, &launching.known_meta(&meta));
        let shown = name.as_ref().map_or(job.name, |name| &name.value);
        for group in &mut groups {
            group.max_run_duration = group.max_run_duration.or(most);
            canonicalize(shown, group);
        }
        let text = |key: &str, default: &str| fields.text(key).map_or_else(|| default.to_owned(), |at| at.value);
        Job {
            id: id.map_or_else(|| job.name.into(), |id| id.value.as_str().into()),
            name: name.map_or_else(|| job.name.to_owned(), |name| name.value),
            kind,
            namespace: text("namespace", "default"),
            region: text("region", "global"),
            datacenters: values::datacenters(&fields),
            node_pool: text("node_pool", Job::ANY_POOL),
            meta,
            placing,
            launching,
            groups,
            sensitive: self.problems.sensitive(),
        }
    }

    fn groups(&mut self, fields: &Fields<'_>, job: &NamedBody<'_>, kind: JobKind, meta: &Meta) -> Vec<TaskGroup> {
        let groups = fields.named("group");
        // A task that stands alone is a group of its name.
        let alone = fields.named("task");
        if groups.is_empty() && fields.entry("group").is_none() && fields.entry("task").is_none() {
            let advice = Some("add group \"name\" { task \"name\" { ... } }".to_owned());
            fields.error(job.name_span, "group", "the job has no `group`", advice);
        }
        let all: Vec<NamedBody<'_>> = alone.iter().chain(&groups).copied().collect();
        names::check_unique("group", &all, &fields.path_of("group"), self.problems);
        let of_job = self.rollout_of_job(fields, kind);
        let mut of_tasks =
            alone.iter().map(|task| self.lone_task(task, fields.path(), (kind, of_job), meta)).collect::<Vec<_>>();
        of_tasks.iter_mut().for_each(|group| group.reschedule = of_job.reschedule.and_then(|own| own.policy(kind)));
        let of_groups = groups.iter().map(|group| self.group(group, fields.path(), kind, meta, of_job));
        of_tasks.into_iter().chain(of_groups).collect()
    }

    fn lone_task(
        &mut self,
        task: &NamedBody<'_>,
        job_path: &str,
        (kind, of_job): (JobKind, OfJob),
        job_meta: &Meta,
    ) -> TaskGroup {
        names::check("group", task.name, task.name_span, &format!("{job_path}.task.{}", task.name), self.problems);
        let restart = RestartPolicy::default_for(kind);
        let mut services = Vec::new();
        let (network, mut networks) = self.networks(None, job_path, std::slice::from_ref(task));
        let tasks = std::slice::from_ref(task);
        let mut built = self.task(task, job_path, (kind, &restart), job_meta, (tasks, &mut services));
        built.resources.network = networks.pop().flatten();
        self.check_log_storage((task, job_path), &built.logs, (DiskSize::default(), None));
        TaskGroup {
            name: task.name.into(),
            count: 1,
            meta: Meta::new(),
            restart,
            shutdown_delay: Duration::ZERO,
            max_run_duration: None,
            placing: PlacementRules::default(),
            tasks: vec![built],
            network,
            storage: Default::default(),
            services,
            health: of_job.health,
            update: of_job.update,
            reschedule: None,
            ephemeral_disk: EphemeralDisk::default(),
        }
    }

    fn group(
        &mut self,
        group: &NamedBody<'_>,
        job_path: &str,
        kind: JobKind,
        job_meta: &Meta,
        of_job: OfJob,
    ) -> TaskGroup {
        let path = format!("{job_path}.group.{}", group.name);
        let fields = self.open(group.body, &words::GROUP, path.clone());
        warn_ignored(group.body, &words::GROUP, &path, &mut self.seen, self.problems);
        names::check("group", group.name, group.name_span, &path, self.problems);
        unread::check(&fields, &[&unread::CONSUL]);
        let restart = self.restart(&fields, RestartPolicy::default_for(kind));
        let meta = self.meta(&fields);
        let tasks = fields.named("task");
        let (network, networks) = self.networks(Some(&fields), &path, &tasks);
        let mut services = Vec::new();
        self.services(&fields, ServiceLocation { task: None, tasks: &tasks }, &mut services);
        let (ephemeral_disk, disk_mib) = self.ephemeral_disk(&fields);
        let storage = GroupStorage { disk_mib, ..self.storage(&fields, kind) };
        self.check_leaders(&tasks, &path);
        if fields.entry("task").is_none() {
            let advice = Some("add task \"name\" { driver = \"raw_exec\" ... }".to_owned());
            fields.error(group.name_span, "task", format!("the group {} has no `task`", quote(group.name)), advice);
        }
        names::check_unique("task", &tasks, &fields.path_of("task"), self.problems);
        let mut merged = job_meta.clone();
        merged.extend(meta.clone());
        let with_networks = tasks.iter().zip(networks).map(|(task, network)| {
            let mut built = self.task(task, &path, (kind, &restart), &merged, (&tasks, &mut services));
            built.resources.network = network;
            self.check_log_storage((task, &path), &built.logs, (storage.disk_size(), fields.entry("ephemeral_disk")));
            built
        });
        let tasks: Vec<Task> = with_networks.collect();
        let max_run_duration = values::max_run_duration(&fields, kind);
        let (health, update, reschedule) = self.rollout_of_group(&fields, kind, of_job);
        TaskGroup {
            name: group.name.into(),
            count: self.count(&fields, kind),
            meta,
            restart,
            shutdown_delay: fields.duration("shutdown_delay").map_or(Duration::ZERO, |at| at.value),
            max_run_duration,
            placing: self.placing(&fields, kind),
            tasks,
            network,
            storage,
            services,
            health,
            update,
            reschedule,
            ephemeral_disk,
        }
    }

    fn count(&self, group: &Fields<'_>, kind: JobKind) -> u32 {
        let given = group.integer("count", 0..=limits::COUNT);
        let count = self.scaling(group, given.as_ref()).or(given.as_ref().map(|at| at.value));
        match given {
            Some(at) if kind == JobKind::System && at.value > 1 => {
                let message = "a job of type `system` has one alloc on each node: `count` is 1";
                group.error(&at.span, "count", message, None);
            }
            Some(at) if kind == JobKind::Sysbatch && at.value > 1 => {
                let message = "`count` is ignored: a job of type `sysbatch` has one alloc on each node";
                self.problems.warn(&at.span, &group.path_of("count"), message, None);
                return 1;
            }
            Some(_) | None => {}
        }
        count.map_or(1, |count| u32::try_from(count).unwrap_or(1))
    }

    /// With two leaders it would not be clear whose end is the alloc's.
    fn check_leaders(&self, tasks: &[NamedBody<'_>], path: &str) {
        let leads = |task: &&NamedBody<'_>| {
            task.body.entries.iter().any(|e| e.key == "leader" && matches!(e.value.value, Literal::Bool(true)))
        };
        let mut leaders = tasks.iter().filter(leads);
        let Some(first) = leaders.next() else { return };
        for other in leaders {
            let message = format!("the task {} is the leader of this group already", quote(first.name));
            let advice = Some("a group has at most one task with leader = true".to_owned());
            self.problems.error(other.name_span, &join(path, other.name), message, advice);
        }
    }

    fn task(
        &mut self,
        task: &NamedBody<'_>,
        group_path: &str,
        (kind, group_restart): (JobKind, &RestartPolicy),
        outer_meta: &Meta,
        (tasks, services): (&[NamedBody<'_>], &mut Vec<Service>),
    ) -> Task {
        let path = format!("{group_path}.task.{}", task.name);
        let fields = self.open(task.body, &words::TASK, path.clone());
        warn_ignored(task.body, &words::TASK, &path, &mut self.seen, self.problems);
        names::check("task", task.name, task.name_span, &path, self.problems);
        names::check_task(task.name, task.name_span, &path, self.problems);
        unread::check(&fields, &[&unread::IDENTITY, &unread::ACTION, &unread::CONSUL]);
        self.services(&fields, ServiceLocation { task: Some(task.name), tasks }, services);
        let driver = fields.text("driver");
        if fields.entry("driver").is_none() {
            let message = format!("the task {} has no `driver`", quote(task.name));
            fields.error(task.name_span, "driver", message, Some("add driver = \"raw_exec\"".to_owned()));
        }
        self.task_scaling(&fields);
        let driver = driver.map_or_else(String::new, |at| driver_of(at.value));
        let mut built = Task {
            placing: self.placing(&fields, kind),
            meta: self.meta(&fields),
            user: values::user(&fields),
            resources: self.resources(&fields),
            restart: self.restart(&fields, group_restart.clone()),
            logs: self.logs(&fields),
            kill_signal: values::kill_signal(&fields),
            ..Task::new(task.name, &driver, serde_json::Map::new(), kind)
        };
        if let Some(at) = fields.duration("kill_timeout") {
            built.kill_timeout = at.value;
        }
        if let Some(at) = fields.duration("shutdown_delay") {
            built.shutdown_delay = at.value;
        }
        built.traceparent = fields.bool("traceparent").is_some_and(|at| at.value);
        (built.templates, built.dispatch_payload) = (self.templates(&fields), self.dispatch_payload(&fields));
        built.volume_mounts = self.volume_mounts(&fields);
        built.artifacts = self.artifacts(&fields);
        self.lifecycle(&fields, &mut built);
        let mut meta = outer_meta.clone();
        meta.extend(built.meta.clone());
        self.env_and_config(&fields, &mut built, &meta);
        built
    }

    fn lifecycle(&self, fields: &Fields<'_>, task: &mut Task) {
        if let Some(body) = fields.stanza("lifecycle") {
            let inner = self.open(body, &words::LIFECYCLE, fields.path_of("lifecycle"));
            task.lifecycle = values::lifecycle(&inner, fields.entry("lifecycle").map(|entry| &entry.key_span));
        }
        let Some(leader) = fields.bool("leader").filter(|at| at.value) else { return };
        if fields.entry("lifecycle").is_some() {
            let message = "only a main task can be the leader: this one has a `lifecycle`, and leads nothing";
            let advice = Some("write leader = true in a main task".to_owned());
            self.problems.warn(&leader.span, &fields.path_of("leader"), message, advice);
            return;
        }
        task.leader = true;
    }

    fn env_and_config(&self, fields: &Fields<'_>, task: &mut Task, meta: &Meta) {
        let pairs = fields.map("env").unwrap_or_default();
        let own: Vec<&str> = pairs.iter().map(|(name, _)| name.value.as_str()).collect();
        let mut nomad: Vec<String> = env::ALWAYS.iter().map(|name| (*name).to_owned()).collect();
        nomad.extend([env::PARENT_CGROUP, env::PARENT_JOB].map(str::to_owned));
        nomad.extend(env::limit_variables(task).into_keys());
        nomad.extend(env::meta_variables(meta).into_keys());
        nomad.extend(env::port_variables(&task.name, &self.ports).into_keys());
        nomad.extend(
            self.connected.iter().flat_map(|network| env::namespace_variables(network, &self.ports).into_keys()),
        );
        let has_rendered = task.templates.iter().any(|template| template.env);
        let known = ResolvableNames { meta, nomad, own, has_rendered };
        let path = fields.path_of("env");
        let mut taken: BTreeMap<String, &str> = BTreeMap::new();
        for (name, value) in &pairs {
            let path = join(&path, &name.value);
            values::check_variable(name, &path, &mut taken, self.problems);
            self.check_template(&value.value, &value.span, &path, &known);
            task.env.insert(name.value.clone(), value.value.clone());
        }
        self.check_docker_ports(fields, task);
        if let Some(body) = fields.stanza("config") {
            let check = |text: &str, span: &Span, path: &str| self.check_template(text, span, path, &known);
            task.config = values::json_object(body, &fields.path_of("config"), self.problems, &check);
        }
    }

    /// Reports each reference in a text that can never be resolved, at its place inside the text if it can be found.
    /// Nomad finds out when the task starts, so all but what breaks the text are warnings.
    fn check_template(&self, template: &str, span: &Span, path: &str, known: &ResolvableNames<'_>) {
        let source = self.problems.source().slice(span);
        let mut from = 0;
        for never in interpolate::check(template, known) {
            let rest = source.get(from..).unwrap_or("");
            // One that is not closed is the last.
            let found =
                if never.written.ends_with('}') { rest.find(&never.written) } else { rest.rfind(&never.written) };
            let found = found.map(|i| from + i);
            from = found.map_or(from, |i| i + never.written.len());
            let at = found.map_or(span.clone(), |i| span.start + i..span.start + i + never.written.len());
            let message = format!("{} can never be resolved: {}", quote(&never.written), never.reason);
            if never.is_unclosed {
                self.problems.error(&at, path, message, never.suggestion);
            } else {
                self.problems.warn(&at, path, message, never.suggestion);
            }
        }
    }

    /// As it is written: `${...}` in it is resolved when a task starts.
    fn meta(&self, fields: &Fields<'_>) -> Meta {
        let mut meta = Meta::new();
        for (key, value) in fields.map("meta").unwrap_or_default() {
            let path = join(&fields.path_of("meta"), &key.value);
            if key.value.is_empty() {
                self.problems.error(&key.span, &path, "a key of `meta` is empty", Some("give it a name".to_owned()));
            }
            meta.insert(key.value, as_written(&value.value));
        }
        meta
    }

    fn resources(&mut self, task: &Fields<'_>) -> Resources {
        let Some(body) = task.stanza("resources") else { return Resources::default() };
        let fields = self.open(body, &words::RESOURCES, task.path_of("resources"));
        warn_ignored(body, &words::RESOURCES, fields.path(), &mut self.seen, self.problems);
        let mebibytes = |at: &Spanned<u64>| at.value << 20;
        let memory = fields.integer("memory", limits::MEMORY_MIB);
        let memory_max = memory_max(&fields);
        // Nomad's 0 is as if it were absent.
        let cores = fields.integer("cores", 0..=limits::CORES).filter(|at| at.value > 0);
        if let (Some(_), Some(at)) = (&cores, fields.entry("cpu")) {
            let message = "a task has `cpu` or `cores`, not both";
            fields.error(&at.key_span, "cpu", message, Some("keep `cores` for cores of its own".to_owned()));
        }
        for without_effect in ["disk", "iops", "secrets"] {
            fields.integer(without_effect, 0..=u64::MAX);
        }
        if let Some((numa, _)) = self.inner(&fields, &words::NUMA) {
            let affinities = ["none", "prefer", "require"].map(|word| (word, ()));
            let _ = (numa.choice("affinity", &affinities), numa.texts("devices"));
        }
        if let (Some(memory), Some(MemoryMax::Limit(max))) = (&memory, &memory_max)
            && max.value < memory.value
        {
            let message = format!("`memory_max` ({} MiB) is less than `memory` ({} MiB)", max.value, memory.value);
            fields.error(&max.span, "memory_max", message, None);
        }
        Resources {
            cpu_shares: self.cpu_shares(&fields),
            memory_bytes: memory.as_ref().map(mebibytes),
            memory_unlimited: matches!(memory_max, Some(MemoryMax::Unlimited)),
            memory_max_bytes: match &memory_max {
                Some(MemoryMax::Limit(at)) => Some(mebibytes(at)),
                Some(MemoryMax::Unlimited) | None => None,
            },
            cores: cores.map(|at| u32::try_from(at.value).unwrap_or(u32::MAX)),
            core_ids: Vec::new(),
            devices: self.devices(&fields),
            network: None,
        }
    }

    /// What is no number of shares is refused here, and not missed elsewhere as well.
    fn cpu_shares(&self, resources: &Fields<'_>) -> Option<u64> {
        let Some(at) = resources.integer("cpu", 1..=u64::from(u32::MAX)) else {
            return resources.entry("cpu").map(|_| limits::CPU_SHARES);
        };
        if at.value > limits::CPU_SHARES {
            let message = format!("the maximum is {} shares: the task gets these", limits::CPU_SHARES);
            self.problems.warn(&at.span, &resources.path_of("cpu"), message, None);
        }
        Some(at.value.min(limits::CPU_SHARES))
    }

    /// A policy where only some fields are given takes the others from `default`.
    fn restart(&self, outer: &Fields<'_>, default: RestartPolicy) -> RestartPolicy {
        let (Some(body), Some(entry)) = (outer.stanza("restart"), outer.entry("restart")) else { return default };
        let fields = self.open(body, &words::RESTART, outer.path_of("restart"));
        let _ = fields.bool("render_templates");
        values::restart(&fields, &entry.key_span, default)
    }

    fn logs(&mut self, task: &Fields<'_>) -> LogConfig {
        let default = LogConfig::default();
        let Some(body) = task.stanza("logs") else { return default };
        let fields = self.open(body, &words::LOGS, task.path_of("logs"));
        warn_ignored(body, &words::LOGS, fields.path(), &mut self.seen, self.problems);
        let max_files = fields.integer("max_files", 1..=limits::LOG_FILES).and_then(|at| u32::try_from(at.value).ok());
        LogConfig {
            max_files: max_files.unwrap_or(default.max_files),
            max_file_bytes: fields
                .integer("max_file_size", 1..=limits::LOG_FILE_MIB)
                .map_or(default.max_file_bytes, |at| at.value << 20),
            disabled: match (fields.bool("disabled"), fields.bool("enabled")) {
                (Some(at), _) => at.value,
                (None, older) => older.is_some_and(|at| !at.value),
            },
        }
    }
}

fn kind(fields: &Fields<'_>) -> JobKind {
    let choices = JobKind::ALL.map(|kind| (kind.as_str(), kind));
    fields.choice("type", &choices).map_or(JobKind::Service, |at| at.value)
}

/// Nomad's name of the driver that runs nothing.
fn driver_of(name: String) -> String {
    if name == "mock_driver" { "mock".to_owned() } else { name }
}

enum MemoryMax {
    /// In MiB.
    Limit(Spanned<u64>),
    /// -1: `memory` is a reservation, and nothing is enforced.
    Unlimited,
}

fn memory_max(fields: &Fields<'_>) -> Option<MemoryMax> {
    let most = i64::try_from(*limits::MEMORY_MIB.end()).unwrap_or(i64::MAX);
    let Spanned { value, span } = fields.signed("memory_max", -1..=most)?;
    match u64::try_from(value) {
        // Nomad's word for none.
        Ok(0) => None,
        Ok(value) => Some(MemoryMax::Limit(Spanned { value, span })),
        Err(_) => Some(MemoryMax::Unlimited),
    }
}
