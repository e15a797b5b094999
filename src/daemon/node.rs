//! What this host is, looked at once, and the one cgroup that the agent itself makes on it.

use std::path::PathBuf;

use crate::collectors::{CgroupEndTracer, KernelPass, capability};
use crate::config::Config;
use crate::host::cgroup::Cgroup;
use crate::host::hierarchy::{CgroupMode, Layout};
use crate::host::process;
use crate::host::roots::{ReadError, Roots};
use crate::kernel::proc::{meminfo, stat};
use crate::model::capability::Capability;
use crate::model::host::NodeInfo;
use crate::model::id::CgroupPath;
use crate::model::units::Timestamp;
use crate::telemetry::chain;

/// The cgroup under which all allocs live.
pub(super) struct AllocsCgroup {
    cgroup: Cgroup,
    /// Holds its path if we made it: only then it is ours to remove.
    mark: PathBuf,
}

impl AllocsCgroup {
    /// Makes it. `runs`: the agent runs tasks; one that only observes makes none, and uses a parent that another agent
    /// has left as it is.
    ///
    /// Errors: none can be made here, with the reason for people.
    pub(super) fn make(layout: &Layout, path: &CgroupPath, mark: PathBuf, runs: bool) -> Result<AllocsCgroup, String> {
        if layout.mode() == CgroupMode::None {
            return Err("no cgroup hierarchy is mounted".to_owned());
        }
        let cgroup = Cgroup::at(layout, path);
        let was_there = cgroup.exists();
        if !was_there && !runs {
            return Err("this agent runs nothing: drivers.enabled is empty".to_owned());
        }
        if runs {
            cgroup.create().map_err(|error| chain(&error))?;
        }
        let parent = AllocsCgroup { cgroup: cgroup.with_devices(layout), mark };
        if was_there && runs {
            // Another user's, perhaps: whether a task can have one in it is known by trying. One name for all: what an
            // agent leaves that dies right here goes with the next one.
            let probe = Cgroup::at(layout, &path.child("probe"));
            probe.create().map_err(|error| chain(&error))?;
            probe.remove_if_empty();
        }
        // For everybody to read: `allostat metrics` without an agent begins there.
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        let mark = || {
            std::fs::write(&parent.mark, path.as_str())?;
            std::fs::set_permissions(&parent.mark, readable)
        };
        if !was_there && let Err(error) = mark() {
            tracing::warn!(%error, "cgroup parent will stay after the agent ends");
        }
        Ok(parent)
    }

    /// Where nothing runs any more it goes with the agent that made it, or with a later one on the same data directory.
    pub(super) fn leave(&self) {
        let is_own = std::fs::read_to_string(&self.mark).is_ok_and(|path| path == self.cgroup.path.as_str());
        if is_own && self.cgroup.remove_if_empty() {
            // One that stays without a cgroup is right again as soon as there is one.
            let _ = std::fs::remove_file(&self.mark);
        }
    }
}

/// What the agent may do beyond reading.
pub(super) struct AgentAbilities {
    /// The memory peaks of cgroup v1: see `cgroup.peak_window_v1`.
    pub(super) reset_peaks: bool,
    /// Why it has no kernel pass; `None`: it has one.
    pub(super) pass: Option<String>,
    /// Cgroups of others.
    pub(super) observe: bool,
    /// Whether it runs tasks.
    pub(super) runs: bool,
    /// Why no ends are reported; `None`: the kernel reports them.
    pub(super) ends: Option<String>,
}

/// What looks into the kernel for it.
pub(super) struct KernelParts {
    pub(super) pass: Option<KernelPass>,
    pub(super) ends: Option<CgroupEndTracer>,
}

/// What it may, tried. The kernel pass goes over the whole host where others' cgroups are observed: they may be
/// anywhere.
pub(super) fn may(
    config: &Config,
    roots: &Roots,
    layout: &Layout,
    parent: &CgroupPath,
) -> (KernelParts, AgentAbilities) {
    let whole = CgroupPath::from("/");
    let top = if config.observe.enabled { &whole } else { parent };
    let pass = match config.collectors.kernel_pass {
        true => KernelPass::open(roots, layout, top).map_err(|e| e.reason()),
        false => Err("it is turned off: collectors.kernel_pass; files are read instead".to_owned()),
    };
    let ends = match (config.collectors.kernel_ends, config.observe.enabled, &pass) {
        (false, _, _) => Err("it is turned off: collectors.kernel_ends".to_owned()),
        (true, false, _) => Err("other runtimes' workloads are not observed: observe.enabled".to_owned()),
        (true, true, Err(_)) => Err("there is no kernel pass: see kernel_pass".to_owned()),
        (true, true, Ok(pass)) => {
            let instead = "an observed task that ends has its last sample's values, and a short one may not be seen";
            CgroupEndTracer::open(roots, layout, pass).map_err(|e| e.reason_with(instead))
        }
    };
    let may = AgentAbilities {
        reset_peaks: config.cgroup.peak_window_v1,
        observe: config.observe.enabled,
        runs: !config.drivers.enabled.is_empty(),
        pass: pass.as_ref().err().cloned(),
        ends: ends.as_ref().err().cloned(),
    };
    (KernelParts { pass: pass.ok(), ends: ends.ok() }, may)
}

/// `refused`: why the parent cgroup could not be made.
pub(super) fn info(
    roots: &Roots,
    layout: &Layout,
    parent: &CgroupPath,
    may: AgentAbilities,
    refused: Option<&str>,
) -> Result<NodeInfo, ReadError> {
    let uname = rustix::system::uname();
    let text = |c: &std::ffi::CStr| c.to_string_lossy().into_owned();
    let mut capabilities = capability::probe(roots, layout, parent, may.reset_peaks);
    if let Some(refused) = refused {
        // Trying is surer than looking.
        for capability in capabilities.iter_mut().filter(|c| c.feature == "cgroup" && c.available) {
            *capability = Capability::no("cgroup", refused);
        }
    }
    if capabilities.iter().any(|c| c.feature == "cgroup" && !c.available) {
        capability::without_cgroups(&mut capabilities, roots, may.observe, may.runs);
    }
    capabilities.push(match may.pass {
        None => Capability::yes(capability::KERNEL_PASS),
        Some(why) => Capability::no(capability::KERNEL_PASS, why),
    });
    capabilities.push(match may.ends {
        None => Capability::yes(capability::KERNEL_ENDS),
        Some(why) => Capability::no(capability::KERNEL_ENDS, why),
    });
    Ok(NodeInfo {
        identity: crate::model::host::NodeIdentity::default(),
        hostname: text(uname.nodename()),
        kernel: text(uname.release()),
        boot_id: process::boot_id(roots)?,
        booted_at: booted_at(roots),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
        memory_bytes: roots.read_proc("meminfo").ok().and_then(|text| meminfo::parse(&text).0.total),
        cgroup_mode: layout.mode().as_str().to_owned(),
        capabilities,
    })
}

fn booted_at(roots: &Roots) -> Option<Timestamp> {
    let seconds = stat::parse(&roots.read_proc("stat").ok()?).0.boot_time?;
    Some(Timestamp(seconds.checked_mul(1_000_000_000)?))
}
