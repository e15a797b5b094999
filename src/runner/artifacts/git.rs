//! Repositories, by the host's git: as the task's user, without prompts, hooks, configurations of others and protocols
//! but https, http and ssh; killed as a group at its deadline, when the task is ended, and when the disk gets full.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, openat};

use super::meter::{UnpackMeter, fault};
use super::order::{ArtifactError, ArtifactOrder, ArtifactScope};
use super::staging::{Staging, TREE};
use super::tree::inspect;
use crate::host::plugin::{HelperProgram, help};
use crate::model::artifact::GitSource;
use crate::telemetry::artifacts::ArtifactOutcome;

const KEY: &str = "key";
/// Of what git complains, in characters.
const LONGEST_COMPLAINT: usize = 400;

/// Settings that hold for each command. Source: git-config(1).
const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "credential.helper=",
    "advice.detachedHead=false",
    "protocol.allow=never",
    "protocol.https.allow=always",
    "protocol.http.allow=always",
    "protocol.ssh.allow=always",
];

fn failed(message: impl Into<String>) -> ArtifactError {
    ArtifactError::new(ArtifactOutcome::Git, message)
}

/// Into the tree of the staging. Gives the bytes of its files.
pub(super) fn clone(
    source: &GitSource,
    order: &ArtifactOrder,
    scope: &ArtifactScope,
    (staging, meter): (&Staging, &UnpackMeter<'_>),
) -> Result<u64, ArtifactError> {
    let program = program(&scope.path).ok_or_else(|| failed("git is not installed on this host"))?;
    let (url, secret) = without_credentials(&source.url);
    let run =
        GitCommands { program: &program, scope, staging, meter, until: Instant::now() + scope.config.git_timeout };
    let variables = run.variables(source, &url, secret.as_deref())?;
    let shared = |e: io::Error| fault(&e, ArtifactOutcome::Install, "cannot share its directory with git");
    staging.open().map_err(shared)?;
    let common = |directory: Option<&str>| {
        let mut args: Vec<OsString> = Vec::new();
        for setting in SETTINGS {
            args.extend(["-c".into(), (*setting).into()]);
        }
        if order.insecure {
            args.extend(["-c".into(), "http.sslVerify=false".into()]);
        }
        if let Some(directory) = directory {
            args.extend(["-C".into(), directory.into()]);
        }
        args
    };
    let hidden = secret.as_deref().unwrap_or_default();
    let depth = source.depth.map(|depth| format!("--depth={depth}"));
    let mut args = common(None);
    args.extend(["clone", "--quiet", "--template="].map(OsString::from));
    args.extend(depth.iter().map(OsString::from));
    // Of a shallow one only a branch or a tag is there.
    let shallow_reference = source.reference.as_ref().filter(|_| depth.is_some());
    args.extend(shallow_reference.map(|reference| OsString::from(format!("--branch={reference}"))));
    args.extend(["--".into(), OsString::from(&url), TREE.into()]);
    run.git(&args, &variables, hidden)?;
    if let Some(reference) = source.reference.as_ref().filter(|_| depth.is_none()) {
        let mut args = common(Some(TREE));
        args.extend(["checkout".into(), "--quiet".into(), OsString::from(reference), "--".into()]);
        run.git(&args, &variables, hidden)?;
    }
    let tree = openat(staging.directory(), TREE, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
    let broken = |e: io::Error| fault(&e, ArtifactOutcome::Archive, "cannot use the repository");
    let tree = tree.map_err(|e| broken(e.into()))?;
    if rustix::fs::statat(&tree, ".gitmodules", AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        let mut args = common(Some(TREE));
        args.extend(["submodule", "--quiet", "update", "--init", "--recursive"].map(OsString::from));
        args.extend(depth.iter().map(OsString::from));
        run.git(&args, &variables, hidden)?;
    }
    staging.close().map_err(shared)?;
    inspect(&tree.as_fd(), meter).map_err(broken)
}

fn program(path: &str) -> Option<PathBuf> {
    let is_there =
        |program: &PathBuf| rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok() && program.is_file();
    path.split(':').filter(|directory| directory.starts_with('/')).map(|d| Path::new(d).join("git")).find(is_there)
}

/// The address, and what stands before its `@`: arguments of a process are for everybody to read.
fn without_credentials(url: &str) -> (String, Option<String>) {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| !scheme.eq_ignore_ascii_case("ssh")) else {
        return (url.to_owned(), None);
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((secret, host)) => (format!("{scheme}://{host}{path}"), Some(secret.to_owned())),
        None => (url.to_owned(), None),
    }
}

struct GitCommands<'a> {
    program: &'a Path,
    scope: &'a ArtifactScope,
    staging: &'a Staging,
    meter: &'a UnpackMeter<'a>,
    until: Instant,
}

