//! Finds the host volumes of this node that an alloc requests, and what a task gets of them. Pure.

use crate::model::host::NodeIdentity;
use crate::model::job::TaskGroup;
use crate::model::placement::{NotPlaced, PlacementReason};
use crate::model::volume::{HostVolume, VolumeRequest};

/// One reason for each volume that the alloc with this index cannot have here. As in Nomad, a read-only volume serves
/// read-only requests alone.
pub fn missing_volumes(group: &TaskGroup, index: u32, node: &NodeIdentity) -> Vec<NotPlaced> {
    let missing = group.storage.volumes.iter().filter_map(|request| {
        let why = host_volume(request, index, node).err()?;
        let message = format!("volume {} of group {}: {why}", request.name, group.name);
        Some(NotPlaced::new(PlacementReason::HostVolume, message))
    });
    missing.collect()
}

/// Errors: why this node has no volume for the request.
pub fn host_volume<'n>(request: &VolumeRequest, index: u32, node: &'n NodeIdentity) -> Result<&'n HostVolume, String> {
    let source = request.source_of(index);
    let Some(found) = node.host_volume(&source) else {
        let names: Vec<&str> = node.host_volumes.iter().map(|volume| volume.name.as_str()).collect();
        let has = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
        return Err(format!("this node has no host volume {source:?}; {has} (node.host_volumes)"));
    };
    if found.read_only && !request.read_only {
        return Err(format!(
            "host volume {source:?} is read-only on this node, and the volume is not: add read_only = true"
        ));
    }
    Ok(found)
}

/// Whether the result depends on the index of the alloc.
pub fn differ_by_alloc(group: &TaskGroup) -> bool {
    group.storage.volumes.iter().any(|volume| volume.per_alloc)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(volumes: &[&str]) -> NodeIdentity {
        let host_volumes = volumes.iter().map(|text| HostVolume::parse(text).unwrap()).collect();
        NodeIdentity { host_volumes, ..NodeIdentity::default() }
    }
    fn request(source: &str, read_only: bool, per_alloc: bool) -> VolumeRequest {
        VolumeRequest { name: "v".to_owned(), source: source.to_owned(), read_only, per_alloc }
    }

    #[test]
    fn a_volume_that_is_not_declared_is_named_with_those_that_are() {
        let why = |request: &VolumeRequest, index, volumes: &[&str]| {
            host_volume(request, index, &node(volumes)).map(|found| found.name.clone())
        };
        let plain = request("data", false, false);
        assert_eq!(why(&plain, 0, &["data=/srv"]), Ok("data".to_owned()));
        let none = why(&plain, 0, &[]).unwrap_err();
        assert_eq!(none, "this node has no host volume \"data\"; it has none (node.host_volumes)");
        let rest = why(&plain, 0, &["a=/a", "b=/b"]).unwrap_err();
        assert!(rest.contains("it has a, b"), "{rest}");
        let each = request("data", false, true);
        assert_eq!(why(&each, 1, &["data=/srv", "data[1]=/srv/1"]), Ok("data[1]".to_owned()));
        assert!(why(&each, 2, &["data=/srv", "data[1]=/srv/1"]).unwrap_err().contains("\"data[2]\""));
    }

    #[test]
    fn a_read_only_volume_is_for_those_that_read() {
        let here = node(&["certs=/etc/ssl:ro"]);
        assert!(host_volume(&request("certs", true, false), 0, &here).is_ok());
        let refused = host_volume(&request("certs", false, false), 0, &here).unwrap_err();
        assert!(refused.contains("read-only on this node"), "{refused}");
    }
}
