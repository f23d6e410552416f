//! Result of confining a worker: created by `platform`, used by the executor.

use quackd_process::{KeptTerminal, SelfExe, SpawnThread};
use quackd_protocol::policy::Policy;
use quackd_protocol::worker::SandboxReport;
use quackd_sandbox::Seatbelt;
use quackd_sandbox::audit::Known;
use quackd_sandbox::confine::{MountSources, PrivateNetwork};
use quackd_tools::UserGit;
use std::ffi::OsString;
use std::path::PathBuf;

/// State of a worker after confinement, or after a start without confinement.
#[derive(Debug)]
pub(crate) struct ConfinementResult {
    /// Report of the confinement in force.
    pub(crate) report: SandboxReport,
    /// Path of an isolated session's copy, if commands do not see it at the path of the workspace.
    pub(crate) copy: Option<PathBuf>,
    /// Policy of the tools, if it is not that of the first frame.
    pub(crate) policy: Option<Policy>,
    /// True if the worker is confined.
    pub(crate) is_confined: bool,
    /// Process id of the worker in the supervisor's namespace.
    pub(crate) pid: u32,
    /// Variables of commands that replace those from the supervisor.
    pub(crate) env: Vec<(&'static str, String)>,
    /// Paths with a mount that hides them or something in them, or keeps them from being moved.
    pub(crate) pins: Vec<PathBuf>,
    /// Paths with a mount that keeps their content from being changed.
    pub(crate) read_only_pins: Vec<PathBuf>,
    /// Hidden paths that did not exist at the start. The next worker hides them if they appear.
    pub(crate) absent: Vec<PathBuf>,
    /// Mounts whose files of the host may be replaced while the worker runs.
    pub(crate) sources: Option<MountSources>,
    /// The home inside, if it exists only as long as the worker.
    pub(crate) private_home: Option<PathBuf>,
    /// Whether `/tmp`, `/var/tmp` and `/dev/shm` exist only as long as the worker.
    pub(crate) has_private_tmp: bool,
    /// The only terminal of the session. `None`: it has its own set of terminals, or none.
    pub(crate) terminal: Option<KeptTerminal>,
    /// Words in front of every command.
    pub(crate) command_words: Vec<OsString>,
    /// Profile of commands in tier M.
    pub(crate) profile: Option<Seatbelt>,
    /// Words in front of every command that must not write. Empty if the kernel does not support it.
    pub(crate) read_only_words: Vec<OsString>,
    /// The executable that these words name. Open as long as the worker runs.
    pub(crate) exe: Option<SelfExe>,
    /// Thread that launches commands, with their system call filter and their OOM score.
    pub(crate) spawn_thread: Option<SpawnThread>,
    /// Repositories that existed before any tool ran. `None` if the workspace was not searched.
    pub(crate) known: Option<Known>,
    /// Settings of the user for git that the worker's own tools apply.
    pub(crate) user_git: UserGit,
    /// Sockets and counters of a separate network namespace.
    pub(crate) private_network: Option<PrivateNetwork>,
}

impl ConfinementResult {
    /// Returns the result of a confinement without mounts, wrappers and variables. The caller sets the tier, and what
    /// the confinement has in addition.
    pub(crate) fn new(policy: &Policy, notes: Vec<String>, user_git: UserGit) -> Self {
        let report = SandboxReport {
            tier: None,
            policy: Some(policy.profile),
            network: policy.network,
            hosts: false,
            git: None,
            notes,
        };

        Self {
            report,
            copy: None,
            policy: None,
            is_confined: true,
            pid: std::process::id(),
            env: Vec::new(),
            pins: Vec::new(),
            read_only_pins: Vec::new(),
            absent: Vec::new(),
            sources: None,
            private_home: None,
            has_private_tmp: false,
            terminal: None,
            command_words: Vec::new(),
            profile: None,
            read_only_words: Vec::new(),
            exe: None,
            spawn_thread: None,
            known: None,
            user_git,
            private_network: None,
        }
    }

    /// Port of the network proxy on 127.0.0.1. `None` if no proxy is served.
    pub(crate) fn proxy_port(&self) -> Option<u16> {
        self.private_network.as_ref().filter(|_| self.report.hosts).map(|network| network.port)
    }
}
