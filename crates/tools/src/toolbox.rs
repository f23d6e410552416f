//! What a session's tools may touch.
//!
//! Owns: the handle of the workspace, opened when it is first needed and again when the directory was
//! replaced; and what is remembered of the files that were read or written. Made once per worker.

use crate::bounds::{Bounds, Cutoff};
use crate::seen::SeenFiles;
use crate::{Jobs, Output, Web};
use quackd_sandbox::Root;
use std::cell::RefCell;
use std::path::PathBuf;
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
        Self { workspace, run_dir, env, safe_mode, respect_ignore_files, seen, web, jobs, root }
    }

    /// Gives `web_search` a way to the internet. Without one it answers that there is no key.
    #[must_use]
    pub fn with_web(mut self, web: Web) -> Self {
        self.web = Some(web);
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

    /// The workspace as it is now; `None` if there is no such directory. It may come back.
    pub(crate) async fn root(&self, bounds: &Bounds) -> Result<Option<Arc<Root>>, Cutoff> {
        let cached = self.root.borrow().clone();
        let workspace = self.workspace.clone();
        let current = bounds
            .run_blocking(move || match cached {
                Some(root) if !root.is_stale() => Some(root),
                Some(_) | None => Root::open(&workspace).ok().map(Arc::new),
            })
            .await?;
        self.root.borrow_mut().clone_from(&current);
        Ok(current)
    }

    pub(crate) fn not_accessible(&self) -> Output {
        Output::error(format_args!("Workspace not accessible: '{}'", self.workspace.display()))
    }

    /// The value of an environment variable of commands. The last one of a name counts.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}
