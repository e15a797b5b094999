//! Words about placement and about many hosts: what is read, warned of and refused.
//!
//! Promise (Input validation): Stanzas about many hosts are checked by Nomad's rules, with a warning

use std::time::Duration;

use super::{errors, in_group, in_job, in_task, refused, warnings};
use crate::jobspec::parse;
use crate::model::constraint::NodeConstraint;
use crate::model::job::{Job, JobKind};

fn job(text: &str) -> Job {
    parse("x.hcl", text).unwrap_or_else(|e| panic!("{text}\n{e}")).job
}

fn constraints(lines: &str) -> Vec<String> {
    job(&in_task(lines)).groups[0].tasks[0].placing.constraints.iter().map(ToString::to_string).collect()
}

#[test]
fn system_jobs_are_services_and_sysbatch_jobs_are_batches() {
    for (word, kind, attempts) in [("system", JobKind::System, 2), ("sysbatch", JobKind::Sysbatch, 3)] {
        let job = job(&in_job(&format!("type = \"{word}\"")));
        let task = &job.groups[0].tasks[0];
        assert_eq!((job.kind, task.restart.attempts), (kind, attempts));
        assert_eq!(task.restarts_on_success(job.kind), kind == JobKind::System);
    }
}

#[test]
fn system_jobs_refuse_what_nomad_refuses_of_them() {
    let system = |lines: &str| in_job(&format!("type = \"system\"\n{lines}"));
    let affinity = "affinity {\n  attribute = \"${meta.x}\"\n  value = \"y\"\n}";
    for (lines, expected) in [
        (affinity, "3:1 a job of type `system` takes no `affinity`: it has one alloc on each node"),
        (
            "spread {\n  attribute = \"${meta.x}\"\n}",
            "3:1 a job of type `system` takes no `spread`: it has one alloc on each node",
        ),
        ("reschedule {\n}", "3:1 a job of type `system` takes no `reschedule`: its alloc has one node"),
        ("migrate {\n}", "3:1 a job of type `system` takes no `migrate`"),
    ] {
        refused(&system(lines), expected);
    }
    let two = |word: &str| in_group("count = 2").replacen('\n', &format!("\ntype = \"{word}\"\n"), 1);
    refused(&two("system"), "4:9 a job of type `system` has one alloc on each node: `count` is 1");
    assert_eq!(job(&two("sysbatch")).groups[0].count, 1);
    let batch = in_job("type = \"batch\"\nupdate {\n}");
    refused(&batch, "3:1 a job of type `batch` takes no `update`: its allocs run until they are done");
}

#[test]
fn constraints_are_read_in_their_long_and_their_short_forms() {
    for (lines, expected) in [
        ("attribute = \"${attr.kernel.name}\"\nvalue = \"linux\"", "${attr.kernel.name} = linux"),
        ("attribute = \"${attr.cpu.numcores}\"\noperator = \">\"\nvalue = 3", "${attr.cpu.numcores} > 3"),
        ("attribute = \"${meta.a}\"\noperator = \"is\"\nvalue = true", "${meta.a} = true"),
        ("attribute = \"${meta.a}\"\noperator = \"not\"\nvalue = \"${meta.b}\"", "${meta.a} != ${meta.b}"),
        ("attribute = \"${meta.a}\"\nversion = \">= 1.2, < 2\"", "${meta.a} version >= 1.2, < 2"),
        ("attribute = \"${meta.a}\"\nsemver = \">= 1.2\"", "${meta.a} semver >= 1.2"),
        ("attribute = \"${meta.a}\"\nregexp = \"^a\"", "${meta.a} regexp ^a"),
        ("attribute = \"${meta.a}\"\nset_contains = \"a,b\"", "${meta.a} set_contains a,b"),
        ("attribute = \"${meta.a}\"\nset_contains_all = \"a,b\"", "${meta.a} set_contains a,b"),
        ("attribute = \"${meta.a}\"\nset_contains_any = \"a,b\"", "${meta.a} set_contains_any a,b"),
        ("attribute = \"${meta.a}\"\noperator = \"is_set\"", "${meta.a} is_set"),
        ("attribute = \"${meta.a}\"\noperator = \"is_not_set\"", "${meta.a} is_not_set"),
    ] {
        assert_eq!(constraints(&format!("constraint {{\n{lines}\n}}")), [expected], "{lines}");
    }
    for (lines, expected) in [
        ("distinct_hosts = true", "distinct_hosts"),
        ("distinct_hosts = \"true\"", "distinct_hosts"),
        ("operator = \"distinct_hosts\"\nvalue = \"true\"", "distinct_hosts"),
        ("distinct_property = \"${meta.a}\"", "distinct_property ${meta.a}"),
        ("operator = \"distinct_property\"\nattribute = \"${meta.a}\"\nvalue = \"3\"", "distinct_property ${meta.a} 3"),
    ] {
        let group = job(&in_group(&format!("constraint {{\n{lines}\n}}"))).groups[0].clone();
        assert_eq!(
            group.placing.constraints.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [expected],
            "{lines}"
        );
    }
    let many = job(&in_job("constraint {\n  distinct_hosts = true\n}\nconstraint {\n  distinct_hosts = true\n}"));
    assert_eq!(many.placing.constraints, [NodeConstraint::DistinctHosts, NodeConstraint::DistinctHosts]);
}

