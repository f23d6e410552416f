//! Removes from texts all characters that control a terminal or hide other characters.

use quackd_protocol::foreign_text::UnsafeCharFilter;

/// Maximum length of an escape sequence, in bytes. A longer one stays as text.
const MAX_SEQUENCE: usize = 1024;

/// Returns the text without escape sequences. Line ends become line feeds. Other unsafe characters
/// ([`quackd_protocol::foreign_text`]) become `�`, except tabs.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut filter = UnsafeCharFilter::default();
    let mut rest = text;

    while let Some(c) = rest.chars().next() {
        let len = match c {
            '\x1b' => sequence(rest).unwrap_or(1),
            '\r' if rest.starts_with("\r\n") => 2,
            c => c.len_utf8(),
        };

        match c {
            // The whole sequence is left out.
            '\x1b' if len > 1 => {}
            '\r' => filter.feed('\n', &mut out),
            '\n' | '\t' => filter.feed(c, &mut out),
            c if c.is_control() => filter.feed(char::REPLACEMENT_CHARACTER, &mut out),
            c => filter.feed(c, &mut out),
        }

        rest = rest.get(len..).unwrap_or_default();
    }
    filter.finish(&mut out);
    out
}

/// Returns the cleaned text on one line, of at most 200 characters.
pub(super) fn clean_line(text: &str) -> String {
    let line: String = clean(text).split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(200).collect()
}

/// Returns the length of the escape sequence at the start of `text`: `ESC [ … letter`, or `ESC ] …
/// BEL` and similar strings. `None` if it has no valid end.
fn sequence(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    // Behind the two bytes that begin the sequence.
    let mut rest = bytes.iter().enumerate().skip(2).take(MAX_SEQUENCE);

    match bytes.get(1)? {
        b'[' => {
            let (end, _) = rest.find(|(_, byte)| !(b' '..=b'?').contains(*byte))?;
            bytes.get(end).filter(|byte| (b'@'..=b'~').contains(*byte))?;
            Some(end + 1)
        }
        b']' | b'P' | b'X' | b'^' | b'_' => {
            let (end, _) = rest.find(|(_, byte)| [b'\x07', b'\x1b', b'\n'].contains(*byte))?;
            match (bytes.get(end)?, bytes.get(end + 1)) {
                (b'\x07', _) => Some(end + 1),
                (b'\x1b', Some(b'\\')) => Some(end + 2),
                // A string that a line feed or another sequence cuts stays as text.
                _ => None,
            }
        }
        _ => None,
    }
}
