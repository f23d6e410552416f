//! Exit codes of a daemon under a service manager. Used by the supervisor's caller, and written into the
//! unit.
//!
//! A daemon that the user starts exits with the codes of `quack`: 0 and 3. A service manager also needs to
//! know whether to restart it.

use crate::Manager;

/// The daemon stopped on request, or another daemon is running. Not restarted.
pub const STOPPED: u8 = 0;

/// The start failed and the next attempt may succeed, for example if no descriptor was left. Restarted.
pub const FAILED: u8 = 3;

/// The daemon was asked to restart. The manager starts the current program on disk. `EX_TEMPFAIL`.
pub const RESTART: u8 = 75;

/// The start failed and will fail until the user changes something, such as the configuration. Not restarted.
/// `EX_CONFIG` of sysexits(3).
pub const TERMINAL: u8 = 78;

/// Returns the exit code under `manager` for a failure that only the user can fix.
///
/// launchd has no list of such codes: it restarts the daemon every 10 s after any code but 0.
#[must_use]
pub fn terminal(manager: Manager) -> u8 {
    match manager {
        Manager::Systemd => TERMINAL,
        Manager::Launchd => STOPPED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_a_person_can_change_is_not_tried_again_by_either_manager() {
        assert_eq!(terminal(Manager::Systemd), 78);
        // `KeepAlive` has `SuccessfulExit` false, so launchd does not restart after code 0.
        assert_eq!(terminal(Manager::Launchd), 0);
    }
}
