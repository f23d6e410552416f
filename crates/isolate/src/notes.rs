//! Lines for the user about single files, bounded in number and length.

use quackd_protocol::foreign_text::message_line;
use quackd_protocol::isolate::{MAX_ISOLATED_NOTE, MAX_ISOLATED_NOTES};
use std::path::Path;

/// The first notes, and the number of the others.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    lines: Vec<String>,
    n_more: usize,
}

impl Notes {
    /// Adds a clause about a file.
    pub(crate) fn add(&mut self, path: &Path, what: &str) {
        self.line(&format!("{} {what}", path.display()));
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, line: &str) {
        // The last line is for the number of the others.
        if self.lines.len() + 1 < MAX_ISOLATED_NOTES {
            self.lines.push(message_line(line, MAX_ISOLATED_NOTE));
        } else {
            self.n_more += 1;
        }
    }

    pub(crate) fn extend(&mut self, lines: Vec<String>) {
        lines.iter().for_each(|line| self.line(line));
    }

    pub(crate) fn into_lines(mut self) -> Vec<String> {
        if 0 < self.n_more {
            self.lines.push(format!("and {} more", self.n_more));
        }
        self.lines
    }
}
