//! Resources of a session's tools.
//!
//! Owns the handle of the workspace, and the versions of files that were read or written. The workspace is
//! opened at first use, and again when its directory was replaced. Created once per worker.

use crate::call_limits::CallLimits;
use crate::lost_files::LostFiles;
use crate::mcp::McpServers;
use crate::read_tracker::ReadTracker;
use crate::replace::journal::{Journal, Plans};
use crate::replaced_files::ReplacedFiles;
use crate::temporary_files::TemporaryFiles;
use crate::upstreams::Upstreams;
use crate::watched_names::WatchedFiles;
use crate::{Attempts, Call, Confinement, Jobs, Output, Web};
use quackd_process::{Group, Limits, SpawnThread};
use quackd_protocol::approval::ApprovalKind;
use quackd_protocol::denial::of_session;
use quackd_protocol::policy::Profile;
use quackd_protocol::tiers::Tier;
use quackd_protocol::tools;
use quackd_protocol::worker::{SandboxReport, ToolReport};
use quackd_sandbox::Root;
use quackd_sandbox::audit::Known;
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Settings of the user for git that the tools apply.
#[derive(Debug, Clone, Default)]
pub struct UserGit {
    /// Text of the file of names that git ignores in every repository. `None` for the file that this process finds by its
    /// home.
    pub excludes: Option<String>,
    /// Whether the user's commits are signed, and those of the session are not: it has no key.
    pub signs_commits: bool,
}

/// Resources of a session's tools.
#[derive(Debug)]
pub struct Toolbox {
    pub(crate) workspace: PathBuf,
    /// See [`Toolbox::in_copy`].
    other_name: Option<PathBuf>,
    pub(crate) run_dir: PathBuf,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) safe_mode: bool,
    pub(crate) respect_ignore_files: bool,
    pub(crate) seen: Arc<ReadTracker>,
    pub(crate) web: Option<Web>,
    pub(crate) jobs: Jobs,
    pub(crate) mcp: McpServers,
    /// Words before a command that keep it from writing; see [`Toolbox::with_read_only_words`].
    read_only_words: Vec<OsString>,
    /// See [`Toolbox::with_pins`].
    pins: Arc<[PathBuf]>,
    /// See [`Toolbox::with_pins`].
    read_only_pins: Arc<[PathBuf]>,
    /// See [`Toolbox::with_pins`].
    absent: Arc<[PathBuf]>,
    /// See [`Toolbox::with_command_words`].
    command_words: Vec<OsString>,
    pub(crate) limits: Limits,
    pub(crate) group: Option<Arc<Group>>,
    pub(crate) spawn_thread: Option<Arc<SpawnThread>>,
    pub(crate) confinement: Arc<Confinement>,
    pub(crate) sandbox: SandboxReport,
    pub(crate) watched: WatchedFiles,
    pub(crate) lost: LostFiles,
    replaced: Option<Arc<ReplacedFiles>>,
    pub(crate) temporary: TemporaryFiles,
    /// Whether the user's commits are signed, and those of the session are not.
    pub(crate) signs_commits: bool,
    /// Upstreams of branches that git could not write to a repository's settings.
    pub(crate) upstreams: Upstreams,
    pub(crate) attempts: Arc<Attempts>,
    /// Originals of replaced files, for undo.
    pub(crate) journal: Arc<Journal>,
    /// Plans of dry runs, so that exactly those can be applied.
    pub(crate) plans: Arc<Plans>,
    root: RefCell<Option<Arc<Root>>>,
}

/// Most commands that are named to end background jobs.
const MAX_ENDS: usize = 4;

