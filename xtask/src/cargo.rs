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
pub struct Built {
    pub tests: Vec<TestBinary>,
    pub benches: Vec<TestBinary>,
    pub binaries: Vec<(String, PathBuf)>,
}

impl Built {
    pub fn binary(&self, name: &str) -> Option<&Path> {
        self.binaries.iter().find(|(n, _)| n == name).map(|(_, path)| path.as_path())
    }
}

pub fn cargo() -> Command {
    as_by_hand(Command::new(program()))
}

/// What cargo tells of a package to what it runs stays here: build scripts look at it, and would build anew what was built by hand.
fn as_by_hand(mut command: Command) -> Command {
    let is_told = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_told)) {
        command.env_remove(name);
    }
    command
}

fn program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// `cargo <arguments> --message-format=json`; compiler messages go to standard error as ever.
pub fn build(root: &Path, arguments: &[&str]) -> Result<Built> {
    build_by(cargo(), root, arguments)
}

/// The same while tests run on the host.
pub fn build_idle(root: &Path, arguments: &[&str]) -> Result<Built> {
    build_by(as_by_hand(run::idle(program())), root, arguments)
}

fn build_by(mut command: Command, root: &Path, arguments: &[&str]) -> Result<Built> {
    command.current_dir(root).args(arguments).arg("--message-format=json-render-diagnostics");
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("cargo {}: {}", arguments.join(" "), output.status).into());
    }
    let mut built = Built::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Ok(message) = serde_json::from_str(line) {
            add(&mut built, &message);
        }
    }
    Ok(built)
}

fn add(built: &mut Built, message: &serde_json::Value) {
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
    fn test_binaries_and_plain_ones_are_told_apart() {
        let mut built = Built::default();
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
