//! Resources of a session's tools.
//!
//! The workspace is opened at first use, and again when its directory was replaced. Created once per worker.

use crate::call_limits::CallLimits;
use crate::replaced_files::ReplacedFiles;
use crate::tool_state::{ToolState, WorkerFiles};
use crate::{Attempts, Call, Confinement, Jobs, Output, Web};
use quackd_process::{Group, Limits, SpawnThread};
use quackd_protocol::approval::ApprovalKind;
use quackd_protocol::denial::of_session;
use quackd_protocol::policy::Profile;
use quackd_protocol::tiers::Tier;
use quackd_protocol::tools;
use quackd_protocol::worker::{SandboxReport, ToolReport};
use quackd_sandbox::Root;
use quackd_sandbox::git::Unsigned;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Settings of the user for git that the tools apply.
#[derive(Debug, Clone, Default)]
pub struct UserGit {
    /// Text of the file of names that git ignores in every repository. `None` for the file that this process finds by its
    /// home.
    pub excludes: Option<String>,
    /// Reason why commits of the session are not signed, although the user's are.
    pub unsigned: Option<Unsigned>,
}

impl UserGit {
    /// Applies the excluded names, before the first search of this process.
    pub fn exclude(&self) {
        if let Some(excludes) = &self.excludes {
            quackd_search::set_user_excludes(excludes);
        }
    }
}

/// Resources of a session's tools.
#[derive(Debug)]
pub struct Toolbox {
    /// Directory in which all tools work: the workspace, or its copy.
    pub workspace: PathBuf,
    /// For a copy, the path of the workspace: clients may name files by it.
    pub other_name: Option<PathBuf>,
    /// The session's private directory. Long outputs are written there, and `read_file` may read it.
    pub run_dir: PathBuf,
    /// The complete environment of commands.
    pub env: Vec<(String, String)>,
    /// True restricts every call to tools that change nothing.
    pub safe_mode: bool,
    /// True if `grep_search` skips files that match ignore files.
    pub respect_ignore_files: bool,
    /// Client for `web_search`. Without it, the tool answers that the key is missing.
    pub web: Option<Web>,
    /// Words before every command: a program that confines itself and then executes the command. Empty if the worker
    /// itself is confined.
    pub command_words: Vec<OsString>,
    /// Words that keep a command from writing, for safe mode of a single call. Without them, only the list of allowed
    /// commands applies.
    pub read_only_words: Vec<OsString>,
    /// Names that mounts protect. A call is rejected if one of them is no longer mounted: the next worker protects it.
    pub pins: Arc<[PathBuf]>,
    /// Names that mounts only protect from being changed. Tools that only read do not need them.
    pub read_only_pins: Arc<[PathBuf]>,
    /// Hidden names that do not exist. A call is rejected if one of them exists: the next worker protects it.
    pub absent: Arc<[PathBuf]>,
    /// Resource limits of each command.
    pub limits: Limits,
    /// The session's control group. Each command gets a separate child group.
    pub group: Option<Arc<Group>>,
    /// Thread that launches commands, and sets their filter and score. `None`: the calling thread launches them.
    pub spawn_thread: Option<Arc<SpawnThread>>,
    /// Permissions of the session, and whether the kernel enforces them.
    pub confinement: Arc<Confinement>,
    /// The confinement in force.
    pub sandbox: SandboxReport,
    /// Reason why commits of the session are not signed, although the user's are.
    pub unsigned: Option<Unsigned>,
    /// Attempts to use the network, which the worker fills.
    pub attempts: Arc<Attempts>,
    /// State of the tools between calls.
    pub state: ToolState,
}

/// Most commands that are named to end background jobs.
const MAX_ENDS: usize = 4;

impl Toolbox {
    /// Creates a toolbox without confinement, control group, limits and web. It accesses no files yet.
    #[must_use]
    pub fn new(
        workspace: PathBuf,
        run_dir: PathBuf,
        env: Vec<(String, String)>,
        safe_mode: bool,
    ) -> Self {
        let state = ToolState::new_blocking(&run_dir, WorkerFiles::default());

        Self {
            workspace,
            other_name: None,
            run_dir,
            env,
            safe_mode,
            respect_ignore_files: false,
            web: None,
            command_words: Vec::new(),
            read_only_words: Vec::new(),
            pins: Arc::default(),
            read_only_pins: Arc::default(),
            absent: Arc::default(),
            limits: Limits::default(),
            group: None,
            spawn_thread: None,
            confinement: Arc::default(),
            sandbox: unconfined(),
            unsigned: None,
            attempts: Arc::default(),
            state,
        }
    }

    /// Returns the copy of the workspace, if it has another path than the workspace.
    pub(crate) fn copy(&self) -> Option<&Path> {
        self.other_name.as_ref().map(|_| self.workspace.as_path())
    }

    /// The files of the host that the worker shows, unless background jobs keep the worker anyway.
    pub(crate) fn replaceable(&self) -> Option<Arc<ReplacedFiles>> {
        let has_jobs = || self.state.jobs.all().iter().any(|job| job.is_running());
        self.state.replaced.clone().filter(|_| !has_jobs())
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
        let running = self.state.jobs.all().into_iter().filter(|job| job.is_running());
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

    /// Returns a program and its arguments with the command words.
    pub(crate) fn confined(
        &self,
        program: OsString,
        args: Vec<OsString>,
    ) -> (OsString, Vec<OsString>) {
        after(&self.command_words, program, args)
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

    /// Returns the session's background jobs.
    #[must_use]
    pub fn jobs(&self) -> &Jobs {
        &self.state.jobs
    }

    /// Returns the refusal of a call that may not change files, regardless of its arguments.
    pub(crate) fn refuse_change(&self, call: &Call, tool: &str) -> Option<Output> {
        if self.safe_mode || call.spec.safe_mode {
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
        let cached = self.state.root.borrow().clone();
        let (workspace, watched) = (self.workspace.clone(), self.state.watched.clone());
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

        self.state.root.replace(current);
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
        let root = self.state.root.borrow();
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
