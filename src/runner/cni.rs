//! Networks by CNI plugins: the plugins of a list run in order to connect a namespace, and in reverse to disconnect it.
//! Source: CNI specification 1.0; Nomad's `client/allocrunner/networking_cni.go` for the requests.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::host::{access, plugin, untrusted};
use crate::model::bounded_json::{self, MOST_VALUES};
use crate::model::network::AllocPort;

/// Timeout of one plugin.
const PLUGIN_PATIENCE: Duration = Duration::from_secs(30);
/// Maximum size of a list of plugins, and of entries in its directory.
const LARGEST_LIST: usize = 256 << 10;
const MOST_LISTS: usize = 1_000;
const MOST_PLUGINS: usize = 32;
/// Name of the interface of an alloc, as in Nomad.
pub const INTERFACE: &str = "eth0";

/// The configuration of `mode = "bridge"`: like Nomad's, with its own name and subnet.
pub fn bridge_list(bridge: &str, subnet: &str) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": bridge,
        "plugins": [
            { "type": "loopback" },
            {
                "type": "bridge", "bridge": bridge, "ipMasq": true, "isGateway": true, "forceAddress": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": subnet }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "firewall", "backend": "iptables", "iptablesAdminChainName": "ALLOSTAT-ADMIN" },
            { "type": "portmap", "capabilities": { "portMappings": true }, "snat": true },
        ],
    })
}

/// Finds the list with that name in a directory; of several, the first by file name.
///
/// Errors: there is none, with the names of those that exist.
pub fn list_named(dir: &Path, name: &str) -> Result<Value, String> {
    let place = dir.display();
    let entries = fs::read_dir(dir).map_err(|e| format!("cannot read CNI configurations in {place}: {e}"))?;
    let is_list =
        |path: &PathBuf| path.extension().is_some_and(|end| end == "conflist" || end == "conf" || end == "json");
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(is_list).take(MOST_LISTS).collect();
    files.sort();
    let mut known = Vec::new();
    for file in files {
        let read = own(&file).and_then(|()| untrusted::read(&file, LARGEST_LIST).map_err(|e| e.to_string()));
        let list = read.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).map_err(|e| e.to_string()));
        match list {
            Ok(list) if list["name"] == name => {
                return as_list(list).ok_or(format!("{}: it has no plugins", file.display()));
            }
            Ok(list) => known.extend(list["name"].as_str().map(str::to_owned)),
            Err(error) => known.push(format!("{} (unreadable: {error})", file.display())),
        }
    }
    known.sort();
    known.dedup();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(format!("there is no CNI configuration {name:?} in {place}; known there: {known}"))
}

