//! Shared parts of the search tools: the tree, the time limit, the start paths, and the error texts.
//!
//! `search` and `find` are quackd's own tools over the engine of `crates/search`. `crates/facades` uses the same
//! parts with other parameters and texts.

pub mod data;
pub(crate) mod find;
pub(crate) mod pattern;
pub(crate) mod row_writer;
pub(crate) mod scope;
pub(crate) mod search;
pub mod text;

pub use scope::file_type;

use crate::Output;
use crate::call_limits::{CallLimits, CancelOnDrop, StopCause};
use quackd_protocol::tools::BadParameter;
use quackd_sandbox::{Kind, PathError, Root};
use quackd_search::{SearchError, Stop, Tree};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A workspace for the engine. Every file and directory is opened inside the root, even if other programs
/// rename parts of the path.
#[derive(Debug, Clone, Copy)]
pub struct RootTree<'a>(pub &'a Root);

impl Tree for RootTree<'_> {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn conceals(&self, directory: &Path, name: &OsStr) -> bool {
        self.0.hides(directory, name)
    }

    fn open_file(&self, relative: &Path) -> io::Result<File> {
        self.0.open_relative(relative)
    }

    fn open_directory(&self, relative: &Path) -> io::Result<File> {
        self.0.open_directory(relative)
    }
}

/// Time limit of a search, which may be shorter than that of its call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) deadline: Instant,
    /// The limit as the answer states it.
    pub(crate) limit: Duration,
}

impl Budget {
    /// Returns the time limit of the call.
    pub(crate) fn of(bounds: &CallLimits) -> Self {
        Self { deadline: bounds.deadline, limit: bounds.limit }
    }

    /// Returns the time limit of the call, at most `timeout_ms` milliseconds.
    pub(crate) fn at_most(bounds: &CallLimits, timeout_ms: Option<u64>) -> Self {
        let whole = Self::of(bounds);
        let Some(limit) = timeout_ms.map(Duration::from_millis) else { return whole };
        match Instant::now().checked_add(limit) {
            Some(deadline) if deadline < whole.deadline => Self { deadline, limit },
            _ => whole,
        }
    }
}

/// Runs a search on a blocking thread. `work` gets the root's tree and the stop condition.
pub(crate) async fn run<T, E>(
    root: Arc<Root>,
    bounds: &CallLimits,
    budget: Budget,
    work: impl FnOnce(&Root, Stop) -> Result<T, E> + Send + 'static,
) -> Result<T, SearchToolError<E>>
where
    T: Send + 'static,
    E: Send + 'static,
{
    // Stop the search if this future is dropped, because its result is no longer needed.
    let cancel = CancelOnDrop::default();
    let stop = Stop { deadline: budget.deadline, cancelled: cancel.flag() };
    match bounds.run_blocking(move || work(&root, stop)).await {
        Ok(done) => done.map_err(SearchToolError::Because),
        Err(cutoff) => Err(SearchToolError::CutOff(cutoff)),
    }
}

/// Reason why a search has no result.
#[derive(Debug)]
pub enum SearchToolError<E> {
    /// The work failed, with an error of the tool.
    Because(E),
    /// The call ended before the work.
    CutOff(StopCause),
}

impl<E> From<E> for SearchToolError<E> {
    fn from(error: E) -> Self {
        Self::Because(error)
    }
}

impl<E: std::fmt::Display> SearchToolError<E> {
    /// Returns the answer of a tool without its own form of failures.
    pub(crate) fn output(&self, tool: &str, bounds: &CallLimits) -> Output {
        match self {
            Self::Because(reason) => Output::error(reason),
            Self::CutOff(cutoff) => Output::cut_off(tool, bounds, *cutoff),
        }
    }
}

/// Reason for rejecting a search, in the words of quackd's tools.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SearchFailure {
    #[error(transparent)]
    Parameter(#[from] BadParameter),
    #[error(transparent)]
    Start(#[from] BadStart),
    #[error("{}", request_text(.0))]
    Request(#[from] SearchError),
}

/// Reason for rejecting a start path.
#[derive(Debug, thiserror::Error)]
pub enum BadStart {
    /// A path leads out of the workspace.
    #[error("Path escapes workspace root")]
    Escapes,
    /// This path of the request does not exist.
    #[error("Search path not found: '{0}'")]
    NotFound(String),
    /// A path is neither a file nor a directory, or the system refuses access.
    #[error("Cannot search '{path}': {reason}")]
    Unusable {
        /// As in the request.
        path: String,
        /// For the answer, as a clause.
        reason: String,
    },
}

/// Resolves every link in the start paths, and returns them relative to the workspace. Blocks.
///
/// # Errors
/// The first path that cannot be searched.
pub fn starts_blocking(root: &Root, paths: &[String]) -> Result<Vec<PathBuf>, BadStart> {
    let start = |path: &String| {
        let metadata = root.metadata(path).map_err(|error| match error {
            PathError::Escapes => BadStart::Escapes,
            PathError::NotFound => BadStart::NotFound(path.clone()),
            other => BadStart::Unusable { path: path.clone(), reason: other.to_string() },
        })?;

        if !matches!(metadata.kind, Kind::File | Kind::Directory) {
            let reason = PathError::NotRegular { kind: metadata.kind }.to_string();
            return Err(BadStart::Unusable { path: path.clone(), reason });
        }
        Ok(metadata.relative)
    };
    paths.iter().map(start).collect()
}

/// Formats an error of the engine.
fn request_text(error: &SearchError) -> String {
    match error {
        SearchError::EmptyPattern => "Missing required parameter 'pattern'".to_owned(),
        SearchError::BadPattern { reason, .. } => format!("Invalid pattern: {reason}"),
        SearchError::StartNotFound(path) => format!("Search path not found: '{}'", path.display()),
        other => capitalised(&other.to_string()),
    }
}

pub(crate) fn capitalised(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
