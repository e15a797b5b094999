//! What a new user stumbles over: said clearly, with the place, and with the right exit code.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{
    Agent, AgentOptions, Cgroups, Cli, allostat, alone, assert_contains, default_address_shared, free_address, is_root,
    mounted_v1, mounted_v2, patience, test_dir, unix, wait_for,
};

#[track_caller]
fn with_job(agent: &Agent, command: &[&str], job: &str) -> Cli {
    let file = agent.scratch().join("job.hcl");
    std::fs::write(&file, job).expect("a job file can be written");
    agent.cli(&[command, &[path(&file)]].concat())
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of ours is UTF-8")
}

const LIMITED: &str = r#"job "limited" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command        = "/bin/true"
        cpu_hard_limit = true
        pids_limit     = 10
      }
      resources {
        cpu    = 100
        memory = 64
      }
    }
  }
}
"#;

/// Promise (Input validation): Limits not enforced for lack of cgroups are reported, each with its place and the reason
#[test]
fn agent_without_cgroups_warns_which_limits_are_not_enforced_and_why() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::with(AgentOptions { as_nobody: true, ..AgentOptions::default() });
    for command in [&["plan"][..], &["run"]] {
        let checked = with_job(&agent, command, LIMITED);
        assert_eq!(checked.code, Some(0), "{}", checked.stderr);
        for (place, field) in
            [("8:26", "cpu_hard_limit"), ("9:26", "pids_limit"), ("12:18", "cpu"), ("13:18", "memory")]
        {
            let line = format!("job.hcl:{place}: warning: `{field}` will not be enforced: this agent has no cgroups: ");
            assert_contains(&checked.stderr, &[&line]);
        }
        assert_contains(&checked.stderr, &["memory = 64", "denied"]);
        assert!(!checked.stderr.contains("`command`"), "it limits nothing: {}", checked.stderr);
    }
    let plan = agent.request("POST", "/v1/jobs?plan=1&file=x.hcl", LIMITED).json();
    let fields: Vec<&str> =
        plan["warnings"].as_array().into_iter().flatten().filter_map(|w| w["field"].as_str()).collect();
    assert_eq!(fields.len(), 4, "{plan}");
    assert!(fields.iter().all(|f| f.starts_with("job.limited.group.g.task.t.")), "{fields:?}");
    let node = agent.cli(&["node"]).ok();
    let driver = node.lines().find(|l| l.starts_with("raw_exec")).unwrap_or("");
    assert!(driver.contains("not enforced") && !driver.contains("cgroup of its own"), "{node}");
    agent.stop();
}

/// Promise (Durability and recovery): An ordinary user's agent runs a task whose `user` is that user, and blames no
/// kernel for missing rights
#[test]
fn ordinary_users_agent_runs_a_task_as_that_user_and_blames_no_kernel() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::with(AgentOptions { as_nobody: true, ..AgentOptions::default() });
    let job = |user: &str| {
        format!(
            "job \"{user}\" {{\n type = \"batch\"\n group \"g\" {{\n reschedule {{\n attempts=0\n unlimited=false\n }}\n restart {{\n attempts = 0\n mode = \"fail\"\n }}\n \
             task \"t\" {{\n driver = \"raw_exec\"\n user = \"{user}\"\n config {{\n command = \"/bin/true\"\n }}\n }}\n }}\n}}\n"
        )
    };
    let own = with_job(&agent, &["run"], &job("nobody"));
    assert_eq!(own.code, Some(0), "{}{}", own.stdout, own.stderr);
    let other = with_job(&agent, &["run"], &job("root"));
    assert_eq!(other.code, Some(1), "{}{}", other.stdout, other.stderr);
    let node = agent.json("/v1/node");
    let of_root = Agent::start();
    let checked = of_root.json("/v1/node");
    let of_root_seen = checked["capabilities"].as_array().expect("a list");
    for capability in node["capabilities"].as_array().into_iter().flatten() {
        let reason = capability["reason"].as_str().unwrap_or_default();
        let is_so = !reason.contains("a newer kernel") || of_root_seen.contains(capability);
        assert!(is_so, "who may look says otherwise: {capability}");
    }
    of_root.stop();
    agent.stop();
}

