//! The settings of an agent for this driver, with Nomad's names where Nomad has some.

use std::path::PathBuf;
use std::time::Duration;

use crate::host::http::Address;
use crate::jobspec::quantity::parse_duration;
use crate::runner::drivers::{DriverSetting, DriverSettings};

pub const NAME: &str = "docker";

/// Default address of engines.
const ENDPOINT: &str = "unix:///var/run/docker.sock";
/// Docker's default capabilities without NET_RAW, with which a container could forge packets: Nomad's default.
const ALLOW_CAPS: &str =
    "audit_write,chown,dac_override,fowner,fsetid,kill,mknod,net_bind_service,setfcap,setgid,setpcap,setuid,sys_chroot";
const ALLOW_RUNTIMES: &str = "runc,nvidia";

/// The keys of the stanza `docker`.
mod key {
    pub const ENDPOINT: &str = "endpoint";
    pub const PRIVILEGED: &str = "allow_privileged";
    pub const CAPS: &str = "allow_caps";
    pub const RUNTIMES: &str = "allow_runtimes";
    pub const VOLUMES: &str = "volumes_enabled";
    pub const AUTH: &str = "auth_config";
    pub const PULL: &str = "pull_activity_timeout";
    pub const IMAGES: &str = "gc_image";
    pub const DELAY: &str = "gc_image_delay";
}

pub static SETTINGS: &[DriverSetting] = &[
    DriverSetting {
        key: key::ENDPOINT,
        env: "ALLOSTAT_DOCKER_ENDPOINT",
        about: "The Unix socket of the Docker engine that runs containers. Default: unix:///var/run/docker.sock.",
        check: |text| endpoint(text).map(drop),
    },
    DriverSetting {
        key: key::PRIVILEGED,
        env: "ALLOSTAT_DOCKER_ALLOW_PRIVILEGED",
        about: "Whether jobs may run privileged containers, which can do on the host whatever root can. Default: \
                false.",
        check: |text| flag(text).map(drop),
    },
    DriverSetting {
        key: key::VOLUMES,
        env: "ALLOSTAT_DOCKER_VOLUMES_ENABLED",
        about: "Whether jobs may mount host paths outside of their alloc directory, named volumes and volume drivers. \
                Default: false, as in Nomad.",
        check: |text| flag(text).map(drop),
    },
    DriverSetting {
        key: key::CAPS,
        env: "ALLOSTAT_DOCKER_ALLOW_CAPS",
        about: "Capabilities that containers may have, separated by commas; \"all\". Default: Docker's without \
                net_raw, as in Nomad.",
        check: |text| caps(text).map(drop),
    },
    DriverSetting {
        key: key::RUNTIMES,
        env: "ALLOSTAT_DOCKER_ALLOW_RUNTIMES",
        about: "OCI runtimes that jobs may name, separated by commas. Default: runc,nvidia.",
        check: |text| names(text).map(drop),
    },
    DriverSetting {
        key: key::AUTH,
        env: "ALLOSTAT_DOCKER_AUTH_CONFIG",
        about: "A file in the form of ~/.docker/config.json with the credentials of registries. Default: none.",
        check: |text| absolute(text).map(drop),
    },
    DriverSetting {
        key: key::PULL,
        env: "ALLOSTAT_DOCKER_PULL_ACTIVITY_TIMEOUT",
        about: "A pull in which the engine reports no progress for this long is canceled; at least 1m. Default: 2m.",
        check: |text| pull_timeout(text).map(drop),
    },
    DriverSetting {
        key: key::IMAGES,
        env: "ALLOSTAT_DOCKER_GC_IMAGE",
        about: "Whether an image that the agent pulled is removed when no task uses it any more. Default: true, as \
                in Nomad.",
        check: |text| flag(text).map(drop),
    },
    DriverSetting {
        key: key::DELAY,
        env: "ALLOSTAT_DOCKER_GC_IMAGE_DELAY",
        about: "How long such an image stays after its last task has ended. Default: 3m.",
        check: |text| duration(text).map(drop),
    },
];

/// Settings of the driver `docker`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerSettings {
    pub endpoint: Address,
    pub allow_privileged: bool,
    pub volumes_enabled: bool,
    /// In lower case, without `cap_`; `all` is all of them.
    pub allow_caps: Vec<String>,
    pub allow_runtimes: Vec<String>,
    pub auth_config: Option<PathBuf>,
    pub pull_activity_timeout: Duration,
    pub gc_image: bool,
    pub gc_image_delay: Duration,
}

