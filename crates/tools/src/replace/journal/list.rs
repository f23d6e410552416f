//! Lists the changes that can be undone, with diffs on request.

use super::JournalSession;
use super::change_log::Before;
use super::recovery::recover;
use super::report::InterruptedReplace;
use super::select::{Source, Undoable, Unit, Which, selects, units_blocking};
use super::undo_id::UndoId;
use crate::edit_diff;
use quackd_protocol::worker::CallOrigin;
use quackd_search::replace::{Digest, MAX_FILE_BYTES};
use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Maximum number of listed changes. The newest ones are listed.
const MAX_LISTED: usize = 1000;

/// Maximum number of files that are named for each replacement.
const MAX_FILES: usize = 100;

/// Size of all diffs from which on no more are made, in bytes.
const MAX_DIFF_BYTES: usize = 512 * 1024;

/// Size of the contents from which on no more diffs are made, in bytes.
const MAX_READ_BYTES: u64 = 64 * 1024 * 1024;

/// A replacement, an undo or a change of one file.
#[derive(Debug)]
pub(crate) struct Listed {
    /// Id for undoing it.
    pub(crate) id: UndoId,
    /// Time, in milliseconds since 1970. 0 if it is not known.
    pub(crate) at_ms: i64,
    /// Name of the tool. Empty if it is not known.
    pub(crate) tool: String,
    pub(crate) origin: CallOrigin,
    /// The first files, at most [`MAX_FILES`].
    pub(crate) files: Vec<ListedFile>,
    /// Number of files.
    pub(crate) n_files: usize,
    /// The undone change, call or turn, if this is an undo.
    pub(crate) undoes: Option<String>,
    /// Id of the undo that undid this one.
    pub(crate) undone_by: Option<String>,
    /// Whether the originals exist.
    pub(crate) has_originals: bool,
    /// Whether it finished.
    pub(crate) has_ended: bool,
    /// Whether it is a single change of a file, and not a replacement or an undo.
    pub(crate) is_single: bool,
}

/// A changed file.
#[derive(Debug)]
pub(crate) struct ListedFile {
    pub(crate) path: PathBuf,
    pub(crate) kind: ChangeKind,
    /// The diff, if it was requested.
    pub(crate) diff: Option<FileDiff>,
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Created,
    Changed,
    Deleted,
}

impl ChangeKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Deleted => "deleted",
        }
    }

    fn of(step: &Undoable) -> Self {
        match (step.before, step.after) {
            (Some(None), _) => Self::Created,
            (_, None) => Self::Deleted,
            _ => Self::Changed,
        }
    }
}

/// Diff of one change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileDiff {
    /// A unified diff.
    Unified(String),
    /// No diff, with the reason.
    None(&'static str),
}

/// Filter and detail of a list.
#[derive(Debug, Clone)]
pub(crate) struct ListRequest {
    /// Only this.
    pub(crate) which: Option<Which>,
    /// Whether to make diffs.
    pub(crate) has_diffs: bool,
}

/// Returns the finished entries and changes, newest first, and the interrupted replacements found on the way.
pub(crate) fn list_blocking(
    session: JournalSession<'_>,
    request: &ListRequest,
) -> (Vec<Listed>, Vec<InterruptedReplace>) {
    recover(session);
    let interrupted = session.journal.untold_blocking();
    let mut units = units_blocking(session.journal);

    if let Some(which) = &request.which {
        let is_selected = selects(&units, which);
        // A diff needs the later changes too.
        let first = units.iter().position(&is_selected).unwrap_or(units.len());
        units.drain(..first);
        let is_listed: Vec<bool> = units.iter().map(is_selected).collect();
        return (listed(session, units, request.has_diffs, &is_listed), interrupted);
    }

    let surplus = units.len().saturating_sub(MAX_LISTED);
    units.drain(..surplus);
    let all = vec![true; units.len()];
    (listed(session, units, request.has_diffs, &all), interrupted)
}

