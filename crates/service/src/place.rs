//! Paths of the managers' files. Used by the command line.

use crate::{Manager, Variable};
use std::path::{Path, PathBuf};

/// Name of the service unit, also in texts for the user.
pub const UNIT: &str = "quackd.service";

/// Name of the socket unit, which starts the service on demand.
pub const SOCKET_UNIT: &str = "quackd.socket";

/// Label of the LaunchAgent.
pub const LABEL: &str = "dev.quackd.daemon";

/// Returns the directory of the user's services.
///
/// # Errors
/// No home directory; the text names the missing variable.
pub fn directory(manager: Manager, variable: Variable<'_>) -> Result<PathBuf, String> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").ok_or_else(|| "HOME is not set to an absolute path".to_owned());

    match manager {
        Manager::Systemd => {
            let config = match absolute("XDG_CONFIG_HOME") {
                Some(config) => config,
                None => home()?.join(".config"),
            };
            Ok(config.join("systemd/user"))
        }
        Manager::Launchd => Ok(home()?.join("Library/LaunchAgents")),
    }
}

/// Returns the files of the service, without links.
#[must_use]
pub fn files(manager: Manager, directory: &Path) -> Vec<PathBuf> {
    match manager {
        Manager::Systemd => vec![directory.join(SOCKET_UNIT), directory.join(UNIT)],
        Manager::Launchd => vec![directory.join(format!("{LABEL}.plist"))],
    }
}

/// Returns the links that start the units at login, which `systemctl --user enable` creates.
#[must_use]
pub fn links(manager: Manager, directory: &Path) -> Vec<PathBuf> {
    match manager {
        Manager::Systemd => vec![
            directory.join("sockets.target.wants").join(SOCKET_UNIT),
            directory.join("default.target.wants").join(UNIT),
        ],
        Manager::Launchd => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn found(manager: Manager, home: &str, config: &str) -> Result<PathBuf, String> {
        directory(manager, &|name| match name {
            "HOME" => Some(OsString::from(home)),
            "XDG_CONFIG_HOME" => Some(OsString::from(config)),
            _ => None,
        })
    }

    #[test]
    fn each_manager_has_its_directory() {
        let plain = |path: &str| Ok(PathBuf::from(path));
        assert_eq!(found(Manager::Systemd, "/h", ""), plain("/h/.config/systemd/user"));
        assert_eq!(found(Manager::Systemd, "/h", "rel"), plain("/h/.config/systemd/user"));
        assert_eq!(found(Manager::Systemd, "", "/c"), plain("/c/systemd/user"));
        assert_eq!(found(Manager::Launchd, "/h", "/c"), plain("/h/Library/LaunchAgents"));
        assert!(found(Manager::Systemd, "relative", "").is_err());
        assert!(found(Manager::Launchd, "", "/c").is_err());
    }
}
