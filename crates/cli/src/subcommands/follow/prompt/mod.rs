//! The prompt of `quack` on a terminal: reads keys, edits the text, and asks questions in its place. Used by
//! [`super::session_view`], which prints the rows that [`Prompt::rows`] returns.
//!
//! An answer counts only if its keys were pressed after the question had been visible for [`SETTLE`]. Earlier keys belong
//! to the prompt, which stays as it is while a question is open.

mod completion;
mod editor;
pub(crate) mod past_prompts;

use self::completion::Completions;
use self::editor::{Edited, Editor};
use self::past_prompts::PastPrompts;
use super::asking::{Typed, question_rows, until};
use super::footer::{Footer, scrolled, wrapped};
use super::question_queue::{InputResult, QuestionQueue, SETTLE};
use super::stdin_lines::StdinLine;
use crate::keyboard::{CbreakGuard, Keys, TimedEvent};
use crate::output::{BOLD, DIM};
use crossterm::event::{
    DisableBracketedPaste, EnableBracketedPaste, Event, KeyCode, KeyboardEnhancementFlags,
    PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::execute;
use rustix::process::Signal;
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

/// Beginning of the first and of further rows of the text.
const MARK: &str = "> ";
const NEXT: &str = "  ";

/// Maximum number of completions that are shown.
const MAX_SHOWN: usize = 12;

/// The terminal delivers single keys, marks pastes, and tells Shift-Enter from Enter if it can. Undone on drop.
#[derive(Debug)]
struct Mode {
    _cbreak: CbreakGuard,
}

impl Mode {
    fn begin() -> io::Result<Self> {
        let cbreak = CbreakGuard::begin()?;
        // Terminals without these modes ignore them. The second flag names the key of the Latin layout too, without which
        // Ctrl-C would be another key on a Cyrillic keyboard.
        let keys = KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES
            | KeyboardEnhancementFlags::REPORT_ALTERNATE_KEYS;
        execute!(io::stdout(), EnableBracketedPaste, PushKeyboardEnhancementFlags(keys))?;
        Ok(Self { _cbreak: cbreak })
    }
}

impl Drop for Mode {
    fn drop(&mut self) {
        // A closed terminal needs no reset.
        execute!(io::stdout(), PopKeyboardEnhancementFlags, DisableBracketedPaste).ok();
    }
}

/// Action that the user asks for.
#[derive(Debug)]
pub(super) enum Wish {
    /// The rows have changed.
    Redraw,
    /// To send a prompt, run a command, or answer a question.
    Typed(Typed),
    /// To abort what is running: Esc.
    Abort,
    /// Ctrl-C.
    Interrupt,
    /// To suspend the program, as Ctrl-Z does.
    Suspend,
    /// To clear the screen, as Ctrl-L does.
    Clear,
}

/// The keyboard, the text and the questions.
#[derive(Debug)]
pub(super) struct Prompt {
    keys: Keys,
    mode: Option<Mode>,
    draft: Editor,
    answer: Editor,
    questions: QuestionQueue,
    /// When the current question was printed.
    shown_at: Option<Instant>,
    /// Return does not count before: it was meant for a question that has ended.
    quiet_until: Option<Instant>,
    /// Message about the last key.
    remark: Option<String>,
    completions: Vec<String>,
    /// Directory to which the paths of `@files` are relative.
    directory: PathBuf,
}

impl Prompt {
    /// Takes over the keyboard.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(super) fn begin(past: PastPrompts, directory: PathBuf) -> io::Result<Self> {
        let mode = Some(Mode::begin()?);
        let mut draft = Editor::new(past);
        Ok(Self {
            keys: Keys::default(),
            mode,
            remark: draft.take_problem(),
            draft,
            answer: Editor::new(PastPrompts::in_memory()),
            questions: QuestionQueue::new(false),
            shown_at: None,
            quiet_until: None,
            completions: Vec::new(),
            directory,
        })
    }

    /// Waits for the user. Cancel-safe.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(super) async fn next(&mut self) -> io::Result<Wish> {
        // The prompt of a question changes when answers begin to count.
        let settled = self.counts_from().filter(|at| Instant::now() < *at);
        tokio::select! {
            event = self.keys.next() => {
                let first = event?;
                Ok(self.events(first))
            }
            () = until(settled) => Ok(Wish::Redraw),
        }
    }

    /// Handles an event and those that were read with it, up to the first that the caller must know.
    fn events(&mut self, first: TimedEvent) -> Wish {
        let mut next = Some(first);
        while let Some(event) = next {
            let wish = self.event(event);
            if !matches!(wish, Wish::Redraw) {
                return wish;
            }
            next = self.keys.try_next();
        }
        // One redraw for all of them: a burst of keys must not print the rows for each.
        Wish::Redraw
    }

    fn event(&mut self, TimedEvent { event, at, has_more }: TimedEvent) -> Wish {
        if matches!(event, Event::Key(_) | Event::Paste(_)) {
            self.remark = None;
            self.completions.clear();
        }

        // Keys from before the question belong to the prompt.
        let is_answer = self.counts_from().is_some_and(|from| from <= at);
        let editor = if is_answer { &mut self.answer } else { &mut self.draft };

        let is_return = matches!(&event, Event::Key(key) if key.code == KeyCode::Enter);
        // Return was meant for a question that has just ended, or that is not readable yet.
        let has_question = self.questions.current().is_some();
        let is_late = self.quiet_until.is_some_and(|until| at < until);
        if is_return && !is_answer && (has_question || is_late) {
            return Wish::Redraw;
        }

        match editor.event(event, has_more) {
            Edited::Nothing => Wish::Redraw,
            Edited::Submit(text) if is_answer => self.answered(&StdinLine::Line(text)),
            Edited::Leave if is_answer => self.answered(&StdinLine::End),
            Edited::Submit(text) => {
                // The prompt is sent also if it could not be saved.
                self.remark = self.draft.take_problem();
                Wish::Typed(Typed::Line(StdinLine::Line(text)))
            }
            Edited::Leave => Wish::Typed(Typed::Line(StdinLine::End)),
            Edited::Abort => Wish::Abort,
            Edited::Interrupt => Wish::Interrupt,
            Edited::Suspend => Wish::Suspend,
            Edited::Clear => Wish::Clear,
            Edited::Complete => {
                if !is_answer {
                    self.complete();
                }
                Wish::Redraw
            }
            Edited::Refused(reason) => {
                self.remark = Some(reason);
                Wish::Redraw
            }
        }
    }

    fn complete(&mut self) {
        let (text, cursor) = self.draft.shown();
        let before = text.get(..cursor).unwrap_or_default();

        let completions = Completions::find_blocking(before, &self.directory);
        if let Some(common) = completions.common() {
            // A directory is followed by another name, everything else by a space.
            let is_whole = completions.words.len() == 1 && !common.ends_with('/');
            let new = format!("{common}{}", if is_whole { " " } else { "" });
            self.draft.complete(completions.old, &new);
        } else {
            self.completions = completions.words;
        }
    }

    fn answered(&mut self, line: &StdinLine) -> Wish {
        match self.questions.take(line) {
            InputResult::Answer(answer, record) => {
                self.next_question();
                Wish::Typed(Typed::Answer(answer, record))
            }
            InputResult::Again(hint) => {
                self.remark = Some(hint.to_owned());
                Wish::Redraw
            }
            InputResult::Confirm | InputResult::More | InputResult::Nothing => Wish::Redraw,
        }
    }

    /// When keys begin to count as the answer to the current question.
    fn counts_from(&self) -> Option<Instant> {
        let question = self.questions.current()?;
        let settles = question.is_about_permission() && question.chosen().is_none();
        self.shown_at.map(|at| if settles { at + SETTLE } else { at })
    }

    fn next_question(&mut self) {
        self.shown_at = None;
        self.answer.clear();
    }

    /// Records that the rows are on the terminal.
    pub(super) fn printed(&mut self) {
        if self.questions.current().is_some() && self.shown_at.is_none() {
            self.shown_at = Some(Instant::now());
        }
    }

    /// Adds a question. Returns false for an event that needs no answer.
    pub(super) fn opened(&mut self, data: &Value) -> bool {
        let Some(is_to_show) = self.questions.open(data) else { return false };
        if is_to_show {
            self.next_question();
        }
        true
    }

    /// Removes a question that has ended elsewhere. Returns the remark about it, unless it was answered here.
    pub(super) fn closed(&mut self, data: &Value) -> Option<&'static str> {
        let closed = self.questions.close(data)?;
        if closed.was_current {
            self.next_question();
            // Return for it may still arrive.
            self.quiet_until = Some(Instant::now() + SETTLE);
        }
        Some(closed.remark)
    }

    /// Removes all questions after a lost connection.
    pub(super) fn clear_questions(&mut self) {
        self.questions.clear();
        self.next_question();
    }

    /// Whether a question is open, so that nothing else may be printed.
    pub(super) fn has_question(&self) -> bool {
        self.questions.current().is_some()
    }

    /// Discards the text. Returns whether there was one.
    pub(super) fn discard(&mut self) -> bool {
        let had_text = !self.draft.shown().0.is_empty();
        self.draft.clear();
        had_text
    }

    /// Puts a text that was not sent before the others.
    pub(super) fn restore(&mut self, text: &str) {
        self.draft.prepend(text);
    }

    /// Waits until no thread reads the keyboard, and gives the terminal back to other programs.
    pub(super) async fn rest(&mut self) {
        self.keys.rest().await;
        self.mode = None;
    }

    /// Takes the keyboard over again.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        self.mode = Some(Mode::begin()?);
        Ok(())
    }

    /// Suspends the program and its process group, as Ctrl-Z does, until it is continued.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(super) async fn suspend(&mut self) -> io::Result<()> {
        self.rest().await;
        rustix::process::kill_current_process_group(Signal::STOP)?;
        self.resume()
    }

    /// Returns the rows of the open question, or of the text, for a terminal of this size. `rows`: how many there may
    /// be at most.
    pub(super) fn rows(&self, columns: usize, rows: usize) -> Footer {
        let mut footer = Footer::default();
        let half = (rows / 2).max(1);
        let small = columns.saturating_sub(1);

        if let Some(remark) = &self.remark {
            footer.rows.push(format!(
                "{DIM}-- {} --{DIM:#}",
                crate::display::cut(remark, small.saturating_sub(6))
            ));
        }

        let max_names = MAX_SHOWN.min(half);
        for name in self.completions.iter().take(max_names) {
            footer.rows.push(format!(
                "{DIM}  {}{DIM:#}",
                crate::display::cut(name, small.saturating_sub(2))
            ));
        }
        if max_names < self.completions.len() {
            let more = self.completions.len() - max_names;
            footer.rows.push(format!("{DIM}  … {more} more{DIM:#}"));
        }

        let question = self.questions.current();
        if let Some(question) = question {
            footer.rows.extend(question_rows(question, columns, Some(rows)));
        }
        let counts = self.counts_from().is_some_and(|from| from <= Instant::now());
        let (text, cursor, mark) = match question.filter(|_| counts) {
            Some(question) => {
                let (text, cursor) = self.answer.shown();
                (text.to_owned(), cursor, question.prompt())
            }
            // The prompt goes on until answers count.
            None => self.draft_row(),
        };

        // A long mark takes several rows, and the text begins in the last one.
        let (mut mark_rows, _) = wrapped(&mark, mark.len(), "", NEXT, columns);
        let mark = mark_rows.pop().unwrap_or_default();
        footer.rows.extend(mark_rows);

        let (text_rows, at) = wrapped(&text, cursor, &mark, NEXT, columns);
        let (mut text_rows, (row, column)) = scrolled(text_rows, at, half);
        // After scrolling, the mark may not be visible.
        if let Some(first) = text_rows.first_mut()
            && let Some(rest) = first.strip_prefix(mark.as_str())
        {
            *first = format!("{BOLD}{mark}{BOLD:#}{rest}");
        }

        footer.cursor = Some((footer.rows.len() + row, column));
        footer.rows.extend(text_rows);
        footer
    }

    /// Returns the text of the prompt, the cursor in it and the mark before it.
    fn draft_row(&self) -> (String, usize, String) {
        let (text, cursor) = self.draft.shown();
        match self.draft.search() {
            Some((term, text)) => {
                let row =
                    text.map_or("nothing found", |text| text.lines().next().unwrap_or_default());
                (row.to_owned(), 0, format!("(search) {term}: "))
            }
            None => (text.to_owned(), cursor, MARK.to_owned()),
        }
    }
}
