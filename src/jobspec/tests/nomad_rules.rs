//! What Nomad refuses of a job, and what it takes although one could think otherwise.

use super::{errors, in_group, in_job, in_task, refused, warned, warnings};
use crate::jobspec::parse;

fn template(lines: &str) -> String {
    format!("template {{\ndata = \"x\"\n{lines}\n}}")
}

#[test]
fn templates_have_destinations_of_their_own_below_the_alloc() {
    let at = |path: &str| template(&format!("destination = \"{path}\""));
    refused(
        &in_task(&format!("{}\n{}", at("local/a"), at("local/a"))),
        "11:15 the template in line 7 has the destination `local/a` already (give each template a file of its own)",
    );
    // Nomad compares them as they are written.
    assert_eq!(errors("x.hcl", &in_task(&format!("{}\n{}", at("local/a"), at("local//a")))), [""; 0]);
    for (path, is_fine) in [
        ("../a", true),
        ("local/../../a", true),
        ("${NOMAD_ALLOC_DIR}/../a", true),
        ("../../a", false),
        ("local/../../../a", false),
    ] {
        let found = errors("x.hcl", &in_task(&at(path)));
        let expected = format!("7:15 `{path}` leads out of the directory of the alloc (write it below local/)");
        assert_eq!(found, if is_fine { Vec::new() } else { vec![expected] }, "{path}");
    }
}

#[test]
fn a_template_of_variables_takes_no_signal() {
    let with = |mode: &str| {
        in_task(&template(&format!(
            "destination = \"local/a\"\nenv = true\nchange_mode = \"{mode}\"\nchange_signal = \"SIGHUP\""
        )))
    };
    refused(
        &with("signal"),
        "9:15 a template with env = true takes no change_mode = \"signal\": variables of a process do not change \
         (write change_mode = \"restart\", or leave it out)",
    );
    assert_eq!(errors("x.hcl", &with("restart")), [""; 0]);
}

#[test]
fn a_template_has_data_or_a_source() {
    let with = |lines: &str| in_task(&format!("template {{\ndestination = \"local/a\"\n{lines}\n}}"));
    refused(
        &with(""),
        "5:1 the template has neither `data` nor `source` (add data = \"...\" or source = \"local/FILE\")",
    );
    refused(
        &with("data = \"x\"\nsource = \"local/b\""),
        "5:1 a template has either `data` or `source`: this one has both (keep one of them)",
    );
}

#[test]
fn log_files_of_a_task_fit_into_the_disk_of_its_group() {
    let with = |size: u64, logs: &str| {
        in_group(&format!("ephemeral_disk {{\nsize = {size}\n}}\ntask \"u\" {{\ndriver = \"mock\"\n{logs}\n}}"))
    };
    let advice = |least: u64| format!("make them fewer or smaller, or the size of `ephemeral_disk` at least {least}");
    let found = errors("x.hcl", &with(120, "logs {\nmax_files = 12\nmax_file_size = 10\n}"));
    let message = "12 log files of 10 MiB may take 120 MiB: more than the `ephemeral_disk` of 120 MiB leaves";
    assert_eq!(found, [format!("8:1 {message} ({})", advice(121))]);
    for fine in [
        with(121, "logs {\nmax_files = 12\nmax_file_size = 10\n}"),
        with(120, "logs {\nmax_files = 1200\nmax_file_size = 10\ndisabled = true\n}").replace("1200", "999"),
        // Each task by itself, as in Nomad.
        with(101, ""),
    ] {
        assert_eq!(errors("x.hcl", &fine), [""; 0], "{fine}");
    }
    // Without `logs` in a task the place is that of the disk.
    let message = "10 log files of 10 MiB may take 100 MiB: more than the `ephemeral_disk` of 50 MiB leaves";
    assert_eq!(errors("x.hcl", &with(50, "")), vec![format!("3:1 {message} ({})", advice(101)); 2]);
    let message = "100 log files of 10 MiB may take 1000 MiB: more than the `ephemeral_disk` of 300 MiB leaves";
    refused(&in_task("logs {\nmax_files = 100\nmax_file_size = 10\n}"), &format!("5:1 {message} ({})", advice(1001)));
}

