//! Reads session files in pieces. Keeps everything that it can parse, and counts the rest.

use super::Transcript;
use super::entry::{Entry, EntryKind, Header, VERSION};
use super::problems::TranscriptError;
use quackd_protocol::surrogates::without_lone_surrogates;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Longest line that is read, in bytes. A longer one is skipped.
pub const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// Largest file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Maximum number of entries of a file.
pub const MAX_ENTRIES: usize = 1_000_000;

impl Transcript {
    /// Reads a file. Skips and counts lines that are not entries. Converts files of the versions 1 and 2, see
    /// [`Transcript::needs_rewrite`].
    ///
    /// # Errors
    ///
    /// If the file has no header or is too large. The caller must not truncate such a file.
    pub fn read(bytes: &[u8]) -> Result<Self, TranscriptError> {
        let mut reader = Reader::default();
        reader.push(bytes);
        reader.finish()
    }
}

/// Reader of one file, in pieces of any size. Buffers at most one line.
#[derive(Debug, Default)]
pub struct Reader {
    transcript: Option<Transcript>,
    error: Option<TranscriptError>,
    /// Start of a line whose end has not been read.
    start: Vec<u8>,
    /// Whether the current line is too long.
    is_skipping: bool,
    /// Whether a line after the last entry was skipped or empty.
    has_lost: bool,
    bytes: u64,
}

impl Reader {
    /// Reads the next piece of the file.
    pub fn push(&mut self, mut piece: &[u8]) {
        self.bytes = self.bytes.saturating_add(piece.len() as u64);
        if self.bytes > MAX_FILE_BYTES {
            // Further bytes are not kept, so a huge file takes no memory.
            self.error.get_or_insert(TranscriptError::TooLarge);
        }

        while self.error.is_none() && !piece.is_empty() {
            let end = piece.iter().position(|byte| *byte == b'\n');
            let (line, rest) = piece.split_at(end.unwrap_or(piece.len()));
            self.part_of_line(line, end.is_some());
            piece = rest.get(1..).unwrap_or_default();
        }
    }

    fn part_of_line(&mut self, part: &[u8], is_complete: bool) {
        self.is_skipping |= self.start.len() + part.len() > MAX_LINE_BYTES;

        if self.is_skipping {
            self.start.clear();
        } else if !is_complete {
            self.start.extend_from_slice(part);
        } else if self.start.is_empty() {
            self.line(part);
        } else {
            let mut line = std::mem::take(&mut self.start);
            line.extend_from_slice(part);
            self.line(&line);
        }

        if is_complete && std::mem::take(&mut self.is_skipping) {
            self.long_line();
        }
    }

    fn long_line(&mut self) {
        self.has_lost = true;
        match &mut self.transcript {
            Some(transcript) => transcript.problems.long_lines += 1,
            None => self.error = Some(TranscriptError::NoHeader),
        }
    }

    fn line(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        if line.is_empty() {
            // A writer that has lost lines leaves an empty one.
            self.has_lost = true;
            return;
        }

        let Some(transcript) = &mut self.transcript else {
            match Header::parse(line) {
                Some(header) => self.transcript = Some(Transcript::new(header)),
                None => self.error = Some(TranscriptError::NoHeader),
            }
            return;
        };

        if transcript.entries.len() >= MAX_ENTRIES {
            self.error = Some(TranscriptError::TooLarge);
        } else if let Some(entry) = parse_entry(transcript, line) {
            add(transcript, entry, std::mem::take(&mut self.has_lost));
        } else {
            transcript.problems.bad_lines += 1;
            self.has_lost = true;
        }
    }

    /// Ends the file.
    ///
    /// # Errors
    ///
    /// See [`TranscriptError`].
    pub fn finish(mut self) -> Result<Transcript, TranscriptError> {
        let last = std::mem::take(&mut self.start);
        let needs_newline = self.is_skipping || !last.is_empty();

        if self.error.is_none() {
            // The last line may lack its line feed.
            self.line(&last);
        }
        if self.error.is_none() && self.is_skipping {
            self.long_line();
        }

        if let Some(error) = self.error {
            return Err(error);
        }

        let mut transcript = self.transcript.ok_or(TranscriptError::Empty)?;
        transcript.needs_newline = needs_newline;
        Ok(transcript)
    }
}

/// Parses a line. `None` if it is not an entry.
fn parse_entry(transcript: &Transcript, line: &[u8]) -> Option<Entry> {
    let version = transcript.header.version;
    let mut text = Cow::Borrowed(line);
    let mut members = match serde_json::from_slice::<Map<String, Value>>(line) {
        Ok(members) => members,
        Err(_) => {
            // JavaScript writes escapes of half surrogate pairs, which JSON parsers refuse.
            let valid = String::from_utf8_lossy(line);
            text = Cow::Owned(without_lone_surrogates(&valid).into_owned().into_bytes());
            serde_json::from_slice(&text).ok()?
        }
    };

    if version < VERSION {
        migrate(transcript, &mut members);
        text = Cow::Owned(serde_json::to_vec(&members).ok()?);
    }

    let string = |name: &str| members.get(name).and_then(Value::as_str).map(str::to_owned);
    string("type")?;

    let mut entry = Entry {
        id: string("id").filter(|id| !id.is_empty())?,
        parent_id: string("parentId"),
        timestamp: string("timestamp").unwrap_or_default(),
        kind: EntryKind::parse(members),
        parent: None,
        line: None,
    };
    entry.keep_if_different(std::str::from_utf8(&text).ok()?);
    Some(entry)
}

/// Adds an entry and links it to its parent, which must be before it. So the links form no cycle.
fn add(transcript: &mut Transcript, mut entry: Entry, has_lost: bool) {
    if let Some(id) = &entry.parent_id {
        let last = transcript.entries.len().checked_sub(1);
        entry.parent = transcript.index.get(id.as_str()).copied();
        // The lines between this entry and its parent are lost: the last entry before them is the
        // best guess.
        if entry.parent.is_none() && has_lost && last.is_some() {
            entry.parent = last;
            transcript.problems.bridged_links += 1;
        } else if entry.parent.is_none() {
            transcript.problems.broken_links += 1;
        }
    }
    transcript.push(entry);
}

/// Converts the members of an entry of version 1 (no ids, one branch) or 2 (`hookMessage`) to [`VERSION`].
fn migrate(transcript: &Transcript, members: &mut Map<String, Value>) {
    if transcript.header.version < 2 {
        let id = format!("{:08x}", transcript.entries.len() + 1);
        members.insert("id".to_owned(), id.into());
        members.insert("parentId".to_owned(), transcript.leaf().into());

        // The index counts the header.
        let kept = members.remove("firstKeptEntryIndex").and_then(|number| number.as_u64());
        let kept = kept.and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
        if let Some(kept) = kept.and_then(|number| transcript.entries.get(number)) {
            members.insert("firstKeptEntryId".to_owned(), kept.id.as_str().into());
        }
    }

    if let Some(role) = members.get_mut("message").and_then(|message| message.get_mut("role"))
        && *role == "hookMessage"
    {
        *role = "custom".into();
    }
}