/// The table of `node`, by feature: its word, and the reason.
fn capability_rows(agent: &Agent) -> std::collections::BTreeMap<String, (String, String)> {
    let node = agent.cli(&["node"]).ok();
    let table = node.lines().skip_while(|line| !line.starts_with("CAN BE MEASURED")).skip(1);
    let rows = table.take_while(|line| !line.is_empty()).map(|line| {
        let mut parts = line.split("  ").map(str::trim).filter(|part| !part.is_empty());
        let mut next = || parts.next().unwrap_or_default().to_owned();
        (next(), (next(), next()))
    });
    rows.collect()
}

/// Promise (Input validation): A task without a cgroup has the peak of its largest process and I/O while it runs;
/// `node` agrees with `stats`
#[test]
fn task_without_cgroup_has_process_peak_and_io_and_node_agrees_with_stats() {
    if !is_root() {
        skip_test!("not-root");
    }
    for observe in ["false", "true"] {
        let env = vec![("ALLOSTAT_OBSERVE".to_owned(), observe.to_owned())];
        let agent = Agent::with(AgentOptions { as_nobody: true, env, ..AgentOptions::default() });
        let works = "args = [\"-c\", \"dd if=/dev/zero of=$NOMAD_ALLOC_DIR/x bs=1M count=3; sleep 600\"]";
        let job = LIMITED.replace("/bin/true", "/bin/sh").replace("pids_limit     = 10", works);
        let job = job.replace("\"batch\"", "\"service\"").replace("cpu_hard_limit = true", "");
        with_job(&agent, &["run", "--detach"], &job).ok();
        let id = agent.alloc_ids().into_iter().find(|id| !id.contains(':')).expect("one alloc is its own");
        let has_io = Path::new("/proc/self/io").exists();
        let usage = wait_for("the first sample", Duration::from_secs(30) * patience(), || {
            let usage = agent.json(&format!("/v1/allocs/{id}/stats"))["tasks"]["t"]["usage"].clone();
            let is_measured = usage["max_rss_bytes"].as_u64() > Some(0) && usage["cpu_usage_ns"].is_u64();
            (is_measured && (!has_io || usage["io_written_bytes"].is_u64())).then_some(usage)
        });
        let rows = capability_rows(&agent);
        for (feature, field, of_processes) in [
            ("cpu", "cpu_usage_ns", true),
            ("memory", "memory_rss_bytes", true),
            ("memory_peak", "max_rss_bytes", true),
            ("io", "io_written_bytes", has_io),
            ("pids", "processes", true),
            ("memory_window_peak", "memory_window_peak_bytes", false),
            ("swap", "memory_swap_bytes", false),
            ("pids_peak", "pids_peak", false),
            ("psi", "pressure_cpu_some_ns", false),
        ] {
            let (word, why) = rows.get(feature).unwrap_or_else(|| panic!("no row of {feature}: {rows:?}"));
            assert_eq!(usage[field].is_u64(), of_processes, "{feature}: {usage}");
            assert_eq!(why.contains("of a task of this agent: "), of_processes, "{feature}: {word}, {why}");
            assert_ne!(word, "yes", "{feature}: not of a task of this agent");
        }
        let (_, why) = &rows["memory_window_peak"];
        assert!(why.contains("see `cgroup`") && !why.contains("peak_window_v1"), "it would not help: {why}");
        assert_eq!(usage["memory_peak_bytes"].as_u64(), None, "that of one process is no peak of the task");
        agent.stop();
    }
}

