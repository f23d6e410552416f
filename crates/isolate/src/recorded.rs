//! Files of recorded states: the newest state as a whole, the changes that led to it, and the contents.
//!
//! `current` has the newest state. `N.changes` leads from state N - 1 to state N, and back. `N.pack` has the contents that
//! were new in state N. A state counts once `current` names it.

use crate::error::{IsolateError, OnFile as _};
use crate::journal;
use crate::manifest::{private_file, read_record, write_record};
use crate::node::{ContentHash, Node, Stamp};
use crate::notes::Notes;
use crate::path_text;
use crate::tree::Tree;
use quackd_protocol::isolate::{Checkpoint, FileChange, UNFINISHED_RESTORE};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Most rounds of a restore.
const ROUNDS: usize = 2;

/// Number of the pack that is the copy's file of texts.
pub(crate) const TEXTS: u64 = 0;

/// Place of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) pack: u64,
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// Recorded state of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) node: Node,
    /// `None` if the file changed while it was read.
    pub(crate) stamp: Option<Stamp>,
    /// Content of a file. `None` if it was not kept.
    pub(crate) content: Option<Span>,
}

/// Entries of a state, by path.
pub(crate) type Entries = BTreeMap<PathBuf, Recorded>;

/// The newest state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Current {
    pub(crate) number: u64,
    pub(crate) entries: Entries,
    /// Files and directories that exist and are not recorded.
    pub(crate) skipped: BTreeSet<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct WrittenCurrent {
    /// Inode of the files' directory.
    directory: u64,
    number: u64,
    entries: Vec<CurrentEntry>,
    skipped: Vec<SkippedPath>,
}

#[derive(Serialize, Deserialize)]
struct SkippedPath(#[serde(with = "path_text")] PathBuf);

#[derive(Serialize, Deserialize)]
struct CurrentEntry {
    #[serde(with = "path_text")]
    path: PathBuf,
    recorded: Recorded,
}

/// Difference of one path between a state and the one before it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Difference {
    #[serde(with = "path_text")]
    pub(crate) path: PathBuf,
    pub(crate) before: Option<Recorded>,
    pub(crate) after: Option<Recorded>,
}

impl Difference {
    pub(crate) fn kind(&self) -> FileChange {
        match (&self.before, &self.after) {
            (None, _) => FileChange::Added,
            (Some(_), None) => FileChange::Deleted,
            (Some(_), Some(_)) => FileChange::Changed,
        }
    }
}

/// Content of `N.changes`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Changes {
    /// The state that they lead to.
    pub(crate) checkpoint: Checkpoint,
    pub(crate) differences: Vec<Difference>,
}

/// The directory of the states of one session.
#[derive(Debug)]
pub(crate) struct StateFiles {
    directory: PathBuf,
    /// The copy's file of texts.
    texts: Option<PathBuf>,
}

impl StateFiles {
    pub(crate) fn new(directory: &Path, texts: Option<PathBuf>) -> Self {
        Self { directory: directory.to_owned(), texts }
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.directory.join("lock")
    }

    /// Directory with the journals of files that are being restored, one for each round.
    fn restoring(&self) -> PathBuf {
        self.directory.join(UNFINISHED_RESTORE)
    }

    /// Journal of a round.
    pub(crate) fn journal(&self, round: usize) -> PathBuf {
        self.restoring().join(format!("{round}"))
    }

    /// Whether a restore was begun and is not finished.
    pub(crate) fn is_restoring(&self) -> bool {
        (0..ROUNDS).any(|round| journal::has_plan(&self.journal(round)))
    }

    pub(crate) fn begin_restore(&self) -> Result<(), IsolateError> {
        self.remove_journals()?;
        let restoring = self.restoring();
        fs::create_dir(&restoring).on("create", &restoring)
    }

