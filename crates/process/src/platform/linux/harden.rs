//! The parts of the setup that only Linux has.

use std::io;

/// Maximum number of descriptors of the supervisor. A higher limit only slows down programs that close every possible
/// descriptor one by one.
pub(crate) const SUPERVISOR_FILES: u64 = 1_048_576;

/// Directory with the numbers of the open descriptors.
pub(crate) const OPEN_FILES: &str = "/proc/self/fd";

/// Makes `/proc/PID/environ`, `mem` and the like of this process readable for root only.
pub(crate) fn hide_from_others() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Makes this process the sub-reaper of its descendants.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // Any nonzero value enables it (PR_SET_CHILD_SUBREAPER(2const)).
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Sets the name that `ps` and `top` show for this process, cut to 15 bytes. Call it from the main thread. For
/// display only: failure is ignored.
pub fn set_process_name(name: &str) {
    let short: Vec<u8> = name.bytes().filter(|byte| *byte != 0).take(15).collect();
    if let Ok(short) = std::ffi::CString::new(short) {
        // For display only.
        rustix::thread::set_name(&short).ok();
    }
}
