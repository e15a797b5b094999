//! libvirt: a machine is an alloc with one task: its emulator and all its virtual processors.
//!
//! ```text
//! /machine.slice/machine-qemu\x2d<n>\x2d<name>.scope     with systemd; machine-lxc\x2d… too
//! /machine/qemu-<n>-<name>.libvirt-qemu                  without; <name>.libvirt-qemu before 1.3
//! ```
//! Of a machine's name only letters, digits, dots and dashes are there, and not the whole of a long one. Its status file is called as the
//! machine is, and has its number.

use super::ObservedSource;
use super::identity::{CgroupParts, CgroupVerdict, EndBy, Naming, Recognised, is_number, unescape};
use super::naming::{Inquiry, Runtime};
use crate::host::roots::Roots;
use crate::host::untrusted::RuntimeDirectory;
use crate::model::alloc::AllocSource;

pub static LIBVIRT: ObservedSource = ObservedSource {
    word: AllocSource::Libvirt,
    recognise,
    runtime: Some(|places| Box::new(StatusFiles(places.roots.clone()))),
};

/// A status has 20 to 100 kB, with a description of each device.
const LARGEST_STATUS: usize = 1 << 20;
/// So many that may be it are read: whoever names a cgroup says with which letters they begin.
const MOST_READ: usize = 200;

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let machine = Machine::of(at.name())?;
    let named = || Recognised { ends_by: EndBy::LastProcess, ..Recognised::named(AllocSource::Libvirt, &machine.name) };
    (!machine.name.is_empty()).then(|| named().into())
}

/// As its cgroup is called.
#[derive(Debug, PartialEq, Eq)]
struct Machine {
    /// `qemu` or `lxc`, and its number.
    numbered: Option<(&'static str, String)>,
    name: String,
}

impl Machine {
    fn of(cgroup: &str) -> Option<Machine> {
        if let Some(scope) = cgroup.strip_prefix("machine-").and_then(|rest| rest.strip_suffix(".scope")) {
            return Machine::numbered(&unescape(scope));
        }
        let kinds = [".libvirt-qemu", ".libvirt-lxc"];
        let machine = kinds.into_iter().find_map(|kind| cgroup.strip_suffix(kind))?;
        Some(Machine::numbered(machine).unwrap_or_else(|| Machine { numbered: None, name: machine.to_owned() }))
    }
    /// `qemu-1-web`.
    fn numbered(machine: &str) -> Option<Machine> {
        let (kind, rest) = ["qemu", "lxc"]
            .into_iter()
            .find_map(|kind| Some((kind, machine.strip_prefix(kind)?.strip_prefix('-')?)))?;
        let (number, name) = rest.split_once('-')?;
        is_number(number).then(|| Machine { numbered: Some((kind, number.to_owned())), name: name.to_owned() })
    }
}

struct StatusFiles(Roots);

impl Runtime for StatusFiles {
    fn name(&mut self, inquiry: &Inquiry) -> Option<Naming> {
        let known = &inquiry.found.naming;
        let cgroup = inquiry.path.rsplit_once('/').map_or(&*inquiry.path, |(_, name)| name);
        // Of an old libvirt the path has the whole name.
        let Machine { numbered: Some((kind, number)), name } = Machine::of(cgroup)? else { return Some(known.clone()) };
        let directory = RuntimeDirectory::open(&self.0.file(format!("/run/libvirt/{kind}"))).ok()?;
        let is_it = |name: &str| has_number(&directory, name, &number);
        let whole =
            if is_it(&name) { name } else { whole_names(&directory, &name).into_iter().find(|name| is_it(name))? };
        Some(Naming { driver: known.driver.clone(), workload: Some(whole.clone()), ..Naming::of(&whole) })
    }
}

/// Those that may have become this one.
fn whole_names(directory: &RuntimeDirectory, name: &str) -> Vec<String> {
    let kept = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    let entries = std::fs::read_dir(directory.path()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".xml")?.to_owned()));
    names.filter(|whole| kept(whole).starts_with(&kept(name))).take(MOST_READ).collect()
}

/// The status of a machine that runs, under this number.
fn has_number(directory: &RuntimeDirectory, name: &str, number: &str) -> bool {
    let text = directory.read(&[&format!("{name}.xml")], LARGEST_STATUS).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let domain = text.split_once("<domain ").and_then(|(_, rest)| rest.split_once('>'));
    domain.is_some_and(|(attributes, _)| attributes.split(' ').any(|a| a == format!("id='{number}'")))
}