#[test]
fn a_service_mesh_needs_a_group_with_a_network_of_its_own() {
    let service = |lines: &str| format!("service {{\nname = \"a\"\nport = \"9001\"\n{lines}\n}}");
    let sidecar = "connect {\nsidecar_service {\n}\n}";
    let with = |mode: &str, lines: &str| in_group(&format!("network {{\nmode = \"{mode}\"\n}}\n{}", service(lines)));
    let advice = "(add network { mode = \"bridge\" } to the group)";
    let message = "a `sidecar_service` needs a network of its own in the group";
    refused(&in_group(&service(sidecar)), &format!("6:1 {message} {advice}"));
    refused(&with("host", sidecar), &format!("9:1 {message} {advice}"));
    for fine in [with("bridge", sidecar), with("cni/mesh", sidecar), with("host", "connect {\nnative = true\n}")] {
        assert_eq!(errors("x.hcl", &fine), [""; 0], "{fine}");
    }
    refused(
        &with("bridge", &format!("provider = \"nomad\"\n{sidecar}")),
        "10:1 a service with provider = \"nomad\" takes no `connect` (remove `connect`, or the provider)",
    );
    let of_task = service("connect {\nnative = true\n}").replace("port = \"9001\"\n", "");
    refused(
        &in_task(&of_task),
        "7:1 `connect` is for a service of a `group`, not of a task (move the service to the group)",
    );
}

#[test]
fn scaling_of_a_task_is_vertical_and_named_once() {
    let with = |label: &str, kind: &str| format!("scaling \"{label}\" {{\nmax = 5\ntype = \"{kind}\"\n}}");
    for (label, kind) in [("cpu", "vertical_cpu"), ("mem", "vertical_mem"), ("CPU", "vertical_cpu"), ("cpu", "")] {
        assert_eq!(errors("x.hcl", &in_task(&with(label, kind))), [""; 0], "{label} {kind}");
    }
    for (label, kind, right) in [("cpu", "horizontal", "vertical_cpu"), ("mem", "vertical_cpu", "vertical_mem")] {
        let message = format!("7:8 the `type` of this `scaling` is `{right}`, not `{kind}` (write type = \"{right}\")");
        refused(&in_task(&with(label, kind)), &message);
    }
    let twice = format!("{}\n{}", with("cpu", ""), with("CPU", ""));
    refused(&in_task(&twice), "9:9 the task has a `scaling` `CPU` already (keep one of them)");
}

#[test]
fn constraints_about_several_allocs_are_not_of_a_task() {
    for (lines, word) in [
        ("distinct_hosts = true", "distinct_hosts"),
        ("operator = \"distinct_hosts\"\nvalue = \"true\"", "distinct_hosts"),
        ("distinct_property = \"${meta.a}\"", "distinct_property"),
        ("operator = \"distinct_property\"\nattribute = \"${meta.a}\"", "distinct_property"),
    ] {
        let message = format!(
            "5:1 `{word}` is a constraint of a job or a group, not of a task (write the `constraint` in the group)"
        );
        refused(&in_task(&format!("constraint {{\n{lines}\n}}")), &message);
        assert_eq!(errors("x.hcl", &in_group(&format!("constraint {{\n{lines}\n}}"))), [""; 0], "{lines}");
    }
}

