//! Records, lists and restores states of a session's files.

use crate::tracked;
use quackd_isolate::{Cause, Checkpoints, IsolateError, RecordedFiles};
use quackd_protocol::isolate::{CheckpointAction, CheckpointRequest, FromIsolate};
use quackd_sandbox::confine::enter_isolate;
use quackd_sandbox::git::user_excludes_blocking;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Lowest priority of a process. Calls of sessions come first.
const LOWEST_PRIORITY: i32 = 19;

/// Confines this process and does the work.
pub(crate) fn answer(request: CheckpointRequest) -> FromIsolate {
    let failed = |error: &dyn std::fmt::Display| FromIsolate::Failed { text: error.to_string() };
    let CheckpointRequest { workspace, copy, directory, home, hidden, max_files, action } = request;

    // The rules of the confinement name directories without links.
    let workspace = match workspace.canonicalize() {
        Ok(real) => real,
        Err(error) => {
            return failed(&format_args!("cannot open {}: {error}", workspace.display()));
        }
    };

    if let Err(error) = make_private(&directory) {
        return failed(&format_args!("cannot create {}: {error}", directory.display()));
    }

    let user_excludes = user_excludes_blocking(&home, &workspace);
    let tree = copy.as_ref().map_or_else(|| workspace.clone(), |copy| copy.join("tree"));

    // The workspace has no links in its path now.
    let real = |path: PathBuf| path.canonicalize().unwrap_or(path);
    let hidden: Vec<PathBuf> = hidden.into_iter().map(real).collect();

    let mut readable = tracked::repository_of(&workspace);
    readable.extend([workspace.clone()].into_iter().chain(copy.clone()));
    let mut writable = vec![directory.clone()];

    // An interrupted restore is taken back by the next task of any kind.
    let restores = matches!(action, CheckpointAction::Restore { .. });
    if restores || Checkpoints::is_interrupted(&directory) {
        writable.push(tree.clone());
    }

    if matches!(action, CheckpointAction::Take { .. }) {
        // The system may refuse it. The work is then only less polite.
        rustix::process::nice(LOWEST_PRIORITY).ok();
    }

    if let Err(error) = enter_isolate(&readable, &writable) {
        return failed(&error);
    }

    let tracked = match &copy {
        // Later the names are in the newest state, and those of a copy are in its record.
        None if Checkpoints::is_empty(&directory) => tracked::files(&workspace),
        _ => BTreeSet::new(),
    };

    let files = RecordedFiles { tree, workspace, copy, hidden, max_files, user_excludes, tracked };
    act(files, &directory, action).unwrap_or_else(|error| failed(&error))
}

fn act(
    files: RecordedFiles,
    directory: &Path,
    action: CheckpointAction,
) -> Result<FromIsolate, IsolateError> {
    let mut states = Checkpoints::open(files, directory)?;

    Ok(match action {
        CheckpointAction::Take { calls, by_commands, while_running } => {
            FromIsolate::Recorded(states.take(&Cause { calls, by_commands, while_running })?)
        }
        CheckpointAction::List {} => {
            // Then the user learns why there is none.
            if states.is_new() {
                states.take(&Cause::default())?;
            }
            FromIsolate::Listed(states.list()?)
        }
        CheckpointAction::Restore { number, choice, dry_run } => {
            FromIsolate::Compared(states.restore(number, &choice, dry_run)?)
        }
    })
}

/// Creates a directory that only the user can read.
pub(crate) fn make_private(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ if fs::symlink_metadata(directory)?.is_dir() => Ok(()),
        _ => Err(io::ErrorKind::NotADirectory.into()),
    }
}
