//! Compares a session's files with the newest recorded state, and keeps new contents.

use crate::changes::has_below;
use crate::error::{IsolateError, OnFile as _};
use crate::ignored::IgnoreRules;
use crate::node::{self, Node, Stamp};
use crate::notes::Notes;
use crate::recorded::{Current, Difference, Recorded, StateFiles};
use crate::store::Store;
use crate::tree::{Listed, Place, Tree};
use crate::walk::{Visit, walk};
use rustix::fs::FileType;
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// Maximum size of an ignored file whose states are recorded, in bytes, as in copies.
const MAX_IGNORED_BYTES: u64 = 1024 * 1024;

/// The files whose states are recorded.
#[derive(Debug, Clone, Default)]
pub struct RecordedFiles {
    /// Directory of the files.
    pub tree: PathBuf,
    /// The workspace, whose path the files have for the session.
    pub workspace: PathBuf,
    /// Directory of the private copy, if the files are one.
    pub copy: Option<PathBuf>,
    /// Absolute paths that are not recorded.
    pub hidden: Vec<PathBuf>,
    /// Most files, with those that are not recorded.
    pub max_files: u64,
    /// Text of the user's own file of ignored names.
    pub user_excludes: Option<String>,
    /// Relative paths that git tracks. A directory with one of them is recorded although git ignores its name.
    pub tracked: BTreeSet<PathBuf>,
}

impl RecordedFiles {
    fn is_hidden(&self, at: &Path) -> bool {
        let at = self.workspace.join(at);
        self.hidden.contains(&at)
    }

    /// Whether a path is hidden or in a hidden directory.
    pub(crate) fn is_hidden_or_below(&self, at: &Path) -> bool {
        !self.hidden.is_empty() && at.ancestors().any(|above| self.is_hidden(above))
    }
}

/// State of a path that existed and was not recorded. It is never changed.
fn unrecorded() -> Recorded {
    Recorded { node: Node::Other, stamp: None, content: None }
}

/// Result of a scan.
pub(crate) struct Found {
    /// Sorted by path.
    pub(crate) differences: Vec<Difference>,
    /// Files with the same content and another stamp.
    pub(crate) only_stamps: Vec<(PathBuf, Recorded)>,
    /// Files and directories that exist and are not recorded.
    pub(crate) skipped: BTreeSet<PathBuf>,
    /// Whether a content was not kept because there was no room.
    pub(crate) is_full: bool,
}

/// Input of a scan.
pub(crate) struct ScanInput<'a> {
    pub(crate) files: &'a RecordedFiles,
    pub(crate) tree: &'a Tree,
    /// Directories with a private layer.
    pub(crate) outputs: &'a [PathBuf],
    pub(crate) known: &'a Current,
    /// Whether there is no state yet.
    pub(crate) is_first: bool,
    pub(crate) states: &'a StateFiles,
    /// Number of the state that the scan may lead to.
    pub(crate) number: u64,
    /// Bytes of contents that may be kept.
    pub(crate) left: u64,
}

/// Compares the files with the newest state. New contents are kept in the pack of state `number` only if there are
/// differences, or no state yet.
pub(crate) fn scan(input: &ScanInput<'_>, notes: &mut Notes) -> Result<Found, IsolateError> {
    let &ScanInput { files, tree, outputs, known, is_first, states, number, left } = input;
    let mut scan = Scan {
        files,
        outputs,
        known,
        seen: BTreeSet::new(),
        skipped: BTreeSet::new(),
        n_files: 0,
        only_counts: true,
        differences: Vec::new(),
        only_stamps: Vec::new(),
        store: Store::new(states, number, &known.entries, left),
        notes,
    };
    let excludes = files.user_excludes.as_deref();
    if is_first {
        // Too many files are found before any content is kept.
        walk(tree, excludes, &mut scan)?;
        // The second walk finds and counts all of it again.
        scan.skipped.clear();
        scan.n_files = 0;
    }
    scan.only_counts = false;
    let walked = walk(tree, excludes, &mut scan);
    scan.add_deleted();

    let Scan { differences, mut only_stamps, skipped, store, .. } = scan;
    if walked.is_err() || differences.is_empty() && !is_first {
        store.discard()?;
        // The pack is gone, with the contents that were new.
        for (_, recorded) in &mut only_stamps {
            recorded.content = recorded.content.filter(|span| span.pack != number);
        }
        return walked.map(|()| Found { differences, only_stamps, skipped, is_full: false });
    }
    let is_full = store.finish()?;
    Ok(Found { differences, only_stamps, skipped, is_full })
}

