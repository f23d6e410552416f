//! Facts about this run of the daemon that do not change: paths, times and the configuration.

use crate::obeyed::Obeyed;
use crate::workspaces::Places;
use quackd_config::{Config, UpstreamChoice};
use quackd_home::Home;
use quackd_policy::upstream::{UpstreamError, UpstreamProxy};
use quackd_process::Held;
use quackd_protocol::network::UpstreamVariables;
use quackd_protocol::state::HeldConfig;
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
    /// Origin of durations since the start.
    pub(crate) started: Instant,
    /// Start of the daemon as wall-clock time, for display only.
    pub(crate) started_at: String,
    /// Configuration that was read at the start.
    pub(crate) config: Config,
    pub(crate) config_file: ConfigFile,
    pub(crate) obeyed: Obeyed,
    /// Proxy of the user's network for connections of commands. They connect directly without one, or after an error.
    pub(crate) upstream: Result<Option<UpstreamVariables>, UpstreamError>,
}

impl DaemonInfo {
    /// Directories in which no session may work.
    pub(crate) fn places(&self) -> Places {
        Places { user_home: self.user_home.clone(), state_dir: self.home.dir().to_owned() }
    }
}

/// The file that the configuration was read from.
#[derive(Debug)]
pub struct ConfigFile {
    /// Absolute path.
    pub path: PathBuf,
    /// Time of its last change before it was read; `None` if it did not exist.
    pub modified: Option<SystemTime>,
    /// Reason why commands of sessions could change it. Its keys that allow more are not in force then.
    pub held: Option<Held>,
    /// Record for the state, if commands could change it.
    pub record: Option<HeldConfig>,
    /// Whether no variable names it.
    pub is_default: bool,
    /// The file in the state directory, if it exists and was not read.
    pub unread: Option<PathBuf>,
}

/// Variable of the daemon with the absolute path of a program that tests run in place of `sandbox-exec`.
const TEST_SANDBOX_EXEC: &str = "QUACKD_TEST_SANDBOX_EXEC";

/// Reads the program that tests run in place of `sandbox-exec`. `None` in a release build, which ignores the variable.
/// Only a worker with `sandbox.tier = "M"` uses the program.
pub(crate) fn test_sandbox_exec() -> Option<String> {
    let path = cfg!(debug_assertions).then(|| std::env::var(TEST_SANDBOX_EXEC).ok()).flatten()?;
    PathBuf::from(&path).is_absolute().then_some(path)
}

/// Reads the variables that name the proxy of the user's network, if the configuration wants it.
pub(crate) fn upstream(choice: UpstreamChoice) -> Result<Option<UpstreamVariables>, UpstreamError> {
    if choice == UpstreamChoice::None {
        return Ok(None);
    }

    // Upper case first, like reqwest, which sends the daemon's own requests.
    let value = |upper: &str, lower: &str| {
        std::env::var(upper).or_else(|_unset| std::env::var(lower)).unwrap_or_default()
    };
    let variables = UpstreamVariables {
        all: value("ALL_PROXY", "all_proxy"),
        http: value("HTTP_PROXY", "http_proxy"),
        https: value("HTTPS_PROXY", "https_proxy"),
        no: value("NO_PROXY", "no_proxy"),
    };

    UpstreamProxy::check(variables).inspect_err(|error| {
        tracing::warn!(%error, "commands connect to allowed hosts without the proxy of this network");
    })
}
