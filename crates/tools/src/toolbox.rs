//! What a session's tools may touch.
//!
//! Owns: the handle of the workspace, opened when it is first needed and again when the directory was
//! replaced; and what is remembered of the files that were read or written. Made once per worker.

use crate::bounds::{Bounds, Cutoff};
use crate::replacing::{Journal, Plans};
use crate::seen::SeenFiles;
use crate::upstreams::Upstreams;
use crate::watched::Watched;
use crate::{Attempts, Confinement, Jobs, Output, Web};
use quackd_process::{Group, Limits, SpawnThread};
use quackd_protocol::policy::Profile;
use quackd_protocol::worker::{SandboxReport, ToolReport};
use quackd_sandbox::Root;
use quackd_sandbox::audit::Known;
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a session's tools may touch.
#[derive(Debug)]
pub struct Toolbox {
    pub(crate) workspace: PathBuf,
    pub(crate) run_dir: PathBuf,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) safe_mode: bool,
    pub(crate) respect_ignore_files: bool,
    pub(crate) seen: Arc<SeenFiles>,
    pub(crate) web: Option<Web>,
    pub(crate) jobs: Jobs,
    /// What keeps a command from writing; see [`Toolbox::with_read_only_words`].
    read_only_words: Vec<OsString>,
    /// See [`Toolbox::with_pins`].
    pins: Arc<[PathBuf]>,
    /// See [`Toolbox::with_command_words`].
    command_words: Vec<OsString>,
    pub(crate) limits: Limits,
    pub(crate) group: Option<Arc<Group>>,
    pub(crate) spawn_thread: Option<Arc<SpawnThread>>,
    pub(crate) confinement: Arc<Confinement>,
    pub(crate) sandbox: SandboxReport,
    pub(crate) watched: Watched,
    /// Upstreams of branches that git could not write to a repository's settings.
    pub(crate) upstreams: Upstreams,
    pub(crate) attempts: Arc<Attempts>,
    /// What was replaced, so that it can be taken back.
    pub(crate) journal: Arc<Journal>,
    /// What was shown in dry runs, so that exactly that can be done.
    pub(crate) plans: Arc<Plans>,
    root: RefCell<Option<Arc<Root>>>,
}

impl Toolbox {
    /// Makes a toolbox without touching any file.
    ///
    /// `run_dir` is the session's private directory: long outputs are written there, and read_file
    /// may read it. `env` is the whole environment of commands. `safe_mode` restricts every call.
    #[must_use]
    pub fn new(
        workspace: PathBuf,
        run_dir: PathBuf,
        env: Vec<(String, String)>,
        safe_mode: bool,
    ) -> Self {
        let seen = Arc::new(SeenFiles::kept_at(run_dir.join("seen.jsonl")));
        let root = RefCell::new(None);
        let respect_ignore_files = false;
        let (web, jobs) = (None, Jobs::kept_at(&run_dir));
        let (journal, plans) = (Journal::kept_in(run_dir.clone()), Plans::default());
        let (limits, group) = (Limits::default(), None);
        let confinement = Arc::default();
        let upstreams = Upstreams::kept_in(&run_dir);
        let (read_only_words, command_words) = (Vec::new(), Vec::new());
        let (sandbox, watched) = (SandboxReport::unconfined(), Watched::default());
        Self {
            workspace,
            run_dir,
            env,
            safe_mode,
            respect_ignore_files,
            seen,
            web,
            jobs,
            read_only_words,
            command_words,
            pins: Arc::new([]),
            limits,
            group,
            spawn_thread: None,
            confinement,
            sandbox,
            watched,
            upstreams,
            attempts: Arc::default(),
            journal: Arc::new(journal),
            plans: Arc::new(plans),
            root,
        }
    }

    /// Gives `web_search` a way to the internet. Without one it answers that there is no key.
    #[must_use]
    pub fn with_web(mut self, web: Web) -> Self {
        self.web = Some(web);
        self
    }

    /// Says what each command may use. Without it commands have the usual limits ([`Limits::default`]).
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Gives commands the session's control group, in which each has a place of its own.
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

    /// Says what the session may do and whether the kernel sees to it. Without it everything is allowed.
    #[must_use]
    pub fn with_confinement(mut self, confinement: Confinement) -> Self {
        self.confinement = Arc::new(confinement);
        self
    }

    /// Shares the attempts to use the network, which the worker fills.
    #[must_use]
    pub fn with_attempts(mut self, attempts: Arc<Attempts>) -> Self {
        self.attempts = attempts;
        self
    }

    /// Says upon which names something is mounted that protects them. A call is not run when one of them is bare.
    #[must_use]
    pub fn with_pins(mut self, pins: Vec<PathBuf>) -> Self {
        self.pins = pins.into();
        self
    }

