//! Session files, compatible with Pi's: append-only JSON lines that form a tree.
//!
//! A [`Transcript`] is the file in memory. It opens no file: the caller reads and writes the lines, and gives time and
//! random numbers.
//!
//! - `entry`: the entries and their JSON;
//! - `read`: files of all versions, also damaged ones;
//! - `context`: the messages for the model;
//! - `facts`: name, counts, and the turn that a crash interrupted;
//! - `fork`: a new file from a part of another one.

mod context;
mod entry;
mod facts;
mod fork;
mod problems;
mod read;
mod time;

pub use self::context::Context;
pub(crate) use self::context::{context_entries, is_compaction};
pub use self::entry::{Entry, EntryKind, Header, VERSION};
pub use self::facts::{Interrupted, Stats, Tokens};
pub use self::problems::{Problems, TranscriptError};
pub use self::read::{MAX_ENTRIES, MAX_FILE_BYTES, MAX_LINE_BYTES, Reader};
pub use self::time::{iso_time, parse_iso_time};

use std::collections::HashMap;

/// The conversation of one file, in memory. Takes about as much memory as the file, twice if another program wrote it.
#[derive(Debug, Clone)]
pub struct Transcript {
    header: Header,
    entries: Vec<Entry>,
    /// Positions of the entries by id.
    index: HashMap<Box<str>, usize>,
    problems: Problems,
    needs_newline: bool,
}

impl Transcript {
    /// Creates a conversation without entries. The caller writes [`Header::to_line`].
    #[must_use]
    pub fn new(header: Header) -> Self {
        Self {
            header,
            entries: Vec::new(),
            index: HashMap::new(),
            problems: Problems::default(),
            needs_newline: false,
        }
    }

    /// Whether the file, as it was read, does not end with a line feed. The writer must write one before the next line.
    #[must_use]
    pub fn needs_newline(&self) -> bool {
        self.needs_newline
    }

    /// Whether the file has an old version. The writer must replace it by [`Transcript::lines`] before it appends.
    #[must_use]
    pub fn needs_rewrite(&self) -> bool {
        self.header.version < VERSION
    }

    /// Returns the lines of the whole file in [`VERSION`], each with its line feed.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        std::iter::once(self.header.to_line()).chain(self.entries.iter().map(Entry::to_line))
    }

    /// Defects of the file.
    #[must_use]
    pub fn problems(&self) -> Problems {
        self.problems
    }

    /// The first line.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the id of the last entry of the file, which the next entry follows.
    #[must_use]
    pub fn leaf(&self) -> Option<&str> {
        self.entries.last().map(|entry| entry.id.as_str())
    }

    /// All entries, in the order of the file.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the entry with this id.
    #[must_use]
    pub fn entry(&self, id: &str) -> Option<&Entry> {
        self.entries.get(*self.index.get(id)?)
    }

    /// Returns the current branch, from the first entry to the last one.
    #[must_use]
    pub fn path(&self) -> Vec<&Entry> {
        self.path_to(self.entries.len().checked_sub(1))
    }

    /// Returns the entries from the root to a position.
    fn path_to(&self, end: Option<usize>) -> Vec<&Entry> {
        let last = end.and_then(|at| self.entries.get(at));
        let before = |entry: &&Entry| entry.parent.and_then(|at| self.entries.get(at));
        let mut path: Vec<_> = std::iter::successors(last, before).collect();
        path.reverse();
        path
    }

    /// Adds an entry after the last one and returns its line with the line feed, for the file.
    ///
    /// `timestamp` comes from [`iso_time`]. `random` becomes the id, as 8 hexadecimal digits, unless another entry has it.
    pub fn append(&mut self, kind: EntryKind, timestamp: &str, random: u32) -> String {
        self.append_after(self.entries.len().checked_sub(1), kind, timestamp, random)
    }

    /// Like [`Transcript::append`], but begins another branch after the entry with the id `parent`. Without one, or with
    /// an unknown one, the branch begins at the root.
    pub fn branch(
        &mut self,
        parent: Option<&str>,
        kind: EntryKind,
        timestamp: &str,
        random: u32,
    ) -> String {
        let parent = parent.and_then(|id| self.index.get(id).copied());
        self.append_after(parent, kind, timestamp, random)
    }

    fn append_after(
        &mut self,
        parent: Option<usize>,
        kind: EntryKind,
        timestamp: &str,
        random: u32,
    ) -> String {
        let parent_id =
            parent.and_then(|at| self.entries.get(at)).map(|parent_entry| parent_entry.id.clone());

        let entry = Entry {
            id: self.free_id(random),
            parent_id,
            timestamp: timestamp.to_owned(),
            kind,
            parent,
            line: None,
        };

        let line = entry.to_line();
        self.push(entry);
        line
    }

    /// Derives an unused id from a random number.
    fn free_id(&self, random: u32) -> String {
        // The step is odd, so that every number comes once.
        let numbers =
            std::iter::successors(Some(random), |number| Some(number.wrapping_add(0x9e37_79b9)));
        let mut ids = numbers.map(|number| format!("{number:08x}"));
        ids.find(|id| !self.index.contains_key(id.as_str())).unwrap_or_default()
    }

    fn push(&mut self, entry: Entry) {
        self.index.insert(entry.id.as_str().into(), self.entries.len());
        self.entries.push(entry);
    }
}

#[cfg(test)]
mod tests;
