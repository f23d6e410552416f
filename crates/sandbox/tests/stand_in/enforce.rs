//! Enforces a plan with mounts, Landlock and a filter of system calls of Linux, then becomes the program.

#[path = "plan.rs"]
mod plan;
#[expect(dead_code, reason = "the tests of the profile use the rest")]
#[path = "profile.rs"]
mod profile;
#[path = "proxy_port.rs"]
mod proxy_port;

use super::Request;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
};
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use plan::{Mask, Network, Plan, Rights, Signals};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change,
    unmount,
};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, remove_capability_from_bounding_set,
    set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::Display;
use std::fs::{create_dir, set_permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Landlock version of the rights to files. Version 6 adds the scopes.
const FILES: ABI = ABI::V5;

/// Directory that every Linux has, which holds the empty nodes for a moment.
const NODES: &str = "/mnt";

/// Bits of the type of a socket, without its flags.
const SOCKET_TYPE: u64 = 0xf;

/// Becomes the program of the request. Returns the exit code if the program needed a process between.
///
/// # Errors
/// A rule is unknown or cannot be enforced, a step fails, or the program cannot be run.
pub(crate) fn run(request: &Request) -> Result<u8, String> {
    let plan = Plan::new(&request.profile, &request.parameters)?;
    match &plan.network {
        Network::Ports(ports) => proxy_port::serve(ports, |listening| {
            enter(&plan, Some(listening))?;
            become_program(&request.command)
        }),
        Network::None | Network::All => {
            enter(&plan, None)?;
            become_program(&request.command)
        }
    }
}

fn enter(plan: &Plan, listening: Option<proxy_port::Listening<'_>>) -> Result<(), String> {
    let here = std::env::current_dir().map_err(step("find the directory"))?;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let mut namespaces = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS;
    if listening.is_some() {
        namespaces |= CloneFlags::CLONE_NEWNET;
    }
    unshare(namespaces).map_err(step("make namespaces"))?;
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{0} {0} 1", user.as_raw())),
        ("gid_map", format!("{0} {0} 1", group.as_raw())),
    ] {
        std::fs::write(format!("/proc/self/{file}"), text).map_err(step(file))?;
    }
    if let Some(listening) = listening {
        listening.start()?;
    }
    set_mounts(plan)?;
    rustix::process::chdir(&here).map_err(step("enter the directory"))?;
    drop_capabilities()?;
    restrict(plan)?;
    filter(plan)
}

/// Makes everything read-only but the writable directories, and adds the exceptions.
fn set_mounts(plan: &Plan) -> Result<(), String> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(step("separate the mounts"))?;
    if !plan.writable.iter().any(|path| path == Path::new("/")) {
        for path in &plan.writable {
            mount_bind_recursive(path, path).map_err(step(path.display()))?;
        }
        set_read_only(Path::new("/"), libc::AT_RECURSIVE, true)?;
        for path in &plan.writable {
            set_read_only(path, libc::AT_RECURSIVE, false)?;
        }
    }
    if plan.masks.is_empty() {
        return Ok(());
    }
    mount_empty(Path::new(NODES))?;
    let file = Path::new(NODES).join("file");
    std::fs::write(&file, "").map_err(step("make an empty file"))?;
    set_permissions(&file, PermissionsExt::from_mode(0o0)).map_err(step("close an empty file"))?;
    let kept = plan.kept.iter().enumerate();
    let kept: Vec<_> =
        kept.map(|(n, path)| (path, Path::new(NODES).join(format!("kept-{n}")))).collect();
    for (path, stage) in &kept {
        create_dir(stage).map_err(step(stage.display()))?;
        mount_bind_recursive(*path, stage).map_err(step(path.display()))?;
    }
    for (path, mask) in &plan.masks {
        match mask {
            Mask::Hidden if path.is_dir() => {
                mount_empty(path)?;
                for (kept, stage) in kept.iter().filter(|(kept, _)| kept.starts_with(path)) {
                    make_way(path, kept)?;
                    mount_bind_recursive(stage, *kept).map_err(step(kept.display()))?;
                }
                set_read_only(path, 0, true)?;
            }
            Mask::Hidden => {
                mount_bind_recursive(&file, path).map_err(step(path.display()))?;
                set_read_only(path, 0, true)?;
            }
            Mask::ReadOnly | Mask::Pinned => {
                // With the exceptions inside of it.
                mount_bind_recursive(path, path).map_err(step(path.display()))?;
                if *mask == Mask::ReadOnly {
                    set_read_only(path, libc::AT_RECURSIVE, true)?;
                }
            }
        }
    }
    unmount(NODES, UnmountFlags::DETACH).map_err(step("unmount the nodes"))
}

/// Mounts an empty directory that cannot be listed.
fn mount_empty(at: &Path) -> Result<(), String> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", at, "tmpfs", flags, c"mode=0111").map_err(step(at.display()))
}

/// Makes the directories from `directory` to `inner`. They cannot be listed.
fn make_way(directory: &Path, inner: &Path) -> Result<(), String> {
    let way = inner.ancestors().take_while(|above| *above != directory);
    let way: Vec<&Path> = way.collect();
    for one in way.into_iter().rev().filter(|one| !one.exists()) {
        create_dir(one).map_err(step(one.display()))?;
        set_permissions(one, PermissionsExt::from_mode(0o111)).map_err(step(one.display()))?;
    }
    Ok(())
}

