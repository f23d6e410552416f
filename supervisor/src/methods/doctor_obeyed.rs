//! `doctor`: the checks of the configuration file, and of the files that the daemon obeys and sessions could change.

use super::doctor_results::{ok, warn};
use crate::obeyed::{HeldFile, in_words};
use crate::services::Services;
use quackd_protocol::client::Check;
use std::path::PathBuf;
use std::time::SystemTime;

/// Hint for a file that commands of sessions could change.
const REPLACE: &str = "replace the link or second name by a copy outside of all workspaces, or delete the sessions there";

/// The configuration file. `modified` is the time of its last change now. `other` is the file that the next daemon reads
/// instead.
pub(super) fn config(
    services: &Services,
    modified: Option<SystemTime>,
    other: Option<PathBuf>,
) -> Check {
    let file = &services.daemon.config_file;
    let path = other.as_ref().unwrap_or(&file.path).display();

    if other.is_some() || modified != file.modified {
        return warn(
            "config",
            format!("{path} was changed after the daemon had started"),
            "`quack restart` puts it in force",
        );
    }

    if let Some(held) = &file.held {
        let ignored = &services.daemon.config.ignored;
        let keys: Vec<&str> = ignored.iter().map(|(key, _)| key.as_str()).collect();
        let keys = if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
        return warn(
            "config",
            format!("{path} {held}; keys that are not in force: {keys}"),
            REPLACE,
        );
    }

    if let Some(unread) = &file.unread {
        return warn(
            "config",
            format!("{path} is used; {} is not read", unread.display()),
            "delete the second file, or move its settings",
        );
    }

    match file.modified {
        Some(_) => ok("config", path.to_string()),
        None => ok("config", format!("no {path}: defaults")),
    }
}

/// Files that the daemon obeys and that commands of sessions could change.
pub(super) fn obeyed(held: &[HeldFile]) -> Check {
    const NAME: &str = "obeyed";
    match in_words(held) {
        None => ok(NAME, "no session can change a file that quackd obeys".to_owned()),
        Some(text) => warn(NAME, text, REPLACE),
    }
}