#[test]
fn targets_of_a_spread_differ() {
    let spread = |second: &str| {
        format!(
            "spread {{\nattribute = \"${{node.datacenter}}\"\ntarget \"a\" {{\npercent = 10\n}}\ntarget \"{second}\" {{\n}}\n}}"
        )
    };
    refused(&in_job(&spread("a")), "7:8 the `spread` has a target `a` already (keep one of them)");
    assert_eq!(errors("x.hcl", &in_job(&spread("b"))), [""; 0]);
    // Two spreads with the same target are two.
    let two = format!("{}\n{}", spread("b"), spread("b"));
    assert_eq!(errors("x.hcl", &in_job(&two)), [""; 0]);
}

#[test]
fn ports_of_docker_are_labels_of_the_network() {
    let with = |ports: &str| {
        format!(
            "job \"j\" {{\ngroup \"g\" {{\nnetwork {{\nport \"http\" {{\n}}\n}}\ntask \"t\" {{\ndriver = \"docker\"\nconfig {{\n\
             image = \"x\"\nports = [{ports}]\n}}\n}}\n}}\n}}\n"
        )
    };
    assert_eq!(warnings(&with("\"http\", \"${meta.port}\"")), [""; 0]);
    warned(
        "x.hcl",
        &with("\"http\", \"htp\""),
        "11:18 the start of the task will fail: no `network` has a port `htp` (did you mean `http`?)",
    );
    // Of another driver it is no label.
    assert_eq!(warnings(&with("\"zz\"").replace("\"docker\"", "\"mock\"")), [""; 0]);
}

/// Of both forms Nomad finds out when the task starts.
#[test]
fn port_map_without_a_network_of_the_task_is_warned_of() {
    let with = |config: &str, resources: &str| {
        format!(
            "job \"j\" {{\ngroup \"g\" {{\nnetwork {{\nport \"http\" {{\n}}\n}}\ntask \"t\" {{\ndriver = \"docker\"\nconfig {{\n\
             image = \"x\"\n{config}\n}}\n{resources}\n}}\n}}\n}}\n"
        )
    };
    let message = "the start of the task will fail: `port_map` maps ports of the task's own `network` alone (write the \
                   port of the container as `to` of the group's port `http`, and ports = [\"http\"])";
    for (config, place) in [
        ("port_map {\nhttp = 80\n}", "12:1"),
        ("port_map = {\nhttp = 80\n}", "12:1"),
        ("port_map = [{ http = 80 }]", "11:15"),
        ("ports = []\nport_map {\nhttp = 80\n}", "13:1"),
    ] {
        warned("x.hcl", &with(config, ""), &format!("{place} {message}"));
    }
    // An empty one maps nothing, `ports` overrides it, and it is right with a network of the task.
    let own = "resources {\nnetwork {\nport \"own\" {\n}\n}\n}";
    for (config, resources) in
        [("port_map {\n}", ""), ("ports = [\"http\"]\nport_map {\nhttp = 80\n}", ""), ("port_map {\nhttp = 80\n}", own)]
    {
        let found = warnings(&with(config, resources));
        assert!(!found.iter().any(|warning| warning.contains("port_map")), "{config}: {found:?}");
    }
}

#[test]
fn a_consul_stanza_is_accepted_with_one_warning() {
    let text =
        in_group("consul {\n}\ntask \"u\" {\ndriver = \"mock\"\nconsul {\nnamespace = \"x\"\ncluster = \"y\"\n}\n}");
    assert_eq!(warnings(&text), ["3:1 `consul`: there is no Consul here: the task gets no token"]);
    let refusal = "4:1 `address` is not a field of `consul` (known here: cluster, namespace, partition)";
    refused(&in_group("consul {\naddress = \"x\"\n}"), refusal);
    refused(&in_job("consul {\n}"), "2:1 `consul` is not supported: there is no Consul here");
}

#[test]
fn an_empty_list_of_datacenters_means_any() {
    for lines in ["datacenters = []", "datacenters = [\"*\"]", ""] {
        let job = parse("x.hcl", &in_job(lines)).unwrap_or_else(|e| panic!("{e}")).job;
        assert_eq!(job.datacenters, ["*"], "{lines}");
    }
}

