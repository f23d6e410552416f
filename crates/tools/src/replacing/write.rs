//! Giving files their new content, each as a whole or not at all, with the journal ahead of them. What the new
//! content is, is told by applying and undoing.
//!
//! Files are taken in groups, so that a group costs the journal two syncs and not each file. All files of a group
//! are locked from the look at their content until they are replaced. Groups are taken in the order of the
//! paths, which is the same for everybody: two of us cannot wait for each other.

use super::journal::Entry;
use super::links::names_inside_blocking;
use super::manifest::Step;
use super::parallel::in_parallel;
use super::report::{FileReport, Left, Outcome, Stopped};
use crate::Confinement;
use crate::seen::SeenFiles;
use crate::write_failure::WriteFailure;
use quackd_sandbox::{
    OtherNames, PathError, Purpose, Root, StagedContent, StagedTag, Target, WriteError,
};
use quackd_search::replace::{Digest, MAX_FILE_BYTES};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Files of one group. Each takes three descriptors.
const GROUP_FILES: usize = 32;

/// Bytes of old and new content after which a group is written.
const GROUP_BYTES: usize = 8 * 1024 * 1024;

/// Whether the caller wants no more. Asked between files.
pub(super) type Cancelled<'a> = &'a dyn Fn() -> bool;

/// New content of a file: of the one with a number, from its old content.
pub(super) type NewContent<'a> = &'a mut dyn FnMut(usize, &[u8]) -> Result<Vec<u8>, Left>;

/// A file that is to be changed.
#[derive(Debug)]
pub(super) struct Change {
    /// Relative to the workspace.
    pub(super) path: PathBuf,
    /// Contents of which it must have one.
    pub(super) before: Vec<Digest>,
    pub(super) after: Digest,
    /// Device and inode, if the file has several names.
    pub(super) shared: Option<(u64, u64)>,
}

/// Where is written.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) root: &'a Root,
    pub(super) confinement: &'a Confinement,
    pub(super) seen: &'a SeenFiles,
}

