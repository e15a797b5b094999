//! Credential helpers: programs `docker-credential-NAME` that keep the credentials of registries.
//!
//! Source: docker/docker-credential-helpers: `get` with the server on standard input, JSON on standard output.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::config::Auth;
use crate::host::plugin;

/// How long a helper may take: it may ask a service of its cloud.
const PATIENCE: Duration = Duration::from_secs(20);
const LONGEST_NAME: usize = 64;
/// What a helper prints where it has none.
const NONE: &[u8] = b"credentials not found in native keychain";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperCredentials {
    username: String,
    secret: String,
}

/// Runs the helper of that name, found in `path` (the form of the variable PATH). `None`: it has no credentials. Blocks
/// for its deadline at most.
///
/// Errors: in words, without anything that it printed.
pub(super) fn get(name: &str, server: &str, path: &OsStr) -> Result<Option<Auth>, String> {
    let program = program(name, path)?;
    let of = |why: String| format!("{} get: {why}", program.display());
    let answer =
        plugin::run_with(&program, &["get"], &[], server.as_bytes(), PATIENCE).map_err(|e| of(e.to_string()))?;
    match answer.status {
        None => Err(of(format!("no answer within {} s", PATIENCE.as_secs()))),
        Some(status) if status.success() => {
            let found: HelperCredentials = serde_json::from_slice(&answer.output)
                .map_err(|_| of("its answer is no JSON with Username and Secret".to_owned()))?;
            let HelperCredentials { username, secret } = found;
            Ok(Some(Auth { username, password: secret, email: String::new(), server_address: server.to_owned() }))
        }
        Some(_) if answer.output.trim_ascii() == NONE => Ok(None),
        Some(status) => Err(of(status.to_string())),
    }
}

/// Errors: the name is none of a helper; there is none of that name.
fn program(name: &str, path: &OsStr) -> Result<PathBuf, String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_word) {
        return Err(format!("{name:?} is no name of a credential helper: letters, digits, `-`, `_` and `.`"));
    }
    let file = format!("docker-credential-{name}");
    let mut places = std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(&file));
    places.find(|place| place.is_file()).ok_or_else(|| format!("there is no program {file} in the agent's PATH"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn helper(dir: &Path, name: &str, script: &str) {
        let path = dir.join(format!("docker-credential-{name}"));
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    /// Another test's fork may hold the script open for writing for a moment.
    fn run_helper(name: &str, dir: &Path) -> Result<Option<(String, String)>, String> {
        loop {
            let found = get(name, "r.example:5000", dir.as_os_str());
            if !found.as_ref().is_err_and(|why| why.contains("busy")) {
                return found.map(|auth| auth.map(|auth| (auth.username, auth.password)));
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_helper_gives_the_credentials_of_the_server_that_it_reads() {
        let dir = tempfile::tempdir().unwrap();
        let echo = "test \"$1\" = get && read -r server; echo \"{\\\"ServerURL\\\": \\\"x\\\", \\\"Username\\\": \\\"me\\\", \\\"Secret\\\": \\\"for $server\\\"}\"";
        helper(dir.path(), "stub", echo);
        assert_eq!(run_helper("stub", dir.path()), Ok(Some(("me".to_owned(), "for r.example:5000".to_owned()))));
        helper(dir.path(), "empty", "echo 'credentials not found in native keychain'; exit 1");
        assert_eq!(run_helper("empty", dir.path()), Ok(None));
    }

    #[test]
    fn a_helper_that_fails_or_is_none_is_an_error_without_its_output() {
        let dir = tempfile::tempdir().unwrap();
        helper(dir.path(), "broken", "echo secret; echo secret >&2; exit 3");
        helper(dir.path(), "chatty", "yes secret | head -c 5000000");
        for (name, message) in [
            ("broken", "get: exit status: 3"),
            ("chatty", "docker-credential-chatty get: "),
            ("absent", "there is no program docker-credential-absent"),
            ("../../bin/sh", "is no name of a credential helper"),
            ("", "is no name of a credential helper"),
        ] {
            let why = run_helper(name, dir.path()).unwrap_err();
            assert!(why.contains(message) && !why.contains("secret"), "{name}: {why}");
        }
    }
}
