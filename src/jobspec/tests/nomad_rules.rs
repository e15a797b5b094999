//! What Nomad refuses of a job, and what it takes although one could think otherwise.

use super::{errors, in_group, in_job, in_task, refused, warned, warnings};
use crate::jobspec::parse;

fn template(lines: &str) -> String {
    format!("template {{\ndata = \"x\"\n{lines}\n}}")
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
