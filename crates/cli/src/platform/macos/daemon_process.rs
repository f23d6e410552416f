//! The daemon's process on systems without process handles. Not tested on macOS.

use rustix::process::Pid;

/// The daemon's process by its id.
pub(crate) struct DaemonProcess(Pid);

impl DaemonProcess {
    pub(crate) fn find(pid: u64) -> Option<Self> {
        Pid::from_raw(i32::try_from(pid).ok()?).map(Self)
    }

    pub(crate) fn has_ended(&self) -> bool {
        rustix::process::test_kill_process(self.0).is_err()
    }
}
