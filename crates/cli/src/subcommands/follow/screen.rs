//! Output of a followed session: pieces of the stream, and on a terminal the last rows. Used by
//! [`super::session_view`].
//!
//! On a terminal that can move its cursor, an unfinished line of the output is one of the last rows, so that only
//! complete lines are printed for good.

use super::footer::{Footer, screen_size};
use crate::display;
use crate::output::{CliOutput, StdoutState};
use crate::render::Renderer;
use crate::terminal;
use quackd_client::Event;
use serde_json::Value;
use std::io;

/// Maximum length of a remark, in characters.
const MAX_REMARK: usize = 300;

/// Maximum size of the text that waits for the end of a question, in bytes.
const MAX_HELD: usize = 1024 * 1024;

/// Output of one subcommand.
#[derive(Debug)]
pub(super) struct Screen {
    output: CliOutput,
    renderer: Renderer,
    /// Text to print with the next flush.
    piece: String,
    /// Requested last rows, which are erased before other text is printed.
    footer: Footer,
    /// Last rows that are currently displayed.
    displayed: Footer,
    /// Whether the terminal can move its cursor.
    can_move: bool,
    /// Whether the last rows contain the question, so that they are printed while it is open.
    has_prompt: bool,
    /// Whether a question comes next, before which nothing may be open.
    expects_question: bool,
    reader: StdoutState,
    /// Whether a question is on the terminal, so that everything else waits.
    is_held: bool,
    /// Number of lines that were too much while it was.
    omitted: usize,
}

impl Screen {
    /// Creates an output without a prompt. On a terminal, the renderer gets its width.
    pub(super) fn new(output: CliOutput, mut renderer: Renderer) -> Self {
        let can_move = can_move(output);
        if can_move {
            renderer.set_columns(screen_size().0);
        }

        Self {
            output,
            renderer,
            piece: String::new(),
            footer: Footer::default(),
            displayed: Footer::default(),
            can_move,
            has_prompt: false,
            expects_question: false,
            reader: StdoutState::There,
            is_held: false,
            omitted: 0,
        }
    }

    /// From now on, the last rows contain a prompt, and questions in its place.
    pub(super) fn show_prompt(&mut self) {
        self.has_prompt = true;
    }

    /// Lets all text wait while a question is on the terminal.
    pub(super) fn hold(&mut self, is_held: bool) {
        if is_held && !self.is_held {
            // The question begins a line.
            self.piece.push_str(&self.renderer.close());
        }

        self.is_held = is_held;
        let omitted = if is_held { 0 } else { std::mem::take(&mut self.omitted) };
        if omitted != 0 {
            self.remark(&format!(
                "{omitted} lines are not shown: a question was open; quack history shows the conversation"
            ));
        }
    }

    fn push(&mut self, text: &str) {
        if self.is_held && MAX_HELD < self.piece.len() + text.len() {
            self.omitted += text.matches('\n').count().max(1);
        } else {
            self.piece.push_str(text);
        }
    }

    /// Returns the number of bytes to print.
    pub(super) fn len(&self) -> usize {
        self.piece.len()
    }

    /// Adds an event as sent by the daemon.
    pub(super) fn line(&mut self, event: &Event) -> serde_json::Result<()> {
        self.piece.push_str(&serde_json::to_string(event)?);
        self.piece.push('\n');
        Ok(())
    }

    /// Adds an event as text.
    pub(super) fn event(&mut self, name: &str, data: &Value) {
        // The size may have changed since the last event.
        if self.can_move {
            self.renderer.set_columns(screen_size().0);
        }
        let text = self.renderer.render(name, data);
        self.push(&text);
    }

    /// Adds an entry of the app's history.
    pub(super) fn history(&mut self, entry: &Value) {
        let text = self.renderer.history(entry);
        self.push(&text);
    }

    /// Records a prompt typed by the user, which the daemon sends back as an event. Prints it if the terminal does not.
    pub(super) fn typed(&mut self, text: &str) {
        self.renderer.typed(text);
        if self.has_prompt {
            let text = self.renderer.user(text);
            self.push(&text);
        }
    }

    /// Adds a failure of the client.
    pub(super) fn failure(&mut self, text: &str) {
        let text = self.renderer.failure(text);
        self.push(&text);
    }

    /// Adds a remark about the stream: in the stream for users, on stderr for scripts.
    pub(super) fn remark(&mut self, text: &str) {
        if self.output.is_json() {
            self.output.warning(text);
        } else {
            let text = self.renderer.remark(&format!("-- {} --", display::cut(text, MAX_REMARK)));
            self.push(&text);
        }
    }

    /// Adds a remark, and prints it as a warning to stderr where it is not part of the stream.
    pub(super) fn warn(&mut self, text: &str) {
        if self.output.is_json() || !self.output.audience().is_terminal {
            self.output.warning(text);
        } else {
            self.remark(text);
        }
    }

    /// Resets the renderer after lost events.
    pub(super) fn forget(&mut self) {
        self.renderer.forget();
    }

