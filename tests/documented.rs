//! Every command of the documentation is run, in the order of each page: it succeeds, and prints the lines that the
//! page shows. [`LEFT_OUT`] lists the kinds that are not.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fake_nvml::{Device, Scenario};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{
    Agent, AgentOptions, Cgroups, Cli, CommandLine, allostat, call, command_lines, documents, free_address, is_mention,
    is_root, is_usage, patience, unix, wait_for, words,
};

/// Commands that no test on this page runs, by a part of each, and why.
const LEFT_OUT: [(&str, &str); 24] = [
    ("cargo ", "compiles for minutes"),
    ("docker ", "needs an engine and an image; tests/containers has both"),
    ("helm ", "needs a cluster; tests/boards/fleets.rs renders the chart"),
    ("kubectl ", "needs a cluster"),
    ("/etc/allostat/", "files of an installation"),
    ("systemctl ", "changes the services of this host; tests/systemd does it in a guest"),
    ("systemd-run ", "needs a session of systemd"),
    ("cp ", "writes to /etc and to directories of Grafana"),
    ("mkdir ", "makes directories of Grafana"),
    ("sed -i ", "changes the boards; tests/boards/deploy.rs runs it on a copy"),
    ("prometheus ", "a server; tests/boards starts it with the same file"),
    ("promtool ", "part of Prometheus; tests/boards checks the same file"),
    ("vmalert ", "a server; tests/boards/pushed.rs starts it"),
    ("deploy/fleet.sh ", "installs on other hosts; tests/boards/deploy.rs runs it"),
    ("https://host:9740", "another host; tests/access.rs"),
    ("PEER/ALLOC", "another host; tests/migration.rs"),
    ("allostat demo", "runs until a key is pressed; tests/commands.rs"),
    ("allostat events -f", "runs until it is interrupted; tests/logs.rs"),
    ("allostat fs cat -f", "runs until it is interrupted; tests/logs.rs"),
    ("allostat logs -f", "runs until it is interrupted; tests/logs.rs"),
    ("allostat device-plugin", "a client of Nomad starts it; tests/plugins"),
    ("allostat gpu-helper", "the agent starts it"),
    ("allostat spawn", "the agent starts it"),
    ("allostat supervise", "the agent starts it"),
];

/// Lines of output that belong to the host of a page, by a part of each, and why.
const OTHER_HOSTS: [(&str, &str); 9] = [
    ("docker:", "containers of the page's host"),
    ("ALLOC    shop-1", "the task of one of them"),
    ("systemd:", "services of the page's host"),
    ("host-1", "name and load of the page's host"),
    ("amd64", "the kernel of the page's host"),
    ("this kernel's", "what a kernel cannot measure differs"),
    ("OOM kill", "no job here is OOM killed"),
    ("peak + 20 %", "runs of a week"),
    ("2 processes", "the simulated GPU has no processes"),
];

/// Commands that change something: they run once. The others are repeated until the samples that they show are there.
const ACTING: [&str; 7] = ["run", "stop", "restart", "signal", "gc", "dispatch", "periodic"];

/// Jobs without allocs of their own.
const LAUNCHING: [&str; 3] = ["mail", "convert", "backup"];

/// Exit codes other than 0, as the page says.
const EXIT_CODES: [(&str, i32); 2] = [("allostat gc ALLOC", 1), ("allostat gc --yes web", 1)];

const HOWTO: &str = include_str!("../docs/howto.md");
const HCL: &str = include_str!("../docs/hcl.md");

fn job(name: &str, kind: &str, script: &str, more: &str) -> String {
    let task = format!(
        "task \"t\" {{\n driver = \"raw_exec\"\n config {{\n command = \"/bin/sh\"\n args = [\"-c\", {script:?}]\n }}\n {more}\n }}"
    );
    let once = "reschedule {\n attempts = 0\n unlimited = false\n }\n restart {\n attempts = 0\n mode = \"fail\"\n }";
    let of_launches = match name {
        "backup" => "periodic {\n crons = [\"@yearly\"]\n }",
        "mail" => "parameterized {\n meta_optional = [\"to\"]\n }",
        "convert" => "parameterized {\n payload = \"required\"\n }",
        _ => "",
    };
    format!("job {name:?} {{\n type = {kind:?}\n {of_launches}\n group \"g\" {{\n {once}\n {task}\n }}\n}}\n")
}

