use super::*;
use crate::jobspec::parse;
use crate::model::job::Job;
use crate::model::service::{HealthBasis, HealthRule};

fn file(in_group: &str, in_task: &str) -> String {
    format!(
        "job \"shop\" {{\n  group \"web\" {{\n    network {{\n      port \"http\" {{}}\n    }}\n{in_group}\n    task \"app\" \
         {{\n      driver = \"raw_exec\"\n      config {{\n        command = \"/bin/true\"\n      }}\n{in_task}\n    }}\n  \
         }}\n}}\n"
    )
}

fn job(in_group: &str, in_task: &str) -> Job {
    parse("x.hcl", &file(in_group, in_task)).unwrap_or_else(|errors| panic!("{errors}")).job
}

/// The first error: `line:column message`.
fn refusal(in_group: &str, in_task: &str) -> String {
    match parse("x.hcl", &file(in_group, in_task)) {
        Ok(_) => "accepted".to_owned(),
        Err(errors) => {
            let first = &errors.0[0];
            format!("{}:{} {}", first.line, first.column, first.message)
        }
    }
}

const TCP: &str = "check {\n  type = \"tcp\"\n  interval = \"10s\"\n  timeout = \"2s\"\n}";

#[test]
fn service_and_check_are_read_with_defaults_of_nomad() {
    let job = job(
        &format!(
            "service {{\n  port = \"http\"\n  tags = [\"a\", \"${{NOMAD_ALLOC_INDEX}}\"]\n  meta {{\n    k = \"v\"\n  }}\n  \
             check_restart {{\n    limit = 3\n    grace = \"90s\"\n  }}\n{TCP}\n}}"
        ),
        "service {\n  name = \"${JOB}-db\"\n  port = \"http\"\n  provider = \"consul\"\n  check {\n    type = \"HTTP\"\n    path = \"/ok\"\n    \
         protocol = \"https\"\n    method = \"post\"\n    interval = \"5s\"\n    timeout = \"1s\"\n    header {\n      X-A = [\"1\", \"2\"]\n    }\n  \
         check_restart {\n limit = 1\n ignore_warnings = true\n }\n }\n}",
    );
    let [of_group, of_task] = job.groups[0].services.as_slice() else { panic!("{:?}", job.groups[0].services) };
    assert_eq!((of_group.name.as_str(), of_task.name.as_str()), ("shop-web-group", "shop-db"));
    assert_eq!(of_group.tags, ["a", "${NOMAD_ALLOC_INDEX}"]);
    assert_eq!((of_group.provider, of_group.address_mode), (ServiceProvider::Consul, AddressMode::Auto));
    let check = &of_group.checks[0];
    assert_eq!(
        (check.name.as_str(), check.initial_status),
        ("service: \"shop-web-group\" check", CheckStatus::Pending)
    );
    let restart = CheckRestart { limit: 3, grace: Duration::from_secs(90), ignore_warnings: false };
    assert_eq!((check.restart, &check.task), (Some(restart), &None));
    let check = &of_task.checks[0];
    let CheckProbe::Http { method, path, https: true, headers, .. } = &check.probe else { panic!("{check:?}") };
    assert_eq!((method.as_str(), path.as_str()), ("POST", "/ok"));
    assert_eq!(headers.len(), 2);
    assert_eq!(check.task.as_ref().map(TaskName::as_str), Some("app"));
    let restart = CheckRestart { limit: 1, grace: Duration::from_secs(1), ignore_warnings: true };
    assert_eq!(check.restart, Some(restart));
    let back: Job = serde_json::from_str(&serde_json::to_string(&job).unwrap()).unwrap();
    assert_eq!(back, job, "a stored job comes back as it was");
}