#[test]
fn enforced_limits_cause_no_warning() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::start();
    let plan = with_job(&agent, &["plan"], LIMITED);
    assert_eq!((plan.code, plan.stderr.as_str()), (Some(0), ""));
    assert_contains(&agent.cli(&["node"]).ok(), &["each task in a cgroup of its own"]);
    agent.stop();
}

/// Promise (Input validation): The reason of a failed start is complete on the socket, and without commands, values and
/// `PATH` over TCP
#[test]
fn reason_of_a_failed_start_is_shown_on_the_socket_and_not_over_tcp() {
    let agent = Agent::start();
    // A group each: a task that fails ends the ones beside it.
    let group = |task: &str, body: &str| {
        format!(
            "group \"{task}\" {{\nreschedule {{\n attempts=0\n unlimited=false\n }}\n restart {{\nattempts = 0\nmode = \"fail\"\n}}\n\
             task \"{task}\" {{\ndriver = \"raw_exec\"\n{body}\n}}\n}}\n"
        )
    };
    let job = format!(
        "job \"x\" {{\ntype = \"batch\"\n{}{}{}}}\n",
        group("no-program", "env {\nA = \"SECRET-ENV\"\n}\nconfig {\ncommand = \"/none/${A}/SECRET-COMMAND\"\n}"),
        group("no-name", "config {\ncommand = \"SECRET-NAME\"\n}"),
        group("no-reference", "config {\ncommand = \"/bin/true\"\nargs = [\"${SECRET_REFERENCE}\"]\n}"),
    );
    assert_eq!(with_job(&agent, &["run"], &job).code, Some(1));
    let all: &[&str] = &["/none/SECRET-ENV/SECRET-COMMAND", "SECRET-NAME", "SECRET_REFERENCE", "PATH"];
    let ids = agent.alloc_ids();
    let alone = ids.iter().map(|id| (format!("/v1/allocs/{id}"), &["SECRET"][..]));
    let places = [("/v1/allocs".to_owned(), all), ("/v1/events".to_owned(), all)].into_iter().chain(alone);
    for (place, secrets) in places {
        let open = agent.get(&place);
        assert_eq!(open.status, 200, "{place}");
        assert!(!open.text().contains("SECRET") && !open.text().contains("/bin"), "{place}: {}", open.text());
        assert_contains(open.text(), &["details are on the Unix socket only"]);
        let full = agent.request("GET", &place, "").text().to_owned();
        assert_contains(&full, secrets);
    }
    let of_program = |id: &&String| agent.json(&format!("/v1/allocs/{id}"))["group"] == "no-program";
    let id = ids.iter().find(of_program).expect("it has an alloc");
    let tcp = format!("http://{}", agent.address);
    let status = agent.cli(&["status", "--address", &tcp, id]).ok();
    assert_contains(&status, &["not started", "Unix socket"]);
    assert!(!status.contains("SECRET"), "{status}");
    assert_contains(&agent.cli(&["status", id]).ok(), &["SECRET-COMMAND"]);
    agent.stop();
}

#[track_caller]
fn refused(cli: &Cli, code: i32, words: &[&str]) {
    assert_eq!(cli.code, Some(code), "stdout: {}\nstderr: {}", cli.stdout, cli.stderr);
    assert_contains(&cli.stderr, words);
}

/// A file that is not UTF-8, empty, of an unknown driver, with an unclosed text or one wrong element of a list: its
/// place.
///
/// Promise (Input validation): A file that is not text, is empty or has one wrong element is refused with its place
#[test]
fn a_file_that_is_not_text_is_refused_with_the_place_of_its_first_wrong_byte() {
    let dir = test_dir();
    let file = dir.path().join("x.hcl");
    std::fs::write(&file, b"job \"x\" {\n  # caf\xe9\n}\n").expect("a file can be written");
    for args in [&["check"][..], &["plan"], &["run"], &["agent", "--config"]] {
        let output = alone(dir.path(), &[args, &[path(&file)]].concat());
        refused(&output, 65, &["x.hcl:2:8: error: the file is not UTF-8: byte 17 is 0xe9", "# caf"]);
    }
    let agent = Agent::start();
    let answer = unix(&agent.socket(), "POST", "/v1/jobs?file=x.hcl", &[], b"\n\xff").expect("an answer");
    let error = answer.json();
    assert_eq!((answer.status, &error["code"]), (422, &"invalid_job".into()), "{error}");
    assert_eq!((&error["problems"][0]["line"], &error["problems"][0]["column"]), (&2.into(), &1.into()), "{error}");
    agent.stop();
}

