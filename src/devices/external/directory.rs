//! Finds plugin programs in a directory. The file name is the plugin's name; `<name>.json` beside it is its
//! configuration.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::ExternalPlugin;
use crate::host::access::{self, ExposedPath};
use crate::host::untrusted;

/// Maximum size of a plugin's configuration.
const LARGEST_SETTINGS: usize = 1 << 20;

/// Content of a plugin directory.
#[derive(Debug, Default)]
pub struct PluginDirectory {
    /// Sorted by name.
    pub plugins: Vec<ExternalPlugin>,
    /// Programs that are not started.
    pub refused: Vec<RefusedPlugin>,
}

/// Why a program is not started.
#[derive(Debug, thiserror::Error)]
pub enum RefusedPlugin {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is writable by group or others, who could run code as the agent")]
    Writable { path: PathBuf },
    #[error("{path} is owned by user {uid}, not by root or the agent's user")]
    Owner { path: PathBuf, uid: u32 },
    #[error("{path} is not started: {why}")]
    Exposed { path: PathBuf, why: ExposedPath },
    #[error("{path} has the name of a built-in plugin")]
    Named { path: PathBuf },
    #[error("{path} is not a JSON object")]
    Settings { path: PathBuf, source: serde_json::Error },
}

/// Lists the plugins without starting them. `taken`: names of built-in plugins.
pub fn find(directory: &Path, taken: &[&str]) -> PluginDirectory {
    let mut found = PluginDirectory::default();
    let listed = trusted(directory).and_then(|_| programs(directory));
    let programs = match listed {
        Ok(programs) => programs,
        Err(refused) => return PluginDirectory { refused: vec![refused], ..found },
    };
    for path in programs {
        match plugin(&path, taken) {
            Ok(Some(plugin)) => found.plugins.push(plugin),
            Ok(None) => {}
            Err(refused) => found.refused.push(refused),
        }
    }
    found
}

fn programs(directory: &Path) -> Result<Vec<PathBuf>, RefusedPlugin> {
    let failed = |source| RefusedPlugin::Read { path: directory.to_owned(), source };
    let entries = fs::read_dir(directory).map_err(failed)?;
    let mut paths = entries.map(|entry| entry.map(|e| e.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    paths.sort_unstable();
    Ok(paths)
}

/// `None`: not an executable file.
fn plugin(path: &Path, taken: &[&str]) -> Result<Option<ExternalPlugin>, RefusedPlugin> {
    let metadata = fs::metadata(path).map_err(|source| RefusedPlugin::Read { path: path.to_owned(), source })?;
    if !metadata.is_file() || metadata.mode() & 0o111 == 0 {
        return Ok(None);
    }
    trusted(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if taken.contains(&name.as_str()) {
        return Err(RefusedPlugin::Named { path: path.to_owned() });
    }
    let settings = settings(&path.with_file_name(format!("{name}.json")))?;
    Ok(Some(ExternalPlugin::new(name, path.to_owned(), settings)))
}

fn settings(path: &Path) -> Result<Map<String, Value>, RefusedPlugin> {
    let text = match untrusted::read(path, LARGEST_SETTINGS) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Map::new()),
        Err(source) => return Err(RefusedPlugin::Read { path: path.to_owned(), source }),
    };
    trusted(path)?;
    serde_json::from_slice(&text).map_err(|source| RefusedPlugin::Settings { path: path.to_owned(), source })
}

/// Checks that only root or the agent's user can have written the path.
fn trusted(path: &Path) -> Result<Metadata, RefusedPlugin> {
    let metadata = fs::metadata(path).map_err(|source| RefusedPlugin::Read { path: path.to_owned(), source })?;
    match access::exposed(path) {
        Ok(None) => {}
        Ok(Some(why)) => return Err(RefusedPlugin::Exposed { path: path.to_owned(), why }),
        Err(source) => return Err(RefusedPlugin::Read { path: path.to_owned(), source }),
    }
    let path = path.to_owned();
    match metadata.uid() {
        uid if uid != 0 && uid != rustix::process::geteuid().as_raw() => Err(RefusedPlugin::Owner { path, uid }),
        _ if metadata.mode() & 0o022 != 0 => Err(RefusedPlugin::Writable { path }),
        _ => Ok(metadata),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::devices::plugin::DevicePlugin as _;

    fn write(dir: &Path, name: &str, text: &str, mode: u32) {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fn names(found: &PluginDirectory) -> Vec<&str> {
        found.plugins.iter().map(|plugin| plugin.name()).collect()
    }
    fn refused(found: &PluginDirectory, dir: &Path) -> Vec<String> {
        let prefix = format!("{}/", dir.display());
        found.refused.iter().map(|refused| refused.to_string().replace(&prefix, "")).collect()
    }

    #[test]
    fn each_program_is_a_plugin_and_its_settings_stand_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "b", "#!/bin/sh", 0o755);
        write(dir.path(), "b.json", r#"{"period": "1s"}"#, 0o644);
        write(dir.path(), "a", "#!/bin/sh", 0o700);
        write(dir.path(), "README", "text", 0o644);
        fs::create_dir(dir.path().join("more")).unwrap();
        let found = find(dir.path(), &[]);
        assert_eq!((names(&found), refused(&found, dir.path())), (vec!["a", "b"], vec![]));
        assert_eq!((found.plugins[0].settings.len(), &found.plugins[1].settings["period"]), (0, &Value::from("1s")));
    }

    /// Promise (Device plugins): A program or configuration that other users could have written is not run
    #[test]
    fn plugin_files_writable_by_others_are_refused_alone() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "a", "", 0o775);
        write(dir.path(), "b", "", 0o755);
        write(dir.path(), "b.json", "{}", 0o666);
        write(dir.path(), "c", "", 0o755);
        write(dir.path(), "c.json", "[]", 0o644);
        write(dir.path(), "d", "", 0o755);
        write(dir.path(), "nvidia", "", 0o755);
        let found = find(dir.path(), &["nvidia"]);
        assert_eq!(names(&found), ["d"]);
        let rest = "is writable by group or others, who could run code as the agent";
        assert_eq!(
            refused(&found, dir.path()),
            [
                format!("a {rest}"),
                format!("b.json {rest}"),
                "c.json is not a JSON object".to_owned(),
                "nvidia has the name of a built-in plugin".to_owned(),
            ]
        );
    }

    #[test]
    fn plugin_directory_writable_by_others_or_missing_yields_no_plugins() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "a", "", 0o755);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let found = find(dir.path(), &[]);
        assert!(found.plugins.is_empty() && matches!(found.refused[..], [RefusedPlugin::Writable { .. }]));
        let found = find(&dir.path().join("none"), &[]);
        assert!(found.plugins.is_empty() && matches!(found.refused[..], [RefusedPlugin::Read { .. }]));
    }
}
