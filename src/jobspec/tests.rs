use std::time::Duration;

use proptest::prelude::*;

use super::diagnostic::names_what_is_right;
use super::*;

mod nomad_rules;
mod one_host;

use crate::model::job::{JobKind, RestartMode, RestartPolicy};

/// Uses everything that is honoured, in both languages; the values differ from every default.
const FULL_HCL: &str = include_str!("../../tests/golden/jobspec/full.hcl");
const FULL_JSON: &str = include_str!("../../tests/golden/jobspec/full.json");

fn in_job(lines: &str) -> String {
    format!("job \"j\" {{\n{lines}\n  group \"g\" {{\n    task \"t\" {{\n      driver = \"mock\"\n    }}\n  }}\n}}\n")
}
pub(super) fn in_group(lines: &str) -> String {
    format!("job \"j\" {{\n  group \"g\" {{\n{lines}\n    task \"t\" {{\n      driver = \"mock\"\n    }}\n  }}\n}}\n")
}
pub(super) fn in_task(lines: &str) -> String {
    format!("job \"j\" {{\n  group \"g\" {{\n    task \"t\" {{\n      driver = \"mock\"\n{lines}\n    }}\n  }}\n}}\n")
}

/// `line:column message (suggestion)` of every error.
pub(super) fn errors(file: &str, text: &str) -> Vec<String> {
    let Err(errors) = parse(file, text) else { return Vec::new() };
    errors
        .0
        .iter()
        .map(|d| {
            // The law of all refusals that a test provokes.
            assert!(names_what_is_right(&d.message, d.suggestion.as_deref()), "what would be right? {d}");
            let suggestion = d.suggestion.as_ref().map(|s| format!(" ({s})")).unwrap_or_default();
            format!("{}:{} {}{suggestion}", d.line, d.column, d.message)
        })
        .collect()
}
pub(super) fn warnings(text: &str) -> Vec<String> {
    let parsed = parse("x.hcl", text).unwrap_or_else(|e| panic!("{e}"));
    parsed.warnings.iter().map(|d| format!("{}:{} {}", d.line, d.column, d.message)).collect()
}
pub(super) fn refused(text: &str, expected: &str) {
    assert_eq!(errors("x.hcl", text), [expected], "{text}");
}

/// Accepted, with this warning among others.
pub(super) fn warned(file: &str, text: &str, expected: &str) {
    let parsed = parse(file, text).unwrap_or_else(|e| panic!("{e}"));
    let found = parsed.warnings.iter().map(|d| {
        let suggestion = d.suggestion.as_ref().map(|s| format!(" ({s})")).unwrap_or_default();
        format!("{}:{} {}{suggestion}", d.line, d.column, d.message)
    });
    let found: Vec<String> = found.collect();
    assert!(found.iter().any(|warning| warning == expected), "{expected}: {found:#?}");
}

#[test]
fn a_group_without_a_main_task_is_accepted_as_in_nomad() {
    for hook in ["prestart", "poststart"] {
        let parsed = parse("x.hcl", &in_task(&format!("lifecycle {{\nhook = \"{hook}\"\n}}"))).unwrap();
        assert!(parsed.job.groups[0].tasks[0].lifecycle.is_some());
    }
}

#[test]
fn task_that_nomad_finds_wrong_at_its_start_is_accepted_with_a_warning() {
    for (lines, expected) in [
        (
            "lifecycle {\nhook = \"poststop\"\nsidecar = true\n}",
            "7:11 a `poststop` task is no sidecar: nothing is left to run beside",
        ),
        (
            "leader = true\nlifecycle {\nhook = \"prestart\"\n}",
            "5:10 only a main task can be the leader: this one has a `lifecycle`, and leads nothing",
        ),
        ("kill_signal = \"SIGNIT\"", "5:15 there is no signal `SIGNIT`: the task is stopped as without `kill_signal`"),
        ("resources {\ncpu = 300000\n}", "6:7 the maximum is 262144 shares: the task gets these"),
        (
            "artifact {\nsource = \"hg::http://h/r\"\n}",
            "6:10 the start of the task will fail: sources of `hg` are not supported: http, https and git are",
        ),
        (
            "template {\ndata = \"{{ $x }}\"\ndestination = \"d\"\n}",
            "6:8 the start of the task will fail: line 1, column 4 of the template: undefined variable $x",
        ),
    ] {
        assert_eq!(warnings(&in_task(lines)), [expected], "{lines}");
    }
    let task = |lines: &str| parse("x.hcl", &in_task(lines)).unwrap().job.groups[0].tasks[0].clone();
    let lone = task(
        "user = \"\"\nkill_signal = \"SIGNIT\"\nresources {\ncores = 0\ncpu = 300000\n}\nlogs {\nenabled = false\n}",
    );
    assert_eq!((lone.user, lone.kill_signal, lone.logs.disabled), (None, None, true));
    assert_eq!((lone.resources.cores, lone.resources.cpu_shares), (None, Some(262_144)));
    let stop = task("leader = true\nlifecycle {\nhook = \"poststop\"\nsidecar = true\n}");
    assert!(!stop.leader && !stop.lifecycle.unwrap().sidecar);
}

