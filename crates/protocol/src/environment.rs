//! The login environment: what a daemon that a service manager started lacks, because no shell of the user
//! had a part in its start.
//!
//! A process of its own runs the user's login shell and reports the environment that it ends up with: one
//! frame to it, one frame back, with lengths as in [`crate::worker`]. Only names that the supervisor asked
//! for cross the wire: keys that a profile exports never reach the supervisor.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The capturing process ends the shell after this long. Profiles that load version managers take
/// seconds on a cold disk.
pub const CAPTURE_DEADLINE: Duration = Duration::from_secs(10);

/// The supervisor ends the capturing process after this long: its deadline, and time to end the shell.
pub const CAPTURE_LIMIT: Duration = Duration::from_secs(12);

/// Largest environment that is read from a shell, in bytes. The kernel's own limit is 2 MiB by default,
/// with the arguments.
pub const MAX_CAPTURE_BYTES: usize = 1024 * 1024;

/// Most variables that are looked at.
pub const MAX_CAPTURE_VARIABLES: usize = 4096;

/// Longest name or value that is passed on, in bytes; a longer one is left out. The kernel allows 128 KiB for
/// both together, and one variable above that would make every command fail to start.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;

/// Largest login environment, in bytes of names and values. JSON may multiply it by six, and it must fit
/// into a worker's first frame (1 MiB) with the rest of it.
pub const MAX_LOGIN_BYTES: usize = 128 * 1024;

/// Tags of [`ToEnvironmentWorker`].
pub const TO_ENVIRONMENT_WORKER_TAGS: &[&str] = &["capture"];

/// Tags of [`FromEnvironmentWorker`].
pub const FROM_ENVIRONMENT_WORKER_TAGS: &[&str] = &["captured", "failed"];

/// Supervisor to the capturing process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToEnvironmentWorker {
    /// Run the login shell. First and only frame; answered by exactly one [`FromEnvironmentWorker`].
    Capture(CaptureRequest),
}

/// All that the capturing process is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureRequest {
    /// Absolute path of an existing private directory, for the pipe through which the shell answers.
    pub run_dir: String,
    /// The environment that the shell starts with. What is missing of `HOME`, `USER`, `LOGNAME` and
    /// `SHELL` is taken from the user's entry in the password database.
    pub base: Vec<(String, String)>,
    /// Names of the variables to report.
    pub names: Vec<String>,
    /// Beginnings of further names to report.
    pub prefixes: Vec<String>,
    /// Time for the shell, in milliseconds; at most [`CAPTURE_DEADLINE`].
    pub deadline_ms: u64,
}

/// The capturing process to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromEnvironmentWorker {
    /// The shell gave its environment.
    Captured(LoginEnvironment),
    /// It did not.
    Failed {
        /// Why, in one line.
        text: String,
    },
}

/// What a login shell of the user has in its environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginEnvironment {
    /// Path of the shell.
    pub shell: String,
    /// Whether its interactive start files had a part too (`.bashrc`, `.zshrc`).
    pub interactive: bool,
    /// The variables that were asked for and are there, sorted by name.
    pub variables: Vec<(String, String)>,
    /// Time that it took, in milliseconds.
    pub took_ms: u64,
}

/// Where the environment of commands comes from, as `doctor` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginState {
    /// Where from.
    pub source: LoginSource,
    /// A login shell is being asked right now.
    pub refreshing: bool,
    /// The shell that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Whether it also read its interactive start files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interactive: Option<bool>,
    /// When it answered, ISO 8601 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured_at: Option<String>,
    /// How long that took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// Why the last try failed. What an earlier one gave stays in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The directories in which commands look for programs.
    pub path_entries: Vec<String>,
}

/// See [`LoginState`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginSource {
    /// A login shell that this daemon asked.
    Fresh,
    /// A login shell that an earlier daemon asked.
    Cached,
    /// The daemon's own environment: no login shell has answered yet.
    None,
    /// The daemon's own environment: the configuration says so.
    Off,
}
