//! Seccomp filter of a confined task: a list of denied system calls, after Docker's default profile. Some are denied
//! only if the task lacks the capability that they need.
//!
//! Source: seccomp(2); the default seccomp profile of Docker for which calls are denied.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use super::process::Capabilities;

/// A seccomp program, one number per instruction: plain data for the supervisor's orders.
pub type FilterProgram = Vec<u64>;

/// System calls, and the capabilities that allow them; without capabilities: denied to every task.
type DeniedCalls = (&'static [c_long], &'static [&'static str]);

const DENIED: &[DeniedCalls] = &[
    // Keyrings have no namespace: the keys of the host's users would be visible.
    (&[libc::SYS_add_key, libc::SYS_keyctl, libc::SYS_request_key], &[]),
    (&[libc::SYS_kexec_load, libc::SYS_kexec_file_load, libc::SYS_swapon, libc::SYS_swapoff], &[]),
    (&[libc::SYS_userfaultfd, libc::SYS_pivot_root, libc::SYS_nfsservctl], &[]),
    // Docker denies them since 2023: io_uring operations bypass the filter.
    (&[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register], &[]),
    (&[libc::SYS_open_by_handle_at], &["dac_read_search"]),
    (
        &[
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_mount_setattr,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            libc::SYS_fsopen,
            libc::SYS_fsconfig,
            libc::SYS_fsmount,
            libc::SYS_fspick,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_sethostname,
            libc::SYS_setdomainname,
            libc::SYS_fanotify_init,
            libc::SYS_quotactl,
            libc::SYS_lookup_dcookie,
        ],
        &["sys_admin"],
    ),
    (&[libc::SYS_bpf], &["sys_admin", "bpf"]),
    (&[libc::SYS_perf_event_open], &["sys_admin", "perfmon"]),
    (&[libc::SYS_syslog], &["sys_admin", "syslog"]),
    (&[libc::SYS_reboot], &["sys_boot"]),
    (&[libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module], &["sys_module"]),
    (&[libc::SYS_acct], &["sys_pacct"]),
    (&[libc::SYS_kcmp, libc::SYS_pidfd_getfd], &["sys_ptrace"]),
    (&[libc::SYS_settimeofday, libc::SYS_clock_settime], &["sys_time"]),
    (&[libc::SYS_vhangup], &["sys_tty_config"]),
    #[cfg(target_arch = "x86_64")]
    (&[libc::SYS_iopl, libc::SYS_ioperm], &["sys_rawio"]),
    #[cfg(target_arch = "x86_64")]
    (&[libc::SYS_uselib, libc::SYS_ustat, libc::SYS_sysfs, libc::SYS__sysctl], &[]),
];

/// A new namespace of any kind, in the first argument of `clone`.
const NEW_NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// The filters for a task with these capabilities, to be installed one by one. Errors: this architecture is not
/// supported.
pub fn filters(capabilities: Capabilities) -> Result<Vec<FilterProgram>, String> {
    let has = |name: &&str| Capabilities::named(name).is_some_and(|one| !capabilities.common(one).is_empty());
    let mut denied: BTreeMap<i64, Vec<SeccompRule>> = DENIED
        .iter()
        .filter(|(_, open)| !open.iter().any(has))
        .flat_map(|(calls, _)| calls.iter().map(|call| (*call, Vec::new())))
        .collect();
    let vsock = u64::try_from(libc::AF_VSOCK).unwrap_or(u64::MAX);
    denied.insert(libc::SYS_socket, vec![rule(SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, vsock)?]);
    let mut programs = Vec::new();
    if !has(&"sys_admin") {
        let new = NEW_NAMESPACES.iter().map(|flag| {
            let flag = u64::from(flag.unsigned_abs());
            rule(SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)
        });
        denied.insert(libc::SYS_clone, new.collect::<Result<_, _>>()?);
        // Its arguments are in memory, which a filter cannot read. If it fails, the C library falls back to `clone`.
        let newer = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        programs.push(program(newer, libc::ENOSYS)?);
    }
    programs.push(program(denied, libc::EPERM)?);
    #[cfg(target_arch = "x86_64")]
    programs.push(X32.to_vec());
    Ok(programs)
}

/// Denies x32 system calls, which have other numbers and the same architecture: load the number; allow below
/// 0x40000000; else EPERM.
#[cfg(target_arch = "x86_64")]
const X32: [u64; 4] = [
    word(0x20, 0, 0, 0),
    word(0x35, 0, 1, 0x4000_0000),
    word(0x06, 0, 0, libc::SECCOMP_RET_ERRNO | 1),
    word(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
];

fn rule(size: SeccompCmpArgLen, how: SeccompCmpOp, value: u64) -> Result<SeccompRule, String> {
    let condition = SeccompCondition::new(0, size, how, value).map_err(|e| e.to_string())?;
    SeccompRule::new(vec![condition]).map_err(|e| e.to_string())
}

fn program(denied: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> Result<FilterProgram, String> {
    let machine: TargetArch =
        std::env::consts::ARCH.try_into().map_err(|e| format!("no seccomp filter for this machine: {e}"))?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(denied, SeccompAction::Allow, refuse, machine);
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(|e| e.to_string())?;
    Ok(program.iter().map(|one| word(one.code, one.jt, one.jf, one.k)).collect())
}

const fn word(code: u16, jt: u8, jf: u8, k: u32) -> u64 {
    (code as u64) << 48 | (jt as u64) << 40 | (jf as u64) << 32 | k as u64
}

/// In the kernel's format.
pub fn instructions(program: &FilterProgram) -> Vec<libc::sock_filter> {
    let each = |one: &u64| {
        let [c1, c0, jt, jf, k3, k2, k1, k0] = one.to_be_bytes();
        libc::sock_filter { code: u16::from_be_bytes([c1, c0]), jt, jf, k: u32::from_be_bytes([k3, k2, k1, k0]) }
    };
    program.iter().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An interpreter for the instructions in use: computes the kernel's answer.
    fn answer(program: &FilterProgram, number: c_long, first: u64) -> u32 {
        const ARCH: u32 = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };
        let (program, mut at, mut a) = (instructions(program), 0, 0_u32);
        loop {
            let one = program[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { one.jt } else { one.jf });
            match one.code {
                0x20 => {
                    a = match one.k {
                        0 => u32::try_from(number).unwrap(),
                        4 => ARCH,
                        16 => u32::try_from(first & 0xFFFF_FFFF).unwrap(),
                        20 => u32::try_from(first >> 32).unwrap(),
                        _ => 0,
                    }
                }
                0x54 => a &= one.k,
                0x05 => at += usize::try_from(one.k).unwrap(),
                0x15 => at += jump(a == one.k),
                0x25 => at += jump(a > one.k),
                0x35 => at += jump(a >= one.k),
                0x06 => return one.k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }
    fn allowed(capabilities: Capabilities, number: c_long, first: u64) -> bool {
        filters(capabilities).unwrap().iter().all(|program| answer(program, number, first) == libc::SECCOMP_RET_ALLOW)
    }

    #[test]
    fn seccomp_denies_calls_without_their_capability_and_allows_the_rest() {
        let (none, admin) = (Capabilities::NONE, Capabilities::named("sys_admin").unwrap());
        for (calls, open) in DENIED {
            for call in *calls {
                assert!(!allowed(none, *call, 0), "{call}");
                for name in *open {
                    assert!(allowed(Capabilities::named(name).unwrap(), *call, 0), "{call} with {name}");
                }
            }
        }
        for call in [libc::SYS_read, libc::SYS_execve, libc::SYS_futex, libc::SYS_ptrace, libc::SYS_chroot] {
            assert!(allowed(none, call, 0), "{call}");
        }
        assert!(!allowed(none, libc::SYS_clone3, 0) && allowed(admin, libc::SYS_clone3, 0));
    }

    #[test]
    fn threads_may_be_made_and_namespaces_not() {
        let thread = u64::try_from(libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::SIGCHLD).unwrap();
        assert!(allowed(Capabilities::NONE, libc::SYS_clone, thread));
        for flag in NEW_NAMESPACES {
            let flags = thread | u64::from(flag.unsigned_abs());
            assert!(!allowed(Capabilities::NONE, libc::SYS_clone, flags), "{flag:#x}");
            assert!(allowed(Capabilities::named("sys_admin").unwrap(), libc::SYS_clone, flags), "{flag:#x}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn no_call_of_another_interface_passes() {
        assert!(!allowed(Capabilities::NONE, 0x4000_0000 + libc::SYS_read, 0));
    }
}
