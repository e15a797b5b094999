//! A headless Chromium: what a page's document becomes, and what it looks like.
//!
//! Promise (Devices): In Chromium the page shows tasks and curves at 400 to 3840 pixels

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::devtools::{AccessibleNode, Browser, FLAGS, chromium};
use super::{LONG, agent, altered, points};
use crate::common::{Agent, AgentOptions, Cgroups, is_root, patience, tcp, test_dir, wait_for};

/// Runs it on a page until that has polled at least twice, and gives what it printed.
fn run(chromium: &Path, url: &str, more: &[&str]) -> String {
    let profile = test_dir();
    let output = profile.path().join("output");
    let stdout = std::fs::File::create(&output).unwrap();
    let mut child = Command::new(chromium)
        .args(FLAGS)
        .arg("--virtual-time-budget=9000")
        .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
        .args(more)
        .arg(url)
        .stdout(stdout)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > LONG * patience() {
            child.kill().unwrap();
            panic!("the browser did not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
    std::fs::read_to_string(&output).unwrap()
}

/// The document after the page's script has run.
pub(super) fn document(chromium: &Path, url: &str) -> String {
    run(chromium, url, &["--dump-dom"])
}

#[test]
fn browser_page_shows_a_task_with_its_curves_at_each_size_and_in_both_themes() {
    let Some(chromium) = chromium() else { crate::skip_test!("no-chromium") };
    let (agent, id) = agent();
    wait_for("points of its memory", LONG * patience(), || {
        (points(&agent, &id, "memory_bytes").len() >= 2).then_some(())
    });
    let url = format!("http://{}/", agent.address);
    let dom = document(&chromium, &url);
    for expected in ["shop/steady", "data-state=\"on\"", "aria-rowcount=", "role=\"tabpanel\""] {
        assert!(dom.contains(expected), "{expected}: {dom}");
    }
    assert!(!dom.contains(">Loading."), "{dom}");
    let detail = document(&chromium, &format!("{url}#/{id}/steady"));
    for expected in ["data-chart=\"cpu\"", "in the last hour", "class=\"line cpu\""] {
        assert!(detail.contains(expected), "{expected}: {detail}");
    }
    let pictures = test_dir();
    for (width, height, scheme) in [(400, 800, 1), (1280, 800, 0), (2560, 1440, 1), (3840, 2160, 0)] {
        let file = pictures.path().join(format!("{width}.png"));
        let size = format!("--window-size={width},{height}");
        let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
        run(&chromium, &url, &[&size, &scheme, &format!("--screenshot={}", file.display())]);
        let png = std::fs::read(&file).unwrap();
        let of = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
        assert_eq!((of(16), of(20)), (width, height), "the picture is of the whole window");
        assert!(png.len() > 20_000, "more than an empty page: {} bytes", png.len());
    }
    agent.stop();
}

/// Titles of the rows, from the top.
const TITLES: &str = "[...document.querySelectorAll('tr.row .name bdi')].map(one => one.textContent).join(' ')";
/// The title of the row that has the focus; nothing, if none has it.
const FOCUSED: &str = "document.activeElement.closest('tr.row')?.querySelector('.name bdi').textContent ?? ''";
const OPEN: &str = "!document.getElementById('detail').hidden";

/// Promise (Devices): On the page keys search, walk, open and close; the last output of a failed task is text, for the
/// owner alone
#[test]
fn in_a_browser_keys_search_walk_through_rows_and_open_and_close_the_details() {
    let Some(chromium) = chromium() else { crate::skip_test!("no-chromium") };
    let (agent, _) = agent();
    let bakery = "job \"bakery\" {\n group \"g\" {\n task \"oven\" {\n driver = \"raw_exec\"\n config {\n command = \
                  \"/bin/sleep\"\n args = [\"600\"]\n }\n }\n }\n}\n";
    agent.run(bakery);
    let mut page = Browser::open(&chromium, &format!("http://{}/", agent.address));
    let both = "document.querySelectorAll('tr.row').length === 2";
    page.waits_for(both);
    // By name, so that their order stays.
    page.value("document.querySelector('th.c-name button').click()");
    page.waits_for(&format!("{TITLES} === 'bakery/oven shop/steady'"));

    let searching = "document.activeElement.id === 'find'";
    page.press("/");
    page.waits_for(searching);
    assert_eq!(page.value("document.getElementById('find').value"), "", "the key itself is no part of the search");
    page.types("STEADY oven");
    page.waits_for("document.querySelectorAll('tr.row').length === 0");
    page.press("Escape");
    page.waits_for(&format!("{both} && {searching} && document.getElementById('find').value === ''"));
    page.types("sho");
    page.waits_for(&format!("{TITLES} === 'shop/steady'"));
    page.press("Escape");
    page.waits_for(both);
    page.press("Escape");
    page.waits_for(&format!("!({searching})"));

    // Into the table, to the row that was shown first.
    page.press("j");
    page.waits_for(&format!("({FOCUSED}) !== ''"));
    for (key, row) in [
        ("Home", "bakery/oven"),
        ("ArrowDown", "shop/steady"),
        ("ArrowDown", "shop/steady"),
        ("ArrowUp", "bakery/oven"),
        ("End", "shop/steady"),
        ("k", "bakery/oven"),
        ("j", "shop/steady"),
        ("ArrowUp", "bakery/oven"),
    ] {
        page.press(key);
        page.waits_for(&format!("({FOCUSED}) === '{row}'"));
    }
    page.press("Enter");
    page.waits_for(OPEN);
    page.waits_for(
        "document.activeElement.matches('#detail h2') && document.activeElement.textContent === 'bakery/oven'",
    );
    page.waits_for("location.hash.endsWith('/oven')");
    page.waits_for("document.querySelector('#detail [data-chart=\"memory\"]') !== null");
    page.press("Escape");
    page.waits_for(&format!("!({OPEN}) && location.hash === '' && ({FOCUSED}) === 'bakery/oven'"));

    for (key, tab) in [("2", "ended"), ("3", "devices"), ("1", "workloads")] {
        page.press(key);
        page.waits_for(&format!("document.getElementById('tab-{tab}').getAttribute('aria-selected') === 'true'"));
    }
    page.press("?");
    page.waits_for("document.getElementById('help').open");
    page.press("Escape");
    page.waits_for("!document.getElementById('help').open");
    for theme in ["light", "dark"] {
        page.press("t");
        page.waits_for(&format!("document.documentElement.dataset.theme === '{theme}'"));
    }
    assert!(page.errors.is_empty(), "{:?}", page.errors);
    agent.stop();
}

/// Promise (Devices): Each control, row, table, chart and landmark of the page has a name for a screen reader
/// Promise (Devices): On the page sources filter, a device names its holder, arrow keys read a chart; no width is
/// exceeded
#[test]
fn in_a_browser_sources_devices_host_and_charts_are_read_at_each_width() {
    let Some(chromium) = chromium() else { crate::skip_test!("no-chromium") };
    if !is_root() {
        crate::skip_test!("not-root");
    }
    let (observed, driver) = (Cgroups::new(), test_dir());
    let scenario = fake_nvml::Scenario::new().with(fake_nvml::Device::of("t4"));
    let gpus = fake_nvml::install(driver.path(), &scenario).expect("the fake NVML is built");
    let config = format!(
        "history {{\n  series_interval = \"5s\"\n}}\ndevices {{\n  nvidia_library = {:?}\n}}\n",
        gpus.library().display().to_string()
    );
    let include = format!("cgroup:{}/*", observed.parent);
    let env = [("ALLOSTAT_OBSERVE", "true"), ("ALLOSTAT_OBSERVE_INCLUDE", &include)];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let agent = Agent::with(AgentOptions { config, env, ..AgentOptions::default() });
    observed.make("queue");
    let mut child = observed.sleeper("queue");
    agent.run(&super::JOB.replace(
        " task \"steady\" {\n",
        " task \"steady\" {\n resources {\n device \"nvidia/gpu\" {\n count = 1\n }\n }\n",
    ));
    let id = wait_for("the managed one", LONG * patience(), || {
        agent.alloc_ids().into_iter().find(|id| !id.starts_with("cgroup:"))
    });
    wait_for("points of its memory", LONG * patience(), || {
        (points(&agent, &id, "memory_bytes").len() >= 2).then_some(())
    });
    let mut page = Browser::open(&chromium, &format!("http://{}/", agent.address));
    page.waits_for("document.querySelectorAll('tr.row').length === 2");
    let chip = |source: &str| format!("document.querySelector('#sources [data-name=\"{source}\"]')");
    page.value(&format!("{}.click()", chip("cgroup")));
    page.waits_for(&format!("({TITLES}).includes('queue') && document.querySelectorAll('tr.row').length === 1"));
    page.waits_for(&format!("{}.getAttribute('aria-pressed') === 'true'", chip("cgroup")));
    page.value(&format!("{}.click()", chip("cgroup")));
    page.waits_for("document.querySelectorAll('tr.row').length === 2");
    for (card, word) in [("CPU", "cores"), ("Memory", "of"), ("Pressure", "CPU"), ("Network", "in")] {
        let shows = format!("one.textContent.startsWith('{card}') && one.textContent.includes('{word}')");
        page.waits_for(&format!("[...document.querySelectorAll('#host > *')].some(one => {shows})"));
    }

    each_has_a_name(
        &mut page,
        &[
            ("button", "Theme: auto"),
            ("button", "Memory"),
            ("button", "cgroup 1"),
            ("searchbox", "Search by name, job or ID"),
            ("tab", "Workloads 2"),
            ("tabpanel", "Workloads 2"),
            ("table", "Running workloads of this host"),
            ("columnheader", "Throttled"),
            ("row", "shop/steady"),
            ("link", "shop/steady"),
            ("region", "Attention"),
        ],
    );
    page.press("?");
    page.waits_for("document.getElementById('help').open");
    each_has_a_name(&mut page, &[("dialog", "Keys"), ("button", "Close")]);
    page.press("Escape");

    page.press("3");
    page.waits_for("document.querySelector('[aria-label=\"Held by\"]')?.textContent.includes('shop/steady')");
    page.waits_for("document.querySelector('.devices h3').textContent.includes('Tesla T4')");
    each_has_a_name(&mut page, &[("region", "Tesla T4"), ("link", "shop/steady"), ("list", "Held by")]);
    for width in [400, 1280, 2560, 3840] {
        page.resize(width, 900);
        for key in ["1", "2", "3"] {
            page.press(key);
            page.waits_for(&format!(
                "innerWidth === {width} && document.documentElement.scrollWidth <= {width} && \
                 document.getElementById('content').children.length > 0"
            ));
        }
    }

    // In place of the heads of columns.
    page.resize(400, 900);
    page.press("1");
    page.waits_for("innerWidth === 400 && document.querySelector('tr.row') !== null");
    each_has_a_name(&mut page, &[("combobox", "Sort by"), ("row", "shop/steady")]);
    page.resize(1280, 800);
    page.value(&format!("location.hash = '#/{id}/steady'"));
    let chart = "document.querySelector('#detail [data-chart=\"memory\"]')";
    page.waits_for(&format!("{chart} !== null"));
    each_has_a_name(
        &mut page,
        &[
            ("complementary", "Details"),
            ("button", "Close the details"),
            ("heading", "shop/steady"),
            ("image", "CPU in the last hour"),
            ("image", "Memory in the last hour"),
        ],
    );
    page.value(&format!("{chart}.focus()"));
    let announced = "document.getElementById('announce').textContent";
    // The hour begins before the task, so its first point has no value.
    for (key, value) in [("ArrowLeft", "[0-9.]+ [KMG]iB"), ("Home", "–"), ("ArrowRight", "")] {
        page.value("document.getElementById('announce').textContent = ''");
        page.press(key);
        page.waits_for(&format!("/: in use {value}/.test({announced})"));
    }
    assert!(page.errors.is_empty(), "{:?}", page.errors);
    child.kill().unwrap();
    child.wait().unwrap();
    observed.remove("queue");
    agent.stop();
}

/// Of what takes the focus, and of these roles, a screen reader says the kind alone if it has no name. `expected`: some
/// that must be there, by role and the beginning of their name.
#[track_caller]
fn each_has_a_name(page: &mut Browser, expected: &[(&str, &str)]) {
    const NAMED: [&str; 21] = [
        "button",
        "columnheader",
        "combobox",
        "complementary",
        "dialog",
        "group",
        "heading",
        "image",
        "img",
        "link",
        "navigation",
        "option",
        "progressbar",
        "region",
        "row",
        "rowheader",
        "searchbox",
        "tab",
        "table",
        "tablist",
        "tabpanel",
    ];
    let nodes = page.accessible();
    let unnamed: Vec<&AccessibleNode> = nodes
        .iter()
        .filter(|node| {
            (node.is_focusable || NAMED.contains(&&*node.role)) && !node.name.chars().any(char::is_alphanumeric)
        })
        .collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
    for (role, name) in expected {
        let has = |node: &AccessibleNode| node.role == *role && node.name.starts_with(name);
        assert!(nodes.iter().any(has), "{role} {name}: {nodes:?}");
    }
}

/// The table of an agent whose tasks wait for memory in 30% of the time and for CPU in 10%: the kernel of this host may
/// not count it for single cgroups.
fn with_pressure(mut table: Value) -> String {
    let ticked = table["ticked_at"].as_u64().unwrap();
    for (name, tenths) in [("pressure_cpu_some_ns", 1), ("pressure_memory_some_ns", 3)] {
        let fields = table["fields"].as_array_mut().unwrap();
        let at = fields.iter().position(|field| field == name).unwrap_or(fields.len());
        if at == fields.len() {
            fields.push(name.into());
        }
        for task in table["tasks"].as_array_mut().unwrap() {
            let read = task["sampled_at"].as_u64().unwrap_or(0).max(ticked);
            let usage = task["usage"].as_array_mut().unwrap();
            usage.resize(usage.len().max(at + 1), Value::Null);
            usage[at] = (read / 10 * tenths).into();
        }
    }
    table.to_string()
}

/// The curves of all tasks rise, have a gap and end at half of their height.
fn with_curves(mut series: Value) -> String {
    for task in series["tasks"].as_array_mut().unwrap() {
        task["cpu_cores"] = json!([0, 0.1, null, 0.05]);
        task["memory_bytes"] = json!([0, 2 << 20, null, 1 << 20]);
    }
    series.to_string()
}

/// Promise (Devices): A row of the page has curves, limits with the peak, and its share of throttling and pressure
#[test]
fn in_a_browser_rows_have_curves_limits_with_the_peak_throttling_and_pressure() {
    const ROW: &str = "document.querySelector('tr.row')";
    let Some(chromium) = chromium() else { crate::skip_test!("no-chromium") };
    if !is_root() {
        crate::skip_test!("not-root");
    }
    let config = "history {\n  series_interval = \"5s\"\n}\n".to_owned();
    let agent = Agent::with(AgentOptions { config, ..AgentOptions::default() });
    // It wants all of a core, and has a tenth.
    let limits = " task \"steady\" {\n resources {\n cpu = 100\n memory = 64\n }\n";
    let job = super::JOB.replace(" task \"steady\" {\n", limits);
    agent.run(&job.replace(" config {\n", " config {\n cpu_hard_limit = true\n"));
    let id = agent.alloc_ids()[0].clone();
    wait_for("points of its memory", LONG * patience(), || {
        (points(&agent, &id, "memory_bytes").len() >= 2).then_some(())
    });
    let real = agent.address;
    let address = altered::serve(move |path| {
        let json = || tcp(real, "GET", path, &[], b"").unwrap().json();
        match path {
            "/v1/tasks" => altered::json("200 OK", &with_pressure(json())),
            "/v1/history/series" => altered::json("200 OK", &with_curves(json())),
            _ => altered::of(real, path),
        }
    });
    let mut page = Browser::open(&chromium, &format!("http://{address}/"));
    page.waits_for(&format!("{ROW} !== null"));
    let curve = |cell: &str| format!("{ROW}.querySelector('td.c-{cell} svg.spark path.line').getAttribute('d')");
    for cell in ["cpu", "memory"] {
        page.waits_for(&format!("{} === 'M0.0 24.5L33.3 2.5M100.0 13.5h.01'", curve(cell)));
    }
    let text = |cell: &str| format!("{ROW}.querySelector('td.c-{cell}').textContent");
    page.waits_for(&format!("/of 0\\.10$/.test({})", text("cpu")));
    page.waits_for(&format!(
        "/ \\/ 64\\.0 MiB, [0-9.<]+% of the limit, peak [0-9.]+ [KM]iB$/.test({})",
        text("memory")
    ));
    let limit = format!("{ROW}.querySelector('td.c-memory .stack').title");
    page.waits_for(&format!("/^limit 64\\.0 MiB, peak [0-9.]+ [KM]iB$/.test({limit})"));
    let width = |part: &str| format!("{ROW}.querySelector('.meter {part}').getBoundingClientRect().width");
    page.waits_for(&format!("{} > 0 && {} > 0", width("i"), width("b")));
    // In nearly all periods it wants more than its tenth.
    page.waits_for(&format!("/^[0-9]+%$/.test({0}) && parseFloat({0}) >= 25", text("throttled")));
    page.waits_for(&format!("{} === 'mem 30%'", text("pressure")));
    for (cell, problem, words) in [("throttled", "throttled", "1 throttled"), ("pressure", "waiting", "1 pressure")] {
        page.waits_for(&format!("{ROW}.querySelector('td.c-{cell}').classList.contains('warn')"));
        let chip = format!("document.querySelector('.alerts [data-name=\"{problem}\"]')");
        page.waits_for(&format!("{chip}?.textContent === '{words}'"));
    }
    // The real table: of what the kernel here does not count there is no 0.
    let mut page = Browser::open(&chromium, &format!("http://{real}/"));
    page.waits_for(&format!("{ROW} !== null"));
    let fields = agent.json("/v1/tasks");
    let at = fields["fields"].as_array().unwrap().iter().position(|field| field == "pressure_cpu_some_ns");
    let is_counted = at.is_some_and(|at| !fields["tasks"][0]["usage"][at].is_null());
    let expected = if is_counted { "/^(0|(CPU|mem|I\\/O) [0-9.<]+)%$/" } else { "/^–$/" };
    page.waits_for(&format!("/%$/.test({})", text("throttled")));
    for cell in ["cpu", "memory"] {
        page.waits_for(&format!("/^M[0-9.]+ [0-9.]+/.test({})", curve(cell)));
    }
    page.waits_for(&format!("{expected}.test({})", text("pressure")));
    assert!(page.errors.is_empty(), "{:?}", page.errors);
    agent.stop();
}

/// What `ssh -L PORT:SOCKET HOST` does.
fn forwarded(socket: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for from in listener.incoming().flatten() {
            let Ok(to) = UnixStream::connect(&socket) else { return };
            let (mut answer, mut back) = (to.try_clone().unwrap(), from.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut answer, &mut back);
                let _ = back.shutdown(std::net::Shutdown::Write);
            });
            std::thread::spawn(move || request(from, to));
        }
    });
    address
}