#[test]
fn constraints_that_nomad_refuses_are_refused_with_their_place() {
    for (lines, expected) in [
        ("value = \"x\"", "5:1 the `constraint` has no `attribute` (add attribute = \"${attr.kernel.name}\")"),
        ("attribute = \"${meta.a}\"", "5:1 the operator `=` needs a `value` (add value = \"...\")"),
        ("attribute = \"${meta.a}\"\nvalue = \"\"", "5:1 the operator `=` needs a `value` (add value = \"...\")"),
        (
            "attribute = \"${meta.a}\"\noperator = \"is_set\"\nvalue = \"x\"",
            "8:9 the operator `is_set` takes no `value` (compare with operator = \"=\", or test without a `value` that it is set)",
        ),
        (
            "attribute = \"${meta.a}\"\nregexp = \"(\"",
            "7:10 `(` cannot be compared by `regexp`: it is no regular expression: unclosed group (write `\\\\` before a character that stands for itself)",
        ),
        (
            "attribute = \"${meta.a}\"\nversion = \">= x\"",
            "7:11 `>= x` cannot be compared by `version`: it is no version (write a version: 1.2, or >= 1.2, < 2)",
        ),
        (
            "attribute = \"${meta.a}\"\nsemver = \"~> 1.2\"",
            "7:10 `~> 1.2` cannot be compared by `semver`: it is no version (write a version: 1.2, or >= 1.2, < 2)",
        ),
        (
            "attribute = \"${meta.a}\"\nregexp = \"a\"\nversion = \"1\"",
            "7:1 `version` and `regexp` are two operators (write a stanza for each)",
        ),
    ] {
        refused(&in_task(&format!("constraint {{\n{lines}\n}}")), expected);
    }
    for (lines, expected) in [
        ("operator = \"distinct_host\"", "4:12 there is no operator `distinct_host` (did you mean `distinct_hosts`?)"),
        (
            "operator = \"distinct_propperty\"\nattribute = \"${meta.a}\"",
            "4:12 there is no operator `distinct_propperty` (did you mean `distinct_property`?)",
        ),
        ("distinct_hosts = false", "3:1 `distinct_hosts = false` constrains nothing (leave the `constraint` out)"),
        ("distinct_property = \"${meta.a}\"\nvalue = 0", "5:9 `value` must be at least 1"),
        (
            "atribute = \"x\"\ndistinct_hosts = true",
            "4:1 `atribute` is not a field of `constraint` (did you mean `attribute`?)",
        ),
    ] {
        refused(&in_group(&format!("constraint {{\n{lines}\n}}")), expected);
    }
    let weights =
        [("0", "a `weight` of 0 changes nothing (leave the `affinity` out)"), ("101", "`weight` must be at most 100")];
    for (weight, expected) in weights {
        let lines = format!("affinity {{\n  attribute = \"${{meta.a}}\"\n  value = \"b\"\n  weight = {weight}\n}}");
        refused(&in_task(&lines), &format!("8:12 {expected}"));
    }
}

