//! Detects changes to files that later programs run or obey. Takes a baseline when the workspace is first
//! opened, and compares after every command that could write.
//!
//! Owns the baseline of the workspace before the first tool ran ([`Snapshot`]), the changes reported so far,
//! and the line about them. Called by [`crate::Toolbox`], `bash`, background jobs and the audit.

use crate::Confinement;
use quackd_protocol::client::{AuditChange, AuditFile};
use quackd_protocol::denial::{of_session, one_line};
use quackd_protocol::worker::MAX_LISTED;
use quackd_sandbox::Root;
use quackd_sandbox::audit::{Checked, Known, Planted, SetAside, Snapshot};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// Timeout of a check: the workspace may be on a dead file system.
const PATIENCE: Duration = Duration::from_millis(500);

/// Baseline and reports of one session's workspace. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchedFiles(Arc<watch::Sender<WatchedState>>);

#[derive(Debug, Default)]
struct WatchedState {
    /// Repositories found at the start of the worker, until they are used.
    known: Option<Known>,
    begun: Option<Baseline>,
    /// Changes that no answer reported yet: a check that takes too long ends after its caller.
    unreported: FoundChanges,
    /// Number of commands, jobs and servers that run.
    running: usize,
    /// Time when the first of them started, or a tool wrote, since the last check with at most one running. A file that
    /// changed earlier is not the session's.
    since: Option<SystemTime>,
}

/// Counts a command while it runs.
#[derive(Debug)]
pub(crate) struct RunningCommand(WatchedFiles);

impl Drop for RunningCommand {
    fn drop(&mut self) {
        self.0.0.send_if_modified(|state| {
            state.running = state.running.saturating_sub(1);
            false
        });
    }
}

/// Result of a check.
#[derive(Debug, Default)]
struct FoundChanges {
    files: Vec<AuditFile>,
    planted: Vec<Planted>,
    set_aside: Vec<SetAside>,
    /// Number of repositories and files for `set_aside` that were not checked.
    n_unchecked: usize,
}

impl FoundChanges {
    /// Adds the result of a later check. Of each kind the first [`MAX_LISTED`] are kept.
    fn extend(&mut self, later: Self) {
        self.files.extend(later.files);
        self.files.truncate(MAX_LISTED);
        self.planted.extend(later.planted);
        self.planted.truncate(MAX_LISTED);
        self.set_aside.extend(later.set_aside);
        self.set_aside.truncate(MAX_LISTED);
        self.n_unchecked = later.n_unchecked;
    }
}

#[derive(Debug, Clone)]
struct Baseline {
    root: Arc<File>,
    snapshot: Arc<Snapshot>,
    /// The state at the last check.
    checked: Arc<Checked>,
    /// Path of the workspace.
    path: PathBuf,
    /// Reported names in git directories that were not removed.
    swept: Vec<Planted>,
}

/// Changes by a command, as the answer reports them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ReportedChanges {
    /// For [`quackd_protocol::worker::ToolReport::audit`].
    pub(crate) list: Vec<String>,
    /// Line for the answer text.
    pub(crate) line: Option<String>,
}

impl WatchedFiles {
    /// Sets the repositories found at the start of the worker.
    pub(crate) fn knowing(&self, known: Option<Known>) {
        self.0.send_if_modified(|state| {
            state.known = known;
            false
        });
    }

    /// Takes the baseline once. Returns before any tool runs in the workspace.
    pub(crate) fn begin_blocking(&self, root: &Root) {
        if self.0.borrow().begun.is_some() {
            return;
        }
        let known = self.0.borrow().known.clone();

        // Without a baseline nothing is reported, and an audit treats every file as new.
        let Ok(handle) = root.open_directory(Path::new("")) else { return };
        let Ok(snapshot) = Snapshot::take_blocking(&handle, root.path(), known) else { return };
        let snapshot = snapshot.hiding(root);
        let checked = Arc::new(snapshot.unchecked());
        let (path, swept) = (root.path().to_owned(), Vec::new());
        let begun =
            Baseline { root: Arc::new(handle), snapshot: Arc::new(snapshot), checked, path, swept };

        self.0.send_if_modified(|state| {
            // A concurrent call may have taken a baseline too. The first one is kept.
            state.begun.get_or_insert(begun);
            state.known = None;
            false
        });
    }

    /// Records that something of the session writes from now on. Call it before.
    pub(crate) fn writing(&self) {
        self.0.send_if_modified(|state| {
            state.since.get_or_insert_with(SystemTime::now);
            false
        });
    }

    /// Records that a command runs until the result is dropped.
    pub(crate) fn running(&self) -> RunningCommand {
        self.0.send_if_modified(|state| {
            state.running = state.running.saturating_add(1);
            false
        });
        self.writing();
        RunningCommand(self.clone())
    }

    /// Records that a server runs until the worker exits.
    pub(crate) fn running_always(&self) {
        self.0.send_if_modified(|state| {
            state.running = state.running.saturating_add(1);
            false
        });
        self.writing();
    }

