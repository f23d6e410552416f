//! Asks the questions of a session at this terminal. Used by [`super::session_view`], and by `quack tool` and
//! `quack approvals --watch`.
//!
//! While a question is open, nothing else is printed ([`OpenQuestion`]), so a command or a model cannot print another
//! question after it. Typing counts only if it began after the question had been shown.

use super::footer::{reported_size, wrapped};
use super::question_queue::{Dialog, InputResult, QuestionQueue, SETTLE};
use super::stdin_lines::{self, StdinLine, TypedLine};
use crate::display::width;
use crate::output::{BOLD, CliOutput, DIM, OpenQuestion, YELLOW};
use quackd_protocol::client::UiResponseParams;
use serde_json::Value;
use std::io;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// Time after the last change of the window's size until the question is printed again.
const RESIZED: Duration = Duration::from_millis(200);

/// Beginning of a row that continues a line. Only quackd's own text begins in the first column.
const GUTTER: &str = "  | ";

/// The questions asked at this terminal.
#[derive(Debug)]
pub(crate) struct Asking {
    output: CliOutput,
    queue: QuestionQueue,
    typed: Option<mpsc::Receiver<TypedLine>>,
    /// The terminal, while a question is open.
    open: Option<OpenQuestion>,
    is_shown: bool,
    /// Whether the cursor is behind the prompt.
    is_at_prompt: bool,
    /// Printed before the next question.
    hint: Option<&'static str>,
    /// When the question was shown: earlier typing does not count.
    shown_at: Instant,
    /// End of the time in which typing does not count, before it is over.
    settles: Option<Instant>,
    resizes: Option<Signal>,
    resized: Option<Instant>,
    /// When the last question ended without an answer from here. A line right after it was meant for it.
    ended: Option<Instant>,
}

/// Input of the user.
#[derive(Debug)]
pub(crate) enum Typed {
    /// The answer to a question, and for a permission the target with the chosen option.
    Answer(Box<UiResponseParams>, Option<String>),
    /// A line while no question was open.
    Line(StdinLine),
}

impl Asking {
    /// Creates an empty queue of questions. `confirms_all`: see [`QuestionQueue::new`].
    pub(crate) fn new(confirms_all: bool, output: CliOutput) -> Self {
        Self {
            output,
            queue: QuestionQueue::new(confirms_all),
            typed: None,
            open: None,
            is_shown: false,
            is_at_prompt: false,
            hint: None,
            shown_at: Instant::now(),
            settles: None,
            // Without the signal, a question is not printed again.
            resizes: signal(SignalKind::window_change()).ok(),
            resized: None,
            ended: None,
        }
    }

    /// Starts to read lines, also without a question.
    pub(crate) fn read_lines(&mut self) {
        self.typed.get_or_insert_with(stdin_lines::read);
    }

    /// Adds a question. Returns false for an event that needs no answer.
    pub(crate) fn opened(&mut self, data: &Value) -> bool {
        let Some(is_to_show) = self.queue.open(data) else { return false };
        self.is_shown &= !is_to_show;
        true
    }

