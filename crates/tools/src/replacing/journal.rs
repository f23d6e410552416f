//! The journal of a session: the originals of files that were replaced, so that it can be taken back.
//!
//! Owns: the directory `journal` in the session's run directory, how many entries it has and how large they
//! are. An entry is a directory with two files: the manifest (`crate::replacing::manifest`) and the originals,
//! one after the other and not compressed.
//!
//! Commands of the session can write there. What they forge makes us do no more than what they can do
//! themselves: write files of the workspace that are not protected.

use super::folder::Folder;
use super::manifest::{self, Began, Line, Manifest, Step};
use super::report::Interrupted;
use quackd_sandbox::StagedTag;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use tokio::sync::{Mutex, MutexGuard};

/// Bytes of all entries of a session together.
pub(crate) const MAX_JOURNAL_BYTES: u64 = 256 * 1024 * 1024;

/// Entries of a session; before another one is made the oldest is dropped.
pub(crate) const MAX_ENTRIES: usize = 20;

/// What a step takes in the manifest at most, beside its path.
const STEP_BYTES: u64 = 400;

const JOURNAL: &str = "journal";
const MANIFEST: &str = "manifest.jsonl";
const ORIGINALS: &str = "originals";

/// Names an entry: its number in the session, and what tells it from one of another life of the session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UndoId {
    number: u64,
    mark: u32,
}

impl UndoId {
    /// Reads what `Display` has written.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, mark) = text.split_once('-')?;
        let is_plain = |text: &str, digit: fn(&u8) -> bool| text.as_bytes().iter().all(digit);
        if !is_plain(number, u8::is_ascii_digit) || !is_plain(mark, u8::is_ascii_hexdigit) {
            return None;
        }
        let id = Self { number: number.parse().ok()?, mark: u32::from_str_radix(mark, 16).ok()? };
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for UndoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08x}", self.number, self.mark)
    }
}

/// Why there is no place for originals.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    /// They are too large.
    #[error("the originals take {needed} bytes, and at most {max} are kept for undoing")]
    TooLarge {
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that there are.
        max: u64,
    },
    /// The system refused.
    #[error("the originals cannot be kept: {0}")]
    Io(#[from] io::Error),
}

/// The journal of a session. Shared by its calls; none of its functions may be called from async code.
#[derive(Debug)]
pub(crate) struct Journal {
    run_dir: PathBuf,
    max_bytes: u64,
    state: Mutex<State>,
    /// Held while what a death has left is looked for; see [`Journal::recovering_blocking`].
    recovering: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Entries that are being written, with the bytes that they may grow to.
    active: BTreeMap<UndoId, u64>,
    is_recovered: bool,
    /// What was interrupted, and nobody was told.
    untold: Vec<Interrupted>,
}

/// What is known of an entry without reading it.
#[derive(Debug)]
struct Known {
    id: UndoId,
    bytes: u64,
    has_ended: bool,
}

impl Journal {
    /// A journal in the run directory of a session. Touches nothing.
    pub(crate) fn kept_in(run_dir: PathBuf) -> Self {
        Self {
            run_dir,
            max_bytes: MAX_JOURNAL_BYTES,
            state: Mutex::default(),
            recovering: Mutex::default(),
        }
    }

