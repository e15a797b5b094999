//! Queries runtimes for the names and exits of their containers, on one thread per source, so that one that hangs
//! delays only its own names. Replies are truncated and cleaned before they are queued for the observer.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::exits::{EndReport, ExitFacts};
use super::identity::{RecognisedTask, TaskNaming};
use super::query_queue::{ExitQuery, QueryQueue, SourceQuery};
use super::texts::{ChangedTextCounts, sanitize};
use super::{Config, ObservedSource};
use crate::host::inotify::WakeSignal;
use crate::host::roots::Roots;
use crate::model::alloc::AllocSource;
use crate::model::units::Timestamp;
use crate::telemetry::lock;

pub use super::query_queue::{LifeRef, QueryTarget, QueryTopic};

/// Paths that sources need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimePaths {
    pub roots: Roots,
    pub docker: PathBuf,
}

impl RuntimePaths {
    pub fn new(roots: Roots, config: &Config) -> RuntimePaths {
        RuntimePaths { roots, docker: config.docker_socket.clone() }
    }
}

/// Queries one source. Concurrency: on its own thread; may block.
pub trait Runtime: Send {
    /// `None`: unknown to the source, or the source is unavailable.
    fn name(&mut self, target: &QueryTarget) -> Option<TaskNaming>;
    /// IDs of containers that were renamed since the last call.
    fn renamed(&mut self) -> Vec<String> {
        Vec::new()
    }
    /// IDs of containers that wait for their restart. `None`: the source does not report that.
    fn restarting(&mut self) -> Option<BTreeSet<String>> {
        None
    }
    /// The containers that wait for their restart now.
    fn waiting(&mut self) -> Vec<WaitingContainer> {
        Vec::new()
    }
    /// How the life that ended at `ended_at` ended. Does not wait.
    fn exit(&mut self, target: &QueryTarget, ended_at: Option<Timestamp>) -> ExitReply {
        let _ = (target, ended_at);
        ExitReply::Nothing
    }
}

/// Reply of a source to an [`ExitQuery`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitReply {
    /// The source still considers it running, or not started yet: query again.
    NotYet,
    Exit(ExitFacts),
    /// Its engine does not respond: query again when it may.
    Unreachable,
    /// Unknown, or the reply is about another life.
    Nothing,
}

/// A container that waits for its restart, and how its last life ended.
#[derive(Debug)]
pub struct WaitingContainer {
    pub id: String,
    pub source: AllocSource,
    pub naming: TaskNaming,
    pub last: ExitFacts,
}

/// Reply of a source to a [`SourceQuery`], for the observer.
#[derive(Debug)]
pub enum SourceReply {
    /// With the changes made to its texts.
    Name(String, Option<Box<TaskNaming>>, ChangedTextCounts),
    /// About the life of this number.
    Exit(String, u64, EndReport),
    /// The containers with these IDs have other names now.
    Renamed(Vec<String>),
    /// The containers with these IDs waited for their restart at this time or later.
    Restarting(Timestamp, BTreeSet<String>),
    Waiting(Vec<WaitingContainer>),
}

/// Queues queries to the sources, each on its own thread, and collects their replies.
pub struct RuntimeQueries {
    paths: RuntimePaths,
    /// Labels that are shown or used by rules; others are dropped.
    labels: Arc<BTreeSet<String>>,
    queues: HashMap<AllocSource, Option<Arc<QueryQueue>>>,
    replies: Arc<Mutex<Vec<SourceReply>>>,
    wake: WakeSignal,
}

impl RuntimeQueries {
    /// Errors: no file descriptor left.
    pub fn new(paths: RuntimePaths, config: &Config) -> std::io::Result<RuntimeQueries> {
        let (wake_signal, labels) = (WakeSignal::new()?, Arc::new(config.known_labels()));
        Ok(RuntimeQueries { paths, labels, queues: HashMap::new(), replies: Arc::default(), wake: wake_signal })
    }

    /// Rings when a source has replied.
    pub fn wake_signal(&self) -> WakeSignal {
        self.wake.clone()
    }

    /// Whether the query was queued. A reply may still never come.
    pub fn enqueue(&mut self, source: &'static ObservedSource, target: QueryTarget) -> bool {
        self.queue(source).is_some_and(|queries| queries.add(target))
    }

    /// Queries a source for the containers that wait for their restart.
    pub fn query_waiting(&mut self, source: &'static ObservedSource) {
        if let Some(queries) = self.queue(source) {
            queries.add_waiting();
        }
    }

