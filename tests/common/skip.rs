//! Skipping loudly: said on standard error, and counted by `cargo xtask test`, which fails on a reason that
//! `tests/allowed-skips` does not list.

use std::io::Write;

/// Says that `test` did not run. The caller returns. `reason` is short and in kebab case: `no-cgroup-v2`, `not-root`.
pub fn skip(test: &str, reason: &str) {
    assert!(
        !reason.is_empty() && reason.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
        "a skip's reason is one kebab-case word, so that it can be listed: {reason:?}"
    );
    eprintln!("SKIP {test}: {reason}");
    let Some(path) = std::env::var_os("ALLOSTAT_SKIPS") else { return };
    // One write(2) of less than a page with O_APPEND: lines of tests on other threads never mix.
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{test}\t{reason}\n").as_bytes()))
        .unwrap_or_else(|e| panic!("cannot note the skip of {test} in {}: {e}", path.display()));
}

/// [`skip`], given the type name of a function inside the test: `live::memory::holds_200_mib::here`.
pub fn skip_here(inner: &str, reason: &str) {
    let path = inner.strip_suffix("::here").unwrap_or(inner).trim_end_matches("::{{closure}}");
    let test = path.split_once("::").map_or(path, |(_binary, test)| test);
    skip(test, reason);
}