    /// Removes the journals in one step. From then on the restore counts.
    pub(crate) fn finish_restore(&self) -> Result<(), IsolateError> {
        let (restoring, finished) = (self.restoring(), self.finished());
        // One rename for all rounds: from here on no journal takes anything back.
        rustix::fs::rename(&restoring, &finished).on("finish", &finished)?;
        let synced = fs::File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.on("sync", &self.directory)?;
        self.remove_journals()
    }

    /// Takes back an unfinished restore, its last round first. Its journals stay.
    pub(crate) fn take_back(&self, tree: &Tree, notes: &mut Notes) -> Result<(), IsolateError> {
        for round in (0..ROUNDS).rev() {
            let journal = self.journal(round);
            if journal::has_plan(&journal) {
                journal::take_back(&journal, tree, notes)?;
            }
        }
        Ok(())
    }

    /// Removes all journals. Of several rounds, the last one goes first.
    pub(crate) fn remove_journals(&self) -> Result<(), IsolateError> {
        for round in (0..ROUNDS).rev() {
            journal::remove_directory(&self.journal(round))?;
        }

        for directory in [self.restoring(), self.finished()] {
            match fs::remove_dir_all(&directory) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).on("remove", &directory);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn finished(&self) -> PathBuf {
        self.directory.join("restored")
    }

    fn current(&self) -> PathBuf {
        self.directory.join("current")
    }

    fn changes(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number}.changes"))
    }

    /// Path of the pack of a state.
    pub(crate) fn pack(&self, number: u64) -> PathBuf {
        match (&self.texts, number) {
            (Some(texts), TEXTS) => texts.clone(),
            _ => self.directory.join(format!("{number}.pack")),
        }
    }

    pub(crate) fn has_current(&self) -> bool {
        self.current().exists()
    }

    /// Reads the newest state of the directory with this inode. `None` without one.
    pub(crate) fn read_current(&self, directory: u64) -> Result<Option<Current>, IsolateError> {
        let Some(written) = self.read::<WrittenCurrent>(&self.current())? else { return Ok(None) };
        if written.directory != directory {
            return Err(IsolateError::OtherDirectory(self.directory.clone()));
        }
        let entries = written.entries.into_iter().map(|entry| (entry.path, entry.recorded));
        let skipped = written.skipped.into_iter().map(|SkippedPath(path)| path);
        let (entries, skipped) = (entries.collect(), skipped.collect());
        Ok(Some(Current { number: written.number, entries, skipped }))
    }

    pub(crate) fn write_current(
        &self,
        directory: u64,
        current: &Current,
    ) -> Result<(), IsolateError> {
        let entry = |(path, recorded): (&PathBuf, &Recorded)| CurrentEntry {
            path: path.clone(),
            recorded: recorded.clone(),
        };

        let written = WrittenCurrent {
            directory,
            number: current.number,
            entries: current.entries.iter().map(entry).collect(),
            skipped: current.skipped.iter().cloned().map(SkippedPath).collect(),
        };
        write_record(&self.current(), &written)
    }

    pub(crate) fn read_changes(&self, number: u64) -> Result<Changes, IsolateError> {
        self.read(&self.changes(number))?
            .ok_or_else(|| self.damaged(format!("state {number} is missing")))
    }

    fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>, IsolateError> {
        // The text of `Damaged` proposes `quack discard`, which does not repair states.
        read_record(path).map_err(|error| match error {
            IsolateError::Damaged(why) => self.damaged(why),
            error => error,
        })
    }

    fn damaged(&self, why: String) -> IsolateError {
        IsolateError::DamagedStates { why, directory: self.directory.clone() }
    }

    pub(crate) fn write_changes(&self, changes: &Changes) -> Result<(), IsolateError> {
        write_record(&self.changes(changes.checkpoint.number), changes)
    }

    /// Creates the empty pack of a state.
    pub(crate) fn create_pack(&self, number: u64) -> Result<File, IsolateError> {
        let path = self.pack(number);
        private_file(&path).on("create", &path)
    }