#[test]
fn config_with_an_equals_sign_is_refused_with_the_form_of_a_block() {
    let expected = "5:1 `config` is a stanza: write `config { ... }` without `=`";
    refused(&in_task("config = {\nrun_for = \"1s\"\n}"), expected);
}

#[test]
fn lone_carriage_returns_are_reported_and_windows_line_ends_are_not() {
    let job = in_task("");
    let outcome = |text: String| parse("job.hcl", &text).map(|_| ()).map_err(|errors| errors.to_string());
    let advice = "carriage return alone";
    assert!(outcome(job.replace('\n', "\r")).is_err_and(|text| text.contains(advice)));
    assert!(outcome(format!("# one\r{job}").replace("job ", "job : ")).is_err_and(|text| text.contains(advice)));
    assert_eq!(outcome(job.replace('\n', "\r\n")), Ok(()));
    let broken = job.replace("task ", "task : ").replace('\n', "\r\n");
    assert!(outcome(broken).is_err_and(|text| text.contains("key = value") && !text.contains(advice)));
}

#[test]
fn problem_in_a_task_is_reported_with_its_place() {
    for (lines, expected) in [
        ("drivr = 1", "5:1 `drivr` is not a field of `task` (did you mean `driver`?)"),
        ("count = 3", "5:1 `count` belongs in `group` or `device`, not in `task`"),
        ("memory = 3", "5:1 `memory` belongs in `resources`, not in `task`"),
        (
            "lifecycle {\n}",
            "5:1 the `lifecycle` has no `hook` (add hook = \"prestart\", \"poststart\" or \"poststop\")",
        ),
        (
            "template {\ndestination = \"x\"\n}",
            "5:1 the template has neither `data` nor `source` (add data = \"...\" or source = \"local/FILE\")",
        ),
        ("template {\ndata = \"x\"\n}", "5:1 the template has no `destination` (add destination = \"local/NAME\")"),
        (
            "template {\ndata = \"x\"\ndestination = \"y\"\nperms = \"9\"\n}",
            "8:9 `9` is no file mode (write it in octal: perms = \"0644\")",
        ),
        (
            "template {\ndata = \"x\"\ndestination = \"y\"\nchange_mode = \"signal\"\n}",
            "5:1 with change_mode = \"signal\" it needs `change_signal` (add change_signal = \"SIGHUP\")",
        ),
        ("vault {\n}", "5:1 `vault` is not supported: there is no Vault here"),
        ("user = \"a b\"", "5:8 `a b` is no user (a name, a number, or numbers of user and group: \"1000:1000\")"),
        (
            "kill_timeout = \"30\"",
            "5:16 `30` is no duration for `kill_timeout`: the unit is missing (write it with its unit: \"30s\")",
        ),
        (
            "kill_timeout = \"-5s\"",
            "5:16 `-5s` is no duration for `kill_timeout`: it is negative (write it like \"30s\" or \"1h30m\")",
        ),
        ("resources = {}", "5:1 `resources` is a stanza: write `resources { ... }` without `=`"),
        ("resources \"x\" {\n}", "5:1 `resources` takes no name: write `resources { ... }`"),
        ("user {\n}", "5:1 `user` is a value: write `user = ...`"),
        ("resources {\n}\nresources {\n}", "7:1 `resources` is given twice, first in line 5 (keep one of them)"),
        ("resources {\n  memroy = 5\n}", "6:3 `memroy` is not a field of `resources` (did you mean `memory`?)"),
        (
            "resources {\n  gpus = 5\n}",
            "6:3 `gpus` is not a field of `resources` (known here: cpu, memory, memory_max, device, cores)",
        ),
        (
            "resources {\n  bandwidth = 5\n}",
            "6:3 `bandwidth` is not a field of `resources` (known here: cpu, memory, memory_max, device, cores)",
        ),
        ("resources {\n  driver = 5\n}", "6:3 `driver` belongs in `task`, not in `resources`"),
        ("resources {\n  memory = 9\n}", "6:12 `memory` must be at least 10"),
        ("resources {\n  memory = -5\n}", "6:12 `memory` must be at least 10"),
        ("resources {\n  memory = 8796093022208\n}", "6:12 `memory` must be at most 8796093022207"),
        ("resources {\n  memory = 1.5\n}", "6:12 `memory` takes a whole number, not a number with a fraction"),
        (
            "resources {\n  memory = 50\n  memory_max = 40\n}",
            "7:16 `memory_max` (40 MiB) is less than `memory` (50 MiB)",
        ),
        ("logs {\n  max_files = 0\n}", "6:15 `max_files` must be at least 1"),
        ("restart {\n  interval = \"4s\"\n}", "6:14 `interval` must be at least 5s"),
        (
            "restart {\n  attempts = 0\n  mode = \"delay\"\n}",
            "6:14 0 attempts with mode `delay` is ambiguous (to restart never write mode = \"fail\")",
        ),
        (
            "restart {\n  attempts = 4\n  interval = \"1m\"\n  delay = \"16s\"\n}",
            "6:14 4 attempts with a delay of 16s do not fit into an interval of 1m0s (make `interval` at least 1m4s)",
        ),
        (
            "restart {\n  interval = \"29s\"\n}",
            "6:14 2 attempts with a delay of 15s do not fit into an interval of 29s (make `interval` at least 30s)",
        ),
        ("restart {\n  mode = \"wait\"\n}", "6:10 `mode` cannot be `wait`: it is `fail` or `delay`"),
        (
            "restart {\n  mode = \"Fail\"\n}",
            "6:10 `mode` cannot be `Fail`: it is `fail` or `delay` (did you mean `fail`?)",
        ),
        ("env {\n  A = [1]\n}", "6:7 `A` takes a text, not a list"),
        ("env = {\n  \"A=B\" = 1\n}", "6:3 `A=B` cannot be the name of a variable (use letters, digits and _)"),
        (
            "env = {\n  \"NOMAD_META_A-B\" = 1\n  NOMAD_META_A_B = 2\n}",
            "7:3 `NOMAD_META_A-B` and `NOMAD_META_A_B` both become `NOMAD_META_A_B` (only letters, digits and underscores stay as they are)",
        ),
        ("env = {\n  A = 1\n  \"A\" = 2\n}", "7:3 `A` is given twice (keep one of them)"),
        ("env = \"x\"", "5:7 `env` takes an object, not a text"),
        (
            "config {\n  a = [1, 99999999999999999999]\n}",
            "6:11 the number 99999999999999999999 is too large: at most 18446744073709551615",
        ),
        (
            "config {\n  a = file(\"x\")\n}",
            "6:7 file(): x: only the command that submits a job reads files (at most 256 KiB, read by the command with the rights of its user)",
        ),
        ("config {\n  a = \"\\u0000\"\n}", "6:7 a text cannot contain a NUL character (leave the character out)"),
    ] {
        refused(&in_task(lines), expected);
    }
}