#[test]
fn an_attribute_that_is_no_reference_is_warned_of() {
    let lines = "constraint {\n  attribute = \"kernel.name\"\n  value = \"linux\"\n}";
    assert_eq!(warnings(&in_task(lines)), ["6:15 `kernel.name` is no reference: the text itself is compared"]);
    for written in ["kernel.name", "$attr.kernel.name", "$kernel.name"] {
        let text = in_task(&lines.replace("kernel.name", written));
        let warnings = crate::jobspec::parse("x.hcl", &text).unwrap().warnings;
        let advice = "write \"${attr.kernel.name}\" for the node's value";
        assert_eq!(warnings[0].suggestion.as_deref(), Some(advice), "{written}");
    }
}

#[test]
fn a_word_that_two_stanzas_of_a_name_have_names_it_once() {
    refused(&in_job("distinct_hosts = true"), "2:1 `distinct_hosts` belongs in `constraint`, not in `job`");
}

#[test]
fn values_of_stanzas_without_effect_have_the_types_of_nomad() {
    let service = |lines: &str| {
        let lines = lines.replace('\n', "\n    ");
        format!("network {{\n  mode = \"bridge\"\n}}\nservice {{\n  connect {{\n    {lines}\n  }}\n}}")
    };
    let upstreams = |line: &str| service(&format!("sidecar_service {{\nproxy {{\nupstreams {{\n{line}\n}}\n}}\n}}"));
    assert_eq!(errors("x.hcl", &in_group(&upstreams("destination_name = \"a\"\nlocal_bind_port = 1"))), [""; 0]);
    for (text, expected) in [
        (in_group(&upstreams("destination_name = { a = 1 }")), "`destination_name` takes a text, not an object"),
        (in_group(&upstreams("local_bind_port = [1]")), "`local_bind_port` takes a text, not a list"),
        (in_group(&service("native = [true]")), "`native` takes a text, not a list"),
        (in_task("identity {\n  aud = \"vault.io\"\n}"), "`aud` takes a list of texts, not a text"),
        (
            in_task("action \"x\" {\n  command = \"a\"\n  args = 5\n}"),
            "`args` takes a list of texts, not a whole number",
        ),
        (in_group("network {\n  mbits = [1]\n}"), "`mbits` takes a whole number, not a list"),
    ] {
        let found = errors("x.hcl", &text);
        assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
    }
}

#[test]
fn features_unavailable_on_one_host_are_accepted_with_a_warning_each() {
    for (lines, words) in [
        ("priority = 100\nall_at_once = true\nui {\n  description = \"x\"\n}", vec!["priority", "ui"]),
        ("update {\n  max_parallel = 2\n  canary = 1\n  auto_promote = true\n}", vec!["canary"]),
        (
            "spread {\n  attribute = \"${node.datacenter}\"\n  weight = 100\n  target \"dc1\" {\n    percent = 60\n  }\n}",
            vec!["spread"],
        ),
    ] {
        assert_eq!(words_of(&warnings(&in_job(lines))), words, "{lines}");
    }
    for (lines, words) in [
        ("count = 2\nscaling {\n  min = 1\n  max = 3\n  policy {\n    cooldown = \"1m\"\n  }\n}", vec!["scaling"]),
        (
            "disconnect {\n  lost_after = \"6h\"\n  replace = false\n  reconcile = \"keep_original\"\n}",
            vec!["disconnect"],
        ),
        (
            "max_client_disconnect = \"1h\"\nprevent_reschedule_on_lost = true",
            vec!["max_client_disconnect", "prevent_reschedule_on_lost"],
        ),
        ("stop_after_client_disconnect = \"30s\"", vec!["stop_after_client_disconnect"]),
        ("reschedule {\n  delay = \"30s\"\n  delay_function = \"fibonacci\"\n  unlimited = true\n}", vec![]),
        ("migrate {\n  max_parallel = 1\n  health_check = \"task_states\"\n}", vec!["migrate"]),
    ] {
        assert_eq!(words_of(&warnings(&in_group(lines))), words, "{lines}");
    }
    for (lines, words) in [
        ("identity {\n  env = true\n}", vec!["identity"]),
        ("action \"x\" {\n  command = \"/bin/true\"\n}", vec!["action"]),
        ("scaling \"cpu\" {\n  min = 100\n  max = 200\n}", vec!["scaling"]),
        ("resources {\n  disk = 300\n  iops = 10\n}", vec!["disk", "iops"]),
    ] {
        let found = warnings(&in_task(lines));
        assert!(words.iter().all(|word| found.iter().any(|w| w.contains(&format!("`{word}`")))), "{lines}: {found:?}");
    }
    // An affinity is evaluated: there is nothing to warn of.
    let affinity = "affinity {\n  attribute = \"${meta.a}\"\n  value = \"b\"\n}";
    assert_eq!(warnings(&in_task(affinity)), [""; 0]);
}

