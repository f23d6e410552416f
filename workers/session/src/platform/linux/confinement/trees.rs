//! Writable directories of a session, as stage 0 reads them before the confinement: their repositories, and the files
//! in them that git's configuration names. Called by `platform`.

use crate::start_error::WorkerStartError;
use quackd_protocol::denial::{one_line, quoted};
use quackd_protocol::tiers::GitProtection;
use quackd_protocol::worker::Start;
use quackd_sandbox::audit::Known;
use quackd_sandbox::confine::{MountPlan, Pin, git};
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

/// Maximum number of notes.
pub(crate) const MAX_NOTES: usize = 8;

/// A writable directory and the repositories in it.
pub(crate) struct Tree<'a> {
    pub(crate) handle: &'a OwnedFd,
    pub(crate) path: &'a Path,
    pub(crate) found: git::FoundRepositories,
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
        let found = repositories(handle, until).map_err(|error| {
            unprotected_root(path, &format!("cannot be looked through: {error}"))
        })?;
        if found.has_more_repositories {
            let why = format!("has more than {} git repositories", git::MAX_REPOSITORIES);
            return Err(unprotected_root(path, &why));
        }
        trees.push(Tree { handle, path, found });
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

/// Adds the protection of repositories, and of the files that git's configuration names, to the plan. Returns the
/// result of [`protect`] and the named files.
pub(crate) fn protect_all(
    plan: &mut MountPlan,
    trees: &[Tree<'_>],
    registry: &Path,
    mode: GitProtection,
    until: Instant,
    user: &git::UserSettings,
    notes: &mut Vec<String>,
) -> (Option<(git::Placeholders, Vec<git::Main>)>, git::NamedFiles) {
    let visible: Vec<&Path> = trees.iter().map(|tree| tree.path).collect();
    let settings = git::ProtectionSettings { mode, until, visible: &visible };
    let (more, protected) = protect(plan, trees, registry, settings);
    notes.extend(more);
    let named = named_files(trees, user, until, notes);
    let shown = named.pins.iter().filter(|pin| plan.shows(&pin.at)).cloned().collect();
    plan.pin(shown);
    (protected, named)
}

/// Adds the protection of repositories in writable directories to the plan. Returns notes on incomplete protection,
/// the placeholders, and the handles of repositories outside the workspace.
fn protect(
    plan: &mut MountPlan,
    trees: &[Tree<'_>],
    registry: &Path,
    settings: git::ProtectionSettings<'_>,
) -> (Vec<String>, Option<(git::Placeholders, Vec<git::Main>)>) {
    let protected = git::Placeholders::open_blocking(registry).and_then(|mut placeholders| {
        let mut all = git::Protection::default();
        for Tree { handle, path, found } in trees {
            let one = git::protect_blocking(handle, path, found, settings, &mut placeholders)?;
            all.pins.extend(one.pins);
            all.repositories.extend(one.repositories);
            all.git_directories.extend(one.git_directories);
            all.troubles.extend(one.troubles);
            all.unseen_worktrees.extend(one.unseen_worktrees);
            all.layout.extend(one.layout);
        }
        plan.protect(&all)?;
        Ok((all, placeholders))
    });
    match protected {
        Ok((protection, placeholders)) => {
            (notes_of(&protection.troubles), Some((placeholders, protection.repositories)))
        }
        // This fails, for example, if the disk is full. Then the repositories become read-only.
        Err(error) => {
            let repositories = trees.iter().flat_map(|tree| {
                git::git_directories_blocking(tree.handle, tree.path, &tree.found)
            });
            plan.pins = repositories.map(|at| Pin { at, read_only: true }).collect();
            (vec![format!("repositories are read-only as a whole: {error}")], None)
        }
    }
}

/// Finds the files in writable directories that git's configuration names. Adds notes on those that are not held.
pub(crate) fn named_files(
    trees: &[Tree<'_>],
    settings: &git::UserSettings,
    until: Instant,
    notes: &mut Vec<String>,
) -> git::NamedFiles {
    let trees: Vec<_> = trees
        .iter()
        .map(|tree| git::WritableTree {
            handle: tree.handle.as_fd(),
            path: tree.path,
            found: &tree.found,
        })
        .collect();
    let named = git::named_blocking(&trees, settings, until);
    let more = notes_of(&named.troubles).into_iter().filter(|note| !notes.contains(note));
    let more: Vec<_> = more.collect();
    notes.extend(more);
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
    let found = repositories(handle, until).ok()?;
    let settings = git::UserSettings::read_blocking(Path::new(&start.sandbox.home), &start.env);
    let known = Known::from(&found);
    let tree = Tree { handle, path, found };
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

/// Returns notes on incomplete protection, up to a limit.
pub(crate) fn notes_of(troubles: &[git::ProtectionGap]) -> Vec<String> {
    let note =
        |trouble: &git::ProtectionGap| format!("{} {}", trouble.path.display(), trouble.what);
    troubles.iter().take(MAX_NOTES).map(note).collect()
}
