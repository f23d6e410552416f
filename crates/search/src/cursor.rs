//! The end of a page as opaque text. Used by `engine` and `find`.
//!
//! A cursor contains a hash of its request and is only valid for that request. It is not a secret: a forged
//! cursor can only name another position in the same answer.

use crate::error::SearchError;
use crate::request::{Dialect, Search};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Maximum length of a cursor in bytes: two digits for each byte of the longest path of a walk, plus the
/// numbers.
const MAX_BYTES: usize = 2 * 64 * 1024 + 256;

/// The end of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Number of rows before the next page.
    pub(crate) offset: u64,
    /// Line of the last row, and the row's number within its file.
    pub(crate) line: u64,
    pub(crate) nth: u64,
    pub(crate) is_basic: bool,
    pub(crate) path: PathBuf,
}

impl Cursor {
    /// Encodes the cursor for the request with this hash.
    pub(crate) fn write(&self, request: u64) -> String {
        let dialect = if self.is_basic { 'b' } else { 'r' };
        let (offset, line, nth) = (self.offset, self.line, self.nth);
        let mut text = format!("1{dialect}.{request:x}.{offset:x}.{line:x}.{nth:x}.");
        for byte in self.path.as_os_str().as_bytes() {
            // Writing to a string cannot fail.
            write!(text, "{byte:02x}").ok();
        }
        text
    }

    /// Decodes a cursor. Fails unless it was encoded for a request with this hash.
    pub(crate) fn read(text: &str, request: u64) -> Result<Self, SearchError> {
        Self::parse(text)
            .filter(|(hash, _)| *hash == request)
            .map(|(_, cursor)| cursor)
            .ok_or(SearchError::BadCursor)
    }

    fn parse(text: &str) -> Option<(u64, Self)> {
        if MAX_BYTES < text.len() {
            return None;
        }

        let mut parts = text.trim().split('.');
        let is_basic = match parts.next()? {
            "1b" => true,
            "1r" => false,
            _ => return None,
        };

        let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
        let (hash, offset, line, nth) = (number()?, number()?, number()?, number()?);
        let digits = parts.next()?.as_bytes();

        let path: Option<Vec<u8>> = digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        let path = PathBuf::from(OsStr::from_bytes(&path?));
        // More text, or half of a byte, is in no cursor of quackd.
        let is_end = parts.next().is_none() && digits.len().is_multiple_of(2);
        is_end.then_some((hash, Self { offset, line, nth, is_basic, path }))
    }
}

/// Hash of the fields that decide which rows are found, and in which order. Requests with the same hash ask for
/// pages of the same answer.
pub(crate) fn hash_of_search(request: &Search, root: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    root.hash(&mut hasher);
    request.pattern.hash(&mut hasher);
    request.scope.hash(&mut hasher);
    (request.invert, request.output, request.max_per_file).hash(&mut hasher);
    (request.binary, &request.encoding).hash(&mut hasher);
    hasher.finish()
}

impl Cursor {
    pub(crate) fn dialect(&self) -> Dialect {
        if self.is_basic { Dialect::Basic } else { Dialect::Rust }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_only_for_its_request() {
        let path = PathBuf::from(OsStr::from_bytes(b"a/\xff\n.b"));
        let cursor = Cursor { offset: 100, line: 7, nth: 3, is_basic: true, path };
        let text = cursor.write(0xabc);
        assert_eq!(Cursor::read(&text, 0xabc), Ok(cursor));
        assert_eq!(Cursor::read(&text, 0xabd), Err(SearchError::BadCursor));
        for bad in
            ["", "1r", "1r.abc.1.1.1.6", "2r.abc.1.1.1.61", "1r.abc.1.1.1.61.", "1r.abc.-1.1.1."]
        {
            assert_eq!(Cursor::read(bad, 0xabc), Err(SearchError::BadCursor), "{bad}");
        }
        assert!(Cursor::read("1r.abc.1.1.1.", 0xabc).is_ok());
        assert!(Cursor::read(&"1r.".repeat(100_000), 0xabc).is_err());
    }
}
