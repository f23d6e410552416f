//! The names of [`super`] for Linux: pidfds, `/proc`, limits of other processes, and the monitor of a worker.

mod descriptor;
mod handle;
mod harden;
mod monitor;
#[cfg(test)]
#[path = "../macos/process_arguments.rs"]
mod process_arguments;
mod process_list;
mod program_pages;
mod self_exe;
mod template;
mod terminal;

pub use harden::set_process_name;
pub use monitor::{
    ForkSide, die_with_parent, split_off_forwarding_monitor, split_off_monitor,
    split_off_monitor_by, split_off_monitor_of, split_off_patient_monitor,
};
pub use program_pages::release_program_pages_blocking;
pub use self_exe::SelfExe;
pub use template::{Template, serve_template};

pub(crate) use handle::{ExitWatch, Identity};
pub(crate) use harden::{OPEN_FILES, SUPERVISOR_FILES, adopt_orphans, hide_from_others};
pub(crate) use process_list::{has_entry, process_facts, processes};
pub(crate) use terminal::{open_master, open_slave};

use nix::sys::signal::Signal;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, pidfd_open, pidfd_send_signal, prlimit};

/// True: `/proc` shows the processes of the machine, and lists the children of each.
pub(crate) const HAS_PROC: bool = true;

/// Units per KiB in which the system counts resident memory (`ru_maxrss`).
pub(crate) const RSS_UNITS_PER_KB: u64 = 1;

/// Sends a signal if `is_meant`, asked while a handle is open, says that the number belongs to the meant process. Returns
/// true if it was sent. Without a descriptor for the handle, sends nothing.
pub(crate) fn signal_if(pid: Pid, signal: Signal, is_meant: impl FnOnce() -> bool) -> bool {
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let signal = rustix::process::Signal::from_named_raw(signal as i32);
    is_meant() && signal.is_some_and(|signal| pidfd_send_signal(&handle, signal).is_ok())
}

/// Limits the CPU time of a process that was just started. A process that has exited is ignored.
pub(crate) fn limit_cpu(pid: Pid, seconds: u64) {
    // The soft limit sends SIGXCPU, and the hard limit SIGKILL one second later.
    let new = Rlimit { current: Some(seconds), maximum: Some(seconds.saturating_add(1)) };
    // The process may have exited.
    prlimit(Some(pid), Resource::Cpu, new).ok();
}