#[test]
fn null_is_as_if_it_were_not_there_and_unknown_references_are_text() {
    let lines = "user = null\nmeta {\n  a = \"${node.unique.name}\"\n}\nconfig {\n  a = null\n  b = \"${artifact.image}\"\n}\n\
                 env {\n  A = \"${path.module}/x\"\n  B = a.b.c\n  C = \"$${NOMAD_DC}\"\n  D = \"$${x}\"\n}";
    let parsed = parse("x.hcl", &in_task(lines)).unwrap_or_else(|e| panic!("{e}"));
    let task = &parsed.job.groups[0].tasks[0];
    assert_eq!((task.user.as_deref(), task.meta["a"].as_str()), (None, "${node.unique.name}"));
    assert_eq!(serde_json::Value::Object(task.config.clone()), serde_json::json!({"b": "${artifact.image}"}));
    let env: Vec<&str> = task.env.values().map(String::as_str).collect();
    assert_eq!(env, ["${path.module}/x", "$${a.b.c}", "${NOMAD_DC}", "$${x}"]);
    let warned: Vec<&str> = parsed.warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert!(warned.iter().any(|message| message.contains("`a.b.c` stands without quotes")), "{warned:?}");
}

fn in_device(name: &str, lines: &str) -> String {
    in_task(&format!("resources {{\ndevice \"{name}\" {{\n{lines}\n}}\n}}"))
}

