//! The configuration as types, and how it comes together: defaults, then the file, then the environment.
//! Read once by the supervisor at its start, and by `quack config`.

use crate::{ConfigError, Entry, Setting, document, file, keys};
use quackd_protocol::limits::{DEFAULT_TOOL_DEADLINE, MAX_WORKERS, WORKER_IDLE_TTL};
use std::path::Path;
use std::time::Duration;

/// Every setting, checked. A verb that has a flag for one sets the flag's value afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[worker]`
    pub worker: WorkerSettings,
    /// `[tools]`
    pub tools: ToolSettings,
    /// `[environment]`
    pub environment: EnvironmentSettings,
    /// `[log]`
    pub log: LogSettings,
    /// `[web_search]`
    pub web_search: WebSearchSettings,
}

/// How workers are started and ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSettings {
    /// An idle worker is ended after this long, 1 minute to 24 hours.
    pub idle: Setting<Duration>,
    /// Workers that may live at the same time, 1 to [`MAX_WORKERS`].
    pub max_live: Setting<usize>,
    /// What stands before the command line of a worker. Empty for nothing, else the first word is not.
    pub launcher: Setting<Vec<String>>,
}

/// What tool calls get that say nothing themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSettings {
    /// The deadline of a call that names none, 1 to 600 s.
    pub default_timeout: Setting<Duration>,
    /// Whether `grep_search` leaves out what ignore files name.
    pub respect_ignore_files: Setting<bool>,
    /// Names of variables that commands get besides those that all get.
    pub env: Setting<Vec<String>>,
}

/// Where the commands' environment comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentSettings {
    /// Whether the user's login shell is asked for it.
    pub login_shell: Setting<bool>,
}

/// The daemon's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// A filter of `tracing`: a level, or `target=level`, several separated by commas.
    pub level: Setting<String>,
}

/// The search of the web.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSearchSettings {
    /// An https address, or an http one on this machine.
    pub endpoint: Setting<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            worker: WorkerSettings {
                idle: Setting::default_of(WORKER_IDLE_TTL),
                max_live: Setting::default_of(MAX_WORKERS),
                launcher: Setting::default_of(Vec::new()),
            },
            tools: ToolSettings {
                default_timeout: Setting::default_of(DEFAULT_TOOL_DEADLINE),
                respect_ignore_files: Setting::default_of(false),
                env: Setting::default_of(Vec::new()),
            },
            environment: EnvironmentSettings { login_shell: Setting::default_of(true) },
            log: LogSettings { level: Setting::default_of("info".to_owned()) },
            web_search: WebSearchSettings {
                endpoint: Setting::default_of("https://api.exa.ai/search".to_owned()),
            },
        }
    }
}

impl Config {
    /// Every key with its value and origin, in the order of [`keys`].
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let entry = |key: &crate::Key| {
            let (value, origin) = key.kind.show(self);
            Entry { key: key.name(), value, origin: origin.to_string() }
        };
        keys().iter().map(entry).collect()
    }
}

/// Reads the configuration from the file at `path` and from the variables that `env` looks up, which win.
/// A missing file means the defaults, unless `explicit` says that somebody named it. Blocks on the disk;
/// opens nothing but a regular file, by a link too. A blank variable counts as unset.
///
/// # Errors
/// [`ConfigError`] for the first thing in the file, then in the environment, that cannot be used. What
/// the file says is checked also where a variable wins over it.
pub fn load_blocking(
    path: &Path,
    explicit: bool,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    if let Some(text) = file::read_blocking(path, explicit)? {
        document::apply(&mut config, path, &text)?;
    }
    for key in keys() {
        key.kind
            .read_variable(&mut config, env)
            .map_err(|(variable, message)| ConfigError::Environment { variable, message })?;
    }
    Ok(config)
}
