//! Credentials for registries: a task's `auth`, otherwise the file named by the agent's `docker.auth_config`.
//!
//! Source: Docker's `config.json` ("auths": base64 of `user:password`, by registry; "credHelpers": a program for a
//! registry; "credsStore": one for all others); X-Registry-Auth (base64url of JSON).

use std::ffi::OsStr;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Value, json};

use super::config::Auth;
use super::credential_helper;
use crate::host::{access, untrusted};

const LARGEST: usize = 1 << 20;
/// Docker's name for its own registry in such files.
const HUB: &str = "https://index.docker.io/v1/";
/// How a helper calls a user whose secret is an identity token.
const TOKEN: &str = "<token>";

/// Blocks as long as a credential helper may.
///
/// Errors: the file cannot be read, or is none of that form; its helper fails.
pub fn of_file(path: &Path, registry: &str) -> Result<Option<Auth>, String> {
    found(path, registry, &std::env::var_os("PATH").unwrap_or_default())
}

/// `programs`: where helpers are.
fn found(path: &Path, registry: &str, programs: &OsStr) -> Result<Option<Auth>, String> {
    let failed = |why: String| format!("cannot read docker.auth_config {}: {why}", path.display());
    let file = access::open_secret(path).map_err(|e| failed(e.to_string()))?;
    let text = untrusted::read_all(file, LARGEST).map_err(|e| failed(e.to_string()))?;
    // No part of it is shown: it contains passwords.
    let file: Value = serde_json::from_slice(&text).map_err(|_| failed("it is not JSON".to_owned()))?;
    if let Some((helper, server)) = helper_of(&file, registry) {
        let auth = credential_helper::get(helper, &server, programs);
        let auth = auth.map_err(|why| format!("docker.auth_config {}: {why}", path.display()))?;
        if auth.is_some() {
            return Ok(auth);
        }
    }
    let Some(auths) = file["auths"].as_object() else { return Ok(None) };
    let named = auths.iter().find(|(name, _)| is_same(name, registry));
    named
        .map(|(name, entry)| entry_of(name, entry).ok_or_else(|| failed(format!("its entry {name:?} is not valid"))))
        .transpose()
}

/// The helper of a registry, and how it knows the registry.
fn helper_of<'f>(file: &'f Value, registry: &str) -> Option<(&'f str, String)> {
    let mut of_registries = file["credHelpers"].as_object().into_iter().flatten();
    let own = of_registries.find(|(name, _)| is_same(name, registry));
    let server = if is_same(HUB, registry) { HUB } else { registry };
    let (helper, server) = match own {
        Some((name, helper)) if !is_same(HUB, registry) => (helper, name.as_str()),
        Some((_, helper)) => (helper, server),
        None => (&file["credsStore"], server),
    };
    Some((helper.as_str().filter(|helper| !helper.is_empty())?, server.to_owned()))
}

fn is_same(name: &str, registry: &str) -> bool {
    let bare = |text: &str| {
        let text = text.strip_prefix("https://").or(text.strip_prefix("http://")).unwrap_or(text);
        text.split('/').next().unwrap_or("").to_owned()
    };
    let of_hub = |text: &str| matches!(bare(text).as_str(), "index.docker.io" | "docker.io" | "registry-1.docker.io");
    bare(name) == bare(registry) || (of_hub(name) && of_hub(registry))
}

fn entry_of(name: &str, entry: &Value) -> Option<Auth> {
    let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let (username, password) = match entry["auth"].as_str().filter(|auth| !auth.is_empty()) {
        Some(auth) => {
            let both = String::from_utf8(STANDARD.decode(auth).ok()?).ok()?;
            let (username, password) = both.split_once(':')?;
            (username.to_owned(), password.to_owned())
        }
        None => (text("username"), text("password")),
    };
    Some(Auth { username, password, email: text("email"), server_address: name.to_owned() })
}