    /// Answer of a call that was not run because a protected name was replaced. The next worker protects it again.
    pub(crate) fn bare_name(name: &Path) -> Output {
        let answer = Output::error(format_args!(
            "'{}' was replaced outside of the session and has to be protected anew. The call was not run, \
             try again when no background job runs",
            name.display()
        ));
        Self::to_next_worker(answer)
    }

    /// Says which words stand before every command's: a program that confines it and then becomes it. Not where
    /// the worker itself is confined.
    #[must_use]
    pub fn with_command_words(mut self, words: Vec<OsString>) -> Self {
        self.command_words = words;
        self
    }

    /// A program and its arguments, started as all are.
    pub(crate) fn confined(
        &self,
        program: OsString,
        args: Vec<OsString>,
    ) -> (OsString, Vec<OsString>) {
        after(&self.command_words, program, args)
    }

    /// Says which words before a command's keep it from writing, for safe mode of a single call. Without them
    /// the list of what is allowed is all there is.
    #[must_use]
    pub fn with_read_only_words(mut self, words: Vec<OsString>) -> Self {
        self.read_only_words = words;
        self
    }

    /// A program and its arguments, started so that it changes nothing. Where nothing can be written anyway
    /// nothing more is needed.
    pub(crate) fn kept_from_writing(
        &self,
        program: OsString,
        args: Vec<OsString>,
    ) -> (OsString, Vec<OsString>) {
        match self.must_keep_from_writing() {
            true => after(&self.read_only_words, program, args),
            false => self.confined(program, args),
        }
    }

    /// Whether a command of safe mode is started by another program.
    pub(crate) fn must_keep_from_writing(&self) -> bool {
        let is_read_only = self.confinement.policy.profile == Profile::ReadOnly;
        !self.read_only_words.is_empty() && !is_read_only
    }

    /// Says what is in force, and what the start has found out about the workspace's repositories. Without
    /// it they are looked for when the workspace is opened first.
    #[must_use]
    pub fn with_sandbox(mut self, report: SandboxReport, known: Option<Known>) -> Self {
        self.sandbox = report;
        self.watched.knowing(known);
        self
    }

    /// Makes `grep_search` leave out what ignore files name.
    #[must_use]
    pub fn respecting_ignore_files(mut self, respect: bool) -> Self {
        self.respect_ignore_files = respect;
        self
    }

    /// The session's background jobs.
    #[must_use]
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The workspace as it is now. If there is no such directory it may come back.
    pub(crate) async fn root(&self, bounds: &Bounds) -> Result<Workspace, Cutoff> {
        let cached = self.root.borrow().clone();
        let (workspace, watched) = (self.workspace.clone(), self.watched.clone());
        let pins = Arc::clone(&self.pins);
        let (current, bare) = bounds
            .run_blocking(move || {
                let current = match cached {
                    Some(root) if !root.is_stale() => Some(root),
                    Some(_) | None => {
                        let root = Root::open(&workspace).ok().map(Arc::new);
                        root.inspect(|root| watched.begin_blocking(root))
                    }
                };
                (current, first_bare_blocking(&pins))
            })
            .await?;
        self.root.borrow_mut().clone_from(&current);
        Ok(match (current, bare) {
            (None, _) => Workspace::Gone,
            (Some(_), Some(bare)) => Workspace::Bare(bare),
            (Some(root), None) => Workspace::There(root),
        })
    }

    pub(crate) fn not_accessible(&self) -> Output {
        let answer =
            Output::error(format_args!("Workspace not accessible: '{}'", self.workspace.display()));
        Self::to_next_worker(answer)
    }

    /// Marks the answer of a call that was not run and that the next worker may run.
    fn to_next_worker(answer: Output) -> Output {
        let report = ToolReport { workspace_gone: true, not_run: true, ..answer.report };
        Output { report, ..answer }
    }

    /// The value of an environment variable of commands. The last one of a name counts.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What there is to work in.
#[derive(Debug)]
pub(crate) enum Workspace {
    /// The directory.
    There(Arc<Root>),
    /// No such directory.
    Gone,
    /// The directory, but this name in it is not protected any more.
    Bare(PathBuf),
}

/// A command with other words before it.
fn after(words: &[OsString], program: OsString, args: Vec<OsString>) -> (OsString, Vec<OsString>) {
    match words.split_first() {
        Some((first, rest)) => {
            let args = rest.iter().cloned().chain([program]).chain(args);
            (first.clone(), args.collect())
        }
        None => (program, args),
    }
}

#[cfg(target_os = "linux")]
fn first_bare_blocking(pins: &[PathBuf]) -> Option<PathBuf> {
    quackd_sandbox::confine::first_unpinned_blocking(pins).map(std::path::Path::to_owned)
}

#[cfg(not(target_os = "linux"))]
fn first_bare_blocking(_: &[PathBuf]) -> Option<PathBuf> {
    None
}
