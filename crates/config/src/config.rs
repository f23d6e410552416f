//! The configuration as types. Combines the defaults, the file and the environment, in this order. Read once by the
//! supervisor at its start, and by `quack config`.

use crate::{
    CheckpointChoice, CredentialSettings, Dollars, FarSettings, ForwardSettings,
    GuestAgentSettings, IsolatedSettings, Origin, RemoteSettings, RunSettings, Secret, Setting,
};
use quackd_engines::Engine;
use quackd_protocol::approval::ApprovalKind;
use quackd_protocol::limits::{
    DEFAULT_TOOL_DEADLINE, EVICT_BELOW_MB, JOURNAL_KEPT, MAX_CACHES_BYTES, MAX_COMMANDS, MAX_JOBS,
    MAX_JOURNAL_BYTES, MAX_PIS, MAX_PROCESSES, MAX_PROCESSES_PER_SESSION, MAX_SPILLS_BYTES,
    MAX_UNDO_BYTES, MAX_WORKERS, MIN_FREE_BYTES, OUTPUTS_KEPT, UNDO_KEPT, WORKER_IDLE_TTL,
};
use quackd_protocol::mcp::McpServer;
use quackd_protocol::model::ModelApi;
use quackd_protocol::network::MAX_CONNECTION_WAIT;
use quackd_protocol::policy::{NetworkMode, PolicyPatch, Profile, WebSearchRule};
use quackd_protocol::tiers::Tier;
use std::path::PathBuf;
use std::time::Duration;

/// Every setting, validated. A subcommand with a flag for a setting applies the flag afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[worker]`
    pub worker: WorkerSettings,
    /// `[tools]`
    pub tools: ToolSettings,
    /// `[far]`
    pub far: FarSettings,
    /// `[sandbox]`
    pub sandbox: SandboxSettings,
    /// `[credentials]`
    pub credentials: CredentialSettings,
    /// `[limits]`
    pub limits: LimitSettings,
    /// `[keep]`
    pub keep: KeepSettings,
    /// `[isolated]`
    pub isolated: IsolatedSettings,
    /// `[environment]`
    pub environment: EnvironmentSettings,
    /// `[agent]`
    pub agent: AgentSettings,
    /// `[model]`
    pub model: ModelSettings,
    /// `[pi]`
    pub pi: PiSettings,
    /// `[log]`
    pub log: LogSettings,
    /// `[forward]`
    pub forward: ForwardSettings,
    /// `[metrics]`
    pub metrics: MetricsSettings,
    /// `[remote]`
    pub remote: RemoteSettings,
    /// `[run]`
    pub run: RunSettings,
    /// `[web_search]`
    pub web_search: WebSearchSettings,
    /// `[mcp_servers.NAME]`, in the order of the file. At most [`quackd_protocol::mcp::MAX_MCP_SERVERS`].
    pub mcp_servers: Vec<Setting<McpServer>>,
    /// `[agents.NAME]`, in the order of the file. At most 32.
    pub agents: Vec<Setting<GuestAgentSettings>>,
    /// `[engines.NAME]`, in the order of the file. At most 32.
    pub engine_rows: Vec<Setting<Engine>>,
    /// Names of keys of an untrusted file that are not in force, with their place; see [`crate::load_untrusted_blocking`].
    pub ignored: Vec<(String, Origin)>,
}

/// Start and eviction of workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSettings {
    /// Idle time before a worker is evicted, 1 minute to 24 hours.
    pub idle: Setting<Duration>,
    /// Maximum number of live workers, 1 to [`MAX_WORKERS`].
    pub max_live: Setting<usize>,
    /// Available memory in MiB below which idle workers are evicted; 0 for never.
    pub evict_below_mb: Setting<usize>,
    /// Words before the command line of a worker. Empty by default. The first word must not be empty.
    pub launcher: Setting<Vec<String>>,
}

/// Defaults of tool calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSettings {
    /// Deadline of a call that sets none, 1 to 600 s.
    pub default_timeout: Setting<Duration>,
    /// Whether `grep_search` skips files that match ignore files.
    pub respect_ignore_files: Setting<bool>,
    /// Names of variables that commands get in addition to the usual ones.
    pub env: Setting<Vec<String>>,
}

