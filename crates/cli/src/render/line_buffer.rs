//! Buffers printed text and tracks the open line and its stream. Used by the parts of the renderer.

use anstyle::Style;
use std::fmt::{Display, Write};

/// Kind of a stream that is printed in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// The model's answer.
    Answer,
    /// The model's thinking.
    Thinking,
    /// Output of the call with this key.
    Call(u64),
    /// Speech of the app.
    Voice,
}

/// Text for the terminal.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    text: String,
    /// Stream whose line is open. `None` at the start of a line.
    open: Option<StreamKind>,
    /// Whether the open line is not taken before it ends.
    keeps_open: bool,
}

/// Maximum size of an open line that is kept, in bytes.
const MAX_OPEN: usize = 16 * 1024;

impl LineBuffer {
    /// Appends a complete line. Closes the open line first.
    pub(super) fn line(&mut self, line: impl Display) {
        self.close();
        // Writing to a String cannot fail.
        writeln!(self.text, "{line}").ok();
    }

    /// Appends a sanitized piece of the stream `flow`. Each of its lines begins with `prefix`. Ends the open line of
    /// another stream first.
    pub(super) fn flow(&mut self, flow: StreamKind, prefix: &str, style: Style, text: &str) {
        if self.open.is_some_and(|open| open != flow) {
            self.close();
        }

        for piece in text.split_inclusive('\n') {
            let line = piece.strip_suffix('\n').unwrap_or(piece);
            if !line.is_empty() {
                if self.open.is_none() {
                    self.text.push_str(prefix);
                }
                // Writing to a String cannot fail.
                write!(self.text, "{style}{line}{style:#}").ok();
                self.open = Some(flow);
            }

            if piece.len() != line.len() {
                self.text.push('\n');
                self.open = None;
            }
        }
    }

    /// Ends the open line.
    pub(super) fn close(&mut self) {
        if self.open.take().is_some() {
            self.text.push('\n');
        }
    }

    /// Whether the last printed line has no line end yet.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// From now on, [`LineBuffer::take`] returns complete lines.
    pub(super) fn keep_open(&mut self) {
        self.keeps_open = true;
    }

    /// Takes the text added since the last call.
    pub(super) fn take(&mut self) -> String {
        let end = self.text.rfind('\n').map_or(0, |at| at + 1);
        if self.keeps_open && self.text.len() - end <= MAX_OPEN {
            let open = self.text.split_off(end);
            return std::mem::replace(&mut self.text, open);
        }
        if self.keeps_open {
            self.close();
        }
        std::mem::take(&mut self.text)
    }

    /// Returns the open line that was not taken.
    pub(super) fn open_line(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_interrupted_ends_and_goes_on_as_a_new_one() {
        let mut page = LineBuffer::default();
        let plain = Style::new();
        page.flow(StreamKind::Call(1), "  ", plain, "one\n\ntw");
        page.flow(StreamKind::Call(1), "  ", plain, "o\nthr");
        page.line("[tool] bash");
        page.flow(StreamKind::Call(1), "> ", plain, "ee");
        page.flow(StreamKind::Call(2), "< ", plain, "x\ny");
        page.close();
        page.close();
        assert_eq!(page.take(), "  one\n\n  two\n  thr\n[tool] bash\n> ee\n< x\n< y\n");
        assert_eq!(page.take(), "");
    }
}
