//! The journal of a session: the original content of replaced files, for undo.
//!
//! Owns the directory `journal` in the session's run directory, and limits the number and size of its entries.
//! An entry is a directory with two files: the manifest (`crate::replace::journal::manifest`), and the
//! uncompressed originals one after the other. Changes of single files are in the log of [`super::change_log`]. Entries
//! and changes are numbered together, in the order in which they began.
//!
//! Commands of the session can write there. A forged entry can only make the worker do what the commands can do
//! themselves: write unprotected files of the workspace.

use super::change_log::{OpenSegment, newest_number};
use super::journal_dir::JournalDir;
use super::manifest::{self, EntryHeader, FileRecord, Manifest, ManifestLine};
use super::report::{InterruptedReplace, JournalError};
use super::undo_id::{MAX_ENTRIES, UndoId};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use tokio::sync::{Mutex, MutexGuard};

/// Maximum size of all entries of a session, in bytes.
pub(crate) const MAX_JOURNAL_BYTES: u64 = 256 * 1024 * 1024;

/// Maximum size of a step in the manifest without its path, in bytes.
const STEP_BYTES: u64 = 400;

const JOURNAL: &str = "journal";
const MANIFEST: &str = "manifest.jsonl";
const ORIGINALS: &str = "originals";

/// The journal of a session. Shared by its calls. Do not call its functions from async code.
#[derive(Debug)]
pub(crate) struct Journal {
    run_dir: PathBuf,
    max_bytes: u64,
    state: Mutex<JournalState>,
    /// Locked during a search for interrupted entries; see [`Journal::recovering_blocking`].
    recovering: Mutex<()>,
}

#[derive(Debug, Default)]
pub(super) struct JournalState {
    /// Number of the next entry or change. 0 until the journal was read.
    next: u64,
    /// The end of the log of single changes.
    pub(super) segment: Option<OpenSegment>,
    /// Entries that are being written, with their maximum size in bytes.
    active: BTreeMap<UndoId, u64>,
    is_recovered: bool,
    /// Interrupted replacements that are not reported yet.
    untold: Vec<InterruptedReplace>,
}

/// Facts about an entry that are known without reading it.
#[derive(Debug)]
struct EntrySummary {
    id: UndoId,
    bytes: u64,
    has_ended: bool,
}

impl Journal {
    /// Creates a handle for the journal in a run directory. Does no I/O.
    pub(crate) fn kept_in(run_dir: PathBuf) -> Self {
        Self {
            run_dir,
            max_bytes: MAX_JOURNAL_BYTES,
            state: Mutex::default(),
            recovering: Mutex::default(),
        }
    }

