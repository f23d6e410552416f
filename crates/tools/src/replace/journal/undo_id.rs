//! Ids by which entries and changes of a session can be undone, and the number of entries that are kept.

use quackd_sandbox::StagedTag;
use std::fmt;
use std::io;

/// Maximum number of entries in a session. A new entry replaces the oldest one.
pub(crate) const MAX_ENTRIES: usize = 20;

/// Id of an entry: its number in the session, and a random part that distinguishes it from the entries of an
/// earlier journal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UndoId {
    pub(super) number: u64,
    pub(super) mark: u32,
}

impl UndoId {
    pub(super) fn with_random_mark(number: u64) -> io::Result<Self> {
        let random = StagedTag::random()?.to_string();
        let mark = random.get(..8).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        Ok(Self { number, mark: mark.unwrap_or(0) })
    }

    /// Parses the output of `Display`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, mark) = text.split_once('-')?;
        let is_plain = |text: &str, digit: fn(&u8) -> bool| text.as_bytes().iter().all(digit);
        // `parse` below also accepts a sign.
        if !is_plain(number, u8::is_ascii_digit) || !is_plain(mark, u8::is_ascii_hexdigit) {
            return None;
        }
        let id = Self { number: number.parse().ok()?, mark: u32::from_str_radix(mark, 16).ok()? };
        // Leading zeros would name no directory.
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for UndoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08x}", self.number, self.mark)
    }
}
