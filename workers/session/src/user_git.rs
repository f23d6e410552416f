//! The user's settings of git that a session has: for its commands and for its tools.

use crate::private_files;
use quackd_protocol::worker::Start;
use quackd_sandbox::git;
use quackd_tools::UserGit;
use std::io;
use std::path::{Path, PathBuf};

/// An empty settings file of git.
pub(crate) const NO_SETTINGS: &str = "/dev/null";

/// The user's settings of git for this session.
pub(crate) fn user_settings(start: &Start) -> git::CarriedSettings {
    let workspace = PathBuf::from(&start.workspace);
    let roots = &start.sandbox.policy.writable_roots;
    let writable: Vec<_> = roots.iter().chain([&workspace]).cloned().collect();
    let home = Path::new(&start.sandbox.home);
    git::CarriedSettings::read_blocking(home, &start.env, &workspace, &writable)
}

/// Returns what the tools apply of these settings.
pub(crate) fn of_user(settings: &git::CarriedSettings) -> UserGit {
    let excludes = Some(settings.excludes.clone().unwrap_or_default());
    UserGit { excludes, unsigned: settings.unsigned }
}

/// Writes the carried settings of git, and `more` of them as text, into a directory of the session. Returns the path of
/// the settings file.
pub(crate) fn write_settings_blocking(
    directory: &Path,
    from: &git::CarriedSettings,
    more: &str,
) -> io::Result<String> {
    let text = directory.to_str().and_then(|path| from.to_config(path));
    let Some(text) = text else { return Ok(NO_SETTINGS.to_owned()) };

    let (excludes, attributes) = (from.excludes.as_deref(), from.attributes.as_deref());
    for (name, text) in [(git::EXCLUDES_NAME, excludes), (git::ATTRIBUTES_NAME, attributes)] {
        if let Some(text) = text {
            private_files::write_blocking(directory, name, text)?;
        }
    }
    private_files::write_blocking(directory, git::SETTINGS_NAME, &(text + more))?;
    Ok(directory.join(git::SETTINGS_NAME).display().to_string())
}