/// Sets whether a mount is read-only (`mount_setattr(2)`, Linux 5.12). With `AT_RECURSIVE` also those inside of it.
#[expect(unsafe_code, reason = "mount_setattr(2) has no safe form")]
fn set_read_only(path: &Path, flags: libc::c_int, is_read_only: bool) -> Result<(), String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(step(path.display()))?;
    let (attr_set, attr_clr) =
        if is_read_only { (libc::MOUNT_ATTR_RDONLY, 0) } else { (0, libc::MOUNT_ATTR_RDONLY) };
    let attr = libc::mount_attr { attr_set, attr_clr, propagation: 0, userns_fd: 0 };
    // SAFETY: the path is a C string and the size is that of the structure; both outlive the call, which only reads them.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            name.as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if answer == 0 { Ok(()) } else { Err(step(path.display())(std::io::Error::last_os_error())) }
}

/// Drops every capability of the user namespace, also for the program.
fn drop_capabilities() -> Result<(), String> {
    for number in 0..u64::BITS {
        // Fails past the last capability of this kernel.
        if remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number))
            .is_err()
        {
            break;
        }
    }
    let bits = CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED;
    set_capabilities_secure_bits(bits).map_err(step("lock the secure bits"))?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).map_err(step("drop capabilities"))?;
    set_no_new_privs(true).map_err(step("forbid new privileges"))
}

/// Restricts files, TCP, signals and abstract sockets with Landlock.
fn restrict(plan: &Plan) -> Result<(), String> {
    let failed = || step("restrict by Landlock");
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(FILES))
        .map_err(failed())?;
    if plan.network != Network::All {
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4)).map_err(failed())?;
    }
    if !plan.unix_sockets {
        ruleset = ruleset.scope(Scope::AbstractUnixSocket).map_err(failed())?;
    }
    if plan.signals != Signals::All {
        ruleset = ruleset.scope(Scope::Signal).map_err(failed())?;
    }
    let mut created = ruleset.create().map_err(failed())?;
    if let Network::Ports(ports) = &plan.network {
        for port in ports {
            let rule = NetPort::new(*port, AccessNet::ConnectTcp);
            created = created.add_rule(rule).map_err(failed())?;
        }
    }
    for (path, rights) in &plan.grants {
        let mut access = access(*rights);
        if !path.is_dir() {
            access &= AccessFs::from_file(FILES);
        }
        if !access.is_empty() {
            let node = PathFd::new(path).map_err(step(path.display()))?;
            created = created.add_rule(PathBeneath::new(node, access)).map_err(failed())?;
        }
    }
    created.restrict_self().map_err(failed())?;
    Ok(())
}

fn access(rights: Rights) -> BitFlags<AccessFs> {
    let writing = AccessFs::from_write(FILES);
    let removing = AccessFs::RemoveFile | AccessFs::RemoveDir;
    let changing = AccessFs::WriteFile | AccessFs::Truncate;
    let mut all = BitFlags::empty();
    for (right, access) in [
        (Rights::READ, AccessFs::ReadFile | AccessFs::ReadDir),
        (Rights::RUN, AccessFs::Execute.into()),
        (Rights::CHANGE, changing),
        (Rights::CREATE, writing & !(removing | changing | AccessFs::IoctlDev)),
        (Rights::UNLINK, removing),
        (Rights::CONTROL, AccessFs::IoctlDev.into()),
    ] {
        if rights.has(right) {
            all |= access;
        }
    }
    all
}

/// Refuses system calls that Landlock and mounts do not.
fn filter(plan: &Plan) -> Result<(), String> {
    let failed = || step("filter system calls");
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    // It would open sockets without a system call.
    rules.insert(libc::SYS_io_uring_setup, Vec::new());
    if plan.signals == Signals::None {
        for call in [libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill] {
            rules.insert(call, Vec::new());
        }
    }
    let mut families = match plan.network {
        Network::None => Vec::new(),
        Network::Ports(_) => vec![libc::AF_INET, libc::AF_INET6],
        Network::All => vec![libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
    };
    families.extend(plan.unix_sockets.then_some(libc::AF_UNIX));
    let condition = |argument, operator, value: libc::c_int| {
        SeccompCondition::new(
            argument,
            SeccompCmpArgLen::Dword,
            operator,
            value.unsigned_abs().into(),
        )
    };
    let others = families.into_iter().map(|family| condition(0, SeccompCmpOp::Ne, family));
    let others: Vec<_> = others.collect::<Result<_, _>>().map_err(failed())?;
    let mut sockets = Vec::new();
    if !others.is_empty() {
        sockets.push(SeccompRule::new(others).map_err(failed())?);
        if matches!(plan.network, Network::Ports(_)) {
            for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET] {
                let is_kind = condition(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), kind);
                let rule = SeccompRule::new(vec![is_kind.map_err(failed())?]);
                sockets.push(rule.map_err(failed())?);
            }
        }
    }
    rules.insert(libc::SYS_socket, sockets);
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let target = std::env::consts::ARCH.try_into().map_err(failed())?;
    let compiled = SeccompFilter::new(rules, SeccompAction::Allow, refused, target);
    let compiled: BpfProgram = compiled.map_err(failed())?.try_into().map_err(failed())?;
    seccompiler::apply_filter(&compiled).map_err(step("apply the filter"))
}

#[expect(clippy::disallowed_methods, reason = "a program of tests")]
fn become_program(command: &[String]) -> Result<u8, String> {
    let (program, arguments) = command.split_first().ok_or("no program")?;
    // Returns only if it fails.
    Err(step(program)(Command::new(program).args(arguments).exec()))
}

/// Makes an error a text that begins with what failed.
fn step<E: Display>(what: impl Display) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}
