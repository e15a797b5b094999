//! Builds once, and says which binaries came out.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Result, run};

#[derive(Debug, Clone, PartialEq)]
pub struct TestBinary {
    /// `allostat` for the library's unit tests, `allostat-bin` for those of `main.rs`, `live` for `tests/live/`.
    pub name: String,
    pub path: PathBuf,
    /// The directory of its package: where cargo would run it.
    pub package: PathBuf,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct BuiltPrograms {
    pub tests: Vec<TestBinary>,
    pub benches: Vec<TestBinary>,
    pub binaries: Vec<(String, PathBuf)>,
}

impl BuiltPrograms {
    pub fn binary(&self, name: &str) -> Option<&Path> {
        self.binaries.iter().find(|(n, _)| n == name).map(|(_, path)| path.as_path())
    }
}

pub fn cargo() -> Command {
    as_by_hand(Command::new(program()))
}

/// Variables of a package that cargo sets for its child stay here: build scripts look at them, and would rebuild what
/// was built by hand.
pub fn as_by_hand(mut command: Command) -> Command {
    let is_reported = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_reported)) {
        command.env_remove(name);
    }
    command
}

/// Where cargo puts what it builds.
pub fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// `cargo <arguments> --message-format=json`; compiler messages go to standard error as ever.
pub fn build(root: &Path, arguments: &[&str]) -> Result<BuiltPrograms> {
    build_by(cargo(), root, arguments)
}

/// Every test binary, example and benchmark, with clippy's lints in the same pass: its driver is the compiler of the
/// workspace's own crates. Where it is not found, `cargo clippy` comes first.
pub fn build_tests(root: &Path) -> Result<BuiltPrograms> {
    const TESTS: &[&str] = &["test", "--no-run", "--workspace"];
    // By themselves: where they are named, cargo builds no plain examples, which tests run.
    const BENCHES: &[&str] = &["test", "--no-run", "--workspace", "--benches"];
    let mut lints = None;
    if std::env::var_os("RUSTC_WORKSPACE_WRAPPER").is_none() {
        lints = clippy_driver();
        if lints.is_none() {
            let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
            if !cargo().current_dir(root).args(clippy).status()?.success() {
                return Err("cargo clippy found something".into());
            }
        }
    }
    let with_lints = || {
        let mut command = cargo();
        // The lint level as `cargo clippy -- -D warnings` hands it on.
        let level = lints.iter().map(|_| ("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__"));
        command.envs(level).envs(lints.iter().map(|driver| ("RUSTC_WORKSPACE_WRAPPER", driver)));
        command
    };
    let built = build_by(with_lints(), root, TESTS)?;
    build_by(with_lints(), root, BENCHES)?;
    Ok(built)
}

fn clippy_driver() -> Option<PathBuf> {
    let printed = run::output(Command::new("rustc").args(["--print", "sysroot"])).ok()?;
    Some(Path::new(printed.trim()).join("bin/clippy-driver")).filter(|driver| driver.exists())
}

/// The oldest compiler that the manifest promises: no dependency asks for a later one, and where that compiler is
/// installed it checks the workspace. (Clippy's `incompatible_msrv`, which is on, does that for the standard library.)
pub fn check_rust_version(root: &Path) -> Result<()> {
    let printed = run::output(cargo().current_dir(root).args(["metadata", "--format-version=1", "--locked"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&printed)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata has packages")?;
    let version = |package: &serde_json::Value| package["rust_version"].as_str().map(numbers);
    let own = packages.iter().find(|package| package["name"] == "allostat").and_then(version);
    let own = own.ok_or("Cargo.toml states no rust-version")?;
    let later = packages.iter().filter(|package| version(package).is_some_and(|needs| needs > own));
    let later: Vec<String> = later.map(|p| format!("{} {}", p["name"], p["rust_version"])).collect();
    if !later.is_empty() {
        return Err(format!("need a later compiler than rust-version of Cargo.toml: {}", later.join(", ")).into());
    }
    let toolchain = own.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
    let installed = run::output(Command::new("rustup").args(["toolchain", "list"])).unwrap_or_default();
    if installed.lines().any(|line| line.starts_with(&toolchain)) {
        let toolchain = format!("+{toolchain}");
        run::output(Command::new("cargo").current_dir(root).args([&toolchain, "check", "--workspace"]))?;
    } else {
        println!(
            "minimum Rust version: {toolchain} is not installed; rust-version of each dependency and clippy's lint are checked"
        );
    }
    Ok(())
}

/// Licences, sources and wildcards of all dependencies, by `deny.toml`; `None`: the program is not there.
pub fn check_dependencies(root: &Path, cargo_deny: Option<&Path>) -> Result<()> {
    let Some(program) = cargo_deny else {
        println!("dependencies: cargo-deny is not there, so licences and sources are not checked");
        return Ok(());
    };
    let mut command = as_by_hand(Command::new(program));
    // Advisories need a git repository that no package registry carries (deny.toml).
    command.current_dir(root).args(["--color", "never", "check", "bans", "licenses", "sources"]);
    run::output(&mut command).map(|_| ())
}

/// `1.88` and `1.88.0` are the same.
fn numbers(version: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
    while numbers.len() > 2 && numbers.last() == Some(&0) {
        numbers.pop();
    }
    numbers
}

fn build_by(mut command: Command, root: &Path, arguments: &[&str]) -> Result<BuiltPrograms> {
    command.current_dir(root).args(arguments).arg("--message-format=json-render-diagnostics");
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("cargo {}: {}", arguments.join(" "), output.status).into());
    }
    let mut built = BuiltPrograms::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Ok(message) = serde_json::from_str(line) {
            add(&mut built, &message);
        }
    }
    Ok(built)
}

fn add(built: &mut BuiltPrograms, message: &serde_json::Value) {
    let target = &message["target"];
    let (Some(path), Some(name), Some(manifest)) =
        (message["executable"].as_str(), target["name"].as_str(), message["manifest_path"].as_str())
    else {
        return;
    };
    let is = |kind: &str| target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == kind));
    let package = Path::new(manifest).parent().unwrap_or(Path::new(".")).to_owned();
    if is("bench") {
        built.benches.push(TestBinary { name: name.into(), path: path.into(), package });
    } else if message["profile"]["test"] == true {
        // A package's library and its binary have the same name.
        let name = if is("bin") { format!("{name}-bin") } else { name.to_owned() };
        built.tests.push(TestBinary { name, path: path.into(), package });
    } else {
        built.binaries.push((name.into(), path.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_their_numbers() {
        assert_eq!(numbers("1.88.0"), numbers("1.88"));
        assert!(numbers("1.100") > numbers("1.88.1") && numbers("1.88.1") > numbers("1.88"));
    }

    #[test]
    fn test_binaries_and_plain_ones_are_distinguished() {
        let mut built = BuiltPrograms::default();
        for (test, kind) in [(true, "lib"), (false, "bin"), (false, "bench")] {
            add(
                &mut built,
                &serde_json::json!({
                    "reason": "compiler-artifact", "manifest_path": "/w/Cargo.toml",
                    "target": {"name": "allostat", "kind": [kind]}, "profile": {"test": test},
                    "executable": format!("/w/target/debug/{kind}")
                }),
            );
        }
        add(&mut built, &serde_json::json!({"reason": "build-finished", "success": true}));
        assert_eq!((built.tests.len(), built.benches.len()), (1, 1));
        assert_eq!(built.tests[0].package, Path::new("/w"));
        assert_eq!(built.binary("allostat"), Some(Path::new("/w/target/debug/bin")));
    }
}
