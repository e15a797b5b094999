//! Families that come from what allocs and tasks went through, not from a reading. Declared here, walked over in
//! `tasks`, `workloads` and `node`.

use crate::model::metric::{Kind, MetricDesc, families};
use crate::model::profile::Profile;
use crate::model::units::Unit;

/// Of names and labels: it changes when one is renamed (`exporters::renamed`).
pub const SCHEMA: &str = "2";

const TASK: &[&str] = &["alloc_id", "task", "workload"];

families! {
pub static ALLOC_INFO: MetricDesc = MetricDesc::info(
    "allostat_alloc_info",
    "Alloc identity; join: * on (job, instance, alloc_id) group_left (task_group, name) allostat_alloc_info.",
    &[
        "alloc_id",
        "workload",
        "task_group",
        "alloc_ns",
        "name",
        "source",
        "cgroup",
        "measured",
        "aggregation",
        "slice",
        "namespace",
        "pod",
        "node",
    ],
)
.from_source("runner; the observer");

pub static ALLOC_DISK_USED: MetricDesc = MetricDesc::gauge(
    "allostat_alloc_disk_used_bytes",
    Unit::Bytes,
    "Allocated disk space of the alloc's directory, logs included; measured every 30 s or less often.",
    &["alloc_id", "workload"],
)
.stays()
.from_profile(Profile::Standard)
.from_source("getdents64(2), st_blocks")
.absent_when("observed workload; not measured yet; more than 1,000,000 entries or 64 levels of directories")
.otlp("allostat.alloc.disk.used", "By");

pub static ALLOC_DISK_SIZE: MetricDesc = MetricDesc::gauge(
    "allostat_alloc_disk_size_bytes",
    Unit::Bytes,
    "Size of ephemeral_disk in the job file (default 300 MiB); enforced with project quotas.",
    &["alloc_id", "workload"],
)
.from_profile(Profile::Standard)
.from_source("job file")
.absent_when("observed workload, or the alloc has ended")
.otlp("allostat.alloc.disk.size", "By");

pub static TASK_INFO: MetricDesc = MetricDesc::info(
    "allostat_task_info",
    "Task identity: driver, user, image, cgroup version (v1, v2 or hybrid), and the pod of a container in Kubernetes.",
    &[
        "alloc_id",
        "task",
        "workload",
        "driver",
        "user",
        "image",
        "cgroup_version",
        "namespace",
        "pod",
        "node",
        "container",
    ],
)
.from_profile(Profile::Standard)
.from_source("runner; the observer");

pub static BUILD_INFO: MetricDesc = MetricDesc::info(
    "allostat_build_info",
    "Version of the agent; schema is the version of its metric names and labels.",
    &["version", "schema"],
)
.from_source("build");

pub static TASK_STATE: MetricDesc = MetricDesc::gauge(
    "allostat_task_state",
    Unit::None,
    "1 for the current state of the task, 0 for the other states.",
    &["alloc_id", "task", "workload", "state"],
)
.stays()
.zeros_from(Profile::Standard)
.from_source("runner; the observer: cgroup.events, freezer.state, State.Restarting of Docker")
.absent_when("`paused`, and `backoff` of an observed task: present only while the state lasts")
.otlp("allostat.task.status", "1");

pub static TASK_STATE_SINCE: MetricDesc = MetricDesc::gauge(
    "allostat_task_state_since_timestamp_seconds",
    Unit::TimestampSeconds,
    "Time of the last state change of the task.",
    TASK,
)
.stays()
.from_source("runner")
.absent_when("observed task that was running before the agent first scanned, or that is paused");

pub static TASK_START_TIME: MetricDesc = MetricDesc::gauge(
    "allostat_task_start_time_seconds",
    Unit::Seconds,
    "Start time of the running task's main process (Unix time); uptime is time() minus this.",
    TASK,
)
.from_profile(Profile::Standard)
.from_source("runner; the observer; /proc/PID/stat starttime of the oldest process")
.absent_when("it does not run; observed before the agent started, and a process of it cannot be read")
.otlp("container.uptime", "s");

pub static TASK_TIME_IN_STATE: MetricDesc = MetricDesc::counter(
    "allostat_task_time_in_state_seconds_total",
    Unit::Seconds,
    "Time that the task spent in each state, including the current one and agent downtime.",
    &["alloc_id", "task", "workload", "state"],
)
.from_profile(Profile::Standard)
.zeros_from(Profile::Full)
.from_source("runner")
.absent_when("observed workload: this agent does not manage it")
.otlp("allostat.task.time_in_state", "s");

pub static TASK_RESTARTS: MetricDesc = MetricDesc::counter(
    "allostat_task_restarts_total",
    Unit::None,
    "Restarts of the task by reason: policy, oom, start_failure, requested (managed); oom, failure, other (observed).",
    &["alloc_id", "task", "workload", "reason"],
)
.from_source("runner; the observer")
.absent_when(
    "failure, other: managed task; policy, start_failure, requested: observed task; failure, oom: observed, exit \
     status unavailable")
.otlp("allostat.task.restarts", "{restart}");

pub static CHECK_STATUS: MetricDesc = MetricDesc::gauge(
    "allostat_check_status",
    Unit::None,
    "1 for the current status of the health check, 0 for the other statuses.",
    &["alloc_id", "workload", "service_name", "check", "status"],
)
.zeros_from(Profile::Standard)
.from_source("runner")
.absent_when("the task of the check does not run")
.otlp("allostat.check.status", "1");

pub static CHECK_DURATION: MetricDesc = MetricDesc::gauge(
    "allostat_check_duration_seconds",
    Unit::Seconds,
    "Duration of the last run of the health check.",
    &["alloc_id", "workload", "service_name", "check"],
)
.from_profile(Profile::Standard)
.from_source("runner")
.absent_when("the check has not run yet, or its task does not run")
.otlp("allostat.check.duration", "s");

pub static CHECK_FAILURES: MetricDesc = MetricDesc::counter(
    "allostat_check_failures_total",
    Unit::None,
    "Runs of the health check that did not pass; since the agent started.",
    &["alloc_id", "workload", "service_name", "check"],
)
.from_source("runner")
.absent_when("the task of the check does not run")
.otlp("allostat.check.failures", "{failure}");

pub static CHECK_RESTARTS: MetricDesc = MetricDesc::counter(
    "allostat_check_restarts_total",
    Unit::None,
    "Restarts that the health check requested (check_restart); since the agent started.",
    &["alloc_id", "workload", "service_name", "check"],
)
.from_profile(Profile::Standard)
.from_source("runner")
.absent_when("the task of the check does not run")
.otlp("allostat.check.restarts", "{restart}");

pub static ALLOCS: MetricDesc =
    MetricDesc::gauge("allostat_allocs", Unit::None, "Allocs known to the agent, by state.", &["state"])
        .from_source("runner")
        .otlp("allostat.allocs", "{alloc}");

pub static ALLOCS_WAITING: MetricDesc = MetricDesc::gauge(
    "allostat_allocs_waiting",
    Unit::None,
    "Managed allocs that wait to be placed, by reason; an alloc with two reasons counts for both.",
    &["reason"],
)
.from_profile(Profile::Standard)
.from_source("runner")
.otlp("allostat.allocs.waiting", "{alloc}");

pub static TASKS: MetricDesc =
    MetricDesc::gauge("allostat_tasks", Unit::None, "Tasks known to the agent, by state.", &["state"])
        .from_source("runner")
        .otlp("allostat.tasks", "{task}");

pub static WORKLOAD_RESTARTS: MetricDesc = MetricDesc::counter(
    "allostat_workload_restarts_total",
    Unit::None,
    "Restarts of the task in all allocs of the workload, live and ended, by reason.",
    &["task", "workload", "source", "reason"],
)
.from_profile(Profile::Standard)
.from_source("runner; the observer")
.absent_when("as for task_restarts_total")
.with_created()
.otlp("allostat.workload.restarts", "{restart}");

pub static WORKLOAD_EXITS: MetricDesc = MetricDesc::counter(
    "allostat_workload_exits_total",
    Unit::None,
    "Ended attempts of the task in all allocs of the workload, by outcome; failed starts are not counted.",
    &["task", "workload", "source", "outcome"],
)
.from_source("runner")
.absent_when("all outcomes but unknown: observed task, exit status unavailable")
.with_created()
.otlp("allostat.workload.exits", "{exit}");

pub static WORKLOAD_EXIT_CODES: MetricDesc = MetricDesc::counter(
    "allostat_workload_exit_codes_total",
    Unit::None,
    "Failed exits of the task in all allocs of the workload by exit code, and exits by signal by its number.",
    &["task", "workload", "source", "code", "signal"],
)
.from_profile(Profile::Standard)
.from_source("runner")
.with_created()
.absent_when("no attempt has ended with this code or signal")
.otlp("allostat.workload.exit_codes", "{exit}");

pub static WORKLOAD_EVENTS: MetricDesc = MetricDesc::counter(
    "allostat_workload_events_total",
    Unit::None,
    "Events of the task in all allocs of the workload, by kind.",
    &["task", "workload", "source", "event"],
)
.from_profile(Profile::Standard)
.zeros_from(Profile::Full)
.from_source("runner")
.absent_when("observed workload: this agent does not manage it")
.otlp("allostat.workload.events", "{event}");

pub static KILL_ESCALATIONS: MetricDesc = MetricDesc::counter(
    "allostat_workload_kill_escalations_total",
    Unit::None,
    "Kills in which the task outlived its kill timeout and was killed by force.",
    &["task", "workload", "source"],
)
.from_profile(Profile::Standard)
.from_source("runner")
.absent_when("observed workload: this agent does not manage it")
.with_created()
.otlp("allostat.workload.kill.escalations", "{kill}");

pub static LOG_LOST: MetricDesc = MetricDesc::counter(
    "allostat_workload_log_lost_bytes_total",
    Unit::Bytes,
    "Task output lost because the logs could not be written, over ended attempts of the workload.",
    &["task", "workload", "source", "stream"],
)
.from_profile(Profile::Standard)
.from_source("supervisor")
.with_created()
.absent_when("no output of this stream was lost")
.otlp("allostat.workload.log.lost", "By");

pub static GIVEN_UP: MetricDesc = MetricDesc::counter(
    "allostat_workload_given_up_total",
    Unit::None,
    "Abandoned tasks: counted as dead but possibly alive (outlived SIGKILL, or no answer from the driver).",
    &["task", "workload", "source"],
)
.from_source("runner")
.absent_when("observed workload: this agent does not manage it")
.with_created()
.otlp("allostat.workload.given_up", "{task}");

pub static START_DURATION: MetricDesc = MetricDesc::new(
    "allostat_workload_start_duration_seconds",
    Kind::Histogram,
    Unit::Seconds,
    "Time from a task's turn until its main process runs, without earlier waits; since the agent started.",
    &["workload"],
)
.from_profile(Profile::Standard)
.from_source("runner")
.absent_when("observed workload, or no task has started since the agent did")
.otlp("allostat.workload.start.duration", "s");

pub static KILL_DURATION: MetricDesc = MetricDesc::new(
    "allostat_workload_kill_duration_seconds",
    Kind::Histogram,
    Unit::Seconds,
    "Time from a stop request until all processes are gone or the task is abandoned; since the agent started.",
    &["workload"],
)
.from_source("runner")
.absent_when("observed workload, or no task was stopped since the agent started")
.otlp("allostat.workload.kill.duration", "s");

pub static FAILED_ALLOCS: MetricDesc = MetricDesc::gauge(
    "allostat_workload_failed_allocs",
    Unit::None,
    "Allocs that failed for good and were not replaced, by reason (restarts_used_up, other).",
    &["workload", "reason"],
)
.from_source("runner")
.absent_when("observed workload: its restart policy is unknown")
.otlp("allostat.workload.failed_allocs", "{alloc}");

pub static RESCHEDULES: MetricDesc = MetricDesc::counter(
    "allostat_workload_reschedules_total",
    Unit::None,
    "Failed allocs of the workload that were replaced by a new alloc (reschedule).",
    &["workload"],
)
.from_source("runner")
.absent_when("observed workload: this agent does not manage it")
.otlp("allostat.workload.reschedules", "{reschedule}");

pub static WORKLOAD_RUN: MetricDesc = MetricDesc::counter(
    "allostat_workload_run_seconds_total",
    Unit::Seconds,
    "Total run time of ended allocs of the workload, by outcome.",
    &["workload", "outcome"],
)
.from_profile(Profile::Standard)
.from_source("runner")
.absent_when("observed workload: this agent does not manage it")
.otlp("allostat.workload.run", "s");

pub static NODE_EXITS: MetricDesc = MetricDesc::counter(
    "allostat_node_task_exits_total",
    Unit::None,
    "Ended attempts over the agent's lifetime, across its restarts, including expired workloads.",
    &["outcome"],
)
.from_source("runner")
.otlp("allostat.node.task.exits", "{exit}");

pub static NODE_OOM_KILLS: MetricDesc = MetricDesc::counter(
    "allostat_node_task_oom_kills_total",
    Unit::None,
    "Processes of tasks killed by the OOM killer over the agent's lifetime, across its restarts.",
    &[],
)
.from_source("as for task_oom_kills_total")
.absent_when("recovery of a task that may be running has not finished since the agent started")
.otlp("allostat.node.task.oom_kills", "{kill}");

pub static NODE_RESTARTS: MetricDesc = MetricDesc::counter(
    "allostat_node_task_restarts_total",
    Unit::None,
    "Restarts of tasks over the agent's lifetime, across its restarts.",
    &["reason"],
)
.from_source("runner")
.otlp("allostat.node.task.restarts", "{restart}");

pub static NODE_CPU: MetricDesc = MetricDesc::counter(
    "allostat_node_cpu_usage_seconds_total",
    Unit::Seconds,
    "CPU time of all tasks over the agent's lifetime, across its restarts, including live tasks.",
    &[],
)
.from_source("as for task_cpu_usage_seconds_total")
.absent_when("recovery of a task that may be running has not finished since the agent started")
.otlp("allostat.node.cpu.usage", "s");

pub static NODE_ALLOCS: MetricDesc =
    MetricDesc::counter("allostat_node_allocs_total", Unit::None,
        "Allocs accepted over the agent's lifetime, across its restarts.", &[])
        .from_source("runner")
        .otlp("allostat.node.allocs", "{alloc}");

pub static HOST_ALLOCATED_MEMORY: MetricDesc = MetricDesc::gauge(
    "allostat_host_allocated_memory_bytes",
    Unit::Bytes,
    "Memory reserved by job files for allocs that have not ended; tasks without a limit count 0.",
    &[],
)
.from_source("job files")
.otlp("allostat.host.allocated.memory", "By");

pub static HOST_ALLOCATED_CPU: MetricDesc = MetricDesc::gauge(
    "allostat_host_allocated_cpu_cores",
    Unit::Cores,
    "CPU quotas of running tasks; tasks without a quota count 0.",
    &[],
)
.from_source("as for task_cpu_limit_cores")
.otlp("allostat.host.allocated.cpu", "{cpu}");
}
