//! Finds the changes of the session in its copy, and the state of the same paths in the workspace.

use crate::error::{IsolateError, OnFile as _};
use crate::ignored::IgnoreRules;
use crate::manifest::{Manifest, TextSpan};
use crate::node::{self, Node, Stamp};
use crate::notes::Notes;
use crate::tree::{Listed, Place, Trees};
use crate::walk::{Visit, walk};
use quackd_protocol::isolate::{FileChange, IsolatedChoice};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// Maximum number of changed files.
const MAX_CHANGES: usize = 100_000;

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
    let mut scan = Scan { manifest, seen: BTreeSet::new(), changes: Vec::new(), notes };
    walk(copy, user_excludes, &mut scan)?;
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
    /// Known paths that are unchanged or in `changes`.
    seen: BTreeSet<PathBuf>,
    changes: Vec<Change>,
    notes: &'a mut Notes,
}

impl Visit for Scan<'_> {
    fn enters(&mut self, at: &Path, rules: &IgnoreRules) -> bool {
        if self.manifest.copied.outputs.iter().any(|output| output == at) {
            return false;
        }
        has_below(&self.manifest.entries, at) || !rules.ignore(at, true)
    }

    fn node(
        &mut self,
        directory: BorrowedFd<'_>,
        entry: &Listed,
        at: PathBuf,
        rules: &IgnoreRules,
    ) -> Result<(), IsolateError> {
        let known = self.manifest.entries.get(&at);
        let stamp = Stamp::of(&entry.stat);
        if known.is_some_and(|known| known.copy == Some(stamp)) {
            self.seen.insert(at);
        } else if known.is_some() || !rules.ignore(&at, false) {
            self.compare(directory, at)?;
        }
        Ok(())
    }

    /// Leaves a directory out. Its files count as unchanged, not as deleted.
    fn unreadable(&mut self, at: &Path, why: &str) {
        self.notes.add(at, why);
        let below = self.manifest.entries.keys().filter(|known| known.starts_with(at));
        self.seen.extend(below.cloned());
    }
}

/// Whether a path is `directory` or below it.
pub(crate) fn has_below<T>(paths: &BTreeMap<PathBuf, T>, directory: &Path) -> bool {
    let mut after = paths.range::<Path, _>((Bound::Included(directory), Bound::Unbounded));
    after.next().is_some_and(|(path, _)| path.starts_with(directory))
}

impl Scan<'_> {
    fn compare(&mut self, directory: BorrowedFd<'_>, at: PathBuf) -> Result<(), IsolateError> {
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
