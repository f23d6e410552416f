//! The processes of the machine from libproc, and their environments from the kernel (`KERN_PROCARGS2`). Used by
//! [`crate::members`]. Compiled and linked for macOS, not run there.

use super::process_arguments::environment;
use crate::process_facts::ProcessFacts;
use nix::libc;
use std::collections::BTreeMap;
use std::io;

/// Maximum number of listed processes. macOS has at most a few thousand.
const MAX_PROCESSES: usize = 65_536;

/// Room for processes that start between counting and listing.
const MORE_PROCESSES: usize = 256;

/// Maximum size of arguments and environment of a process in bytes (`ARG_MAX`).
const MAX_ARGUMENTS_BYTES: usize = 1024 * 1024;

/// Lists all processes by number, without zombies.
///
/// # Errors
/// The system refuses the list.
#[expect(unsafe_code, reason = "proc_listallpids(3) has no safe form")]
pub(crate) fn processes() -> io::Result<BTreeMap<u32, ProcessFacts>> {
    // SAFETY: without a buffer the function only counts.
    let n_now = unsafe { libc::proc_listallpids(std::ptr::null_mut(), 0) };
    let n_now = usize::try_from(n_now).map_err(|_| io::Error::last_os_error())?;

    let mut pids: Vec<libc::pid_t> =
        vec![0; n_now.saturating_add(MORE_PROCESSES).min(MAX_PROCESSES)];
    let size = i32::try_from(size_of_val(pids.as_slice())).map_err(io::Error::other)?;
    // SAFETY: the buffer is writable and has `size` bytes.
    let n_listed = unsafe { libc::proc_listallpids(pids.as_mut_ptr().cast(), size) };
    let n_listed = usize::try_from(n_listed).map_err(|_| io::Error::last_os_error())?;
    if n_listed == 0 {
        return Err(io::Error::last_os_error());
    }

    let listed = pids.into_iter().take(n_listed).filter_map(|pid| u32::try_from(pid).ok());
    Ok(listed.filter_map(process_facts).map(|facts| (facts.pid, facts)).collect())
}

/// Reads one process. `None` if it is gone, or a zombie.
#[expect(unsafe_code, reason = "proc_pidinfo(3) has no safe form")]
pub(crate) fn process_facts(pid: u32) -> Option<ProcessFacts> {
    let mut info = std::mem::MaybeUninit::<libc::proc_bsdinfo>::uninit();
    let size = i32::try_from(size_of::<libc::proc_bsdinfo>()).ok()?;
    let number = i32::try_from(pid).ok()?;
    // SAFETY: the buffer is writable and has `size` bytes.
    let written = unsafe {
        libc::proc_pidinfo(number, libc::PROC_PIDTBSDINFO, 0, info.as_mut_ptr().cast(), size)
    };
    if written != size {
        return None;
    }
    // SAFETY: the kernel has written all of it.
    let info = unsafe { info.assume_init() };
    Some(ProcessFacts {
        pid,
        parent: info.pbi_ppid,
        group: info.pbi_pgid,
        user: info.pbi_ruid,
        started: info.pbi_start_tvsec.wrapping_mul(1_000_000).wrapping_add(info.pbi_start_tvusec),
        has_ended: info.pbi_status == libc::SZOMB,
    })
}

/// Returns whether an entry of the environment of a process begins with `begin`. `None` if the system does not show it: the
/// process is starting, belongs to another user, or is a protected program of the system.
#[expect(unsafe_code, reason = "sysctl(3) has no safe form")]
pub(crate) fn has_entry(pid: u32, begin: &[u8]) -> Option<bool> {
    let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, i32::try_from(pid).ok()?];
    let mut arguments: Vec<u8> = Vec::with_capacity(MAX_ARGUMENTS_BYTES);
    let mut size = arguments.capacity();
    // SAFETY: the name has three numbers, and the buffer is writable for `size` bytes.
    let result = unsafe {
        libc::sysctl(
            name.as_mut_ptr(),
            3,
            arguments.as_mut_ptr().cast(),
            &raw mut size,
            std::ptr::null_mut(),
            0,
        )
    };
    if result != 0 || arguments.capacity() < size {
        return None;
    }
    // SAFETY: the kernel has written the first `size` bytes, which fit.
    unsafe { arguments.set_len(size) };

    let environment = environment(&arguments)?;
    let mut entries = environment.split(|byte| *byte == 0);
    (!environment.is_empty()).then(|| entries.any(|entry| entry.starts_with(begin)))
}
