//! The audit: checks every repository of a workspace and compares it with the snapshot. Called when the user requests
//! it.

use super::budget::Budget;
use super::hidden::GitTree;
use super::planted::{self, Reach};
use super::repository::{self, Base, RepositoryLayout, RepositoryLocation};
use super::snapshot::{Known, Snapshot};
use crate::git::Walk;
use crate::git::stamp::InodeStamp;
use crate::git::visited::Visited;
use crate::obeyed::Obeyed;
use quackd_protocol::client::AuditReport as Report;
use quackd_protocol::client::{AuditNamed, AuditPlanted, AuditRepository, RepositoryState};
use quackd_protocol::foreign_text::one_line_cut;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

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

/// Checks every repository under the open directory `root`, whose canonical path is `path`, and the watched names,
/// and compares them with `before`. Without `before` it reports everything that makes git run a program.
///
/// # Errors
/// The directory cannot be read. For unreadable directories inside it, [`Report::complete`] is false.
pub fn audit_blocking(
    root: impl AsFd,
    path: &Path,
    before: Option<&Snapshot>,
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
    is_whole &= before.is_none_or(|before| !before.wanted().is_cut());

    // The limit leaves out those without a program first, then those that are the same.
    repositories.sort_by_cached_key(|one| {
        (one.commands.is_empty(), one.state == RepositoryState::Same, one.path.clone())
    });
    let not_listed = repositories.len().saturating_sub(MAX_LISTED);
    repositories.truncate(MAX_LISTED);

    let planted = planted_in(base, &places, budget.entries, budget.until);

    let mut files = match before {
        Some(before) => before.deep_changes(&root, &found.obeyed)?,
        None => Vec::new(),
    };

    let n_files = files.len();
    files.truncate(MAX_FILES);

    Ok(Report {
        found: n_files + planted.found.len() + planted.not_listed + dangerous,
        // Without a snapshot, no change is known.
        complete: is_whole && planted.is_whole && before.is_some(),
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
    before: Option<&'a Snapshot>,
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
            let state = match self.before.map(|before| (before, before.of_main(&main.path))) {
                Some((_, Some(stamps))) if *stamps == main.stamps() => RepositoryState::Same,
                Some((_, Some(_))) => RepositoryState::Changed,
                Some((before, None)) if before.is_complete() => RepositoryState::New,
                _ => RepositoryState::Unknown,
            };
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
        let Some(before) = self.before else { return Vec::new() };
        let files = before.wanted().of_setting(setting).take(MAX_NAMED);
        let named = files.map(|at| {
            let path = one_line_cut(&at.to_string_lossy(), MAX_PATH);
            AuditNamed { path, change: before.change_of(self.base.handle, at) }
        });
        named.collect()
    }

    fn state(&self, place: &RepositoryLocation) -> RepositoryState {
        let Some(before) = self.before else { return RepositoryState::Unknown };
        match before.of(place) {
            Some(stamps) if *stamps == repository::stamps(self.base, place) => {
                RepositoryState::Same
            }
            Some(_) => RepositoryState::Changed,
            None if before.is_complete() => RepositoryState::New,
            None => RepositoryState::Unknown,
        }
    }

    /// Returns the state of a repository inside of a git directory. The snapshot has none of them, so their change
    /// times count, which no program can set.
    fn state_inside(&self, base: Base<'_>, place: &RepositoryLocation) -> RepositoryState {
        let Some(before) = self.before else { return RepositoryState::Unknown };
        let itself = InodeStamp::beneath(base.handle, &place.at);
        let stamps = repository::stamps(base, place).into_iter().map(|(_, stamp)| stamp);
        let is_old = itself.into_iter().chain(stamps).all(|one| one.changed_before(before.began()));
        if is_old { RepositoryState::Same } else { RepositoryState::New }
    }
}

fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".to_owned() } else { path.to_string_lossy().into_owned() }
}

#[cfg(test)]
mod tests;