#[test]
fn empty_file_is_no_configuration_and_its_missing_parts_are_named() {
    let dir = test_dir();
    let file = dir.path().join("x.hcl");
    for text in ["", "\n \n"] {
        std::fs::write(&file, text).expect("a file can be written");
        refused(&alone(dir.path(), &["check", path(&file)]), 65, &["the file is empty", "job \"name\"", "--defaults"]);
    }
    std::fs::write(&file, "# nothing yet\n").expect("a file can be written");
    assert_contains(&alone(dir.path(), &["check", path(&file)]).ok(), &["ok", "sets nothing"]);
}

#[test]
fn check_refuses_unknown_drivers_with_a_suggestion() {
    let dir = test_dir();
    let file = dir.path().join("job.hcl");
    std::fs::write(&file, LIMITED.replace("raw_exec", "raw_exce")).expect("a file can be written");
    for command in ["check", "plan", "run"] {
        let output = alone(dir.path(), &[command, path(&file)]);
        refused(&output, 65, &["job.hcl:5:16: error: there is no driver \"raw_exce\"", "did you mean `raw_exec`?"]);
    }
}

#[test]
fn wrong_list_element_is_underlined_alone() {
    let dir = test_dir();
    let file = dir.path().join("agent.hcl");
    std::fs::write(&file, "drivers {\n  enabled = [\"raw_exec\", \"dokcer\"]\n}\n").expect("a file can be written");
    let output = alone(dir.path(), &["check", path(&file)]);
    refused(&output, 65, &["agent.hcl:2:26", "^^^^^^^^"]);
    assert!(!output.stderr.contains("^^^^^^^^^"), "only the one: {}", output.stderr);
    let agent = Agent::start();
    let job = LIMITED.replace("pids_limit     = 10", "args = [\"a\", [5]]");
    refused(&with_job(&agent, &["plan"], &job), 65, &["job.hcl:9:22: error: args[1]: must be a string, not [5]"]);
    agent.stop();
}

#[test]
fn a_data_directory_that_is_a_file_is_called_one() {
    let dir = test_dir();
    let file = dir.path().join("data");
    std::fs::write(&file, "").expect("a file can be written");
    let output = alone(dir.path(), &["agent", "--listen", "none", "--data-dir", path(&file)]);
    refused(&output, 73, &[&format!("the data directory {} is a file", file.display()), "--data-dir"]);
}

/// Stopping what has ended says so; a data directory that is a file is called one; a command waits for a restoring
/// agent.
///
/// Promise (Input validation): Stopping an ended alloc reports that; a command waits for a recovering agent
#[test]
fn stop_of_an_ended_alloc_reports_so_and_an_empty_id_is_refused() {
    let agent = Agent::start();
    with_job(&agent, &["run"], LIMITED).ok();
    let id = agent.alloc_ids()[0].clone();
    assert_eq!(agent.cli(&["stop", &id]).ok(), format!("{} had ended already\n", &id[..8]));
    for args in
        [&["status", ""][..], &["stop", ""], &["logs", "", "t"], &["stats", " "], &["events", ""], &["signal", ""]]
    {
        refused(&agent.cli(args), 2, &["an id has at least one character"]);
    }
    agent.stop();
}

