//! What it costs to observe other cgroups, idle and waking ten times a second: measured by the agent with and without
//! the kernel pass, and by Netdata's and collectd's plugins for cgroups, one after the other on the same cgroups. 1,000
//! of them; with `--all` also 5,000. Its CPU is reported without a client, as Netdata's and collectd's is, and with a
//! scrape each 15 s (with `--alone` only the agent is measured, with `idle` or `waking` only those); the oldest sample
//! with a scrape each 15 s, and with a client that reads all the time.
//!
//! Each cgroup is made in every hierarchy, below one that is right below its root: collectd looks there alone. Netdata
//! and collectd do nothing else here and keep nothing on disk; what they take for themselves is their cheapest. The
//! agent is as it is without a word of configuration, but that it looks at these cgroups alone.

#[path = "../tests/common/mod.rs"]
mod common;
mod shared;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, mkfifoat};

use common::{
    Agent, AgentOptions, Cgroups, Exposition, free_address, is_root, part, part_file, tcp, test_dir, wait_for, workload,
};
use shared::top;
use shared::walk::Walk;
use shared::{as_a_unit, cpu_per_minute, median, report, rss_bytes, scrape, settle};

const SPAN: Duration = Duration::from_secs(60);

fn main() {
    let requests: Vec<String> = std::env::args().skip(1).collect();
    let is_requested = |word: &str| requests.iter().any(|other| other == word);
    if !is_root() {
        println!("what it costs to look at others' cgroups needs root: cgroups");
        return;
    }
    as_a_unit();
    let tasks = requests.iter().find_map(|word| word.parse().ok()).unwrap_or(1000);
    let kinds: &[&str] = match (is_requested("idle"), is_requested("waking")) {
        (true, false) => &["idle"],
        (false, true) => &["waking"],
        _ => &["idle", "waking"],
    };
    let sizes: &[usize] = if is_requested("--all") { &[tasks, 5000] } else { &[tasks] };
    for (tasks, kind) in sizes.iter().flat_map(|tasks| kinds.iter().map(move |kind| (*tasks, *kind))) {
        match is_requested("--alone") {
            true => drop(cost_next_to_walk(&OtherWorkloads::start(tasks, kind == "waking"), kind)),
            false => with_other_workloads(tasks, kind),
        }
    }
}

fn with_other_workloads(tasks: usize, kind: &str) {
    let observed = OtherWorkloads::start(tasks, kind == "waking");
    // Peers first: what they look at is the same, and nothing of ours runs beside them.
    let to_netdata = format!("observed/netdata-{kind}-{tasks}");
    let netdata = netdata(&observed, &to_netdata);
    let to_collectd = format!("observed/collectd-{kind}-{tasks}");
    let collectd = collectd(&observed, &to_collectd);
    let to_files = format!("observed/files-{kind}-{tasks}");
    let files = watch(&observed, kind, false, &to_files, None);
    let own = cost_next_to_walk(&observed, kind);
    let unit = "CPU-s/min";
    let cost_ratio = |peer: &Cost| own.cpu / peer.cpu;
    report(&format!("observed/beside-files-{kind}-{tasks}"), own.cpu, unit, Some((cost_ratio(&files), &to_files)));
    if let Some(netdata) = netdata {
        let ratio = Some((cost_ratio(&netdata), to_netdata.as_str()));
        report(&format!("observed/beside-netdata-{kind}-{tasks}"), own.cpu, unit, ratio);
    }
    if let Some(collectd) = collectd {
        let each = |cost: &Cost| cost.cpu * 1e6 / cost.series;
        let (unit, to) = ("CPU-us/min for each series", format!("{to_collectd}-each"));
        report(&to, each(&collectd), unit, None);
        let ratio = Some((each(&own) / each(&collectd), to.as_str()));
        report(&format!("observed/each-{kind}-{tasks}"), each(&own), unit, ratio);
    }
}

/// The agent as it is, and what the kernel takes.
fn cost_next_to_walk(observed: &OtherWorkloads, kind: &str) -> Cost {
    let tasks = observed.tasks.len();
    let walk = Walk::below("/", tasks, kind, &format!("observed/walk-{kind}-{tasks}"));
    let own = watch(observed, kind, true, &format!("observed/{kind}-{tasks}"), walk.as_ref());
    report(
        &format!("observed/oldest-{kind}-{tasks}"),
        own.oldest,
        "ms: the oldest sample shown, with a client that reads all the time",
        None,
    );
    let unit = "ms, from a process in a new cgroup to its shown usage";
    report(&format!("observed/new-{kind}-{tasks}-p50"), own.new[own.new.len() / 2], unit, None);
    report(&format!("observed/new-{kind}-{tasks}"), own.new[own.new.len() - 1], "ms, the slowest of 20", None);
    own
}