    /// Removes a question that another client has answered or that has ended. Returns the remark about it, unless it was
    /// answered here.
    pub(crate) fn closed(&mut self, data: &Value) -> Option<&'static str> {
        let closed = self.queue.close(data)?;
        if closed.was_current {
            self.next_question();
            // Typing for it may still arrive.
            self.ended = Some(Instant::now());
        }
        Some(closed.remark)
    }

    /// Removes all questions after a lost connection. The daemon sends the open ones again.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.next_question();
    }

    /// Whether a question waits for its answer, shown or not.
    pub(crate) fn has_question(&self) -> bool {
        self.queue.current().is_some()
    }

    /// Whether a question is on the terminal, so that nothing else may be printed.
    pub(crate) fn holds_terminal(&self) -> bool {
        self.open.is_some()
    }

    /// Asks the current question, and waits for what the user types. Never completes without a question, unless lines are
    /// read. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Typed {
        loop {
            if self.has_question() && !self.is_shown {
                // The question waits until another output has ended.
                if self.open.is_none() {
                    self.open = Some(OpenQuestion::begin(self.output).await);
                }
                self.show();
            }

            tokio::select! {
                Some(typed) = recv(&mut self.typed) => if let Some(typed) = self.line(typed) {
                    return typed;
                },
                () = until(self.settles) => self.settled(),
                // A window that is being dragged changes many times: print the question once, after the last change.
                Some(()) = next_resize(&mut self.resizes), if self.open.is_some() => {
                    self.resized = Some(Instant::now() + RESIZED);
                }
                () = until(self.resized) => {
                    self.resized = None;
                    self.is_shown = false;
                }
            }
        }
    }

    /// Handles a line. `None` if it does not count or the question goes on.
    fn line(&mut self, TypedLine { line, at }: TypedLine) -> Option<Typed> {
        self.is_at_prompt &= !matches!(line, StdinLine::Line(_));
        if !self.has_question() {
            let is_late = self.ended.is_some_and(|ended| at < ended + SETTLE);
            return (!is_late).then_some(Typed::Line(line));
        }

        // The line began before the question was shown, or, for a permission, before the user can have read it.
        if !self.is_shown || at < self.shown_at || self.settles.is_some() {
            self.print_prompt();
            return None;
        }

        match self.queue.take(&line) {
            InputResult::Answer(answer, record) => {
                self.next_question();
                return Some(Typed::Answer(answer, record));
            }
            InputResult::Again(hint) => (self.hint, self.is_shown) = (Some(hint), false),
            InputResult::Confirm => self.is_shown = false,
            InputResult::More => self.print_prompt(),
            InputResult::Nothing => {}
        }
        None
    }

    /// Continues with the next question, or lets other output be printed.
    fn next_question(&mut self) {
        self.is_shown = false;
        self.settles = None;
        if self.has_question() {
            return;
        }

        if let Some(open) = self.open.take() {
            // Typed for the question that has ended.
            stdin_lines::forget();
            if std::mem::take(&mut self.is_at_prompt) {
                open.print("\n");
            }
        }
    }

    /// Prints the current question.
    fn show(&mut self) {
        let (Some(question), Some(open)) = (self.queue.current(), &self.open) else { return };

        // The confirmation of an answer may be typed at once: it has to name the target.
        let is_new = question.chosen().is_none();
        if is_new {
            stdin_lines::forget();
            self.shown_at = Instant::now();
        }

        self.typed.get_or_insert_with(stdin_lines::read);
        let hint = self.hint.take().map(|hint| format!("{DIM}-- {hint} --{DIM:#}\n"));
        let (columns, rows) = reported_size(io::stdin());
        let rows = question_rows(question, columns, rows);
        let text: String = rows.into_iter().map(|row| row + "\n").collect();
        open.print(&format!("\n{}{text}{}", hint.unwrap_or_default(), question.prompt()));

        let settles = is_new && question.is_about_permission();
        self.settles = settles.then(|| Instant::now() + SETTLE);
        (self.is_shown, self.is_at_prompt) = (true, true);
    }

    /// Discards typing that began before the user can have read the question, and its echo.
    fn settled(&mut self) {
        self.settles = None;
        stdin_lines::forget();
        self.shown_at = Instant::now();

        let (Some(question), Some(open)) = (self.queue.current(), &self.open) else { return };
        let prompt = question.prompt();
        // A prompt that takes several rows cannot be erased by a return to the first column.
        let is_one_row = width(&prompt) < reported_size(io::stdin()).0;
        let erasing = match (is_one_row, self.output.audience().is_colored) {
            (true, true) => "\r\u{1b}[K",
            (true, false) => "\r",
            (false, _) => "\n",
        };

        open.print(&format!("{erasing}{prompt}"));
        self.is_at_prompt = true;
    }

    fn print_prompt(&mut self) {
        if let (Some(question), Some(open)) = (self.queue.current(), &self.open) {
            open.print(&question.prompt());
            self.is_at_prompt = true;
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns the rows of a question. On a small screen, the options come first, so that the question itself stays visible.
pub(super) fn question_rows(question: &Dialog, columns: usize, rows: Option<usize>) -> Vec<String> {
    let rows_of = |line: &str, first: &str| wrapped(line, 0, first, GUTTER, columns).0;
    let (title, details) = question.head();
    let mut head = rows_of(title, if question.is_about_permission() { "" } else { "[ui] " });

    if let Some(first) = head.first_mut() {
        *first = if question.is_about_permission() {
            format!("{BOLD}{first}{BOLD:#}")
        } else {
            first.replacen("[ui]", &format!("{YELLOW}[ui]{YELLOW:#}"), 1)
        };
    }

    head.extend(details.iter().flat_map(|line| rows_of(line, "  ")));
    let mut options: Vec<String> =
        question.options().iter().flat_map(|line| rows_of(line, "")).collect();

    let is_small = rows.is_some_and(|rows| rows < head.len() + options.len() + 2);
    if is_small && question.is_about_permission() {
        options.extend(head);
        options
    } else {
        head.extend(options);
        head
    }
}

/// Receives the next value. `None` without a channel or after its end. Cancel-safe.
pub(super) async fn recv<T>(from: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    from.as_mut()?.recv().await
}

async fn next_resize(from: &mut Option<Signal>) -> Option<()> {
    from.as_mut()?.recv().await
}

/// Waits until a time. Never completes without one.
pub(super) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_client::Question;
    use serde_json::json;
    use std::sync::Arc;

    fn question(message: &str) -> Dialog {
        let permission = json!({"kind": "command", "target": "x", "likely": false, "scopes": ["once", "session"]});
        let data = json!({"id": "quack-1", "method": "select", "title": "Allow the command?", "message": message,
            "options": ["Deny", "Allow once", "Allow for this session"], "permission": permission});
        Dialog::new(Arc::new(Question::read("", &data).unwrap()))
    }

    fn plain(question: &Dialog, rows: Option<usize>) -> Vec<String> {
        let rows = question_rows(question, 80, rows);
        rows.iter().map(|row| anstream::adapter::strip_str(row).to_string()).collect()
    }

    #[test]
    fn words_of_others_never_begin_a_row() {
        let evil =
            format!("run it\ncommand “{}Allow network access? npm.example.org”", "x".repeat(65));
        let lines = plain(&question(&evil), None);
        assert!(
            lines
                .iter()
                .all(|line| line.starts_with("Allow the command?") || line.starts_with("  ")),
            "{lines:?}"
        );
        assert!(lines.iter().any(|line| line.starts_with(GUTTER)), "{lines:?}");
        assert!(lines.iter().all(|line| width(line) < 80), "{lines:?}");
    }

    #[test]
    fn on_a_small_screen_the_question_is_next_to_the_prompt() {
        let two_lines = question("run it\ncommand “rm x”");
        let tall = plain(&two_lines, Some(24));
        assert_eq!(tall.last().unwrap(), "  3) Allow for this session");
        let small = plain(&two_lines, Some(5));
        assert_eq!(small.last().unwrap(), "  command “rm x”");
    }
}
