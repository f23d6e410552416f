//! Output of a followed session: pieces of the stream, and on a terminal a last line for input. Used by
//! [`super::session_view`].

use crate::display;
use crate::output::{CliOutput, DIM, StdoutState};
use crate::render::Renderer;
use crate::terminal;
use quackd_client::Event;
use serde_json::Value;
use std::io;

/// Maximum length of a remark, in characters.
const MAX_REMARK: usize = 300;

/// Most bytes that wait for the end of a question.
const MAX_HELD: usize = 1024 * 1024;

/// Output of one subcommand.
#[derive(Debug)]
pub(super) struct Screen {
    output: CliOutput,
    renderer: Renderer,
    /// Text to print with the next flush.
    piece: String,
    /// Requested last line, which is erased before other text is printed.
    footer: &'static str,
    /// Last line that is currently displayed.
    shown: &'static str,
    reader: StdoutState,
    /// Whether a question is on the terminal, so that everything else waits.
    is_held: bool,
    /// Number of lines that were too much while it was.
    omitted: usize,
}

impl Screen {
    pub(super) fn new(output: CliOutput, renderer: Renderer) -> Self {
        Self {
            output,
            renderer,
            piece: String::new(),
            footer: "",
            shown: "",
            reader: StdoutState::There,
            is_held: false,
            omitted: 0,
        }
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

    pub(super) fn is_json(&self) -> bool {
        self.output.is_json()
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
        let text = self.renderer.render(name, data);
        self.push(&text);
    }

    /// Adds an entry of the app's history.
    pub(super) fn history(&mut self, entry: &Value) {
        let text = self.renderer.history(entry);
        self.push(&text);
    }

    /// Records a prompt typed by the user, which the daemon sends back as an event.
    pub(super) fn typed(&mut self, text: &str) {
        self.renderer.typed(text);
    }

    /// Adds a failure of the client.
    pub(super) fn failure(&mut self, text: &str) {
        let text = self.renderer.failure(text);
        self.push(&text);
    }

    /// Adds a remark about the stream: in the stream for users, on stderr for scripts.
    pub(super) fn remark(&mut self, text: &str) {
        if self.is_json() {
            self.output.warning(text);
        } else {
            let text = self.renderer.remark(&format!("-- {} --", display::cut(text, MAX_REMARK)));
            self.push(&text);
        }
    }

    /// Adds a remark, and prints it as a warning to stderr where it is not part of the stream.
    pub(super) fn warn(&mut self, text: &str) {
        if self.is_json() || !self.output.audience().is_terminal {
            self.output.warning(text);
        } else {
            self.remark(text);
        }
    }

    /// Resets the renderer after lost events.
    pub(super) fn forget(&mut self) {
        self.renderer.forget();
    }

    /// Sets the last line. It is displayed when no other line is open.
    pub(super) fn set_footer(&mut self, footer: &'static str) {
        self.footer = footer;
    }

    /// Records that the user ended the last line with Return.
    pub(super) fn footer_ended(&mut self) {
        self.shown = "";
    }

    /// Prints the pending text. `Gone`: the reader closed the output, and nothing is printed from then on.
    pub(super) async fn flush(&mut self) -> io::Result<StdoutState> {
        if self.is_held {
            return Ok(self.reader);
        }
        let footer = if self.renderer.is_open() { "" } else { self.footer };
        if self.reader == StdoutState::There && !(self.piece.is_empty() && footer == self.shown) {
            let turn = terminal::turn().await;
            let mut text = self.erasing();
            // Take the text first, so that a canceled flush does not print it twice.
            text.push_str(&std::mem::take(&mut self.piece));
            if !footer.is_empty() {
                text.push_str(&format!("{DIM}{footer}{DIM:#}"));
            }
            self.shown = footer;
            self.reader = self.output.piece_in_turn(text, turn).await?;
        }
        self.piece.clear();
        Ok(self.reader)
    }

    /// Closes the open line and prints the pending text.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        self.hold(false);
        let text = self.renderer.close();
        self.piece.push_str(&text);
        self.set_footer("");
        self.flush().await.map(|_reader| ())
    }

    /// Checks whether the output still has a reader, without printing.
    pub(super) fn look(&mut self) -> StdoutState {
        if self.reader == StdoutState::There {
            self.reader = StdoutState::look();
        }
        self.reader
    }

    /// Returns the text that erases the last line, including typed characters. Typed characters are not lost, only
    /// invisible.
    fn erasing(&self) -> String {
        match (self.shown, self.output.audience().is_colored) {
            ("", _) => String::new(),
            (_, true) => "\r\u{1b}[K".to_owned(),
            // Without escape sequences, spaces overwrite the line.
            (shown, false) => format!("\r{}\r", " ".repeat(shown.chars().count())),
        }
    }
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
