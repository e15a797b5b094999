//! A headless Chromium: what a page's document becomes, and what it looks like.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{LONG, agent, points};
use crate::common::{patience, test_dir, wait_for};

/// `CHROMIUM` names one; else the one in `PATH`. `None`: there is none.
pub(super) fn chromium() -> Option<PathBuf> {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("chromium")).find(|file| file.is_file());
    named.or(found)
}

/// Runs it on a page until that has polled at least twice, and gives what it printed.
fn run(chromium: &Path, url: &str, more: &[&str]) -> String {
    let profile = test_dir();
    let output = profile.path().join("output");
    let stdout = std::fs::File::create(&output).unwrap();
    let mut child = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--hide-scrollbars", "--virtual-time-budget=9000"])
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
fn in_a_browser_the_page_shows_a_task_with_its_curves_at_each_size_and_in_both_themes() {
    let Some(chromium) = chromium() else { crate::skip_test!("no-chromium") };
    let (agent, id) = agent();
    wait_for("points of its memory", LONG * patience(), || {
        (points(&agent, &id, "memory_bytes").len() >= 2).then_some(())
    });
    let url = format!("http://{}/", agent.address);
    let dom = document(&chromium, &url);
    for wanted in ["shop/steady", "data-state=\"on\"", "aria-rowcount=", "role=\"tabpanel\""] {
        assert!(dom.contains(wanted), "{wanted}: {dom}");
    }
    assert!(!dom.contains(">Loading."), "{dom}");
    let detail = document(&chromium, &format!("{url}#/{id}/steady"));
    for wanted in ["data-chart=\"cpu\"", "in the last hour", "class=\"line cpu\""] {
        assert!(detail.contains(wanted), "{wanted}: {detail}");
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