/// Promise (Devices): Each mistake of a `device` stanza is reported with its place and the correct value
#[test]
fn problem_in_a_device_is_reported_with_its_place() {
    let names = "write `type`, `vendor/type` or `vendor/type/name`: `gpu`, `nvidia/gpu`, `nvidia/gpu/Tesla T4`";
    for name in ["", "nvidia/", "/gpu", "nvidia//T4"] {
        refused(&in_device(name, ""), &format!("6:8 `{name}` names no devices ({names})"));
    }
    let of = |attribute: &str, rest: &str| format!("constraint {{\nattribute = \"{attribute}\"\n{rest}\n}}");
    let memory = |rest: &str| of("${device.attr.memory}", rest);
    let advice = "refer to ${device.attr.*}, ${device.model}, ${device.vendor}, ${device.type} or ${device.ids}";
    for (lines, expected) in [
        ("count = 0".to_owned(), "7:9 `count` must be at least 1".to_owned()),
        ("count = 1025".to_owned(), "7:9 `count` must be at most 1024".to_owned()),
        ("memory = 5".to_owned(), "7:1 `memory` belongs in `resources`, not in `device`".to_owned()),
        ("cuont = 5".to_owned(), "7:1 `cuont` is not a field of `device` (did you mean `count`?)".to_owned()),
        (
            "constraint = {}".to_owned(),
            "7:1 `constraint` is a stanza: write `constraint { ... }` without `=`".to_owned(),
        ),
        (
            "constraint {\nvalue = 5\n}".to_owned(),
            "7:1 the `constraint` has no `attribute` (add attribute = \"${device.attr.memory}\")".to_owned(),
        ),
        (memory(""), "7:1 the operator `=` needs a `value` (add value = \"...\")".to_owned()),
        (
            memory("operator = \"is_set\"\nvalue = 5"),
            "10:9 the operator `is_set` takes no `value` (compare with operator = \"=\", or test without a `value` that it is set)".to_owned(),
        ),
        (memory("operator = \"=>\"\nvalue = 5"), "9:12 there is no operator `=>` (did you mean `>=`?)".to_owned()),
        (
            memory("operator = \"near\"\nvalue = 5"),
            "9:12 there is no operator `near` (known are: = != < <= > >= version semver regexp set_contains \
             set_contains_any is_set is_not_set)"
                .to_owned(),
        ),
        (memory("value = [1]"), "9:9 `value` takes a text, not a list".to_owned()),
        (
            memory("value = \"99999999999999999999 MiB\""),
            "9:9 `99999999999999999999 MiB` cannot be compared by `=`: 99999999999999999999 does not fit 64 bits (write a number of at most 64 bits, or a text without a unit)"
                .to_owned(),
        ),
        (
            memory("operator = \"version\"\nvalue = \">= a\""),
            "10:9 `>= a` cannot be compared by `version`: it is no version (write a version: 1.2, or >= 1.2, < 2)".to_owned(),
        ),
        (
            memory("operator = \"regexp\"\nvalue = \"(\""),
            "10:9 `(` cannot be compared by `regexp`: it is no regular expression: unclosed group (write `\\\\` before a character that stands for itself)".to_owned(),
        ),
        (
            of("${attr.cpu.arch}", "value = \"arm64\""),
            format!("8:13 `${{attr.cpu.arch}}` is no attribute of a device ({advice})"),
        ),
        (
            of("${device.modell}", "value = \"x\""),
            "8:13 `${device.modell}` is no attribute of a device (did you mean `${device.model}`?)".to_owned(),
        ),
        (
            of("device.model", "value = \"x\""),
            "8:13 `device.model` is no attribute of a device (write `${device.model}`)".to_owned(),
        ),
        (
            "affinity {\nattribute = \"${device.model}\"\nvalue = \"x\"\nweight = 101\n}".to_owned(),
            "10:10 `weight` must be at most 100".to_owned(),
        ),
        (
            "affinity {\nattribute = \"${device.model}\"\nvalue = \"x\"\nweight = 0\n}".to_owned(),
            "10:10 a `weight` of 0 changes nothing (leave the `affinity` out)".to_owned(),
        ),
    ] {
        refused(&in_device("nvidia/gpu", &lines), &expected);
    }
    let option = |lines: &str| format!("first_available {{\n{lines}\n}}");
    refused(&in_device("gpu", &option("count = 0")), "8:9 `count` must be at least 1");
    refused(
        &in_device("gpu", &option("cuont = 1")),
        "8:1 `cuont` is not a field of `first_available` (did you mean `count`?)",
    );
    refused(&in_device("gpu", &"first_available {\n}\n".repeat(9)), "23:1 a device has at most 8 options");
    let many = "device \"gpu\" {\n}\n".repeat(9);
    refused(&in_task(&format!("resources {{\n{many}}}")), "22:8 a task requests devices in at most 8 stanzas");
}

#[test]
fn options_of_a_device_are_read_in_their_order() {
    let constraint = |model: &str| format!("constraint {{\nattribute = \"${{device.model}}\"\nvalue = \"{model}\"\n}}");
    let lines = format!(
        "count = 3\n{}\nfirst_available {{\ncount = 1\n{}\n}}\nfirst_available {{\n}}",
        constraint("A"),
        constraint("B")
    );
    let job = parse("x.hcl", &in_device("gpu", &lines)).unwrap_or_else(|e| panic!("{e}")).job;
    let [request] = job.groups[0].tasks[0].resources.devices.as_slice() else { panic!("one") };
    let options = request.options().into_iter().map(|option| {
        let constraints: Vec<String> = option.constraints.iter().map(|of| of.value.clone()).collect();
        (option.count, constraints.join(" "))
    });
    assert_eq!(options.collect::<Vec<_>>(), [(1, "A B".to_owned()), (3, "A".to_owned())]);
    let stored = serde_json::to_string(request).unwrap();
    assert_eq!(&serde_json::from_str::<crate::model::demand::DeviceRequest>(&stored).unwrap(), request);
}

#[test]
fn a_device_is_read_as_it_is_meant() {
    let lines = "constraint {\nattribute = \"${device.attr.memory}\"\noperator = \">=\"\nvalue = \"20 GiB\"\n}\n\
                 constraint {\nattribute = \"${ device.attr.ecc }\"\noperator = \"is\"\nvalue = true\n}\n\
                 affinity {\nattribute = \"${device.model}\"\noperator = \"regexp\"\nvalue = \"^A100\"\nweight = -7\n}";
    let job = parse("x.hcl", &in_device("nvidia/gpu", lines)).unwrap_or_else(|e| panic!("{e}")).job;
    let [request] = job.groups[0].tasks[0].resources.devices.as_slice() else { panic!("one") };
    let constraints: Vec<String> = request.constraints.iter().map(ToString::to_string).collect();
    assert_eq!((request.name.to_string().as_str(), request.count), ("nvidia/gpu", 1));
    assert_eq!(constraints, ["device.attr.memory >= 20 GiB", "device.attr.ecc = true"]);
    let [liked] = request.affinities.as_slice() else { panic!("one") };
    assert_eq!((liked.constraint.to_string().as_str(), liked.weight), ("device.model regexp ^A100", -7));
    let twice = in_task("resources {\ndevice \"gpu\" {\n}\ndevice \"gpu\" {\n}\n}");
    assert_eq!(parse("x.hcl", &twice).unwrap().job.groups[0].tasks[0].resources.devices.len(), 2);
}

