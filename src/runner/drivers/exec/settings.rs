//! The settings of an agent for `exec`, with Nomad's names.

use std::path::{Component, Path, PathBuf};

use crate::host::process::Capabilities;
use crate::runner::drivers::{DriverSetting, DriverSettings};

/// Name of the driver and of its stanza.
pub const NAME: &str = "exec";

pub const ALL: &[DriverSetting] = &[
    DriverSetting {
        key: "allow_caps",
        env: "ALLOSTAT_EXEC_ALLOW_CAPS",
        about: "Capabilities that tasks may have, by name, separated by commas; \"all\" is one. Default: Nomad's, \
                which tasks have.",
        check: |text| capabilities(text).map(drop),
    },
    DriverSetting {
        key: "chroot_env",
        env: "ALLOSTAT_EXEC_CHROOT_ENV",
        about: "What of the host tasks see, read-only: paths separated by commas, HOST or HOST:INSIDE. Default: \
                Nomad's.",
        check: |text| chroot_env(text).map(drop),
    },
    DriverSetting {
        key: "default_ipc_mode",
        env: "ALLOSTAT_EXEC_DEFAULT_IPC_MODE",
        about: "IPC namespace of a task that names none: private or host. Default: private.",
        check: |text| NamespaceMode::parse(text).map(drop),
    },
    DriverSetting {
        key: "default_pid_mode",
        env: "ALLOSTAT_EXEC_DEFAULT_PID_MODE",
        about: "PID namespace of a task that names none: private or host. Default: private.",
        check: |text| NamespaceMode::parse(text).map(drop),
    },
    DriverSetting {
        key: "no_pivot_root",
        env: "ALLOSTAT_EXEC_NO_PIVOT_ROOT",
        about: "\"true\" where the root file system is a RAM disk, which cannot be left by pivot_root. Default: false.",
        check: |text| flag(text).map(drop),
    },
];

/// Nomad's default for tasks of this driver: Docker's default without `net_raw`.
pub const DEFAULT: [&str; 13] = [
    "audit_write",
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "mknod",
    "net_bind_service",
    "setfcap",
    "setgid",
    "setpcap",
    "setuid",
    "sys_chroot",
];

/// Capabilities that the agent needs to confine a task.
pub const NEEDED: [&str; 5] = ["sys_admin", "sys_chroot", "setuid", "setgid", "setpcap"];

/// Nomad's default, `client.chroot_env`.
const CHROOT_ENV: [&str; 9] =
    ["/bin", "/etc", "/lib", "/lib32", "/lib64", "/run/resolvconf", "/run/systemd/resolve", "/sbin", "/usr"];

/// The namespace of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceMode {
    Private,
    Host,
}

impl NamespaceMode {
    pub fn parse(text: &str) -> Result<NamespaceMode, String> {
        match text {
            "private" => Ok(NamespaceMode::Private),
            "host" => Ok(NamespaceMode::Host),
            _ => Err(format!("must be \"private\" or \"host\", not {text:?}")),
        }
    }
}

/// Settings of the driver `exec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecSettings {
    /// Path on the host, parents first, and path inside.
    pub chroot_env: Vec<(PathBuf, PathBuf)>,
    pub allowed: Capabilities,
    pub pid_mode: NamespaceMode,
    pub ipc_mode: NamespaceMode,
    pub no_pivot_root: bool,
}

impl ExecSettings {
    /// For an agent, whose values were checked.
    pub fn of(settings: &DriverSettings) -> ExecSettings {
        let value = |key: &'static str| settings.get(&(NAME, key)).map(String::as_str);
        let mode = |key| value(key).and_then(|text| NamespaceMode::parse(text).ok()).unwrap_or(NamespaceMode::Private);
        ExecSettings {
            chroot_env: value("chroot_env").and_then(|text| chroot_env(text).ok()).unwrap_or_else(default_chroot_env),
            allowed: value("allow_caps").and_then(|text| capabilities(text).ok()).unwrap_or_else(default_capabilities),
            pid_mode: mode("default_pid_mode"),
            ipc_mode: mode("default_ipc_mode"),
            no_pivot_root: value("no_pivot_root").and_then(|text| flag(text).ok()).unwrap_or(false),
        }
    }

    /// Without an agent: refuses only what every agent would.
    pub fn anywhere() -> ExecSettings {
        ExecSettings { allowed: Capabilities::all(), ..ExecSettings::of(&DriverSettings::new()) }
    }
}

/// What of the host a setting shows to tasks. Of the default, which is root's, nothing.
pub fn shown_paths(settings: &DriverSettings) -> Vec<PathBuf> {
    let all = settings.get(&(NAME, "chroot_env")).and_then(|text| chroot_env(text).ok()).unwrap_or_default();
    all.into_iter().map(|(host, _)| host).collect()
}

pub fn default_capabilities() -> Capabilities {
    DEFAULT.iter().filter_map(|name| Capabilities::named(name)).collect()
}

fn default_chroot_env() -> Vec<(PathBuf, PathBuf)> {
    CHROOT_ENV.iter().map(|path| (path.into(), path.into())).collect()
}

/// One capability, or `all`.
pub fn capability(name: &str) -> Result<Capabilities, String> {
    if name.eq_ignore_ascii_case("all") {
        return Ok(Capabilities::all());
    }
    Capabilities::named(name).ok_or_else(|| format!("there is no capability {name:?}"))
}

fn capabilities(text: &str) -> Result<Capabilities, String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(capability).collect()
}

fn chroot_env(text: &str) -> Result<Vec<(PathBuf, PathBuf)>, String> {
    let mut all = Vec::new();
    for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let (host, inside) = one.split_once(':').unwrap_or((one, one));
        all.push((absolute(host)?, absolute(inside)?));
    }
    // A mount over another one comes after it.
    all.sort_by(|(_, one), (_, other)| one.cmp(other));
    Ok(all)
}

/// Errors: it leads out of the root, or to the whole root.
fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    let plain = path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    if !path.is_absolute() || !plain || path.parent().is_none() {
        return Err(format!("{text:?} must be an absolute path below / without \"..\""));
    }
    Ok(path.components().collect())
}

fn flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "must be true or false".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_host_are_absolute_and_those_above_come_first() {
        let read = |text: &str| {
            let all = chroot_env(text)?;
            Ok(all.iter().map(|(host, inside)| format!("{}={}", host.display(), inside.display())).collect::<Vec<_>>())
        };
        let expected = ["/opt/a=/a", "/bin/=/bin"].map(|text| text.replace("/=", "="));
        assert_eq!(read("/bin/, /opt/a:/a"), Ok(expected.to_vec()));
        for wrong in ["bin", "/", "/a/../b", "/a:b", "/a:/"] {
            assert!(read(wrong).is_err_and(|why: String| why.contains("absolute")), "{wrong}");
        }
    }

    #[test]
    fn defaults_are_nomads() {
        let settings = ExecSettings::of(&DriverSettings::new());
        assert_eq!(settings.allowed.names().count(), DEFAULT.len());
        assert_eq!(
            (settings.pid_mode, settings.ipc_mode, settings.no_pivot_root),
            (NamespaceMode::Private, NamespaceMode::Private, false)
        );
        assert!(settings.chroot_env.contains(&("/usr".into(), "/usr".into())));
        for setting in ALL {
            assert!((setting.check)("no such value!").is_err(), "{}", setting.key);
        }
    }
}
