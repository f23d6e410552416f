//! The system call filter of a worker and its commands. It forbids calls that they never need and calls that have
//! allowed processes to escape from sandboxes. All other calls are allowed. `enter` builds and applies it before
//! threads exist.
//!
//! Forbidden calls fail with EPERM, as if the user lacked the right. `clone3` and the calls of the x32 ABI fail with
//! ENOSYS, so that programs fall back: a filter cannot read the flags of `clone3`, which are in memory. A call of
//! another architecture (32-bit) kills the process.

use super::error::{ConfineError, StepContext};
use super::requests;
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use std::collections::BTreeMap;
use std::io;

/// Rule of the filter for sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// Unix, Internet and routing sockets. A network namespace and the mounts decide which peers are reachable.
    Usual,
    /// No Internet sockets and no Unix sockets except connected pairs of streams and packets. For tier D with the network off: there only
    /// this filter prevents a command from using the user's sockets.
    PairsOnly,
    /// Internet and routing sockets, and connected pairs of Unix sockets. For tier D with the network on.
    Internet,
}

/// Bits of the type of a socket, without its flags (`SOCK_TYPE_MASK`).
const SOCKET_TYPE: u64 = 0xf;

/// First system call number of the x32 ABI.
const X32: u32 = 0x4000_0000;

/// Allowed values of `personality`. They change only the reported names: Linux, with the 32-bit machine name, with an
/// old kernel version (`UNAME26`), and both. The last value reads the current one.
const PERSONALITIES: [u64; 5] = [0, 8, 0x20000, 0x20008, 0xffff_ffff];

/// System calls that the `libc` crate does not have yet.
const OPEN_TREE_ATTR: i64 = 467;
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;

/// Calls that are forbidden with any arguments, on all architectures.
const FORBIDDEN: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    // Keys of the user.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Kernel interfaces with a large attack surface.
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_bpf,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // The machine.
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_syslog,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_nfsservctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // NUMA policy.
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

#[cfg(target_arch = "x86_64")]
const FORBIDDEN_HERE: &[i64] = &[
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_uselib,
    libc::SYS__sysctl,
];

#[cfg(not(target_arch = "x86_64"))]
const FORBIDDEN_HERE: &[i64] = &[];

/// Flags of `clone` that create namespaces.
const NEW_NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Requests that insert input into a terminal or change its line discipline. They would inject commands into the
/// user's shell.
const TERMINAL_REQUESTS: [u64; 3] = [0x5412, 0x541C, 0x5423];

/// Requests that create a btrfs subvolume or a snapshot of one, including its links, in any writable directory
/// (`SNAP_CREATE`, `SUBVOL_CREATE`, and their second versions).
const VOLUME_REQUESTS: [u64; 4] = [0x5000_9401, 0x5000_940e, 0x5000_9417, 0x5000_9418];

/// Calls that set the mode of a file, and the index of the mode argument. A set-id file would also run with its
/// owner's or group's rights outside. Commands have no `openat2`, whose mode is in memory (see `commands`).
const WITH_MODE: &[(i64, u8)] =
    &[(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (FCHMODAT2, 2), (libc::SYS_mknodat, 2)];

/// Calls that have a mode only if they create a file, with the indexes of the flags and mode arguments.
const WITH_FLAGS: &[(i64, u8, u8)] = &[
    (libc::SYS_openat, 2, 3),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
];

#[cfg(target_arch = "x86_64")]
const WITH_MODE_HERE: &[(i64, u8)] =
    &[(libc::SYS_chmod, 1), (libc::SYS_creat, 1), (libc::SYS_mknod, 1)];

#[cfg(not(target_arch = "x86_64"))]
const WITH_MODE_HERE: &[(i64, u8)] = &[];

/// Calls that change how a process runs, and the index of the argument with the process id. 0 is the caller.
const OF_A_PROCESS: &[(i64, u8)] = &[
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_sched_setattr, 0),
];

/// Calls that ask for rights on a file, and the index of the mode argument.
const WRITE_CHECKS: &[(i64, u8)] = &[
    (libc::SYS_faccessat, 2),
    (libc::SYS_faccessat2, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_access, 1),
];

/// Calls that send signals.
const SIGNALS: &[i64] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