#[test]
fn unknown_metric_is_refused_with_the_nearest_and_an_absent_one_is_not() {
    let agent = Agent::start();
    let requested = |name: &str| agent.get(&format!("/metrics?name[]={name}"));
    let answer = requested("allostat_task_memory_usage_byte");
    assert_eq!(answer.status, 400, "{}", answer.text());
    let error = answer.json();
    assert_eq!((&error["code"], &error["field"]), (&"bad_request".into(), &"name[]".into()), "{error}");
    assert_contains(answer.text(), &["did you mean allostat_task_memory_usage_bytes?"]);
    assert_eq!(requested("nosuch").status, 400);
    let none = requested("allostat_task_memory_usage_bytes");
    assert_eq!(none.status, 200, "nothing runs, so it has no samples: {}", none.text());
    for name in ["allostat_task_cpu_usage_seconds", "allostat_build_info", "allostat_build"] {
        assert_eq!(requested(name).status, 200, "{name}");
    }
    agent.stop();
}

/// Promise (Input validation): A malformed HTTP request gets 400, a too large head 431; an unknown metric gets the
/// nearest name
#[test]
fn oversized_head_and_malformed_request_are_refused_and_the_next_one_is_served() {
    let agent = Agent::start();
    let send = |text: String| {
        let mut stream = TcpStream::connect(agent.address).expect("the agent listens");
        stream.set_read_timeout(Some(Duration::from_secs(10) * patience())).expect("a socket");
        stream.write_all(text.as_bytes()).expect("it is taken");
        let mut answer = String::new();
        // The agent may hang up while a part of the request is unread, which resets the connection.
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let head = |more: String| format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{more}\r\n");
    for (what, status) in [
        (head((0..80).map(|n| format!("x-{n}: y\r\n")).collect()), "HTTP/1.1 431 "),
        (head(format!("x: {}\r\n", "y".repeat(17 << 10))), "HTTP/1.1 431 "),
        ("nonsense\r\n\r\n".to_owned(), "HTTP/1.1 400 "),
    ] {
        let answer = send(what);
        assert!(answer.starts_with(status), "{answer}");
    }
    assert!(send(head("connection: close\r\n".into())).starts_with("HTTP/1.1 200 "), "the next one is served");
    agent.stop();
}

#[test]
fn a_command_waits_for_an_agent_that_is_still_restoring() {
    let dir = test_dir();
    let socket = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&socket).expect("a socket can be made");
    std::thread::spawn(move || {
        let not_ready = r#"{"code":"not_ready","message":"still restoring"}"#;
        let mut answers = vec![("200 OK", r#"{"allocs":[]}"#)];
        answers.extend([("503 Service Unavailable", not_ready); 3]);
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut buffer = [0; 4096];
            while stream.read(&mut buffer).is_ok_and(|n| n > 0) {
                let Some((status, body)) = answers.pop() else { return };
                let head =
                    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
                stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).expect("it is taken");
            }
        }
    });
    let status = alone(dir.path(), &["status", "--address", &format!("unix:{}", socket.display())]);
    assert_eq!(status.code, Some(0), "{}", status.stderr);
    assert_contains(&status.stderr, &["no allocs"]);
}

#[test]
fn supervisors_are_called_allostat() {
    let agent = Agent::start();
    let job = LIMITED.replace("batch", "service").replace("/bin/true\"", "/bin/sleep\"\n args = [\"60\"]");
    with_job(&agent, &["run"], &job).ok();
    let pids: Vec<String> = agent.processes();
    let supervisor = pids.iter().find(|p| p.contains("supervise")).expect("there is one");
    let pid = supervisor.split(' ').next().expect("a pid");
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("it lives");
    assert_eq!(comm.trim(), "allostat", "{supervisor}");
    agent.stop();
}