fn words_of(warnings: &[String]) -> Vec<&str> {
    warnings.iter().map(|w| w.split('`').nth(1).unwrap_or("")).collect()
}

#[test]
fn stanzas_about_many_hosts_are_checked_as_nomad_checks_them() {
    for (lines, expected) in [
        ("priority = 101", "2:12 `priority` must be at most 100"),
        ("priority = -1", "2:12 `priority` must be at least 0"),
        (
            "datacenters = [\"dc1\", \"\"]",
            "2:23 the name of a datacenter is empty (name it, or write \"*\" for any datacenter)",
        ),
        (
            "update {\n  health_check = \"check\"\n}",
            "3:18 `health_check` cannot be `check`: it is `checks` or `task_states` or `manual` (did you mean `checks`?)",
        ),
        ("update {\n  auto_promote = true\n}", "3:18 `auto_promote` needs a `canary` above 0"),
        (
            "update {\n  min_healthy_time = \"6m\"\n}",
            "3:22 `min_healthy_time` (6m0s) must be less than `healthy_deadline` (5m0s)",
        ),
        (
            "update {\n  healthy_deadline = \"10m\"\n}",
            "3:22 `healthy_deadline` (10m0s) must be less than `progress_deadline` (10m0s)",
        ),
        (
            "update {\n  max_paralel = 1\n}",
            "3:3 `max_paralel` is not a field of `update` (did you mean `max_parallel`?)",
        ),
        ("spread {\n}", "2:1 the `spread` has no `attribute` (add attribute = \"${node.datacenter}\")"),
        ("spread {\n  attribute = \"${meta.a}\"\n  weight = 0\n}", "4:12 `weight` must be at least 1"),
        (
            "spread {\n  attribute = \"${meta.a}\"\n  target \"a\" {\n    percent = 60\n  }\n  target \"b\" {\n    percent = 50\n  }\n}",
            "2:1 the percentages of the targets add up to 110: at most 100",
        ),
    ] {
        refused(&in_job(lines), expected);
    }
    for (lines, expected) in [
        ("scaling {\n  min = 1\n}", "3:1 the `scaling` has no `max` (add max = ...)"),
        ("scaling {\n  min = 3\n  max = 2\n}", "3:1 `max` (2) is less than `min` (3)"),
        ("count = 5\nscaling {\n  max = 3\n}", "4:1 the `count` of the group, 5, is not between `min` 5 and `max` 3"),
        (
            "reschedule {\n  attempts = 3\n  interval = \"1h\"\n}",
            "3:1 3 attempts and `unlimited` exclude each other: write unlimited = false, or no attempts",
        ),
        ("reschedule {\n  attempts = 3\n  unlimited = false\n}", "3:1 `attempts` needs an `interval`"),
        ("reschedule {\n  delay = \"1s\"\n}", "3:1 `delay` must be at least 5s"),
        (
            "reschedule {\n  attempts = 5\n  interval = \"1m\"\n  delay = \"30s\"\n  delay_function = \"constant\"\n  unlimited = false\n}",
            "3:1 5 attempts do not fit into an `interval` of 1m0s: write a longer one",
        ),
        (
            "disconnect {\n  lost_after = \"1h\"\n  stop_on_client_after = \"1m\"\n}",
            "5:26 `lost_after` and `stop_on_client_after` exclude each other",
        ),
        (
            "max_client_disconnect = \"1h\"\ndisconnect {\n}",
            "4:1 `max_client_disconnect` and `disconnect` exclude each other (keep `disconnect`)",
        ),
        (
            "migrate {\n  health_check = \"manual\"\n}",
            "4:18 `health_check` cannot be `manual`: it is `checks` or `task_states`",
        ),
    ] {
        let found = errors("x.hcl", &in_group(lines));
        assert!(found.iter().any(|one| one == expected), "{lines}\n{found:?}");
    }
}

