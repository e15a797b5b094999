//! The mounts of a container: the directories of every task, and those that its job adds.
//!
//! A relative path of the host is relative to the task's directory. Without `docker.volumes_enabled` nothing outside of
//! the alloc's directory can be mounted, whatever links a task has planted there: paths are resolved before the engine
//! gets them.

use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value, json};

use super::config::{Config, ContainerMount, MountKind, Volume};
use crate::model::volume::{MountPropagation, TaskVolume};
use crate::runner::drivers::{DriverError, SeenDirs, StartRequest};
use crate::runner::persistence::datadir::TaskDirs;

/// The directories in a container: Nomad's paths.
pub fn seen() -> SeenDirs {
    SeenDirs { shared: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() }
}

const SETTING: &str = "set docker.volumes_enabled of the agent to allow it";

/// `Binds` and `Mounts` of a container.
#[derive(Debug, Default, PartialEq)]
pub struct ContainerMounts {
    pub binds: Vec<String>,
    pub mounts: Vec<Value>,
}

fn refused(message: String) -> DriverError {
    DriverError::Start { message, recoverable: false }
}

/// Blocks as long as paths are resolved. Errors: one that may not be mounted.
pub fn mounted(config: &Config, request: &StartRequest, enabled: bool) -> Result<ContainerMounts, DriverError> {
    let StartRequest { dirs, devices, volumes, .. } = request;
    let seen = seen();
    let own = [(&dirs.shared, &seen.shared), (&dirs.local, &seen.local), (&dirs.secrets, &seen.secrets)];
    let mut all = ContainerMounts::default();
    for (host, inside) in own {
        all.binds.push(bind(host, &inside.display().to_string(), None)?);
    }
    if let Some(driver) = config.volume_driver.as_ref().filter(|_| !enabled) {
        return Err(refused(format!("volume_driver {driver:?} is not allowed: {SETTING}")));
    }
    for volume in &config.volumes {
        all.binds.push(volume_bind(volume, config.volume_driver.is_some(), dirs, enabled)?);
    }
    for mount in &config.mounts {
        all.mounts.push(one(mount, dirs, enabled)?);
    }
    let of_devices = devices.mounts.iter().map(|mount| {
        json!({"Type": "bind", "Source": mount.host_path, "Target": mount.task_path, "ReadOnly": mount.read_only})
    });
    all.mounts.extend(of_devices);
    for volume in volumes {
        host_volume(volume, &mut all)?;
    }
    Ok(all)
}

/// A volume declared in the agent's settings: `docker.volumes_enabled` concerns paths that jobs name.
fn host_volume(volume: &TaskVolume, all: &mut ContainerMounts) -> Result<(), DriverError> {
    let propagation = match volume.propagation {
        MountPropagation::Private => "rprivate",
        MountPropagation::HostToTask => "rslave",
        MountPropagation::Bidirectional => "rshared",
    };
    let inside = volume.inside.display().to_string();
    match &volume.selinux_label {
        // Only binds have labels.
        Some(label) => {
            let mode = if volume.read_only { "ro" } else { "rw" };
            all.binds.push(bind(&volume.host, &inside, Some(&format!("{mode},{label},{propagation}")))?);
        }
        None => all.mounts.push(json!({
            "Type": "bind", "Source": volume.host, "Target": inside, "ReadOnly": volume.read_only,
            "BindOptions": {"Propagation": propagation},
        })),
    }
    Ok(())
}

/// A colon separates the parts of a bind, so paths must not contain one.
fn bind(host: &Path, inside: &str, mode: Option<&str>) -> Result<String, DriverError> {
    let host = host.to_str().filter(|host| !host.contains(':'));
    let host = host.ok_or_else(|| refused(format!("the path of a mount at {inside} cannot have a colon")))?;
    let mode = mode.map_or_else(String::new, |mode| format!(":{mode}"));
    Ok(format!("{host}:{inside}{mode}"))
}

fn volume_bind(volume: &Volume, of_driver: bool, dirs: &TaskDirs, enabled: bool) -> Result<String, DriverError> {
    let mode = volume.mode.as_deref();
    if of_driver {
        // A name that the volume's driver interprets.
        return bind(Path::new(&volume.source), &volume.target, mode);
    }
    let source = source(&volume.source, dirs, enabled)?;
    bind(&source, &volume.target, mode)
}

