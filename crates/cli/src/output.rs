//! Everything that `quack` prints, and the only place that prints. Used by `main` and every verb.
//!
//! A reader that goes away (`quack ps | head -1`) is not an error: what it does not want to read is
//! dropped in silence, and the exit code stays that of the verb.

use crate::args::{Color, OutputArgs};
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// Names and headings.
pub(crate) const BOLD: Style = Style::new().bold();
/// What may be skipped.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Success.
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
/// Failure.
pub(crate) const RED: Style = AnsiColor::Red.on_default();

/// Where and how to print.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
    color: ColorChoice,
}

impl Output {
    pub(crate) fn new(args: OutputArgs) -> Self {
        let color = match args.color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        };
        Self { json: args.json, color }
    }

    /// True: one JSON document is wanted, and no text.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Prints text of ours. Styles in it are dropped where they are not wanted.
    pub(crate) fn text(self, text: &str) -> io::Result<()> {
        let mut stdout = AutoStream::new(io::stdout().lock(), self.color);
        unless_closed(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
    }

    /// Prints a tool's answer byte by byte. A person gets a last newline if it has none.
    pub(crate) fn answer(self, text: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        let last = if stdout.is_terminal() && !text.ends_with('\n') { "\n" } else { "" };
        let written = stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.write_all(last.as_bytes()))
            .and_then(|()| stdout.flush());
        unless_closed(written)
    }

    /// Prints the JSON document.
    pub(crate) fn document<T: Serialize>(self, document: &T) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(document)?;
        text.push(b'\n');
        let mut stdout = io::stdout().lock();
        unless_closed(stdout.write_all(&text).and_then(|()| stdout.flush()))
    }

    /// Tells a person at a terminal something besides the result. Goes to stderr, never to a script.
    pub(crate) fn note(self, text: &str) {
        if !self.json && io::stderr().is_terminal() {
            self.to_stderr(&format!("{DIM}{text}{DIM:#}\n"));
        }
    }

    /// Says on stderr why the verb failed. Stdout has nothing then, also with `--json`.
    pub(crate) fn failure(self, text: &str) {
        self.to_stderr(&format!("{RED}error:{RED:#} {text}\n"));
    }

    fn to_stderr(self, text: &str) {
        // Without a stderr nobody can be told that there is none.
        let _lost = AutoStream::new(io::stderr().lock(), self.color).write_all(text.as_bytes());
    }
}

fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_went_away_is_no_error_and_a_full_disk_is_one() {
        assert!(unless_closed(Err(io::ErrorKind::BrokenPipe.into())).is_ok());
        assert!(unless_closed(Err(io::ErrorKind::StorageFull.into())).is_err());
    }
}
