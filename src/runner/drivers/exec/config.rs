//! The fields of `config` that `exec` has in addition to those of `raw_exec`.

use super::settings::{ExecSettings, NamespaceMode, capability, default_capabilities};
use crate::host::process::Capabilities;
use crate::model::nearest::nearest;
use crate::runner::drivers::ConfigProblem;
use crate::runner::drivers::fields::{ConfigFields, error};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    pub own_pids: bool,
    pub own_ipc: bool,
    pub capabilities: Capabilities,
}

impl Config {
    /// Pure. Errors are collected in `fields`.
    pub fn of(fields: &mut ConfigFields, settings: &ExecSettings) -> Config {
        Config {
            own_pids: mode(fields, "pid_mode", settings.pid_mode) == NamespaceMode::Private,
            own_ipc: mode(fields, "ipc_mode", settings.ipc_mode) == NamespaceMode::Private,
            capabilities: capabilities(fields, settings.allowed),
        }
    }
}

fn mode(fields: &mut ConfigFields, name: &'static str, default: NamespaceMode) -> NamespaceMode {
    let Some(text) = fields.text(name).filter(|text| !text.is_empty()) else { return default };
    fields.or_collect(NamespaceMode::parse(&text).map_err(|why| error(name, why))).unwrap_or(default)
}

/// As in Nomad: the default ones that this agent allows, plus the added ones, without the dropped ones.
fn capabilities(fields: &mut ConfigFields, allowed: Capabilities) -> Capabilities {
    let (add, drop) = (named(fields, "cap_add"), named(fields, "cap_drop"));
    let refused: Vec<_> = add.iter().filter(|(_, one)| !one.without(allowed).is_empty()).collect();
    for (at, one) in refused {
        let message = format!("this agent does not allow {}; exec.allow_caps has {allowed}", one.without(allowed));
        fields.refuse(error(&format!("cap_add[{at}]"), message));
    }
    let all = |sets: &[(usize, Capabilities)]| sets.iter().map(|(_, one)| *one).collect::<Capabilities>();
    // With `cap_drop = ["all"]`, an added capability stays.
    match drop.iter().any(|(_, one)| *one == Capabilities::all()) {
        true => all(&add),
        false => default_capabilities().common(allowed).with(all(&add)).without(all(&drop)),
    }
}

/// Each with its index in the list.
fn named(fields: &mut ConfigFields, name: &'static str) -> Vec<(usize, Capabilities)> {
    let texts = fields.texts(name);
    let mut found = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let problem = |message| {
            let near = nearest(&text.to_lowercase(), Capabilities::all_names().iter().copied());
            let advice = near.map(|near| format!("did you mean `{near}`?"));
            ConfigProblem { advice, ..error(&format!("{name}[{at}]"), message) }
        };
        found.extend(fields.or_collect(capability(text).map_err(problem)).map(|one| (at, one)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::drivers::DriverSettings;
    use crate::runner::drivers::exec::{ExecDriver, ProcessDriver};
    use crate::runner::drivers::testing;

    fn config(text: &str, allow: Option<&str>) -> Result<Config, String> {
        let allow = allow.map(|names| (("exec", "allow_caps"), names.to_owned()));
        let exec = ExecDriver::with(ExecSettings::of(&allow.into_iter().collect::<DriverSettings>()));
        exec.config(&testing::task("exec", text)).map(|(config, _)| config).map_err(|e| e.to_string())
    }
    fn names(text: &str, allow: Option<&str>) -> Vec<&'static str> {
        config(text, allow).unwrap().capabilities.names().collect()
    }

    #[test]
    fn capabilities_are_reckoned_as_nomad_does() {
        assert_eq!(names(r#"{"command": "x"}"#, None).len(), 13);
        assert_eq!(names(r#"{"command": "x", "cap_drop": ["all"], "cap_add": ["CAP_CHOWN"]}"#, None), ["chown"]);
        assert!(!names(r#"{"command": "x", "cap_drop": ["mknod"]}"#, None).contains(&"mknod"));
        assert_eq!(names(r#"{"command": "x"}"#, Some("chown, net_raw")), ["chown"]);
        assert_eq!(names(r#"{"command": "x", "cap_add": ["net_raw"]}"#, Some("chown,net_raw")), ["chown", "net_raw"]);
    }

    #[test]
    fn exec_settings_that_the_agent_forbids_are_refused_at_their_place() {
        let refused = config(r#"{"command": "x", "cap_add": ["chown", "sys_admin"]}"#, None).unwrap_err();
        assert!(
            refused.starts_with("cap_add[1]: this agent does not allow sys_admin; exec.allow_caps has"),
            "{refused}"
        );
        let unknown = config(r#"{"command": "x", "cap_drop": ["chwon"]}"#, None).unwrap_err();
        assert_eq!(unknown, "cap_drop[0]: there is no capability \"chwon\"; did you mean `chown`?");
        let anywhere = ExecDriver::with(ExecSettings::anywhere());
        assert!(anywhere.work(&testing::task("exec", r#"{"command": "x", "cap_add": ["sys_admin"]}"#)).is_ok());
    }

    #[test]
    fn namespaces_are_private_or_the_hosts() {
        let both = config(r#"{"command": "x", "pid_mode": "host", "ipc_mode": "host"}"#, None).unwrap();
        assert_eq!((both.own_pids, both.own_ipc), (false, false));
        let refused = config(r#"{"command": "x", "pid_mode": "shared"}"#, None).unwrap_err();
        assert_eq!(refused, "pid_mode: must be \"private\" or \"host\", not \"shared\"");
    }
}