#[test]
fn service_without_the_rules_of_nomad_is_refused_with_its_place() {
    let service = |words: &str| format!("service {{\n  name = \"a\"\n  {words}\n}}");
    let with_check = |words: &str| service(&format!("port = \"http\"\n  check {{\n    {words}\n  }}"));
    let timed = |words: &str| with_check(&format!("{words}\n    interval = \"10s\"\n    timeout = \"2s\""));
    for (in_group, expected) in [
        (service("port = \"web\""), "8:10 no `network` has a port `web`"),
        (service("port = 0"), "8:10 `0` is no port: it is 1 to 65535"),
        (service("port = 70000"), "8:10 `70000` is no port: it is 1 to 65535"),
        (service("address_mode = \"driver\""), "8:18 address_mode = \"driver\" is for a service of a `task`"),
        (
            service("address = \"1.2.3.4\"\n  address_mode = \"host\""),
            "9:18 `address` excludes address_mode = \"host\"",
        ),
        (service("task = \"ap\""), "8:10 the group has no task `ap`"),
        (service("provider = \"etcd\""), "8:14 `provider` cannot be `etcd`: it is `consul` or `nomad`"),
        ("service {\n  name = \"a_b\"\n}".into(), "7:10 `a_b` cannot be the name of a service"),
        (with_check("type = \"tcp\"\n    timeout = \"2s\""), "9:3 the check has no `interval`"),
        (
            with_check("type = \"tcp\"\n    interval = \"10s\"\n    timeout = \"10ms\""),
            "12:15 `timeout` must be at least 1s",
        ),
        (timed("type = \"http\""), "9:3 a check of type `http` has a `path`"),
        (
            timed("type = \"http\"\n    path = \"http://x/\""),
            "11:12 `http://x/` is no path: host and port are the service's",
        ),
        (timed("type = \"htp\""), "10:12 `type` cannot be `htp`: it is `http`, `tcp`, `grpc` or `script`"),
        (timed("path = \"/\""), "9:3 the check has no `type`"),
        (timed("type = \"script\""), "9:3 a check of type `script` has a `command`"),
        (
            timed("type = \"tcp\"\n    initial_status = \"fine\""),
            "11:22 `initial_status` cannot be `fine`: it is `passing` or `warning` or `critical` or `pending`",
        ),
        (timed("type = \"http\"\n    path = \"/\"\n    method = \"GTE\""), "12:14 there is no HTTP method `GTE`"),
        (timed("type = \"tcp\"\n    portt = \"x\""), "11:5 `portt` is not a field of `check`"),
        (
            service("check {\n    type = \"tcp\"\n    interval = \"10s\"\n    timeout = \"2s\"\n  }"),
            "8:3 neither the check nor its service has a `port`",
        ),
        (
            service(
                "provider = \"nomad\"\n  check {\n    type = \"script\"\n    command = \"x\"\n    interval = \"10s\"\n    timeout = \"2s\"\n  }",
            ),
            "10:12 a check of provider `nomad` is `http` or `tcp`, not `script`",
        ),
        (
            "service {\n  name = \"a\"\n}\nservice {\n  name = \"a\"\n}".into(),
            "9:1 the group has a service `a` at this port already",
        ),
        (
            "service {\n  name = \"a\"\n}\nservice {\n  name = \"b\"\n  provider = \"nomad\"\n}".into(),
            "9:1 the services of a group have one `provider`: this one has `nomad`, the first one `consul`",
        ),
    ] {
        assert_eq!(refusal(&in_group, ""), expected, "{in_group}");
    }
    let twice = format!("service {{\n  port = \"http\"\n{TCP}\n{TCP}\n}}");
    assert!(refusal("", &twice).contains("has a check"), "of a task: as Nomad");
    assert_eq!(refusal(&twice, ""), "accepted", "of a group: as Nomad");
    assert!(refusal("", "service {\n  address_mode = \"alloc\"\n}").contains("is for a service of a `group`"));
}

#[test]
fn service_port_of_digits_is_a_label_before_it_is_a_number() {
    let ports = "network {\n  port \"0\" {\n    static = 64738\n  }\n  port \"8080\" {}\n}\n";
    let service = |port: &str| format!("service {{\n  name = \"a\"\n  port = {port}\n{TCP}\n}}");
    let port_of = |text: &str| {
        let text = file("", "").replacen("    network {\n      port \"http\" {}\n    }\n", text, 1);
        let job = parse("x.hcl", &text).unwrap_or_else(|errors| panic!("{errors}")).job;
        job.groups[0].services[0].port.clone()
    };
    for (port, expected) in [
        ("\"0\"", ServicePort::Label("0".to_owned())),
        ("8080", ServicePort::Label("8080".to_owned())),
        ("\"8081\"", ServicePort::Number(8081)),
    ] {
        assert_eq!(port_of(&format!("{ports}{}", service(port))), Some(expected), "{port}");
    }
}

#[test]
fn advice_for_consul_is_given_where_nomad_takes_the_service_without_it() {
    let warned = |in_group: &str| -> Vec<Option<String>> {
        let warnings = parse("x.hcl", &file(in_group, "")).unwrap_or_else(|errors| panic!("{errors}")).warnings;
        let of_service = warnings.into_iter().filter(|warning| warning.message.contains("`service`"));
        of_service.map(|warning| warning.suggestion).collect()
    };
    let script = TCP.replace("\"tcp\"", "\"script\"\n  command = \"x\"");
    let service = |check: &str| format!("service {{\n  name = \"a\"\n  port = \"http\"\n{check}\n}}");
    let advice = "provider = \"nomad\" does the same without Consul".to_owned();
    assert_eq!(warned(&service(TCP)), [Some(advice)]);
    assert_eq!(warned(&service(&script)), [None]);
}

#[test]
fn health_rule_of_a_group_is_its_update_over_that_of_the_job() {
    let rule = |in_job: &str, in_group: &str, kind: &str| {
        let text = file(in_group, "").replacen("  group", &format!("  type = \"{kind}\"\n{in_job}\n  group"), 1);
        parse("x.hcl", &text).unwrap_or_else(|errors| panic!("{errors}")).job.groups[0].health
    };
    assert_eq!(rule("", "", "service"), Some(HealthRule::default()));
    assert_eq!(rule("", "", "batch"), None);
    let in_job = "update {\n  min_healthy_time = \"3s\"\n  health_check = \"task_states\"\n}";
    let merged = rule(in_job, "update {\n  healthy_deadline = \"1m\"\n}", "service").unwrap();
    let expected = HealthRule {
        basis: HealthBasis::TaskStates,
        min_healthy_time: Duration::from_secs(3),
        healthy_deadline: Duration::from_secs(60),
    };
    assert_eq!(merged, expected);
    assert_eq!(rule("update {\n  max_parallel = 0\n}", "", "service"), None);
}