    /// The queue of a source, whose thread is started at the first use.
    fn queue(&mut self, source: &'static ObservedSource) -> Option<&Arc<QueryQueue>> {
        let make = source.runtime?;
        let queue = self.queues.entry(source.word).or_insert_with(|| {
            let queries = Arc::<QueryQueue>::default();
            let worker = SourceWorker {
                queries: Arc::clone(&queries),
                labels: Arc::clone(&self.labels),
                replies: Arc::clone(&self.replies),
                wake: self.wake.clone(),
            };
            let paths = self.paths.clone();
            let name = format!("read-{}", source.word.as_str());
            let thread = std::thread::Builder::new().name(name).spawn(move || worker.run(&mut *make(&paths)));
            thread.ok().map(|_| queries)
        });
        queue.as_ref()
    }

    /// Queries each source that was queried before for the containers that were renamed since.
    pub fn query_renames(&self) {
        self.queues.values().flatten().for_each(|queries| queries.add_renames());
    }

    /// Queries each source that was queried before for the containers that wait for their restart.
    pub fn query_restarts(&self, now: Timestamp) {
        self.queues.values().flatten().for_each(|queries| queries.add_restarts(now));
    }

    /// The replies since the last call.
    pub fn replies(&self) -> Vec<SourceReply> {
        std::mem::take(&mut *lock(&self.replies))
    }
}

impl Drop for RuntimeQueries {
    fn drop(&mut self) {
        self.queues.values().flatten().for_each(|queries| queries.close());
    }
}

/// The thread of one source.
struct SourceWorker {
    queries: Arc<QueryQueue>,
    labels: Arc<BTreeSet<String>>,
    replies: Arc<Mutex<Vec<SourceReply>>>,
    wake: WakeSignal,
}

impl SourceWorker {
    /// Runs until the queue is closed.
    fn run(&self, runtime: &mut dyn Runtime) {
        while let Some(query) = self.queries.next() {
            match query {
                SourceQuery::Name(same) => self.name(runtime, &same),
                SourceQuery::Renames => {
                    let renamed = runtime.renamed();
                    if renamed.is_empty() {
                        continue;
                    }
                    lock(&self.replies).push(SourceReply::Renamed(renamed));
                }
                SourceQuery::Restarts(requested_at) => {
                    let Some(all) = runtime.restarting() else { continue };
                    lock(&self.replies).push(SourceReply::Restarting(requested_at, all));
                }
                SourceQuery::Waiting => {
                    let mut all = runtime.waiting();
                    for container in &mut all {
                        container.naming = self.bounded(container.naming.clone(), &mut ChangedTextCounts::default());
                    }
                    lock(&self.replies).push(SourceReply::Waiting(all));
                }
                SourceQuery::Exit(query) => self.exit(runtime, query),
            }
            self.wake.ring();
        }
    }

    fn name(&self, runtime: &mut dyn Runtime, same: &[QueryTarget]) {
        let Some(first) = same.first() else { return };
        let reported = runtime.name(first);
        for target in same {
            let mut counts = ChangedTextCounts::default();
            // A plain cgroup is named by its own path.
            let is_plain = |reported: &TaskNaming| reported.source == Some(AllocSource::Cgroup);
            let plain =
                || TaskNaming { source: Some(AllocSource::Cgroup), ..RecognisedTask::plain(&target.path).naming };
            let of_this = reported.as_ref().map(|reported| if is_plain(reported) { plain() } else { reported.clone() });
            let naming = of_this.map(|naming| Box::new(self.bounded(naming, &mut counts)));
            lock(&self.replies).push(SourceReply::Name(target.path.clone(), naming, counts));
        }
    }

    fn bounded(&self, mut naming: TaskNaming, counts: &mut ChangedTextCounts) -> TaskNaming {
        naming.labels.retain(|(name, _)| self.labels.contains(name));
        sanitize(naming, counts)
    }

    fn exit(&self, runtime: &mut dyn Runtime, query: Box<ExitQuery>) {
        let reply = (!query.is_late).then(|| runtime.exit(&query.target, query.life.ended_at));
        let (done, report) = match reply {
            Some(ExitReply::NotYet) => (self.queries.again(query), EndReport::Runs),
            Some(ExitReply::Unreachable) => (self.queries.again_when_reachable(query), EndReport::Refused),
            Some(ExitReply::Exit(facts)) => (Some(query), EndReport::Exit(facts)),
            Some(ExitReply::Nothing) => (Some(query), EndReport::Refused),
            None => (Some(query), EndReport::Late),
        };
        if let Some(query) = done {
            lock(&self.replies).push(SourceReply::Exit(query.target.path, query.life.number, report));
        }
    }
}