impl Toolbox {
    /// Creates a toolbox without file access.
    ///
    /// `run_dir` is the session's private directory. Long outputs are written there, and read_file may read it.
    /// `env` is the complete environment of commands. `safe_mode` restricts every call.
    #[must_use]
    pub fn new(
        workspace: PathBuf,
        run_dir: PathBuf,
        env: Vec<(String, String)>,
        safe_mode: bool,
    ) -> Self {
        let seen = Arc::new(ReadTracker::kept_at(run_dir.join("seen.jsonl")));
        let root = RefCell::new(None);
        let respect_ignore_files = false;
        let (web, jobs) = (None, Jobs::kept_at(&run_dir));
        let (journal, plans) = (Journal::kept_in(run_dir.clone()), Plans::default());
        let (limits, group) = (Limits::default(), None);
        let confinement = Arc::default();
        let upstreams = Upstreams::kept_in(&run_dir);
        let (read_only_words, command_words) = (Vec::new(), Vec::new());
        let (sandbox, watched) = (unconfined(), WatchedFiles::default());
        Self {
            workspace,
            other_name: None,
            run_dir,
            env,
            safe_mode,
            respect_ignore_files,
            seen,
            web,
            jobs,
            mcp: McpServers::default(),
            read_only_words,
            command_words,
            pins: Arc::new([]),
            read_only_pins: Arc::new([]),
            absent: Arc::new([]),
            limits,
            group,
            spawn_thread: None,
            confinement,
            sandbox,
            watched,
            lost: LostFiles::default(),
            replaced: None,
            temporary: TemporaryFiles::default(),
            signs_commits: false,
            upstreams,
            attempts: Arc::default(),
            journal: Arc::new(journal),
            plans: Arc::new(plans),
            root,
        }
    }

    /// Sets the client for `web_search`. Without it, the tool answers that the key is missing.
    #[must_use]
    pub fn with_web(mut self, web: Web) -> Self {
        self.web = Some(web);
        self
    }

    /// Sets the resource limits of each command. Default: [`Limits::default`].
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the session's control group. Each command gets a separate child group.
    #[must_use]
    pub fn with_group(mut self, group: Option<Arc<Group>>) -> Self {
        self.group = group;
        self
    }

    /// Launches commands on a separate thread, which sets their filter and score. By default they start on the
    /// calling thread.
    #[must_use]
    pub fn with_spawn_thread(mut self, thread: SpawnThread) -> Self {
        self.spawn_thread = Some(Arc::new(thread));
        self
    }

    /// Sets the permissions of the session and whether the kernel enforces them. By default, everything is
    /// allowed.
    #[must_use]
    pub fn with_confinement(mut self, confinement: Confinement) -> Self {
        self.confinement = Arc::new(confinement);
        self
    }

    /// The session's confinement.
    #[must_use]
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// Shares the attempts to use the network, which the worker fills.
    #[must_use]
    pub fn with_attempts(mut self, attempts: Arc<Attempts>) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets the names that are protected by mounts, those of them that are only protected from being changed, and the
    /// hidden names that do not exist. A call is rejected if one of the first is no longer mounted, or one of the last
    /// exists: the next worker protects it. Tools that only read do not need the second.
    #[must_use]
    pub fn with_pins(
        mut self,
        pins: Vec<PathBuf>,
        read_only: Vec<PathBuf>,
        absent: Vec<PathBuf>,
    ) -> Self {
        self.pins = pins.into();
        self.read_only_pins = read_only.into();
        self.absent = absent.into();
        self
    }

    /// Makes all tools work in a copy of the workspace. Clients may name its files by the path of the workspace.
    #[must_use]
    pub fn in_copy(mut self, copy: Option<PathBuf>) -> Self {
        if let Some(copy) = copy {
            self.other_name = Some(std::mem::replace(&mut self.workspace, copy));
        }
        self
    }

    /// Returns the copy of the workspace, if it has another path than the workspace.
    pub(crate) fn copy(&self) -> Option<&Path> {
        self.other_name.as_ref().map(|_| self.workspace.as_path())
    }

    /// Sets the mounts whose files of the host may be replaced while this worker runs. The next worker shows the new files.
    #[must_use]
    pub fn with_sources(mut self, sources: Option<quackd_sandbox::confine::MountSources>) -> Self {
        self.replaced = sources.map(|sources| Arc::new(ReplacedFiles::new(sources)));
        self
    }

    /// The files of the host that the worker shows, unless background jobs keep the worker anyway.
    pub(crate) fn replaceable(&self) -> Option<Arc<ReplacedFiles>> {
        let has_jobs = || self.jobs.all().iter().any(|job| job.is_running());
        self.replaced.clone().filter(|_| !has_jobs())
    }

    /// Returns the answer of a call that was not run because files of the host were replaced.
    pub(crate) fn outdated() -> Output {
        let answer = Output::error(
            "files of the system were replaced since this worker started. The call was not run, try again",
        );
        let report = ToolReport { files_replaced: true, not_run: true, ..answer.report };
        Output { report, ..answer }
    }

