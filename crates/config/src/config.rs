//! The configuration as types, and how it comes together: defaults, then the file, then the environment.
//! Read once by the supervisor at its start, and by `quack config`.

use crate::{ConfigError, Entry, Origin, Setting, document, file, keys};
use quackd_protocol::limits::{
    DEFAULT_TOOL_DEADLINE, EVICT_BELOW_MB, MAX_COMMANDS, MAX_JOBS, MAX_PIS, MAX_PROCESSES,
    MAX_PROCESSES_PER_SESSION, MAX_SPILLS_BYTES, MAX_UNDO_BYTES, MAX_WORKERS, MIN_FREE_BYTES,
    OUTPUTS_KEPT, UNDO_KEPT, WORKER_IDLE_TTL,
};
use quackd_protocol::policy::{PolicyPatch, Profile, WebSearchRule};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Every setting, checked. A verb that has a flag for one sets the flag's value afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[worker]`
    pub worker: WorkerSettings,
    /// `[tools]`
    pub tools: ToolSettings,
    /// `[sandbox]`
    pub sandbox: SandboxSettings,
    /// `[limits]`
    pub limits: LimitSettings,
    /// `[keep]`
    pub keep: KeepSettings,
    /// `[environment]`
    pub environment: EnvironmentSettings,
    /// `[pi]`
    pub pi: PiSettings,
    /// `[log]`
    pub log: LogSettings,
    /// `[metrics]`
    pub metrics: MetricsSettings,
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
    /// MiB of available memory below which workers that nobody uses are ended; 0 for never.
    pub evict_below_mb: Setting<usize>,
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

/// What workers may do, unless their workspace or session says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    /// The name of a [`Profile`].
    pub profile: Setting<String>,
    /// Whether the machine's network may be used.
    pub network: Setting<bool>,
    /// The name of a [`WebSearchRule`].
    pub web_search: Setting<String>,
    /// Directories that may be written beside the workspace.
    pub writable: Setting<Vec<String>>,
    /// Files and directories that are not shown.
    pub hidden: Setting<Vec<String>>,
    /// The highest tier that is tried, or `auto`.
    pub tier: Setting<String>,
}

impl SandboxSettings {
    /// What is set here, as the lowest layer of every session's policy.
    #[must_use]
    pub fn patch(&self) -> PolicyPatch {
        let paths = |setting: &Setting<Vec<String>>| {
            let paths: Vec<PathBuf> = setting.value.iter().map(PathBuf::from).collect();
            (!paths.is_empty()).then_some(paths)
        };
        PolicyPatch {
            // Checked when it was read.
            profile: self.profile.value.parse().ok(),
            network: Some(self.network.value),
            // Absent by default, so that safe mode can tell whether the user has set it.
            web_search: (self.web_search.origin != Origin::Default)
                .then(|| self.web_search.value.parse().ok())
                .flatten(),
            writable_roots: paths(&self.writable),
            hidden: paths(&self.hidden),
        }
    }
}

/// What all sessions together, and the commands of one, may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSettings {
    /// Commands that run at the same time, over all sessions.
    pub commands: Setting<usize>,
    /// Background jobs that run at the same time, over all sessions.
    pub jobs: Setting<usize>,
    /// Processes that the commands of one session may have.
    pub processes: Setting<usize>,
    /// Processes that the commands of all sessions may have, where the kernel counts them.
    pub total_processes: Setting<usize>,
    /// Memory that all processes of one session may have together, in MiB; 0 for no limit.
    pub session_memory_mb: Setting<usize>,
    /// Processor time that each process of a command may use; zero for no limit.
    pub cpu: Setting<Duration>,
    /// Largest file that a command may write, in MiB; 0 for no limit.
    pub file_mb: Setting<usize>,
    /// What the files with long outputs of all sessions may have together, in MiB.
    pub spill_mb: Setting<usize>,
}