/// The block of a page with this in it.
fn block<'a>(page: &'a str, word: &str) -> &'a str {
    let blocks = page.split("```").skip(1).step_by(2);
    let block = blocks.filter_map(|block| block.split_once('\n')).map(|(_, text)| text);
    block.into_iter().find(|text| text.contains(word)).unwrap_or_else(|| panic!("no block with {word:?}"))
}

/// A host with something to see, and the files that the pages name.
struct Reader {
    agent: Agent,
    directory: PathBuf,
    /// Of the agents that pages start.
    cgroups: Cgroups,
    /// Where one of those listens, for others than this host.
    public: String,
    started: Vec<Started>,
    count: usize,
    _gpus: fake_nvml::Installed,
}

/// An agent of a page.
struct Started {
    child: Child,
    what: String,
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Reader {
    fn new() -> Reader {
        let agent = Agent::to_start(AgentOptions::default());
        let directory = agent.scratch().join("files");
        std::fs::create_dir(&directory).expect("our own directory");
        let gpus = fake_nvml::install(&directory, &Scenario::new().with(Device::of("h100"))).expect("it is built");
        // What has ended stays, however full the disk is.
        let config = format!(
            "gc {{\n  disk_used_percent = 100\n}}\ndevices {{\n  nvidia_library = \"{}\"\n}}\n",
            gpus.library().display()
        );
        agent.configure(&config);
        let public = free_address().to_string();
        let mut reader =
            Reader { agent, directory, cgroups: Cgroups::new(), public, started: Vec::new(), count: 0, _gpus: gpus };
        reader.write_files();
        reader.agent.start_again();
        for name in ["fails", "broken"] {
            reader.agent.cli(&["run", "--detach", &reader.file(&format!("{name}.hcl"))]).ok();
        }
        // One that has ended is on record.
        reader.run_web();
        reader.agent.cli(&["stop", "web"]).ok();
        reader.is_ready();
        wait_for("ends on record", Duration::from_secs(30) * patience(), || {
            let history = reader.agent.cli(&["history"]).stdout;
            ["web", "fails", "broken"].iter().all(|job| history.contains(job)).then_some(())
        });
        reader
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).to_str().expect("a path of ours is UTF-8").to_owned()
    }

