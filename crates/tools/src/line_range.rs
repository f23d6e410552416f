//! Reads a range of lines from a file of any size, for `read_file`. Reads the file once, in constant memory in
//! addition to the result.

use quackd_protocol::limits::MAX_FILE_BYTES;
use quackd_protocol::tools::{BadParameter, FromOne, ReadFileArguments};
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
    /// Largest size of the lines, in bytes.
    max_bytes: u64,
}

/// Error of reading.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RangeError {
    #[error("The file has {lines} lines; offset {offset} is beyond its end")]
    BeyondEnd { lines: u64, offset: u64 },
    #[error("No time was left to read up to line {0}")]
    OutOfTime(u64),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl LineRange {
    /// Returns the requested lines. `None` if the call limits nothing and requests no line numbers.
    pub(crate) fn new(request: ReadFileArguments) -> Result<Option<Self>, BadParameter> {
        let (FromOne(offset), FromOne(limit)) = (request.offset?, request.limit?);
        let (FromOne(max_bytes), numbered) = (request.max_bytes?, request.line_numbers);
        if offset.is_none() && limit.is_none() && max_bytes.is_none() && !numbered {
            return Ok(None);
        }

        let max_bytes = max_bytes.unwrap_or(u64::MAX).min(MAX_FILE_BYTES);
        let (offset, limit) = (offset.unwrap_or(1), limit.unwrap_or(DEFAULT_LINES));
        Ok(Some(Self { offset, limit, numbered, max_bytes }))
    }

    /// Returns the lines, and a note if the file continues after them. Stops at `until`.
    pub(crate) fn read(self, mut file: impl BufRead, until: Instant) -> Result<String, RangeError> {
        let mut line = Vec::new();
        let mut number = 0;
        // Where the line begins in the file.
        let mut start = 0_u64;
        let most = usize::try_from(self.max_bytes).unwrap_or(usize::MAX);
        let mut text = String::new();
        let last = (self.offset - 1).saturating_add(self.limit);

        loop {
            let is_shown = self.offset <= number + 1;
            let room = if is_shown { most.saturating_sub(text.len()) } else { 0 };
            line.clear();
            // A first look behind the last line shows whether the file continues.
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
                    write!(text, "{number:>6}\t").ok();
                }

                if is_cut {
                    line.truncate(without_half_char(&line));
                }
                text.push_str(&String::from_utf8_lossy(&line));
                if is_cut {
                    let (n_shown, n_bytes) = (wide(line.len()), wide(n_bytes));
                    let continues = is_more(&mut file, until)?;
                    self.note_cut(&mut text, number, start, n_shown, n_bytes, continues);
                    return Ok(text);
                }
            }

            start = start.saturating_add(wide(n_bytes));
        }

        // An empty file has a first line, which is empty.
        if number < self.offset && 1 < self.offset {
            return Err(RangeError::BeyondEnd { lines: number, offset: self.offset });
        }
        Ok(text)
    }
}

impl LineRange {
    /// Adds the note about a line of which only the first bytes are shown.
    fn note_cut(
        self,
        text: &mut String,
        number: u64,
        start: u64,
        n_shown: u64,
        n_bytes: u64,
        continues: bool,
    ) {
        let rest = start.saturating_add(n_shown).saturating_add(1);
        let n_next = n_bytes.saturating_sub(n_shown).min(self.max_bytes);
        // Writing to a string cannot fail.
        write!(
            text,
            "\n[Line {number} is cut: {n_shown} of its {n_bytes} bytes are shown. For more of it: tail -c +{rest} FILE | head -c {n_next}"
        )
        .ok();
        if continues {
            write!(text, ". The file continues: offset {}", number.saturating_add(1)).ok();
        }
        text.push(']');
    }
}

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Whether another line follows.
fn is_more(file: &mut impl BufRead, until: Instant) -> io::Result<bool> {
    Ok(read_line(file, &mut Vec::new(), 0, true, until)?.is_some_and(|(n_bytes, _)| n_bytes != 0))
}

/// Returns the length without a character that is cut at the end.
fn without_half_char(line: &[u8]) -> usize {
    // A character has at most 4 bytes, so the last 3 bytes contain all of a cut one.
    let tail = line.get(line.len().saturating_sub(3)..).unwrap_or_default();
    let last = tail.iter().rposition(|byte| byte & 0xC0 == 0xC0);
    let kept = last
        .and_then(|at| tail.get(at..))
        .filter(|char| std::str::from_utf8(char).is_err_and(|error| error.error_len().is_none()));
    line.len() - kept.map_or(0, <[u8]>::len)
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
            // A signal arrived before any byte was read.
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
    write!(text, "[Lines {first} to {last} shown{why}. The file continues: offset {next}]").ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn read(text: &[u8], arguments: &str) -> Result<String, String> {
        let asked = ReadFileArguments::of(&serde_json::from_str(arguments).unwrap());
        let range = LineRange::new(asked).map_err(|error| error.to_string())?.unwrap();
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
        let note = "\n[Line 1 is cut: 1048576 of its 1048586 bytes are shown. For more of it: tail -c +1048577 FILE | head -c 10]";
        assert_eq!(text.strip_suffix(note).map(str::len), Some(most));
        let text = read("a\nbcdé\r\nx".as_bytes(), r#"{"offset":2,"max_bytes":4}"#).unwrap();
        assert_eq!(
            text,
            "bcd\n[Line 2 is cut: 3 of its 7 bytes are shown. For more of it: tail -c +6 FILE | head -c 4. The file continues: offset 3]"
        );
        let text = read(&long, r#"{"offset":2}"#).unwrap();
        assert_eq!(text, format!("{}\nz", "y".repeat(20)));
    }

    #[test]
    fn an_announced_offset_is_never_an_error() {
        let mut seed = 7_u64;
        let mut below = |n: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        for _ in 0..5000 {
            let n = below(8);
            let pieces = ["", "a", "\n", "\r\n", "é", "long line", "\n\n"];
            let file: String = (0..n).map(|_| pieces[usize::try_from(below(7)).unwrap()]).collect();
            let (limit, max) = (1 + below(3), 1 + below(12));
            let mut offset = 1;
            for _ in 0..20 {
                let arguments =
                    format!(r#"{{"offset":{offset},"limit":{limit},"max_bytes":{max}}}"#);
                let text = read(file.as_bytes(), &arguments).unwrap();
                let Some((_, next)) = text.rsplit_once("continues: offset ") else { break };
                let next = next.trim_end_matches(']').parse().unwrap();
                assert!(offset < next, "{file:?} {arguments}: {text}");
                offset = next;
            }
            let last = u64::try_from(file.lines().count()).unwrap();
            assert!(last <= offset - 1 + limit || max < 12, "{file:?} from {offset}");
        }
    }
}
