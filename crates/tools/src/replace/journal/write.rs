//! Writes the new content of files, each atomically, after recording it in the journal. The callers that apply
//! and undo provide the content.
//!
//! Files are written in groups. A group costs two syncs of the journal, instead of two per file. All files of a
//! group stay locked from the check of their content until they are replaced. Groups are written in path order,
//! which is the same for every process, so two processes cannot deadlock.

use super::links::names_inside_blocking;
use super::manifest::FileRecord;
use super::parallel::in_parallel;
use super::report::{EarlyStop, FileReport, LeftReason, WriteOutcome};
use super::session_journal::EntryWriter;
use crate::Confinement;
use crate::read_tracker::ReadTracker;
use crate::write_error::WriteFailure;
use quackd_sandbox::{
    OtherNames, PathError, Purpose, Root, StagedContent, StagedTag, Target, WriteError,
};
use quackd_search::replace::{Digest, MAX_FILE_BYTES};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Maximum number of files in one group. Each needs three file descriptors.
const GROUP_FILES: usize = 32;

/// Size of old and new content at which a group is written, in bytes.
const GROUP_BYTES: usize = 8 * 1024 * 1024;

/// Check for cancellation, called between files.
pub(super) type Cancelled<'a> = &'a dyn Fn() -> bool;

/// Computes the new content of the file with a number from its old content.
pub(super) type NewContent<'a> = &'a mut dyn FnMut(usize, &[u8]) -> Result<Vec<u8>, LeftReason>;

/// A planned change of a file.
#[derive(Debug)]
pub(super) struct PlannedWrite {
    /// Path relative to the workspace.
    pub(super) path: PathBuf,
    /// Accepted digests of the current content. `None`: the file may be missing.
    pub(super) before: Vec<Option<Digest>>,
    /// Digest of the new content. `None`: the file is deleted.
    pub(super) after: Option<Digest>,
    /// Device and inode, if the file has several names.
    pub(super) shared: Option<(u64, u64)>,
}

/// Root, confinement and read tracker of a write.
#[derive(Clone, Copy)]
pub(super) struct WriteContext<'a> {
    pub(super) root: &'a Root,
    pub(super) confinement: &'a Confinement,
    pub(super) seen: &'a ReadTracker,
}

/// Writes `changes` in order. Never stops within a file.
pub(super) fn write_all(
    place: WriteContext<'_>,
    changes: &[&PlannedWrite],
    mut entry: Option<&mut EntryWriter<'_>>,
    content: NewContent<'_>,
    cancelled: Cancelled<'_>,
) -> (Vec<FileReport>, Option<EarlyStop>) {
    let shared = changes.iter().filter_map(|change| change.shared).collect();
    let n_inside = names_inside_blocking(place.root, place.confinement, &shared);
    let mut writing = Writing {
        place,
        n_inside,
        written_in_place: BTreeSet::new(),
        outcomes: changes.iter().map(|_| WriteOutcome::Left(LeftReason::NotReached)).collect(),
        group: Vec::new(),
        stopped: None,
    };

    for (number, change) in changes.iter().enumerate() {
        // A lock on one name of a file covers all its names, so such a file is written alone.
        if change.shared.is_some() || writing.is_group_full() {
            writing.flush(changes, entry.as_deref_mut(), cancelled);
        }
        if writing.stopped.is_none() && cancelled() {
            writing.stopped = Some(EarlyStop::Cancelled);
        }
        if writing.stopped.is_some() {
            break;
        }

        match writing.prepare(number, change, content, cancelled) {
            Ok(prepared) => writing.group.push(prepared),
            Err(outcome) => writing.set(number, outcome),
        }
        if change.shared.is_some() {
            writing.flush(changes, entry.as_deref_mut(), cancelled);
        }
    }

    writing.flush(changes, entry, cancelled);
    let reports = changes.iter().zip(writing.outcomes);
    let reports =
        reports.map(|(change, outcome)| FileReport { path: change.path.clone(), outcome });
    (reports.collect(), writing.stopped)
}

struct Writing<'a> {
    place: WriteContext<'a>,
    /// Number of names in the workspace, for files with several names.
    n_inside: BTreeMap<(u64, u64), u64>,
    written_in_place: BTreeSet<(u64, u64)>,
    outcomes: Vec<WriteOutcome>,
    group: Vec<LockedFile>,
    stopped: Option<EarlyStop>,
}

/// A file that is locked, verified and ready to be written.
struct LockedFile {
    number: usize,
    target: Target,
    tag: StagedTag,
    before: Option<Digest>,
    old: Vec<u8>,
    /// `None`: the file is deleted.
    new: Option<Vec<u8>>,
    other_names: OtherNames,
}