fn one(mount: &ContainerMount, dirs: &TaskDirs, enabled: bool) -> Result<Value, DriverError> {
    let mut all = Map::new();
    let mut put = |key: &str, value: Value| drop(all.insert(key.to_owned(), value));
    put("Target", json!(mount.target));
    put("ReadOnly", json!(mount.readonly));
    match &mount.kind {
        MountKind::Bind { source: from, propagation } => {
            put("Type", json!("bind"));
            put("Source", json!(source(from, dirs, enabled)?));
            if let Some(propagation) = propagation {
                put("BindOptions", json!({"Propagation": propagation}));
            }
        }
        MountKind::Volume { source, no_copy, labels, driver, options } => {
            if !enabled {
                return Err(refused(format!("the volume {source:?} is not allowed: {SETTING}")));
            }
            put("Type", json!("volume"));
            put("Source", json!(source));
            let mut of = json!({"NoCopy": no_copy, "Labels": object(labels)});
            if driver.is_some() || !options.is_empty() {
                of["DriverConfig"] = json!({"Name": driver.clone().unwrap_or_default(), "Options": object(options)});
            }
            put("VolumeOptions", of);
        }
        MountKind::Tmpfs { size_bytes, mode } => {
            put("Type", json!("tmpfs"));
            put("TmpfsOptions", json!({"SizeBytes": size_bytes.unwrap_or(0), "Mode": mode.unwrap_or(0)}));
        }
    }
    Ok(Value::Object(all))
}

pub fn object(pairs: &[(String, String)]) -> Value {
    Value::Object(pairs.iter().map(|(name, value)| (name.clone(), json!(value))).collect())
}

/// The path on the host that a job names. A missing one is created, as engines do.
fn source(named: &str, dirs: &TaskDirs, enabled: bool) -> Result<PathBuf, DriverError> {
    let path = plain(&dirs.task.join(named));
    let alloc = dirs.task.parent().unwrap_or(&dirs.task);
    if enabled && !path.starts_with(alloc) {
        return Ok(path);
    }
    let outside = || refused(format!("the host path {named:?} is outside of the alloc directory: {SETTING}"));
    if !path.starts_with(alloc) {
        return Err(outside());
    }
    let failed = |e: std::io::Error| refused(format!("cannot mount the host path {named:?}: {e}"));
    let top = alloc.canonicalize().map_err(failed)?;
    // The existing part is resolved through its links; the rest is created there.
    let here = path.ancestors().find(|above| above.symlink_metadata().is_ok()).unwrap_or(alloc);
    let rest = path.strip_prefix(here).unwrap_or(Path::new(""));
    let resolved = here.canonicalize().map_err(failed)?;
    // Joined with an empty path it would end with a slash, which is invalid for a file.
    let resolved = if rest.as_os_str().is_empty() { resolved } else { resolved.join(rest) };
    if !resolved.starts_with(&top) && !enabled {
        return Err(outside());
    }
    if !rest.as_os_str().is_empty() {
        std::fs::create_dir_all(&resolved).map_err(failed)?;
    }
    Ok(resolved)
}