    /// Sets the last rows. On a terminal that cannot move its cursor, they are displayed when no line is open.
    pub(super) fn set_footer(&mut self, footer: Footer) {
        self.footer = footer;
    }

    /// Records that the terminal ended the last line, because it echoes Return.
    pub(super) fn footer_ended_by_terminal(&mut self) {
        if !self.has_prompt {
            self.displayed = Footer::default();
        }
    }

    /// Adds a line as it is.
    pub(super) fn plain(&mut self, text: &str) {
        let text = self.renderer.remark(text);
        self.push(&text);
    }

    /// Whether the output ends with an unfinished line.
    pub(super) fn has_open_line(&self) -> bool {
        self.renderer.is_open()
    }

    /// Ends the unfinished line, so that the next text begins a line.
    pub(super) fn end_line(&mut self) {
        let text = self.renderer.close();
        self.push(&text);
    }

    /// Ends the unfinished line and hides the running calls before a question that is printed below.
    pub(super) fn expect_question(&mut self, is_expected: bool) {
        self.expects_question = is_expected;
        if is_expected {
            self.end_line();
        }
    }

    /// Clears the terminal.
    pub(super) fn clear(&mut self) {
        self.displayed = Footer::default();
        self.piece.insert_str(0, "\u{1b}[H\u{1b}[2J");
    }

    /// Prints the pending text. `Gone`: the reader closed the output, and nothing is printed from then on.
    pub(super) async fn flush(&mut self) -> io::Result<StdoutState> {
        // The question is on the terminal already. Where there is a prompt, it is part of the last rows instead.
        if self.is_held && !self.has_prompt {
            return Ok(self.reader);
        }

        let footer = self.next_footer();
        let is_waiting = self.is_held || self.piece.is_empty();
        if self.reader == StdoutState::There && !(is_waiting && footer == self.displayed) {
            // Another output of this process may be running.
            let turn = terminal::turn().await;
            let mut text = self.erasing();
            // Take the text first, so that a canceled flush does not print it twice.
            if !self.is_held {
                text.push_str(&std::mem::take(&mut self.piece));
            }

            text.push_str(&footer.text());
            self.displayed = footer;
            self.reader = if self.can_move {
                self.output.screen_in_turn(text, turn).await?
            } else {
                self.output.piece_in_turn(text, turn).await?
            };
        }

        // Nothing is printed from now on, so the text must not grow.
        if self.reader == StdoutState::Gone {
            self.piece.clear();
        }
        Ok(self.reader)
    }

    /// Returns the last rows to display: the unfinished line and the footer, at most as many as the terminal has.
    fn next_footer(&self) -> Footer {
        if !self.can_move {
            return if self.renderer.is_open() { Footer::default() } else { self.footer.clone() };
        }

        let (columns, rows) = screen_size();
        let mut footer = self.footer.clone();
        if !self.is_held && !self.expects_question {
            // The unfinished line takes at most half of the terminal.
            let room = rows.saturating_sub(footer.rows.len() + 1).min(rows / 2).max(1);
            footer.prepend(self.renderer.open_rows(columns, room));
        }

        footer.fit(rows.saturating_sub(1).max(1));
        footer
    }

    /// Closes the open line and prints the pending text.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        self.hold(false);
        self.end_line();
        self.set_footer(Footer::default());
        self.flush().await.map(drop)
    }

    /// Checks whether the output still has a reader, without printing.
    pub(super) fn look(&mut self) -> StdoutState {
        if self.reader == StdoutState::There {
            self.reader = StdoutState::look();
        }
        self.reader
    }

    /// Returns the text that erases the last rows, including typed characters. Typed characters are not lost, only
    /// invisible.
    fn erasing(&self) -> String {
        if self.can_move {
            return self.displayed.erasing(screen_size().0);
        }

        match self.displayed.rows.last() {
            None => String::new(),
            // Without escape sequences, spaces overwrite the line.
            Some(row) => {
                let row = anstream::adapter::strip_str(row).to_string();
                format!("\r{}\r", " ".repeat(display::width(&row)))
            }
        }
    }
}

/// Whether stdout is a terminal that can move its cursor.
pub(crate) fn can_move(output: CliOutput) -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    output.audience().is_terminal && !output.is_json() && !is_dumb
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::OutputArgs;
    use crate::render::DisplayOptions;
    use serde_json::json;

    #[test]
    fn text_waits_while_a_question_is_open_and_what_is_too_much_is_counted() {
        let output = CliOutput::new(OutputArgs::default());
        let mut screen = Screen::new(output, Renderer::new(DisplayOptions::default()));
        let say = |text: &str| json!({"method": "notify", "message": text});
        screen.hold(true);
        screen.event("extension_ui_request", &say("first"));
        let line = say(&"x".repeat(300));
        while screen.omitted < 3 {
            screen.event("extension_ui_request", &line);
        }
        assert!(screen.len() <= MAX_HELD);
        screen.hold(false);
        let text = anstream::adapter::strip_str(&screen.piece).to_string();
        assert!(text.starts_with("[ui] first\n"), "{}", &text[..40]);
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("-- 3 lines are not shown: a question was open; quack history"),
            "{last}"
        );
    }
}