impl GitCommands<'_> {
    /// The whole environment of git.
    fn variables(
        &self,
        source: &GitSource,
        url: &str,
        secret: Option<&str>,
    ) -> Result<Vec<(&'static str, OsString)>, ArtifactError> {
        let mut ssh = "ssh -o BatchMode=yes".to_owned();
        if let Some(key) = &source.ssh_key {
            let path = self.key(key)?;
            ssh.push_str(&format!(" -o IdentitiesOnly=yes -i {}", quoted(&path)));
        }
        let mut variables: Vec<(&'static str, OsString)> = vec![
            ("PATH", OsString::from(&self.scope.path)),
            ("HOME", OsString::from(&self.scope.home)),
            ("LC_ALL", "C".into()),
            ("GIT_TERMINAL_PROMPT", "0".into()),
            ("GIT_ASKPASS", "/bin/false".into()),
            ("SSH_ASKPASS", "/bin/false".into()),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
            ("GIT_CONFIG_GLOBAL", "/dev/null".into()),
            ("GIT_ALLOW_PROTOCOL", "https:http:ssh".into()),
            ("GIT_SSH_COMMAND", ssh.into()),
        ];
        if let (Some(secret), Some((scheme, rest))) = (secret, url.split_once("://")) {
            let host = rest.split('/').next().unwrap_or_default();
            variables.push(("GIT_CONFIG_COUNT", "1".into()));
            variables.push(("GIT_CONFIG_KEY_0", format!("url.{scheme}://{secret}@{host}/.insteadOf").into()));
            variables.push(("GIT_CONFIG_VALUE_0", format!("{scheme}://{host}/").into()));
        }
        Ok(variables)
    }

    /// For as long as the staging is there, readable by the task's user alone.
    fn key(&self, encoded: &str) -> Result<PathBuf, ArtifactError> {
        let key = STANDARD.decode(encoded.trim()).map_err(|_| failed("its `sshkey` is no base64"))?;
        let written = || -> io::Result<()> {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(self.staging.directory(), KEY, flags, Mode::RUSR | Mode::WUSR)?;
            if let Some((uid, gid)) = self.scope.owner {
                rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            }
            io::Write::write_all(&mut std::fs::File::from(file), &key)
        };
        written().map_err(|e| fault(&e, ArtifactOutcome::Install, "cannot write its `sshkey`"))?;
        Ok(self.staging.path().join(KEY))
    }

    fn git(
        &self,
        args: &[OsString],
        variables: &[(&'static str, OsString)],
        hidden: &str,
    ) -> Result<(), ArtifactError> {
        let args: Vec<&OsStr> = args.iter().map(OsString::as_os_str).collect();
        let (directory, user) = (self.staging.path(), self.scope.owner);
        let helper = HelperProgram { program: self.program, args: &args, variables, directory, user };
        let ends = || self.scope.cancelled.is() || self.meter.grows().is_err();
        let answer = help(&helper, self.until.saturating_duration_since(Instant::now()), &ends);
        let answer = answer.map_err(|e| failed(format!("cannot run git: {e}")))?;
        match answer.status {
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                let complaint = shown(&answer.complaint, hidden);
                Err(failed(format!("git ended with {status}: {complaint}")))
            }
            None if self.scope.cancelled.is() => Err(ArtifactError::new(ArtifactOutcome::Cancelled, "cancelled")),
            None => {
                self.meter.grows().map_err(|e| fault(&e, ArtifactOutcome::Limit, "git was killed"))?;
                let limit = self.scope.config.git_timeout.as_secs_f32();
                Err(failed(format!("git did not end within {limit} s and was killed (artifact.git_timeout)")))
            }
        }
    }
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

/// The end of what it complains, in one line and without the secret.
fn shown(complaint: &str, hidden: &str) -> String {
    let line = complaint.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = if hidden.is_empty() { line } else { line.replace(hidden, "***") };
    let from = line.chars().count().saturating_sub(LONGEST_COMPLAINT);
    line.chars().skip(from).filter(|c| !c.is_control()).collect()
}
