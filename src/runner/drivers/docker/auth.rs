//! Credentials for registries: a task's `auth`, otherwise the file named by the agent's `docker.auth_config`.
//!
//! Source: Docker's `config.json` ("auths": base64 of `user:password`, by registry); X-Registry-Auth (base64url of
//! JSON).

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Value, json};

use super::config::Auth;
use crate::host::{access, untrusted};

const LARGEST: usize = 1 << 20;
/// Docker's name for its own registry in such files.
const HUB: &str = "https://index.docker.io/v1/";

/// Errors: the file cannot be read, or is none of that form.
pub fn of_file(path: &Path, registry: &str) -> Result<Option<Auth>, String> {
    let failed = |why: String| format!("cannot read docker.auth_config {}: {why}", path.display());
    let file = access::open_secret(path).map_err(|e| failed(e.to_string()))?;
    let text = untrusted::read_all(file, LARGEST).map_err(|e| failed(e.to_string()))?;
    // No part of it is shown: it contains passwords.
    let file: Value = serde_json::from_slice(&text).map_err(|_| failed("it is not JSON".to_owned()))?;
    let Some(auths) = file["auths"].as_object() else { return Ok(None) };
    let named = auths.iter().find(|(name, _)| is_same(name, registry));
    named
        .map(|(name, entry)| entry_of(name, entry).ok_or_else(|| failed(format!("its entry {name:?} is not valid"))))
        .transpose()
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
    fn a_file_that_others_can_read_or_that_is_none_is_an_error_without_its_content() {
        use std::os::unix::fs::PermissionsExt;
        let (_dir, path) = file("{\"auths\": secret");
        let said = of_file(&path, "x").unwrap_err();
        assert!(said.ends_with("it is not JSON") && !said.contains("secret"), "{said}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(of_file(&path, "x").unwrap_err().contains("chmod 600"));
        let (_dir, path) = file(r#"{"auths": {"r": {"auth": "%%%"}}}"#);
        assert!(of_file(&path, "r").unwrap_err().contains("its entry \"r\" is not valid"));
    }

    proptest! {
        #[test]
        fn no_file_panics(text in ".{0,80}", registry in ".{0,20}") {
            let (_dir, path) = file(&text);
            let _ = of_file(&path, &registry);
        }
    }
}
