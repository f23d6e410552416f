//! The login environment: variables that a daemon started by a service manager lacks, because no shell of the user
//! started it.
//!
//! A separate process runs the user's login shell and reports the resulting environment. It gets one frame and sends
//! one frame, with lengths as in [`crate::worker`]. Only names that the supervisor requested cross the wire: keys that
//! a profile exports never reach the supervisor.
//!
//! The same program, in another process, asks the user's package managers for the hosts of their registries.

use crate::state::FoundHost;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Timeout after which the capturing process kills the shell. Profiles that load version managers take seconds on a
/// cold disk.
pub const CAPTURE_DEADLINE: Duration = Duration::from_secs(10);

/// Timeout after which the supervisor kills the capturing process: the shell's timeout plus time to kill the shell.
pub const CAPTURE_LIMIT: Duration = Duration::from_secs(12);

/// Timeout for all programs of one [`ToolsRequest`], after which they are killed.
pub const TOOLS_DEADLINE: Duration = Duration::from_secs(10);

/// Most hosts in one [`ToolAnswer`].
pub const MAX_TOOL_HOSTS: usize = 32;

/// Most [`ToolAnswer::problems`], and the length of each in characters.
pub const MAX_TOOL_PROBLEMS: usize = 8;
/// See [`MAX_TOOL_PROBLEMS`].
pub const MAX_PROBLEM_CHARS: usize = 200;

/// Variables that name git settings files of the user. A confined worker finds the programs that these files name, and
/// its commands do not get the variables, because they cannot see the files.
pub const GIT_SETTINGS_VARIABLES: [&str; 2] = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"];

/// Largest environment that is read from a shell, in bytes. The kernel's own limit is 2 MiB by default,
/// with the arguments.
pub const MAX_CAPTURE_BYTES: usize = 1024 * 1024;

/// Most variables that are read.
pub const MAX_CAPTURE_VARIABLES: usize = 4096;

/// Longest name or value that is passed on, in bytes. A longer one is left out. The kernel allows 128 KiB for both
/// together, and one larger variable would make every command fail to start.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;

/// Largest login environment, in bytes of names and values. JSON may multiply it by six, and it must fit
/// into a worker's first frame (1 MiB) with the rest of it.
pub const MAX_LOGIN_BYTES: usize = 128 * 1024;

/// Tags of [`ToEnvironmentWorker`].
pub const TO_ENVIRONMENT_WORKER_TAGS: &[&str] = &["capture", "ask_tools", "read_key"];

/// Tags of [`FromEnvironmentWorker`].
pub const FROM_ENVIRONMENT_WORKER_TAGS: &[&str] = &["captured", "tools", "key", "failed"];

/// Supervisor to the capturing process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToEnvironmentWorker {
    /// Run the login shell. First and only frame; answered by exactly one [`FromEnvironmentWorker`].
    Capture(CaptureRequest),
    /// Ask the user's tools for the hosts of their registries. First and only frame; answered by exactly one
    /// [`FromEnvironmentWorker`].
    AskTools(ToolsRequest),
    /// Read a key from the system's keychain. First and only frame; answered by exactly one
    /// [`FromEnvironmentWorker`].
    ReadKey {
        /// Environment and limits of the program that reads the keychain. It names no tools.
        request: ToolsRequest,
        /// Account of the entry. The service is `quackd`.
        account: String,
    },
}

/// Key from the system's keychain. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeychainKey(pub String);

impl std::fmt::Debug for KeychainKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeychainKey")
    }
}

/// Question to the user's tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolsRequest {
    /// Absolute path of an existing private directory for temporary files.
    pub run_dir: String,
    /// Environment of the tools: that of commands, without what leads into an untrusted directory.
    pub env: Vec<(String, String)>,
    /// Kinds of tools to ask.
    pub tools: Vec<ToolKind>,
    /// Directories that sessions may write. No program and no configuration in them is used.
    pub untrusted: Vec<String>,
}

/// Kind of tools that use the same hosts. Each has a preset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// cargo.
    Crates,
    /// npm and the programs that read its configuration.
    Npm,
    /// pip and uv.
    Pypi,
    /// go.
    Go,
    /// The package manager of the system: apt.
    System,
    /// rustup.
    Rust,
    /// Releases of Node.js.
    Node,
}

/// Answer of one kind of tools. The supervisor checks it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolAnswer {
    /// Kind of the tools.
    pub tool: ToolKind,
    /// Hosts, at most [`MAX_TOOL_HOSTS`].
    pub hosts: Vec<FoundHost>,
    /// Sources without a usable answer, one line each.
    pub problems: Vec<String>,
}

/// Request to the capturing process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureRequest {
    /// Absolute path of an existing private directory, for the pipe through which the shell answers.
    pub run_dir: String,
    /// The environment that the shell starts with. If `HOME`, `USER`, `LOGNAME` or `SHELL` is missing, it is taken from
    /// the user's entry in the password database.
    pub base: Vec<(String, String)>,
    /// Names of the variables to report.
    pub names: Vec<String>,
    /// Prefixes of further names to report.
    pub prefixes: Vec<String>,
    /// Timeout of the shell, in milliseconds; at most [`CAPTURE_DEADLINE`].
    pub deadline_ms: u64,
    /// Directories that sessions may write. No start file in them is run, and the shell does not see them.
    #[serde(default)]
    pub untrusted: Vec<String>,
}

/// The capturing process to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromEnvironmentWorker {
    /// The shell reported its environment.
    Captured(LoginEnvironment),
    /// Answers of the tools, one for each requested kind.
    Tools(Vec<ToolAnswer>),
    /// The keychain has the key.
    Key(KeychainKey),
    /// The request failed.
    Failed {
        /// Reason, in one line.
        text: String,
    },
}

/// The environment of the user's login shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginEnvironment {
    /// Path of the shell.
    pub shell: String,
    /// Whether the shell also read its interactive start files (`.bashrc`, `.zshrc`).
    pub interactive: bool,
    /// The requested variables that exist, sorted by name.
    pub variables: Vec<(String, String)>,
    /// Duration of the capture, in milliseconds.
    pub took_ms: u64,
    /// Whether the shell ran confined.
    #[serde(default)]
    pub confined: bool,
}

/// Source of the commands' environment, as `doctor` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginState {
    /// Source of the environment.
    pub source: LoginSource,
    /// Whether a capture is running.
    pub refreshing: bool,
    /// Path of the login shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Whether the shell also read its interactive start files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interactive: Option<bool>,
    /// Time of the last capture, ISO 8601 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured_at: Option<String>,
    /// Duration of the last capture, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// Whether the shell ran confined in the last capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confined: Option<bool>,
    /// Reason why the last attempt failed. The result of an earlier one stays in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The entries of the commands' `PATH`.
    pub path_entries: Vec<String>,
}

/// See [`LoginState`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginSource {
    /// Captured by this daemon.
    Fresh,
    /// Captured by an earlier daemon.
    Cached,
    /// The daemon's own environment: no login shell has answered yet.
    None,
    /// The daemon's own environment: the configuration disables the capture.
    Off,
}
