//! State of a workspace when its worker starts. Taken before the first tool runs, and compared later.

use super::names::WatchedNames;
use super::planted::{self, Earlier};
use super::repository::{self, Base, RepositoryLayout, RepositoryLocation};
use super::wanted::Wanted;
use crate::Root;
use crate::git::stamp::InodeStamp;
use crate::git::visited::{GRANULARITY, Visited};
use crate::git::{FoundRepositories, NamedFile, NamedFiles, Walk};
use crate::hidden::HiddenPaths;
use quackd_protocol::client::AuditChange;
use quackd_protocol::client::AuditFile as Change;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of directory entries that are searched for repositories if the caller passes none.
const WALK_ENTRIES: u64 = 50_000;

/// Repositories that the worker found at its start, so that the tree is walked only once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    places: Vec<RepositoryLocation>,
    obeyed: Vec<PathBuf>,
    is_complete: bool,
    named: Vec<NamedFile>,
    has_more_named: bool,
}

impl Known {
    /// Adds the files that git's configuration names.
    #[must_use]
    pub fn naming(self, named: &NamedFiles) -> Self {
        Self { named: named.files.clone(), has_more_named: !named.is_complete, ..self }
    }

    pub(super) fn into_places(self) -> Vec<RepositoryLocation> {
        self.places
    }
}

impl From<&FoundRepositories> for Known {
    fn from(found: &FoundRepositories) -> Self {
        let named = found.repositories.iter();
        let named =
            named.map(|(at, kind)| RepositoryLocation { at: at.clone(), shape: (*kind).into() });

        let bare = found
            .bare
            .iter()
            .map(|at| RepositoryLocation { at: at.clone(), shape: RepositoryLayout::Bare });
        Self {
            places: named.chain(bare).collect(),
            obeyed: found.obeyed.clone(),
            is_complete: found.complete && !found.has_more_bare && !found.has_more_obeyed,
            named: Vec::new(),
            has_more_named: false,
        }
    }
}

/// State of the files that decide what git runs: see [`repository::stamps`].
pub(super) type Stamps = Vec<(PathBuf, InodeStamp)>;

/// State of a workspace when its worker started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Names at the top and near it, for the check after a command.
    names: WatchedNames,
    /// Names at any depth, for the audit.
    deep: WatchedNames,
    /// Paths to compare in addition to the names of the table.
    wanted: Wanted,
    repositories: BTreeMap<RepositoryLocation, Stamps>,
    /// Repositories outside of the workspace that belong to it, by path.
    mains: BTreeMap<PathBuf, Stamps>,
    /// Links and special files in the repositories.
    earlier: Earlier,
    /// True if every repository at that time is known.
    is_complete: bool,
    /// Start time since the epoch. No command can have made an earlier change.
    began: Duration,
    /// Paths that a check after a command leaves out.
    hidden: HiddenPaths,
}

impl Snapshot {
    /// Records the state of the open directory `root`, whose canonical path is `path`. Without `known` the tree is
    /// walked, up to a limit.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn take_blocking(root: impl AsFd, path: &Path, known: Option<Known>) -> io::Result<Self> {
        let known = match known {
            Some(known) => known,
            None => {
                let mut walk = Walk::new(&root)?;
                walk.step(WALK_ENTRIES);
                Known::from(&walk.finish())
            }
        };

        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let base = Base { handle: root.as_fd(), path };
        let places = known.places.iter().cloned().collect();

        let stamped = |place: RepositoryLocation| {
            let stamps = repository::stamps(base, &place);
            (place, stamps)
        };

        let mains = repository::mains(base, &known.places);
        let git = repository::git_directories(base, &known.places);
        let mut wanted = Wanted::new(path, &known.named, git, known.has_more_named);
        let mut names = WatchedNames::look(&root, &wanted, None, &mut Visited::default())?;
        let named = wanted.add_named(&root, names.files(), |path| names.contains(path));
        for (path, why) in named {
            names.add_wanted(&root, path, why.into());
        }

        Ok(Self {
            names,
            wanted,
            mains: mains.iter().map(|main| (main.path.clone(), main.stamps())).collect(),
            earlier: planted::earlier(base, &places),
            deep: WatchedNames::at_blocking(&root, &known.obeyed),
            repositories: known.places.into_iter().map(stamped).collect(),
            is_complete: known.is_complete,
            // Change times are coarse, so that of a later change may be a little earlier.
            began: began.saturating_sub(GRANULARITY),
            hidden: HiddenPaths::default(),
        })
    }

    /// Makes [`Snapshot::check_blocking`] neither report nor change the paths that `root` hides. The audit, which only the
    /// user reads, still contains them.
    #[must_use]
    pub fn hiding(self, root: &Root) -> Self {
        Self { hidden: root.hidden().clone(), ..self }
    }

    pub(super) fn hidden(&self) -> &HiddenPaths {
        &self.hidden
    }

    /// Watched names at that time.
    #[must_use]
    pub fn names(&self) -> &WatchedNames {
        &self.names
    }

    /// Returns the changes of the watched names at any depth. `found` are the paths that a walk has found now.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn deep_changes(
        &self,
        root: impl AsFd,
        found: &[PathBuf],
    ) -> io::Result<Vec<Change>> {
        let now = WatchedNames::at_blocking(&root, found);
        let before = self.deep.without_unseen(&root, &now);
        let mut changes =
            self.names.changes(&self.look(&root, &self.names, &mut Visited::default())?);

        let more = before.changes(&now).into_iter();
        // An incomplete walk at the start may have missed names that are found now.
        let more = more.filter(|one| self.is_complete || one.change != AuditChange::Made);
        let more: Vec<Change> =
            more.filter(|one| changes.iter().all(|known| known.path != one.path)).collect();

        changes.extend(more);
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(changes)
    }

    /// Returns the changes of the watched names at the top and near it. Takes 4 µs for an empty directory, and up to
    /// about 1.5 ms for 64 directories.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn changes_blocking(&self, root: impl AsFd) -> io::Result<Vec<Change>> {
        Ok(self.names.changes(&self.look(root, &self.names, &mut Visited::default())?))
    }

    /// Reads the watched names now. Adds the directories that it reads to `visited`.
    pub(super) fn look(
        &self,
        root: impl AsFd,
        before: &WatchedNames,
        visited: &mut Visited,
    ) -> io::Result<WatchedNames> {
        WatchedNames::look(root, &self.wanted, Some(before), visited)
    }

    /// Returns the change of a wanted path.
    pub(super) fn change_of(&self, root: impl AsFd, at: &Path) -> Option<AuditChange> {
        self.names.change_of(root, at)
    }

    pub(super) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// State of a repository outside of the workspace.
    pub(super) fn of_main(&self, path: &Path) -> Option<&Stamps> {
        self.mains.get(path)
    }

    pub(super) fn of(&self, place: &RepositoryLocation) -> Option<&Stamps> {
        self.repositories.get(place)
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &RepositoryLocation> {
        self.repositories.keys()
    }

    /// Git directories that mounts protect: those that existed when the worker started, as [`repository::git_directories`]
    /// returns them.
    pub(super) fn held(&self, base: Base<'_>) -> Vec<PathBuf> {
        let places: Vec<_> = self.repositories.keys().cloned().collect();
        repository::git_directories(base, &places)
    }

    /// Start time since the epoch. No command can have made an earlier change.
    #[must_use]
    pub fn began(&self) -> Duration {
        self.began
    }

    pub(super) fn earlier(&self) -> &Earlier {
        &self.earlier
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }
}
