//! The test harness tested: what judges everything else must itself be right.

use std::collections::BTreeSet;

use crate::common::{Exposition, Promtool, drawn, free_address, python_openmetrics};

#[test]
fn an_exposition_is_read_with_escapes_and_to_the_last_digit() {
    let text =
        "# HELP m What it is.\n# TYPE m counter\nm{a=\"x\\\"y\\\\z\\n,}\",b=\"\"} 18446744073709551615\nn 1.5 123\n";
    let exposition = Exposition::parse(text);
    assert_eq!(exposition.u64("m", &[("a", "x\"y\\z\n,}")]), u64::MAX);
    assert_eq!(exposition.f64("n", &[]), 1.5);
    assert_eq!(exposition.types["m"], "counter");
    assert_eq!(exposition.one("absent", &[]), None);
    assert_eq!(exposition.names(), ["m", "n"]);
}

#[test]
#[should_panic(expected = "not a sample")]
fn a_broken_exposition_is_refused() {
    Exposition::parse("m{a=\"x} 1\n");
}

#[test]
fn promtool_accepts_a_good_exposition_and_refuses_a_bad_one() {
    let Some(promtool) = Promtool::find() else { skip_test!("no-prometheus") };
    let good = promtool.check_metrics(b"# HELP m_total What.\n# TYPE m_total counter\nm_total 1\n");
    assert!(good.ok, "{}", good.output);
    let bad = promtool.check_metrics(b"# TYPE m_total counter\nm_total 1\n");
    assert!(!bad.ok, "a missing HELP must be refused");
}

#[test]
fn python_reads_open_metrics_and_refuses_what_lacks_its_end() {
    let Some(good) = python_openmetrics(b"# HELP m What.\n# TYPE m counter\nm_total 1.0\n# EOF\n") else {
        skip_test!("no-python")
    };
    assert!(good.ok && good.output.trim() == "1", "{}", good.output);
    let bad = python_openmetrics(b"# TYPE m counter\nm_total 1.0\n").expect("it was there a moment ago");
    assert!(!bad.ok, "a body without # EOF must be refused");
}

#[test]
fn a_free_address_is_given_once_and_never_to_an_outgoing_connection() {
    let ports: BTreeSet<u16> = (0..200).map(|_| free_address().port()).collect();
    assert_eq!(ports.len(), 200, "{ports:?}");
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("the kernel says so");
    let first: u16 = range.split_whitespace().next().and_then(|first| first.parse().ok()).expect("a port");
    assert!(ports.iter().all(|port| *port < first), "{ports:?}, and the kernel chooses from {first} on");
}

#[test]
fn text_that_is_drawn_in_pieces_is_found_on_the_screen() {
    let text = "\x1b[2J\x1b[2;3Hgpu: idle by x\x1b[2;8H\x1b[31mheld\x1b[0m";
    assert!(!text.contains("gpu: held by x") && drawn(text).contains("  gpu: held by x "));
}
