//! What is in the binary: each crate with version, licence and checksum, as CycloneDX 1.5.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use super::VERSION;
use crate::{Result, cargo, run};

pub fn of(root: &Path) -> Result<String> {
    let mut command = cargo::cargo();
    command.current_dir(root).args(["metadata", "--format-version", "1", "--locked"]);
    let metadata: Value =
        serde_json::from_str(&run::output(command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]))?)?;
    let checksums = checksums(&std::fs::read_to_string(root.join("Cargo.lock"))?);
    Ok(serde_json::to_string_pretty(&document(&metadata, &checksums)?)?)
}

/// By name and version.
type Checksums = BTreeMap<(String, String), String>;

fn checksums(lock: &str) -> Checksums {
    let field = |package: &str, name: &str| {
        let start = format!("{name} = \"");
        let line = package.lines().find_map(|line| line.strip_prefix(&start))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let all = lock.split("[[package]]").skip(1);
    all.filter_map(|p| Some(((field(p, "name")?, field(p, "version")?), field(p, "checksum")?))).collect()
}

fn document(metadata: &Value, checksums: &Checksums) -> Result<Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let is_allostat = |id: &&String| packages[*id]["name"] == "allostat";
    let first = packages.keys().find(is_allostat).ok_or("cargo metadata has no allostat")?;
    // Those that are linked into it or build it: not those of its tests.
    let (mut linked, mut open) = (BTreeSet::new(), vec![first.clone()]);
    while let Some(id) = open.pop() {
        for dep in list(&nodes[&id]["deps"]) {
            let of_tests = list(&dep["dep_kinds"]).iter().all(|kind| kind["kind"] == "dev");
            let dep = text(&dep["pkg"]);
            if !of_tests && linked.insert(dep.clone()) {
                open.push(dep);
            }
        }
    }
    let component = |id: &String| {
        let package = &packages[id];
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let mut component = json!({
            "type": "library", "name": name, "version": version, "purl": format!("pkg:cargo/{name}@{version}"),
            "bom-ref": format!("pkg:cargo/{name}@{version}"),
        });
        if let Some(licence) = package["license"].as_str() {
            component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
        }
        if let Some(sum) = checksums.get(&(name, version)) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        component
    };
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": {
            "type": "application", "name": "allostat", "version": VERSION, "purl": format!("pkg:cargo/allostat@{VERSION}"),
        } },
        "components": linked.iter().map(component).collect::<Vec<_>>(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_of_the_binary_is_listed_and_none_of_the_tests() {
        let text = of(&crate::root()).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        let components = document["components"].as_array().unwrap();
        let find = |name: &str| components.iter().find(|component| component["name"] == name);
        let hyper = find("hyper").unwrap();
        assert_eq!(hyper["licenses"][0]["expression"], "MIT");
        assert_eq!(hyper["hashes"][0]["content"].as_str().unwrap().len(), 64);
        assert!(find("tokio").is_some() && find("proptest").is_none() && find("allostat").is_none());
    }
}