#[test]
fn a_job_without_devices_is_stored_as_it_always_was() {
    let stored = serde_json::to_value(parse("x.hcl", &in_job("")).unwrap().job).unwrap();
    let resources = &stored["groups"][0]["tasks"][0]["resources"];
    let older = serde_json::json!({"cpu_shares": null, "memory_bytes": null, "memory_max_bytes": null});
    assert_eq!(resources, &older);
    assert_eq!(serde_json::from_value::<crate::model::job::Resources>(older).unwrap().devices, []);
}

#[test]
fn unresolvable_references_are_reported_with_their_place() {
    for (lines, expected) in [
        (
            "env {\n  A = \"x ${NOMAD_ALLOC_IDD}\"\n}",
            "6:10 `${NOMAD_ALLOC_IDD}` can never be resolved: there is no such variable (did you mean `NOMAD_ALLOC_ID`?)",
        ),
        (
            "env {\n  A = \"${NOMAD_PORT_http}\"\n}",
            "6:8 `${NOMAD_PORT_http}` can never be resolved: there is no such variable",
        ),
        (
            "env {\n  A = \"${NOMAD_MEMORY_MAX_LIMIT}\"\n}",
            "6:8 `${NOMAD_MEMORY_MAX_LIMIT}` can never be resolved: it exists only where the task requests it (give `memory_max` in `resources`)",
        ),
        (
            "meta {\n  owner = \"a\"\n}\nenv {\n  A = \"${meta.ownr}\"\n}",
            "9:8 `${meta.ownr}` can never be resolved: there is no such key in `meta` (did you mean `owner`?)",
        ),
        (
            "env {\n  A = \"${attr.cpu.arc}\"\n}",
            "6:8 `${attr.cpu.arc}` can never be resolved: there is no such attribute (did you mean `attr.cpu.arch`?)",
        ),
        (
            "env {\n  A = \"${node.meta.rack}\"\n}",
            "6:8 `${node.meta.rack}` can never be resolved: there is no such attribute (the node's metadata is `${meta.rack}`)",
        ),
        (
            "env {\n  A = \"${attr.platform.aws.ami-id}\"\n}",
            "6:8 `${attr.platform.aws.ami-id}` can never be resolved: there is no such attribute (docs/hcl.md lists the attributes of the host)",
        ),
        (
            "env {\n  A = \"${job.id}\"\n}",
            "6:8 `${job.id}` can never be resolved: there is nothing of that name (for the two characters themselves write `$${`)",
        ),
        (
            "config {\n  a = [{ b = \"${NOMAD_X}\" }]\n}",
            "6:15 `${NOMAD_X}` can never be resolved: there is no such variable",
        ),
    ] {
        warned("x.hcl", &in_task(lines), expected);
    }
    // Metadata that the job has not may be the node's. An inherited variable may be there; the task's own are, in
    // config; metadata of the outer stanzas is.
    let fine = "meta {\n  k = 1\n}\nenv {\n  PATH = \"/x:${PATH}\"\n  A = \"${HOME}\"\n  RACK = \"${meta.rack}\"\n}\nconfig {\n  a = \"${A} ${env[\"A\"]} ${meta.k} ${NOMAD_META_K}\"\n}";
    assert_eq!(errors("x.hcl", &in_task(fine)), [""; 0]);
    let json =
        r#"{"job": {"j": {"group": {"g": {"task": {"t": {"driver": "mock", "env": {"A": "${upper(x)} ${"}}}}}}}}"#;
    let open =
        "1:91 `${` can never be resolved: the closing `}` is missing (for the two characters themselves write `$${`)";
    assert_eq!(errors("x.json", json), [open]);
    let call = "1:79 `${upper(x)}` can never be resolved: HCL functions and expressions are not supported (for the two characters themselves write `$${`)";
    warned("x.json", &json.replace(" ${\"", "\""), call);
}

