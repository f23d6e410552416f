//! Facts about this run of the daemon that do not change: paths, times and the configuration.

use quackd_config::Config;
use quackd_home::Home;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

/// One instance per daemon.
#[derive(Debug)]
pub(crate) struct DaemonInfo {
    /// Paths in the state directory.
    pub(crate) home: Home,
    /// Home directory of the user who runs the daemon; `/` without one.
    pub(crate) user_home: PathBuf,
    /// Working directory at the start. `attach` without a path uses it.
    pub(crate) started_in: PathBuf,
    /// Path of the socket that clients connect to.
    pub(crate) socket: PathBuf,
    /// Start of the daemon.
    pub(crate) started: Instant,
    /// Start of the daemon as wall-clock time, for display only.
    pub(crate) started_at: String,
    /// Configuration that was read at the start.
    pub(crate) config: Config,
    pub(crate) config_file: ConfigFile,
}

/// The file that the configuration was read from.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    /// Time of its last change before it was read; `None` if it did not exist.
    pub(crate) modified: Option<SystemTime>,
}

/// The user's home directory, which no worker may write as a whole.
pub(crate) fn user_home() -> PathBuf {
    std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}