    /// Serializes the searches for interrupted entries. Concurrent callers wait.
    pub(super) fn recovering_blocking(&self) -> MutexGuard<'_, ()> {
        self.recovering.blocking_lock()
    }

    /// Whether the session has a journal on disk. One stat call.
    pub(crate) fn exists(&self) -> bool {
        self.run_dir.join(JOURNAL).is_dir()
    }

    #[cfg(test)]
    pub(super) fn with_max_bytes(self, max_bytes: u64) -> Self {
        Self { max_bytes, ..self }
    }

    /// Creates an entry for originals of `n_bytes` with `n_steps`. Drops the oldest entries to make space,
    /// except `kept`, and returns the dropped ones.
    pub(super) fn begin_blocking(
        &self,
        began: EntryHeader,
        n_bytes: u64,
        paths_bytes: u64,
        n_steps: usize,
        kept: Option<&UndoId>,
    ) -> Result<(EntryWriter<'_>, Vec<UndoId>), JournalError> {
        let needed = n_bytes + 2 * paths_bytes + STEP_BYTES * n_steps as u64;
        if self.max_bytes < needed {
            return Err(JournalError::TooLarge { needed, max: self.max_bytes });
        }

        let mut state = self.state.blocking_lock();
        let folder = self.folder_made()?;
        let number = self.take_number(&mut state)?;
        let mut known = known(&folder)?;
        let mut dropped = Vec::new();

        loop {
            // A call may still write up to the reserved size.
            let used: u64 = known
                .iter()
                .map(|known| state.active.get(&known.id).copied().unwrap_or(0).max(known.bytes))
                .sum();
            if known.len() < MAX_ENTRIES && used + needed <= self.max_bytes {
                break;
            }

            let may_go = |known: &&EntrySummary| {
                !state.active.contains_key(&known.id) && kept != Some(&known.id)
            };
            // Finished entries are dropped before interrupted ones, whose files may need an undo.
            let oldest =
                known.iter().filter(may_go).min_by_key(|known| (!known.has_ended, &known.id));
            let Some(id) = oldest.map(|known| known.id.clone()) else {
                return Err(JournalError::TooLarge {
                    needed,
                    max: self.max_bytes.saturating_sub(used),
                });
            };

            folder.remove(&id.to_string())?;
            known.retain(|known| known.id != id);
            dropped.push(id);
        }

        let id = UndoId::with_random_mark(number)?;
        let entry = EntryWriter::create(self, &folder, id.clone(), began)?;
        state.active.insert(id, needed);
        Ok((entry, dropped))
    }

    pub(super) fn lock_blocking(&self) -> MutexGuard<'_, JournalState> {
        self.state.blocking_lock()
    }

    /// Returns the next number of an entry or a change.
    pub(super) fn take_number(&self, state: &mut JournalState) -> io::Result<u64> {
        if state.next == 0 {
            let folder = self.folder_made()?;
            let ids = folder.names()?.into_iter().filter_map(|name| UndoId::parse(&name));
            let newest = ids.map(|id| id.number).fold(newest_number(&folder), u64::max);
            state.next = newest.saturating_add(1);
        }

        let number = state.next;
        state.next = number.saturating_add(1);
        Ok(number)
    }

    /// Returns the entries that no call is writing, oldest first, with their manifests. Skips unreadable
    /// entries.
    pub(super) fn entries_blocking(&self) -> Vec<(UndoId, Manifest)> {
        let Ok(folder) = self.folder() else { return Vec::new() };
        let state = self.state.blocking_lock();
        let known = known(&folder).unwrap_or_default();

        let at_rest = known.into_iter().filter(|known| !state.active.contains_key(&known.id));
        let read = at_rest.filter_map(|known| {
            let manifest =
                folder.folder(&known.id.to_string()).and_then(|entry| entry.file(MANIFEST));
            Some((known.id, Manifest::read(&manifest.ok()?).ok()?))
        });
        read.collect()
    }

    /// Whether a call is writing the entry.
    pub(super) fn is_active_blocking(&self, id: &UndoId) -> bool {
        self.state.blocking_lock().active.contains_key(id)
    }

    /// Returns the entries whose process crashed, and whose temporary files still exist. Returns them once for
    /// each journal: concurrent callers get none.
    pub(super) fn unfinished_blocking(&self) -> Vec<(UndoId, Manifest)> {
        let Ok(folder) = self.folder() else { return Vec::new() };
        // Released at the end of this block, because `is_active_blocking` takes the lock too.
        {
            let mut state = self.state.blocking_lock();
            if std::mem::replace(&mut state.is_recovered, true) {
                return Vec::new();
            }
        }

        let mut unfinished = Vec::new();
        for known in known(&folder).unwrap_or_default() {
            if known.has_ended || self.is_active_blocking(&known.id) {
                continue;
            }
            let name = known.id.to_string();
            let manifest = folder.folder(&name).and_then(|entry| entry.file(MANIFEST));
            match manifest.and_then(|file| Manifest::read(&file)) {
                Ok(manifest) if manifest.has_ended => {}
                Ok(manifest) => unfinished.push((known.id, manifest)),
                // The process crashed before it wrote a file. If the removal fails, the entry is dropped when it is
                // the oldest.
                Err(_) => {
                    folder.remove(&name).ok();
                }
            }
        }
        unfinished
    }

    /// Stores interrupted replacements until they are reported. Returns their number.
    pub(super) fn tell_later_blocking(&self, interrupted: Vec<InterruptedReplace>) -> usize {
        let n = interrupted.len();
        self.state.blocking_lock().untold.extend(interrupted);
        n
    }

    /// Returns the unreported interrupted replacements once.
    pub(super) fn untold_blocking(&self) -> Vec<InterruptedReplace> {
        std::mem::take(&mut self.state.blocking_lock().untold)
    }

    /// Appends lines to an entry that no call is writing, and syncs them to the disk.
    pub(super) fn add_blocking(&self, id: &UndoId, lines: &[ManifestLine]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for line in lines {
            bytes.extend(line.to_bytes()?);
        }

        let mut file = self.folder()?.folder(&id.to_string())?.file(MANIFEST)?;
        end_last_line(&mut file)?;
        file.write_all(&bytes)?;
        file.sync_data()
    }

    /// Originals of an entry.
    pub(super) fn originals_blocking(&self, id: &UndoId) -> io::Result<Originals> {
        Ok(Originals(self.folder()?.folder(&id.to_string())?.file(ORIGINALS)?))
    }

    /// Keeps an entry without originals. It records that the last replacement cannot be undone, so that an
    /// older one is not undone instead. Earlier entries of this kind are removed, because they would use up the
    /// slots of undoable entries.
    pub(super) fn keep_marker_blocking(&self, marker: &UndoId) {
        for (id, manifest) in self.entries_blocking() {
            if id < *marker && !manifest.began.has_originals {
                // If the removal fails, the entry is dropped when it is the oldest.
                self.remove_blocking(&id).ok();
            }
        }
    }

    pub(super) fn remove_blocking(&self, id: &UndoId) -> io::Result<()> {
        self.folder()?.remove(&id.to_string())
    }

    pub(super) fn folder(&self) -> io::Result<JournalDir> {
        JournalDir::at(&self.run_dir)?.folder(JOURNAL)
    }

    pub(super) fn folder_made(&self) -> io::Result<JournalDir> {
        let above = JournalDir::at(&self.run_dir)?;
        match above.make_folder(JOURNAL) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => above.folder(JOURNAL),
            made => {
                // Without this, a power cut could remove the new directory with its synced files.
                above.sync()?;
                made
            }
        }
    }
}