    /// Lets one look at a time for what a death has left; whoever comes meanwhile waits for its end.
    pub(super) fn recovering_blocking(&self) -> MutexGuard<'_, ()> {
        self.recovering.blocking_lock()
    }

    /// Whether the session has one on disk. One look at the session's own directory.
    pub(crate) fn exists(&self) -> bool {
        self.run_dir.join(JOURNAL).is_dir()
    }

    #[cfg(test)]
    pub(super) fn with_max_bytes(self, max_bytes: u64) -> Self {
        Self { max_bytes, ..self }
    }

    /// Makes an entry for originals of `n_bytes` with `n_steps`, and drops the oldest to make room, but not `kept`.
    /// Gives those that were dropped too.
    pub(super) fn begin_blocking(
        &self,
        began: Began,
        n_bytes: u64,
        paths_bytes: u64,
        n_steps: usize,
        kept: Option<&UndoId>,
    ) -> Result<(Entry<'_>, Vec<UndoId>), JournalError> {
        let needed = n_bytes + 2 * paths_bytes + STEP_BYTES * n_steps as u64;
        if self.max_bytes < needed {
            return Err(JournalError::TooLarge { needed, max: self.max_bytes });
        }
        let mut state = self.state.blocking_lock();
        let folder = self.folder_made()?;
        let mut known = known(&folder)?;
        let mut dropped = Vec::new();
        loop {
            let used: u64 = known
                .iter()
                .map(|known| state.active.get(&known.id).copied().unwrap_or(0).max(known.bytes))
                .sum();
            if known.len() < MAX_ENTRIES && used + needed <= self.max_bytes {
                break;
            }
            let may_go =
                |known: &&Known| !state.active.contains_key(&known.id) && kept != Some(&known.id);
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
        let ids = known.iter().map(|known| &known.id).chain(&dropped);
        let newest = ids.map(|id| id.number).max().unwrap_or(0);
        let random = StagedTag::random()?.to_string();
        let mark = random.get(..8).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let id = UndoId { number: newest.saturating_add(1), mark: mark.unwrap_or(0) };
        let entry = Entry::create(self, &folder, id.clone(), began)?;
        state.active.insert(id, needed);
        Ok((entry, dropped))
    }

    /// The entries that no call is writing, oldest first, with what they say. Those that cannot be read are left
    /// out.
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

    /// The entries whose process died, and whose traces are not removed yet. Once for each journal; the others that
    /// are asked meanwhile get none.
    pub(super) fn unfinished_blocking(&self) -> Vec<(UndoId, Manifest)> {
        let Ok(folder) = self.folder() else { return Vec::new() };
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
                // It died before it had begun: nothing was written.
                Err(_) => drop(folder.remove(&name)),
            }
        }
        unfinished
    }

    /// Keeps what was interrupted until it is asked for. Gives how many there are.
    pub(super) fn tell_later_blocking(&self, interrupted: Vec<Interrupted>) -> usize {
        let n = interrupted.len();
        self.state.blocking_lock().untold.extend(interrupted);
        n
    }

    /// What was interrupted, once.
    pub(super) fn untold_blocking(&self) -> Vec<Interrupted> {
        std::mem::take(&mut self.state.blocking_lock().untold)
    }

    /// Adds lines to an entry that is not being written, and brings them to the disk.
    pub(super) fn add_blocking(&self, id: &UndoId, lines: &[Line]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for line in lines {
            bytes.extend(line.to_bytes()?);
        }
        let mut file = self.folder()?.folder(&id.to_string())?.file(MANIFEST)?;
        end_last_line(&mut file)?;
        file.write_all(&bytes)?;
        file.sync_data()
    }

    /// The originals of an entry.
    pub(super) fn originals_blocking(&self, id: &UndoId) -> io::Result<Originals> {
        Ok(Originals(self.folder()?.folder(&id.to_string())?.file(ORIGINALS)?))
    }

    /// Keeps an entry that has no originals: it says that the last replacement cannot be undone, so that nobody takes
    /// an older one for it. Earlier ones of its kind go: they would take the place of what can be undone.
    pub(super) fn keep_marker_blocking(&self, marker: &UndoId) {
        for (id, manifest) in self.entries_blocking() {
            if id < *marker && !manifest.began.has_originals {
                // What cannot be removed is dropped when it is the oldest.
                let _removed = self.remove_blocking(&id);
            }
        }
    }

    pub(super) fn remove_blocking(&self, id: &UndoId) -> io::Result<()> {
        self.folder()?.remove(&id.to_string())
    }

    fn folder(&self) -> io::Result<Folder> {
        Folder::at(&self.run_dir)?.folder(JOURNAL)
    }

    fn folder_made(&self) -> io::Result<Folder> {
        let above = Folder::at(&self.run_dir)?;
        match above.make_folder(JOURNAL) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => above.folder(JOURNAL),
            made => {
                above.sync()?;
                made
            }
        }
    }
}