impl Writing<'_> {
    fn set(&mut self, number: usize, outcome: WriteOutcome) {
        if let Some(place) = self.outcomes.get_mut(number) {
            *place = outcome;
        }
    }

    fn is_group_full(&self) -> bool {
        let bytes: usize = self.group.iter().map(LockedFile::n_bytes).sum();
        GROUP_FILES <= self.group.len() || GROUP_BYTES <= bytes
    }

    fn prepare(
        &self,
        number: usize,
        change: &PlannedWrite,
        content: NewContent<'_>,
        cancelled: Cancelled<'_>,
    ) -> Result<LockedFile, WriteOutcome> {
        let WriteContext { root, confinement, .. } = self.place;
        let left = |left| Err(WriteOutcome::Left(left));
        let failed = |error| WriteOutcome::Left(named(error, root, confinement, &change.path));
        let may_be_missing = change.before.contains(&None);
        let open = |purpose| root.open_target_at(&change.path, purpose, cancelled);
        let mut target = match open(Purpose::Edit) {
            Err(error) if is_missing(&error) && change.after.is_none() => {
                return left(LeftReason::Already);
            }
            Err(error) if is_missing(&error) && may_be_missing => {
                self.check_name(&change.path)?;
                open(Purpose::Write).map_err(failed)?
            }
            opened => opened.map_err(failed)?,
        };

        // Check the opened path: a link may have been inserted since.
        if let Some(rule) = confinement.protects(target.relative()) {
            return left(LeftReason::Protected(rule));
        }
        if target.relative() != change.path {
            return left(LeftReason::Conflict);
        }

        let old = target.read(MAX_FILE_BYTES).map_err(failed)?;
        let before = target.version().map(|_| Digest::of(&old));
        let file_id = target.version().map(|version| version.device_inode());

        if before == change.after {
            // Another of its names was written before, in the same call.
            let is_ours = file_id.is_some_and(|id| self.written_in_place.contains(&id));
            return Err(if is_ours {
                WriteOutcome::Written { is_detached: false }
            } else {
                WriteOutcome::Left(LeftReason::Already)
            });
        }
        if !change.before.contains(&before) {
            return left(LeftReason::Conflict);
        }

        let new = match change.after {
            Some(after) => {
                let new = content(number, &old).map_err(WriteOutcome::Left)?;
                if Digest::of(&new) != after {
                    return left(LeftReason::Conflict);
                }
                Some(new)
            }
            None => None,
        };

        let n_names = target.n_names();
        let is_all_inside = file_id
            .and_then(|id| self.n_inside.get(&id))
            .is_some_and(|n_inside| *n_inside == n_names);
        let other_names = if is_all_inside { OtherNames::Join } else { OtherNames::Leave };
        let tag = StagedTag::random().map_err(|error| failed(error.into()))?;
        Ok(LockedFile { number, target, tag, before, old, new, other_names })
    }

    /// Records the group in the journal and then writes it.
    fn flush(
        &mut self,
        changes: &[&PlannedWrite],
        mut entry: Option<&mut EntryWriter<'_>>,
        cancelled: Cancelled<'_>,
    ) {
        let group = std::mem::take(&mut self.group);
        if group.is_empty() || self.stopped.is_some() {
            return;
        }

        let mut first = 0;
        // Recorded and synced before the first file changes.
        if let Some(entry) = entry.as_deref_mut() {
            let mut steps: Vec<(FileRecord, &[u8])> = group
                .iter()
                .filter_map(|one| Some((one.step(changes.get(one.number)?), one.old.as_slice())))
                .collect();
            match entry.note(&mut steps) {
                Ok(number) => first = number,
                Err(error) => {
                    let words = format!("the originals cannot be kept: {error}");
                    self.stopped = Some(EarlyStop::Failed(words));
                    return;
                }
            }
        }
        self.replace_group(group, first, entry, cancelled);
    }

    /// Writes in four passes over the group: the first of many syncs does most of the work, the others take
    /// little time.
    fn replace_group(
        &mut self,
        group: Vec<LockedFile>,
        first: usize,
        mut entry: Option<&mut EntryWriter<'_>>,
        cancelled: Cancelled<'_>,
    ) {
        let root = self.place.root;
        let mut staged = Vec::new();
        for (step, one) in (first..).zip(group) {
            let content =
                one.new.as_deref().map(|new| one.target.stage(new, one.tag, one.other_names));
            match content.transpose() {
                Ok(content) => staged.push((step, one, content)),
                Err(error) => self.refused(one.number, error, root, one.target.relative()),
            }
        }

        let synced = in_parallel(&staged, |(_, _, content)| {
            content.as_ref().map_or(Ok(()), StagedContent::sync)
        });

        let mut written: BTreeMap<PathBuf, Target> = BTreeMap::new();
        for ((step, mut one, content), synced) in staged.into_iter().zip(synced) {
            if self.stopped.is_none() && cancelled() {
                self.stopped = Some(EarlyStop::Cancelled);
            }
            // Staged files that are not moved into place are removed.
            if self.stopped.is_some() {
                break;
            }
            match synced.and_then(|()| self.put(&mut one, content)) {
                Ok(outcome) => {
                    if let Some(entry) = entry.as_deref_mut() {
                        entry.wrote(step);
                    }
                    self.set(one.number, outcome);
                    let above = one.target.relative().parent().map(Path::to_path_buf);
                    written.insert(above.unwrap_or_default(), one.target);
                }
                Err(error) => self.refused(one.number, error, root, one.target.relative()),
            }
        }

        // One sync for each directory: `written` has one of its files.
        let targets: Vec<Target> = written.into_values().collect();
        for error in in_parallel(&targets, Target::sync_parent).into_iter().filter_map(Result::err)
        {
            self.stopped = Some(EarlyStop::Failed(format!("the disk fails: {error}")));
        }
    }

    /// Writes the staged content, or deletes the file if there is none.
    fn put(
        &mut self,
        one: &mut LockedFile,
        content: Option<StagedContent>,
    ) -> Result<WriteOutcome, WriteError> {
        let seen = self.place.seen;
        let is_shared = 1 < one.target.n_names();
        let known = one.target.version();
        // Finish this file even if the call was canceled.
        let (Some(content), Some(new)) = (content, &one.new) else {
            one.target.delete(&|| false)?;
            return Ok(WriteOutcome::Written { is_detached: false });
        };
        let version = one.target.put(content, new, &|| false)?;
        let name = one.target.relative();

        // If the session had read the previous version, it knows the new one. Otherwise it does not.
        if known.is_some() && seen.version_blocking(name) == known {
            seen.remember_blocking(name.to_path_buf(), version);
        }

        let is_joined = one.other_names == OtherNames::Join;
        if is_shared && is_joined {
            self.written_in_place.insert(version.device_inode());
        }
        Ok(WriteOutcome::Written { is_detached: is_shared && !is_joined })
    }

    /// Fails for a protected name. Call it before a missing file is opened: that creates missing directories.
    fn check_name(&self, path: &Path) -> Result<(), WriteOutcome> {
        let name = self.place.root.real_name_at(path).unwrap_or_else(|_| path.to_owned());
        match self.place.confinement.protects(&name) {
            Some(rule) => Err(WriteOutcome::Left(LeftReason::Protected(rule))),
            None => Ok(()),
        }
    }

    fn refused(&mut self, number: usize, error: WriteError, root: &Root, path: &Path) {
        if is_disk_full(&error) {
            self.stopped = Some(EarlyStop::Failed("the disk is full".into()));
        }
        self.set(number, WriteOutcome::Left(named(error, root, self.place.confinement, path)));
    }
}

