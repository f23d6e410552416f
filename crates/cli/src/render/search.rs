//! What the verbs that look into files show: lines with their matches, names, and patches. Pure functions
//! from what a tool said to text for a person or a script.
//!
//! - [`data`], [`changes`], [`undone`]: reading a tool's data. [`join`]: pages as one stream. [`hits`]: lines. [`diff`]: patches.
//!
//! Contents and names come from files. On a terminal they are made harmless; in a pipe they stay as they
//! are, so that another program gets what is in the file.

pub(crate) mod changes;
pub(crate) mod data;
pub(crate) mod diff;
pub(crate) mod hits;
pub(crate) mod join;
pub(crate) mod undone;

use super::clean::clean;
use crate::output::Audience;
use anstyle::{AnsiColor, Style};

/// Names of files, as grep and ripgrep have them.
pub(crate) const PATH: Style = AnsiColor::Magenta.on_default();
/// Numbers of lines.
pub(crate) const LINE: Style = AnsiColor::Green.on_default();
/// What matches.
pub(crate) const MATCH: Style = AnsiColor::Red.on_default().bold();

/// `text`, which is one line, fit for who reads it.
pub(crate) fn fit(text: &str, audience: Audience) -> String {
    if !audience.is_terminal {
        return text.to_owned();
    }
    // Neither may begin a line of its own.
    clean(&text.replace(['\r', '\n'], "\u{fffd}"))
}

/// Appends `text` in a style, if one is wanted. What is empty gets none.
pub(crate) fn push(out: &mut String, text: &str, style: Style, audience: Audience) {
    if audience.is_colored && !text.is_empty() {
        out.push_str(&format!("{style}{text}{style:#}"));
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
        let terminal = Audience { is_terminal: true, is_colored: false };
        assert_eq!(fit(line, terminal), "ab\u{fffd}c\td\u{fffd}");
        assert_eq!(fit(line, Audience { is_terminal: false, is_colored: true }), line);
    }
}