    /// Creates the answer of a call that was not run because a protected name was replaced. The next worker
    /// protects it again.
    fn bare_name(&self, name: &Path) -> Output {
        let of = of_session(&self.confinement.session);
        let running = self.jobs.all().into_iter().filter(|job| job.is_running());
        let ends: Vec<_> =
            running.take(MAX_ENDS).map(|job| format!("quack jobs kill {}{of}", job.id)).collect();
        let way = if ends.is_empty() {
            String::new()
        } else {
            format!(": job_kill, or {}", ends.join("; "))
        };
        let answer = Output::error(format_args!(
            "'{}' was created or replaced and has to be protected anew. The call was not run, \
             try again when no background job runs{way}",
            name.display()
        ));
        Self::to_next_worker(answer)
    }

    /// Sets the words before every command: a program that confines itself and then executes the command. Not
    /// used if the worker itself is confined.
    #[must_use]
    pub fn with_command_words(mut self, words: Vec<OsString>) -> Self {
        self.command_words = words;
        self
    }

    /// Returns a program and its arguments with the command words.
    pub(crate) fn confined(
        &self,
        program: OsString,
        args: Vec<OsString>,
    ) -> (OsString, Vec<OsString>) {
        after(&self.command_words, program, args)
    }

    /// Sets the words that keep a command from writing, for safe mode of a single call. Without them, only the
    /// list of allowed commands applies.
    #[must_use]
    pub fn with_read_only_words(mut self, words: Vec<OsString>) -> Self {
        self.read_only_words = words;
        self
    }

    /// Returns a program and its arguments with the read-only words, unless the session is read-only anyway.
    pub(crate) fn kept_from_writing(
        &self,
        program: OsString,
        args: Vec<OsString>,
    ) -> (OsString, Vec<OsString>) {
        if self.must_keep_from_writing() {
            after(&self.read_only_words, program, args)
        } else {
            self.confined(program, args)
        }
    }

    /// Whether a command of safe mode is started by another program.
    pub(crate) fn must_keep_from_writing(&self) -> bool {
        let is_read_only = self.confinement.policy.profile == Profile::ReadOnly;
        !self.read_only_words.is_empty() && !is_read_only
    }

    /// Sets the confinement in force, and the repositories found at the start. By default, they are searched
    /// for when the workspace is first opened.
    #[must_use]
    pub fn with_sandbox(mut self, report: SandboxReport, known: Option<Known>) -> Self {
        self.sandbox = report;
        self.watched.knowing(known);
        self
    }

    /// Sets the private home of the session, if it has one, before any command runs. Files in it are lost with the worker.
    #[must_use]
    pub fn with_private_home_blocking(mut self, home: Option<PathBuf>) -> Self {
        self.lost = home.map(LostFiles::in_home_blocking).unwrap_or_default();
        self
    }

    /// Sets that `/tmp` and its like exist only as long as the worker, before any command runs.
    #[must_use]
    pub fn with_private_temporary_files_blocking(mut self, are_private: bool) -> Self {
        self.temporary = if are_private {
            TemporaryFiles::private_blocking()
        } else {
            TemporaryFiles::default()
        };
        self
    }

    /// Applies settings of the user for git, before the first search of this process.
    #[must_use]
    pub fn with_user_git(mut self, git: UserGit) -> Self {
        if let Some(excludes) = &git.excludes {
            quackd_search::set_user_excludes(excludes);
        }
        self.signs_commits = git.signs_commits;
        self
    }

    /// Makes `grep_search` respect ignore files.
    #[must_use]
    pub fn respecting_ignore_files(mut self, respect: bool) -> Self {
        self.respect_ignore_files = respect;
        self
    }

    /// Returns the session's background jobs.
    #[must_use]
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// Returns the refusal of a call that may not change files, regardless of its arguments.
    pub(crate) fn refuse_change(&self, call: &Call, tool: &str) -> Option<Output> {
        if self.safe_mode || call.safe_mode {
            let refused = Output::error(format_args!("{tool} is disabled in safe mode"));
            return Some(refused.may_ask(ApprovalKind::SafeMode));
        }
        self.confinement.refuse_unconfined(tool)
    }

