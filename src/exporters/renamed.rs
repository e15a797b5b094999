//! Former names of families: a setting, a query or a rule that has one gets the new name.

/// Names until schema 1, and since: totals of workloads and of the agent had names of tasks and allocs. docs/fleet.md
/// has the same table.
pub const SCHEMA_1: [(&str, &str); 11] = [
    ("allostat_task_exits_total", "allostat_workload_exits_total"),
    ("allostat_task_exit_codes_total", "allostat_workload_exit_codes_total"),
    ("allostat_task_events_total", "allostat_workload_events_total"),
    ("allostat_task_kill_escalations_total", "allostat_workload_kill_escalations_total"),
    ("allostat_task_log_lost_bytes_total", "allostat_workload_log_lost_bytes_total"),
    ("allostat_task_given_up_total", "allostat_workload_given_up_total"),
    ("allostat_task_start_duration_seconds", "allostat_workload_start_duration_seconds"),
    ("allostat_task_kill_duration_seconds", "allostat_workload_kill_duration_seconds"),
    ("allostat_task_start_phase_duration_seconds", "allostat_start_phase_duration_seconds"),
    ("allostat_alloc_run_seconds_total", "allostat_workload_run_seconds_total"),
    ("allostat_alloc_migrations_total", "allostat_migrations_total"),
];

/// The new name of a family that was renamed, by a name of the family or of one of its series.
pub fn now(name: &str) -> Option<&'static str> {
    let stem = |name: &'static str| name.strip_suffix("_total").unwrap_or(name);
    let is_of = |old: &'static str| {
        let rest = name.strip_prefix(stem(old));
        rest.is_some_and(|rest| matches!(rest, "" | "_total" | "_created" | "_bucket" | "_sum" | "_count"))
    };
    SCHEMA_1.iter().find(|(old, _)| is_of(old)).map(|(_, new)| *new)
}
