//! The prompt and the state of its session: returns the last rows of the terminal, and decides about Ctrl-C. Used by
//! [`super::session_view`].

use super::footer::{Footer, screen_size};
use super::prompt::past_prompts::PastPrompts;
use super::prompt::{Prompt, Wish};
use super::status::Status;
use crate::output::DIM;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time in which a second Ctrl-C leaves.
const TWICE: Duration = Duration::from_secs(2);

/// Shown until the answer begins.
pub(super) const THINKING: &str = "Thinking...";

/// Effect of Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CtrlC {
    Leave,
    Abort,
    /// The text was discarded.
    Discarded,
    /// There is nothing to stop.
    Nothing,
}

/// The prompt and the state of the session.
#[derive(Debug)]
pub(super) struct Speaker {
    pub(super) prompt: Prompt,
    pub(super) status: Status,
    /// When Ctrl-C was pressed, unless another key followed.
    pub(super) interrupted: Option<Instant>,
    /// Number of commands of the prompt that run.
    pub(super) running: usize,
}

impl Speaker {
    /// Takes over the keyboard.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(super) fn begin(past: PastPrompts, directory: PathBuf) -> io::Result<Self> {
        let prompt = Prompt::begin(past, directory)?;
        Ok(Self { prompt, status: Status::default(), interrupted: None, running: 0 })
    }

    /// Returns the last rows of the terminal. `waiting`: prompts that are sent when the turn has ended.
    pub(super) fn footer(&self, is_thinking: bool, waiting: &[String], now: Instant) -> Footer {
        let (columns, rows) = screen_size();
        let mut footer = self.prompt.rows(columns, rows);

        let mut above = Vec::new();
        if is_thinking && !self.prompt.has_question() {
            above.push(format!("{DIM}{THINKING}{DIM:#}"));
        }

        above.extend(self.status.queued(waiting, columns));
        footer.prepend(above);

        let state = self.status.row(columns, now);
        if !state.is_empty() {
            footer.rows.push(state);
        }
        footer
    }

    /// Decides about Ctrl-C.
    pub(super) fn ctrl_c(&mut self, is_busy: bool, now: Instant) -> CtrlC {
        let is_second = self.interrupted.is_some_and(|at| now < at + TWICE);
        self.interrupted = Some(now);

        match (is_second, is_busy || 0 < self.running) {
            (true, _) => CtrlC::Leave,
            (false, true) => CtrlC::Abort,
            (false, false) if self.prompt.discard() => CtrlC::Discarded,
            (false, false) => CtrlC::Nothing,
        }
    }
}

/// Waits for a wish of the user. `None` without a prompt. Cancel-safe.
pub(super) async fn wished(speaker: &mut Option<Speaker>) -> Option<io::Result<Wish>> {
    Some(speaker.as_mut()?.prompt.next().await)
}