/// Default permissions of workers. A workspace or session may override them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    /// File access.
    pub profile: Setting<Profile>,
    /// Network access of commands.
    pub network: Setting<NetworkMode>,
    /// Rules of the hosts for [`NetworkMode::Hosts`].
    pub hosts: Setting<Vec<String>>,
    /// Whether programs that use no proxy reach allowed hosts.
    pub transparent: Setting<bool>,
    /// Whether connections to allowed hosts go through the proxy that the daemon's environment names.
    pub upstream_proxy: Setting<UpstreamChoice>,
    /// Whether sessions may search the web.
    pub web_search: Setting<WebSearchRule>,
    /// Writable directories in addition to the workspace.
    pub writable: Setting<Vec<String>>,
    /// Hidden files and directories.
    pub hidden: Setting<Vec<String>>,
    /// Names of the kinds of operations about which the user is asked.
    pub ask: Setting<Vec<String>>,
    /// Time for an answer of the user, 5 to 600 s.
    pub ask_wait: Setting<Duration>,
    /// The highest tier that is tried. `None` for the best that the system supports.
    pub tier: Setting<Option<Tier>>,
}

impl SandboxSettings {
    /// Whether the user is asked about denied operations of this kind.
    #[must_use]
    pub fn asks_about(&self, kind: ApprovalKind) -> bool {
        self.ask.value.iter().any(|name| name == kind.name())
    }

    /// Returns these settings as the lowest layer of every session's policy.
    #[must_use]
    pub fn patch(&self) -> PolicyPatch {
        let paths = |setting: &Setting<Vec<String>>| {
            let paths: Vec<PathBuf> = setting.value.iter().map(PathBuf::from).collect();
            (!paths.is_empty()).then_some(paths)
        };

        PolicyPatch {
            profile: Some(self.profile.value),
            network: Some(self.network.value),
            // Absent by default, so that safe mode can tell whether the user has set it.
            web_search: (self.web_search.origin != Origin::Default)
                .then_some(self.web_search.value),
            hosts: (!self.hosts.value.is_empty()).then(|| self.hosts.value.clone()),
            writable_roots: paths(&self.writable),
            hidden: paths(&self.hidden),
        }
    }
}

/// Resource limits of all sessions together, and of the commands of one session.
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
    /// Memory that all processes of one session may have together, in MiB; 0 for no limit. `None`: it depends on the
    /// machine.
    pub session_memory_mb: Setting<Option<usize>>,
    /// Processor time that each process of a command may use; zero for no limit.
    pub cpu: Setting<Duration>,
    /// Maximum size of a file that a command writes, in MiB; 0 for no limit.
    pub file_mb: Setting<usize>,
    /// Total size of the spill files of all sessions, in MiB.
    pub spill_mb: Setting<usize>,
}

/// Retention of files, and their total size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepSettings {
    /// Retention of spill files.
    pub outputs: Setting<Duration>,
    /// Retention of the originals of replaced files.
    pub undo: Setting<Duration>,
    /// Total size of the originals of all sessions, in MiB.
    pub undo_mb: Setting<usize>,
    /// Sessions whose files' states are recorded after calls.
    pub checkpoints: Setting<CheckpointChoice>,
    /// Total size of the package caches of all workspaces, in MiB; 0 for none.
    pub caches_mb: Setting<usize>,
    /// Retention of the journal of calls; zero for no journal.
    pub journal: Setting<Duration>,
    /// Total size of the journal of calls, in MiB.
    pub journal_mb: Setting<usize>,
    /// Free space required on the disk of the state directory, in MiB; 0 for none.
    pub min_free_mb: Setting<usize>,
}

/// Source of the commands' environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentSettings {
    /// Whether to capture the environment of the user's login shell.
    pub login_shell: Setting<bool>,
}