/// Errors: another user can change this file, or the way to it.
fn own(file: &Path) -> Result<(), String> {
    match access::exposed(file) {
        Ok(None) => Ok(()),
        Ok(Some(why)) => Err(why.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// A configuration with one plugin is a list of that plugin.
fn as_list(list: Value) -> Option<Value> {
    match list["plugins"].as_array().map(Vec::len) {
        Some(1..=MOST_PLUGINS) => Some(list),
        Some(_) => None,
        None if list["type"].is_string() => {
            Some(json!({ "cniVersion": list["cniVersion"], "name": list["name"], "plugins": [list] }))
        }
        None => None,
    }
}

/// The runtime configuration for plugins that can map ports.
pub fn port_mappings(ports: &[AllocPort]) -> Value {
    let mapping = |port: &AllocPort, protocol: &str| {
        let mut mapping = json!({ "hostPort": port.value, "containerPort": port.inside(), "protocol": protocol });
        if !port.host_ip.is_unspecified() {
            mapping["hostIP"] = json!(port.host_ip);
        }
        mapping
    };
    let both = |port: &'_ AllocPort| [mapping(port, "tcp"), mapping(port, "udp")];
    json!({ "portMappings": ports.iter().flat_map(both).collect::<Vec<_>>() })
}

/// One namespace and the list of plugins that connects it.
pub struct CniNetwork<'a> {
    /// Directories with plugins.
    pub path: &'a [PathBuf],
    pub list: &'a Value,
    /// The alloc's ID: plugins identify the connection by it.
    pub container: &'a str,
    pub namespace: &'a Path,
    /// `CNI_ARGS`
    pub args: &'a str,
    /// Runtime configuration by capability.
    pub runtime: &'a Value,
}

impl CniNetwork<'_> {
    /// Connects the namespace; returns the result of the last plugin.
    ///
    /// Errors: of the first plugin that failed; the plugins before it were undone.
    pub fn add(&self) -> Result<Value, String> {
        let mut result = Value::Null;
        for plugin in self.plugins() {
            match self.run("ADD", plugin, &result) {
                Ok(next) if next.is_object() => result = next,
                Ok(_) => {}
                Err(error) => {
                    let _ = self.delete(&result);
                    return Err(error);
                }
            }
        }
        Ok(result)
    }

    /// Runs all plugins in reverse. Idempotent. Errors: the first failure; the other plugins run anyway.
    pub fn delete(&self, result: &Value) -> Result<(), String> {
        let deleted: Vec<_> = self.plugins().iter().rev().map(|plugin| self.run("DEL", plugin, result)).collect();
        deleted.into_iter().find_map(Result::err).map_or(Ok(()), Err)
    }

    fn plugins(&self) -> &[Value] {
        self.list["plugins"].as_array().map_or(&[], Vec::as_slice)
    }

    fn run(&self, command: &str, plugin: &Value, result: &Value) -> Result<Value, String> {
        let kind = plugin["type"].as_str().unwrap_or_default();
        let program = self.program(kind)?;
        let input = serde_json::to_vec(&self.input(plugin, result)).map_err(|e| e.to_string())?;
        let path = std::env::join_paths(self.path).map_err(|e| e.to_string())?;
        let variables = [
            ("CNI_COMMAND", command.to_owned()),
            ("CNI_CONTAINERID", self.container.to_owned()),
            ("CNI_NETNS", self.namespace.display().to_string()),
            ("CNI_IFNAME", INTERFACE.to_owned()),
            ("CNI_PATH", path.to_string_lossy().into_owned()),
            ("CNI_ARGS", self.args.to_owned()),
        ];
        let failed = |why: String| format!("CNI plugin {kind} failed ({command}): {why}");
        let answer = plugin::run(&program, &variables, &input, PLUGIN_PATIENCE).map_err(|e| failed(e.to_string()))?;
        let Some(status) = answer.status else {
            return Err(failed(format!("it was killed: it did not end within {} s", PLUGIN_PATIENCE.as_secs())));
        };
        let output = bounded_json::parse_up_to(&answer.output, MOST_VALUES);
        if !status.success() {
            let stated =
                output.ok().and_then(|error| Some((error["msg"].as_str()?.to_owned(), error["details"].clone())));
            let why = match stated {
                Some((message, Value::String(details))) if !details.is_empty() => format!("{message}: {details}"),
                Some((message, _)) => message,
                None if answer.complaint.is_empty() => status.to_string(),
                None => answer.complaint,
            };
            return Err(failed(shortened(&why)));
        }
        if command == "DEL" {
            return Ok(Value::Null);
        }
        output.map_err(|e| failed(format!("its answer is no JSON: {e}")))
    }

    /// Errors: it does not exist, with what to install.
    fn program(&self, kind: &str) -> Result<PathBuf, String> {
        if kind.is_empty() || kind.contains(['/', '\0']) || kind.starts_with('.') {
            return Err(format!("{kind:?} cannot be the name of a CNI plugin"));
        }
        let runs = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        };
        let program = self.path.iter().map(|dir| dir.join(kind)).find(runs).ok_or_else(|| {
            let places: Vec<String> = self.path.iter().map(|dir| dir.display().to_string()).collect();
            format!(
                "there is no CNI plugin {kind} in {}: install containernetworking-plugins, or set network.cni_path",
                places.join(", ")
            )
        })?;
        own(&program).map_err(|why| format!("CNI plugin {kind} is not run: {why}"))?;
        Ok(program)
    }

    fn input(&self, plugin: &Value, result: &Value) -> Value {
        let mut input = plugin.as_object().cloned().unwrap_or_default();
        input.insert("cniVersion".to_owned(), self.list["cniVersion"].clone());
        input.insert("name".to_owned(), self.list["name"].clone());
        if result.is_object() {
            input.insert("prevResult".to_owned(), result.clone());
        }
        let capabilities = plugin["capabilities"].as_object();
        let has = |name: &str| capabilities.is_some_and(|all| all.get(name) == Some(&Value::Bool(true)));
        let runtime = self.runtime.as_object().into_iter().flatten().filter(|(name, _)| has(name));
        let runtime: Map<_, _> = runtime.map(|(name, value)| (name.clone(), value.clone())).collect();
        if !runtime.is_empty() {
            input.insert("runtimeConfig".to_owned(), Value::Object(runtime));
        }
        Value::Object(input)
    }
}

/// Shortened to one line of an event.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 500;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests;