    /// Runs `work` in the current workspace, on the blocking thread that has checked the workspace. A missing directory
    /// may be created again later.
    ///
    /// # Errors
    /// The answer of a call that was not run.
    pub(crate) async fn in_root<T: Send + 'static>(
        &self,
        tool: &str,
        bounds: &CallLimits,
        work: impl FnOnce(Arc<Root>) -> T + Send + 'static,
    ) -> Result<T, Output> {
        let cached = self.root.borrow().clone();
        let (workspace, watched) = (self.workspace.clone(), self.watched.clone());
        let (other_name, confinement) = (self.other_name.clone(), Arc::clone(&self.confinement));
        let (pins, absent) = (Arc::clone(&self.pins), Arc::clone(&self.absent));
        let read_only = if tools::find(tool).is_some_and(|tool| tool.reads_only) {
            Arc::default()
        } else {
            Arc::clone(&self.read_only_pins)
        };
        let (current, done) = bounds
            .run_blocking(move || {
                let current = match cached {
                    Some(root) if !root.is_stale() => Some(root),
                    Some(_) | None => {
                        let root = Root::open(&workspace).ok();
                        let root = root.map(|root| {
                            let root = root.with_other_name(other_name);
                            Arc::new(root.with_hidden(confinement.hidden_from_tools()))
                        });
                        root.inspect(|root| watched.begin_blocking(root))
                    }
                };
                let done = match (current.clone(), first_bare_blocking(&pins, &read_only, &absent))
                {
                    (None, _) => Err(None),
                    (Some(_), Some(bare)) => Err(Some(bare)),
                    (Some(root), None) => Ok(work(root)),
                };
                (current, done)
            })
            .await
            .map_err(|cutoff| Output::cut_off(tool, bounds, cutoff))?;
        self.root.replace(current);
        done.map_err(|bare| match bare {
            Some(bare) => self.bare_name(&bare),
            None => self.not_accessible(),
        })
    }

    /// Runs `work` in the current workspace, on the calling thread. `work` must not wait for a disk. Returns `None` if
    /// [`Toolbox::in_root`] has to do it.
    pub(crate) fn in_known_root<T>(
        &self,
        bounds: &CallLimits,
        work: impl FnOnce(&Root) -> Option<T>,
    ) -> Option<T> {
        let root = self.root.borrow();
        let root = root.as_ref().filter(|_| !bounds.cancel.is_cancelled())?;
        // The kernel has a mounted name in memory. Any other one is rejected by `in_root`.
        let is_known = self.absent.is_empty()
            && first_bare_blocking(&self.pins, &self.read_only_pins, &[]).is_none();
        is_known.then(|| work(root))?
    }

    fn not_accessible(&self) -> Output {
        let answer =
            Output::error(format_args!("Workspace not accessible: '{}'", self.workspace.display()));
        Self::to_next_worker(answer)
    }

    /// Marks the answer of a call that was not run and that the next worker may run.
    fn to_next_worker(answer: Output) -> Output {
        let report = ToolReport { workspace_gone: true, not_run: true, ..answer.report };
        Output { report, ..answer }
    }

    /// Returns the value of an environment variable of commands. The last definition of a name applies.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Returns the report of a worker without confinement.
fn unconfined() -> SandboxReport {
    SandboxReport {
        tier: Some(Tier::Unconfined),
        policy: Some(Profile::FullAccess),
        network: true,
        hosts: false,
        git: None,
        notes: Vec::new(),
    }
}

/// Returns a command with other words before it.
fn after(words: &[OsString], program: OsString, args: Vec<OsString>) -> (OsString, Vec<OsString>) {
    match words.split_first() {
        Some((first, rest)) => {
            let args = rest.iter().cloned().chain([program]).chain(args);
            (first.clone(), args.collect())
        }
        None => (program, args),
    }
}

/// Returns the first pin without its mount, or hidden name that has appeared.
fn first_bare_blocking(
    pins: &[PathBuf],
    read_only: &[PathBuf],
    absent: &[PathBuf],
) -> Option<PathBuf> {
    let appeared = || absent.iter().find(|path| path.symlink_metadata().is_ok()).cloned();
    let unpinned = || first_unpinned_blocking(read_only);
    first_unpinned_blocking(pins).or_else(unpinned).or_else(appeared)
}

fn first_unpinned_blocking(pins: &[PathBuf]) -> Option<PathBuf> {
    quackd_sandbox::confine::first_unpinned_blocking(pins).map(std::path::Path::to_owned)
}