/// Without `.` and `..`, lexically.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::device::DeviceMount;
    use crate::runner::drivers::{GivenDevices, testing};
    use std::os::unix::fs::symlink;

    fn dirs(top: &Path) -> TaskDirs {
        let task = top.join("alloc/a/t");
        let at = |name: &str| task.join(name);
        let dirs = TaskDirs {
            shared: top.join("alloc/a/alloc"),
            local: at("local"),
            secrets: at("secrets"),
            tmp: at("tmp"),
            logs: top.join("alloc/a/alloc/logs"),
            run: top.join("run/a/t/0"),
            task,
        };
        for made in [&dirs.shared, &dirs.local, &dirs.secrets] {
            std::fs::create_dir_all(made).unwrap();
        }
        dirs
    }

    fn volumes(sources: &[&str]) -> Config {
        let volume = |source: &&str| Volume { source: (*source).to_owned(), target: "/x".to_owned(), mode: None };
        Config { volumes: sources.iter().map(volume).collect(), ..Config::default() }
    }

    fn request(dirs: &TaskDirs) -> StartRequest {
        let alone = StartRequest::alone(testing::task("docker", "{}"), &dirs.task);
        StartRequest { dirs: dirs.clone(), ..alone }
    }

    fn mount_lines(config: &Config, dirs: &TaskDirs, enabled: bool) -> Result<Vec<String>, String> {
        let mounted = mounted(config, &request(dirs), enabled).map_err(|e| e.to_string())?;
        Ok(mounted.binds[3..].to_vec())
    }

    #[test]
    fn every_container_has_nomads_directories_and_the_mounts_of_its_devices() {
        let top = tempfile::tempdir().unwrap();
        let dirs = dirs(top.path());
        let of = DeviceMount { task_path: "/usr/lib/x".into(), host_path: "/opt/x".into(), read_only: true };
        let devices = GivenDevices { nodes: Vec::new(), mounts: vec![of] };
        let found = mounted(&Config::default(), &StartRequest { devices, ..request(&dirs) }, false).unwrap();
        let at = |path: &Path| path.display().to_string();
        let binds = [
            format!("{}:/alloc", at(&dirs.shared)),
            format!("{}:/local", at(&dirs.local)),
            format!("{}:/secrets", at(&dirs.secrets)),
        ];
        assert_eq!(found.binds, binds);
        assert_eq!(
            found.mounts,
            [json!({"Type": "bind", "Source": "/opt/x", "Target": "/usr/lib/x", "ReadOnly": true})]
        );
    }

    #[test]
    fn a_host_volume_is_a_mount_and_one_with_a_label_is_a_bind() {
        let top = tempfile::tempdir().unwrap();
        let dirs = dirs(top.path());
        let plain = TaskVolume {
            host: "/srv/data".into(),
            inside: "/data".into(),
            read_only: true,
            propagation: MountPropagation::HostToTask,
            selinux_label: None,
        };
        let labelled = TaskVolume { selinux_label: Some("z".to_owned()), read_only: false, ..plain.clone() };
        let request = StartRequest { volumes: vec![plain, labelled], ..request(&dirs) };
        // Declared by the agent, whatever `docker.volumes_enabled` says about paths in jobs.
        let found = mounted(&Config::default(), &request, false).unwrap();
        let expected = json!({"Type": "bind", "Source": "/srv/data", "Target": "/data", "ReadOnly": true,
            "BindOptions": {"Propagation": "rslave"}});
        assert_eq!(found.mounts, [expected]);
        assert_eq!(found.binds[3..], ["/srv/data:/data:rw,z,rslave"]);
    }

    #[test]
    fn a_relative_path_is_the_tasks_and_is_made_where_it_is_missing() {
        let top = tempfile::tempdir().unwrap();
        let dirs = dirs(top.path());
        let task = dirs.task.canonicalize().unwrap();
        let found = mount_lines(&volumes(&["local/a/b", "./local", "../alloc/data"]), &dirs, false).unwrap();
        let shared = dirs.shared.canonicalize().unwrap();
        let expected = [task.join("local/a/b"), task.join("local"), shared.join("data")];
        assert_eq!(found, expected.map(|path| format!("{}:/x", path.display())));
        assert!(task.join("local/a/b").is_dir());
        std::fs::write(task.join("local/file"), "x").unwrap();
        let file = mount_lines(&volumes(&["local/file"]), &dirs, false).unwrap();
        assert_eq!(file, [format!("{}:/x", task.join("local/file").display())]);
    }

    /// Promise (Durability and recovery): A job mounts nothing from outside its alloc unless the agent allows it,
    /// through no link either
    #[test]
    fn docker_mount_outside_of_the_alloc_needs_permission_of_the_agent() {
        let top = tempfile::tempdir().unwrap();
        let dirs = dirs(top.path());
        symlink("/etc", dirs.local.join("planted")).unwrap();
        for out in ["/etc", "../../../run", "local/planted", "local/planted/ssl", "local/../../../../etc"] {
            let refused = mount_lines(&volumes(&[out]), &dirs, false).unwrap_err();
            assert!(refused.contains("outside of the alloc directory: set docker.volumes_enabled"), "{out}: {refused}");
        }
        assert_eq!(mount_lines(&volumes(&["/etc"]), &dirs, true).unwrap(), ["/etc:/x"]);
        let driver = Config { volume_driver: Some("nfs".to_owned()), ..volumes(&["name"]) };
        assert!(mount_lines(&driver, &dirs, false).unwrap_err().contains("volume_driver \"nfs\" is not allowed"));
        assert_eq!(mount_lines(&driver, &dirs, true).unwrap(), ["name:/x"]);
        let kind =
            MountKind::Volume { source: "v".into(), no_copy: false, labels: vec![], driver: None, options: vec![] };
        let volume =
            Config { mounts: vec![ContainerMount { target: "/v".into(), readonly: false, kind }], ..Config::default() };
        assert!(mount_lines(&volume, &dirs, false).unwrap_err().contains("the volume \"v\" is not allowed"));
    }

    #[test]
    fn a_path_with_a_colon_is_refused_since_it_would_be_another_one() {
        let top = tempfile::tempdir().unwrap();
        let dirs = dirs(&top.path().join("a:b"));
        assert!(mount_lines(&Config::default(), &dirs, false).unwrap_err().contains("cannot have a colon"));
    }
}
