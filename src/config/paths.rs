//! The paths in settings: no user but root and the agent's own may have power over what lies there.

use std::io;
use std::path::{Path, PathBuf};

use super::Config;
use crate::host::access::{self, open_own, open_secret};
use crate::runner::drivers;
use crate::telemetry::otlp::OtlpSignal;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathRole {
    /// A directory or a socket that the agent makes, or reads in.
    Place,
    /// A file that no other user may write.
    Setting,
    /// A file that no other user may read either.
    Secret,
    /// What tasks or other users write to: only the way to it must be closed to others. It has to exist.
    Volume,
    /// What tasks see: the same, and it may be absent.
    Shown,
}

/// A path that is not used, and why.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {} {}", path.display(), what_of(source))]
pub struct PathError {
    pub setting: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

fn what_of(source: &io::Error) -> &'static str {
    if source.kind() == io::ErrorKind::NotFound { "does not exist" } else { "is not safe to use" }
}

/// All of them. Errors: the first that is in another user's hands.
pub fn check_paths(config: &Config) -> Result<(), PathError> {
    check_places(config)?;
    check_push(config).into_iter().next().map_or(Ok(()), Err)
}

/// Those that the agent makes things in, or reads.
fn check_places(config: &Config) -> Result<(), PathError> {
    // In the data directory it is as safe as that, which the agent closes first.
    let socket = config.api.socket.as_deref().map(|path| ("agent.socket", path, PathRole::Place));
    let migrate = [
        ("migrate.ca_file", &config.migrate.ca_file, PathRole::Setting),
        ("migrate.cert_file", &config.migrate.cert_file, PathRole::Setting),
        ("migrate.key_file", &config.migrate.key_file, PathRole::Secret),
    ];
    let migrate = migrate.into_iter().filter_map(|(name, path, holds)| Some((name, path.as_deref()?, holds)));
    let library =
        config.devices.gpus.library.as_deref().map(|path| ("devices.nvidia_library", path, PathRole::Setting));
    let all = [
        ("agent.data_dir", config.data_dir.as_path(), PathRole::Place),
        ("observe.root", config.observe.root.as_path(), PathRole::Place),
    ];
    let volumes = config.node.host_volumes.iter();
    let volumes = volumes.map(|volume| ("node.host_volumes", volume.path.as_path(), PathRole::Volume));
    // A user other than root may write keys.
    let keys = config.template.key_dir.as_deref().map(|path| ("template.key_dir", path, PathRole::Volume));
    all.into_iter().chain(socket).chain(library).chain(volumes).chain(keys).chain(migrate).try_for_each(check)?;
    let shown = drivers::shown_paths(&config.drivers.settings);
    shown.iter().try_for_each(|path| check(("exec.chroot_env", path, PathRole::Shown)))
}

/// Keys and certificates of pushes.
pub fn check_push(config: &Config) -> Vec<PathError> {
    let mut found = Vec::new();
    for (_, destination) in config.otlp.all() {
        for signal in OtlpSignal::ALL.into_iter().filter(|signal| destination.target(*signal).is_some()) {
            let of = destination.of(signal);
            let all = [
                ("otlp.certificate", &of.certificate, PathRole::Setting),
                ("otlp.client_certificate", &of.client_certificate, PathRole::Setting),
                ("otlp.client_key", &of.client_key, PathRole::Secret),
            ];
            for (setting, path, holds) in all {
                let error = path.as_deref().and_then(|path| check((setting, path, holds)).err());
                // Of all signals, once.
                found.extend(error.filter(|error| found.iter().all(|known: &PathError| known.path != error.path)));
            }
        }
    }
    found
}