/// Ends a line that a crash cut, so that the next line is not appended to it.
fn end_last_line(file: &mut File) -> io::Result<()> {
    let mut last = [0];
    // The seek fails in an empty file.
    if file.seek(SeekFrom::End(-1)).is_ok() && file.read(&mut last)? == 1 && last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(())
}

/// Returns the entries of a journal, oldest first.
fn known(folder: &JournalDir) -> io::Result<Vec<EntrySummary>> {
    let ids = folder.names()?.into_iter().filter_map(|name| UndoId::parse(&name));
    let mut known: Vec<EntrySummary> = ids
        .filter_map(|id| {
            let entry = folder.folder(&id.to_string()).ok()?;
            let len = |file: &File| file.metadata().map_or(0, |metadata| metadata.len());
            let manifest = entry.file(MANIFEST).ok();
            let originals = entry.file(ORIGINALS).ok();

            let bytes = [&manifest, &originals].into_iter().flatten().map(len).sum();
            let has_ended =
                manifest.is_some_and(|file| manifest::has_ended(&file).unwrap_or(false));
            Some(EntrySummary { id, bytes, has_ended })
        })
        .collect();

    known.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(known)
}

/// Originals of an entry.
#[derive(Debug)]
pub(super) struct Originals(File);

impl Originals {
    /// Returns the original of a step, at most `max` bytes.
    pub(super) fn read(&mut self, step: &FileRecord, max: u64) -> io::Result<Vec<u8>> {
        if max < step.len {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.0.seek(SeekFrom::Start(step.at))?;
        let mut original = Vec::new();
        (&self.0).take(step.len).read_to_end(&mut original)?;
        Ok(original)
    }
}

/// An entry that is being written. A dropped entry looks as if the process had crashed.
#[derive(Debug)]
pub(super) struct EntryWriter<'a> {
    pub(super) id: UndoId,
    journal: &'a Journal,
    manifest: File,
    originals: File,
    has_originals: bool,
    /// Size of the originals in bytes.
    at: u64,
    n_steps: usize,
    /// Completed steps that are not recorded yet.
    wrote: Vec<ManifestLine>,
}

impl<'a> EntryWriter<'a> {
    fn create(
        journal: &'a Journal,
        folder: &JournalDir,
        id: UndoId,
        began: EntryHeader,
    ) -> io::Result<Self> {
        let made = folder.make_folder(&id.to_string())?;
        let has_originals = began.has_originals;
        let (mut manifest, originals) = (made.make_file(MANIFEST)?, made.make_file(ORIGINALS)?);

        // Synced with its name before the first step, so that recovery finds it after a power cut.
        manifest.write_all(&ManifestLine::Began(began).to_bytes()?)?;
        manifest.sync_data()?;
        made.sync()?;
        folder.sync()?;

        let wrote = Vec::new();
        Ok(Self { id, journal, manifest, originals, has_originals, at: 0, n_steps: 0, wrote })
    }

    /// Records the next steps with the originals, and syncs them to the disk. Returns the number of the first
    /// step. Fills in the field `at` of the steps.
    pub(super) fn note(&mut self, steps: &mut [(FileRecord, &[u8])]) -> io::Result<usize> {
        let first = self.n_steps;
        let mut lines = Vec::new();
        for line in self.wrote.drain(..) {
            lines.extend(line.to_bytes()?);
        }

        for (step, original) in steps.iter_mut() {
            step.at = self.at;
            if self.has_originals {
                self.originals.write_all(original)?;
                self.at += original.len() as u64;
            }
            lines.extend(ManifestLine::Step(step.clone()).to_bytes()?);
        }

        // The originals come first: a recorded step must have its original.
        if self.has_originals {
            self.originals.sync_data()?;
        }
        self.manifest.write_all(&lines)?;
        self.manifest.sync_data()?;

        self.n_steps += steps.len();
        Ok(first)
    }

    /// Whether the entry stores originals.
    pub(super) fn has_originals(&self) -> bool {
        self.has_originals
    }

    /// Marks a step as done. It is recorded with the next steps. Until then, the digests show that it is done.
    pub(super) fn wrote(&mut self, step: usize) {
        self.wrote.push(ManifestLine::Wrote(step));
    }

    /// Records that all steps are done.
    pub(super) fn end(mut self) -> io::Result<()> {
        let mut lines = Vec::new();
        for line in self.wrote.drain(..).chain([ManifestLine::Ended]) {
            lines.extend(line.to_bytes()?);
        }
        self.manifest.write_all(&lines)?;
        self.manifest.sync_data()
    }
}

impl Drop for EntryWriter<'_> {
    fn drop(&mut self) {
        self.journal.state.blocking_lock().active.remove(&self.id);
    }
}
