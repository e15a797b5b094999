use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::model::attribute::{Attribute, AttributeUnit};
use crate::model::attributes::Attributes;
use crate::model::host::NodeInfo;
use crate::model::id::{AllocId, BootId, CgroupPath};
use crate::model::job::Job;

fn job(task: &str) -> Job {
    let text = format!(
        "job \"shop\" {{\n  datacenters = [\"*\", \"dc7\"]\n  meta {{\n    owner = \"ops\"\n    tier = \"job\"\n  }}\n  group \"web\" {{\n    meta {{\n      tier = \"group\"\n    }}\n    task \"server\" {{\n      driver = \"mock\"\n{task}\n    }}\n  }}\n}}\n"
    );
    crate::jobspec::parse("x.hcl", &text).unwrap_or_else(|e| panic!("{e}")).job
}

fn prepared(task: &str) -> Result<PreparedTask, Vec<NotReady>> {
    let job = job(task);
    let node = NodeInfo {
        identity: crate::model::host::NodeIdentity::default(),
        hostname: "box".to_owned(),
        kernel: "6.1.0".to_owned(),
        boot_id: BootId(String::new()),
        booted_at: None,
        cpus: 4,
        memory_bytes: None,
        cgroup_mode: "v2".to_owned(),
        capabilities: Vec::new(),
    };
    let known = Attributes::from([
        ("cpu.arch".to_owned(), "amd64".into()),
        ("cpu.frequency".to_owned(), Attribute::with_unit(2_600_u64.into(), AttributeUnit::MHz)),
        ("cpu.numcores".to_owned(), 4.into()),
        ("driver.raw_exec".to_owned(), Attribute::Bool(true)),
        ("driver.raw_exec.cgroups".to_owned(), "v2".into()),
        ("kernel.name".to_owned(), "linux".into()),
        ("kernel.version".to_owned(), "6.1.0".into()),
        ("unique.hostname".to_owned(), "box".into()),
    ]);
    let inherited = [("HOME", "/root"), ("PATH", "/bin"), ("NOMAD_DC", "of the agent"), ("TRICK", "${NOMAD_ALLOC_ID}")];
    let inherited: Env = inherited.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let devices: Env = [("GPUS".to_owned(), "GPU-1".to_owned())].into();
    prepare(&TaskContext {
        job: &job,
        group: &job.groups[0],
        task: &job.groups[0].tasks[0],
        alloc_id: &AllocId::from("0123456789abcdef"),
        alloc_name: "shop.web[2]",
        index: 2,
        alloc_dir: Path::new("/d/a/alloc"),
        local_dir: Path::new("/d/a/server/local"),
        secrets_dir: Path::new("/d/a/server/secrets"),
        alloc_cgroup: Some(&CgroupPath::from("/allostat/a")),
        inherited: &inherited,
        added: &devices,
        ports: &[],
        network: None,
        driver_networks: &[],
        attributes: &env::node_attributes(&node, &known, &job),
    })
}

#[test]
fn task_env_can_refer_to_its_device_variables_and_not_change_them() {
    let own = prepared("env {\n  GPUS = \"all\"\n}\nconfig {\n  a = \"${GPUS}\"\n}").unwrap();
    assert_eq!((own.env["GPUS"].as_str(), own.task.config["a"].as_str()), ("GPU-1", Some("GPU-1")));
    let refers = prepared("env {\n  MINE = \"${GPUS}\"\n}").unwrap();
    assert_eq!(refers.env["MINE"], "GPU-1");
}

