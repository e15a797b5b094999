use std::path::Path;
use std::process::Command;

/// Links the binary at a fixed address: each supervisor is this same binary, executed again, and without
/// position-independent code the loader relocates nothing, which saves some 300 KiB of private memory per task.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-no-pie");
    commit();
}

/// The commit for `allostat version`, unless a package sets it. Debug builds have none: each commit would compile all
/// of the crate again.
fn commit() {
    const VARIABLE: &str = "ALLOSTAT_COMMIT";
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    // The log of HEAD changes with each commit.
    let log = Path::new(".git/logs/HEAD");
    if !is_release || std::env::var_os(VARIABLE).is_some() || !log.exists() {
        return;
    }
    println!("cargo:rerun-if-changed={}", log.display());
    let Ok(answer) = Command::new("git").args(["rev-parse", "--verify", "HEAD"]).output() else { return };
    let commit = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    if answer.status.success() && !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        println!("cargo:rustc-env={VARIABLE}={commit}");
    }
}