    /// Opens a content.
    pub(crate) fn content(&self, span: Span) -> io::Result<Box<dyn Read>> {
        let mut pack = File::open(self.pack(span.pack))?;
        pack.seek(SeekFrom::Start(span.at))?;
        Ok(Box::new(pack.take(span.len)))
    }

    /// Numbers of the files with this extension, in order.
    pub(crate) fn numbers(&self, extension: &str) -> Result<Vec<u64>, IsolateError> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.directory).on("list", &self.directory)? {
            let path = entry.on("list", &self.directory)?.path();
            let number: Option<u64> = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
            if path.extension().is_some_and(|own| own == extension) {
                numbers.extend(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Total size of the contents and changes in bytes.
    pub(crate) fn stored_bytes(&self) -> Result<u64, IsolateError> {
        let mut sum = 0;
        for extension in ["changes", "pack"] {
            for number in self.numbers(extension)? {
                let file = self.directory.join(format!("{number}.{extension}"));
                sum += fs::metadata(file).map_or(0, |file| file.len());
            }
        }
        Ok(sum)
    }

    /// Removes the pack of a state that was not recorded.
    pub(crate) fn remove_pack(&self, number: u64) -> Result<(), IsolateError> {
        remove(&self.directory.join(format!("{number}.pack")))
    }

    /// Removes the files of this state and of later ones, which a process left that ended before its state counted.
    pub(crate) fn remove_from(&self, number: u64) -> Result<(), IsolateError> {
        for extension in ["changes", "pack"] {
            for later in self.numbers(extension)?.into_iter().filter(|later| number <= *later) {
                remove(&self.directory.join(format!("{later}.{extension}")))?;
            }
        }
        Ok(())
    }

    /// Removes the oldest changes, so that the state before them cannot be restored, until at most `max_changes` of them
    /// and at most `max_bytes` of contents are left.
    pub(crate) fn prune(
        &self,
        entries: &Entries,
        max_changes: usize,
        max_bytes: u64,
    ) -> Result<(), IsolateError> {
        let mut kept = self.numbers("changes")?;
        let mut is_over = self.stored_bytes()? > max_bytes;
        let mut n_oldest = match kept.len() <= max_changes {
            true if !is_over => return Ok(()),
            true => 0,
            // Some at once: each time all others are read.
            false => kept.len() - (max_changes - max_changes / 10),
        };

        loop {
            for oldest in kept.drain(..n_oldest) {
                remove(&self.changes(oldest))?;
            }
            if 0 < n_oldest {
                self.remove_unused_packs(entries, &kept)?;
                is_over = self.stored_bytes()? > max_bytes;
            }
            n_oldest = kept.len() / 2;
            // The newest changes stay: without them a restore could not be taken back.
            if !is_over || n_oldest == 0 {
                return Ok(());
            }
        }
    }

    /// Removes the packs without a content of the newest state or of one of the `kept` changes.
    fn remove_unused_packs(&self, entries: &Entries, kept: &[u64]) -> Result<(), IsolateError> {
        let pack = |recorded: &Recorded| recorded.content.map(|span| span.pack);
        let mut used: BTreeSet<u64> = entries.values().filter_map(pack).collect();
        // A content after a change is also that before a later change, or that of the newest state.
        for number in kept {
            let Changes { differences, .. } = self.read_changes(*number)?;
            used.extend(differences.iter().filter_map(|one| one.before.as_ref().and_then(pack)));
        }
        for number in self.numbers("pack")?.into_iter().filter(|number| !used.contains(number)) {
            remove(&self.directory.join(format!("{number}.pack")))?;
        }
        Ok(())
    }
}

fn remove(path: &Path) -> Result<(), IsolateError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).on("remove", path),
        _ => Ok(()),
    }
}

/// Places of contents by their hash.
pub(crate) fn by_hash(entries: &Entries) -> BTreeMap<ContentHash, Span> {
    let place = |recorded: &Recorded| match (&recorded.node, recorded.content) {
        (Node::File { hash, .. }, Some(span)) => Some((*hash, span)),
        _ => None,
    };
    entries.values().filter_map(place).collect()
}