/// What is kept, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepSettings {
    /// How long files with long outputs are kept.
    pub outputs: Setting<Duration>,
    /// How long originals of replaced files are.
    pub undo: Setting<Duration>,
    /// What the originals of all sessions may have together, in MiB.
    pub undo_mb: Setting<usize>,
    /// What has to be free on the disk of the state directory, in MiB; 0 for nothing.
    pub min_free_mb: Setting<usize>,
}

/// Where the commands' environment comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentSettings {
    /// Whether the user's login shell is asked for it.
    pub login_shell: Setting<bool>,
}

/// The user's own agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PiSettings {
    /// Its executable, or a name to look for; empty for `pi`.
    pub binary: Setting<String>,
    /// The model; empty for none.
    pub model: Setting<String>,
    /// The provider; empty for none.
    pub provider: Setting<String>,
    /// How much the model thinks.
    pub thinking: Setting<String>,
    /// `attach` or `say`.
    pub start: Setting<String>,
    /// Pis that may live at the same time.
    pub max_live: Setting<usize>,
    /// Whether a Pi before 0.79 may be started.
    pub allow_old: Setting<bool>,
    /// Names of variables of the login shell that it gets besides.
    pub env: Setting<Vec<String>>,
}

/// The daemon's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// A filter of `tracing`: a level, or `target=level`, several separated by commas.
    pub level: Setting<String>,
}

/// The daemon's numbers over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsSettings {
    /// A loopback address and a port, 0 for one that is free, as `SocketAddr` reads it; empty for none.
    pub listen: Setting<String>,
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
                evict_below_mb: Setting::default_of(EVICT_BELOW_MB),
                launcher: Setting::default_of(Vec::new()),
            },
            tools: ToolSettings {
                default_timeout: Setting::default_of(DEFAULT_TOOL_DEADLINE),
                respect_ignore_files: Setting::default_of(false),
                env: Setting::default_of(Vec::new()),
            },
            sandbox: SandboxSettings {
                profile: Setting::default_of(Profile::default().name().to_owned()),
                network: Setting::default_of(false),
                web_search: Setting::default_of(WebSearchRule::default().name().to_owned()),
                writable: Setting::default_of(Vec::new()),
                hidden: Setting::default_of(Vec::new()),
                tier: Setting::default_of("auto".to_owned()),
            },
            limits: LimitSettings {
                commands: Setting::default_of(MAX_COMMANDS),
                jobs: Setting::default_of(MAX_JOBS),
                processes: Setting::default_of(MAX_PROCESSES_PER_SESSION),
                total_processes: Setting::default_of(MAX_PROCESSES),
                session_memory_mb: Setting::default_of(0),
                cpu: Setting::default_of(Duration::ZERO),
                file_mb: Setting::default_of(0),
                spill_mb: Setting::default_of(mebibytes(MAX_SPILLS_BYTES)),
            },
            keep: KeepSettings {
                outputs: Setting::default_of(OUTPUTS_KEPT),
                undo: Setting::default_of(UNDO_KEPT),
                undo_mb: Setting::default_of(mebibytes(MAX_UNDO_BYTES)),
                min_free_mb: Setting::default_of(mebibytes(MIN_FREE_BYTES)),
            },
            environment: EnvironmentSettings { login_shell: Setting::default_of(true) },
            pi: PiSettings {
                binary: Setting::default_of(String::new()),
                model: Setting::default_of(String::new()),
                provider: Setting::default_of(String::new()),
                thinking: Setting::default_of("off".to_owned()),
                start: Setting::default_of("attach".to_owned()),
                max_live: Setting::default_of(MAX_PIS),
                allow_old: Setting::default_of(false),
                env: Setting::default_of(Vec::new()),
            },
            log: LogSettings { level: Setting::default_of("info".to_owned()) },
            metrics: MetricsSettings { listen: Setting::default_of(String::new()) },
            web_search: WebSearchSettings {
                endpoint: Setting::default_of("https://api.exa.ai/search".to_owned()),
            },
        }
    }
}

fn mebibytes(bytes: u64) -> usize {
    usize::try_from(bytes / (1024 * 1024)).unwrap_or(usize::MAX)
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