/// The agent of a session's turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSettings {
    /// Agent that runs turns.
    pub engine: Setting<EngineChoice>,
    /// Maximum number of requests to the model in one run, 1 to 10,000.
    pub max_turns: Setting<usize>,
    /// Maximum cost of a run; zero for no limit.
    pub max_cost_usd: Setting<Dollars>,
    /// Maximum cost of a day, over all sessions; zero for no limit.
    pub max_cost_usd_per_day: Setting<Dollars>,
    /// Maximum number of further attempts after a failed request, 0 to 10.
    pub retries: Setting<usize>,
    /// Whether long conversations are summarized.
    pub compaction: Setting<bool>,
    /// Whether calls of one answer run at the same time.
    pub parallel_tools: Setting<bool>,
}

/// Choice of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineChoice {
    /// The agent of quackd if a model is configured and no Pi is named, otherwise Pi.
    Auto,
    /// The agent of quackd.
    Native,
    /// The user's Pi.
    Pi,
}

impl EngineChoice {
    pub(crate) const ALL: [Self; 3] = [Self::Auto, Self::Native, Self::Pi];

    /// Returns the word in the file and on the wire.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Pi => "pi",
        }
    }

    /// Returns the choice with this word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.word() == word)
    }
}

/// The model of quackd's own agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSettings {
    /// Id of the model, optionally after its provider and a slash; empty for none.
    pub name: Setting<String>,
    /// Provider of the model; empty for none.
    pub provider: Setting<String>,
    /// Base URL of the provider; empty for the usual one.
    pub base_url: Setting<String>,
    /// API of the provider; `None` for the usual one.
    pub api: Setting<Option<ModelApi>>,
    /// Key of the provider; empty for none.
    pub key: Setting<Secret>,
    /// Thinking level; empty for the one of Pi.
    pub thinking: Setting<String>,
    /// Maximum tokens of input and output together; 0 for the known value.
    pub context_window: Setting<usize>,
    /// Maximum tokens of an answer; 0 for the known value.
    pub max_tokens: Setting<usize>,
    /// Maximum time without a byte of the provider.
    pub idle_timeout: Setting<Duration>,
}

/// The user's agent, Pi.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PiSettings {
    /// Path of the executable, or a name in `PATH`; empty for `pi`.
    pub binary: Setting<String>,
    /// The model; empty for none.
    pub model: Setting<String>,
    /// The provider; empty for none.
    pub provider: Setting<String>,
    /// Thinking level of the model.
    pub thinking: Setting<String>,
    /// Event with which Pi starts.
    pub start: Setting<PiStart>,
    /// Maximum number of live Pi processes.
    pub max_live: Setting<usize>,
    /// Whether a Pi before 0.79 may be started.
    pub allow_old: Setting<bool>,
    /// Names of further variables of the login shell that Pi gets.
    pub env: Setting<Vec<String>>,
}

impl Default for PiSettings {
    fn default() -> Self {
        Self {
            binary: Setting::default_of(String::new()),
            model: Setting::default_of(String::new()),
            provider: Setting::default_of(String::new()),
            thinking: Setting::default_of("off".to_owned()),
            start: Setting::default_of(PiStart::Attach),
            max_live: Setting::default_of(MAX_PIS),
            allow_old: Setting::default_of(false),
            env: Setting::default_of(Vec::new()),
        }
    }
}

/// Start of a session's Pi.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PiStart {
    /// In the background when a client attaches.
    Attach,
    /// With the first `say`.
    Say,
}

impl PiStart {
    pub(crate) const ALL: [Self; 2] = [Self::Attach, Self::Say];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Attach => "attach",
            Self::Say => "say",
        }
    }
}

/// Path of connections to allowed hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpstreamChoice {
    /// Through the proxy that the daemon's environment names, if it names one.
    #[default]
    Environment,
    /// Commands connect directly.
    None,
}

impl UpstreamChoice {
    pub(crate) const ALL: [Self; 2] = [Self::Environment, Self::None];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::None => "none",
        }
    }
}

/// The daemon's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// A filter of `tracing`: a level, or `target=level`, several separated by commas.
    pub level: Setting<String>,
}