impl LockedFile {
    fn n_bytes(&self) -> usize {
        self.old.len() + self.new.as_ref().map_or(0, Vec::len)
    }

    fn step(&self, change: &PlannedWrite) -> FileRecord {
        FileRecord {
            path: change.path.clone(),
            before: self.before,
            after: change.after,
            at: 0,
            len: self.old.len() as u64,
            tag: self.tag,
        }
    }
}

fn is_missing(error: &WriteError) -> bool {
    matches!(error, WriteError::Path(PathError::NotFound))
}

fn is_disk_full(error: &WriteError) -> bool {
    let WriteError::Io { source, .. } = error else { return false };
    matches!(Errno::from_io_error(source), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Converts an error to the reason that edit_file reports.
fn named(error: WriteError, root: &Root, confinement: &Confinement, path: &Path) -> LeftReason {
    match error {
        WriteError::Path(PathError::NotFound) => LeftReason::Gone,
        WriteError::Changed | WriteError::TooLarge { .. } => LeftReason::Conflict,
        WriteError::Path(
            PathError::Escapes | PathError::IsDirectory | PathError::NotRegular { .. },
        ) => LeftReason::Conflict,
        WriteError::GivenUp => LeftReason::NotReached,
        error => {
            match WriteFailure::of(error, "edit", root, &path.to_string_lossy(), confinement) {
                WriteFailure::Failed { reason, denial, .. } => {
                    LeftReason::Failed { reason, denial }
                }
                other => LeftReason::Failed { reason: other.to_string(), denial: None },
            }
        }
    }
}
