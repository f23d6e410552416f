//! Controllers of the kernel for the daemon's control groups: which there are, and the memory limit of a session. Used
//! by [`super::base`].

use super::directory::Directory;
use super::{CgroupKind, MYSELF};
use std::io;

/// Directory of all sessions, inside the daemon's own group (version 2).
pub(super) const SESSIONS: &str = "sessions";

/// Directory of the daemon itself, next to [`SESSIONS`], if sessions have a memory limit (version 2). A group that
/// shares out memory cannot contain processes.
pub(super) const DAEMON: &str = "daemon";

/// Directory of a session's commands, in a session that has a memory limit (version 2). Its worker is above it.
pub(super) const COMMANDS: &str = "commands";

pub(super) const SUBTREE: &str = "cgroup.subtree_control";

/// Returns true if the controller is available in this directory (version 2).
pub(super) fn has(directory: &Directory, controller: &str) -> bool {
    let controllers = directory.read("cgroup.controllers").unwrap_or_default();
    controllers.split_whitespace().any(|available| available == controller)
}

/// Returns true if a service manager delegated this group to the user, or if it is the root of the visible hierarchy,
/// as in a container or without a service manager.
pub(super) fn is_delegated(own: &Directory) -> bool {
    let is_marked = |name: &str| {
        let mut value = [0; 8];
        let length = rustix::fs::fgetxattr(own, name, &mut value);
        length.is_ok_and(|length| value.get(..length) == Some(b"1".as_slice()))
    };
    own.cgroup() == "/" || is_marked("user.delegate") || is_marked("trusted.delegate")
}

/// Sessions that may have a memory limit (version 2).
pub(super) struct MemoryShares {
    pub(super) sessions: Directory,
    /// True if this process enabled the controller in its own group.
    pub(super) is_enabled_here: bool,
}

/// Moves this process into [`DAEMON`] and lets the kernel count the memory of each directory in [`SESSIONS`]
/// (version 2).
///
/// # Errors
/// The controller is not delegated, or the own group contains other processes. Nothing is changed then.
pub(super) fn share_memory(own: &Directory, base: &Directory) -> io::Result<MemoryShares> {
    let is_enabled_here = !has(base, "memory");
    if is_enabled_here && !(is_delegated(own) && has(own, "memory")) {
        return Err(io::ErrorKind::Unsupported.into());
    }

    let share = || -> io::Result<MemoryShares> {
        base.make(DAEMON)?.write("cgroup.procs", MYSELF)?;
        if is_enabled_here {
            own.write(SUBTREE, "+memory")?;
        }
        base.write(SUBTREE, "+memory")?;
        let sessions = base.make(SESSIONS)?;
        sessions.write(SUBTREE, "+memory")?;
        Ok(MemoryShares { sessions, is_enabled_here })
    };
    share().inspect_err(|_| {
        // The caller gets the first error. A step that fails here makes the caller's next step fail.
        base.remove(SESSIONS).ok();
        base.write(SUBTREE, "-memory").ok();
        if is_enabled_here {
            own.write(SUBTREE, "-memory").ok();
        }
        own.write("cgroup.procs", MYSELF).ok();
        base.remove(DAEMON).ok();
    })
}

/// Limits the memory of a session's group ([`CgroupKind::Unified`] or [`CgroupKind::Memory`]). Above the limit the
/// kernel drops cached files, then kills single processes.
pub(super) fn limit_memory(directory: &Directory, bytes: u64) -> io::Result<()> {
    let (limit, with_swap, swap) = match directory.kind() {
        CgroupKind::Unified => ("memory.max", "memory.swap.max", 0),
        _ => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes),
    };
    directory.write(limit, &bytes.to_string())?;
    // A kernel that does not count swap has no such file.
    directory.write(with_swap, &swap.to_string()).ok();
    Ok(())
}
