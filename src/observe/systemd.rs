//! systemd: a service or scope is an alloc with one task, unless it contains other allocs. Slices are parents.
//!
//! ```text
//! /system.slice/nginx.service                                         workload: nginx.service
//! /system.slice/system-getty.slice/getty@tty1.service                 workload: getty@.service, the template
//! /user.slice/user-1000.slice/session-3.scope                         workload: the slice
//! /user.slice/user-1000.slice/user@1000.service/app.slice/a.service   unit of a user manager: 1000/a.service
//! /machine.slice/systemd-nspawn@web.service/payload/…                 a machine: one task, whatever it runs; so is any
//!                                                                     unit with `payload`, as containers of NixOS
//! ```
//! Units inside of a unit are ignored, except below a user manager: a container may run a systemd of its own, whose
//! units have the same names as the host's.

use super::ObservedSource;
use super::identity::{AllocCgroupRule, CgroupParts, CgroupVerdict, ExitRule, RecognisedTask, TaskNaming, is_number};
use super::services;
use crate::model::alloc::AllocSource;

pub static SYSTEMD: ObservedSource =
    ObservedSource { word: AllocSource::Systemd, recognise, runtime: Some(services::runtime) };

/// The user whose systemd manager runs in a cgroup of this name.
pub fn manager_of(name: &str) -> Option<u32> {
    name.strip_prefix("user@")?.strip_suffix(".service")?.parse().ok()
}

/// Whether it is inside of a machine that runs under a unit of any name: systemd-nspawn puts the machine's cgroups
/// below `payload` in its own unit (NixOS: `container@web.service`). Names in there are those of the machine, not of
/// the host.
pub fn is_in_machine(at: &CgroupParts<'_>) -> bool {
    let is_unit = |name: &str| name.ends_with(".service") || name.ends_with(".scope");
    let pairs = at.above().zip(at.above().skip(1));
    pairs.into_iter().any(|(name, unit)| name == "payload" && is_unit(unit) && manager_of(unit).is_none())
}

/// systemd-nspawn services, and machines registered with systemd-machined.
fn is_machine(unit: &str) -> bool {
    (unit.starts_with("systemd-nspawn@") && unit.ends_with(".service"))
        || (unit.starts_with("machine-") && unit.ends_with(".scope"))
}

/// The workload of a service: the service, or the template of its instances. A socket may start an instance for each
/// connection. `None` for a unit whose name is used once (a scope, or a service that `systemd-run` named), and for a
/// machine.
fn workload(unit: &str, stem: &str, kind: &str) -> Option<String> {
    if kind != "service" || is_generated(stem) || is_machine(unit) {
        return None;
    }
    Some(match stem.split_once('@') {
        Some((template, _)) => format!("{template}@.service"),
        None => unit.to_owned(),
    })
}

/// `run-u42`, `run-r<32 hexadecimal digits>`, `run-p41-i42`: names that `systemd-run` makes.
fn is_generated(stem: &str) -> bool {
    let Some(run) = stem.strip_prefix("run-") else { return false };
    let is_hash = |text: &str| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let is_process = |text: &str| text.split_once("-i").is_some_and(|(pid, id)| is_number(pid) && is_number(id));
    run.strip_prefix('u').is_some_and(is_number)
        || run.strip_prefix('r').is_some_and(is_hash)
        || run.strip_prefix('p').is_some_and(is_process)
}

fn recognise(at: &CgroupParts<'_>) -> Option<CgroupVerdict> {
    let is_unit = |name: &&str| name.ends_with(".service") || name.ends_with(".scope");
    if at.above().find(is_unit).is_some_and(|unit| manager_of(unit).is_none()) {
        return None;
    }
    // systemd prefixes names that could clash with kernel files by an underscore.
    let unit = at.name().strip_prefix('_').unwrap_or(at.name());
    let (stem, kind) = unit.rsplit_once('.')?;
    match kind {
        _ if stem.is_empty() => return None,
        "service" | "scope" => {}
        "slice" | "mount" | "socket" | "swap" => return Some(CgroupVerdict::Group),
        _ => return None,
    }
    let slice = || at.above().find(|name| name.ends_with(".slice")).map(str::to_owned);
    let naming = TaskNaming {
        workload: workload(unit, stem, kind).or_else(slice),
        driver: Some("systemd".to_owned()),
        ..TaskNaming::of(unit)
    };
    let source = AllocSource::Systemd;
    let (alloc_cgroup, ends_by) = (AllocCgroupRule::Task, ExitRule::LastProcess);
    Some(
        RecognisedTask {
            source,
            container: None,
            alloc_cgroup,
            is_closed: is_machine(unit),
            ends_by,
            naming,
            user: None,
        }
        .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload_of(path: &str) -> Option<String> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match recognise(&CgroupParts::new(&parts)) {
            Some(CgroupVerdict::Task(found)) => found.naming.workload,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn service_is_a_workload_of_its_own_and_instances_are_one_of_their_template() {
        let run = format!("/system.slice/run-r{}.service", "0a".repeat(16));
        for (path, workload) in [
            ("/system.slice/nginx.service", "nginx.service"),
            ("/system.slice/system-postgresql.slice/postgresql@14-main.service", "postgresql@.service"),
            ("/system.slice/sshd@7-10.0.0.1:22-10.0.0.2:40000.service", "sshd@.service"),
            ("/system.slice/run-backup.service", "run-backup.service"),
            // Names that are used once.
            ("/system.slice/run-u42.service", "system.slice"),
            ("/system.slice/run-p41-i42.service", "system.slice"),
            (&run, "system.slice"),
            ("/user.slice/user-1000.slice/session-3.scope", "user-1000.slice"),
        ] {
            assert_eq!(workload_of(path).as_deref(), Some(workload), "{path}");
        }
        assert_eq!(workload_of("/init.scope"), None);
    }
}