fn listed(
    session: JournalSession<'_>,
    units: Vec<Unit>,
    has_diffs: bool,
    is_listed: &[bool],
) -> Vec<Listed> {
    let mut diffs =
        has_diffs.then(|| Diffs { session, known: BTreeMap::new(), n_bytes: 0, n_read: 0 });

    let newest_first = units.into_iter().zip(is_listed).rev();
    let listed = newest_first.filter_map(|(unit, is_listed)| {
        let mut one = describe(&unit);
        let mut steps = Vec::new();
        unit.add_to(&mut Default::default(), &mut steps);
        one.n_files = steps.len();
        for step in &steps {
            let diff = diffs.as_mut().map(|diffs| diffs.of(step));
            if one.files.len() < MAX_FILES {
                let (path, kind) = (step.path.clone(), ChangeKind::of(step));
                one.files.push(ListedFile { path, kind, diff });
            }
        }
        is_listed.then_some(one)
    });

    listed.take(MAX_LISTED).collect()
}

fn describe(unit: &Unit) -> Listed {
    let one = Listed {
        id: unit.id().clone(),
        at_ms: 0,
        tool: String::new(),
        origin: CallOrigin::default(),
        files: Vec::new(),
        n_files: 0,
        undoes: None,
        undone_by: None,
        has_originals: true,
        has_ended: true,
        is_single: true,
    };

    match unit {
        Unit::Entry(_, manifest) => Listed {
            at_ms: manifest.began.at_ms,
            tool: manifest.began.tool.clone(),
            origin: manifest.began.origin.clone(),
            undoes: manifest.began.undoes.clone(),
            undone_by: manifest.undone_by.clone(),
            has_originals: manifest.began.has_originals,
            has_ended: manifest.has_ended,
            is_single: false,
            ..one
        },
        Unit::Change(change) => Listed {
            at_ms: change.record.at_ms,
            tool: change.record.tool.clone(),
            origin: change.record.origin.clone(),
            undone_by: change.undone_by.clone(),
            has_originals: change.record.before != Before::NotKept,
            ..one
        },
    }
}

/// Makes the diffs of changes, which are given newest first. The content after a change is the original of the next change
/// of the same file, or the content of the file now.
struct Diffs<'a> {
    session: JournalSession<'a>,
    /// The content before the last given change of each file. `None`: it did not exist.
    known: BTreeMap<PathBuf, Option<Vec<u8>>>,
    /// Size of the diffs.
    n_bytes: usize,
    /// Size of the read contents.
    n_read: u64,
}

impl Diffs<'_> {
    fn of(&mut self, step: &Undoable) -> FileDiff {
        if MAX_DIFF_BYTES <= self.n_bytes || MAX_READ_BYTES <= self.n_read {
            return FileDiff::None("the diffs are larger than the limit");
        }

        let after = match self.known.remove(&step.path) {
            Some(content) => Ok(content),
            None => self.now(&step.path),
        };
        let before = self.original(step);
        if let Ok(before) = &before {
            self.known.insert(step.path.clone(), before.clone());
        }

        let (Ok(before), Ok(after)) = (before, after) else {
            return FileDiff::None("a content is not kept or cannot be read");
        };
        if after.as_deref().map(Digest::of) != step.after {
            return FileDiff::None("the file was changed since");
        }

        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        if before.contains(&0) || after.contains(&0) {
            return FileDiff::None("the file is binary");
        }

        let described = edit_diff::describe(&step.path.to_string_lossy(), &before, &after);
        match described.get("patch").and_then(|patch| patch.as_str()) {
            Some(patch) => {
                self.n_bytes += patch.len();
                FileDiff::Unified(patch.to_owned())
            }
            None => FileDiff::None("the diff is larger than the limit"),
        }
    }

    fn now(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let mut content = Vec::new();
        match self.session.root.open_relative(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?,
        };
        self.n_read += content.len() as u64;
        Ok(Some(content))
    }

    fn original(&mut self, step: &Undoable) -> io::Result<Option<Vec<u8>>> {
        let journal = self.session.journal;
        let content = match (&step.before, &step.source) {
            (Some(None), _) => return Ok(None),
            (_, Source::Entry(id, record)) => {
                journal.originals_blocking(id)?.read(record, MAX_FILE_BYTES)?
            }
            (_, Source::Log(change)) => change.original(&journal.folder()?)?,
        };

        self.n_read += content.len() as u64;
        match step.before {
            Some(Some(digest)) if Digest::of(&content) == digest => Ok(Some(content)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
