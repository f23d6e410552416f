//! What was printed, as far as the next text depends on it: the line that is still open and whose it is.
//! Used by the parts of the renderer.

use anstyle::Style;
use std::fmt::{Display, Write};

/// Who writes lines piece by piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// The model's answer.
    Answer,
    /// The model's thinking.
    Thinking,
    /// The output of a call.
    Call(u64),
    /// What the app's voice says.
    Voice,
}

/// Text that goes to the terminal.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
    /// Whose the line is that has no end yet.
    open: Option<Flow>,
}

impl Page {
    /// A whole line. Closes what is open.
    pub(super) fn line(&mut self, line: impl Display) {
        self.close();
        // Writing to a String cannot fail.
        let _never = writeln!(self.text, "{line}");
    }

    /// The next piece of `flow`, which is clean. Each of its lines begins with `prefix`; a line of
    /// another flow that is open ends first.
    pub(super) fn flow(&mut self, flow: Flow, prefix: &str, style: Style, text: &str) {
        if self.open.is_some_and(|open| open != flow) {
            self.close();
        }
        for piece in text.split_inclusive('\n') {
            let line = piece.strip_suffix('\n').unwrap_or(piece);
            if !line.is_empty() {
                if self.open.is_none() {
                    self.text.push_str(prefix);
                }
                let _never = write!(self.text, "{style}{line}{style:#}");
                self.open = Some(flow);
            }
            if piece.len() != line.len() {
                self.text.push('\n');
                self.open = None;
            }
        }
    }

    /// Ends the line that is open.
    pub(super) fn close(&mut self) {
        if self.open.take().is_some() {
            self.text.push('\n');
        }
    }

    /// Whether a line has no end yet.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// What came since the last time.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_interrupted_ends_and_goes_on_as_a_new_one() {
        let mut page = Page::default();
        let plain = Style::new();
        page.flow(Flow::Call(1), "  ", plain, "one\n\ntw");
        page.flow(Flow::Call(1), "  ", plain, "o\nthr");
        page.line("[tool] bash");
        page.flow(Flow::Call(1), "> ", plain, "ee");
        page.flow(Flow::Call(2), "< ", plain, "x\ny");
        page.close();
        page.close();
        assert_eq!(page.take(), "  one\n\n  two\n  thr\n[tool] bash\n> ee\n< x\n< y\n");
        assert_eq!(page.take(), "");
    }
}