/// Calls that the network proxy does not need: programs, and signals to other processes.
const NOT_FOR_PROXY: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

#[cfg(target_arch = "x86_64")]
const NOT_FOR_PROXY_HERE: &[i64] = &[libc::SYS_fork, libc::SYS_vfork];

#[cfg(not(target_arch = "x86_64"))]
const NOT_FOR_PROXY_HERE: &[i64] = &[];

/// Builds the filter for this architecture.
pub(crate) fn build(sockets: Sockets) -> Result<BpfProgram, ConfineError> {
    compile(rules(sockets).step("build the system call filter")?, libc::EPERM)
}

/// Calls that change the metadata of a file. Landlock does not control them. All architectures.
const ATTRIBUTES: &[i64] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
];

#[cfg(target_arch = "x86_64")]
const ATTRIBUTES_HERE: &[i64] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];

#[cfg(not(target_arch = "x86_64"))]
const ATTRIBUTES_HERE: &[i64] = &[];

/// Calls that create symbolic links. The worker makes the links of its commands ([`super::links`]), with its own
/// rights.
#[cfg(target_arch = "x86_64")]
const LINKS: &[i64] = &[libc::SYS_symlink, libc::SYS_symlinkat];

#[cfg(not(target_arch = "x86_64"))]
const LINKS: &[i64] = &[libc::SYS_symlinkat];

/// Builds a filter that prevents a command from changing file attributes, also by device requests.
pub(crate) fn build_for_attributes() -> Result<BpfProgram, ConfineError> {
    let forbidden = ATTRIBUTES.iter().chain(ATTRIBUTES_HERE).chain(LINKS);
    build_read_only(forbidden.map(|number| (*number, Vec::new())).collect())
}

/// Builds a filter that allows only device requests that read. For sessions whose mounts are already read-only:
/// programs may set attributes in their private directories.
pub(crate) fn build_for_requests() -> Result<BpfProgram, ConfineError> {
    build_read_only(SyscallRules::new())
}

fn build_read_only(mut rules: SyscallRules) -> Result<BpfProgram, ConfineError> {
    let gaps = requests::forbidden().into_iter().map(|(first, last)| {
        let (first, last) = (u64::from(first), u64::from(last));
        rule(&[(1, SeccompCmpOp::Ge, first), (1, SeccompCmpOp::Le, last)])
    });
    let gaps = gaps.collect::<io::Result<_>>().step("build the system call filter")?;
    rules.insert(libc::SYS_ioctl, gaps);

    // `io_uring` can set attributes without the system calls refused here. In an unconfined worker no other filter
    // refuses it.
    rules.insert(libc::SYS_io_uring_setup, Vec::new());
    compile(rules, libc::EROFS)
}

/// Builds the filter of the network proxy: Internet sockets, no programs, no processes, and no signals to others.
pub(crate) fn build_for_proxy() -> Result<BpfProgram, ConfineError> {
    compile(proxy_rules().step("build the system call filter")?, libc::EPERM)
}

/// Builds the filter of an agent: as for the proxy, and no sockets.
pub(crate) fn build_for_agent() -> Result<BpfProgram, ConfineError> {
    let mut rules = proxy_rules().step("build the system call filter")?;
    for call in [libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen] {
        rules.insert(call, Vec::new());
    }
    compile(rules, libc::EPERM)
}

/// Builds the filter of a login shell: no sockets except connected pairs, no tracing, and, if Landlock does not forbid
/// them, no signals.
pub(crate) fn build_for_login_shell(forbids_signals: bool) -> Result<BpfProgram, ConfineError> {
    let mut rules = rules(Sockets::PairsOnly).step("build the system call filter")?;
    if forbids_signals {
        rules.extend(SIGNALS.iter().map(|call| (*call, Vec::new())));
    }
    compile(rules, libc::EPERM)
}

/// Builds a filter that fails questions whether a file may be written. Landlock does not answer them.
pub(crate) fn build_against_write_checks() -> Result<BpfProgram, ConfineError> {
    let write = number(libc::W_OK);
    let rules = WRITE_CHECKS.iter().map(|(call, mode)| {
        Ok((*call, vec![rule(&[(*mode, SeccompCmpOp::MaskedEq(write), write)])?]))
    });

    let rules = rules.collect::<io::Result<_>>().step("build the system call filter")?;
    compile(rules, libc::EROFS)
}