#[test]
fn a_task_gets_the_nomad_variables_over_what_it_inherits_and_its_own_over_both() {
    let env = prepared("env {\n  PATH = \"/x:${PATH}\"\n  my-var = 1\n}\nresources {\n  cpu = 200\n  memory = 64\n}")
        .unwrap()
        .env;
    let expected = [
        ("GPUS", "GPU-1"),
        ("HOME", "/root"),
        ("NOMAD_ALLOC_DIR", "/d/a/alloc"),
        ("NOMAD_ALLOC_ID", "0123456789abcdef"),
        ("NOMAD_ALLOC_INDEX", "2"),
        ("NOMAD_ALLOC_NAME", "shop.web[2]"),
        ("NOMAD_CPU_LIMIT", "200"),
        ("NOMAD_DC", "dc7"),
        ("NOMAD_GROUP_NAME", "web"),
        ("NOMAD_JOB_ID", "shop"),
        ("NOMAD_JOB_NAME", "shop"),
        ("NOMAD_MEMORY_LIMIT", "64"),
        ("NOMAD_META_OWNER", "ops"),
        ("NOMAD_META_TIER", "group"),
        ("NOMAD_META_owner", "ops"),
        ("NOMAD_META_tier", "group"),
        ("NOMAD_NAMESPACE", "default"),
        ("NOMAD_PARENT_CGROUP", "/allostat/a"),
        ("NOMAD_REGION", "global"),
        ("NOMAD_SECRETS_DIR", "/d/a/server/secrets"),
        ("NOMAD_SHORT_ALLOC_ID", "01234567"),
        ("NOMAD_TASK_DIR", "/d/a/server/local"),
        ("NOMAD_TASK_NAME", "server"),
        ("PATH", "/x:/bin"),
        ("TRICK", "${NOMAD_ALLOC_ID}"),
        ("my-var", "1"),
    ];
    let found: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(found, expected, "no limit that was not given, nothing else");
}

#[test]
fn references_in_env_and_config_are_resolved() {
    let task = "env {\n  A = \"${meta.owner}@${node.unique.name}\"\n  HOME = \"/home\"\n}\nconfig {\n  args = [\"${A}\", \"${env[\"HOME\"]}\", \"$${HOME} $HOME\", \"${attr.kernel.name}-${attr.cpu.numcores}\"]\n  deep {\n    k = \"x${ NOMAD_ALLOC_INDEX }y\"\n  }\n  n = 5\n}";
    let PreparedTask { task, .. } = prepared(task).unwrap();
    let expected = serde_json::json!({
        "args": ["ops@box", "/home", "${HOME} $HOME", "linux-4"], "deep": {"k": "x2y"}, "n": 5
    });
    assert_eq!(serde_json::Value::Object(task.config), expected);
    assert_eq!(task.env["A"], "ops@box");
}

#[test]
fn unresolved_references_are_named_each_with_its_field() {
    let task = "config {\n  args = [\"x\", \"${ALSO_NOT} ${attr.memory.totalbytes}\"]\n}";
    let found: Vec<String> = prepared(task).unwrap_err().iter().map(ToString::to_string).collect();
    let expected = [
        "config.args[1]: `${ALSO_NOT}` cannot be resolved: the environment has no such variable",
        "config.args[1]: `${attr.memory.totalbytes}` cannot be resolved: this host has no such attribute",
    ];
    assert_eq!(found, expected);
}

#[test]
fn resolved_text_is_not_resolved_again() {
    let own = "env {\n  A = \"$${x:-${NOMAD_DC}}\"\n  B = \"${TRICK}\"\n}\nconfig {\n  a = \"${A}${B}\"\n}";
    let PreparedTask { task, .. } = prepared(own).unwrap();
    assert_eq!(task.config["a"], "${x:-dc7}${NOMAD_ALLOC_ID}");
}

#[test]
fn unresolved_env_references_are_unchanged_and_variables_resolve_each_other() {
    let env = "env {\n  A = \"${NOPE}-${attr.platform.aws.x}\"\n  DB = \"db\"\n  PATH = \"/x:${PATH}\"\n  URL = \"pg://${DB}:5432\"\n  discovery.type = \"one\"\n}".replace("discovery.type", "\"discovery.type\"").replace("env {", "env = {");
    let env = prepared(&env).unwrap().env;
    let expected = [
        ("A", "${NOPE}-${attr.platform.aws.x}"),
        ("PATH", "/x:/bin"),
        ("URL", "pg://db:5432"),
        ("discovery.type", "one"),
        ("NOMAD_CPU_LIMIT", "100"),
        ("NOMAD_MEMORY_LIMIT", "300"),
    ];
    for (name, value) in expected {
        assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
    }
}

#[test]
fn metadata_is_interpolated() {
    let task = "meta {\n  host = \"${node.unique.name}-${NOPE}\"\n}\nconfig {\n  a = \"${meta.host}\"\n}";
    let PreparedTask { task, env } = prepared(task).unwrap();
    assert_eq!((env["NOMAD_META_host"].as_str(), task.config["a"].as_str()), ("box-${NOPE}", Some("box-${NOPE}")));
}