/// Promise (Observed workloads): Names come from each runtime's own files: bundles, the kubelet's logs, Podman's store,
/// environments of jobs
#[cfg(test)]
mod tests {
    // File formats of each runtime, and the resulting names.

    use std::path::Path;

    use super::super::identity::{CgroupParts, CgroupVerdict};
    use super::super::{ALL, recognise};
    use super::*;
    use crate::model::task::ExitStatus;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const ALLOC: &str = "6f1c2f3e-5b0a-4a0e-9a6d-1f0b8c7d6e5f";

    /// A host with only these files.
    struct FileTree(tempfile::TempDir);

    impl FileTree {
        fn of(files: &[(&str, &str)]) -> FileTree {
            let tree = FileTree(tempfile::tempdir().unwrap());
            for (path, text) in files {
                let path = tree.path(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text.replace("<id>", ID)).unwrap();
            }
            tree
        }
        fn path(&self, path: &str) -> PathBuf {
            self.0.path().join(path.trim_start_matches('/').replace("<id>", ID))
        }
        fn runtime(&self, cgroup: &str, about: QueryTopic) -> (Box<dyn Runtime>, QueryTarget) {
            let paths = RuntimePaths { roots: Roots::below(self.0.path()), docker: self.path("/run/docker.sock") };
            let cgroup = cgroup.replace("<id>", ID).replace("<alloc>", ALLOC);
            let parts: Vec<&str> = Path::new(&cgroup).iter().skip(1).map(|part| part.to_str().unwrap()).collect();
            let found = match recognise(&CgroupParts::new(&parts)) {
                Some(CgroupVerdict::Task(found)) => *found,
                other => panic!("{cgroup} is {other:?}"),
            };
            let source = ALL.iter().find(|source| source.word == found.source).expect("a source of ours");
            let directories = vec![self.path("/cgroup")];
            (
                source.runtime.expect("it can be queried")(&paths),
                QueryTarget { path: cgroup, found, directories, about },
            )
        }
        /// Source and name.
        fn name(&self, cgroup: &str) -> Option<TaskNaming> {
            let (mut runtime, target) = self.runtime(cgroup, QueryTopic::Name);
            runtime.name(&target)
        }
    }

    /// Alloc, task, workload, namespace.
    fn names(naming: Option<TaskNaming>) -> Option<[String; 4]> {
        naming.map(|naming| [naming.native, naming.task, naming.workload.unwrap_or_default(), naming.namespace])
    }

    #[track_caller]
    fn is(naming: Option<TaskNaming>, expected: [&str; 4]) {
        assert_eq!(names(naming), Some(expected.map(str::to_owned)));
    }