#[test]
fn problem_around_the_tasks_is_reported_with_its_place() {
    for (lines, expected) in [
        (
            "type = \"batc\"",
            "2:8 `type` cannot be `batc`: it is `service` or `batch` or `system` or `sysbatch` (did you mean `batch`?)",
        ),
        ("type = batch", "2:8 `type` cannot be `${batch}`: it is `service` or `batch` or `system` or `sysbatch`"),
        (
            "id = \"a b\"",
            "2:6 the name of the job contains ` ` (use letters, digits and . _ - + @ : and start with a letter, a digit or _)",
        ),
        ("name = \"\"", "2:8 `name` has 1 to 128 bytes"),
        ("datacenters = \"dc1\"", "2:15 `datacenters` takes a list of texts, not a text"),
        ("driver = \"mock\"", "2:1 `driver` belongs in `task`, not in `job`"),
        ("restart {\n}", "2:1 `restart` belongs in `group` or `task`, not in `job`"),
        ("group {\n}", "2:1 `group` takes one name: write `group \"name\" { ... }`"),
        ("group \"a\" \"b\" {\n}", "2:1 `group` takes one name: write `group \"name\" { ... }`"),
        ("group \"e\" {\n}", "2:7 the group `e` has no `task` (add task \"name\" { driver = \"raw_exec\" ... })"),
        ("group = {}", "2:1 `group` is a stanza with a name: write `group \"name\" { ... }`"),
    ] {
        refused(&in_job(lines), expected);
    }
    for (lines, expected) in [
        ("count = -1", "3:9 `count` must be at least 0"),
        ("count = 10001", "3:9 `count` must be at most 10000"),
        ("ephemeral_disk {\nsize = 1\n}", "4:8 `size` must be at least 10"),
        (
            "task \"t\" {\n  driver = \"mock\"\n}",
            "6:10 there is a task `t` already, in line 3 (give one of them another name)",
        ),
        ("task \"u\" {\n}", "3:6 the task `u` has no `driver` (add driver = \"raw_exec\")"),
        ("service = \"x\"", "3:1 `service` is a stanza: write `service { ... }` without `=`"),
    ] {
        refused(&in_group(lines), expected);
    }
    for (text, expected) in [
        ("", "1:1 the file has no `job` (write job \"name\" { group \"name\" { task \"name\" { ... } } })"),
        ("job \"j\" {\n}\n", "1:5 the job has no `group` (add group \"name\" { task \"name\" { ... } })"),
        ("jop \"j\" {\n}\n", "1:1 `jop` is not a field of the file (did you mean `job`?)"),
        (
            "variable \"v\" {\n  default = 1\n}\n",
            "1:1 the file has no `job` (write job \"name\" { group \"name\" { task \"name\" { ... } } })",
        ),
        ("job \"j\" {", "1:9 HCL syntax: invalid block body; expected `}`, newline or identifier"),
    ] {
        refused(text, expected);
    }
    let two = format!("{}{}", in_job(""), in_job(""));
    refused(&two, "9:5 a file is one job, and the first one stands in line 1 (put it into a file of its own)");
}

#[test]
fn names_that_would_break_a_path_or_a_label_are_refused() {
    let advice = "(use letters, digits and . _ - + @ : and start with a letter, a digit or _)";
    let name = |name: &str| {
        format!("job \"j\" {{\n  group \"g\" {{\n    task {name} {{\n      driver = \"mock\"\n    }}\n  }}\n}}\n")
    };
    for (quoted, expected) in [
        ("\"\"", "3:10 the name of the task is empty".to_owned()),
        ("\"a/b\"", "3:10 the name of the task contains `/`".to_owned()),
        ("\"..\"", "3:10 the name of the task starts with `.`".to_owned()),
        ("\".\"", "3:10 the name of the task starts with `.`".to_owned()),
        ("\"-a\"", "3:10 the name of the task starts with `-`".to_owned()),
        ("\"a\\nb\"", "3:10 the name of the task contains `\\n`".to_owned()),
        (&format!("\"{}\"", "a".repeat(129)), "3:10 the name of the task is longer than 128 bytes".to_owned()),
    ] {
        refused(&name(quoted), &format!("{expected} {advice}"));
    }
    for kernel in ["memory.max", "cgroup.procs", "tasks", "io.stat"] {
        let why = "in a cgroup the kernel has files of such names (give it another name)";
        refused(&name(&format!("\"{kernel}\"")), &format!("3:10 a task cannot be called `{kernel}`: {why}"));
    }
    let why = "the directory of that name is shared by all tasks of the alloc (give it another name)";
    refused(&name("\"alloc\""), &format!("3:10 a task cannot be called `alloc`: {why}"));
    for fine in ["web", "web.1", "größe", "a@b:c+d", "_x", "memory", "1"] {
        assert_eq!(errors("x.hcl", &name(&format!("\"{fine}\""))), [""; 0]);
    }
}

#[test]
fn all_problems_of_a_file_are_reported_in_its_order() {
    let text = "job \"j\" {\n  typ = 1\n  group \"g\" {\n    count = -1\n    task \"t\" {\n      env {\n        A = \"${attr.x}\"\n      }\n      kill_signal = \"X\"\n    }\n  }\n  group \"g\" {\n  }\n}\n";
    let places: Vec<(usize, usize)> = parse("x.hcl", text).unwrap_err().0.iter().map(|d| (d.line, d.column)).collect();
    assert_eq!(places, [(2, 3), (4, 13), (5, 10), (12, 9), (12, 9)]);
    let many = in_task(&"x { }\n".repeat(500));
    let found = errors("x.hcl", &many);
    assert_eq!(found.len(), diagnostic::MAX_PROBLEMS + 1);
    assert_eq!(
        found.last().map(String::as_str),
        Some("1:1 450 more problems are not shown (correct those that are shown first)")
    );
}

#[test]
fn paths_name_the_stanzas_around_a_field() {
    let paths = |text: &str| parse("x", text).unwrap_err().0.into_iter().map(|d| d.field).collect::<Vec<_>>();
    assert_eq!(paths(&in_task("resources {\n  memory = 0\n}")), ["job.j.group.g.task.t.resources.memory"]);
    assert_eq!(paths(&in_task("config {\n  a = [1, f()]\n}")), ["job.j.group.g.task.t.config.a[1]"]);
    assert_eq!(paths(&in_task("config {\n  a = [1, { b = f() }]\n}")), ["job.j.group.g.task.t.config.a[1].b"]);
    assert_eq!(paths(&in_task("driver = \"x\"")), ["job.j.group.g.task.t"], "given twice");
    let json = r#"{"job": {"j": {"group": [{"g": {"task": {"t": {"driver": [1]}}}}]}}}"#;
    assert_eq!(paths(json), ["job.j.group.g.task.t.driver"]);
}