/// Promise (Input validation): A task of another user has that account's environment, not root's; supervisors are
/// called `allostat`
#[test]
fn a_task_of_another_user_has_the_environment_of_that_user_and_the_job_wins() {
    if !is_root() {
        skip_test!("not-root");
    }
    let agent = Agent::with(AgentOptions {
        env: vec![("PATH".into(), "/opt/of-root/sbin:/usr/bin:/bin".into()), ("HOME".into(), "/of-root".into())],
        ..AgentOptions::default()
    });
    let job = LIMITED.replace("/bin/true", "/usr/bin/env").replace("driver =", "user = \"nobody\"\n driver =");
    with_job(&agent, &["run"], &job).ok();
    let with_own = job.replace("\"limited\"", "\"own\"").replace("driver =", "env {\n HOME = \"/own\"\n }\n driver =");
    with_job(&agent, &["run"], &with_own).ok();
    let env = |at: usize| agent.cli(&["logs", &agent.alloc_ids()[at], "t"]).ok();
    let passwd = std::fs::read_to_string("/etc/passwd").expect("a system has users");
    let entry = passwd.lines().find(|l| l.starts_with("nobody:")).expect("nobody is a user");
    let fields: Vec<&str> = entry.split(':').collect();
    let expected = [
        format!("USER={}", fields[0]),
        format!("LOGNAME={}", fields[0]),
        format!("HOME={}", fields[5]),
        format!("SHELL={}", fields[6]),
        "PATH=/usr/local/bin:/usr/bin:/bin".to_owned(),
    ];
    let first = env(0);
    for line in expected {
        assert!(first.lines().any(|l| l == line), "{line} is not in {first}");
    }
    assert!(!first.contains("of-root"), "{first}");
    assert!(env(1).lines().any(|l| l == "HOME=/own"), "{}", env(1));
    // As web servers name their logs.
    let by_name = "command = \"/bin/sh\"\n args = [\"-c\", \"echo out > /dev/stdout; echo err > /dev/stderr\"]";
    with_job(
        &agent,
        &["run"],
        &job.replace("\"limited\"", "\"named\"").replace("command        = \"/usr/bin/env\"", by_name),
    )
    .ok();
    assert_eq!(env(2), "out\n");
    let guarded =
        |name| std::fs::read_to_string(format!("/proc/sys/fs/protected_{name}")).is_ok_and(|on| on.trim() != "0");
    let warns = agent.log().contains("kernel protection of links and pipes in shared directories is off");
    assert_eq!(warns, !["symlinks", "hardlinks", "fifos", "regular"].into_iter().all(guarded), "{}", agent.log());
    agent.stop();
}

/// Promise (Input validation): An agent's empty cgroup is removed with it; one with tasks, or created by another
/// process, stays
#[test]
fn agent_removes_its_empty_cgroup_and_no_used_or_foreign_one() {
    if !is_root() {
        skip_test!("not-root");
    }
    let mut agent = Agent::start();
    assert!(agent.cgroups.exists());
    agent.terminate();
    assert!(!agent.cgroups.exists(), "nothing ran");
    agent.start_again();
    let job = LIMITED.replace("batch", "service").replace("/bin/true\"", "/bin/sleep\"\n args = [\"60\"]");
    with_job(&agent, &["run"], &job).ok();
    agent.terminate();
    assert!(agent.cgroups.exists() && !agent.cgroups.left().is_empty(), "a task runs on");
    agent.start_again();
    agent.cli(&["stop", "--all"]).ok();
    agent.terminate();
    assert!(!agent.cgroups.exists(), "an agent before this one made it");

    let root = mounted_v1("memory").or_else(|| mounted_v2("memory")).expect("a hierarchy for memory");
    std::fs::create_dir(root.join(agent.cgroups.parent.trim_start_matches('/'))).expect("root can make cgroups");
    agent.start_again();
    agent.terminate();
    assert!(agent.cgroups.exists(), "another process made it, for reasons of its own");
}

/// The lines of the README's shell blocks.
fn readme() -> Vec<String> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).expect("it is there");
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).map(str::to_owned).collect()
}