fn request(mut from: TcpStream, mut to: UnixStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Write);
}

#[test]
fn in_a_browser_last_output_is_text_for_the_owner_alone_and_outlives_collection() {
    const FAILS: &str = "job \"fails\" {\n type = \"batch\"\n group \"g\" {\n reschedule {\n attempts = 0\n unlimited = \
                         false\n }\n restart {\n attempts = 0\n mode = \"fail\"\n }\n task \"t\" {\n driver = \"raw_exec\"\n \
                         config {\n command = \"/bin/sh\"\n args = [\"-c\", \"echo warming up >&2; echo 'no <b>disk</b>' >&2; \
                         exit 3\"]\n }\n }\n }\n}\n";
    const TEXT: &str = "document.querySelector('#detail .output')?.textContent === 'warming up\\nno <b>disk</b>'";
    let Some(chromium) = chromium() else { crate::skip_test!("no-chromium") };
    let env = [("ALLOSTAT_RETENTION", "0s"), ("ALLOSTAT_RETENTION_MAX", "0s")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let agent = Agent::with(AgentOptions { env, ..AgentOptions::default() });
    agent.run(FAILS);
    let id = agent.alloc_ids()[0].clone();
    wait_for("its end on record", LONG * patience(), || {
        let ended = agent.json(&format!("/v1/history?id={id}"))["ended"].as_array()?.len();
        (ended == 1).then_some(())
    });
    let owner = format!("http://{}/", forwarded(agent.socket()));
    let mut page = Browser::open(&chromium, &format!("{owner}#/{id}/t"));
    page.waits_for(TEXT);
    assert_eq!(page.value("document.querySelector('#detail .output').children.length"), 0, "markup stays text");
    assert!(page.value("document.getElementById('detail').textContent").as_str().unwrap().contains("exit 3"));
    assert!(page.errors.is_empty(), "{:?}", page.errors);

    let mut other = Browser::open(&chromium, &format!("http://{}/#/{id}/t", agent.address));
    other.waits_for("document.getElementById('detail').textContent.includes('this connection may not read it')");
    assert_eq!(other.value("document.body.textContent.includes('warming up')"), false);
    drop(other);

    wait_for("it to be collected", LONG * patience(), || {
        agent.cli(&["gc", "--all"]);
        agent.alloc_ids().is_empty().then_some(())
    });
    let mut page = Browser::open(&chromium, &format!("{owner}#ended"));
    page.waits_for("document.querySelector('.ended a.name') !== null");
    page.value("document.querySelector('.ended a.name').focus()");
    page.press("Enter");
    page.waits_for(TEXT);
    each_has_a_name(
        &mut page,
        &[
            ("table", "Ended workloads, newest first"),
            ("columnheader", "How it ended"),
            ("row", "fails"),
            ("region", "Last output"),
        ],
    );
    page.press("Escape");
    page.waits_for("document.getElementById('detail').hidden && location.hash === '#ended'");
    agent.stop();
}