#[test]
fn reschedule_attempts_fit_their_interval_as_nomad_counts_them() {
    let fits = |attempts: u32, interval: &str, delay: &str, function: &str, max: &str| {
        let lines = format!(
            "reschedule {{\n  attempts = {attempts}\n  interval = \"{interval}\"\n  delay = \"{delay}\"\n  delay_function = \"{function}\"\n  \
             max_delay = \"{max}\"\n  unlimited = false\n}}"
        );
        errors("x.hcl", &in_group(&lines)).is_empty()
    };
    for (attempts, interval, delay, function, max, expected) in [
        (2, "20s", "10s", "constant", "1h", true),
        (2, "19s", "10s", "constant", "1h", false),
        (3, "41s", "10s", "exponential", "1h", true),
        (3, "40s", "10s", "exponential", "1h", false),
        (4, "61s", "10s", "exponential", "20s", true),
        (4, "60s", "10s", "exponential", "20s", false),
        (5, "50s", "10s", "fibonacci", "1h", true),
        (5, "49s", "10s", "fibonacci", "1h", false),
    ] {
        assert_eq!(
            fits(attempts, interval, delay, function, max),
            expected,
            "{attempts} {interval} {delay} {function} {max}"
        );
    }
}

#[test]
fn numbers_and_booleans_may_be_texts_and_texts_numbers() {
    let read = job(&in_group("count = \"2\""));
    assert_eq!(read.groups[0].count, 2);
    let lines = "user = 1000\nleader = \"true\"\nresources {\n  cpu = \"500\"\n  memory = \"256\"\n}\nlogs {\n  max_files = 2.0\n  disabled = \"false\"\n}";
    let task = job(&in_task(lines)).groups[0].tasks[0].clone();
    assert_eq!((task.user.as_deref(), task.leader), (Some("1000"), true));
    assert_eq!((task.resources.cpu_shares, task.resources.memory_bytes), (Some(500), Some(256 << 20)));
    assert_eq!((task.logs.max_files, task.logs.disabled), (2, false));
    refused(&in_group("count = \"two\""), "3:9 `count` takes a whole number, not a text");
    refused(&in_group("count = 1.5"), "3:9 `count` takes a whole number, not a number with a fraction");
    refused(&in_task("leader = \"yes\""), "5:10 `leader` takes true or false, not a text");
    let short = warnings(&in_task("kill_timeout = 30"));
    assert_eq!(short, ["5:16 `kill_timeout` is 30 nanoseconds: a number without a unit counts them"]);
}

#[test]
fn a_group_may_have_no_alloc_and_a_task_no_group() {
    assert_eq!(job(&in_group("count = 0")).groups[0].count, 0);
    let text = "job \"j\" {\n  type = \"batch\"\n  task \"alone\" {\n    driver = \"mock_driver\"\n  }\n}\n";
    let alone = job(text);
    let group = &alone.groups[0];
    assert_eq!((group.name.as_str(), group.count, group.tasks[0].name.as_str()), ("alone", 1, "alone"));
    assert_eq!((group.tasks[0].driver.as_str(), group.restart.attempts), ("mock", 3));
    let twice =
        text.replace("type = \"batch\"", "group \"alone\" {\n    task \"t\" {\n      driver = \"mock\"\n    }\n  }");
    refused(&twice, "2:9 there is a group `alone` already, in line 7 (give one of them another name)");
    refused("job \"j\" {\n}\n", "1:5 the job has no `group` (add group \"name\" { task \"name\" { ... } })");
}

#[test]
fn memory_without_a_limit_is_a_reservation() {
    let resources =
        |lines: &str| job(&in_task(&format!("resources {{\n{lines}\n}}"))).groups[0].tasks[0].resources.clone();
    for (lines, expected) in [
        ("memory = 64", (Some(64 << 20), None)),
        ("memory = 64\nmemory_max = 128", (Some(128 << 20), Some(64 << 20))),
        ("memory = 64\nmemory_max = -1", (None, Some(64 << 20))),
        ("memory = 64\nmemory_max = 0", (Some(64 << 20), None)),
    ] {
        assert_eq!(resources(lines).memory(), expected, "{lines}");
    }
    assert_eq!(resources("cores = 2").cores, Some(2));
    let both = in_task("resources {\n  cpu = 500\n  cores = 2\n}");
    refused(&both, "6:3 a task has `cpu` or `cores`, not both (keep `cores` for cores of its own)");
    refused(
        &in_task("user = \"1000:\""),
        "5:8 `1000:` is no user (a name, a number, or numbers of user and group: \"1000:1000\")",
    );
    assert_eq!(job(&in_task("user = \"1000:1000\"")).groups[0].tasks[0].user.as_deref(), Some("1000:1000"));
}