#[test]
fn interpolation_result_is_bounded() {
    let many = format!("env {{\n  A = \"{}\"\n}}", "${PATH}".repeat(30_000));
    let long: Env = [("PATH".to_owned(), "x".repeat(100_000))].into();
    let job = job(&many);
    let (meta, attributes) = (BTreeMap::new(), Env::new());
    let scope = InterpolationScope { env: &long, meta: &meta, attributes: &attributes };
    let text = scope.tolerant(&job.groups[0].tasks[0].env["A"], None, &mut size::TOGETHER.clone());
    assert!(text.len() < 2 * size::TEXT + many.len() && text.ends_with("${PATH}"), "{}", text.len());
}

#[test]
fn every_way_to_write_a_reference_means_one_thing() {
    for (reference, meaning) in [
        ("NOMAD_DC", Ok(Target::Variable("NOMAD_DC".into()))),
        ("env[\"X Y\"]", Ok(Target::Variable("X Y".into()))),
        ("env.X", Ok(Target::Variable("X".into()))),
        ("meta.a-b.c", Ok(Target::Meta("a-b.c".into()))),
        ("meta[\"a}b\"]", Ok(Target::Meta("a}b".into()))),
        ("node.unique.name", Ok(Target::Attribute("node.unique.name".into()))),
        ("env", Err(BadReference::Unknown)),
        ("job.name", Ok(Target::Variable("job.name".into()))),
        ("job[\"name\"]", Err(BadReference::Unknown)),
        ("var.x", Err(BadReference::HclVariable)),
        ("upper(X)", Err(BadReference::Expression)),
        ("1 + 1", Err(BadReference::Expression)),
        ("", Err(BadReference::Expression)),
        ("env[0]", Err(BadReference::Expression)),
        ("meta..a", Err(BadReference::Expression)),
    ] {
        let template = format!("a${{ {reference} }}b");
        let expected = vec![
            InterpolationPart::Text("a"),
            InterpolationPart::Reference(reference, meaning),
            InterpolationPart::Text("b"),
        ];
        assert_eq!(parts(&template), expected, "{template}");
    }
}

proptest! {
    #[test]
    fn no_template_panics_and_no_text_gets_lost(template in "(.|\n){0,40}", near in "[ab${}\\[\\]\". (]{0,24}") {
        for template in [template, near] {
            let mut text = String::new();
            for part in parts(&template) {
                match part {
                    InterpolationPart::Text("${") => text.push_str("$${"),
                    InterpolationPart::Text(literal) => text.push_str(literal),
                    InterpolationPart::Reference(reference, Err(BadReference::Unclosed)) => {
                        text.push_str(&format!("${{{reference}"));
                    }
                    InterpolationPart::Reference(reference, _) => text.push_str(&format!("${{{reference}}}")),
                }
            }
            let squeezed = |t: &str| t.replace(char::is_whitespace, "");
            prop_assert_eq!(squeezed(&text), squeezed(&template));
        }
    }

    #[test]
    fn an_escaped_text_is_that_text_at_the_start(text in "[a${}% \"\\\\]{0,16}") {
        let template = crate::jobspec::tree::escape(&text);
        let joined: String = parts(&template)
            .iter()
            .map(|p| match p {
                InterpolationPart::Text(t) => *t,
                InterpolationPart::Reference(..) => "?",
            })
            .collect();
        prop_assert_eq!(joined, text);
    }
}

/// Promise (Input validation): The result of references in a text is measured before it is made, and refused at its
/// place
#[test]
fn value_that_start_time_values_make_too_long_is_refused_before_it_is_made() {
    let inherits = |n: usize| format!("config {{\n  command = \"{}\"\n}}", "${NOMAD_ALLOC_DIR}".repeat(n));
    assert!(prepared(&inherits(13_000)).is_ok());
    let failed = prepared(&inherits(13_200)).unwrap_err();
    let [NotReady::TooLong(too_long)] = failed.as_slice() else { panic!("{failed:?}") };
    assert_eq!(too_long.field(), "config.command");
}
