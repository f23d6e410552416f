//! Removes links and special files that a command created in git directories, so that the user's git does not write
//! through them to other files. Called after each command, so the limits are lower than in [`super::audit_blocking`].

use super::names::WatchedNames;
use super::planted::{self, SWEEP_LIMIT};
use super::repository::{Base, RepositoryLayout, RepositoryLocation};
use super::set_aside::{self, SetAside};
use super::snapshot::{Known, Snapshot};
use crate::git::Walk;
use crate::git::visited::{GRANULARITY, Visited};
use quackd_protocol::client::AuditFile as Change;
use quackd_protocol::client::{AuditPlanted, PlantedKind};
use quackd_protocol::foreign_text::one_line_cut;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Maximum number of entries of the workspace to search for new repositories, breadth first.
const WALK_ENTRIES: u64 = 1_000;

/// Maximum length of a reported path, in characters.
const MAX_PATH: usize = 120;

/// State of a workspace after a check. The next check compares with it.
#[derive(Debug)]
pub struct Checked {
    names: WatchedNames,
    visited: Visited,
    /// False if the check reached a limit. The next one then also runs if nothing changed.
    is_complete: bool,
}

impl Checked {
    /// Returns the changes in `now` of names that programs obey.
    #[must_use]
    pub fn changes(&self, now: &Self) -> Vec<Change> {
        self.names.changes(&now.names)
    }
}

/// Result of a check.
#[derive(Debug)]
pub struct Check {
    /// The next check compares with it.
    pub checked: Checked,
    /// Links and special files in git directories that did not exist when the worker started.
    pub planted: Vec<AuditPlanted>,
    /// Files that made git run a program, in repositories that no mount protects.
    pub set_aside: Vec<SetAside>,
    /// Number of such repositories and files that were not checked, because there were too many.
    pub n_unchecked: usize,
}

impl Snapshot {
    /// Returns the state with which the first check compares.
    #[must_use]
    pub fn unchecked(&self) -> Checked {
        let names = self.names().clone().without_hidden(self.hidden());
        Checked { names, visited: Visited::default(), is_complete: true }
    }

    /// Checks the workspace after a command. Returns its state, and links and special files in git directories that did
    /// not exist when the worker started. `path` is the canonical path of `root`.
    ///
    /// With `since`, the time when something of the session began to run, it removes these and sets
    /// [`AuditPlanted::removed`] for each one removed. In repositories that no mount protects, it also sets aside files
    /// that make git run a program and that changed since then.
    ///
    /// Returns `None` if nothing changed that the check `before` has read. Then only stamps are compared, which takes
    /// about a microsecond for each directory.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn check_blocking(
        &self,
        before: &Checked,
        root: impl AsFd,
        path: &Path,
        since: Option<SystemTime>,
    ) -> io::Result<Option<Check>> {
        let is_unchanged =
            || before.visited.is_unchanged(&root) && before.names.are_unchanged(&root);
        if before.is_complete && is_unchanged() {
            return Ok(None);
        }

        let mut visited = Visited::start();
        let names = self.look(&root, &before.names, &mut visited)?.without_hidden(self.hidden());

        let base = Base { handle: root.as_fd(), path };
        let found = self.nearest(&root, &mut visited)?;
        let set_aside = match since {
            Some(since) => self.set_aside(base, &found, since, &mut visited),
            None => set_aside::Done::default(),
        };

        let planted = self.sweep(base, found, since.is_some(), &mut visited);
        let set_aside::Done { files: set_aside, n_unchecked } = set_aside;
        let checked = Checked { names, visited, is_complete: n_unchecked == 0 };
        Ok(Some(Check { checked, planted, set_aside, n_unchecked }))
    }

    /// Returns the repositories nearest to the top. Adds the directories that it reads to `visited`.
    fn nearest(
        &self,
        root: impl AsFd,
        visited: &mut Visited,
    ) -> io::Result<BTreeSet<RepositoryLocation>> {
        let mut walk = Walk::new(&root)?.noting(std::mem::take(visited));
        walk.step(WALK_ENTRIES);
        *visited = walk.visited();
        let mut found = Known::from(&walk.finish()).into_places();
        found.retain(|place| !self.hidden().contains(&place.at));
        Ok(found.into_iter().collect())
    }

    /// Sets aside files in the repositories of `found` that did not exist when the worker started, and in directories
    /// that only look like a repository.
    fn set_aside(
        &self,
        base: Base<'_>,
        found: &BTreeSet<RepositoryLocation>,
        since: SystemTime,
        visited: &mut Visited,
    ) -> set_aside::Done {
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        // Change times are coarse. Before the snapshot, nothing of the session ran.
        let since = since.saturating_sub(GRANULARITY).max(self.began());

        let is_free = |place: &&RepositoryLocation| {
            place.shape == RepositoryLayout::Bare || self.of(place).is_none()
        };
        let free: BTreeSet<_> = found.iter().filter(is_free).cloned().collect();
        if free.is_empty() {
            return set_aside::Done::default();
        }

        let until = Instant::now() + SWEEP_LIMIT;
        let held = self.held(base);
        let exempt = set_aside::Exempt { held: &held, hidden: self.hidden() };
        set_aside::set_aside(base, &free, exempt, since, until, visited)
    }

    /// Finds links and special files in git directories under `root` that did not exist when the worker started,
    /// also in the new repositories of `found`. Removes them if `removes` is set. Adds the directories that it reads to
    /// `visited`.
    fn sweep(
        &self,
        base: Base<'_>,
        mut places: BTreeSet<RepositoryLocation>,
        removes: bool,
        visited: &mut Visited,
    ) -> Vec<AuditPlanted> {
        places.extend(self.places().cloned());

        let mut reported = Vec::new();
        planted::each(base, &places, visited, |git, one| {
            let is_special = !matches!(one.kind, PlantedKind::Directory | PlantedKind::HardLink);
            let is_known = || self.earlier().get(&git.path.join(&one.at)) == Some(&one.stamp);
            // The user created it: the directory became a git directory later, or the worker started after a command.
            let is_older = || one.stamp.changed_before(self.began());
            // A `.git` file can lead to a hidden repository.
            let is_hidden = || self.hidden().contains(&git.path.join(&one.at));

            if is_special && !is_known() && !is_older() && !is_hidden() {
                let removed = removes && planted::remove(git, &one.at);
                let path = one_line_cut(&planted::shown(git, &one.at).to_string_lossy(), MAX_PATH);
                reported.push(AuditPlanted { path, kind: one.kind, removed });
            }
        });
        reported
    }
}