fn proxy_rules() -> io::Result<SyscallRules> {
    let mut rules = rules(Sockets::Internet)?;
    for call in NOT_FOR_PROXY.iter().chain(NOT_FOR_PROXY_HERE) {
        rules.insert(*call, Vec::new());
    }

    // `clone` may start a thread, but no process.
    let thread = number(libc::CLONE_THREAD);
    let no_thread = rule(&[(0, SeccompCmpOp::MaskedEq(thread), 0)])?;
    rules.entry(libc::SYS_clone).or_default().push(no_thread);

    // A failed assertion of the C library ends the proxy with this call.
    rules.insert(libc::SYS_tgkill, vec![none_of(0, &[std::process::id().into()])?]);
    Ok(rules)
}

/// Compiles a filter that fails these calls with `errno`.
fn compile(rules: SyscallRules, errno: libc::c_int) -> Result<BpfProgram, ConfineError> {
    let compiled = target()
        .and_then(|target| {
            let forbidden = SeccompAction::Errno(errno.unsigned_abs());
            SeccompFilter::new(rules, SeccompAction::Allow, forbidden, target)
        })
        .and_then(BpfProgram::try_from)
        .map_err(io::Error::other)
        .step("build the system call filter")?;

    let mut program = prefix();
    program.extend(compiled);
    Ok(program)
}

/// Applies a filter to this thread and its future children. It cannot be removed.
pub(crate) fn apply(program: &BpfProgram) -> Result<(), ConfineError> {
    let applied = seccompiler::apply_filter(program);
    applied.map_err(io::Error::other).step("filter system calls")
}

fn target() -> Result<TargetArch, seccompiler::BackendError> {
    TargetArch::try_from(std::env::consts::ARCH)
}

/// Returns instructions that fail `clone3` and x32 calls with ENOSYS. They come before the architecture check, with
/// which the compiled part begins. For a call of another architecture they can only refuse more.
fn prefix() -> BpfProgram {
    let load_number = sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let is_x32 = sock_filter { code: 0x35, jt: 1, jf: 0, k: X32 };
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or(X32);
    let is_not_clone3 = sock_filter { code: 0x15, jt: 0, jf: 1, k: clone3 };
    let no_such_call = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    let refuse = sock_filter { code: 0x06, jt: 0, jf: 0, k: no_such_call };
    vec![load_number, is_x32, is_not_clone3, refuse]
}

type SyscallRules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(sockets: Sockets) -> io::Result<SyscallRules> {
    let mut rules: SyscallRules =
        FORBIDDEN.iter().chain(FORBIDDEN_HERE).map(|number| (*number, Vec::new())).collect();

    let clone = NEW_NAMESPACES.iter().map(|flag| {
        let flag = u64::from(flag.unsigned_abs());
        rule(&[(0, SeccompCmpOp::MaskedEq(flag), flag)])
    });
    rules.insert(libc::SYS_clone, clone.collect::<io::Result<_>>()?);

    let requests = TERMINAL_REQUESTS.iter().chain(&VOLUME_REQUESTS);
    let ioctl = requests.map(|number| rule(&[(1, SeccompCmpOp::Eq, *number)]));
    rules.insert(libc::SYS_ioctl, ioctl.collect::<io::Result<_>>()?);
    rules.insert(libc::SYS_personality, vec![none_of(0, &PERSONALITIES)?]);
    rules.insert(libc::SYS_socket, socket(sockets)?);

    let unix = number(libc::AF_UNIX);
    let mut pairs = vec![none_of(0, &[unix])?];
    if sockets != Sockets::Usual {
        // Each end of such a pair can send to any datagram socket with a name, such as the system's log.
        let datagram = number(libc::SOCK_DGRAM);
        pairs.push(rule(&[(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), datagram)])?);
    }
    rules.insert(libc::SYS_socketpair, pairs);

    // A lease on a file blocks other programs that open the file outside.
    rules.insert(libc::SYS_fcntl, vec![rule(&[(1, SeccompCmpOp::Eq, number(libc::F_SETLEASE))])?]);

    for (call, mode) in WITH_MODE.iter().chain(WITH_MODE_HERE) {
        let bits = [libc::S_ISUID, libc::S_ISGID].map(u64::from);
        let set = bits.map(|bit| rule(&[(*mode, SeccompCmpOp::MaskedEq(bit), bit)]));
        rules.insert(*call, set.into_iter().collect::<io::Result<_>>()?);
    }

    for (call, flags, mode) in WITH_FLAGS {
        let mut set = Vec::new();
        for makes in [libc::O_CREAT, libc::O_TMPFILE].map(number) {
            for bit in [libc::S_ISUID, libc::S_ISGID].map(u64::from) {
                set.push(rule(&[
                    (*flags, SeccompCmpOp::MaskedEq(makes), makes),
                    (*mode, SeccompCmpOp::MaskedEq(bit), bit),
                ])?);
            }
        }
        rules.insert(*call, set);
    }

    if sockets != Sockets::Usual {
        // Without a process namespace, all processes of the user are reachable.
        for (call, which) in OF_A_PROCESS {
            rules.insert(*call, vec![none_of(*which, &[0])?]);
        }
        // These calls also accept process groups and users as targets.
        let process = [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)];
        for (call, one_process) in process {
            rules.insert(call, vec![none_of(0, &[one_process])?, none_of(1, &[0])?]);
        }
    }
    Ok(rules)
}

