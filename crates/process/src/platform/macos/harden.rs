//! The parts of the setup that only Linux has: nothing is done.

use std::io;

/// Maximum number of descriptors on macOS (`OPEN_MAX`). The system refuses a higher limit.
pub(crate) const SUPERVISOR_FILES: u64 = 10_240;

/// Directory with the numbers of the open descriptors.
pub(crate) const OPEN_FILES: &str = "/dev/fd";

#[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
pub(crate) fn hide_from_others() -> io::Result<()> {
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

/// Does nothing: this system shows the name of the program.
pub fn set_process_name(_name: &str) {}
