//! Renders search results: matching lines, names and patches. Pure functions from a tool's data to text or JSON.
//!
//! - [`data`], [`replace_data`], [`undo_data`]: typed readers of a tool's data.
//! - [`hits`]: lines. [`diff`]: patches.
//!
//! Content and names come from files. On a terminal they are sanitized. In a pipe they are unchanged, so that programs
//! read the files' actual content.

pub(crate) mod data;
pub(crate) mod diff;
pub(crate) mod hits;
pub(crate) mod replace_data;
pub(crate) mod undo_data;

use crate::output::StdoutProperties;
use crate::sanitize::clean;
use anstyle::{AnsiColor, Style};
use std::borrow::Cow;
use std::fmt::Write;

/// Color of file names, as in grep and ripgrep.
pub(crate) const PATH: Style = AnsiColor::Magenta.on_default();
/// Color of line numbers.
pub(crate) const LINE: Style = AnsiColor::Green.on_default();
/// Style of matches, as in ripgrep.
pub(crate) const MATCH: Style = AnsiColor::Red.on_default().bold();

/// Returns one line of text, sanitized if stdout is a terminal.
pub(crate) fn fit(text: &str, audience: StdoutProperties) -> Cow<'_, str> {
    if !audience.is_terminal {
        return Cow::Borrowed(text);
    }
    // Line ends in the text must not start a new line.
    Cow::Owned(clean(&text.replace(['\r', '\n'], "\u{fffd}")))
}

/// Appends `text`, styled if color is on. Empty text gets no style.
pub(crate) fn push(out: &mut String, text: &str, style: Style, audience: StdoutProperties) {
    if audience.is_colored && !text.is_empty() {
        // Writing to a String cannot fail.
        write!(out, "{style}{text}{style:#}").ok();
    } else {
        out.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_harmless_on_a_terminal_and_itself_in_a_pipe() {
        let line = "a\x1b[31mb\rc\td\u{202e}";
        let terminal = StdoutProperties { is_terminal: true, is_colored: false };
        assert_eq!(fit(line, terminal), "ab\u{fffd}c\td\u{fffd}");
        assert_eq!(fit(line, StdoutProperties { is_terminal: false, is_colored: true }), line);
    }
}
