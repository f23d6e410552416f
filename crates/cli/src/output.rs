//! Prints all output of `quack`. No other module prints. Used by `main` and every subcommand. While a question is open
//! ([`OpenQuestion`]), all other output waits ([`crate::terminal`]).
//!
//! A closed pipe (`quack ps | head -1`) is not an error: the remaining output is discarded and the exit code stays the
//! same. A subcommand that would print forever exits.

use crate::args::OutputArgs;
use crate::exit::CliError;
use crate::json::visible;
use crate::sanitize::clean;
use crate::terminal::{self, Turn};
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use quackd_protocol::plain::without_numbers;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum length of an answer to a question, in bytes.
const MAX_ANSWER: u64 = 256;

/// Whether [`CliOutput::document`] was called: `--json` prints one document.
static HAS_DOCUMENT: AtomicBool = AtomicBool::new(false);

/// Style of names and headings.
pub(crate) const BOLD: Style = Style::new().bold();
/// Secondary text.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Kinds and types.
pub(crate) const CYAN: Style = AnsiColor::Cyan.on_default();
/// Style of warnings.
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
/// Style of success.
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
/// Style of failures.
pub(crate) const RED: Style = AnsiColor::Red.on_default();

/// Output format and color.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CliOutput {
    json: bool,
    color: ColorChoice,
}

impl CliOutput {
    pub(crate) fn new(args: OutputArgs) -> Self {
        let color = match args.color {
            clap::ColorChoice::Auto => ColorChoice::Auto,
            clap::ColorChoice::Always => ColorChoice::Always,
            clap::ColorChoice::Never => ColorChoice::Never,
        };
        Self { json: args.json, color }
    }

    /// Returns the output of a subcommand whose only output is one document.
    pub(crate) fn silent(self) -> Self {
        Self { json: true, ..self }
    }

    /// Whether `--json` was given.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Prints trusted text. Drops its styles if color is off.
    pub(crate) fn text(self, text: &str) -> io::Result<()> {
        if terminal::keeps(false, text) {
            return Ok(());
        }
        unless_closed(self.write_styled(text))
    }

    /// Prints the document with `--json`, and the text without.
    pub(crate) fn show<T: Serialize>(
        self,
        document: &T,
        text: impl FnOnce() -> String,
    ) -> io::Result<()> {
        if self.json { self.document(document) } else { self.text(&text()) }
    }

    /// Prints a tool's result, or text for a program, byte for byte. On a terminal, control characters are shown as
    /// symbols, so that file content cannot control it, and a missing final newline is added.
    pub(crate) fn answer(self, text: &str) -> io::Result<()> {
        self.answer_with(text, false)
    }

    /// Like [`CliOutput::answer`], for a text whose end is quackd's: its last line is always complete.
    pub(crate) fn answer_lines(self, text: &str) -> io::Result<()> {
        self.answer_with(text, true)
    }

    fn answer_with(self, text: &str, is_lines: bool) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        let is_terminal = stdout.is_terminal();
        let text = if is_terminal { Cow::from(clean(text)) } else { Cow::from(text) };
        let is_lines = is_terminal || is_lines;
        let last = if is_lines && !text.ends_with('\n') { "\n" } else { "" };

        // While a question is open, the text waits.
        if terminal::keeps(false, &format!("{text}{last}")) {
            return Ok(());
        }

