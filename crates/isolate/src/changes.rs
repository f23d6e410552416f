//! Finds the changes of one side since both were the same, and the state of the same paths on the other side.

use crate::error::{IsolateError, OnFile as _};
use crate::ignored::IgnoreRules;
use crate::manifest::{Common, Manifest, TextSpan};
use crate::node::{self, Node, Stamp};
use crate::notes::Notes;
use crate::tree::{Direction, Listed, Place, Sides};
use crate::walk::{Visit, walk};
use quackd_protocol::isolate::{FileChange, IsolatedChoice};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// Maximum number of changed files.
const MAX_CHANGES: usize = 100_000;

/// A path whose state on the source differs from the common state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) path: PathBuf,
    /// State that both had at last. `None`: nothing existed.
    pub(crate) common: Option<Node>,
    /// Content of the common state, for merges.
    pub(crate) text: Option<TextSpan>,
    /// State on the side whose changes are taken.
    pub(crate) source: Option<Node>,
    pub(crate) source_stamp: Option<Stamp>,
    /// State on the side that they are written to.
    pub(crate) target: Option<Node>,
    pub(crate) target_stamp: Option<Stamp>,
}

impl Change {
    pub(crate) fn kind(&self) -> FileChange {
        match (&self.common, &self.source) {
            (None, _) => FileChange::Added,
            (Some(_), None) => FileChange::Deleted,
            (Some(_), Some(_)) => FileChange::Changed,
        }
    }
}

/// Finds the chosen changes, sorted by path.
pub(crate) fn find(
    manifest: &Manifest,
    sides: Sides<'_>,
    input: &ScanInput<'_>,
    choice: &IsolatedChoice,
    notes: &mut Notes,
) -> Result<Vec<Change>, IsolateError> {
    let Sides { direction, source, target } = sides;
    let seen = BTreeSet::new();
    let mut scan = Scan { manifest, direction, input, seen, changes: Vec::new(), notes };
    walk(source, input.user_excludes, &mut scan)?;
    scan.add_deleted()?;

    let Scan { mut changes, .. } = scan;
    changes.retain(|change| is_chosen(&change.path, &choice.paths));

    for chosen in &choice.paths {
        if !changes.iter().any(|change| change.path.starts_with(chosen)) {
            notes.add(chosen, "has no changes");
        }
    }

    // A target with the recorded stamp has the common content, so it is not read.
    for change in &mut changes {
        let known = manifest.entries.get(&change.path);
        let stat = target.stat(&change.path).on("read", &change.path)?;
        let stamp = stat.as_ref().map(Stamp::of);
        match known.filter(|known| stamp.is_some() && target_stamp(direction, known) == stamp) {
            Some(known) => (change.target, change.target_stamp) = (Some(known.node.clone()), stamp),
            None => {
                let current = node::read_at(target, &change.path).on("read", &change.path)?;
                (change.target, change.target_stamp) = current.unzip();
            }
        }
    }

    changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(changes)
}

fn is_chosen(path: &Path, chosen: &[PathBuf]) -> bool {
    chosen.is_empty() || chosen.iter().any(|chosen| path.starts_with(chosen))
}

fn source_stamp(direction: Direction, common: &Common) -> Option<Stamp> {
    match direction {
        Direction::Apply => common.copy,
        Direction::Refresh => common.base,
    }
}

fn target_stamp(direction: Direction, common: &Common) -> Option<Stamp> {
    match direction {
        Direction::Apply => common.base,
        Direction::Refresh => common.copy,
    }
}

/// Paths that are left out.
#[derive(Debug, Default)]
pub(crate) struct ScanInput<'a> {
    /// Text of the user's own file of ignored names.
    pub(crate) user_excludes: Option<&'a str>,
    /// Relative paths that the session must not see.
    pub(crate) hidden: Vec<PathBuf>,
}

struct Scan<'a> {
    manifest: &'a Manifest,
    direction: Direction,
    input: &'a ScanInput<'a>,
    /// Known paths that are unchanged or in `changes`.
    seen: BTreeSet<PathBuf>,
    changes: Vec<Change>,
    notes: &'a mut Notes,
}

impl Visit for Scan<'_> {
    fn enters(&mut self, at: &Path, rules: &IgnoreRules) -> bool {
        if self.manifest.copied.outputs.iter().any(|output| output == at) || self.hides(at) {
            return false;
        }

        // An ignored directory may have files that git tracks. The copy has them.
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
        let stamp = Some(Stamp::of(&entry.stat));

        if known.is_some_and(|known| source_stamp(self.direction, known) == stamp) {
            self.seen.insert(at);
        } else if !self.hides(&at) && (known.is_some() || !rules.ignore(&at, false)) {
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
    // Paths are ordered by component: those in the directory follow it without a gap.
    let mut after = paths.range::<Path, _>((Bound::Included(directory), Bound::Unbounded));
    after.next().is_some_and(|(path, _)| path.starts_with(directory))
}

impl Scan<'_> {
    /// Whether a path is hidden, or below a hidden directory.
    fn hides(&self, at: &Path) -> bool {
        self.input.hidden.iter().any(|hidden| at.starts_with(hidden))
    }

    fn compare(&mut self, directory: BorrowedFd<'_>, at: PathBuf) -> Result<(), IsolateError> {
        let name = at.file_name().unwrap_or_default().to_owned();
        let place = Place { directory: directory.try_clone_to_owned().on("open", &at)?, name };
        let known = self.manifest.entries.get(&at);
        let state = match node::read(&place) {
            Ok(state) => state,
            Err(error) => {
                self.notes.add(&at, &format!("cannot be read and is left out: {error}"));
                // A file that cannot be read must not count as deleted.
                self.seen.insert(at);
                return Ok(());
            }
        };

        // It was removed since the listing, so it counts as deleted.
        let Some((source, stamp)) = state else { return Ok(()) };

        self.seen.insert(at.clone());

        if known.is_some_and(|known| known.node == source) {
            return Ok(());
        }
        self.push(Change {
            path: at,
            common: known.map(|known| known.node.clone()),
            text: known.and_then(|known| known.text),
            source: Some(source),
            source_stamp: Some(stamp),
            target: None,
            target_stamp: None,
        })
    }

    fn add_deleted(&mut self) -> Result<(), IsolateError> {
        for (path, known) in &self.manifest.entries {
            if self.seen.contains(path) || self.hides(path) {
                continue;
            }

            self.push(Change {
                path: path.clone(),
                common: Some(known.node.clone()),
                text: known.text,
                source: None,
                source_stamp: None,
                target: None,
                target_stamp: None,
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
