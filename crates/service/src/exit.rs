//! Exit codes of a daemon that a service manager started. Used by the supervisor's caller and written into
//! the unit.
//!
//! A person who runs `quack daemon` sees the codes of `quack`: 0 and 3. A service manager has to know more:
//! whether to start it again.

use crate::Manager;

/// It was asked to stop, and did; or another daemon serves already. Not started again.
pub const STOPPED: u8 = 0;

/// It could not start, and the next attempt may succeed: no descriptor was left, say. Started again.
pub const FAILED: u8 = 3;

/// It was asked to restart: the manager starts the program that is on disk by now. `EX_TEMPFAIL`.
pub const RESTART: u8 = 75;

/// It could not start, and no other start can until a person changes something: the configuration, whose
/// the state directory is. Not started again. `EX_CONFIG` of sysexits(3).
pub const TERMINAL: u8 = 78;

/// The code with which a daemon below `manager` ends that cannot start for a reason that only a person can
/// change.
///
/// launchd cannot be told which codes not to try again: it tries every other one than 0, every ten seconds.
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
        // `KeepAlive` has `SuccessfulExit` false: 0 is the one code that launchd leaves alone.
        assert_eq!(terminal(Manager::Launchd), 0);
    }
}