    /// Returns the baseline of the workspace, if it was taken.
    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.0.borrow().begun.as_ref().map(|begun| Arc::clone(&begun.snapshot))
    }

    /// Returns the changes since the last check, each once. After a timeout the next call returns them. Empty if the session
    /// cannot write.
    pub(crate) async fn look(&self, confinement: &Confinement) -> ReportedChanges {
        if !confinement.policy.may_write() {
            return ReportedChanges::default();
        }
        let this = self.clone();
        // With full access the links are only reported.
        let removes = confinement.has_limits();
        let look = move || this.look_blocking(removes);
        // After a timeout the check continues. Its changes are in the report of a later call.
        tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(look)).await.ok();

        let FoundChanges { files, planted, set_aside, n_unchecked } = self.take_unreported();
        ReportedChanges::of(&files, &confinement.session)
            .with(&planted)
            .with_set_aside(&set_aside)
            .with_unchecked(n_unchecked, &confinement.session)
    }

    /// Checks the workspace. With `removes`, removes names in git directories by which git would write to another file,
    /// and sets aside what makes git run a program in new repositories. Each change and each name is reported once.
    fn look_blocking(&self, removes: bool) {
        let (begun, since) = {
            // One borrow: a second one by the same thread waits for ever behind a writer.
            let state = self.0.borrow();
            (state.begun.clone(), state.since)
        };

        let Some(begun) = begun else { return };

        // Without the lock, because the check may hang.
        let Baseline { root, snapshot, checked, path, .. } = begun;
        let since = removes.then(|| since.unwrap_or_else(SystemTime::now));
        let check = snapshot.check_blocking(&checked, &root, &path, since);
        let Ok(result) = check else { return };

        self.0.send_if_modified(|state| {
            let is_complete = result.as_ref().is_none_or(|result| result.n_unchecked == 0);
            // The caller is one of the running commands. The next check goes on with what this one left.
            if state.running <= 1 && is_complete {
                state.since = None;
            }
            if let (Some(begun), Some(result)) = (&mut state.begun, result) {
                let mut changes = FoundChanges::default();
                // Compared with the last check of all calls, so that each change is reported once.
                changes.files = begun.checked.changes(&result.checked);
                begun.checked = Arc::new(result.checked);
                changes.planted = result.planted;
                changes.planted.retain(|one| one.removed || !begun.swept.contains(one));
                begun.swept.extend(changes.planted.iter().filter(|one| !one.removed).cloned());
                begun.swept.truncate(MAX_LISTED);
                changes.set_aside = result.set_aside;
                changes.n_unchecked = result.n_unchecked;
                state.unreported.extend(changes);
            }
            false
        });
    }

    /// Returns the changes that no answer reported yet.
    fn take_unreported(&self) -> FoundChanges {
        let mut changes = FoundChanges::default();
        self.0.send_if_modified(|state| {
            changes = std::mem::take(&mut state.unreported);
            false
        });
        changes
    }
}

impl ReportedChanges {
    fn of(changes: &[AuditFile], session: &str) -> Self {
        let words = |one: &AuditFile| one_line(&format!("{} was {}", one.path, one.change.name()));
        let list: Vec<String> = changes.iter().take(MAX_LISTED).map(words).collect();
        let line = changes.first().map(|first| {
            let more = match changes.len() {
                1 => String::new(),
                n => format!(", and {} more", n - 1),
            };
            let what = match first.change {
                AuditChange::Removed => "programs of yours obeyed what stood there",
                AuditChange::Made | AuditChange::Changed => {
                    "programs of yours may run what stands there"
                }
            };
            let first = words(first);
            let of_session = of_session(session);
            format!("[Sandbox: {first}{more}; {what}. quack sandbox audit{of_session} shows it]")
        });
        Self { list, line }
    }

    /// Adds names in git directories by which git would write to another file.
    fn with(mut self, planted: &[Planted]) -> Self {
        let words = |one: &Planted| {
            let end = if one.removed { "was removed" } else { "was made" };
            one_line(&format!("{}, {}, {end}", one.path, one.kind.name()))
        };
        self.list.extend(planted.iter().map(words));
        self.list.truncate(MAX_LISTED);

        let Some(first) = planted.first() else { return self };
        let more = match planted.len() {
            1 => String::new(),
            n => format!(", and {} more", n - 1),
        };
        let first = words(first);
        let line = format!(
            "[Sandbox: {first}{more}; git would write to another file by it. quack sandbox audit looks at all]"
        );

        self.line = Some(match self.line {
            Some(before) => format!("{before}\n{line}"),
            None => line,
        });
        self
    }

    /// Adds files that made git run a program.
    fn with_set_aside(self, files: &[SetAside]) -> Self {
        let words = |one: &SetAside| {
            let end = match &one.kept_as {
                Some(kept) => format!("kept as {kept}"),
                None => "NOT set aside".to_owned(),
            };
            one_line(&format!("{} ({}) {end}", one.path, one.why))
        };

        let Some(first) = files.first() else { return self };
        let more = match files.len() {
            1 => String::new(),
            n => format!(", and {} more", n - 1),
        };

        let line = format!(
            "[Sandbox: {}{more}; git would run a program by it outside of the sandbox. To use it, run the command outside]",
            words(first)
        );
        self.and(files.iter().map(words).collect(), line)
    }

    /// Adds the number of repositories and files that were not checked.
    fn with_unchecked(self, n: usize, session: &str) -> Self {
        if n == 0 {
            return self;
        }
        let what = format!("{n} new repositories or files in them were not checked");
        let line = format!(
            "[Sandbox: {what}; git may run a program by them outside of the sandbox. quack sandbox audit{} looks at all]",
            of_session(session)
        );
        self.and(vec![what], line)
    }

    /// Adds further changes and their line.
    pub(crate) fn and(mut self, list: Vec<String>, line: String) -> Self {
        self.list.extend(list);
        self.list.truncate(MAX_LISTED);
        self.line = match self.line {
            Some(before) => Some(format!("{before}\n{line}")),
            None => Some(line),
        };
        self
    }

    /// Returns the line about denials, if there is one, followed by this line.
    pub(crate) fn after(&self, denied: Option<String>) -> Option<String> {
        match (denied, &self.line) {
            (Some(denied), Some(line)) => Some(format!("{denied}\n{line}")),
            (denied, line) => denied.or_else(|| line.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
