//! The names of [`super`] for macOS: there are only process ids and groups, and no monitor. Compiled, not run.

mod handle;
mod harden;
mod monitor;
mod process_arguments;
mod process_list;
mod self_exe;
mod template;
mod terminal;

pub use harden::set_process_name;
pub use monitor::{
    die_with_parent, split_off_forwarding_monitor, split_off_monitor, split_off_monitor_of,
    split_off_patient_monitor,
};
pub use self_exe::SelfExe;
pub use template::{Template, serve_template};

pub(crate) use handle::{ExitWatch, Identity};
pub(crate) use harden::{OPEN_FILES, SUPERVISOR_FILES, adopt_orphans, hide_from_others};
pub(crate) use process_list::{has_entry, process_facts, processes};
pub(crate) use terminal::{open_master, open_slave};

use nix::sys::signal::Signal;
use rustix::process::Pid;

/// False: there is no `/proc`.
pub(crate) const HAS_PROC: bool = false;

/// Units per KiB in which the system counts resident memory (`ru_maxrss`).
pub(crate) const RSS_UNITS_PER_KB: u64 = 1024;

/// Sends a signal if `is_meant` says that the number belongs to the meant process. Returns true if it was sent. There are no
/// handles of other processes: between the question and the signal the process may exit, and its number be given to
/// another one, which takes all other numbers first.
pub(crate) fn signal_if(pid: Pid, signal: Signal, is_meant: impl FnOnce() -> bool) -> bool {
    let pid = nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get());
    is_meant() && nix::sys::signal::kill(pid, signal).is_ok()
}

/// Does nothing: this system cannot set limits of another process.
pub(crate) fn limit_cpu(_pid: Pid, _seconds: u64) {}

/// Does nothing: this system has no list of the program's mappings.
pub fn release_program_pages_blocking() {}