#[test]
fn job_stanzas_without_effect_are_accepted_with_one_warning_each() {
    let in_the_job = "datacenters = [\"dc1\"]\nregion = \"eu\"\nnamespace = \"n\"\nnode_pool = \"p\"\npriority = 50\nupdate {\n}\nmigrate {\n}\nspread {\n  attribute = \"${node.datacenter}\"\n}";
    let found = warnings(&in_job(in_the_job));
    let words: Vec<_> = found.iter().map(|w| w.split('`').nth(1).unwrap_or("").to_owned()).collect();
    assert_eq!(words, ["datacenters", "migrate", "spread"]);
    assert_eq!(
        found[0],
        "2:1 `datacenters`, `region`, `namespace`, `node_pool` and `priority` do less on one node than in a cluster"
    );
    assert_eq!(
        warnings(&in_job("datacenters = [\"a\"]")),
        [
            "2:1 `datacenters`: it decides the placement only where the agent's node.datacenter is set; tasks get the first one as \
         NOMAD_DC"
        ]
    );
    let warned = warnings(&in_task("service {\n  name = \"x\"\n}\nservice {\n}"));
    assert_eq!(warned.len(), 1, "once: {warned:?}");
    assert!(warned[0].starts_with("5:1 `service`: nothing is registered in Consul"), "{warned:?}");
    assert_eq!(warnings(FULL_HCL).len(), 2);
}

#[test]
fn a_full_file_gives_the_same_job_in_both_languages() {
    let hcl = parse("full.hcl", FULL_HCL).unwrap_or_else(|e| panic!("{e}"));
    let json = parse("full.json", FULL_JSON).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(hcl.job, json.job);
    let back: Job = serde_json::from_str(&serde_json::to_string(&hcl.job).unwrap()).unwrap();
    assert_eq!(back, hcl.job, "a stored job comes back as it was");
    let words = |p: &ParsedJob| p.warnings.iter().map(|w| w.message.clone()).collect::<Vec<_>>();
    assert_eq!(words(&hcl), words(&json));
}

#[test]
fn a_full_file_is_read_as_it_is_meant() {
    let job = parse("full.hcl", FULL_HCL).unwrap_or_else(|e| panic!("{e}")).job;
    assert_eq!((job.id.as_str(), job.name.as_str(), job.kind), ("full-1", "Full", JobKind::Batch));
    assert_eq!((job.namespace.as_str(), job.region.as_str(), job.datacenters), ("n", "eu", vec!["dc7".to_owned()]));
    let group = &job.groups[0];
    assert_eq!((group.name.as_str(), group.count, group.meta["b"].as_str()), ("g", 3, "2"));
    let seconds = Duration::from_secs;
    let of_group = RestartPolicy {
        attempts: 5,
        interval: seconds(600),
        delay: Duration::from_millis(1500),
        mode: RestartMode::Delay,
    };
    assert_eq!(group.restart, of_group);
    let task = group.task("main").unwrap();
    assert_eq!(task.restart, RestartPolicy { attempts: 1, mode: RestartMode::Fail, ..of_group.clone() });
    assert_eq!(group.task("other").unwrap().restart, of_group);
    assert_eq!((task.driver.as_str(), task.user.as_deref()), ("raw_exec", Some("nobody")));
    assert_eq!((task.kill_signal.as_deref(), task.kill_timeout), (Some("SIGTERM"), seconds(20)));
    let resources = &task.resources;
    assert_eq!(
        (resources.cpu_shares, resources.memory_bytes, resources.memory_max_bytes),
        (Some(250), Some(64 << 20), Some(128 << 20))
    );
    assert_eq!((task.logs.max_files, task.logs.max_file_bytes, task.logs.disabled), (2, 3 << 20, true));
    assert_eq!(
        serde_json::Value::Object(task.config.clone()),
        serde_json::json!({
            "command": "/bin/sh", "args": ["-c", "echo \"$HOME\" $${x} ${NOMAD_ALLOC_ID}\n"], "pids_limit": 10,
            "ratio": 0.5, "on": true, "nested": {"k": "${meta.a}"}
        })
    );
    assert_eq!(task.env["N"], "5");
    assert_eq!(task.env["F"], "1.5");
    assert_eq!(task.env["B"], "true");
}

#[test]
fn omitted_job_settings_have_nomad_defaults() {
    let job = parse("x.hcl", &in_job("")).unwrap().job;
    assert_eq!(
        (job.name.as_str(), job.kind, job.region.as_str(), job.namespace.as_str()),
        ("j", JobKind::Service, "global", "default")
    );
    let task = &job.groups[0].tasks[0];
    assert_eq!(job.groups[0].count, 1);
    assert_eq!(task.restart, RestartPolicy::default_for(JobKind::Service));
    assert_eq!((task.kill_timeout, task.kill_signal.clone()), (Duration::from_secs(5), None));
    assert_eq!(task.resources, crate::model::job::Resources::default());
    assert_eq!(task.logs, crate::model::job::LogConfig::default());
    let batch = parse("x.hcl", &in_job("type = \"batch\"")).unwrap().job;
    assert_eq!(batch.groups[0].restart, RestartPolicy::default_for(JobKind::Batch));
}

