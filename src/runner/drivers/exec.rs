//! Runs programs like `raw_exec`, each with its own root directory, namespaces, capabilities and seccomp filter.
//!
//! | field of `config` | |
//! |---|---|
//! | `command`, `args` | the program: a path inside, or a name to search in `/local`, `/` and the task's `PATH` |
//! | `work_dir` | working directory inside; default `/` |
//! | `pid_mode`, `ipc_mode` | `private` or `host` |
//! | `cap_add`, `cap_drop` | capabilities added to or dropped from the default ones |
//!
//! and the fields for limits (`supervised/limits.rs`).

mod config;
mod settings;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::config::Config;
use self::settings::ExecSettings;
pub use self::settings::shown_paths;
use super::fields::ConfigFields;
use super::supervised::{ProcessDriver, ProgramConfig, SupervisedDriver, SupervisionContext};
use super::{DriverContext, DriverEntry, DriverError, Fingerprint, Health, SeenDirs, StartRequest};
use crate::host::process::Capabilities;
use crate::host::seccomp;
use crate::model::device::DeviceNode;
use crate::model::job::Task;
use crate::supervisor::orders::{Mount, Orders, SandboxNode, SandboxOrders};

pub static ENTRY: DriverEntry = DriverEntry {
    name: settings::NAME,
    settings: settings::ALL,
    check: |task| ExecDriver::with(ExecSettings::anywhere()).work(task).map(drop),
    build: |context| Arc::new(SupervisedDriver::new(context, ExecDriver::new(context))),
};

/// Nomad's default for this driver.
const USER: &str = "nobody";

/// Paths on the host that only their owners may read, but a task that overrides permissions could.
const HIDDEN: [&str; 12] = [
    "/etc/allostat",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/krb5.keytab",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/ssh/ssh_host_dsa_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssl/private",
    "/etc/sudoers",
];

#[derive(Debug)]
pub struct ExecDriver {
    settings: ExecSettings,
}

impl ExecDriver {
    fn new(context: &DriverContext) -> ExecDriver {
        ExecDriver::with(ExecSettings::of(&context.settings))
    }
    fn with(settings: ExecSettings) -> ExecDriver {
        ExecDriver { settings }
    }

    fn config(&self, task: &Task) -> Result<(Config, ProgramConfig), DriverError> {
        let mut fields = ConfigFields::new(&task.config);
        let config = Config::of(&mut fields, &self.settings);
        Ok((config, ProgramConfig::of(fields, task)?))
    }

    /// The mounts of the task's root, parents first.
    fn mounts(&self, request: &StartRequest) -> Result<Vec<Mount>, DriverError> {
        let dirs = &request.dirs;
        let mut mounts = Vec::new();
        for (host, inside) in &self.settings.chroot_env {
            // Each alloc would see all others there.
            if dirs.task.starts_with(host) {
                let message = format!(
                    "exec.chroot_env shows {} to tasks, and the data directory lies in it: {}",
                    host.display(),
                    dirs.task.display()
                );
                return Err(DriverError::Start { message, recoverable: false });
            }
            mounts.push(Mount { host: host.clone(), inside: inside.clone(), read_only: true, needed: false });
        }
        let own = seen();
        let own = [(&dirs.shared, own.shared), (&dirs.local, own.local), (&dirs.secrets, own.secrets)];
        mounts.extend(own.map(|(host, inside)| Mount { host: host.clone(), inside, read_only: false, needed: true }));
        mounts.push(Mount { host: dirs.tmp.clone(), inside: "/tmp".into(), read_only: false, needed: true });
        // Mounted over the files of the host.
        let network = [(&request.network.hosts, "/etc/hosts"), (&request.network.resolv_conf, "/etc/resolv.conf")];
        let files = network.into_iter().filter_map(|(host, inside)| Some((host.clone()?, inside)));
        mounts.extend(files.map(|(host, inside)| Mount { host, inside: inside.into(), read_only: true, needed: true }));
        mounts.extend(request.devices.mounts.iter().map(|of| Mount {
            host: PathBuf::from(&of.host_path),
            inside: PathBuf::from(&of.task_path),
            read_only: of.read_only,
            needed: true,
        }));
        Ok(mounts)
    }

    /// The paths inside at which they are visible.
    fn hidden(&self) -> Vec<(PathBuf, PathBuf)> {
        let seen = |path: &Path| {
            let (host, inside) = self.settings.chroot_env.iter().rev().find(|(host, _)| path.starts_with(host))?;
            let rest = path.strip_prefix(host).ok()?;
            Some((path.to_owned(), if rest.as_os_str().is_empty() { inside.clone() } else { inside.join(rest) }))
        };
        HIDDEN.iter().filter_map(|path| seen(Path::new(path))).collect()
    }
}

/// A reserved device. The kernel checks the rights of the host's node.
fn node(of: &DeviceNode) -> SandboxNode {
    SandboxNode { host: PathBuf::from(&of.host_path), inside: PathBuf::from(&of.task_path) }
}

fn seen() -> SeenDirs {
    SeenDirs { shared: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() }
}

