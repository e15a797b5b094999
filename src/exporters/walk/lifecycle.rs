//! Families that come from what allocs and tasks went through, not from a reading. Declared here, walked over in
//! `tasks`, `workloads` and `node`.

use crate::model::metric::{Kind, MetricDesc, families};
use crate::model::profile::Profile;
use crate::model::units::Unit;

/// Of names and labels: it changes when one is renamed.
pub const SCHEMA: &str = "1";

const TASK: &[&str] = &["alloc_id", "task", "workload"];

families! {
pub static ALLOC_INFO: MetricDesc = MetricDesc::info(
    "allostat_alloc_info",
    "What the alloc is. Join with: * on (job, instance, alloc_id) group_left (task_group, name) allostat_alloc_info. \
     measured: by cgroup, by adding up processes, or not at all. aggregation: its values come from its own cgroup, or are \
     sums over tasks.",
    &["alloc_id", "workload", "task_group", "alloc_ns", "name", "source", "cgroup", "measured", "aggregation"],
)
.from_source("runner");

pub static TASK_INFO: MetricDesc = MetricDesc::info(
    "allostat_task_info",
    "What the task is. cgroup_version: v1, v2 or hybrid (v1 controllers with a unified tree beside them).",
    &["alloc_id", "task", "workload", "driver", "user", "image", "cgroup_version"],
)
.from_profile(Profile::Standard)
.from_source("runner");

pub static BUILD_INFO: MetricDesc = MetricDesc::info(
    "allostat_build_info",
    "Which allostat this is. schema: of the metric names and labels; it changes when one is renamed.",
    &["version", "schema"],
)
.from_source("build");

pub static TASK_STATE: MetricDesc = MetricDesc::gauge(
    "allostat_task_state",
    Unit::None,
    "1 for the state that the task is in, 0 for the others.",
    &["alloc_id", "task", "workload", "state"],
)
.stays()
.zeros_from(Profile::Standard)
.from_source("runner")
.otlp("allostat.task.status", "1");

pub static TASK_STATE_SINCE: MetricDesc = MetricDesc::gauge(
    "allostat_task_state_since_timestamp_seconds",
    Unit::TimestampSeconds,
    "When the task came into its present state.",
    TASK,
)
.stays()
.from_source("runner")
.absent_when("others run it, and it ran before the agent looked")
.otlp("container.uptime", "s");

pub static TASK_TIME_IN_STATE: MetricDesc = MetricDesc::counter(
    "allostat_task_time_in_state_seconds_total",
    Unit::Seconds,
    "Time that the task spent in each state, the present one included, whether or not the agent was there.",
    &["alloc_id", "task", "workload", "state"],
)
.from_profile(Profile::Standard)
.zeros_from(Profile::Full)
.from_source("runner")
.absent_when("others run it")
.otlp("allostat.task.time_in_state", "s");

pub static TASK_RESTARTS: MetricDesc = MetricDesc::counter(
    "allostat_task_restarts_total",
    Unit::None,
    "Times the task was started again, each when it begins. policy: after an exit; oom: after an exit by OOM; start_failure: it could not be \
     started; requested: somebody asked. Of what others run by how it had ended, whoever started it again: oom; failure: an error, or a signal \
     by which nobody asks for an end; other: an end that was clean, asked for or unseen.",
    &["alloc_id", "task", "workload", "reason"],
)
.from_source("runner; the observer")
.absent_when("failure, other: a task of ours; policy, start_failure, requested: others run it; failure, oom: and nobody tells how it ends")
.otlp("allostat.task.restarts", "{restart}");

pub static ALLOCS: MetricDesc =
    MetricDesc::gauge("allostat_allocs", Unit::None, "Allocs that the agent knows, by state.", &["state"])
        .from_source("runner")
        .otlp("allostat.allocs", "{alloc}");

pub static TASKS: MetricDesc =
    MetricDesc::gauge("allostat_tasks", Unit::None, "Tasks that the agent knows, by state.", &["state"])
        .from_source("runner")
        .otlp("allostat.tasks", "{task}");

pub static WORKLOAD_RESTARTS: MetricDesc = MetricDesc::counter(
    "allostat_workload_restarts_total",
    Unit::None,
    "Restarts of the task in all allocs of the workload, live and ended.",
    &["task", "workload", "reason"],
)
.from_profile(Profile::Standard)
.from_source("runner; the observer")
.absent_when("as task_restarts_total")
.tells_created()
.otlp("allostat.workload.restarts", "{restart}");

pub static TASK_EXITS: MetricDesc = MetricDesc::counter(
    "allostat_task_exits_total",
    Unit::None,
    "Ended attempts of the task in all allocs of the workload, by how they ended. killed: we ended it, because somebody \
     asked; signal: somebody else did; oom: the kernel's OOM killer; unknown: nobody saw it. \
     One that could not be started is none.",
    &["task", "workload", "outcome"],
)
.from_source("runner")
.absent_when("all but unknown: others run it, and nobody tells how it ends")
.tells_created()
.otlp("allostat.task.exits", "{exit}");

pub static TASK_EXIT_CODES: MetricDesc = MetricDesc::counter(
    "allostat_task_exit_codes_total",
    Unit::None,
    "Exits with an error by code, and by a signal by its number.",
    &["task", "workload", "code", "signal"],
)
.from_profile(Profile::Standard)
.from_source("runner")
.tells_created()
.absent_when("no attempt ended with that code or signal yet")
.otlp("allostat.task.exit_codes", "{exit}");

pub static TASK_EVENTS: MetricDesc = MetricDesc::counter(
    "allostat_task_events_total",
    Unit::None,
    "Events of the task in all allocs of the workload, by kind.",
    &["task", "workload", "event"],
)
.from_profile(Profile::Standard)
.zeros_from(Profile::Full)
.from_source("runner")
.absent_when("others run it")
.otlp("allostat.task.events", "{event}");

pub static KILL_ESCALATIONS: MetricDesc = MetricDesc::counter(
    "allostat_task_kill_escalations_total",
    Unit::None,
    "Kills in which the task outlived its kill timeout and was ended by force.",
    &["task", "workload"],
)
.from_profile(Profile::Standard)
.from_source("runner")
.absent_when("others run it")
.tells_created()
.otlp("allostat.task.kill.escalations", "{kill}");

pub static LOG_LOST: MetricDesc = MetricDesc::counter(
    "allostat_task_log_lost_bytes_total",
    Unit::Bytes,
    "Output of ended attempts of the task, in all allocs of the workload, that could not be written to its logs: their disk was full, \
     or broken.",
    &["task", "workload", "stream"],
)
.from_profile(Profile::Standard)
.from_source("supervisor")
.tells_created()
.absent_when("nothing of that stream was lost yet")
.otlp("allostat.task.log.lost", "By");

pub static GIVEN_UP: MetricDesc = MetricDesc::counter(
    "allostat_task_given_up_total",
    Unit::None,
    "Tasks called dead while something of them may live on: they outlived being killed by force (stuck in the kernel), or \
     their driver did not answer. They are not started again.",
    &["task", "workload"],
)
.from_source("runner")
.absent_when("others run it")
.tells_created()
.otlp("allostat.task.given_up", "{task}");

pub static START_DURATION: MetricDesc = MetricDesc::new(
    "allostat_task_start_duration_seconds",
    Kind::Histogram,
    Unit::Seconds,
    "From a task's turn to its main process running, each attempt that came to run. What it waited for before (other \
     tasks, an earlier alloc, a backoff) is in its states. Begins with the agent's process.",
    &["workload"],
)
.from_profile(Profile::Standard)
.from_source("runner")
.absent_when("others run it, or none has started since the agent did")
.otlp("allostat.task.start.duration", "s");

pub static KILL_DURATION: MetricDesc = MetricDesc::new(
    "allostat_task_kill_duration_seconds",
    Kind::Histogram,
    Unit::Seconds,
    "From a task's end being asked for to the whole process tree gone, or to the task being given up. Begins with the \
     agent's process.",
    &["workload"],
)
.from_source("runner")
.absent_when("others run it, or none was ended since the agent started")
.otlp("allostat.task.kill.duration", "s");

pub static FAILED_ALLOCS: MetricDesc = MetricDesc::gauge(
    "allostat_workload_failed_allocs",
    Unit::None,
    "Allocs that have failed for good and whose place no later alloc has taken. restarts_used_up: a task was restarted as often \
     as its policy allows; other: no restart is allowed or would help, it could not be set up, or it was given up.",
    &["workload", "reason"],
)
.from_source("runner")
.absent_when("others run it: nobody knows whether they start it again")
.otlp("allostat.workload.failed_allocs", "{alloc}");

pub static ALLOC_RUN: MetricDesc = MetricDesc::counter(
    "allostat_alloc_run_seconds_total",
    Unit::Seconds,
    "Time that ended allocs of the workload ran, by outcome: what they cost.",
    &["workload", "outcome"],
)
.from_profile(Profile::Standard)
.from_source("runner")
.absent_when("others run it")
.otlp("allostat.alloc.run", "s");

pub static NODE_EXITS: MetricDesc = MetricDesc::counter(
    "allostat_node_task_exits_total",
    Unit::None,
    "Ended attempts in the agent's whole life, those of forgotten workloads included.",
    &["outcome"],
)
.from_source("runner")
.otlp("allostat.node.task.exits", "{exit}");

pub static NODE_OOM_KILLS: MetricDesc = MetricDesc::counter(
    "allostat_node_task_oom_kills_total",
    Unit::None,
    "Processes killed by OOM in tasks in the agent's whole life, where the kernel counts them.",
    &[],
)
.from_source("as task_oom_kills_total")
.absent_when("a task that may run is still looked for after a start of the agent")
.otlp("allostat.node.task.oom_kills", "{kill}");

pub static NODE_RESTARTS: MetricDesc = MetricDesc::counter(
    "allostat_node_task_restarts_total",
    Unit::None,
    "Restarts of tasks in the agent's whole life.",
    &["reason"],
)
.from_source("runner")
.otlp("allostat.node.task.restarts", "{restart}");

pub static NODE_CPU: MetricDesc = MetricDesc::counter(
    "allostat_node_cpu_usage_seconds_total",
    Unit::Seconds,
    "CPU time of all tasks in the agent's whole life, live ones included.",
    &[],
)
.from_source("as task_cpu_usage_seconds_total")
.absent_when("a task that may run is still looked for after a start of the agent")
.otlp("allostat.node.cpu.usage", "s");

pub static NODE_ALLOCS: MetricDesc =
    MetricDesc::counter("allostat_node_allocs_total", Unit::None, "Allocs taken on in the agent's whole life.", &[])
        .from_source("runner")
        .otlp("allostat.node.allocs", "{alloc}");

pub static HOST_ALLOCATED_MEMORY: MetricDesc = MetricDesc::gauge(
    "allostat_host_allocated_memory_bytes",
    Unit::Bytes,
    "Memory that job files give the tasks of allocs that have not ended. A task without a limit counts nothing.",
    &[],
)
.from_source("job files")
.otlp("allostat.host.allocated.memory", "By");

pub static HOST_ALLOCATED_CPU: MetricDesc = MetricDesc::gauge(
    "allostat_host_allocated_cpu_cores",
    Unit::Cores,
    "CPU quotas of running tasks. A task without a quota counts nothing.",
    &[],
)
.from_source("as task_cpu_limit_cores")
.otlp("allostat.host.allocated.cpu", "{cpu}");
}