#[test]
fn job_field_refused_by_a_driver_has_its_place_in_the_file() {
    for (file, text, item, config) in [("f.hcl", FULL_HCL, 26, 24), ("f.json", FULL_JSON, 16, 14)] {
        let parsed = parse(file, text).unwrap();
        let place =
            |field: &str| parsed.locate(&parsed.task_path("g", "main", field)).map(|(line, column, _)| (line, column));
        assert_eq!(place("config.args[0]").map(|p| p.0), Some(item), "{file}");
        assert_eq!(place("config.nothing").map(|p| p.0), Some(config), "the stanza around what is not there: {file}");
        assert!(place("config.nested.k").is_some() && parsed.locate("nothing").is_none());
        let d = parsed.diagnose(Severity::Error, &parsed.task_path("g", "main", "config.args[0]"), "no");
        assert_eq!((d.line, d.message.as_str()), (item, "no"));
        assert!(d.source_line.contains("-c"), "{}", d.source_line);
    }
}

#[test]
fn json_may_give_stanzas_as_lists_and_nomads_api_shape_is_recognised() {
    let list = r#"{"job": [{"j": [{"group": [{"g": {"task": [{"a": {"driver": "mock"}}, {"b": [{"driver": "mock", "resources": [{"cpu": 5}]}]}]}}]}]}]}"#;
    let job = parse("x.json", list).unwrap_or_else(|e| panic!("{e}")).job;
    assert_eq!(job.groups[0].tasks.len(), 2);
    assert_eq!(job.groups[0].tasks[1].resources.cpu_shares, Some(5));
    let api = r#"{"Job": {"ID": "x", "TaskGroups": []}}"#;
    assert!(errors("x.json", api)[0].starts_with("1:2 `Job` is not supported: this is the shape of Nomad's API"));
    let twice = r#"{"job": {"j": {"group": {"g": {"task": {"t": {"driver": "mock", "driver": "mock"}}}}}}}"#;
    assert_eq!(errors("x.json", twice), ["1:65 `driver` is given twice, first in line 1 (keep one of them)"]);
    for wrong in [
        r#"{"job": 5}"#,
        r#"{"job": {"j": 5}}"#,
        r#"{"job": {"j": {"group": [1]}}}"#,
        r#"{"job": []}"#,
        r#"{"job": {}}"#,
    ] {
        assert_eq!(errors("x.json", wrong).len(), 1, "{wrong} {:?}", errors("x.json", wrong));
    }
}

#[test]
fn lists_in_lists_in_json_cost_no_more_than_their_size() {
    let deep = format!("{}1{}", r#"{"config": [{"task": ["#.repeat(60), "]}]}".repeat(60));
    let text = format!(
        r#"{{"job": {{"j": {{"group": {{"g": {{"task": {{"t": {{"driver": "mock", "config": {{"a": [{deep}]}}}}}}}}}}}}}}}}"#
    );
    assert_eq!(errors("x.json", &text), [""; 0]);
}

proptest! {
    #[test]
    fn no_change_of_a_valid_file_makes_it_panic(
        json in any::<bool>(), at in 0.0f64..1.0, cut in 0usize..40,
        put in prop_oneof!["[a-z \"{}=,:0-9$\\[\\]\n-]{0,12}", ".{0,6}", Just("${".to_owned()), Just("\u{0}".to_owned())],
    ) {
        let (file, text) = if json { ("f.json", FULL_JSON) } else { ("f.hcl", FULL_HCL) };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let at = (text.len() as f64 * at) as usize;
        let (at, end) = ((0..=at).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0), (at + cut).min(text.len()));
        let end = (end..=text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(text.len());
        let changed = format!("{}{put}{}", &text[..at], &text[end..]);
        if let Err(errors) = parse(file, &changed) {
            prop_assert!(!errors.0.is_empty(), "refused, but not why");
            prop_assert!(!errors.to_string().is_empty());
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "(.|\n){0,120}", words in "((job|group|task|driver|config|env|restart|=|\\{|\\}|\"x\"|1|\n) ?){0,40}") {
        for text in [text, words] {
            for file in ["x.hcl", "x.json"] {
                if let Err(errors) = parse(file, &text) {
                    prop_assert!(!errors.0.is_empty());
                }
            }
        }
    }

    #[test]
    fn problem_of_any_task_field_names_its_line_in_the_file(lines in "(resources|logs|restart|env|meta) \\{\n[a-z_]{1,9} = (1|\"x\"|true|\\[\\])\n\\}") {
        let text = in_task(&lines);
        for problem in parse("x.hcl", &text).err().map(|e| e.0).unwrap_or_default() {
            prop_assert_eq!(text.lines().nth(problem.line - 1), Some(problem.source_line.as_str()));
            prop_assert!(problem.field.starts_with("job.j.group.g.task.t."));
        }
    }
}
