//! Everything that `quack` prints, and the only place that prints. Used by `main` and every verb.
//!
//! A reader that goes away (`quack ps | head -1`) is not an error: what it does not want to read is
//! dropped in silence, and the exit code stays that of the verb. It ends a verb that would print for ever.

use crate::args::{Color, OutputArgs};
use crate::json::visible;
use crate::render::clean;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use quackd_protocol::plain::without_numbers;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest answer to a question that is read, in bytes.
const MAX_ANSWER: u64 = 256;

/// Whether [`Output::document`] was called: `--json` prints one document.
static HAS_DOCUMENT: AtomicBool = AtomicBool::new(false);

/// Names and headings.
pub(crate) const BOLD: Style = Style::new().bold();
/// What may be skipped.
pub(crate) const DIM: Style = Style::new().dimmed();
/// What something is.
pub(crate) const CYAN: Style = AnsiColor::Cyan.on_default();
/// What is worth knowing.
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
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

    /// Prints a tool's answer, or a text for a program, byte by byte. On a terminal a file's content must not
    /// steer it: control characters are shown as such, and a last newline is added if there is none.
    pub(crate) fn answer(self, text: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        let is_terminal = stdout.is_terminal();
        let text = if is_terminal { Cow::from(clean(text)) } else { Cow::from(text) };
        let last = if is_terminal && !text.ends_with('\n') { "\n" } else { "" };
        let written = stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.write_all(last.as_bytes()))
            .and_then(|()| stdout.flush());
        unless_closed(written)
    }

    /// Prints the JSON document.
    pub(crate) fn document<T: Serialize>(self, document: &T) -> io::Result<()> {
        HAS_DOCUMENT.store(true, Ordering::Relaxed);
        let mut text = serde_json::to_string_pretty(document)?;
        text.push('\n');
        unless_closed(write_out(visible(&text).as_bytes()))
    }

    /// Prints the JSON document on one line, as the first of several.
    pub(crate) fn first_line<T: Serialize>(self, document: &T) -> io::Result<()> {
        let mut text = serde_json::to_string(document)?;
        text.push('\n');
        unless_closed(write_out(visible(&text).as_bytes()))
    }

    /// Prints why the verb failed, as one line of JSON: it may follow the lines of a stream. A verb that has printed
    /// its document has said it there.
    pub(crate) fn refusal(error: &Value) {
        if HAS_DOCUMENT.load(Ordering::Relaxed) {
            return;
        }
        // The reason is on stderr too, and the exit code is the same.
        let _lost = write_out(visible(&format!("{error}\n")).as_bytes());
    }

    /// Who reads what is printed to stdout.
    pub(crate) fn audience(self) -> Audience {
        let is_colored = match self.color {
            ColorChoice::Auto => AutoStream::choice(&io::stdout()) != ColorChoice::Never,
            ColorChoice::Never => false,
            _ => true,
        };
        Audience { is_terminal: io::stdout().is_terminal(), is_colored }
    }

    /// Prints a text that may contain file contents; the caller has made it fit for [`Output::audience`]. With
    /// `--json` the text is lines of JSON. Writes on a separate thread. `Gone`: the reader has closed the pipe.
    pub(crate) async fn raw(self, text: String) -> io::Result<Reader> {
        let written = tokio::task::spawn_blocking(move || match self.json {
            true => write_out(visible(&text).as_bytes()),
            false => write_out(text.as_bytes()),
        });
        unless_gone(written.await.map_err(io::Error::other)?)
    }

    /// Prints bytes as they are, to stderr or to stdout. Writes on a separate thread. `Gone`: the reader has closed the
    /// pipe.
    pub(crate) async fn bytes(bytes: Vec<u8>, to_stderr: bool) -> io::Result<Reader> {
        let written = tokio::task::spawn_blocking(move || match to_stderr {
            true => io::stderr().lock().write_all(&bytes),
            false => write_out(&bytes),
        });
        unless_gone(written.await.map_err(io::Error::other)?)
    }

    /// Prints a piece of a stream: text of ours, or lines of JSON. On a thread of its own, so that a
    /// reader who stops reading stops nothing else. `Gone`: nobody reads any more.
    pub(crate) async fn piece(self, text: String) -> io::Result<Reader> {
        let written = tokio::task::spawn_blocking(move || {
            if self.json {
                return write_out(visible(&text).as_bytes());
            }
            let mut stdout = AutoStream::new(io::stdout().lock(), self.color);
            stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
        });
        unless_gone(written.await.map_err(io::Error::other)?)
    }

    /// Tells a person, or a script on stderr, what is wrong with the result although the verb goes on.
    pub(crate) fn warning(self, text: &str) {
        self.to_stderr(&format!("{YELLOW}warning:{YELLOW:#} {}\n", clean(&without_numbers(text))));
    }

    /// Whether a person is there to answer a question.
    pub(crate) fn can_ask() -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Asks a person a question that is answered with yes or no. Waits as long as the person does.
    pub(crate) fn ask_blocking(self, question: &str) -> io::Result<bool> {
        self.to_stderr(&format!("{question} [y/N] "));
        let mut answer = String::new();
        io::stdin().lock().take(MAX_ANSWER).read_line(&mut answer)?;
        Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
    }

    /// Tells a person at a terminal something besides the result. Goes to stderr, never to a script.
    pub(crate) fn note(self, text: &str) {
        if !self.json && io::stderr().is_terminal() {
            self.to_stderr(&format!("{DIM}{}{DIM:#}\n", clean(text)));
        }
    }

    /// Says on stderr why the verb failed. Nothing in the text, which may be of the daemon, of Pi or of a file,
    /// steers the terminal.
    pub(crate) fn failure(self, text: &str) {
        self.to_stderr(&format!("{RED}error:{RED:#} {}\n", clean(&without_numbers(text))));
    }

    /// Prints to stderr as it is, but for the styles. For texts that another program's users know.
    pub(crate) fn to_stderr(self, text: &str) {
        // Without a stderr nobody can be told that there is none.
        let _lost = AutoStream::new(io::stderr().lock(), self.color).write_all(text.as_bytes());
    }
}

/// Who reads stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Audience {
    /// A terminal, which nothing may steer.
    pub(crate) is_terminal: bool,
    /// Colours are wanted.
    pub(crate) is_colored: bool,
}

/// Whether anybody reads what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    There,
    Gone,
}

impl Reader {
    /// Looks without printing anything: a pipe whose other end was closed says so.
    pub(crate) fn look() -> Self {
        let stdout = io::stdout();
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        let is_gone = poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready != 0)
            && watched.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP));
        if is_gone { Self::Gone } else { Self::There }
    }
}

fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}

fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn unless_gone(written: io::Result<()>) -> io::Result<Reader> {
    match written {
        Ok(()) => Ok(Reader::There),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(e) => Err(e),
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
