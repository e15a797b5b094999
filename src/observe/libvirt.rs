//! libvirt: a virtual machine is an alloc with one task, the emulator with all its virtual CPUs.
//!
//! ```text
//! /machine.slice/machine-qemu\x2d<n>\x2d<name>.scope     with systemd; also machine-lxc\x2d…
//! /machine/qemu-<n>-<name>.libvirt-qemu                  without; <name>.libvirt-qemu before 1.3
//! ```
//! The cgroup name contains only letters, digits, dots and dashes of the machine's name, and truncates a long one. The
//! status file has the full name and contains the machine's number.

use super::ObservedSource;
use super::identity::{CgroupParts, CgroupVerdict, ExitRule, RecognisedTask, TaskNaming, is_number, unescape};
use super::runtime_queries::{QueryTarget, Runtime};
use crate::host::roots::Roots;
use crate::host::untrusted::RuntimeDirectory;
use crate::model::alloc::AllocSource;

pub static LIBVIRT: ObservedSource = ObservedSource {
    word: AllocSource::Libvirt,
    recognise,
    runtime: Some(|paths| Box::new(LibvirtRuntime(paths.roots.clone()))),
};

/// A status file has 20 to 100 kB, with a description of each device.
const LARGEST_STATUS: usize = 1 << 20;
/// Maximum number of candidate files to read: the cgroup's name decides which files are candidates.
const MOST_READ: usize = 200;

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let machine = MachineName::of(at.name())?;
    let named = || RecognisedTask {
        ends_by: ExitRule::LastProcess,
        ..RecognisedTask::named(AllocSource::Libvirt, &machine.name)
    };
    (!machine.name.is_empty()).then(|| named().into())
}

/// A machine's name in its cgroup.
#[derive(Debug, PartialEq, Eq)]
struct MachineName {
    /// `qemu` or `lxc`, and the number.
    numbered: Option<(&'static str, String)>,
    name: String,
}

impl MachineName {
    fn of(cgroup: &str) -> Option<MachineName> {
        if let Some(scope) = cgroup.strip_prefix("machine-").and_then(|rest| rest.strip_suffix(".scope")) {
            return MachineName::numbered(&unescape(scope));
        }
        let kinds = [".libvirt-qemu", ".libvirt-lxc"];
        let machine = kinds.into_iter().find_map(|kind| cgroup.strip_suffix(kind))?;
        Some(MachineName::numbered(machine).unwrap_or_else(|| MachineName { numbered: None, name: machine.to_owned() }))
    }
    /// For example `qemu-1-web`.
    fn numbered(machine: &str) -> Option<MachineName> {
        let (kind, rest) = ["qemu", "lxc"]
            .into_iter()
            .find_map(|kind| Some((kind, machine.strip_prefix(kind)?.strip_prefix('-')?)))?;
        let (number, name) = rest.split_once('-')?;
        is_number(number).then(|| MachineName { numbered: Some((kind, number.to_owned())), name: name.to_owned() })
    }
}

/// Names of machines from libvirt's status files.
struct LibvirtRuntime(Roots);

impl Runtime for LibvirtRuntime {
    fn name(&mut self, target: &QueryTarget) -> Option<TaskNaming> {
        let known = &target.found.naming;
        let cgroup = target.path.rsplit_once('/').map_or(&*target.path, |(_, name)| name);
        // Old versions of libvirt use the full name in the path.
        let MachineName { numbered: Some((kind, number)), name } = MachineName::of(cgroup)? else {
            return Some(known.clone());
        };
        let directory = RuntimeDirectory::open(&self.0.file(format!("/run/libvirt/{kind}"))).ok()?;
        let is_it = |name: &str| has_number(&directory, name, &number);
        let whole =
            if is_it(&name) { name } else { whole_names(&directory, &name).into_iter().find(|name| is_it(name))? };
        Some(TaskNaming { driver: known.driver.clone(), workload: Some(whole.clone()), ..TaskNaming::of(&whole) })
    }
}

/// Full names that libvirt may have shortened to this one.
fn whole_names(directory: &RuntimeDirectory, name: &str) -> Vec<String> {
    let alphanumeric = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    let files = directory.names().unwrap_or_default();
    let names = files.iter().filter_map(|file| Some(file.strip_suffix(".xml")?.to_owned()));
    names.filter(|whole| alphanumeric(whole).starts_with(&alphanumeric(name))).take(MOST_READ).collect()
}

/// Whether the running machine of this name has the number.
fn has_number(directory: &RuntimeDirectory, name: &str, number: &str) -> bool {
    let text = directory.read(&[&format!("{name}.xml")], LARGEST_STATUS).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let domain = text.split_once("<domain ").and_then(|(_, rest)| rest.split_once('>'));
    domain.is_some_and(|(attributes, _)| attributes.split(' ').any(|a| a == format!("id='{number}'")))
}