fn socket(sockets: Sockets) -> io::Result<Vec<SeccompRule>> {
    let (unix, v4, v6, netlink) = (
        number(libc::AF_UNIX),
        number(libc::AF_INET),
        number(libc::AF_INET6),
        number(libc::AF_NETLINK),
    );

    let families: &[u64] = match sockets {
        Sockets::Usual => &[unix, v4, v6, netlink],
        Sockets::PairsOnly => &[netlink],
        Sockets::Internet => &[v4, v6, netlink],
    };
    // Landlock restricts TCP, and not MPTCP. Of netlink, programs need the routing tables only.
    let mptcp = number(libc::IPPROTO_MPTCP);
    let route = number(libc::NETLINK_ROUTE);
    Ok(vec![
        none_of(0, families)?,
        rule(&[(0, SeccompCmpOp::Eq, netlink), (2, SeccompCmpOp::Ne, route)])?,
        rule(&[(0, SeccompCmpOp::Eq, v4), (2, SeccompCmpOp::Eq, mptcp)])?,
        rule(&[(0, SeccompCmpOp::Eq, v6), (2, SeccompCmpOp::Eq, mptcp)])?,
    ])
}

fn number(constant: libc::c_int) -> u64 {
    u64::from(constant.unsigned_abs())
}

/// Returns a rule that matches if the argument has none of the values.
fn none_of(argument: u8, values: &[u64]) -> io::Result<SeccompRule> {
    let conditions: Vec<_> =
        values.iter().map(|value| (argument, SeccompCmpOp::Ne, *value)).collect();
    rule(&conditions)
}

/// Returns a rule that matches if all conditions hold. Compares only the lower 32 bits of an argument, as the kernel
/// does.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> io::Result<SeccompRule> {
    let conditions = conditions.iter().map(|(argument, operator, value)| {
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, operator.clone(), *value)
    });
    conditions.collect::<Result<Vec<_>, _>>().and_then(SeccompRule::new).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_can_be_built_for_every_use_and_is_short_enough_for_the_kernel() {
        for sockets in [Sockets::Usual, Sockets::PairsOnly, Sockets::Internet] {
            let program = build(sockets).unwrap();
            assert!(150 < program.len() && program.len() < 4096, "{}", program.len());
        }
        for program in [build_for_attributes().unwrap(), build_for_requests().unwrap()] {
            assert!(program.len() < 4096, "{}", program.len());
        }
    }

    #[test]
    fn the_prefix_jumps_to_the_refusal_and_past_it() {
        let prefix = prefix();
        // x32 jumps over the next test onto the refusal, clone3 falls through to it, others pass it.
        assert_eq!((prefix[1].jt, prefix[1].jf), (1, 0));
        assert_eq!((prefix[2].jt, prefix[2].jf), (0, 1));
        assert_eq!(prefix[3].code, 0x06);
        assert_eq!(prefix.len(), 4);
    }
}