impl ProcessDriver for ExecDriver {
    fn name(&self) -> &'static str {
        settings::NAME
    }
    fn joins_namespaces(&self) -> bool {
        true
    }
    fn default_user(&self) -> Option<&'static str> {
        Some(USER)
    }
    fn seen(&self) -> Option<SeenDirs> {
        Some(seen())
    }
    fn is_of(&self, orders: &Orders) -> bool {
        orders.sandbox.is_some()
    }
    fn work(&self, task: &Task) -> Result<ProgramConfig, DriverError> {
        self.config(task).map(|(_, work)| work)
    }

    /// As in Nomad: it needs root and cgroups.
    fn fingerprint(&self, shared: &SupervisionContext) -> Fingerprint {
        let undetected = |why: String| Fingerprint::of(Health::Undetected, why);
        if !rustix::process::geteuid().is_root() {
            return undetected(
                "needs an agent that root runs: only root makes namespaces and root directories".to_owned(),
            );
        }
        let needed = settings::NEEDED.iter().filter_map(|name| Capabilities::named(name)).collect::<Capabilities>();
        let missing = needed.without(Capabilities::own().unwrap_or_default());
        if !missing.is_empty() {
            return undetected(format!("the agent lacks capabilities: {missing}"));
        }
        if let Some(why) = &shared.no_cgroups {
            return undetected(format!("needs cgroups: {why}"));
        }
        let mode = shared.sampling.layout.mode().as_str();
        let attributes = [("cgroups".to_owned(), mode.to_owned())].into();
        let well = format!("each task in a root directory, namespaces and a cgroup of its own ({mode})");
        Fingerprint { attributes, ..Fingerprint::of(Health::Healthy, well) }
    }

    fn complete(&self, request: &StartRequest, orders: &mut Orders) -> Result<(), DriverError> {
        let (config, work) = self.config(&request.task)?;
        let own = Capabilities::own().unwrap_or_default();
        let capabilities = config.capabilities.common(own);
        let no_filter = |message| DriverError::Start { message, recoverable: false };
        orders.directory = Path::new("/").join(work.work_dir.unwrap_or_default());
        orders.sandbox = Some(SandboxOrders {
            root: request.dirs.task.clone(),
            pivots: !self.settings.no_pivot_root,
            own_pids: config.own_pids,
            own_ipc: config.own_ipc,
            network: request.network_namespace.clone(),
            mounts: self.mounts(request)?,
            hidden: self.hidden(),
            volumes: request.volumes.clone(),
            devices: request.devices.nodes.iter().map(node).collect(),
            capabilities,
            filters: seccomp::filters(capabilities).map_err(no_filter)?,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::drivers::testing;

    fn exec(settings: &[(&'static str, &str)]) -> ExecDriver {
        let settings = settings.iter().map(|(key, value)| ((settings::NAME, *key), (*value).to_owned())).collect();
        ExecDriver::with(ExecSettings::of(&settings))
    }
    fn request(dir: &str) -> StartRequest {
        StartRequest::alone(testing::task(settings::NAME, r#"{"command": "x"}"#), Path::new(dir))
    }

    #[test]
    fn the_data_directory_is_not_shown_to_tasks_by_chance() {
        let error = exec(&[("chroot_env", "/bin,/srv")]).mounts(&request("/srv/allostat")).unwrap_err().to_string();
        assert!(error.contains("shows /srv to tasks") && error.contains("/srv/allostat/task"), "{error}");
        assert!(exec(&[("chroot_env", "/bin,/srv")]).mounts(&request("/srv2/allostat")).is_ok());
    }

    #[test]
    fn hidden_chroot_paths_are_hidden_where_they_are_mounted() {
        let inside = |settings: &str| {
            let hidden = exec(&[("chroot_env", settings)]).hidden();
            hidden.into_iter().find(|(host, _)| host == Path::new("/etc/shadow")).map(|(_, inside)| inside)
        };
        assert_eq!(inside("/bin,/etc"), Some("/etc/shadow".into()));
        assert_eq!(inside("/etc:/host/etc"), Some("/host/etc/shadow".into()));
        assert_eq!(inside("/etc/shadow:/x"), Some("/x".into()));
        assert_eq!(inside("/bin"), None);
    }

    #[test]
    fn task_mounts_follow_host_mounts() {
        let mounts = exec(&[]).mounts(&request("/data")).unwrap();
        let inside: Vec<_> = mounts.iter().map(|mount| mount.inside.to_str().unwrap()).collect();
        assert!(inside.ends_with(&["/alloc", "/local", "/secrets", "/tmp"]) && inside.contains(&"/usr"), "{inside:?}");
        assert!(mounts.iter().all(|mount| mount.read_only != mount.needed));
    }

    #[test]
    fn files_of_the_network_of_its_group_come_over_those_of_the_host() {
        let mut request = request("/data");
        request.network.hosts = Some("/data/network/a/hosts".into());
        request.network.resolv_conf = Some("/data/network/a/resolv.conf".into());
        let mounts = exec(&[]).mounts(&request).unwrap();
        let last: Vec<_> = mounts.iter().rev().take(2).map(|mount| mount.inside.to_str().unwrap()).collect();
        assert_eq!(last, ["/etc/resolv.conf", "/etc/hosts"]);
        assert!(mounts.iter().rev().take(2).all(|mount| mount.read_only && mount.needed));
    }
}
