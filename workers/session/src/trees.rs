//! Writable directories of a session, as stage 0 reads them before the confinement: their repositories, and the files
//! in them that git's configuration names. Called by the confinement of each system.

use crate::start_error::WorkerStartError;
use quackd_protocol::denial::{one_line, quoted};
use quackd_protocol::places::refusal;
use quackd_protocol::policy::Policy;
use quackd_protocol::worker::Start;
use quackd_sandbox::audit::Known;
use quackd_sandbox::git;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum number of workspace entries that are searched for repositories before the start. A note reports a larger
/// tree.
const WALK_ENTRIES: u64 = 200_000;

/// Timeout for reading the workspace before the confinement exists. Shorter than the supervisor's start timeout, so
/// that the call gets this reason.
pub(crate) const LOOK_LIMIT: Duration = Duration::from_secs(7);

/// Number of entries between two checks of the time.
const WALK_STEP: u64 = 2_000;

/// Maximum number of notes, with the number of left out ones.
pub(crate) const MAX_NOTES: usize = 8;

/// A writable directory and the repositories in it.
pub(crate) struct Tree<'a> {
    pub(crate) handle: &'a OwnedFd,
    pub(crate) path: &'a Path,
    pub(crate) repositories: git::FoundRepositories,
}

impl Tree<'_> {
    /// Returns the tree as the search for files in it needs it.
    pub(crate) fn as_writable(&self) -> git::WritableTree<'_> {
        git::WritableTree {
            handle: self.handle.as_fd(),
            path: self.path,
            found: &self.repositories,
        }
    }
}

/// Opens the writable directories. Returns the policy without missing ones, the handles, and notes on the missing.
/// System directories count as missing.
pub(crate) fn hold_roots(
    mut policy: Policy,
    home: &Path,
) -> (Policy, Vec<(PathBuf, OwnedFd)>, Vec<String>) {
    let (mut held, mut notes) = (Vec::new(), Vec::new());
    policy.writable_roots.retain(|root| {
        // A handle is only given for a path without links, so the path is the directory's own.
        let why = match git::hold_directory_blocking(root) {
            Ok(handle) => {
                let why = refusal(root, home);
                held.extend(why.is_none().then(|| (root.clone(), handle)));
                why
            }
            Err(_) => Some("is no directory"),
        };
        if let Some(why) = why {
            notes.push(format!("{} {why} and cannot be written", root.display()));
        }
        why.is_none()
    });
    (policy, held, notes)
}

/// Finds the repositories in a directory.
pub(crate) fn repositories(
    directory: &OwnedFd,
    until: Instant,
) -> io::Result<git::FoundRepositories> {
    let mut walk = git::Walk::new(directory)?;
    let mut left = WALK_ENTRIES;
    while 0 < left && !walk.step(WALK_STEP) {
        left = left.saturating_sub(WALK_STEP);
        if until <= Instant::now() {
            let text = format!("looking through it takes longer than {} s", LOOK_LIMIT.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
    }
    Ok(walk.finish())
}

/// Returns `first` and the writable directories outside the workspace, with their repositories.
///
/// # Errors
/// The repositories of a directory cannot all be found, so that some would have no protection.
pub(crate) fn trees_of<'a>(
    first: Tree<'a>,
    roots: &'a [(PathBuf, OwnedFd)],
    until: Instant,
) -> Result<Vec<Tree<'a>>, WorkerStartError> {
    let mut trees = vec![first];
    for (path, handle) in roots {
        let repositories = repositories(handle, until).map_err(|error| {
            unprotected_root(path, &format!("cannot be looked through: {error}"))
        })?;
        if repositories.has_more_repositories {
            let why = format!("has more than {} git repositories", git::MAX_REPOSITORIES);
            return Err(unprotected_root(path, &why));
        }
        trees.push(Tree { handle, path, repositories });
    }
    Ok(trees)
}

/// Error of a writable directory with repositories that would have no protection.
fn unprotected_root(path: &Path, why: &str) -> WorkerStartError {
    let path = path.display().to_string();
    WorkerStartError::Confinement(format!(
        "the writable directory {} {why}, and a session could change what git runs in it; \
         `quack sandbox set --not-writable {}`",
        one_line(&path),
        quoted(&path)
    ))
}

/// Finds the files in writable directories that git's configuration names. Adds notes on those that are not held.
pub(crate) fn named_files(
    trees: &[Tree<'_>],
    settings: &git::UserSettings,
    until: Instant,
    notes: &mut Vec<String>,
) -> git::NamedFiles {
    let trees: Vec<_> = trees.iter().map(Tree::as_writable).collect();
    let named = git::named_blocking(&trees, settings, until);
    let mut more = notes_of(&named.troubles);
    more.retain(|note| !notes.contains(note));
    notes.append(&mut more);
    if !named.is_complete {
        notes.push("not every file that git's configuration names could be checked".to_owned());
    }
    named
}

/// Returns what the audit of a session with full access compares. `None` if the workspace cannot be searched.
pub(crate) fn known_without_limits(start: &Start) -> Option<Known> {
    let until = Instant::now() + LOOK_LIMIT;
    let path = Path::new(&start.workspace);
    let handle = &git::hold_directory_blocking(path).ok()?;
    let repositories = repositories(handle, until).ok()?;
    let settings = git::UserSettings::read_blocking(Path::new(&start.sandbox.home), &start.env);
    let known = Known::from(&repositories);
    let tree = Tree { handle, path, repositories };
    Some(known.naming(&named_files(&[tree], &settings, until, &mut Vec::new())))
}

/// Error of a workspace with repositories that would have no protection.
pub(crate) fn too_many_repositories() -> WorkerStartError {
    WorkerStartError::Confinement(format!(
        "the workspace has more than {} git repositories, and a session could change what git runs in the others; \
         attach to a directory in it, or use `quack sandbox set read-only`",
        git::MAX_REPOSITORIES
    ))
}

/// Returns notes on incomplete protection.
pub(crate) fn notes_of(troubles: &[git::ProtectionGap]) -> Vec<String> {
    troubles.iter().map(|gap| format!("{} {}", gap.path.display(), gap.what)).collect()
}

/// Keeps at most [`MAX_NOTES`] notes, the first ones. The last note then is the number of those that are left out.
pub(crate) fn cut_notes(notes: &mut Vec<String>) {
    if notes.len() <= MAX_NOTES {
        return;
    }
    let more = notes.len() - (MAX_NOTES - 1);
    notes.truncate(MAX_NOTES - 1);
    notes.push(format!("and {more} more"));
}
