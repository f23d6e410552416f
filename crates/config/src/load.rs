//! Loads the configuration: the file, then the variables. Called by the supervisor at its start, and by the command line.

use crate::{Config, ConfigError, document, file, keys, untrusted};
use std::path::Path;

/// Reads the configuration from the file at `path` and from the variables that `env` looks up. Variables override
/// the file. A missing file means the defaults, unless `explicit` is true. Blocks on the disk. Opens only a regular
/// file, also through a symbolic link. A blank variable counts as unset.
///
/// # Errors
/// [`ConfigError`] for the first invalid value in the file, then in the environment. The file's values are checked
/// even if a variable overrides them.
pub fn load_blocking(
    path: &Path,
    explicit: bool,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, ConfigError> {
    with_variables(of_file_blocking(path, explicit)?, env)
}

/// Like [`load_blocking`], for a file that commands of sessions could change: no key of it that allows more than the
/// default is in force. [`Config::ignored`] lists such keys.
///
/// # Errors
/// As [`load_blocking`], also for values of ignored keys.
pub fn load_untrusted_blocking(
    path: &Path,
    explicit: bool,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, ConfigError> {
    with_variables(untrusted::narrowed(of_file_blocking(path, explicit)?), env)
}

fn of_file_blocking(path: &Path, explicit: bool) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    if let Some(text) = file::read_blocking(path, explicit)? {
        document::apply(&mut config, path, &text)?;
    }
    Ok(config)
}

fn with_variables(
    mut config: Config,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, ConfigError> {
    for key in keys() {
        key.kind
            .read_variable(&mut config, env)
            .map_err(|(variable, message)| ConfigError::Environment { variable, message })?;
    }
    Ok(config)
}
