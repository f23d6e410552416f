//! The audit: checks every repository of a workspace and compares it with the snapshot. Called when the user requests
//! it.

use super::budget::Budget;
use super::hidden::GitTree;
use super::names::WatchedNames;
use super::planted::{self, Reach};
use super::repository::{self, Base, RepositoryLayout, RepositoryLocation};
use super::snapshot::{Known, Snapshot, Stamps};
use crate::git::Walk;
use crate::git::stamp::InodeStamp;
use crate::git::visited::Visited;
use crate::obeyed::Obeyed;
use quackd_protocol::client::AuditReport as Report;
use quackd_protocol::client::{
    AuditChange, AuditFile, AuditNamed, AuditPlanted, AuditRepository, RepositoryState,
};
use quackd_protocol::foreign_text::one_line_cut;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum number of repositories of each kind. With more, the audit is incomplete.
const MAX_REPOSITORIES: usize = 4096;

/// Maximum number of listed repositories.
const MAX_LISTED: usize = 64;

/// Maximum number of listed files that one setting names.
const MAX_NAMED: usize = 16;

/// Maximum number of listed changed names. The counter includes all.
const MAX_FILES: usize = 256;

/// Number of entries between two checks of the time.
const STEP: u64 = 2000;

/// Maximum length of a reported path, in characters.
const MAX_PATH: usize = 240;

/// Earlier state of the tree, with which an audit compares it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Before<'a> {
    /// State when the worker started.
    pub snapshot: Option<&'a Snapshot>,
    /// Time since the epoch. A change that the snapshot does not show counts too if the inode changed at this time or
    /// later, which no program can set. Removed names and moved git directories are not found in this way.
    pub since: Option<Duration>,
}

/// Checks every repository under the open directory `root`, whose canonical path is `path`, and the watched names,
/// and compares them with `before`. If that is empty, it reports everything that makes git run a program.
///
/// # Errors
/// The directory cannot be read. For unreadable directories inside it, [`Report::complete`] is false.
pub fn audit_blocking(
    root: impl AsFd,
    path: &Path,
    before: Before<'_>,
    budget: Budget,
) -> io::Result<Report> {
    let mut walk = Walk::new(&root)?.for_up_to(MAX_REPOSITORIES);
    let mut is_late = false;
    let mut left = budget.entries;
    while 0 < left && !is_late && !walk.step(STEP) {
        left = left.saturating_sub(STEP);
        is_late = budget.until <= Instant::now();
    }

    let found = walk.finish();
    let places = Known::from(&found).into_places();
    let base = Base { handle: root.as_fd(), path };
    let is_walked = found.complete && !found.has_more_bare && !found.has_more_obeyed;

    let audit = Audit { base, before, until: budget.until };
    let mut all = Repositories { is_whole: is_walked, ..Repositories::default() };
    audit.repositories(&places, left, &mut all);
    let Repositories { listed: mut repositories, dangerous, mut is_whole } = all;
    is_whole &= before.snapshot.is_none_or(|before| !before.wanted().is_cut());

    let not_listed = list(&mut repositories);
    let planted = planted_in(base, &places, budget.entries, budget.until);

    let mut files = changed_files(&root, before, &found.obeyed)?;
    let n_files = files.len();
    files.truncate(MAX_FILES);

    Ok(Report {
        found: n_files + planted.found.len() + planted.not_listed + dangerous,
        // Without a snapshot and a time, no change is known.
        complete: is_whole
            && planted.is_whole
            && (before.snapshot.is_some() || before.since.is_some()),
        since_ms: None,
        entries: found.entries,
        names: Obeyed::all().count(),
        files,
        planted: planted.found,
        planted_not_listed: planted.not_listed,
        repositories,
        not_listed,
        obeyed: Vec::new(),
    })
}

/// Adds the report of another directory, whose canonical path is `directory`. Its paths become absolute.
pub fn add_report(report: &mut Report, directory: &Path, other: Report) {
    let absolute = |path: &str| {
        let path = if path == "." { directory.to_owned() } else { directory.join(path) };
        one_line_cut(&path.to_string_lossy(), MAX_PATH)
    };
    report.found += other.found;
    report.complete &= other.complete;
    report.entries += other.entries;

    let files = other.files.into_iter();
    report.files.extend(files.map(|one| AuditFile { path: absolute(&one.path), ..one }));
    report.files.truncate(MAX_FILES);

    let planted = other.planted.into_iter();
    report.planted.extend(planted.map(|one| AuditPlanted { path: absolute(&one.path), ..one }));
    report.planted_not_listed +=
        other.planted_not_listed + report.planted.len().saturating_sub(MAX_LISTED);
    report.planted.truncate(MAX_LISTED);

    report.repositories.extend(other.repositories.into_iter().map(|mut one| {
        one.path = absolute(&one.path);
        for command in &mut one.commands {
            command.file = absolute(&command.file);
        }
        one
    }));
    report.not_listed += other.not_listed + list(&mut report.repositories);
}

