//! Keeps the new contents of one recorded state.

use crate::error::{IsolateError, OnFile as _};
use crate::node::{self, ContentHash, MAX_FILE_BYTES, Node, Stamp};
use crate::recorded::{Entries, Recorded, Span, StateFiles, by_hash};
use crate::tree::{Listed, open_file};
use rustix::fs::Stat;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek as _};
use std::os::fd::BorrowedFd;

/// Maximum size of a content that is kept, in bytes.
const MAX_KEPT_FILE: u64 = 64 * 1024 * 1024;

/// Files up to this size are read into memory, in bytes.
const SMALL: u64 = 1024 * 1024;

/// Maximum size of all contents that are read for one state, in bytes. A session can make many large files that take no
/// space.
const MAX_READ: u64 = 4 * 1024 * 1024 * 1024;

/// Number of attempts to read a file that another program changes at the same time.
const MAX_ATTEMPTS: usize = 3;

/// The pack of one state.
pub(crate) struct Store<'a> {
    states: &'a StateFiles,
    number: u64,
    entries: &'a Entries,
    /// Created with the first content.
    pack: Option<BufWriter<File>>,
    end: u64,
    /// Places of the contents of the state before, and of this one. Empty until the first content.
    known: BTreeMap<ContentHash, Span>,
    /// Bytes that may still be kept.
    left: u64,
    /// Bytes that may still be read.
    read_left: u64,
    /// Whether a content was not kept because there was no room.
    is_full: bool,
    /// Error of the pack. It is no error of the file that was read.
    failed: Option<IsolateError>,
}

impl<'a> Store<'a> {
    /// Prepares the pack of state `number`, after the state with these entries. It gets at most `left` bytes.
    pub(crate) fn new(
        states: &'a StateFiles,
        number: u64,
        entries: &'a Entries,
        left: u64,
    ) -> Self {
        let known = BTreeMap::new();
        Self {
            states,
            number,
            entries,
            pack: None,
            end: 0,
            known,
            left,
            read_left: MAX_READ,
            is_full: false,
            failed: None,
        }
    }

    /// Reads a file and keeps its content. `None` if it does not exist.
    pub(crate) fn read(
        &mut self,
        directory: BorrowedFd<'_>,
        entry: &Listed,
    ) -> io::Result<Option<Recorded>> {
        let mut last = None;
        for _ in 0..MAX_ATTEMPTS {
            let file = match open_file(directory, &entry.name) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };

            let before = rustix::fs::fstat(&file)?;
            let recorded = self.keep(&file, &before)?;
            let is_same = Stamp::of(&rustix::fs::fstat(&file)?) == Stamp::of(&before);
            // Only a content of one moment gets a stamp. Without it, the next scan reads the file again.
            let is_whole = is_same && recorded.node != Node::Other;
            let stamp = Stamp::of_settled(&before).filter(|_| is_whole);
            last = Some(Recorded { stamp, ..recorded });

            if is_same {
                break;
            }
        }
        Ok(last)
    }

    /// Removes the pack: no state needs it.
    pub(crate) fn discard(self) -> Result<(), IsolateError> {
        self.states.remove_pack(self.number)
    }

    /// Makes the pack durable. Returns whether a content was not kept because there was no room.
    pub(crate) fn finish(self) -> Result<bool, IsolateError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let Some(pack) = self.pack else { return Ok(self.is_full) };
        let path = self.states.pack(self.number);
        let file = pack.into_inner().map_err(io::IntoInnerError::into_error).on("write", &path)?;
        file.sync_all().on("sync", &path)?;
        Ok(self.is_full)
    }

    fn keep(&mut self, mut file: &File, stat: &Stat) -> io::Result<Recorded> {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let may_keep = size <= MAX_KEPT_FILE && size <= self.left;
        if self.read_left < size || MAX_FILE_BYTES < size {
            return Ok(Recorded { node: Node::Other, stamp: None, content: None });
        }
        self.read_left -= size;

        // The hash comes first, because a known content is not kept again. Only a large file is read twice.
        let mut small = Vec::new();
        let (hash, len) = if size <= SMALL {
            let len = file.take(SMALL + 1).read_to_end(&mut small)? as u64;
            if SMALL < len {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            (ContentHash::of(&small), len)
        } else {
            node::hash_of(file)?
        };

        let node = Node::File { hash, len, is_executable: stat.st_mode & 0o100 != 0 };
        let is_kept = may_keep && len <= self.left && self.failed.is_none();
        // A file above its own limit does not mean that there is no room.
        self.is_full |= !may_keep && size <= MAX_KEPT_FILE;
        let content = match self.place_of(hash) {
            Some(span) => Some(span),
            None if !is_kept => None,
            None if size <= SMALL => self.add(hash, len, &mut small.as_slice()),
            None => {
                file.rewind()?;
                self.add(hash, len, &mut file)
            }
        };
        Ok(Recorded { node, stamp: None, content })
    }

    fn place_of(&mut self, hash: ContentHash) -> Option<Span> {
        if self.known.is_empty() {
            self.known = by_hash(self.entries);
        }
        self.known.get(&hash).copied()
    }

    /// Adds a content to the pack. `None` if it is no longer the expected one, or the pack failed.
    fn add(&mut self, hash: ContentHash, len: u64, source: &mut dyn Read) -> Option<Span> {
        match self.append(len, source) {
            Ok((found, written)) => {
                let span = Span { pack: self.number, at: self.end, len };
                self.end += written;
                self.left = self.left.saturating_sub(written);
                let is_expected = found == hash && written == len;
                is_expected.then(|| self.known.insert(hash, span));
                is_expected.then_some(span)
            }
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    fn append(
        &mut self,
        len: u64,
        source: &mut dyn Read,
    ) -> Result<(ContentHash, u64), IsolateError> {
        let path = self.states.pack(self.number);
        if self.pack.is_none() {
            self.pack = Some(BufWriter::new(self.states.create_pack(self.number)?));
        }
        let Some(pack) = &mut self.pack else { return Ok((ContentHash::of(&[]), 0)) };
        node::copy_hashed(&mut source.take(len), pack).on("write", &path)
    }
}
