//! Finds the changes of the session in its copy, and the state of the same paths in the workspace.

use crate::copy::is_git;
use crate::error::{IsolateError, OnFile as _};
use crate::ignored::IgnoreRules;
use crate::manifest::{Manifest, TextSpan};
use crate::node::{self, Node, Stamp};
use crate::notes::Notes;
use crate::tree::{Place, Trees, list, open_directory};
use quackd_protocol::isolate::{FileChange, IsolatedChoice};
use rustix::fs::FileType;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

/// Maximum number of changed files.
const MAX_CHANGES: usize = 100_000;

/// Maximum number of entries of one directory, and the maximum depth.
const MAX_ENTRIES: usize = 200_000;
const MAX_DEPTH: usize = 200;

/// A path whose state in the copy differs from the common state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) path: PathBuf,
    /// State that both had at last. `None`: nothing existed.
    pub(crate) common: Option<Node>,
    /// Content of the common state, for merges.
    pub(crate) text: Option<TextSpan>,
    /// State in the copy.
    pub(crate) session: Option<Node>,
    pub(crate) session_stamp: Option<Stamp>,
    /// State in the workspace.
    pub(crate) base: Option<Node>,
    pub(crate) base_stamp: Option<Stamp>,
}

impl Change {
    pub(crate) fn kind(&self) -> FileChange {
        match (&self.common, &self.session) {
            (None, _) => FileChange::Added,
            (Some(_), None) => FileChange::Deleted,
            (Some(_), Some(_)) => FileChange::Changed,
        }
    }
}

/// Finds the chosen changes, sorted by path.
pub(crate) fn find(
    manifest: &Manifest,
    trees: Trees<'_>,
    user_excludes: Option<&str>,
    choice: &IsolatedChoice,
    notes: &mut Notes,
) -> Result<Vec<Change>, IsolateError> {
    let Trees { base, copy } = trees;
    let mut scan = Scan {
        manifest,
        rules: IgnoreRules::of_tree(copy, user_excludes),
        seen: BTreeSet::new(),
        changes: Vec::new(),
        notes,
    };
    scan.directory(copy.top(), Path::new(""), 0)?;
    scan.add_deleted()?;
    let Scan { mut changes, .. } = scan;
    changes.retain(|change| is_chosen(&change.path, &choice.paths));
    for chosen in &choice.paths {
        if !changes.iter().any(|change| change.path.starts_with(chosen)) {
            notes.add(chosen, "has no changes");
        }
    }
    for change in &mut changes {
        let known = manifest.entries.get(&change.path);
        let stat = base.stat(&change.path).on("read", &change.path)?;
        let stamp = stat.as_ref().map(Stamp::of);
        match known.filter(|known| stamp.is_some() && known.base == stamp) {
            Some(known) => (change.base, change.base_stamp) = (Some(known.node.clone()), stamp),
            None => {
                let found = node::read_at(base, &change.path).on("read", &change.path)?;
                (change.base, change.base_stamp) = found.unzip();
            }
        }
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(changes)
}

fn is_chosen(path: &Path, chosen: &[PathBuf]) -> bool {
    chosen.is_empty() || chosen.iter().any(|chosen| path.starts_with(chosen))
}

struct Scan<'a> {
    manifest: &'a Manifest,
    rules: IgnoreRules,
    /// Known paths that are unchanged or in `changes`.
    seen: BTreeSet<PathBuf>,
    changes: Vec<Change>,
    notes: &'a mut Notes,
}

impl Scan<'_> {
    fn directory(
        &mut self,
        directory: BorrowedFd<'_>,
        path: &Path,
        depth: usize,
    ) -> Result<(), IsolateError> {
        let listed = match list(directory, MAX_ENTRIES) {
            Ok(listed) => listed,
            Err(error) => {
                self.unreadable(path, &format!("cannot be listed: {error}"));
                return Ok(());
            }
        };
        self.rules.enter(directory, path);
        for entry in listed {
            let at = path.join(&entry.name);
            if is_git(&entry.name) {
                continue;
            }
            if entry.kind() == FileType::Directory {
                self.subdirectory(directory, &at, depth)?;
                continue;
            }
            let known = self.manifest.entries.get(&at);
            let stamp = Stamp::of(&entry.stat);
            if known.is_some_and(|known| known.copy == Some(stamp)) {
                self.seen.insert(at);
            } else if known.is_some() || !self.rules.ignore(&at, false) {
                self.node(directory, at)?;
            }
        }
        self.rules.leave();
        Ok(())
    }

    fn subdirectory(
        &mut self,
        above: BorrowedFd<'_>,
        at: &Path,
        depth: usize,
    ) -> Result<(), IsolateError> {
        if self.manifest.copied.outputs.iter().any(|output| output == at) {
            return Ok(());
        }
        let mut known =
            self.manifest.entries.range::<Path, _>((Bound::Included(at), Bound::Unbounded));
        let has_known = known.next().is_some_and(|(known, _)| known.starts_with(at));
        if !has_known && self.rules.ignore(at, true) {
            return Ok(());
        }
        if MAX_DEPTH <= depth {
            self.unreadable(at, "is too deep to be compared");
            return Ok(());
        }
        let name = at.file_name().unwrap_or_default();
        match open_directory(above, name) {
            Ok(directory) => self.directory(directory.as_fd(), at, depth + 1),
            Err(error) => {
                self.unreadable(at, &format!("cannot be opened: {error}"));
                Ok(())
            }
        }
    }

    /// Leaves a directory out. Its files count as unchanged, not as deleted.
    fn unreadable(&mut self, path: &Path, why: &str) {
        self.notes.add(path, why);
        let below = self.manifest.entries.keys().filter(|known| known.starts_with(path));
        self.seen.extend(below.cloned());
    }

    fn node(&mut self, directory: BorrowedFd<'_>, at: PathBuf) -> Result<(), IsolateError> {
        let name = at.file_name().unwrap_or_default().to_owned();
        let place = Place { directory: directory.try_clone_to_owned().on("open", &at)?, name };
        let known = self.manifest.entries.get(&at);
        let found = match node::read(&place) {
            Ok(found) => found,
            Err(error) => {
                self.notes.add(&at, &format!("cannot be read and is left out: {error}"));
                self.seen.insert(at);
                return Ok(());
            }
        };
        // It was removed since the listing, so it counts as deleted.
        let Some((session, stamp)) = found else { return Ok(()) };
        self.seen.insert(at.clone());
        if known.is_some_and(|known| known.node == session) {
            return Ok(());
        }
        self.push(Change {
            path: at,
            common: known.map(|known| known.node.clone()),
            text: known.and_then(|known| known.text),
            session: Some(session),
            session_stamp: Some(stamp),
            base: None,
            base_stamp: None,
        })
    }

    fn add_deleted(&mut self) -> Result<(), IsolateError> {
        for (path, known) in &self.manifest.entries {
            if self.seen.contains(path) {
                continue;
            }
            self.push(Change {
                path: path.clone(),
                common: Some(known.node.clone()),
                text: known.text,
                session: None,
                session_stamp: None,
                base: None,
                base_stamp: None,
            })?;
        }
        Ok(())
    }

    fn push(&mut self, change: Change) -> Result<(), IsolateError> {
        if MAX_CHANGES <= self.changes.len() {
            return Err(IsolateError::TooManyChanges { max: MAX_CHANGES });
        }
        self.changes.push(change);
        Ok(())
    }
}