        let written = stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.write_all(last.as_bytes()))
            .and_then(|()| stdout.flush());
        unless_closed(written)
    }

    /// Prints the JSON document.
    pub(crate) fn document<T: Serialize>(self, document: &T) -> io::Result<()> {
        HAS_DOCUMENT.store(true, Ordering::Relaxed);
        let text = serde_json::to_string_pretty(document)? + "\n";
        unless_closed(write_out(visible(&text).as_bytes()))
    }

    /// Prints a JSON document on one line, as the first of several.
    pub(crate) fn first_line<T: Serialize>(self, document: &T) -> io::Result<()> {
        let text = serde_json::to_string(document)? + "\n";
        unless_closed(write_out(visible(&text).as_bytes()))
    }

    /// Prints the error of a subcommand as one line of JSON, which may follow the lines of a stream. Does nothing if a
    /// document was printed, because that contains the error.
    pub(crate) fn refusal(error: &Value) {
        if HAS_DOCUMENT.load(Ordering::Relaxed) {
            return;
        }
        // A failed write needs no report: stderr has the reason too, and the exit code is the same.
        write_out(visible(&format!("{error}\n")).as_bytes()).ok();
    }

    /// Returns the properties of stdout, which decide the form of the output.
    pub(crate) fn audience(self) -> StdoutProperties {
        let is_colored = match self.color {
            ColorChoice::Auto => AutoStream::choice(&io::stdout()) != ColorChoice::Never,
            ColorChoice::Never => false,
            _ => true,
        };
        StdoutProperties { is_terminal: io::stdout().is_terminal(), is_colored }
    }

    /// Prints text that may contain file content and that the caller has sanitized for [`CliOutput::audience`]. With
    /// `--json` the text is lines of JSON. Writes on a separate thread. `Gone`: the reader closed the pipe.
    pub(crate) async fn raw(self, text: String) -> io::Result<StdoutState> {
        let turn = terminal::turn().await;
        let write = move || {
            let text = if self.json { visible(&text) } else { Cow::from(text.as_str()) };
            write_out(text.as_bytes()).map_err(of_stdout)
        };
        in_turn(turn, write).await
    }

    /// Prints bytes unchanged, to stderr or stdout. Writes on a separate thread. `Gone`: the reader closed the pipe.
    pub(crate) async fn bytes(bytes: Vec<u8>, to_stderr: bool) -> io::Result<StdoutState> {
        let turn = terminal::turn().await;
        let write = move || {
            if to_stderr {
                io::stderr().lock().write_all(&bytes)
            } else {
                write_out(&bytes).map_err(of_stdout)
            }
        };
        in_turn(turn, write).await
    }

    /// Prints a piece of a stream: trusted text, or lines of JSON. Writes on a separate thread, so that a blocked
    /// reader blocks nothing else. `Gone`: the reader closed the pipe.
    pub(crate) async fn piece(self, text: String) -> io::Result<StdoutState> {
        let turn = terminal::turn().await;
        self.piece_in_turn(text, turn).await
    }

    /// Like [`CliOutput::piece`], for a caller that has waited for its turn. The piece is printed even if this is
    /// canceled.
    pub(crate) async fn piece_in_turn(
        self,
        text: String,
        turn: Option<Turn>,
    ) -> io::Result<StdoutState> {
        let write = move || {
            let written = if self.json {
                write_out(visible(&text).as_bytes())
            } else {
                self.write_styled(&text)
            };
            written.map_err(of_stdout)
        };
        in_turn(turn, write).await
    }

    /// Like [`CliOutput::piece_in_turn`], for a text with movements of the cursor, which are printed also without color.
    pub(crate) async fn screen_in_turn(
        self,
        text: String,
        turn: Option<Turn>,
    ) -> io::Result<StdoutState> {
        let text = if self.audience().is_colored { text } else { without_styles(&text) };
        in_turn(turn, move || write_out(text.as_bytes()).map_err(of_stdout)).await
    }

    /// Writes text to stdout, without its styles if color is off.
    fn write_styled(self, text: &str) -> io::Result<()> {
        let mut stdout = AutoStream::new(io::stdout().lock(), self.color);
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
    }

    /// Prints a warning to stderr. The subcommand continues.
    pub(crate) fn warning(self, text: &str) {
        self.to_stderr(&format!("{YELLOW}warning:{YELLOW:#} {}\n", clean(&without_numbers(text))));
    }

    /// Whether stdin and stderr are terminals, so that the user can answer a question.
    pub(crate) fn can_ask() -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Checks that the user can be asked for a confirmation.
    ///
    /// # Errors
    /// A usage error without a terminal.
    pub(crate) fn require_terminal() -> Result<(), CliError> {
        if Self::can_ask() {
            Ok(())
        } else {
            Err(CliError::usage("cannot ask for confirmation without a terminal: use --yes"))
        }
    }

    /// Like [`CliOutput::ask_blocking`], on a separate thread, so that Ctrl-C still ends the subcommand.
    pub(crate) async fn ask(self, question: String) -> anyhow::Result<bool> {
        Ok(tokio::task::spawn_blocking(move || self.ask_blocking(&question)).await??)
    }

    /// Asks the user a question and waits for the answer without a timeout, on a separate thread. Returns the answer in
    /// lower case.
    pub(crate) async fn ask_word(self, question: String) -> anyhow::Result<String> {
        let line =
            tokio::task::spawn_blocking(move || self.read_line_blocking(&question)).await??;
        Ok(line.trim().to_lowercase())
    }

    /// Asks the user a yes-or-no question and waits for the answer without a timeout.
    pub(crate) fn ask_blocking(self, question: &str) -> io::Result<bool> {
        let answer = self.read_line_blocking(&format!("{question} [y/N] "))?;
        Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
    }

    /// Prints a prompt and waits for a line of at most 256 bytes, without a timeout.
    pub(crate) fn read_line_blocking(self, prompt: &str) -> io::Result<String> {
        self.to_stderr(prompt);
        let mut line = String::new();
        io::stdin().lock().take(MAX_ANSWER).read_line(&mut line)?;
        Ok(line)
    }

    /// Prints a note to stderr if that is a terminal and `--json` is off.
    pub(crate) fn note(self, text: &str) {
        if !self.json && io::stderr().is_terminal() {
            self.to_stderr(&format!("{DIM}{}{DIM:#}\n", clean(text)));
        }
    }

    /// Prints the error of a subcommand to stderr. Sanitizes the text, which may come from the daemon, Pi or a file.
    pub(crate) fn failure(self, text: &str) {
        self.to_stderr(&format!("{RED}error:{RED:#} {}\n", clean(&without_numbers(text))));
    }

    /// Prints to stderr unchanged, except for styles. For texts that users of another program know.
    pub(crate) fn to_stderr(self, text: &str) {
        if !terminal::keeps(true, text) {
            self.to_stderr_now(text);
        }
    }

    fn to_stderr_now(self, text: &str) {
        // A failed write to stderr cannot be reported.
        AutoStream::new(io::stderr().lock(), self.color).write_all(text.as_bytes()).ok();
    }
}