/// A path that does not exist yet is fine, unless jobs mount it.
fn check((setting, path, holds): (&'static str, &Path, PathRole)) -> Result<(), PathError> {
    let checked = match holds {
        PathRole::Place => {
            access::exposed(path).and_then(|exposed| exposed.map_or(Ok(()), |why| Err(io::Error::other(why))))
        }
        PathRole::Setting => open_own(path).map(drop),
        PathRole::Secret => open_secret(path).map(drop),
        PathRole::Volume | PathRole::Shown => access::exposed_way(path)
            .and_then(|exposed| exposed.map_or(Ok(()), |why| Err(io::Error::other(why))))
            .and_then(|()| std::fs::metadata(path).map(drop)),
    };
    match checked {
        Err(error) if error.kind() != io::ErrorKind::NotFound || holds == PathRole::Volume => {
            Err(PathError { setting, path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::super::SETTINGS;
    use super::*;
    use crate::model::volume::HostVolume;

    /// Settings with a path that are not checked at the start, and what checks it instead. Addresses are no paths, also
    /// those of sockets: `host::peer` checks who is behind one.
    const CHECKED_ELSEWHERE: &[(&str, &str)] = &[
        ("agent.token_file", "api::Gate::open, before the agent serves, and at each change"),
        ("agent.web_config_file", "api::Gate::open, with the files that it names"),
        ("cgroup.parent", "no file: a cgroup, which root makes"),
        ("devices.plugin_dir", "devices::external::find: no program of another user is started"),
        ("docker.auth_config", "runner::drivers::docker::auth, at each pull"),
        ("migrate.tokens", "runner::migration::fetch, for each request"),
        ("network.cni_config_dir", "runner::cni, at each use"),
        ("network.cni_path", "runner::cni, at each use"),
        ("observe.docker_socket", "host::peer: the engine behind it is root's or the agent's user's"),
    ];

    /// Whether a setting takes this text for the place of something: another place beside it is refused, or made
    /// absolute. Text for anything else stays as it is.
    fn is_place(setting: &super::super::Setting, form: &str, base: &Config) -> bool {
        let with = |path: &str| {
            let mut config = base.clone();
            setting.set(&mut config, &form.replace("PATH", path)).ok().map(|()| setting.get(&config))
        };
        let relative = with("some/where");
        with("/some/where").is_some() && relative.is_none_or(|set| set.is_some_and(|set| set.starts_with('/')))
    }

    /// Promise (Access of other users): Every path in settings is refused behind a link of another user, or at each use
    #[test]
    fn every_setting_with_a_path_is_checked_here_or_where_it_is_used() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (real, his) = (dir.path().join("real"), dir.path().join("his"));
        std::fs::create_dir(&real).unwrap();
        std::fs::write(real.join("x"), "").unwrap();
        std::fs::set_permissions(real.join("x"), PermissionsExt::from_mode(0o600)).unwrap();
        symlink(&real, &his).unwrap();
        lchown(&his, Some(12_345), None).unwrap();
        let mut base = Config::new(real.join("data"));
        super::super::read_text("t", "otlp {\n  endpoint = \"https://collector:4318\"\n}\n", &mut base);
        check_paths(&base).unwrap();
        let (mut checked, mut elsewhere) = (Vec::new(), Vec::new());
        for setting in SETTINGS.iter() {
            let name = format!("{}.{}", setting.stanza, setting.key);
            let mut forms = ["PATH", "n=PATH"].into_iter();
            let Some(form) = forms.find(|form| is_place(setting, form, &base)) else { continue };
            let mut config = base.clone();
            setting.set(&mut config, &form.replace("PATH", his.join("x").to_str().unwrap())).unwrap();
            match check_paths(&config) {
                Err(error) if error.path.starts_with(&his) => checked.push(name),
                other => elsewhere.push((name, other.is_ok())),
            }
        }
        let known: Vec<_> = CHECKED_ELSEWHERE.iter().map(|(name, _)| ((*name).to_owned(), true)).collect();
        elsewhere.sort_unstable();
        assert_eq!(elsewhere, known, "checked here: {checked:?}");
        assert!(checked.len() > 15, "of a few only it is known that they are paths: {checked:?}");
    }

    #[test]
    fn each_place_behind_a_link_of_another_user_is_refused_and_named() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (real, his) = (dir.path().join("real"), dir.path().join("his"));
        std::fs::create_dir(&real).unwrap();
        symlink(&real, &his).unwrap();
        let base = Config::new(real.join("data"));
        check_places(&base).unwrap();
        lchown(&his, Some(12_345), None).unwrap();
        std::fs::write(real.join("lib.so"), "").unwrap();
        let with = |change: &dyn Fn(&mut Config)| {
            let mut config = base.clone();
            change(&mut config);
            check_places(&config).map_err(|error| error.setting)
        };
        assert_eq!(with(&|c| c.data_dir = his.join("data")), Err("agent.data_dir"));
        assert_eq!(with(&|c| c.api.socket = Some(his.join("agent.sock"))), Err("agent.socket"));
        assert_eq!(with(&|c| c.observe.root = his.clone()), Err("observe.root"));
        assert_eq!(with(&|c| c.devices.gpus.library = Some(his.join("lib.so"))), Err("devices.nvidia_library"));
        assert_eq!(with(&|c| c.devices.gpus.library = Some(real.join("lib.so"))), Ok(()));
        assert_eq!(with(&|c| c.migrate.ca_file = Some(his.join("lib.so"))), Err("migrate.ca_file"));
        assert_eq!(with(&|c| c.migrate.cert_file = Some(his.join("lib.so"))), Err("migrate.cert_file"));
    }

    #[test]
    fn a_host_volume_may_belong_to_any_user_and_the_way_to_it_may_not() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        let checked = |path: &Path| {
            let mut config = Config::new(dir.path().join("data"));
            let volume = HostVolume { name: "v".to_owned(), path: path.to_owned(), read_only: false };
            config.node.host_volumes = vec![volume];
            check_places(&config).map_err(|error| (error.setting, error.source.kind()))
        };
        assert_eq!(checked(&volume), Err(("node.host_volumes", io::ErrorKind::NotFound)));
        std::fs::create_dir(&volume).unwrap();
        assert_eq!(checked(&volume), Ok(()));
        if !rustix::process::geteuid().is_root() {
            return;
        }
        lchown(&volume, Some(12_345), None).unwrap();
        assert_eq!(checked(&volume), Ok(()), "a database owns its files");
        symlink("/etc", volume.join("link")).unwrap();
        std::fs::create_dir(volume.join("inner")).unwrap();
        for below in ["link", "inner"] {
            assert!(checked(&volume.join(below)).is_err(), "{below} is that user's to replace");
        }
        symlink(&volume, dir.path().join("roots")).unwrap();
        assert_eq!(checked(&dir.path().join("roots")), Ok(()));
        lchown(dir.path().join("roots"), Some(12_345), None).unwrap();
        assert!(checked(&dir.path().join("roots")).is_err(), "the link is that user's");
    }

    #[test]
    fn the_directory_of_the_key_tree_has_to_exist() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new(dir.path().join("data"));
        config.template.key_dir = Some(dir.path().join("keys"));
        let refused = check_places(&config).unwrap_err();
        assert_eq!((refused.setting, refused.source.kind()), ("template.key_dir", io::ErrorKind::NotFound));
        std::fs::create_dir(dir.path().join("keys")).unwrap();
        check_places(&config).unwrap();
    }

    #[test]
    fn push_key_readable_by_other_users_is_refused_once_for_all_signals() {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = (dir.path().join("a.pem"), dir.path().join("a.key"));
        let mut config = Config::new(dir.path().join("data"));
        config.otlp.client_certificate = Some(certificate.clone());
        config.otlp.client_key = Some(key.clone());
        std::fs::write(&certificate, "").unwrap();
        std::fs::write(&key, "").unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(check_push(&config).is_empty(), "nothing is pushed");
        super::super::read_text("t", "otlp {\n  endpoint = \"https://collector:4318\"\n}\n", &mut config);
        let problems = check_push(&config);
        assert!(problems.len() == 1 && problems[0].setting == "otlp.client_key", "{problems:?}");
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        assert!(check_push(&config).is_empty());
    }
}
