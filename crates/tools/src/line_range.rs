//! Reads a range of lines from a file of any size, for `read_file`. Reads the file once, in constant memory in
//! addition to the result.

use crate::arguments::Arguments;
use quackd_protocol::limits::MAX_FILE_BYTES;
use std::fmt::Write as _;
use std::io::{self, BufRead};
use std::time::Instant;

/// Number of lines without a `limit`.
pub(crate) const DEFAULT_LINES: u64 = 2_000;

/// Requested lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineRange {
    /// First line, from 1.
    offset: u64,
    /// Number of lines.
    limit: u64,
    /// Put the number of each line before it.
    numbered: bool,
}

/// Error of a request or of reading.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RangeError {
    #[error("Parameter '{0}' must be a whole number from 1")]
    NotANumber(&'static str),
    #[error("The file has {lines} lines; offset {offset} is beyond its end")]
    BeyondEnd { lines: u64, offset: u64 },
    #[error("No time was left to read up to line {0}")]
    OutOfTime(u64),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl LineRange {
    /// Reads `offset`, `limit` and `line_numbers`. `None` if none of them is given.
    pub(crate) fn parse(arguments: &Arguments) -> Result<Option<Self>, RangeError> {
        let number = |name: &'static str| match arguments.value(&[name]) {
            None => Ok(None),
            Some(_) => match arguments.number(name) {
                Some(number) if 0 < number => Ok(Some(number)),
                _ => Err(RangeError::NotANumber(name)),
            },
        };
        let (offset, limit) = (number("offset")?, number("limit")?);
        let numbered = arguments.is_true("line_numbers");
        if offset.is_none() && limit.is_none() && !numbered {
            return Ok(None);
        }
        let (offset, limit) = (offset.unwrap_or(1), limit.unwrap_or(DEFAULT_LINES));
        Ok(Some(Self { offset, limit, numbered }))
    }

    /// Returns the lines, and a note if the file continues after them. Stops at `until`.
    pub(crate) fn read(self, mut file: impl BufRead, until: Instant) -> Result<String, RangeError> {
        let mut line = Vec::new();
        let mut number = 0;
        let most = usize::try_from(MAX_FILE_BYTES).unwrap_or(usize::MAX);
        let mut text = String::new();
        let last = (self.offset - 1).saturating_add(self.limit);
        loop {
            let is_shown = self.offset <= number + 1;
            let room = if is_shown { most.saturating_sub(text.len()) } else { 0 };
            line.clear();
            let is_past = last <= number;
            let read = read_line(&mut file, &mut line, room, is_past, until)?;
            let Some((n_bytes, is_cut)) = read else {
                return Err(RangeError::OutOfTime(number + 1));
            };
            if n_bytes == 0 {
                break;
            }
            // A line that is too long for any answer is shown in part.
            let is_full = is_cut && is_shown && !text.is_empty();
            if is_past || is_full {
                note(&mut text, self.offset, number, !is_past);
                return Ok(text);
            }
            number += 1;
            if is_shown {
                if self.numbered {
                    // Writing to a string cannot fail.
                    let _written = write!(text, "{number:>6}\t");
                }
                text.push_str(&String::from_utf8_lossy(&line));
                if is_cut {
                    note(&mut text, self.offset, number, true);
                    return Ok(text);
                }
            }
        }
        if number < self.offset && 1 < self.offset {
            return Err(RangeError::BeyondEnd { lines: number, offset: self.offset });
        }
        Ok(text)
    }
}

/// Reads one line with its end, and keeps at most `room` bytes of it. Returns the length of the line, or of its
/// first part with `one_look`, and whether some bytes were not kept. `None` if the time is over.
fn read_line(
    file: &mut impl BufRead,
    line: &mut Vec<u8>,
    room: usize,
    one_look: bool,
    until: Instant,
) -> io::Result<Option<(usize, bool)>> {
    let mut n_bytes = 0;
    while Instant::now() < until {
        let buffer = match file.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            buffer => buffer?,
        };
        let end = memchr::memchr(b'\n', buffer).map(|end| end + 1);
        let part = end.unwrap_or(buffer.len());
        let kept = part.min(room.saturating_sub(line.len()));
        line.extend(buffer.iter().take(kept));
        file.consume(part);
        n_bytes += part;
        if end.is_some() || part == 0 || one_look {
            return Ok(Some((n_bytes, line.len() < n_bytes)));
        }
    }
    Ok(None)
}

/// Adds the note about the lines shown and how to get the rest.
fn note(text: &mut String, first: u64, last: u64, is_full: bool) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let why = if is_full { ", as much as fits" } else { "" };
    let next = last.saturating_add(1);
    let _written =
        write!(text, "[Lines {first} to {last} shown{why}. The file continues: offset {next}]");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn read(text: &[u8], arguments: &str) -> Result<String, String> {
        let arguments = Arguments::parse("read_file", arguments).unwrap();
        let range = LineRange::parse(&arguments).map_err(|error| error.to_string())?.unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        // A small buffer: lines are longer than it.
        range.read(io::BufReader::with_capacity(3, text), until).map_err(|error| error.to_string())
    }

    #[test]
    fn lines_are_given_as_they_are_and_the_rest_is_announced() {
        let file = b"one\r\ntwo\n\nfour";
        for (arguments, expected) in [
            (r#"{"offset":1}"#, "one\r\ntwo\n\nfour"),
            (r#"{"limit":2}"#, "one\r\ntwo\n[Lines 1 to 2 shown. The file continues: offset 3]"),
            (
                r#"{"offset":2,"limit":2}"#,
                "two\n\n[Lines 2 to 3 shown. The file continues: offset 4]",
            ),
            (r#"{"offset":4,"limit":1}"#, "four"),
            (r#"{"offset":3,"line_numbers":true}"#, "     3\t\n     4\tfour"),
            (r#"{"offset":4,"limit":18446744073709551615}"#, "four"),
        ] {
            assert_eq!(read(file, arguments).as_deref(), Ok(expected), "{arguments}");
        }
        assert_eq!(read(b"", r#"{"offset":1}"#).as_deref(), Ok(""));
        let beyond = "The file has 4 lines; offset 5 is beyond its end";
        assert_eq!(read(file, r#"{"offset":5}"#).unwrap_err(), beyond);
        for wrong in
            [r#"{"offset":0}"#, r#"{"offset":"x"}"#, r#"{"offset":-1}"#, r#"{"offset":1.5}"#]
        {
            let error = read(file, wrong).unwrap_err();
            assert_eq!(error, "Parameter 'offset' must be a whole number from 1", "{wrong}");
        }
    }

    #[test]
    fn a_result_has_a_bound_and_names_the_line_to_go_on_with() {
        let most = usize::try_from(MAX_FILE_BYTES).unwrap();
        let long =
            [vec![b'x'; most - 10], b"\n".to_vec(), vec![b'y'; 20], b"\nz".to_vec()].concat();
        let text = read(&long, r#"{"offset":1}"#).unwrap();
        assert!(
            text.ends_with(
                "x\n[Lines 1 to 1 shown, as much as fits. The file continues: offset 2]"
            )
        );
        let longer = vec![b'x'; most + 10];
        let text = read(&longer, r#"{"offset":1}"#).unwrap();
        let note = "\n[Lines 1 to 1 shown, as much as fits. The file continues: offset 2]";
        assert_eq!(text.strip_suffix(note).map(str::len), Some(most));
        let text = read(&long, r#"{"offset":2}"#).unwrap();
        assert_eq!(text, format!("{}\nz", "y".repeat(20)));
    }
}