struct Cost {
    /// CPU seconds a minute.
    cpu: f64,
    series: f64,
    /// Milliseconds; 0 of peers, which do not report it.
    oldest: f64,
    /// Milliseconds from the beginning of each of some new ones until it is measured; sorted. None of others.
    new: Vec<f64>,
}

/// Observed processes, each in a cgroup of its own.
struct OtherWorkloads {
    tasks: Vec<Child>,
    /// They wake as long as it is open.
    begin: Option<fs::File>,
    cgroups: Cgroups,
    dir: tempfile::TempDir,
}

impl OtherWorkloads {
    fn start(count: usize, wake: bool) -> OtherWorkloads {
        let (dir, cgroups) = (test_dir(), Cgroups::new());
        let fifo = dir.path().join("begin");
        mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o644)).expect("a FIFO can be made");
        let mut observed = OtherWorkloads { tasks: Vec::new(), begin: None, cgroups, dir };
        for n in 0..count {
            let mut command = Command::new(workload());
            match wake {
                true => command.args(["wake", "10", "3600000"]).arg(&fifo),
                false => command.args(["hold", "3600000"]),
            };
            let child = observed.one_more(command, n);
            observed.tasks.push(child);
        }
        observed.begin = wake.then(|| fs::OpenOptions::new().write(true).open(&fifo).expect("they wait for it"));
        settle();
        observed
    }
    fn one_more(&self, mut command: Command, n: usize) -> Child {
        let name = format!("{}{n}", self.prefix());
        self.cgroups.make(&name);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it must start");
        self.cgroups.place(&name, child.id());
        child
    }
    /// What all their names begin with.
    fn prefix(&self) -> String {
        format!("observed-{}-", std::process::id())
    }
}