struct Scan<'a> {
    files: &'a RecordedFiles,
    outputs: &'a [PathBuf],
    known: &'a Current,
    /// Known paths that are unchanged or in `differences`.
    seen: BTreeSet<PathBuf>,
    skipped: BTreeSet<PathBuf>,
    n_files: u64,
    /// Whether files are counted and not read.
    only_counts: bool,
    differences: Vec<Difference>,
    only_stamps: Vec<(PathBuf, Recorded)>,
    store: Store<'a>,
    notes: &'a mut Notes,
}

impl Visit for Scan<'_> {
    fn enters(&mut self, at: &Path, rules: &IgnoreRules) -> bool {
        let is_left_out =
            self.files.is_hidden(at) || self.outputs.iter().any(|output| output == at);
        let tracked = &self.files.tracked;
        let has_tracked =
            || tracked.range(at.to_owned()..).next().is_some_and(|path| path.starts_with(at));
        let is_ignored =
            || rules.ignore(at, true) && !has_below(&self.known.entries, at) && !has_tracked();

        if is_left_out || is_ignored() {
            self.skipped.insert(at.to_owned());
            return false;
        }
        true
    }

    fn node(
        &mut self,
        directory: BorrowedFd<'_>,
        entry: &Listed,
        at: PathBuf,
        rules: &IgnoreRules,
    ) -> Result<(), IsolateError> {
        self.n_files += 1;
        if self.files.max_files < self.n_files {
            return Err(IsolateError::TooManyFiles { max: self.files.max_files });
        }

        if self.files.is_hidden(&at) {
            self.skipped.insert(at);
            return Ok(());
        }

        let known = self.known.entries.get(&at);
        let stamp = Stamp::of(&entry.stat);
        if known.is_some_and(|known| known.stamp == Some(stamp)) {
            self.seen.insert(at);
            return Ok(());
        }

        let len = u64::try_from(entry.stat.st_size).unwrap_or(0);
        let is_tracked = known.is_some() || self.files.tracked.contains(&at);
        if MAX_IGNORED_BYTES < len && !is_tracked && rules.ignore(&at, false) {
            self.skipped.insert(at);
            return Ok(());
        }
        if self.only_counts { Ok(()) } else { self.record(directory, entry, at) }
    }

    /// Leaves a directory out. Its files count as unchanged, not as deleted.
    fn unreadable(&mut self, at: &Path, why: &str) {
        self.notes.add(at, why);
        let below = self.known.entries.keys().filter(|known| known.starts_with(at));
        self.seen.extend(below.cloned());
        self.skipped.insert(at.to_owned());
    }
}

impl Scan<'_> {
    fn record(
        &mut self,
        directory: BorrowedFd<'_>,
        entry: &Listed,
        at: PathBuf,
    ) -> Result<(), IsolateError> {
        let read = match entry.kind() {
            FileType::RegularFile => self.store.read(directory, entry),
            _ => {
                let owned = directory.try_clone_to_owned().on("open", &at)?;
                let place = Place { directory: owned, name: entry.name.clone() };
                let stamp = Stamp::of_settled(&entry.stat);
                let recorded = |(node, _)| Recorded { node, stamp, content: None };
                node::read(&place).map(|found| found.map(recorded))
            }
        };
        let recorded = match read {
            Ok(recorded) => recorded,
            Err(error) => {
                self.notes.add(&at, &format!("cannot be read and is left out: {error}"));
                // A file that cannot be read must not count as deleted.
                self.seen.insert(at.clone());
                self.skipped.insert(at);
                return Ok(());
            }
        };

        // It was removed since the listing, so it counts as deleted.
        let Some(recorded) = recorded else { return Ok(()) };
        self.seen.insert(at.clone());

        match self.known.entries.get(&at) {
            Some(known) if known.node == recorded.node => {
                let content = known.content.or(recorded.content);
                self.only_stamps.push((at, Recorded { content, ..recorded }));
            }
            known => {
                // A skipped path may have existed in the state before, with an unknown content.
                let was_skipped = || at.ancestors().any(|above| self.known.skipped.contains(above));
                let before = known.cloned().or_else(|| was_skipped().then(unrecorded));
                self.differences.push(Difference { path: at, before, after: Some(recorded) });
            }
        }
        Ok(())
    }

    fn add_deleted(&mut self) {
        for (path, known) in &self.known.entries {
            if !self.seen.contains(path) && !self.files.is_hidden_or_below(path) {
                let before = Some(known.clone());
                self.differences.push(Difference { path: path.clone(), before, after: None });
            }
        }
        self.differences.sort_by(|a, b| a.path.cmp(&b.path));
    }
}