/// Metrics of the daemon over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsSettings {
    /// A loopback address and a port in the syntax of `SocketAddr`. Port 0 means any free port. Empty for none.
    pub listen: Setting<String>,
}

/// Web searches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSearchSettings {
    /// An https address, or an http one on this machine.
    pub endpoint: Setting<String>,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            engine: Setting::default_of(EngineChoice::Auto),
            max_turns: Setting::default_of(200),
            max_cost_usd: Setting::default_of(Dollars::default()),
            max_cost_usd_per_day: Setting::default_of(Dollars::default()),
            retries: Setting::default_of(3),
            compaction: Setting::default_of(true),
            parallel_tools: Setting::default_of(true),
        }
    }
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            name: Setting::default_of(String::new()),
            provider: Setting::default_of(String::new()),
            base_url: Setting::default_of(String::new()),
            api: Setting::default_of(None),
            key: Setting::default_of(Secret::default()),
            thinking: Setting::default_of(String::new()),
            context_window: Setting::default_of(0),
            max_tokens: Setting::default_of(0),
            idle_timeout: Setting::default_of(Duration::from_secs(300)),
        }
    }
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
            far: FarSettings::default(),
            sandbox: SandboxSettings {
                profile: Setting::default_of(Profile::default()),
                network: Setting::default_of(NetworkMode::default()),
                hosts: Setting::default_of(Vec::new()),
                transparent: Setting::default_of(true),
                upstream_proxy: Setting::default_of(UpstreamChoice::default()),
                web_search: Setting::default_of(WebSearchRule::default()),
                writable: Setting::default_of(Vec::new()),
                hidden: Setting::default_of(Vec::new()),
                ask: Setting::default_of(ApprovalKind::ALL.map(|kind| kind.name().into()).into()),
                ask_wait: Setting::default_of(MAX_CONNECTION_WAIT),
                tier: Setting::default_of(None),
            },
            credentials: CredentialSettings::default(),
            limits: LimitSettings {
                commands: Setting::default_of(MAX_COMMANDS),
                jobs: Setting::default_of(MAX_JOBS),
                processes: Setting::default_of(MAX_PROCESSES_PER_SESSION),
                total_processes: Setting::default_of(MAX_PROCESSES),
                session_memory_mb: Setting::default_of(None),
                cpu: Setting::default_of(Duration::ZERO),
                file_mb: Setting::default_of(0),
                spill_mb: Setting::default_of(mebibytes(MAX_SPILLS_BYTES)),
            },
            keep: KeepSettings {
                outputs: Setting::default_of(OUTPUTS_KEPT),
                undo: Setting::default_of(UNDO_KEPT),
                undo_mb: Setting::default_of(mebibytes(MAX_UNDO_BYTES)),
                checkpoints: Setting::default_of(CheckpointChoice::default()),
                caches_mb: Setting::default_of(mebibytes(MAX_CACHES_BYTES)),
                journal: Setting::default_of(JOURNAL_KEPT),
                journal_mb: Setting::default_of(mebibytes(MAX_JOURNAL_BYTES)),
                min_free_mb: Setting::default_of(mebibytes(MIN_FREE_BYTES)),
            },
            isolated: IsolatedSettings::default(),
            environment: EnvironmentSettings { login_shell: Setting::default_of(true) },
            agent: AgentSettings::default(),
            model: ModelSettings::default(),
            pi: PiSettings::default(),
            log: LogSettings { level: Setting::default_of("info".to_owned()) },
            forward: ForwardSettings { listen: Setting::default_of("127.0.0.1:43112".to_owned()) },
            metrics: MetricsSettings { listen: Setting::default_of(String::new()) },
            remote: RemoteSettings::default(),
            run: RunSettings::default(),
            web_search: WebSearchSettings {
                endpoint: Setting::default_of("https://api.exa.ai/search".to_owned()),
            },
            mcp_servers: Vec::new(),
            agents: Vec::new(),
            engine_rows: Vec::new(),
            ignored: Vec::new(),
        }
    }
}

fn mebibytes(bytes: u64) -> usize {
    usize::try_from(bytes / (1024 * 1024)).unwrap_or(usize::MAX)
}