/// A line that a death has cut must not swallow the next one.
fn end_last_line(file: &mut File) -> io::Result<()> {
    let mut last = [0];
    if file.seek(SeekFrom::End(-1)).is_ok() && file.read(&mut last)? == 1 && last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(())
}

/// The entries of a journal, oldest first.
fn known(folder: &Folder) -> io::Result<Vec<Known>> {
    let ids = folder.names()?.into_iter().filter_map(|name| UndoId::parse(&name));
    let mut known: Vec<Known> = ids
        .filter_map(|id| {
            let entry = folder.folder(&id.to_string()).ok()?;
            let len = |file: &File| file.metadata().map_or(0, |metadata| metadata.len());
            let manifest = entry.file(MANIFEST).ok();
            let originals = entry.file(ORIGINALS).ok();
            let bytes = [&manifest, &originals].into_iter().flatten().map(len).sum();
            let has_ended =
                manifest.is_some_and(|file| manifest::has_ended(&file).unwrap_or(false));
            Some(Known { id, bytes, has_ended })
        })
        .collect();
    known.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(known)
}

/// The originals of an entry.
#[derive(Debug)]
pub(super) struct Originals(File);

impl Originals {
    /// The original of a step, in at most `max` bytes.
    pub(super) fn read(&mut self, step: &Step, max: u64) -> io::Result<Vec<u8>> {
        if max < step.len {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.0.seek(SeekFrom::Start(step.at))?;
        let mut original = Vec::new();
        (&self.0).take(step.len).read_to_end(&mut original)?;
        Ok(original)
    }
}

/// An entry that is being written. Dropping it ends nothing: it looks as if the process had died.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) id: UndoId,
    journal: &'a Journal,
    manifest: File,
    originals: File,
    has_originals: bool,
    /// Bytes of originals.
    at: u64,
    n_steps: usize,
    /// Steps that were done and are not yet said to be.
    wrote: Vec<Line>,
}

impl<'a> Entry<'a> {
    fn create(journal: &'a Journal, folder: &Folder, id: UndoId, began: Began) -> io::Result<Self> {
        let made = folder.make_folder(&id.to_string())?;
        let has_originals = began.has_originals;
        let (mut manifest, originals) = (made.make_file(MANIFEST)?, made.make_file(ORIGINALS)?);
        manifest.write_all(&Line::Began(began).to_bytes()?)?;
        manifest.sync_data()?;
        made.sync()?;
        folder.sync()?;
        let wrote = Vec::new();
        Ok(Self { id, journal, manifest, originals, has_originals, at: 0, n_steps: 0, wrote })
    }

    /// Notes what is about to be written, with the originals, and brings that to the disk. The numbers of the steps
    /// begin with the one that it gives. `at` of the steps is filled in here.
    pub(super) fn note(&mut self, steps: &mut [(Step, &[u8])]) -> io::Result<usize> {
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
            lines.extend(Line::Step(step.clone()).to_bytes()?);
        }
        if self.has_originals {
            self.originals.sync_data()?;
        }
        self.manifest.write_all(&lines)?;
        self.manifest.sync_data()?;
        self.n_steps += steps.len();
        Ok(first)
    }

    /// Whether originals are kept.
    pub(super) fn has_originals(&self) -> bool {
        self.has_originals
    }

    /// Remembers that a step was done. It is said with the next ones; until then digests tell.
    pub(super) fn wrote(&mut self, step: usize) {
        self.wrote.push(Line::Wrote(step));
    }

    /// Says that all is done.
    pub(super) fn end(mut self) -> io::Result<()> {
        let mut lines = Vec::new();
        for line in self.wrote.drain(..).chain([Line::Ended]) {
            lines.extend(line.to_bytes()?);
        }
        self.manifest.write_all(&lines)?;
        self.manifest.sync_data()
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.journal.state.blocking_lock().active.remove(&self.id);
    }
}