/// Cuts a list of repositories. Leaves out those without a program first, then those that are the same. Returns the
/// number of those left out.
fn list(repositories: &mut Vec<AuditRepository>) -> usize {
    repositories.sort_by_cached_key(|one| {
        (one.commands.is_empty(), one.state == RepositoryState::Same, one.path.clone())
    });
    let left_out = repositories.len().saturating_sub(MAX_LISTED);
    repositories.truncate(MAX_LISTED);
    left_out
}

/// Returns the changed names. `found` are the paths that a walk has found now.
fn changed_files(
    root: impl AsFd,
    before: Before<'_>,
    found: &[PathBuf],
) -> io::Result<Vec<AuditFile>> {
    let mut files = match before.snapshot {
        Some(snapshot) => snapshot.deep_changes(&root, found)?,
        None => Vec::new(),
    };
    let Some(since) = before.since else { return Ok(files) };

    let near = match before.snapshot {
        Some(snapshot) => snapshot.look(&root, snapshot.names(), &mut Visited::default())?,
        None => WatchedNames::look_blocking(&root)?,
    };
    let deep = WatchedNames::at_blocking(&root, found);
    let mut known: BTreeSet<PathBuf> = files.iter().map(|one| PathBuf::from(&one.path)).collect();
    for one in near.changed_since(since).into_iter().chain(deep.changed_since(since)) {
        // One may name a directory, and the other an entry of it.
        let path = PathBuf::from(&one.path);
        let below = known.range(path.clone()..).next();
        let is_above = below.is_some_and(|below| below.starts_with(&path));
        if !is_above && !path.ancestors().any(|above| known.contains(above)) {
            known.insert(path);
            files.push(one);
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Names in all git directories through which git would write to another file.
struct AllPlanted {
    found: Vec<AuditPlanted>,
    not_listed: usize,
    is_whole: bool,
}

fn planted_in(
    base: Base<'_>,
    places: &[RepositoryLocation],
    entries: u64,
    until: Instant,
) -> AllPlanted {
    let mut all = AllPlanted { found: Vec::new(), not_listed: 0, is_whole: true };
    let (mut left, mut seen) = (entries, Vec::<PathBuf>::new());
    // Bare directories come last because they may be part of another repository.
    let (bare, named): (Vec<_>, Vec<_>) =
        places.iter().partition(|it| it.shape == RepositoryLayout::Bare);
    for place in named.into_iter().chain(bare) {
        let Some(git) = planted::git_directory(base, place) else { continue };
        if seen.iter().any(|seen| git.path.starts_with(seen)) {
            continue;
        }

        let reach = Reach { entries: left, until, with_files: true };
        let (found, rest, is_whole) = planted::look(&git, reach, &mut Visited::default());
        left = rest;
        all.is_whole &= is_whole;

        for one in found {
            if all.found.len() == MAX_LISTED {
                all.not_listed += 1;
                continue;
            }
            let path = one_line_cut(&planted::shown(&git, &one.at).to_string_lossy(), MAX_PATH);
            all.found.push(AuditPlanted { path, kind: one.kind, removed: false });
        }

        // Of a bare directory, only the known names were searched.
        if place.shape != RepositoryLayout::Bare {
            seen.push(git.path);
        }
    }
    all
}

/// Repositories to report.
#[derive(Default)]
struct Repositories {
    listed: Vec<AuditRepository>,
    dangerous: usize,
    is_whole: bool,
}

/// Inputs of the check of repositories.
#[derive(Clone, Copy)]
struct Audit<'a> {
    base: Base<'a>,
    before: Before<'a>,
    until: Instant,
}

impl Audit<'_> {
    /// Checks the repositories at `places`, those outside that belong to the workspace, and those inside of git
    /// directories.
    fn repositories(self, places: &[RepositoryLocation], mut left: u64, all: &mut Repositories) {
        let listed: BTreeSet<PathBuf> = places.iter().map(|place| place.at.clone()).collect();
        for place in places {
            let state = self.state(place);
            self.one(self.base, place, state, &|at| listed.contains(at), all);
        }

        let mains = repository::mains(self.base, places);
        for main in &mains {
            let (base, place) = main.place();
            let was = self.before.snapshot.and_then(|before| before.of_main(&main.path));
            let state = self.compared(was, &main.stamps());
            self.one(base, &place, state, &|_| false, all);
        }

        let inside = repository::git_directories(self.base, places);
        let inside: Vec<_> = inside.into_iter().filter(|at| at.is_relative()).collect();
        let mut known: BTreeSet<PathBuf> =
            inside.iter().map(|at| self.base.path.join(at)).collect();
        known.extend(mains.iter().map(|main| main.path.clone()));

        // The search of a git directory includes those inside it.
        let is_outer =
            |at: &PathBuf| !inside.iter().any(|other| other != at && at.starts_with(other));
        let trees = inside.iter().filter(|at| is_outer(at)).map(|at| GitTree::open(self.base, at));

        for tree in trees.chain(mains.iter().map(GitTree::of_main)) {
            let Some(tree) = tree else {
                all.is_whole = false;
                continue;
            };
            let (hidden, is_whole) = tree.repositories(&known, &mut left, self.until);
            all.is_whole &= is_whole;
            for place in &hidden {
                let state = self.state_inside(tree.base(), place);
                self.one(
                    tree.base(),
                    place,
                    state,
                    &|at| known.contains(&tree.path().join(at)),
                    all,
                );
            }
        }
    }

    /// Adds one repository.
    fn one(
        self,
        base: Base<'_>,
        place: &RepositoryLocation,
        state: RepositoryState,
        is_listed: &dyn Fn(&Path) -> bool,
        all: &mut Repositories,
    ) {
        if self.until <= Instant::now() {
            all.is_whole = false;
            return;
        }
        let mut commands = repository::commands(base, place, is_listed);
        for command in &mut commands {
            command.named = self.named(&command.key);
            if base.path != self.base.path {
                let file = base.path.join(&command.file);
                command.file = one_line_cut(&shown(self.relative(&file)), MAX_PATH);
            }
        }

        let is_news = state != RepositoryState::Same;
        let is_bare = place.shape == RepositoryLayout::Bare;
        // A directory with another name than `.git` that makes git run a program is always suspicious.
        all.dangerous += usize::from(!commands.is_empty() && (is_news || is_bare));
        let is_harmless = commands.is_empty();
        if is_harmless && matches!(state, RepositoryState::Same | RepositoryState::Unknown) {
            return;
        }

        let path = base.path.join(&place.at);
        all.listed.push(AuditRepository {
            path: one_line_cut(&shown(self.relative(&path)), MAX_PATH),
            kind: place.shape.kind(),
            state,
            commands,
        });
    }

    fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(self.base.path).unwrap_or(path)
    }

    /// Returns the state of the files that a setting names.
    fn named(&self, setting: &str) -> Vec<AuditNamed> {
        let Some(before) = self.before.snapshot else { return Vec::new() };
        let files = before.wanted().of_setting(setting).take(MAX_NAMED);
        let named = files.map(|at| {
            let path = one_line_cut(&at.to_string_lossy(), MAX_PATH);
            let is_late = |since| {
                let stamp = InodeStamp::beneath_or_at(self.base.handle, at);
                stamp.is_some_and(|stamp| !stamp.changed_before(since))
            };
            let later = || self.before.since.is_some_and(is_late).then_some(AuditChange::Changed);
            let change = before.change_of(self.base.handle, at).or_else(later);
            AuditNamed { path, change }
        });
        named.collect()
    }

    fn state(&self, place: &RepositoryLocation) -> RepositoryState {
        let was = self.before.snapshot.and_then(|before| before.of(place));
        self.compared(was, &repository::stamps(self.base, place))
    }

    /// Returns the state of a repository from the stamps of the snapshot and those of now.
    fn compared(&self, was: Option<&Stamps>, is: &Stamps) -> RepositoryState {
        let state = match (was, self.before.snapshot) {
            (Some(was), _) if was == is => RepositoryState::Same,
            (Some(_), _) => return RepositoryState::Changed,
            (None, Some(before)) if before.is_complete() => return RepositoryState::New,
            (None, _) => RepositoryState::Unknown,
        };
        match self.before.since {
            Some(since) if is.iter().all(|(_, stamp)| stamp.changed_before(since)) => {
                RepositoryState::Same
            }
            Some(_) => RepositoryState::Changed,
            None => state,
        }
    }

    /// Returns the state of a repository inside of a git directory. The snapshot has none of them, so their change
    /// times count, which no program can set.
    fn state_inside(&self, base: Base<'_>, place: &RepositoryLocation) -> RepositoryState {
        let began = self.before.snapshot.map(Snapshot::began);
        let Some(since) = began.into_iter().chain(self.before.since).min() else {
            return RepositoryState::Unknown;
        };
        let itself = InodeStamp::beneath(base.handle, &place.at);
        let stamps = repository::stamps(base, place).into_iter().map(|(_, stamp)| stamp);
        let is_old = itself.into_iter().chain(stamps).all(|one| one.changed_before(since));
        if is_old { RepositoryState::Same } else { RepositoryState::New }
    }
}

fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".to_owned() } else { path.to_string_lossy().into_owned() }
}

#[cfg(test)]
mod tests;