    fn write_files(&self) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let write = |name: &str, text: &str| std::fs::write(self.file(name), text).expect("our own directory");
        for shipped in ["examples", "deploy", "dashboards", "alerts"] {
            symlink(root.join(shipped), self.directory.join(shipped)).expect("our own directory");
        }
        std::fs::create_dir_all(self.directory.join("bin")).expect("our own directory");
        symlink(allostat(), self.directory.join("bin/allostat")).expect("our own directory");
        for worker in ["resize", "thumbs"] {
            write(&format!("bin/{worker}"), "#!/bin/sh\nexec sleep 600\n");
            let executable = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(self.directory.join("bin").join(worker), executable).expect("our own file");
        }
        let web = std::fs::read_to_string(root.join("examples/jobs/web.nomad.hcl")).expect("our own file");
        write("web.hcl", &format!("variable \"tag\" {{\n  default = \"1\"\n}}\n{web}"));
        write("fails.hcl", &job("fails", "batch", "echo last words >&2; exit 3", ""));
        let broken = job("broken", "batch", "", "").replace("/bin/sh", "/no/such/program");
        write("broken.hcl", &broken);
        write("train.hcl", &job("train", "service", "exec sleep 600", "resources {\n device \"nvidia/gpu\" {}\n }"));
        write("db.hcl", &job("db", "service", "exec sleep 600", ""));
        write("mail.hcl", &job("mail", "batch", "true", ""));
        write("convert.hcl", &job("convert", "batch", "true", "dispatch_payload {\n file = \"in\"\n }"));
        write("backup.hcl", &job("backup", "batch", "true", ""));
        write("images.hcl", &block(HCL, "job \"images\"").replace("/usr/bin", &self.file("bin")));
        write("prod.hcl", "image_dir = \"/mnt\"\n");
        write("agent.hcl", "telemetry {\n  profile = \"lean\"\n}\n");
        // It stands in a list, which gives it an indent.
        let web_config: Vec<&str> = block(HOWTO, "basic_auth_users").lines().collect();
        let web_config: Vec<&str> = web_config.iter().map(|line| line.get(3..).unwrap_or_default()).collect();
        write("web.yml", &web_config.join("\n"));
        for path in ["agent.hcl", "web.yml"] {
            let of_owner = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(self.directory.join(path), of_owner).expect("our own file");
        }
        write("letter.txt", "hello\n");
        write("dump.sql", "select 1;\n");
    }

    fn run_web(&self) {
        self.agent.cli(&["run", "--detach", &self.file("web.hcl")]).ok();
    }

    /// The ID of the running alloc of a job, or of its last one.
    fn alloc(&self, job: &str) -> Option<serde_json::Value> {
        let allocs = self.agent.json("/v1/allocs");
        let mut of_job = allocs["allocs"].as_array()?.iter().filter(|alloc| alloc["job"] == job);
        let running = of_job.clone().find(|alloc| alloc["status"] == "running");
        running.or_else(|| of_job.next_back()).cloned()
    }

    fn is_running(&self, job: &str) -> bool {
        self.alloc(job).is_some_and(|alloc| alloc["status"] == "running")
    }

    /// Repairs what the last command ended.
    fn is_ready(&self) {
        for other in ["db", "train"].into_iter().filter(|other| !self.is_running(other)) {
            self.agent.cli(&["run", "--detach", &self.file(&format!("{other}.hcl"))]).ok();
        }
        if self.agent.json("/v1/jobs")["jobs"].as_array().is_none_or(|jobs| jobs.len() < LAUNCHING.len()) {
            for name in LAUNCHING {
                self.agent.cli(&["run", "--detach", &self.file(&format!("{name}.hcl"))]).ok();
            }
        }
        wait_for("running jobs", Duration::from_secs(30) * patience(), || {
            let web = self.alloc("web");
            let is_starting = web.as_ref().is_some_and(|web| {
                web["status"] == "running" || web["status"] == "pending" && web["tasks"]["server"]["state"] != "backoff"
            });
            if !is_starting {
                // A task that waits for its restart would need seconds.
                self.agent.cli(&["stop", "--job", "web", "--yes"]);
                self.run_web();
            }
            ["web", "db", "train"].iter().all(|job| self.is_running(job)).then_some(())
        });
    }

    /// The command as it is on this host: its addresses, names and IDs.
    fn here(&self, command: &str) -> String {
        let id = |job: &str| self.alloc(job).and_then(|alloc| alloc["id"].as_str().map(str::to_owned));
        let (web, fails) = (id("web").unwrap_or_default(), id("fails").unwrap_or_default());
        let ports = &self.agent.json(&format!("/v1/allocs/{web}"))["ports"][0];
        let http = format!("{}:{}", ports["host_ip"].as_str().unwrap_or_default(), ports["value"]);
        let port = self.public.rsplit(':').next().unwrap_or_default();
        let remote = format!("--resolve agent.example:{port}:127.0.0.1 https://agent.example:{port}");
        let own = self.agent.address.to_string();
        let replacements = [
            ("gc ALLOC", format!("gc {fails}")),
            ("history NAME", "history fails".to_owned()),
            ("history UNIT", "history fails".to_owned()),
            ("catalogue NAME", "catalogue allostat_task_info".to_owned()),
            ("periodic force JOB", "periodic force backup".to_owned()),
            ("--config FILE", "--config agent.hcl".to_owned()),
            ("/etc/allostat/agent.hcl", "agent.hcl".to_owned()),
            (" FILE", " web.hcl".to_owned()),
            ("ALLOC", web.clone()),
            ("5f0d", web),
            ("TASK", "server".to_owned()),
            ("JOB", "web".to_owned()),
            ("5f0d web", "5f0d server".to_owned()),
            // The page shows a container; here a job stands for it.
            ("docker:shop-1", "web".to_owned()),
            ("psql", "cat".to_owned()),
            ("192.0.2.2:31980", http),
            ("0.0.0.0:9740", self.public.clone()),
            // The password of the page's hash; curl asks for it on a terminal.
            ("--user prometheus", "--user prometheus:test".to_owned()),
            ("https://agent.example:9740", remote),
            ("127.0.0.1:9740", own),
            ("/usr/share/bash-completion/completions/", String::new()),
            ("~/.config/fish/completions/", String::new()),
            ("${fpath[1]}", ".".to_owned()),
        ];
        replacements.iter().fold(command.to_owned(), |command, (word, meaning)| command.replace(word, meaning))
    }

    /// A shell with the environment that finds the agent, and in which others would not disturb it.
    fn shell(&self, command: &str) -> Command {
        let path = format!("{}:{}", self.file("bin"), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("timeout");
        shell.args(["--kill-after=1", &(30 * patience()).to_string(), "sh", "-c", command]);
        shell.current_dir(&self.directory).stdin(Stdio::null()).env("PATH", path).env("NO_COLOR", "1");
        shell.env("ALLOSTAT_ADDR", format!("unix:{}", self.agent.socket().display()));
        shell
    }

    /// An agent in the foreground, until the end of the page.
    fn start_agent(&mut self, command: &str) {
        self.count += 1;
        let data = self.directory.join(format!("data-{}", self.count));
        let mut shell = self.shell(&format!("exec env {}", command.trim_end_matches([' ', '&'])));
        shell.env("ALLOSTAT_DATA_DIR", &data).env("ALLOSTAT_LISTEN", free_address().to_string());
        shell.env("ALLOSTAT_CGROUP_PARENT", &self.cgroups.parent).env("ALLOSTAT_OBSERVE", "false");
        shell.env_remove("ALLOSTAT_ADDR");
        let log = std::fs::File::create(self.file(&format!("log-{}", self.count))).expect("our own directory");
        shell.stdout(log.try_clone().expect("a descriptor")).stderr(log);
        let mut started = Started { child: shell.spawn().expect("a shell"), what: command.to_owned() };
        let socket = data.join("allostat.sock");
        wait_for(&format!("`{command}` to be ready"), Duration::from_secs(60) * patience(), || {
            let ended = started.child.try_wait().expect("our own child");
            assert!(ended.is_none(), "`{command}`: {ended:?}: {}", self.log());
            unix(&socket, "GET", "/readyz", &[], b"").is_ok_and(|ready| ready.status == 200).then_some(())
        });
        self.started.push(started);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.file(&format!("log-{}", self.count))).unwrap_or_default()
    }

    fn end_agents(&mut self) {
        for mut started in self.started.drain(..) {
            kill_process(Pid::from_child(&started.child), Signal::TERM).expect("our own child");
            let ended =
                wait_for(&format!("the end of `{}`", started.what), Duration::from_secs(30) * patience(), || {
                    started.child.try_wait().expect("our own child")
                });
            assert!(ended.success(), "`{}` ended with {ended}", started.what);
        }
    }

    /// Runs a command; the error is what is wrong with it.
    fn run(&mut self, line: &CommandLine) -> Result<(), String> {
        if call(&line.text).is_some_and(|call| words(call).get(1).is_some_and(|word| word == "agent")) {
            self.start_agent(&self.here(&line.text));
            return Ok(());
        }
        let expected = lasting(&line.shown);
        let exit_code = EXIT_CODES.iter().find(|(command, _)| *command == line.text).map_or(0, |(_, code)| *code);
        let has_pipe = line.text.contains(" | ");
        let may_be_early = has_pipe || line.text.starts_with("curl ");
        let is_acting = ACTING.iter().any(|word| line.text.starts_with(&format!("allostat {word}")));
        let limit = Duration::from_secs(20) * patience();
        let began = std::time::Instant::now();
        loop {
            let command = self.here(&line.text);
            let output: Cli = self.shell(&command).output().expect("a shell").into();
            let lines: Vec<String> = output.stdout.lines().map(normalised).collect();
            let is_missing = |expectation: &&String| !lines.iter().any(|line| line.starts_with(expectation.as_str()));
            let missing: Vec<&String> = expected.iter().filter(is_missing).collect();
            let has_succeeded = output.code == Some(exit_code) && !(has_pipe && output.stdout.is_empty());
            if has_succeeded && missing.is_empty() {
                return Ok(());
            }
            if is_acting || began.elapsed() > limit || (!has_succeeded && !may_be_early) {
                return Err(format!("`{command}`: lines that it does not print: {missing:?}\n{output:?}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// What follows a number: the scale of a value differs from run to run.
const UNITS: [&str; 17] =
    ["B", "KiB", "MiB", "GiB", "TiB", "%", "ns", "us", "ms", "s", "m", "h", "d", "W", "°C", "cores", "core"];

/// A line with one space between words. A number with its unit is `N`, a time `T`, an ID `ID`, an address `ADDRESS`, a
/// GPU `GPU`.
fn normalised(line: &str) -> String {
    let is_unit = |word: &str| UNITS.contains(&word);
    let is_number = |word: &str| {
        let digits = word.trim_start_matches(['<', '~', '≥', '-']);
        let unit = digits.trim_start_matches(|c: char| c.is_ascii_digit() || ".,".contains(c));
        digits.starts_with(|c: char| c.is_ascii_digit()) && (unit.is_empty() || is_unit(unit))
    };
    let is_all = |word: &str, extra: &str| word.chars().all(|c| c.is_ascii_digit() || extra.contains(c));
    let mut words: Vec<String> = Vec::new();
    // Of a duration in two parts: `4m 10s`.
    let mut is_first_part = false;
    for word in line.split_whitespace() {
        let end = word.trim_end_matches([',', ';', ':', ')']).len();
        let (core, tail) = word.split_at(end);
        let (open, core) = core.strip_prefix('(').map_or(("", core), |core| ("(", core));
        let follows_number = words.last().is_some_and(|last| ["N", "(N"].contains(&last.as_str()));
        let is_second_part = is_first_part && core.ends_with(['h', 'm', 's']) && is_number(core);
        if follows_number && (is_second_part || is_unit(core)) {
            words.last_mut().expect("it is a number").push_str(tail);
            is_first_part = false;
            continue;
        }
        is_first_part = is_number(core) && core.ends_with(['d', 'h', 'm']) && tail.is_empty();
        let kind = match core {
            _ if core.matches(':').count() == 2 && is_all(core, ":.") => "T",
            _ if core.split(':').next().is_some_and(|host| host.matches('.').count() == 3 && is_all(host, ".")) => {
                "ADDRESS"
            }
            _ if core.len() == 8 && core.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)) => "ID",
            _ if core.len() == 40 && core.starts_with("GPU-") => "GPU",
            _ if is_number(core) => "N",
            _ => core,
        };
        words.push(format!("{open}{kind}{tail}"));
    }
    words.join(" ")
}

/// Lines that are the same on each host. `...` stands for columns that the page leaves out.
fn lasting(shown: &[String]) -> Vec<String> {
    let is_of_here = |line: &&String| !OTHER_HOSTS.iter().any(|(part, _)| line.contains(part));
    let lines = shown.iter().filter(is_of_here).map(|line| normalised(line.split("...").next().unwrap_or(line)));
    lines.filter(|line| !line.is_empty()).collect()
}

/// Whether a command has this part, at the beginning of a word.
fn has_part(command: &str, part: &str) -> bool {
    command.match_indices(part).any(|(at, _)| !command[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Whether the text names a command without what it needs.
fn is_named_only(line: &CommandLine) -> bool {
    let call = call(&line.text).unwrap_or_default();
    !line.in_block && (is_usage(call) || allostat::cli::parse_line(&words(call)).is_err_and(|why| is_mention(&why)))
}

/// Promise (Input validation): Each documented command succeeds, but for kinds that are listed, such as systemctl
#[test]
fn commands_of_all_pages_work_as_written() {
    if !is_root() {
        skip_test!("not-root");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = documents();
    // Others use the certificate that it makes.
    pages.sort_by_key(|page| !page.ends_with("docs/security.md"));
    let mut reader = Reader::new();
    let (mut ran, mut wrong, mut seen, mut left_out) = (0, Vec::new(), BTreeSet::new(), BTreeSet::new());
    let (mut compared, mut foreign) = (0, BTreeSet::<(&str, &str)>::new());
    for page in pages {
        let name = page.strip_prefix(root).unwrap_or(&page).display().to_string();
        let text = std::fs::read_to_string(&page).expect("our own page");
        let lines = command_lines(&text);
        for line in lines.iter().filter(|line| !is_named_only(line)) {
            // In the middle of a sentence it says nothing of what was typed before.
            if !line.in_block && !seen.insert(line.text.clone()) {
                continue;
            }
            let place = format!("{name}:{}", line.at);
            if let Some((part, _)) = LEFT_OUT.iter().find(|(part, _)| has_part(&line.text, part)) {
                left_out.insert(*part);
                continue;
            }
            compared += lasting(&line.shown).len();
            foreign.extend(OTHER_HOSTS.iter().filter(|(part, _)| line.shown.iter().any(|line| line.contains(part))));
            reader.is_ready();
            wrong.extend(reader.run(line).err().map(|why| format!("{place}: {why}")));
            if line.text.contains("allostat signal") {
                // The signal ends the task, and the agent reports that a moment later.
                reader.agent.cli(&["stop", "--job", "web", "--yes"]);
            }
            ran += 1;
        }
        reader.end_agents();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unused: Vec<_> = LEFT_OUT.iter().filter(|(part, _)| !left_out.contains(part)).collect();
    assert!(unused.is_empty(), "no page has these any more: {unused:?}");
    assert!(ran > 120 && compared > 30, "the command lines were not found: {ran}, with {compared} lines of output");
    let unused: Vec<_> = OTHER_HOSTS.iter().filter(|one| !foreign.contains(one)).collect();
    assert!(unused.is_empty(), "no page shows these any more: {unused:?}");
    reader.agent.stop();
}

#[test]
fn output_of_a_page_is_compared_without_numbers_ids_times_and_columns_left_out() {
    for (line, expected) in [
        (
            "12:15:56.340  962aa8a5  server  Network  ports: http 192.0.2.2:31980",
            "T ID server Network ports: http ADDRESS",
        ),
        ("        memory usage  18.8 MiB  18.8 MiB", "memory usage N N"),
        ("962aa8a5: ALLOC is from its cgroup; read 788 ms ago", "ID: ALLOC is from its cgroup; read N ago"),
        ("agent  0.1.0, 0.01 cores, 28.4 MiB, up 11.0 s", "agent N, N, N, up N"),
        ("job web (service): 1 alloc", "job web (service): N alloc"),
        ("after 5s, abandoned after 35s", "after N, abandoned after N"),
        ("docker:web-1  1m 30s  64.0 MiB  100 %  exit 3", "docker:web-1 N N N exit N"),
        ("GPU-6fb1c2d4-91ab-4c0e-8f55-2d30a7c9e1b4  H100 80GB  88 %  412 W  41 °C", "GPU H100 80GB N N N"),
    ] {
        assert_eq!(normalised(line), expected);
    }
    let shown = ["NAME   STATE ... EXIT", "web 1", "docker:web-1 7", ""].map(str::to_owned);
    assert_eq!(lasting(&shown), ["NAME STATE", "web N"]);
    assert!(has_part("mkdir x && cp a b", "cp ") && !has_part("listen tcp 9740", "cp "));
}
