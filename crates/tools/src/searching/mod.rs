//! What the search tools have in common: the tree that they search, their time, where they begin, and the words for
//! what cannot be answered.
//!
//! [`search`] and [`find`] are our own tools over the engine of `crates/search`; the tools by other agents' names use
//! the same parts with other parameters and texts.

pub(crate) mod data;
pub(crate) mod find;
pub(crate) mod pattern;
pub(crate) mod scope;
pub(crate) mod search;
pub(crate) mod text;

use crate::bounds::{Bounds, CancelOnDrop, Cutoff};
use crate::{Output, parameters::BadParameter};
use quackd_sandbox::{Kind, PathError, Root};
use quackd_search::{SearchError, Stop, Tree};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A workspace as the engine sees it: every file and directory is opened beneath the root, whatever others do to the
/// names meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RootTree<'a>(pub(crate) &'a Root);

impl Tree for RootTree<'_> {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn open_file(&self, relative: &Path) -> io::Result<File> {
        self.0.open_relative(relative)
    }

    fn open_directory(&self, relative: &Path) -> io::Result<File> {
        self.0.open_directory(relative)
    }
}

/// How long a search may look, which may be less than its call may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) deadline: Instant,
    /// As the answer tells it.
    pub(crate) limit: Duration,
}

impl Budget {
    /// The call's own time.
    pub(crate) fn of(bounds: &Bounds) -> Self {
        Self { deadline: bounds.deadline, limit: bounds.limit }
    }

    /// At most so many milliseconds of it.
    pub(crate) fn at_most(bounds: &Bounds, timeout_ms: Option<u64>) -> Self {
        let whole = Self::of(bounds);
        let Some(limit) = timeout_ms.map(Duration::from_millis) else { return whole };
        match Instant::now().checked_add(limit) {
            Some(deadline) if deadline < whole.deadline => Self { deadline, limit },
            _ => whole,
        }
    }
}

/// Runs a search on a thread that may block. `work` has the tree's root and when to stop.
pub(crate) async fn run<T, E>(
    tool: &'static str,
    root: Arc<Root>,
    bounds: &Bounds,
    budget: Budget,
    work: impl FnOnce(&Root, Stop) -> Result<T, E> + Send + 'static,
) -> Result<T, Refusal<E>>
where
    T: Send + 'static,
    E: Send + 'static,
{
    // Also when this future is dropped: nobody waits for the search any more.
    let cancel = CancelOnDrop::default();
    let stop = Stop { deadline: budget.deadline, cancelled: cancel.flag() };
    match bounds.run_blocking(move || work(&root, stop)).await {
        Ok(done) => done.map_err(Refusal::Because),
        Err(cutoff) => Err(Refusal::CutOff(tool, cutoff)),
    }
}

/// Why there is no result.
#[derive(Debug)]
pub(crate) enum Refusal<E> {
    Because(E),
    CutOff(&'static str, Cutoff),
}

impl<E: std::fmt::Display> Refusal<E> {
    /// The answer of a tool whose failures have no form of their own.
    pub(crate) fn output(&self, bounds: &Bounds) -> Output {
        match self {
            Self::Because(reason) => Output::error(reason),
            Self::CutOff(tool, cutoff) => Output::cut_off(tool, bounds, *cutoff),
        }
    }
}

/// Why a search was refused, in the words of our own tools.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SearchFailure {
    #[error(transparent)]
    Parameter(#[from] BadParameter),
    #[error(transparent)]
    Start(#[from] BadStart),
    #[error("{}", told(.0))]
    Request(#[from] SearchError),
}

/// Why a search cannot begin where it was told to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadStart {
    #[error("Path escapes workspace root")]
    Escapes,
    #[error("Search path not found: '{0}'")]
    NotFound(String),
    #[error("Cannot search '{path}': {reason}")]
    Unusable { path: String, reason: String },
}

/// The places that `paths` name, with every link resolved. Blocks.
pub(crate) fn starts_blocking(root: &Root, paths: &[String]) -> Result<Vec<PathBuf>, BadStart> {
    let start = |path: &String| {
        let found = root.metadata(path).map_err(|error| match error {
            PathError::Escapes => BadStart::Escapes,
            PathError::NotFound => BadStart::NotFound(path.clone()),
            other => BadStart::Unusable { path: path.clone(), reason: other.to_string() },
        })?;
        if !matches!(found.kind, Kind::File | Kind::Directory) {
            let reason = PathError::NotRegular { kind: found.kind }.to_string();
            return Err(BadStart::Unusable { path: path.clone(), reason });
        }
        Ok(found.relative)
    };
    paths.iter().map(start).collect()
}

/// What the engine refuses, as a sentence of ours.
fn told(error: &SearchError) -> String {
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
