//! Commands for systemctl and launchctl. Run by the command line, and printed by its dry run.

use crate::Manager;
use crate::place::{LABEL, SOCKET_UNIT, UNIT};
use std::path::Path;

/// Action on the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Reload the files, then start the service now and at every login.
    Load,
    /// Stop the service and no longer start it at login.
    Unload,
    /// Restart the service, also after a failure that systemd remembers.
    Restart,
}

/// Returns the commands of one action, in order. `file` is the last of the service's files.
#[must_use]
pub fn commands(manager: Manager, step: Step, uid: u32, file: &Path) -> Vec<Vec<String>> {
    let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let systemctl = |line: &[&str]| words(&[&["systemctl", "--user"], line].concat());
    let (domain, target) = (format!("gui/{uid}"), format!("gui/{uid}/{LABEL}"));
    let file = file.display().to_string();

    match (manager, step) {
        (Manager::Systemd, Step::Load) => vec![
            systemctl(&["daemon-reload"]),
            systemctl(&["enable", SOCKET_UNIT, UNIT]),
            systemctl(&["start", SOCKET_UNIT, UNIT]),
        ],
        (Manager::Systemd, Step::Unload) => {
            vec![systemctl(&["disable", "--now", SOCKET_UNIT, UNIT])]
        }
        (Manager::Systemd, Step::Restart) => {
            vec![systemctl(&["reset-failed", SOCKET_UNIT, UNIT]), systemctl(&["restart", UNIT])]
        }
        // A disabled service stays disabled after `bootstrap`, so enable it first. `bootstrap` alone does not always
        // start it.
        (Manager::Launchd, Step::Load) => vec![
            words(&["launchctl", "enable", &target]),
            words(&["launchctl", "bootstrap", &domain, &file]),
            words(&["launchctl", "kickstart", &target]),
        ],
        (Manager::Launchd, Step::Unload) => vec![words(&["launchctl", "bootout", &target])],
        (Manager::Launchd, Step::Restart) => {
            vec![words(&["launchctl", "kickstart", "-k", &target])]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(manager: Manager, step: Step) -> Vec<String> {
        let all = commands(manager, step, 501, Path::new("/h/Library/LaunchAgents/x.plist"));
        all.iter().map(|words| words.join(" ")).collect()
    }

    #[test]
    fn each_manager_is_told_in_its_own_words() {
        assert_eq!(
            lines(Manager::Systemd, Step::Load),
            [
                "systemctl --user daemon-reload",
                "systemctl --user enable quackd.socket quackd.service",
                "systemctl --user start quackd.socket quackd.service",
            ]
        );
        assert_eq!(
            lines(Manager::Launchd, Step::Load),
            [
                "launchctl enable gui/501/dev.quackd.daemon",
                "launchctl bootstrap gui/501 /h/Library/LaunchAgents/x.plist",
                "launchctl kickstart gui/501/dev.quackd.daemon",
            ]
        );
        assert_eq!(
            lines(Manager::Launchd, Step::Restart),
            ["launchctl kickstart -k gui/501/dev.quackd.daemon"]
        );
        let bootout = ["launchctl bootout gui/501/dev.quackd.daemon"];
        assert_eq!(lines(Manager::Launchd, Step::Unload), bootout);
    }
}