    /// A daemon that considers every container running and lists the one with that ID.
    fn serve_docker(listener: &std::os::unix::net::UnixListener, named: &str) {
        use std::io::{BufRead, BufReader, Write};
        for stream in listener.incoming().map_while(Result::ok) {
            let mut answers = stream.try_clone().unwrap();
            for line in BufReader::new(stream).lines().map_while(Result::ok).filter(|line| line.starts_with("GET ")) {
                let body = match line.contains("/containers/json") {
                    true => {
                        format!(r#"[{{"Id":"{named}","Names":["/web-1"],"Created":1,"Image":"web","Labels":{{}}}}]"#)
                    }
                    false => r#"{"Name":"/x","State":{"Running":true,"ExitCode":0}}"#.to_owned(),
                };
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                if answers.write_all((head + &body).as_bytes()).is_err() {
                    break;
                }
            }
        }
    }

    /// Regression: each of these exits blocked the thread for half a second, and later containers had no name for
    /// minutes.
    ///
    /// Promise (Observed workloads): A container is named beside 200 short cgroups that are named like containers
    #[test]
    fn a_container_has_its_name_while_200_ends_wait_for_their_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let docker = dir.path().join("d.sock");
        let listener = std::os::unix::net::UnixListener::bind(&docker).unwrap();
        std::thread::spawn(move || serve_docker(&listener, ID));
        let paths = RuntimePaths { roots: Roots::below(dir.path()), docker };
        let mut runtime_queries = RuntimeQueries::new(paths, &Config::default()).unwrap();
        let docker = ALL.iter().find(|source| source.word == AllocSource::Docker).unwrap();
        let mut request = |id: &str, about: QueryTopic| {
            let found = RecognisedTask::container(AllocSource::Docker, id);
            runtime_queries
                .enqueue(docker, QueryTarget { path: format!("/docker/{id}"), found, directories: Vec::new(), about })
        };
        for number in 0..200 {
            assert!(request(&format!("{number:064x}"), QueryTopic::Exit(LifeRef { number, ..LifeRef::default() })));
        }
        assert!(request(ID, QueryTopic::Name));
        let (until, mut ends) = (std::time::Instant::now() + std::time::Duration::from_secs(300), 0);
        let named = loop {
            assert!(std::time::Instant::now() < until, "no name, and {ends} ends");
            let replies = runtime_queries.replies();
            ends += replies.iter().filter(|reply| matches!(reply, SourceReply::Exit(..))).count();
            let name = |reply| match reply {
                SourceReply::Name(_, naming, _) => naming,
                SourceReply::Exit(..)
                | SourceReply::Renamed(_)
                | SourceReply::Restarting(..)
                | SourceReply::Waiting(_) => None,
            };
            match replies.into_iter().find_map(name) {
                Some(named) => break named,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!((named.native.as_str(), ends < 200), ("web-1", true), "before the last of the ends");
    }

    #[test]
    fn nerdctl_container_is_named_by_its_bundle() {
        let bundle = "/run/containerd/io.containerd.runtime.v2.task/default/<id>/config.json";
        let tree = FileTree::of(&[(bundle, r#"{"annotations": {"nerdctl/name": "cache", "team": "shop"}}"#)]);
        for cgroup in ["/default/<id>", "/system.slice/nerdctl-<id>.scope"] {
            let naming = tree.name(cgroup).unwrap();
            assert_eq!((naming.native.as_str(), naming.driver.as_deref()), ("cache", Some("containerd")), "{cgroup}");
            assert!(naming.labels.contains(&("team".to_owned(), "shop".to_owned())), "{naming:?}");
        }
        assert_eq!(FileTree::of(&[(bundle, "{")]).name("/default/<id>"), None, "half of a file is nothing");
        assert_eq!(FileTree::of(&[]).name("/default/<id>"), None);
    }

    /// A container-like name below a custom parent belongs to Docker or containerd, depending on who has its files.
    #[test]
    fn container_below_a_custom_parent_belongs_to_the_runtime_that_has_its_files() {
        let ecs = "/ecs/0123456789abcdef0123456789abcdef/<id>";
        let docker = r#"{"Name": "/ecs-web-1", "Config": {"Labels": {}}}"#;
        let bundle = "/run/containerd/io.containerd.runtime.v2.task/<namespace>/<id>/config.json";
        let bundle = |namespace: &str| {
            (bundle.replace("<namespace>", namespace), r#"{"annotations": {"nerdctl/name": "cache"}}"#)
        };
        let (of_docker, build) = (bundle("moby"), bundle("build"));
        let docker = ("/var/lib/docker/containers/<id>/config.v2.json", docker);
        let naming = FileTree::of(&[docker, (&of_docker.0, of_docker.1)]).name(ecs).unwrap();
        assert_eq!((naming.source, naming.native.as_str()), (None, "ecs-web-1"));
        let naming = FileTree::of(&[(&build.0, build.1)]).name("/build/<id>").unwrap();
        assert_eq!((naming.source, naming.native.as_str()), (Some(AllocSource::Containerd), "build/cache"));
        assert_eq!(naming.driver.as_deref(), Some("containerd"));
        // Docker's bundle has no name, and without the daemon's reply the container stays Docker's.
        assert_eq!(FileTree::of(&[(&of_docker.0, of_docker.1)]).name(ecs), None);
        assert_eq!(FileTree::of(&[]).name(ecs), None);
        // If the path is Docker's, only Docker is queried.
        assert_eq!(FileTree::of(&[(&build.0, build.1)]).name("/docker/<id>"), None);
    }

    const POD: &str =
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f1c2f3e_5b0a_4a0e_9a6d_1f0b8c7d6e5f.slice";

    #[test]
    fn pod_container_is_named_by_its_bundle_or_else_by_the_kubelet_logs() {
        let cgroup = format!("{POD}/cri-containerd-<id>.scope");
        let expected = ["shop/web-7d4b9c6f5-x2x7z", "app", "shop/web", "shop"];
        let annotations = r#"{"annotations": {
        "io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.container-name": "app",
        "io.kubernetes.cri.sandbox-name": "web-7d4b9c6f5-x2x7z", "io.kubernetes.cri.sandbox-namespace": "shop",
        "io.kubernetes.cri.image-name": "registry/web:1"
    }}"#;
        let tree =
            FileTree::of(&[("/run/containerd/io.containerd.runtime.v2.task/k8s.io/<id>/config.json", annotations)]);
        let naming = tree.name(&cgroup);
        assert_eq!(naming.as_ref().and_then(|naming| naming.image.as_deref()), Some("registry/web:1"));
        is(naming, expected);

        let crio = r#"{"annotations": {
        "io.kubernetes.container.name": "app", "io.kubernetes.pod.name": "web-7d4b9c6f5-x2x7z",
        "io.kubernetes.pod.namespace": "shop"
    }}"#;
        let tree = FileTree::of(&[("/run/containers/storage/overlay-containers/<id>/userdata/config.json", crio)]);
        is(tree.name(&format!("{POD}/crio-<id>.scope")), expected);

        let tree = FileTree::of(&[("/var/log/containers/web-7d4b9c6f5-x2x7z_shop_app-<id>.log", "")]);
        is(tree.name(&cgroup), expected);
        // Right after the start of a pod, its log directory is all there is.
        let uid = "6f1c2f3e-5b0a-4a0e-9a6d-1f0b8c7d6e5f";
        let tree = FileTree::of(&[(&format!("/var/log/pods/shop_web-7d4b9c6f5-x2x7z_{uid}/app/0.log"), "")]);
        is(tree.name(&cgroup), [expected[0], &ID[..12], expected[2], expected[3]]);
        assert_eq!(FileTree::of(&[]).name(&cgroup), None);
    }

    #[test]
    fn a_container_of_podman_has_its_name_and_its_exit_code_from_its_files() {
        let names = r#"[{"id": "another", "names": ["no"]}, {"id": "<id>", "names": ["db"]}]"#;
        let tree = FileTree::of(&[
            ("/var/lib/containers/storage/overlay-containers/containers.json", names),
            ("/run/libpod/exits/<id>", "137\n"),
        ]);
        let cgroup = "/machine.slice/libpod-<id>.scope";
        is(tree.name(cgroup), ["db", "db", "db", ""]);
        let over = LifeRef { number: 1, ..LifeRef::default() };
        let status = |reply: ExitReply| match reply {
            ExitReply::Exit(facts) => Some(facts.status),
            ExitReply::NotYet | ExitReply::Unreachable | ExitReply::Nothing => None,
        };
        let (mut runtime, target) = tree.runtime(cgroup, QueryTopic::Exit(over));
        assert_eq!(status(runtime.exit(&target, over.ended_at)), Some(ExitStatus::Code(137)));
        let empty = FileTree::of(&[("/run/libpod/exits/<id>", "soon")]);
        let (mut runtime, target) = empty.runtime(cgroup, QueryTopic::Exit(over));
        assert_eq!((empty.name(cgroup), status(runtime.exit(&target, over.ended_at))), (None, None));
    }

    /// The environment identifies the job, and an inherited environment is ignored.
    #[test]
    fn nomad_and_slurm_jobs_are_named_by_the_environment_of_their_processes() {
        let nomad = format!(
            "PATH=/bin\0NOMAD_ALLOC_ID={ALLOC}\0NOMAD_JOB_ID=shop\0NOMAD_GROUP_NAME=web\0NOMAD_ALLOC_NAME=shop.web[0]\0NOMAD_NAMESPACE=prod\0"
        );
        let tree = FileTree::of(&[("/cgroup/cgroup.procs", "17\n"), ("/proc/17/environ", &nomad)]);
        let cgroup = "/nomad.slice/share.slice/<alloc>.server.scope";
        let naming = tree.name(cgroup).unwrap();
        assert_eq!((naming.name.as_str(), naming.group.as_deref()), ("shop.web[0]", Some("web")));
        is(Some(naming), [ALLOC, "server", "shop", "prod"]);
        let of_another = nomad.replace(ALLOC, "00000000-5b0a-4a0e-9a6d-1f0b8c7d6e5f");
        assert_eq!(
            FileTree::of(&[("/cgroup/cgroup.procs", "17\n"), ("/proc/17/environ", &of_another)]).name(cgroup),
            None
        );

        let slurm = "SLURM_JOB_ID=42\0SLURM_JOB_NAME=train\0SLURM_JOB_USER=ada\0SLURM_JOB_ACCOUNT=physics\0SLURM_JOB_PARTITION=gpu\0";
        let tree = FileTree::of(&[("/cgroup/cgroup.procs", "gone\n18\n19\n"), ("/proc/19/environ", slurm)]);
        let cgroup = "/system.slice/slurmstepd.scope/job_42/step_batch";
        let naming = tree.name(cgroup).unwrap();
        assert_eq!((naming.name.as_str(), naming.user.as_deref()), ("train", Some("ada")));
        is(Some(naming), ["42", "batch", "physics", "gpu"]);
        let of_another = slurm.replace("=42", "=43");
        assert_eq!(
            FileTree::of(&[("/cgroup/cgroup.procs", "18\n"), ("/proc/18/environ", &of_another)]).name(cgroup),
            None
        );
    }
}
