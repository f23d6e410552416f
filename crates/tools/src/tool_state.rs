//! State of the tools of one worker between calls: the handle of the workspace, the versions of files that were read or
//! written, background jobs, and the records in the session's private directory. Part of the toolbox.

use crate::Jobs;
use crate::lost_files::LostFiles;
use crate::mcp::McpServers;
use crate::read_tracker::ReadTracker;
use crate::replace::journal::{Journal, Plans};
use crate::replaced_files::ReplacedFiles;
use crate::temporary_files::TemporaryFiles;
use crate::upstreams::Upstreams;
use crate::watched_names::WatchedFiles;
use quackd_process::KeptTerminal;
use quackd_sandbox::Root;
use quackd_sandbox::audit::Known;
use quackd_sandbox::confine::MountSources;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files around the workspace, as the worker found them at its start. The default has no private files.
#[derive(Debug, Default)]
pub struct WorkerFiles {
    /// The session's home, if it exists only as long as the worker. Files in it are lost with the worker.
    pub private_home: Option<PathBuf>,
    /// True if `/tmp` and its like exist only as long as the worker.
    pub has_private_tmp: bool,
    /// Mounts whose files of the host may be replaced while this worker runs. The next worker shows the new files.
    pub sources: Option<MountSources>,
    /// Repositories found at the start. `None`: they are searched for when the workspace is first opened.
    pub known: Option<Known>,
    /// The only terminal of the session. `None`: its terminals are opened when they are needed.
    pub terminal: Option<KeptTerminal>,
}

/// State of the tools between calls.
#[derive(Debug)]
pub struct ToolState {
    pub(crate) seen: Arc<ReadTracker>,
    pub(crate) jobs: Jobs,
    pub(crate) mcp: McpServers,
    pub(crate) watched: WatchedFiles,
    pub(crate) lost: LostFiles,
    pub(crate) replaced: Option<Arc<ReplacedFiles>>,
    pub(crate) temporary: TemporaryFiles,
    /// Upstreams of branches that git could not write to a repository's settings.
    pub(crate) upstreams: Upstreams,
    /// Originals of replaced files, for undo.
    pub(crate) journal: Arc<Journal>,
    /// Plans of dry runs, so that exactly those can be applied.
    pub(crate) plans: Arc<Plans>,
    pub(crate) root: RefCell<Option<Arc<Root>>>,
}

impl ToolState {
    /// Creates the state, before any command runs. Its records are in `run_dir`, the session's private directory.
    #[must_use]
    pub fn new_blocking(run_dir: &Path, files: WorkerFiles) -> Self {
        let WorkerFiles { private_home, has_private_tmp, sources, known, terminal } = files;

        let watched = WatchedFiles::default();
        watched.knowing(known);

        let temporary = if has_private_tmp {
            TemporaryFiles::private_blocking()
        } else {
            TemporaryFiles::default()
        };

        Self {
            seen: Arc::new(ReadTracker::kept_at(run_dir.join("seen.jsonl"))),
            jobs: Jobs::kept_at(run_dir, terminal),
            mcp: McpServers::default(),
            watched,
            lost: private_home.map(LostFiles::in_home_blocking).unwrap_or_default(),
            replaced: sources.map(|sources| Arc::new(ReplacedFiles::new(sources))),
            temporary,
            upstreams: Upstreams::kept_in(run_dir),
            journal: Arc::new(Journal::kept_in(run_dir.to_owned())),
            plans: Arc::default(),
            root: RefCell::new(None),
        }
    }
}