/// A line of the README, in the repository, with `allostat` and `cargo run --` as the binary under test.
fn as_written(line: &str, bin: &Path) -> Command {
    let cargo = "#!/bin/sh\n[ \"$1 $2\" = 'run --' ] || exit 99\nshift 2\nexec allostat \"$@\"\n";
    std::fs::create_dir_all(bin).expect("our own directory");
    let link = bin.join("allostat");
    if !link.exists() {
        std::os::unix::fs::symlink(allostat(), &link).expect("our own directory");
        std::fs::write(bin.join("cargo"), cargo).expect("our own directory");
        std::fs::set_permissions(bin.join("cargo"), std::fs::Permissions::from_mode(0o755)).expect("our own file");
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line).env("PATH", path).env_remove("ALLOSTAT_ADDR").stdin(Stdio::null());
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// Promise (Input validation): The README's commands work as written
#[test]
fn the_first_command_of_the_readme_shows_the_demo_and_ctrl_c_ends_it() {
    let _address = default_address_shared();
    let dir = test_dir();
    let lines = readme();
    let line = lines.iter().find(|l| l.contains("demo")).expect("the README begins with the demo");
    assert_eq!(line, "cargo run -- demo");
    let mut command = as_written(&format!("exec {line}"), &dir.path().join("bin"));
    let mut demo = command.env("TMPDIR", dir.path()).stdout(Stdio::piped()).spawn().expect("a shell is there");
    let mut shown = String::new();
    let mut stdout = BufReader::new(demo.stdout.take().expect("it is piped"));
    // Every second a table: to the end of the file, if there is none.
    while !(shown.contains("leak") && shown.contains("running")) && stdout.read_line(&mut shown).is_ok_and(|n| n > 0) {}
    assert_contains(&shown, &["leak", "running"]);
    rustix::process::kill_process(rustix::process::Pid::from_child(&demo), rustix::process::Signal::INT).expect("ours");
    stdout.read_to_string(&mut shown).expect("text");
    assert!(demo.wait().expect("our own child").success(), "{shown}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("ours").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["bin"], "the demo removed what it made");
}

#[test]
fn agent_of_the_readme_measures_this_host_and_ctrl_c_ends_it() {
    struct Running(Child);
    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    assert_eq!(readme(), ["cargo run -- demo", "allostat agent"], "the README has two commands");
    let (dir, cgroups) = (test_dir(), Cgroups::new());
    let (address, data) = (free_address().to_string(), dir.path().join("data"));
    let log = dir.path().join("agent.log");
    let stderr = File::create(&log).expect("our own directory");
    // Only where it listens and what it writes is ours: the default places on this host may be another agent's.
    let mut command = as_written("exec allostat agent", &dir.path().join("bin"));
    command.env("ALLOSTAT_LISTEN", &address).env("ALLOSTAT_CGROUP_PARENT", &cgroups.parent);
    command.env("ALLOSTAT_DATA_DIR", &data).stdout(Stdio::null()).stderr(stderr);
    let mut running = Running(command.spawn().expect("a shell is there"));
    // On its socket: behind a port that was free a moment ago may be the agent of another test.
    let socket = data.join("allostat.sock");
    let metrics = wait_for("the metrics of the host", Duration::from_secs(30) * patience(), || {
        let ended = running.0.try_wait().expect("our own child");
        assert!(ended.is_none(), "{ended:?}: {}", std::fs::read_to_string(&log).unwrap_or_default());
        let response = unix(&socket, "GET", "/metrics", &[], b"").ok()?;
        response.text().contains("allostat_host_load_average{").then(|| response.text().to_owned())
    });
    assert_contains(&metrics, &["allostat_build_info{", "allostat_capability{"]);
    let agent = rustix::process::Pid::from_child(&running.0);
    rustix::process::kill_process(agent, rustix::process::Signal::INT).expect("ours");
    let ended = wait_for("the end of the agent", Duration::from_secs(30) * patience(), || {
        running.0.try_wait().expect("our own child")
    });
    assert!(ended.success(), "{ended:?}: {}", std::fs::read_to_string(&log).unwrap_or_default());
}