#[test]
fn reschedule_of_a_group_stands_over_that_of_its_job_and_both_over_the_defaults() {
    use crate::model::reschedule::{DelayFunction, ReschedulePolicy};
    let read = |kind: &str, of_job: &str, of_group: &str| {
        job(&format!(
            "job \"j\" {{\n  type = \"{kind}\"\n  {of_job}\n  group \"g\" {{\n  {of_group}\n  task \"t\" {{\n  driver = \"mock\"\n  }}\n  }}\n}}\n"
        ))
        .groups[0]
        .clone()
    };
    let secs = Duration::from_secs;
    let service = JobKind::Service.reschedule_policy().unwrap();
    let plain = read("service", "", "");
    assert_eq!((plain.reschedule, plain.reschedule_policy(JobKind::Service)), (None, Some(service)));
    let of_job = "reschedule {\n delay = \"7s\"\n max_delay = \"9m\"\n}";
    let expected = ReschedulePolicy { delay: secs(7), max_delay: secs(540), ..service };
    assert_eq!(read("service", of_job, "").reschedule, Some(expected));
    let of_group = "reschedule {\n delay = \"8s\"\n delay_function = \"fibonacci\"\n}";
    let expected = ReschedulePolicy { delay: secs(8), function: DelayFunction::Fibonacci, ..expected };
    assert_eq!(read("service", of_job, of_group).reschedule, Some(expected));
    let off = "reschedule {\n attempts = 0\n unlimited = false\n}";
    assert_eq!(read("batch", "", off).reschedule_policy(JobKind::Batch), None);
    let batch = read("batch", "", "reschedule {\n attempts = 3\n interval = \"1h\"\n}");
    let expected = JobKind::Batch.reschedule_policy().unwrap();
    let expected = ReschedulePolicy { attempts: 3, interval: secs(3_600), ..expected };
    assert_eq!(batch.reschedule, Some(expected));
    for kind in ["system", "sysbatch"] {
        assert_eq!(read(kind, "", "").reschedule_policy(JobKind::parse(kind).unwrap()), None);
    }
    let alone = "job \"j\" {\n  reschedule {\n  delay = \"9s\"\n  }\n  task \"t\" {\n    driver = \"mock\"\n  }\n}\n";
    assert_eq!(job(alone).groups[0].reschedule, Some(ReschedulePolicy { delay: secs(9), ..service }));
    let sysbatch = in_group("reschedule {\n  attempts = 1\n}").replacen("{", "{\ntype = \"sysbatch\"", 1);
    assert!(warnings(&sysbatch).iter().any(|w| w.contains("replaces no failed alloc")), "{:?}", warnings(&sysbatch));
}

#[test]
fn ephemeral_disk_determines_whether_a_replacement_gets_its_data() {
    let disk = |lines: &str| job(&in_group(&format!("ephemeral_disk {{\n{lines}\n}}"))).groups[0].ephemeral_disk;
    for (lines, moves) in
        [("", false), ("sticky = true", true), ("migrate = \"true\"", true), ("sticky = false", false)]
    {
        assert_eq!(disk(lines).moves(), moves, "{lines}");
    }
    // Only a size of the job file is enforced.
    for (lines, set, size) in [("", None, 300), ("sticky = true", None, 300), ("size = 300", Some(300), 300)] {
        let storage = job(&in_group(&format!("ephemeral_disk {{\n{lines}\n}}"))).groups[0].storage.clone();
        assert_eq!((storage.disk_mib.map(|of| of.0), storage.disk_size().0), (set, size), "{lines}");
    }
    assert_eq!(warnings(&in_group("ephemeral_disk {\n  sticky = true\n}")), Vec::<String>::new());
    assert_eq!(warnings(&in_group("ephemeral_disk {\n  size = 300\n}")), Vec::<String>::new());
}
