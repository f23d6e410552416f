//! Prints the streamed output of a call: sanitized, or byte for byte.

use crate::output::{CliOutput, StdoutState};
use crate::sanitize::Sanitizer;
use quackd_protocol::output::OutputStream;
use quackd_tools::PlainText;

/// Printer of one call's output.
#[derive(Debug)]
pub(crate) struct Printer {
    is_raw: bool,
    /// Sanitizer for a terminal. `None` for other outputs.
    cleaner: Option<Sanitizer>,
    /// Text of both streams. A stream may pause inside of a character.
    stdout: PlainText,
    stderr: PlainText,
    /// Whether the last text did not end its line.
    is_inside_line: bool,
}

impl Printer {
    /// Creates a printer. `is_raw`: bytes keep their stream and are not changed.
    pub(crate) fn new(is_raw: bool, output: CliOutput) -> Self {
        Self {
            is_raw,
            cleaner: output.audience().is_terminal.then(Sanitizer::default),
            stdout: PlainText::default(),
            stderr: PlainText::default(),
            is_inside_line: false,
        }
    }

    /// Whether the text printed so far ends inside of a line.
    pub(crate) fn is_inside_line(&self) -> bool {
        self.is_inside_line
    }

    /// Prints output.
    pub(crate) async fn piece(
        &mut self,
        stream: OutputStream,
        bytes: Vec<u8>,
    ) -> anyhow::Result<StdoutState> {
        let is_stderr = stream == OutputStream::Stderr;
        if self.is_raw {
            return Ok(CliOutput::bytes(bytes, is_stderr).await?);
        }
        let text = if is_stderr { self.stderr.feed(&bytes) } else { self.stdout.feed(&bytes) };
        let text = self.sanitized(text);
        self.print(text).await
    }

    /// Prints the bytes of an incomplete character.
    pub(crate) async fn finish(&mut self) -> anyhow::Result<StdoutState> {
        let text = self.stdout.finish() + &self.stderr.finish();
        let mut text = self.sanitized(text);
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.finish(&mut text);
        }
        self.print(text).await
    }

    fn sanitized(&mut self, text: String) -> String {
        let Some(cleaner) = &mut self.cleaner else { return text };
        let mut clean = String::with_capacity(text.len());
        cleaner.feed(&text, &mut clean);
        clean
    }

    async fn print(&mut self, text: String) -> anyhow::Result<StdoutState> {
        if text.is_empty() {
            return Ok(StdoutState::There);
        }
        self.is_inside_line = !text.ends_with('\n');
        Ok(CliOutput::bytes(text.into_bytes(), false).await?)
    }
}
