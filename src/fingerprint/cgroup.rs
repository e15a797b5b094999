//! Which cgroups the host has. Source: `/proc/self/mountinfo`, by way of the hierarchies that the agent works with.

use std::path::Path;
use std::time::Duration;

use super::{FingerprintError, FingerprintRequest, Fingerprinter};
use crate::host::hierarchy::{CgroupMode, Layout};
use crate::model::attribute::Attribute;
use crate::model::attributes::{AttributeDiff, HostAttribute};

pub struct CgroupFingerprinter;

impl Fingerprinter for CgroupFingerprinter {
    fn name(&self) -> &'static str {
        "cgroup"
    }
    fn period(&self) -> Option<Duration> {
        None
    }
    /// Absent when: no hierarchy is mounted.
    fn fingerprint(&self, request: &FingerprintRequest) -> Result<AttributeDiff, FingerprintError> {
        let layout = Layout::detect(&request.roots)?;
        // Where controllers are in hierarchies of v1, that is what tasks are limited by.
        let version = match layout.mode() {
            CgroupMode::V2 => Some(2_u64),
            CgroupMode::V1 | CgroupMode::Hybrid => Some(1),
            CgroupMode::None => None,
        };
        let mount_point = version.and_then(|version| mount_point(&layout, version));
        Ok(AttributeDiff::default()
            .with(HostAttribute::OsCgroupsVersion, version.map(Attribute::from))
            .with(HostAttribute::UniqueCgroupMountpoint, mount_point)
            .with(HostAttribute::UniqueCgroupVersion, version.map(|version| format!("v{version}").into())))
    }
}

/// Of v1: where the directories of its hierarchies are.
fn mount_point(layout: &Layout, version: u64) -> Option<Attribute> {
    let path: Option<&Path> = match version {
        2 => layout.unified().map(|tree| tree.mount.as_path()),
        _ => ["memory", "cpu"].iter().find_map(|name| layout.controller(name)).and_then(|tree| tree.mount.parent()),
    };
    path.map(|path| path.to_string_lossy().into_owned().into())
}