impl Drop for OtherWorkloads {
    fn drop(&mut self) {
        drop(self.begin.take());
        for child in &mut self.tasks {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Their cgroups go with what made them.
    }
}

/// The agent.
fn watch(observed: &OtherWorkloads, kind: &str, pass: bool, row: &str, walk: Option<&Walk>) -> Cost {
    let env = [
        ("ALLOSTAT_OBSERVE", "true".to_owned()),
        ("ALLOSTAT_OBSERVE_INCLUDE", format!("cgroup:{}/*", observed.cgroups.parent)),
        ("ALLOSTAT_OBSERVE_MAX_ALLOCS", "10000".to_owned()),
        ("ALLOSTAT_PROFILE", "standard".to_owned()),
        ("ALLOSTAT_KERNEL_PASS", pass.to_string()),
    ];
    let began = Instant::now();
    let env = env.map(|(name, value)| (name.to_owned(), value)).into();
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    let tasks = observed.tasks.len();
    wait_for("all of them to be shown", Duration::from_secs(300), || {
        // An answer about thousands takes the agent longer than a tick does.
        std::thread::sleep(Duration::from_millis(if tasks > 1000 { 2000 } else { 100 }));
        (shown(&agent).0 == tasks).then_some(())
    });
    report(&format!("{row}-shown"), began.elapsed().as_secs_f64(), "s, from the agent's start to all shown", None);
    settle();
    let cpu = cpu_per_minute(agent.pid(), SPAN, || {});
    report(row, cpu, "CPU-s/min", walk.map(|walk| walk.compared_to(cpu)));
    if pass {
        let scraped = cpu_per_minute(agent.pid(), SPAN, || drop(scrape(&agent)));
        let ratio = walk.map(|walk| walk.compared_to(scraped));
        report(&format!("observed/scraped-{kind}-{tasks}"), scraped, "CPU-s/min, scraped each 15 s", ratio);
        let seldom = (0..4).map(|_| {
            std::thread::sleep(Duration::from_secs(15));
            shown(&agent).1
        });
        let unit = "ms: the oldest sample shown, with a scrape each 15 s";
        report(&format!("observed/oldest-at-15s-{kind}-{tasks}"), seldom.fold(0.0, f64::max), unit, None);
        let rows = top::Rows {
            top: format!("top/observed-{kind}-{tasks}"),
            viewed: format!("observed/looked-at-{kind}-{tasks}"),
            unseen: format!("observed/unseen-{kind}-{tasks}"),
        };
        top::measure_viewed(&agent, &observed.prefix(), &rows);
    }
    let oldest = (0..40).map(|_| {
        std::thread::sleep(Duration::from_millis(237));
        shown(&agent).1
    });
    let oldest = oldest.fold(0.0, f64::max);
    let mut took = Vec::new();
    let mut body = String::new();
    for _ in 0..20 {
        let began = Instant::now();
        body = scrape(&agent);
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    report(&format!("{row}-scrape"), median(&mut took), "ms: a scrape, median", None);
    let series = of(Exposition::parse(&body).samples.len());
    report(&format!("{row}-series"), series, "series", None);
    report(&format!("{row}-rss"), mebibytes(agent.pid()), "MiB", None);
    let mut new: Vec<f64> = (0..20).map(|n| until_measured(&agent, observed, observed.tasks.len() + n)).collect();
    new.sort_by(f64::total_cmp);
    agent.stop();
    Cost { cpu, series, oldest, new }
}

/// Milliseconds from when a process is in a new cgroup until that is shown with what it uses.
fn until_measured(agent: &Agent, observed: &OtherWorkloads, n: usize) -> f64 {
    // Not in step with the agent's ticks.
    std::thread::sleep(Duration::from_millis(137));
    let mut command = Command::new(workload());
    command.args(["hold", "60000"]);
    let mut child = observed.one_more(command, n);
    let began = Instant::now();
    let parent = observed.cgroups.parent.trim_start_matches('/');
    let target = format!("/v1/allocs/cgroup%3A%2F{parent}%2F{}{n}/stats", observed.prefix());
    wait_for("a new one to be measured", Duration::from_secs(20), || {
        let stats = agent.request("GET", &target, "");
        (stats.status == 200 && stats.json()["usage"]["memory_usage_bytes"].is_u64()).then_some(())
    });
    let took = began.elapsed().as_secs_f64() * 1e3;
    let _ = (child.kill(), child.wait());
    took
}

/// How many are shown as what runs, and the age of the oldest sample of theirs in milliseconds.
fn shown(agent: &Agent) -> (usize, f64) {
    let all = agent.json("/v1/stats");
    let allocs = all["allocs"].as_array().into_iter().flatten();
    let ages: Vec<f64> = allocs.filter_map(|alloc| alloc["age_ms"].as_f64()).collect();
    (ages.len(), ages.into_iter().fold(0.0, f64::max))
}

#[allow(clippy::cast_precision_loss)] // Some hundred thousands.
fn of(count: usize) -> f64 {
    count as f64
}

#[allow(clippy::cast_precision_loss)] // Some hundreds of MiB.
fn mebibytes(pid: u32) -> f64 {
    rss_bytes(pid) as f64 / f64::from(1 << 20)
}

/// Another program that looks at the same cgroups. Its script gives way to it, so that the child is the program.
struct Peer(Child);

impl Peer {
    fn start(mut command: Command) -> Peer {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Peer(command.spawn().expect("it must start"))
    }
    /// Once it reports something of each: what that costs. `series`: of these cgroups, as it reports them.
    fn cost(&self, observed: &OtherWorkloads, row: &str, series: impl Fn() -> usize) -> Cost {
        wait_for("the peer to know them all", Duration::from_secs(180), || {
            std::thread::sleep(Duration::from_secs(1));
            (series() >= 2 * observed.tasks.len()).then_some(())
        });
        settle();
        let cpu = cpu_per_minute(self.0.id(), SPAN, || {});
        let series = of(series());
        report(row, cpu, "CPU-s/min", None);
        report(&format!("{row}-series"), series, "series of these cgroups", None);
        report(&format!("{row}-rss"), mebibytes(self.0.id()), "MiB", None);
        Cost { cpu, series, oldest: 0.0, new: Vec::new() }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Netdata with its plugin for cgroups alone, a look each second.
fn netdata(observed: &OtherWorkloads, row: &str) -> Option<Cost> {
    let Some(program) = part("netdata") else {
        println!("Netdata is missing: cargo xtask bench gets it");
        return None;
    };
    let (home, address) = (observed.dir.path().join(row.replace('/', "-")), free_address());
    for dir in ["config", "cache", "lib", "log", "plugins", "web"] {
        fs::create_dir_all(home.join(dir)).expect("our own directory");
    }
    let config = home.join("config/netdata.conf");
    fs::write(&config, netdata_config(&home, address, &observed.prefix())).expect("our own directory");
    let mut command = Command::new(program);
    command.arg("-D").arg("-c").arg(&config);
    let peer = Peer::start(command);
    let prefix = observed.prefix().replace('-', "_");
    Some(peer.cost(observed, row, || {
        let all =
            tcp(address, "GET", "/api/v1/allmetrics?format=prometheus", &[], b"").map(|all| all.text().to_owned());
        all.unwrap_or_default().lines().filter(|line| !line.starts_with('#') && is_of(line, &prefix)).count()
    }))
}

/// Whatever they make of characters that are no letters.
fn is_of(line: &str, prefix: &str) -> bool {
    line.replace(['-', '.'], "_").contains(&prefix.replace('-', "_"))
}

fn netdata_config(home: &Path, address: SocketAddr, prefix: &str) -> String {
    let home = home.display();
    let off = [
        "timex",
        "idlejitter",
        "netdata monitoring",
        "tc",
        "diskspace",
        "proc",
        "statsd",
        "slabinfo",
        "apps",
        "checks",
        "enable running new plugins",
    ];
    let off: String = off.iter().map(|name| format!("    {name} = no\n")).collect();
    format!(
        "[global]\n    run as user = root\n    update every = 1\n\
         [directories]\n    config = {home}/config\n    stock config = {home}/config\n    cache = {home}/cache\n    lib = {home}/lib\n\
         \x20   log = {home}/log\n    web = {home}/web\n    plugins = {home}/plugins\n    registry = {home}/lib\n\
         [logs]\n    debug = none\n    access = none\n    error = none\n\
         [db]\n    mode = ram\n    retention = 60\n\
         [web]\n    bind to = {address}\n\
         [health]\n    enabled = no\n[ml]\n    enabled = no\n\
         [plugins]\n    cgroups = yes\n{off}\
         [plugin:cgroups]\n    use unified cgroups = {}\n    max cgroups to allow = 10000\n    enable by default cgroups matching = *{prefix}*\n\
         \x20   search for cgroups in subpaths matching = *\n    run script to rename cgroups matching = !*\n\
         \x20   cgroups to match as systemd services = !*\n",
        if common::mounted_v1("memory").is_some() { "no" } else { "yes" },
    )
}

/// collectd with its plugin for cgroups alone, a read each second. It reports CPU time alone.
fn collectd(observed: &OtherWorkloads, row: &str) -> Option<Cost> {
    let (Some(program), Some(plugins)) = (part("collectd"), part_file("collectd", "usr/lib/collectd")) else {
        println!("collectd is missing: cargo xtask bench gets it");
        return None;
    };
    let types = part_file("collectd", "usr/share/collectd/types.db")?;
    let home = observed.dir.path().join(row.replace('/', "-"));
    fs::create_dir_all(&home).expect("our own directory");
    let (config, socket) = (home.join("collectd.conf"), home.join("socket"));
    let text = format!(
        "Interval 1\nBaseDir {home:?}\nPIDFile {:?}\nPluginDir {plugins:?}\nTypesDB {types:?}\n\
         LoadPlugin unixsock\n<Plugin unixsock>\n  SocketFile {socket:?}\n</Plugin>\nLoadPlugin cgroups\n",
        home.join("pid"),
    );
    fs::write(&config, text).expect("our own directory");
    let mut command = Command::new(program);
    command.arg("-f").arg("-C").arg(&config);
    let peer = Peer::start(command);
    let prefix = observed.prefix();
    Some(peer.cost(observed, row, || values(&socket).iter().filter(|line| is_of(line, &prefix)).count()))
}

/// What collectd knows, a name each. Source: its `LISTVAL` command.
fn values(socket: &Path) -> Vec<String> {
    let Ok(mut stream) = UnixStream::connect(socket) else { return Vec::new() };
    if stream.write_all(b"LISTVAL\n").is_err() {
        return Vec::new();
    }
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let count = lines.next().and_then(|head| head.split(' ').next()?.parse().ok()).unwrap_or(0);
    lines.take(count).collect()
}
