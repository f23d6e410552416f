//! Directories in which no session may work, with the reasons. Called before a worker is confined, in each tier.

use quackd_protocol::places::refusal;
use std::path::{Path, PathBuf};

/// Directories in the state directory that belong to the daemon, Pi and the app. The user owns everything else there:
/// tests of clients create all their files, also workspaces, in one temporary directory.
const KEPT: [&str; 10] = [
    "agents",
    "caches",
    "checkpoints",
    "isolated",
    "journal",
    "pi-sessions",
    "placeholders",
    "prompts",
    "run",
    "sessions",
];

/// Prefix of the names of run directories that were moved aside.
const KEPT_ASIDE: &str = "run.old-";

/// Returns true if the workspace is in a part of the state directory that the daemon uses.
fn is_kept(workspace: &Path, state_dir: &Path) -> bool {
    let first = workspace.strip_prefix(state_dir).ok().and_then(|below| below.iter().next());
    first.and_then(|name| name.to_str()).is_some_and(|name| {
        // A file system may ignore case.
        let name = name.to_lowercase();
        KEPT.contains(&name.as_str()) || name.starts_with(KEPT_ASIDE)
    })
}

/// Returns the reason why a session may not work in `workspace`, worded to follow the path, or `None` if it may. The
/// directories are that of the session's run, the daemon's state and the home; all paths must be canonical.
#[must_use]
pub fn workspace_refusal(
    workspace: &Path,
    [run_dir, state_dir, home]: [&Path; 3],
    hidden: &[PathBuf],
) -> Option<&'static str> {
    if let Some(reason) = refusal(workspace, home) {
        return Some(reason);
    }
    if state_dir.starts_with(workspace) || run_dir.starts_with(workspace) {
        return Some("holds the daemon's own files");
    }

    if is_kept(workspace, state_dir) {
        return Some("lies among the daemon's own files");
    }
    hidden.iter().any(|hidden| workspace.starts_with(hidden)).then_some("is hidden by the policy")
}
