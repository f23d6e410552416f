//! Tells of commits that a command made without the signature that the user's settings ask for. Looks at what the command added to the record of the workspace's HEAD. Called by `bash` and background jobs.

use crate::watched_names::ReportedChanges;
use quackd_sandbox::git::Unsigned;
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of a check: the repository may be on a dead file system.
const PATIENCE: Duration = Duration::from_millis(500);

/// Most bytes of the record that are read after a command.
const MAX_READ: u64 = 64 * 1024;

/// First words of the entries that git writes for new commits.
const NEW_COMMITS: [&str; 6] = ["commit", "cherry-pick", "revert", "rebase (pick", "am:", "merge"];

/// The record of a repository's HEAD as it was before a command.
#[derive(Debug, Clone)]
pub(crate) struct UnsignedCommits {
    record: PathBuf,
    length: u64,
    /// Reason why they are not signed.
    why: Unsigned,
}

impl UnsignedCommits {
    /// Looks at the record of the repository in `workspace`. `None` without a repository.
    pub(crate) async fn before(workspace: &Path, why: Unsigned) -> Option<Self> {
        let workspace = workspace.to_owned();
        let look = tokio::task::spawn_blocking(move || {
            let record = record_blocking(&workspace)?;
            let length = record.symlink_metadata().map_or(0, |metadata| metadata.len());
            Some(Self { record, length, why })
        });
        tokio::time::timeout(PATIENCE, look).await.ok()?.ok()?
    }

    /// Returns why the commits that the command made are not signed. `None` without a commit.
    pub(crate) async fn any(self) -> Option<Unsigned> {
        let why = self.why;
        let look = tokio::task::spawn_blocking(move || self.any_blocking());
        matches!(tokio::time::timeout(PATIENCE, look).await, Ok(Ok(true))).then_some(why)
    }

    fn any_blocking(&self) -> bool {
        // A command can replace the record by a link, or by a pipe without a writer.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        let mut added = Vec::new();

        let opened = OpenOptions::new().read(true).custom_flags(flags).open(&self.record);
        let read = opened.and_then(|mut file| {
            file.seek(SeekFrom::Start(self.length))?;
            file.take(MAX_READ).read_to_end(&mut added)
        });
        if read.is_err() {
            return false;
        }

        let text = String::from_utf8_lossy(&added);
        let mut entries = text.lines().filter_map(|line| line.split_once('\t'));
        entries.any(|(_, what)| NEW_COMMITS.iter().any(|new| what.starts_with(new)))
    }
}

/// The record of HEAD of the work tree at `workspace`, or of one above it.
fn record_blocking(workspace: &Path) -> Option<PathBuf> {
    Some(git_directory_blocking(workspace)?.join("logs/HEAD"))
}

/// The directory with HEAD of the work tree at `workspace`, or of one above it.
pub(crate) fn git_directory_blocking(workspace: &Path) -> Option<PathBuf> {
    let git = workspace.ancestors().map(|above| above.join(".git")).find(|git| git.exists())?;
    if git.is_dir() {
        return Some(git);
    }
    // A linked worktree or a submodule.
    let mut text = String::new();
    std::fs::File::open(&git).ok()?.take(MAX_READ).read_to_string(&mut text).ok()?;
    Some(git.parent()?.join(text.strip_prefix("gitdir:")?.trim()))
}

/// Adds the line about unsigned commits to a report.
pub(crate) fn add_to(changes: ReportedChanges, why: Option<Unsigned>) -> ReportedChanges {
    let Some(why) = why else { return changes };
    let line = format!(
        "[Sandbox: what this command has committed is not signed, although your settings have commit.gpgSign: {why}. To sign the \
         last commit, outside of the session: git commit --amend --no-edit -S]"
    );
    changes.and(Vec::new(), line)
}