/// Writes `changes`, in their order. Never ends in the middle of a file.
pub(super) fn write_all(
    place: Place<'_>,
    changes: &[Change],
    mut entry: Option<&mut Entry<'_>>,
    content: NewContent<'_>,
    cancelled: Cancelled<'_>,
) -> (Vec<FileReport>, Option<Stopped>) {
    let shared = changes.iter().filter_map(|change| change.shared).collect();
    let n_inside = names_inside_blocking(place.root, place.confinement, &shared);
    let mut writing = Writing {
        place,
        n_inside,
        written_in_place: BTreeSet::new(),
        outcomes: changes.iter().map(|_| Outcome::Left(Left::NotReached)).collect(),
        group: Vec::new(),
        stopped: None,
    };
    for (number, change) in changes.iter().enumerate() {
        // One of several names is locked by any of them.
        if change.shared.is_some() || writing.is_group_full() {
            writing.flush(changes, entry.as_deref_mut(), cancelled);
        }
        if writing.stopped.is_none() && cancelled() {
            writing.stopped = Some(Stopped::Cancelled);
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
    place: Place<'a>,
    /// Names in the workspace, of files that have several.
    n_inside: BTreeMap<(u64, u64), u64>,
    written_in_place: BTreeSet<(u64, u64)>,
    outcomes: Vec<Outcome>,
    group: Vec<Prepared>,
    stopped: Option<Stopped>,
}

/// A file that is locked, has its old content, and is about to get its new one.
struct Prepared {
    number: usize,
    target: Target,
    tag: StagedTag,
    before: Digest,
    old: Vec<u8>,
    new: Vec<u8>,
    other_names: OtherNames,
}

impl Writing<'_> {
    fn set(&mut self, number: usize, outcome: Outcome) {
        if let Some(place) = self.outcomes.get_mut(number) {
            *place = outcome;
        }
    }

    fn is_group_full(&self) -> bool {
        let bytes: usize = self.group.iter().map(|one| one.old.len() + one.new.len()).sum();
        GROUP_FILES <= self.group.len() || GROUP_BYTES <= bytes
    }

    fn prepare(
        &self,
        number: usize,
        change: &Change,
        content: NewContent<'_>,
        cancelled: Cancelled<'_>,
    ) -> Result<Prepared, Outcome> {
        let Place { root, confinement, .. } = self.place;
        let left = |left| Err(Outcome::Left(left));
        let failed = |error| Outcome::Left(named(error, root, &change.path));
        let mut target =
            root.open_target_at(&change.path, Purpose::Edit, cancelled).map_err(failed)?;
        // The place that was opened counts: a link may have been put on the way meanwhile.
        if let Some(rule) = confinement.protects(target.relative()) {
            return left(Left::Protected(rule));
        }
        if target.relative() != change.path {
            return left(Left::Conflict);
        }
        let old = target.read(MAX_FILE_BYTES).map_err(failed)?;
        let before = Digest::of(&old);
        let file_id = target.version().map(|version| version.device_inode());
        if before == change.after {
            let is_ours = file_id.is_some_and(|id| self.written_in_place.contains(&id));
            return Err(match is_ours {
                true => Outcome::Written { is_detached: false },
                false => Outcome::Left(Left::Already),
            });
        }
        if !change.before.contains(&before) {
            return left(Left::Conflict);
        }
        let new = content(number, &old).map_err(Outcome::Left)?;
        if Digest::of(&new) != change.after {
            return left(Left::Conflict);
        }
        let n_names = target.n_names();
        let is_all_inside = file_id
            .and_then(|id| self.n_inside.get(&id))
            .is_some_and(|n_inside| *n_inside == n_names);
        let other_names = if is_all_inside { OtherNames::Join } else { OtherNames::Leave };
        let tag = StagedTag::random().map_err(|error| failed(error.into()))?;
        Ok(Prepared { number, target, tag, before, old, new, other_names })
    }

    /// Notes the group in the journal and then writes it.
    fn flush(
        &mut self,
        changes: &[Change],
        mut entry: Option<&mut Entry<'_>>,
        cancelled: Cancelled<'_>,
    ) {
        let group = std::mem::take(&mut self.group);
        if group.is_empty() || self.stopped.is_some() {
            return;
        }
        let mut first = 0;
        if let Some(entry) = entry.as_deref_mut() {
            let mut steps: Vec<(Step, &[u8])> = group
                .iter()
                .filter_map(|one| Some((one.step(changes.get(one.number)?), one.old.as_slice())))
                .collect();
            match entry.note(&mut steps) {
                Ok(number) => first = number,
                Err(error) => {
                    let words = format!("the originals cannot be kept: {error}");
                    self.stopped = Some(Stopped::Failed(words));
                    return;
                }
            }
        }
        self.replace_group(group, first, entry, cancelled);
    }

    /// In four passes over the group: the first sync of many has most of the work, the others wait for little.
    fn replace_group(
        &mut self,
        group: Vec<Prepared>,
        first: usize,
        mut entry: Option<&mut Entry<'_>>,
        cancelled: Cancelled<'_>,
    ) {
        let root = self.place.root;
        let mut staged = Vec::new();
        for (step, one) in (first..).zip(group) {
            match one.target.stage(&one.new, one.tag, one.other_names) {
                Ok(content) => staged.push((step, one, content)),
                Err(error) => self.refused(one.number, error, root, one.target.relative()),
            }
        }
        let synced = in_parallel(&staged, |(_, _, content)| content.sync());
        let mut written: BTreeMap<PathBuf, Target> = BTreeMap::new();
        for ((step, mut one, content), synced) in staged.into_iter().zip(synced) {
            if self.stopped.is_none() && cancelled() {
                self.stopped = Some(Stopped::Cancelled);
            }
            // What is staged and not put in its place is removed.
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
        let targets: Vec<Target> = written.into_values().collect();
        for error in in_parallel(&targets, Target::sync_parent).into_iter().filter_map(Result::err)
        {
            self.stopped = Some(Stopped::Failed(format!("the disk fails: {error}")));
        }
    }

    fn put(&mut self, one: &mut Prepared, content: StagedContent) -> Result<Outcome, WriteError> {
        let seen = self.place.seen;
        let is_shared = 1 < one.target.n_names();
        let known = one.target.version();
        // What is begun is ended, whoever waits for it.
        let version = one.target.put(content, &one.new, &|| false)?;
        let name = one.target.relative();
        // Who had read the file knows what it has become. Who had not, or read another state, does not.
        if known.is_some() && seen.version_blocking(name) == known {
            seen.remember_blocking(name.to_path_buf(), version);
        }
        let is_joined = one.other_names == OtherNames::Join;
        if is_shared && is_joined {
            self.written_in_place.insert(version.device_inode());
        }
        Ok(Outcome::Written { is_detached: is_shared && !is_joined })
    }

    fn refused(&mut self, number: usize, error: WriteError, root: &Root, path: &Path) {
        if is_disk_full(&error) {
            self.stopped = Some(Stopped::Failed("the disk is full".into()));
        }
        self.set(number, Outcome::Left(named(error, root, path)));
    }
}

impl Prepared {
    fn step(&self, change: &Change) -> Step {
        Step {
            path: change.path.clone(),
            before: self.before,
            after: change.after,
            at: 0,
            len: self.old.len() as u64,
            tag: self.tag,
        }
    }
}

fn is_disk_full(error: &WriteError) -> bool {
    let WriteError::Io { source, .. } = error else { return false };
    matches!(Errno::from_io_error(source), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Why a file was not written, as edit_file tells it.
fn named(error: WriteError, root: &Root, path: &Path) -> Left {
    match error {
        WriteError::Path(PathError::NotFound) => Left::Gone,
        WriteError::Changed | WriteError::TooLarge { .. } => Left::Conflict,
        WriteError::Path(
            PathError::Escapes | PathError::IsDirectory | PathError::NotRegular { .. },
        ) => Left::Conflict,
        WriteError::GivenUp => Left::NotReached,
        error => match WriteFailure::of(error, "edit", root, &path.to_string_lossy()) {
            WriteFailure::Failed { reason, denial, .. } => Left::Failed { reason, denial },
            other => Left::Failed { reason: other.to_string(), denial: None },
        },
    }
}