impl DockerSettings {
    /// Each value was checked when it was set.
    pub fn of(all: &DriverSettings) -> DockerSettings {
        let text =
            |key: &'static str, default: &str| all.get(&(NAME, key)).cloned().unwrap_or_else(|| default.to_owned());
        let on = |key, default| flag(&text(key, default)).unwrap_or(false);
        DockerSettings {
            endpoint: endpoint(&text(key::ENDPOINT, ENDPOINT))
                .unwrap_or(Address::Unix(PathBuf::from("/var/run/docker.sock"))),
            allow_privileged: on(key::PRIVILEGED, "false"),
            volumes_enabled: on(key::VOLUMES, "false"),
            allow_caps: caps(&text(key::CAPS, ALLOW_CAPS)).unwrap_or_default(),
            allow_runtimes: names(&text(key::RUNTIMES, ALLOW_RUNTIMES)).unwrap_or_default(),
            auth_config: all.get(&(NAME, key::AUTH)).map(PathBuf::from),
            pull_activity_timeout: pull_timeout(&text(key::PULL, "2m")).unwrap_or(Duration::from_secs(120)),
            gc_image: on(key::IMAGES, "true"),
            gc_image_delay: duration(&text(key::DELAY, "3m")).unwrap_or(Duration::from_secs(180)),
        }
    }
}

fn endpoint(text: &str) -> Result<Address, String> {
    match text.parse() {
        Ok(address @ Address::Unix(_)) => Ok(address),
        Ok(_) | Err(_) => Err(format!("must be a Unix socket such as {ENDPOINT:?}, not {text:?}")),
    }
}

fn flag(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("must be \"true\" or \"false\", not {text:?}")),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|_| format!("must be a duration such as \"3m\", not {text:?}"))
}

fn pull_timeout(text: &str) -> Result<Duration, String> {
    let least = Duration::from_secs(60);
    duration(text)
        .and_then(|time| if time < least { Err(format!("must be at least 1m, not {text:?}")) } else { Ok(time) })
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    if text.starts_with('/') { Ok(text.into()) } else { Err(format!("must be an absolute path, not {text:?}")) }
}

fn names(text: &str) -> Result<Vec<String>, String> {
    let all: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    let is_odd = |name: &&String| !name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    match all.iter().find(is_odd) {
        Some(odd) => Err(format!("{odd:?} is not a name")),
        None => Ok(all),
    }
}

fn caps(text: &str) -> Result<Vec<String>, String> {
    names(text).map(|all| all.iter().map(|name| cap(name)).collect())
}

/// `CAP_NET_RAW`, `NET_RAW` and `net_raw` are the same capability.
pub fn cap(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    name.strip_prefix("cap_").map_or(name.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_nomads_and_every_default_passes_its_own_check() {
        let defaults = DockerSettings::of(&DriverSettings::default());
        assert_eq!(defaults.endpoint, Address::Unix("/var/run/docker.sock".into()));
        assert!(!defaults.allow_privileged && !defaults.volumes_enabled && defaults.gc_image);
        assert!(
            defaults.allow_caps.contains(&"chown".to_owned()) && !defaults.allow_caps.contains(&"net_raw".to_owned())
        );
        assert_eq!((defaults.pull_activity_timeout.as_secs(), defaults.gc_image_delay.as_secs()), (120, 180));
    }

    #[test]
    fn values_are_checked_where_they_are_set() {
        let check = |key: &str, text: &str| SETTINGS.iter().find(|s| s.key == key).map(|s| (s.check)(text).is_ok());
        for (key, good, bad) in [
            ("endpoint", "unix:/run/x.sock", "tcp://1.2.3.4:2375"),
            ("allow_privileged", "true", "yes"),
            ("volumes_enabled", "false", ""),
            ("allow_caps", "CAP_CHOWN, net_raw", "a b;c"),
            ("allow_runtimes", "runc,sysbox-runc", "a/b"),
            ("auth_config", "/etc/docker/auth.json", "auth.json"),
            ("pull_activity_timeout", "1m", "59s"),
            ("gc_image", "false", "0"),
            ("gc_image_delay", "0s", "soon"),
        ] {
            assert_eq!((check(key, good), check(key, bad)), (Some(true), Some(false)), "{key}");
        }
        assert_eq!(cap("CAP_NET_RAW"), "net_raw");
    }
}