#[test]
fn text_of_a_shell_is_named_where_it_stands() {
    let in_template =
        |line: &str| in_task(&format!("template {{\ndata = <<EOF\nfirst\n{line}\nEOF\ndestination = \"local/a\"\n}}"));
    for (line, expected) in [
        (
            "echo ${#arr[@]}",
            "8:6 HCL syntax: `#` begins a comment of HCL inside of a `${...}` (for the two characters themselves write `$${`)",
        ),
        (
            "date +%{x}",
            "8:7 HCL syntax: `%{` begins a directive of HCL, and this is none (for the two characters themselves write `%%{`)",
        ),
    ] {
        refused(&in_template(line), expected);
    }
    let array = errors("x.hcl", &in_template("echo ${arr[@]}"));
    assert!(array[0].starts_with("8:12 HCL syntax"), "{array:?}");
    assert!(array[0].ends_with("(for a `${...}` of the shell write `$${...}`)"), "{array:?}");
    assert_eq!(errors("x.hcl", &in_template("echo $${arr[@]} $${#arr[@]} %%{x}")), [""; 0]);
}

#[test]
fn size_with_a_unit_reports_the_unit_of_the_field() {
    let memory = |value: &str| in_task(&format!("resources {{\nmemory = \"{value}\"\n}}"));
    for (value, advice) in [
        ("256MB", "its unit is MiB: write memory = 256"),
        ("2 GiB", "its unit is MiB: write memory = 2048"),
        ("lots", "its unit is MiB: write memory = NUMBER"),
    ] {
        refused(&memory(value), &format!("6:10 `memory` takes a whole number, not a text ({advice})"));
    }
    refused(
        &in_task("logs {\nmax_file_size = \"5M\"\n}"),
        "6:17 `max_file_size` takes a whole number, not a text (its unit is MiB: write max_file_size = 5)",
    );
    refused(&in_task("resources {\ncpu = \"2GHz\"\n}"), "6:7 `cpu` takes a whole number, not a text");
}

#[test]
fn a_variable_that_a_template_may_define_is_no_warning() {
    let with = |is_env: bool| {
        let template = format!("template {{\ndata = \"A.B=x\"\ndestination = \"local/e\"\nenv = {is_env}\n}}");
        in_task(&format!("{template}\nconfig {{\na = \"${{A.B}}\"\n}}"))
    };
    assert_eq!(warnings(&with(true)), [""; 0]);
    assert_eq!(warnings(&with(false)), ["11:6 `${A.B}` can never be resolved: there is nothing of that name"]);
}

#[test]
fn cluster_only_variables_have_a_warning_with_the_reason() {
    for (name, reason) in [
        ("NOMAD_TOKEN", "no server issues an `identity`, so that there is no token"),
        ("NOMAD_UPSTREAM_ADDR_db", "there is no service mesh: an upstream of `connect` has no address"),
    ] {
        let found = warnings(&in_task(&format!("env {{\nA = \"${{{name}}}\"\n}}")));
        assert_eq!(found, [format!("6:6 `${{{name}}}` can never be resolved: {reason}")]);
    }
    assert_eq!(warnings(&in_task("env {\nNOMAD_TOKEN = \"x\"\nB = \"${NOMAD_TOKEN}\"\n}")), [""; 0]);
}

#[test]
fn a_variable_without_a_value_is_reported_and_its_use_is_no_other_fault_of_its_name() {
    let text = format!("variable \"a\" {{\n}}\n{}", in_task("env {\nA = var.a\nB = var.b\n}"));
    let found: Vec<String> = errors("x.hcl", &text).iter().map(|e| e.split(" (").next().unwrap().to_owned()).collect();
    assert_eq!(
        found,
        ["1:1 the variable `a` has no value", "8:5 the variable `a` has no value", "9:5 variable `b` is not declared"]
    );
}
