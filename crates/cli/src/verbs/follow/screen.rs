//! What a verb that follows a session prints: pieces of its stream, and on a terminal a last line where a person
//! types. Used by [`super::live`].

use crate::display;
use crate::output::{DIM, Output, Reader};
use crate::render::Renderer;
use quackd_client::Event;
use serde_json::Value;
use std::io;

/// Longest remark, in characters.
const MAX_REMARK: usize = 300;

/// The output of one verb.
#[derive(Debug)]
pub(super) struct Screen {
    output: Output,
    renderer: Renderer,
    /// What is to be printed with the next flush.
    piece: String,
    /// The last line, which is taken away before anything else is printed.
    footer: &'static str,
    /// The one that stands there.
    shown: &'static str,
    reader: Reader,
}

impl Screen {
    pub(super) fn new(output: Output, renderer: Renderer) -> Self {
        Self {
            output,
            renderer,
            piece: String::new(),
            footer: "",
            shown: "",
            reader: Reader::There,
        }
    }

    pub(super) fn is_json(&self) -> bool {
        self.output.is_json()
    }

    /// Bytes that wait to be printed.
    pub(super) fn len(&self) -> usize {
        self.piece.len()
    }

    /// An event as the daemon sent it.
    pub(super) fn line(&mut self, event: &Event) -> serde_json::Result<()> {
        self.piece.push_str(&serde_json::to_string(event)?);
        self.piece.push('\n');
        Ok(())
    }

    /// An event for a person.
    pub(super) fn event(&mut self, name: &str, data: &Value) {
        let text = self.renderer.render(name, data);
        self.piece.push_str(&text);
    }

    /// An entry of the app's history.
    pub(super) fn history(&mut self, entry: &Value) {
        let text = self.renderer.history(entry);
        self.piece.push_str(&text);
    }

    /// A question of Pi's.
    pub(super) fn question(&mut self, lines: &[String]) {
        let text = self.renderer.question(lines);
        self.piece.push_str(&text);
    }

    /// What the person has typed for Pi, which comes back as an event.
    pub(super) fn typed(&mut self, text: &str) {
        self.renderer.typed(text);
    }

    /// Something that went wrong at our end.
    pub(super) fn failure(&mut self, text: &str) {
        let text = self.renderer.failure(text);
        self.piece.push_str(&text);
    }

    /// Something about the stream: in it to a person, beside it to a script.
    pub(super) fn remark(&mut self, text: &str) {
        if self.is_json() {
            self.output.warning(text);
        } else {
            let text = self.renderer.remark(&format!("-- {} --", display::cut(text, MAX_REMARK)));
            self.piece.push_str(&text);
        }
    }

    /// Something that a person, or a script on stderr, has to know besides the stream.
    pub(super) fn warn(&mut self, text: &str) {
        if self.is_json() || !self.output.audience().is_terminal {
            self.output.warning(text);
        } else {
            self.remark(text);
        }
    }

    /// Events are missing: what was under way is not known any more.
    pub(super) fn forget(&mut self) {
        self.renderer.forget();
    }

    /// The last line from now on; it is shown when no other line is open.
    pub(super) fn set_footer(&mut self, footer: &'static str) {
        self.footer = footer;
    }

    /// A person has ended the last line by typing Return.
    pub(super) fn footer_ended(&mut self) {
        self.shown = "";
    }

    /// Prints what waits. `Gone`: nobody reads any more, and nothing is printed from then on.
    pub(super) async fn flush(&mut self) -> io::Result<Reader> {
        let footer = if self.renderer.is_open() { "" } else { self.footer };
        if self.reader == Reader::There && !(self.piece.is_empty() && footer == self.shown) {
            let mut text = self.erasing();
            // Taken first: who gives up waiting for a reader prints it no second time.
            text.push_str(&std::mem::take(&mut self.piece));
            if !footer.is_empty() {
                text.push_str(&format!("{DIM}{footer}{DIM:#}"));
            }
            self.shown = footer;
            self.reader = self.output.piece(text).await?;
        }
        self.piece.clear();
        Ok(self.reader)
    }

    /// Ends what is open, and prints it.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        let text = self.renderer.close();
        self.piece.push_str(&text);
        self.set_footer("");
        self.flush().await.map(|_reader| ())
    }

    /// Looks whether the output still has a reader, when there is nothing to print.
    pub(super) fn look(&mut self) -> Reader {
        if self.reader == Reader::There {
            self.reader = Reader::look();
        }
        self.reader
    }

    /// What takes the last line away, and what was typed into it so far: that is not lost, but not seen.
    fn erasing(&self) -> String {
        match (self.shown, self.output.audience().is_colored) {
            ("", _) => String::new(),
            (_, true) => "\r\u{1b}[K".to_owned(),
            // Nothing but spaces goes through where sequences are left out.
            (shown, false) => format!("\r{}\r", " ".repeat(shown.chars().count())),
        }
    }
}
