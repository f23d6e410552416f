//! The audit: checks every repository of a workspace and compares it with the snapshot. Called when the user requests
//! it.

use super::planted::{self, Reach};
use super::repository::{self, Base, RepositoryLayout, RepositoryLocation};
use super::sanitize::plain;
use super::snapshot::{Known, Snapshot};
use super::{Budget, Report};
use crate::confine::git::Walk;
use crate::confine::git::visited::Visited;
use quackd_protocol::client::{AuditPlanted, AuditRepository, RepositoryState};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Maximum number of repositories of each kind. With more, the audit is incomplete.
const MAX_REPOSITORIES: usize = 4096;

/// Maximum number of listed repositories.
const MAX_LISTED: usize = 64;

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
    let listed: BTreeSet<PathBuf> = places.iter().map(|place| place.at.clone()).collect();
    let base = Base { handle: root.as_fd(), path };
    let mut repositories = Vec::new();
    let (mut dangerous, mut is_whole) =
        (0, found.complete && !found.has_more_bare && !found.has_more_obeyed);
    for place in &places {
        if budget.until <= Instant::now() {
            is_whole = false;
            break;
        }
        let commands = repository::commands(base, place, &|at| listed.contains(at));
        let state = state(base, place, before);
        let is_news = state != RepositoryState::Same;
        let is_bare = place.shape == RepositoryLayout::Bare;
        // A directory with another name than `.git` that makes git run a program is always suspicious.
        dangerous += usize::from(!commands.is_empty() && (is_news || is_bare));
        let is_harmless = commands.is_empty();
        if is_harmless && matches!(state, RepositoryState::Same | RepositoryState::Unknown) {
            continue;
        }
        repositories.push(AuditRepository {
            path: plain(&shown(&place.at), MAX_PATH),
            kind: place.shape.told(),
            state,
            commands,
        });
    }
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
        complete: is_whole && planted.is_whole && before.is_some(),
        entries: found.entries,
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
            let path = plain(&planted::shown(&git, &one.at).to_string_lossy(), MAX_PATH);
            all.found.push(AuditPlanted { path, kind: one.kind, removed: false });
        }
        if place.shape != RepositoryLayout::Bare {
            seen.push(git.path);
        }
    }
    all
}

fn state(base: Base<'_>, place: &RepositoryLocation, before: Option<&Snapshot>) -> RepositoryState {
    let Some(before) = before else { return RepositoryState::Unknown };
    match before.of(place) {
        Some(stamps) if *stamps == repository::stamps(base, place) => RepositoryState::Same,
        Some(_) => RepositoryState::Changed,
        None if before.is_complete() => RepositoryState::New,
        None => RepositoryState::Unknown,
    }
}

fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".to_owned() } else { path.to_string_lossy().into_owned() }
}

#[cfg(test)]
mod tests;