/// The terminal while a question is open. Until this is dropped, nothing else is printed.
#[derive(Debug)]
pub(crate) struct OpenQuestion {
    output: CliOutput,
    turn: Option<Turn>,
}

impl OpenQuestion {
    /// Waits for writes that are running, and stops all others. Cancel-safe.
    pub(crate) async fn begin(output: CliOutput) -> Self {
        let turn = terminal::turn().await;
        terminal::hold();
        Self { output, turn }
    }

    /// Prints a text of the question, with styles: to stderr, or to stdout if stderr is no terminal.
    pub(crate) fn print(&self, text: &str) {
        if io::stderr().is_terminal() {
            return self.output.to_stderr_now(text);
        }
        // Without a terminal the question is answered elsewhere.
        self.output.write_styled(text).ok();
    }

    /// Prints bytes of a filtered screen to stdout, while a screen in place of a question has the terminal. Writes on a
    /// separate thread. `Gone`: the reader closed the pipe.
    pub(crate) async fn screen(&self, bytes: Vec<u8>) -> io::Result<StdoutState> {
        in_turn(None, move || write_out(&bytes).map_err(of_stdout)).await
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        let Self { output, turn } = self;
        let held = terminal::release();
        // Released first: the lines below take their own turn.
        drop(turn.take());

        for (to_stderr, text) in held.texts {
            if to_stderr {
                output.to_stderr_now(&text);
            } else {
                // A closed pipe has no reader that misses it.
                output.text(&text).ok();
            }
        }

        let lines = held.omitted;
        if lines != 0 {
            output.warning(&format!("{lines} lines are not shown: a question was open"));
        }
    }
}

/// Properties of stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StdoutProperties {
    /// Whether stdout is a terminal, which needs sanitized text.
    pub(crate) is_terminal: bool,
    /// Whether styles are printed. It depends on `--color`, the terminal and the environment.
    pub(crate) is_colored: bool,
}

/// State of the reader of stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StdoutState {
    There,
    Gone,
}

impl StdoutState {
    /// Checks for a closed pipe without printing anything.
    pub(crate) fn look() -> Self {
        let stdout = io::stdout();
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        let is_gone = poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready != 0)
            && watched.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP));
        if is_gone { Self::Gone } else { Self::There }
    }
}

/// Removes the escape sequences of styles and keeps the others.
fn without_styles(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;

    while let Some(at) = rest.find("\u{1b}[") {
        let (before, sequence) = rest.split_at(at);
        kept.push_str(before);

        let end =
            sequence.find(|c: char| c.is_ascii_alphabetic()).map_or(sequence.len(), |at| at + 1);
        let (sequence, after) = sequence.split_at(end);
        if !sequence.ends_with('m') {
            kept.push_str(sequence);
        }

        rest = after;
    }
    kept.push_str(rest);
    kept
}

fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}

/// Treats a closed pipe as success: its reader has what it wants.
pub(crate) fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(of_stdout),
    }
}

/// Writes on a separate thread, so that a blocked reader blocks nothing else. The write ends even if this is canceled, and
/// keeps its turn until then.
async fn in_turn(
    turn: Option<Turn>,
    write: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<StdoutState> {
    let written = tokio::task::spawn_blocking(move || {
        let _until_written = turn;
        write()
    });
    match written.await.map_err(io::Error::other)? {
        Ok(()) => Ok(StdoutState::There),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(StdoutState::Gone),
        Err(e) => Err(e),
    }
}

/// Names the stream in an error of the system. Without it, a full disk could be one of the workspace.
fn of_stdout(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to stdout: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_color_the_cursor_still_moves() {
        assert_eq!(
            without_styles("\u{1b}[1ma\u{1b}[0m\u{1b}[2A\r\u{1b}[Jb"),
            "a\u{1b}[2A\r\u{1b}[Jb"
        );
    }

    #[test]
    fn a_reader_that_went_away_is_no_error_and_a_full_disk_is_one() {
        assert!(unless_closed(Err(io::ErrorKind::BrokenPipe.into())).is_ok());
        assert!(unless_closed(Err(io::ErrorKind::StorageFull.into())).is_err());
    }
}