/// The header of a pull.
pub fn header(auth: &Auth, registry: &str) -> String {
    let server = match auth.server_address.as_str() {
        "" if registry == "docker.io" => HUB,
        "" => registry,
        server => server,
    };
    if auth.username == TOKEN {
        return URL_SAFE.encode(json!({"identitytoken": auth.password, "serveraddress": server}).to_string());
    }
    let all =
        json!({"username": auth.username, "password": auth.password, "email": auth.email, "serveraddress": server});
    URL_SAFE.encode(all.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        (dir, path)
    }

    #[test]
    fn a_registry_has_the_credentials_that_the_file_has_for_it() {
        let both = STANDARD.encode("me:se:same");
        let text = json!({"auths": {"https://index.docker.io/v1/": {"auth": both}, "r.example:5000": {"username": "u", "password": "p"}}});
        let (_dir, path) = file(&text.to_string());
        let of = |registry: &str| of_file(&path, registry).unwrap().map(|auth| (auth.username, auth.password));
        assert_eq!(of("docker.io"), Some(("me".to_owned(), "se:same".to_owned())));
        assert_eq!(of("r.example:5000"), Some(("u".to_owned(), "p".to_owned())));
        assert_eq!(of("r.example"), None);
        let header = header(&of_file(&path, "docker.io").unwrap().unwrap(), "docker.io");
        let sent: Value = serde_json::from_slice(&URL_SAFE.decode(header).unwrap()).unwrap();
        assert_eq!(sent, json!({"username": "me", "password": "se:same", "email": "", "serveraddress": HUB}));
    }

    #[test]
    fn docker_auth_file_readable_by_others_or_malformed_fails_without_its_content() {
        use std::os::unix::fs::PermissionsExt;
        let (_dir, path) = file("{\"auths\": secret");
        let error = of_file(&path, "x").unwrap_err();
        assert!(error.ends_with("it is not JSON") && !error.contains("secret"), "{error}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(of_file(&path, "x").unwrap_err().contains("chmod 600"));
        let (_dir, path) = file(r#"{"auths": {"r": {"auth": "%%%"}}}"#);
        assert!(of_file(&path, "r").unwrap_err().contains("its entry \"r\" is not valid"));
    }

    #[test]
    fn a_registry_with_a_helper_has_what_its_program_gives() {
        use std::os::unix::fs::PermissionsExt;
        let both = STANDARD.encode("of:file");
        let text = json!({
            "auths": {"r.example": {}, "plain.example": {"auth": both}},
            "credHelpers": {"r.example": "stub", "bad.example": "../sh"},
            "credsStore": "store",
        });
        let (dir, path) = file(&text.to_string());
        let answer = |user: &str| {
            format!(
                "#!/bin/sh\nread -r server\ncase $server in plain*) echo 'credentials not found in native keychain'; exit 1;; esac\necho \"{{\\\"Username\\\": \\\"{user}\\\", \\\"Secret\\\": \\\"$server\\\"}}\"\n"
            )
        };
        for (name, user) in [("stub", "one"), ("store", "<token>")] {
            let program = dir.path().join(format!("docker-credential-{name}"));
            std::fs::write(&program, answer(user)).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let of = |registry: &str| loop {
            let found = found(&path, registry, dir.path().as_os_str());
            // Another test's fork may hold the program open for writing for a moment.
            if !found.as_ref().is_err_and(|why| why.contains("busy")) {
                return found;
            }
            std::thread::yield_now();
        };
        let pair = |auth: Option<Auth>| auth.map(|auth| (auth.username, auth.password));
        let expected = |user: &str, password: &str| Ok(Some((user.to_owned(), password.to_owned())));
        assert_eq!(of("r.example").map(pair), expected("one", "r.example"));
        assert_eq!(of("plain.example").map(pair), expected("of", "file"));
        assert_eq!(of("docker.io").map(pair), expected("<token>", HUB));
        let sent: Value =
            serde_json::from_slice(&URL_SAFE.decode(header(&of("docker.io").unwrap().unwrap(), "docker.io")).unwrap())
                .unwrap();
        assert_eq!(sent, json!({"identitytoken": HUB, "serveraddress": HUB}));
        assert!(of("bad.example").unwrap_err().contains("\"../sh\" is no name of a credential helper"));
    }

    proptest! {
        #[test]
        fn no_file_panics(text in ".{0,80}", registry in ".{0,20}") {
            let (_dir, path) = file(&text);
            let _ = of_file(&path, &registry);
        }
    }
}
