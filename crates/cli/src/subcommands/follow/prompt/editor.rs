//! Edits the text of a prompt: takes events of the terminal, returns what the user wants. Used by [`super`].
//!
//! The library `reedline` edits the text and knows the keys of Emacs. This module adds what the library does only while
//! it owns the terminal, which other output needs too: history, search and pastes.

use super::past_prompts::PastPrompts;
use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use quackd_protocol::foreign_text::{is_unsafe, stripped_lines};
use reedline::{EditCommand, EditMode, Emacs, Reedline, ReedlineEvent, ReedlineRawEvent};
use std::fmt;

/// Maximum size of a prompt with its pastes, in bytes. A larger one does not fit into a request.
const MAX_PROMPT: usize = 1024 * 1024;

/// Limits of a paste that is shown as it is: its lines and its bytes. A larger one is shown as a mark.
const MAX_SHOWN_LINES: usize = 5;
const MAX_SHOWN_BYTES: usize = 800;

/// Action that the user asks for with an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Edited {
    /// Nothing, though the text or the cursor may have changed.
    Nothing,
    /// To send the text, which is now empty.
    Submit(String),
    /// To abort what is running: Esc.
    Abort,
    /// Ctrl-C.
    Interrupt,
    /// To leave: Ctrl-D without a text.
    Leave,
    /// To suspend the program: Ctrl-Z.
    Suspend,
    /// To clear the screen: Ctrl-L.
    Clear,
    /// To complete the word before the cursor: Tab.
    Complete,
    /// The text was not accepted, for this reason.
    Refused(String),
}

/// A running search in the history.
#[derive(Debug, Default)]
struct Search {
    term: String,
    /// Index of the matching prompt.
    at: Option<usize>,
}

/// Text and cursor.
pub(super) struct Editor {
    engine: Reedline,
    keys: Emacs,
    /// Letters that were typed and not inserted yet, because more events follow. The library takes long for each insertion.
    pending: String,
    /// Pasted texts with the marks that stand for them.
    pastes: Vec<(String, String)>,
    past: PastPrompts,
    /// Index of the shown prompt of the history, and the text that was typed before.
    past_entry: Option<(usize, String)>,
    search: Option<Search>,
}

impl fmt::Debug for Editor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may be secret.
        f.debug_struct("Editor").finish_non_exhaustive()
    }
}

impl Editor {
    /// Creates an empty text. `past`: the earlier prompts.
    pub(super) fn new(past: PastPrompts) -> Self {
        Self {
            engine: Reedline::create(),
            keys: Emacs::default(),
            pending: String::new(),
            pastes: Vec::new(),
            past,
            past_entry: None,
            search: None,
        }
    }

    /// Returns the text as it is shown, with marks for large pastes, and the byte offset of the cursor.
    pub(super) fn shown(&self) -> (&str, usize) {
        let text = self.engine.current_buffer_contents();
        (text, text.floor_char_boundary(self.engine.current_insertion_point()))
    }

    /// Returns the term of the running search and the found prompt.
    pub(super) fn search(&self) -> Option<(&str, Option<&str>)> {
        let search = self.search.as_ref()?;
        Some((&search.term, search.at.and_then(|at| self.past.get(at))))
    }

    /// Handles an event of the terminal. `has_more`: the terminal sent more at the same time, so that Return is part of
    /// a paste of a terminal that does not mark pastes.
    pub(super) fn event(&mut self, event: Event, has_more: bool) -> Edited {
        if self.search.is_some() {
            return self.search_event(event);
        }

        if let Some(letter) = letter(&event) {
            self.pending.push(letter);
            if has_more {
                return Edited::Nothing;
            }
        }

        // The letters that were collected are inserted at once: a fast paste needs one edit.
        let typed = std::mem::take(&mut self.pending);
        if let refused @ Edited::Refused(_) = self.insert(&typed) {
            return refused;
        }
        // The letter itself is part of the inserted text.
        if letter(&event).is_some() {
            return Edited::Nothing;
        }

        match &event {
            Event::Paste(text) => return self.paste(text),
            Event::Key(key) if key.kind == KeyEventKind::Release => return Edited::Nothing,
            Event::Key(key) => {
                let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
                let is_return = key.code == KeyCode::Enter && key.modifiers.is_empty();
                match key.code {
                    _ if is_return && has_more => return self.insert("\n"),
                    _ if is_return => return self.enter(),
                    KeyCode::Char('z') if has_control => return Edited::Suspend,
                    // The library would open the text in an external editor.
                    KeyCode::Char('o') if has_control => return Edited::Nothing,
                    KeyCode::Char('_' | '/' | '7') if has_control => {
                        self.run(&[EditCommand::Undo]);
                        return Edited::Nothing;
                    }
                    KeyCode::Char(c) if is_foreign(c) => {
                        return Edited::Refused(REFUSED.to_owned());
                    }
                    KeyCode::Tab => return Edited::Complete,
                    _ => {}
                }
            }
            _ => {}
        }

        let Ok(event) = ReedlineRawEvent::try_from(event) else { return Edited::Nothing };
        let event = self.keys.parse_event(event);
        self.apply(event).unwrap_or(Edited::Nothing)
    }

    /// Replaces `old` bytes before the cursor by a completion.
    pub(super) fn complete(&mut self, old: usize, new: &str) {
        let (_, cursor) = self.shown();
        let text = self.engine.current_buffer_contents();
        let begin = text.floor_char_boundary(cursor.saturating_sub(old));
        let count = text.get(begin..cursor).map_or(0, |word| word.chars().count());
        let mut commands = vec![EditCommand::Backspace; count];
        commands.push(EditCommand::InsertString(new.to_owned()));
        self.run(&commands);
    }

    /// Puts a text before the others.
    pub(super) fn prepend(&mut self, text: &str) {
        let rest = self.whole();
        let gap = if rest.is_empty() { "" } else { "\n" };
        self.show(&format!("{text}{gap}{rest}"));
    }

    /// Discards the text.
    pub(super) fn clear(&mut self) {
        self.run(&[EditCommand::Clear]);
        self.pastes.clear();
        self.pending.clear();
        self.past_entry = None;
    }

    /// Takes the reason why the history could not be saved.
    pub(super) fn take_problem(&mut self) -> Option<String> {
        self.past.take_problem()
    }

    fn run(&mut self, commands: &[EditCommand]) {
        self.engine.run_edit_commands(commands);
    }

    /// Runs an event of the library. `None`: it does not apply here.
    fn apply(&mut self, event: ReedlineEvent) -> Option<Edited> {
        match event {
            ReedlineEvent::Edit(commands) => self.run(&commands),
            ReedlineEvent::UntilFound(events) | ReedlineEvent::Multiple(events) => {
                return events.into_iter().find_map(|event| self.apply(event));
            }
            ReedlineEvent::Left => self.run(&[EditCommand::MoveLeft { select: false }]),
            ReedlineEvent::Right => self.run(&[EditCommand::MoveRight { select: false }]),
            ReedlineEvent::Up => self.step(Walk::Older),
            ReedlineEvent::Down => self.step(Walk::Newer),
            ReedlineEvent::PreviousHistory => self.walk(Walk::Older),
            ReedlineEvent::NextHistory => self.walk(Walk::Newer),
            ReedlineEvent::SearchHistory => self.search = Some(Search::default()),
            ReedlineEvent::ClearScreen => return Some(Edited::Clear),
            ReedlineEvent::Enter | ReedlineEvent::Submit => return Some(self.enter()),
            ReedlineEvent::Esc => return Some(Edited::Abort),
            ReedlineEvent::CtrlC => return Some(Edited::Interrupt),
            ReedlineEvent::CtrlD if self.shown().0.is_empty() => return Some(Edited::Leave),
            ReedlineEvent::CtrlD => self.run(&[EditCommand::Delete]),
            _ => return None,
        }
        Some(Edited::Nothing)
    }

    fn enter(&mut self) -> Edited {
        let (text, cursor) = self.shown();
        // A backslash at the end continues the prompt on the next line.
        if text.ends_with('\\') && cursor == text.len() {
            self.run(&[EditCommand::Backspace, EditCommand::InsertNewline]);
            return Edited::Nothing;
        }

        let kept = stripped_lines(text);
        if kept != *text {
            // The text without them is shown, so that the user sees what is sent.
            self.show(&kept);
            return Edited::Refused(LEFT_OUT.to_owned());
        }

        let text = self.whole().trim().to_owned();
        self.clear();
        if !text.is_empty() {
            self.past.add(&text);
        }
        Edited::Submit(text)
    }

    /// Returns the text with the pasted texts in place of their marks.
    fn whole(&self) -> String {
        let mut whole = self.shown().0.to_owned();
        for (mark, text) in &self.pastes {
            whole = whole.replacen(mark.as_str(), text, 1);
        }
        whole
    }

    fn paste(&mut self, text: &str) -> Edited {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let kept = stripped_lines(&text);
        let is_whole = kept == text;
        let kept = kept.trim_end_matches('\n');

        if MAX_PROMPT < self.whole().len() + kept.len() {
            return Edited::Refused(format!("a prompt has at most {MAX_PROMPT} bytes"));
        }

        self.insert_or_mark(kept);
        if is_whole { Edited::Nothing } else { Edited::Refused(LEFT_OUT.to_owned()) }
    }

    /// Inserts a text. A large one is kept, and its mark is inserted.
    fn insert_or_mark(&mut self, text: &str) {
        let lines = text.split('\n').count();
        if lines <= MAX_SHOWN_LINES && text.len() <= MAX_SHOWN_BYTES {
            self.run(&[EditCommand::InsertString(text.to_owned())]);
            return;
        }

        let label = match lines {
            1 => format!("{} characters pasted", grouped(text.chars().count())),
            lines => format!("{} lines pasted", grouped(lines)),
        };
        // A mark stands for one paste only.
        let before = self.shown().0.to_owned();
        let mark = (1..)
            .map(|n: usize| if n == 1 { format!("[{label}]") } else { format!("[{label} #{n}]") })
            .find(|mark| !before.contains(mark.as_str()));

        if let Some(mark) = mark {
            // A mark that the user has deleted may be used again.
            self.pastes.retain(|(known, _)| before.contains(known.as_str()));
            self.run(&[EditCommand::InsertString(mark.clone())]);
            self.pastes.push((mark, text.to_owned()));
        }
    }

    fn insert(&mut self, text: &str) -> Edited {
        if text.is_empty() {
            return Edited::Nothing;
        }
        if MAX_PROMPT < self.shown().0.len() + text.len() {
            return Edited::Refused(format!("a prompt has at most {MAX_PROMPT} bytes"));
        }
        self.run(&[EditCommand::InsertString(text.to_owned())]);
        Edited::Nothing
    }

    /// Moves by a line, or from the first or last one to another prompt.
    fn step(&mut self, to: Walk) {
        let (text, cursor) = self.shown();
        let (before, after) = text.split_at_checked(cursor).unwrap_or((text, ""));
        match to {
            Walk::Older if before.contains('\n') => {
                self.run(&[EditCommand::MoveLineUp { select: false }]);
            }
            Walk::Newer if after.contains('\n') => {
                self.run(&[EditCommand::MoveLineDown { select: false }]);
            }
            Walk::Older | Walk::Newer => self.walk(to),
        }
    }

    /// Shows an older or newer prompt. After the newest comes what was typed before.
    fn walk(&mut self, to: Walk) {
        let at = self.past_entry.as_ref().map(|(at, _)| *at);
        let next = match (to, at) {
            (Walk::Older, None) => self.past.len().checked_sub(1),
            (Walk::Older, Some(at)) => at.checked_sub(1),
            (Walk::Newer, Some(at)) if at + 1 < self.past.len() => Some(at + 1),
            (Walk::Newer, Some(_)) => {
                if let Some((_, typed)) = self.past_entry.take() {
                    self.show(&typed);
                }
                return;
            }
            (Walk::Newer, None) => None,
        };

        // At the oldest prompt, the text stays.
        let Some(next) = next else { return };
        let Some(text) = self.past.get(next).map(str::to_owned) else { return };
        let typed = match self.past_entry.take() {
            Some((_, typed)) => typed,
            None => self.whole(),
        };

        self.show(&text);
        self.past_entry = Some((next, typed));
    }

    /// Replaces the text.
    fn show(&mut self, text: &str) {
        self.run(&[EditCommand::Clear]);
        self.pastes.clear();
        self.insert_or_mark(text);
    }

    fn search_event(&mut self, event: Event) -> Edited {
        let Some(search) = &mut self.search else { return Edited::Nothing };
        let key = match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => key,
            // A term is one line.
            Event::Paste(text) => {
                let line = text.lines().next().unwrap_or_default();
                search.term.push_str(&stripped_lines(line));
                search.at = self.past.find(&search.term, None);
                return Edited::Nothing;
            }
            _ => return Edited::Nothing,
        };

        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('r') if has_control => {
                let older = self.past.find(&search.term, search.at);
                // The oldest match stays.
                search.at = older.or(search.at);
            }
            KeyCode::Char('c' | 'g') if has_control => self.search = None,
            KeyCode::Esc => self.search = None,
            KeyCode::Backspace => {
                search.term.pop();
                search.at = self.past.find(&search.term, None);
            }
            KeyCode::Char(c) if !has_control && !is_foreign(c) => {
                search.term.push(c);
                search.at = self.past.find(&search.term, None);
            }
            // Every other key takes the found prompt into the line, where it can be edited before it is sent.
            _ => {
                let text = search.at.and_then(|at| self.past.get(at)).map(str::to_owned);
                self.search = None;
                if let Some(text) = text {
                    self.show(&text);
                }
            }
        }
        Edited::Nothing
    }
}

/// Direction of a step through the history.
#[derive(Debug, Clone, Copy)]
enum Walk {
    Older,
    Newer,
}

const REFUSED: &str = "control characters cannot be part of a prompt";
const LEFT_OUT: &str = "control and invisible characters were left out of the prompt";

/// Returns the letter of a key that inserts it.
fn letter(event: &Event) -> Option<char> {
    let Event::Key(key) = event else { return None };
    let KeyCode::Char(c) = key.code else { return None };
    let is_typed =
        key.kind != KeyEventKind::Release && (key.modifiers - KeyModifiers::SHIFT).is_empty();
    (is_typed && !is_foreign(c)).then_some(c)
}

/// Whether a typed character must not be in a prompt: the user would not see it. Joiners and selectors are parts of
/// letters and emoji.
fn is_foreign(c: char) -> bool {
    let is_part = matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}');
    is_unsafe(c) && !is_part
}

/// Formats a number with commas.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at != 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossterm::event::KeyEvent;

    fn editor(past: &[&str]) -> Editor {
        let mut prompts = PastPrompts::in_memory();
        past.iter().for_each(|text| prompts.add(text));
        Editor::new(prompts)
    }

    fn key(code: KeyCode, modifiers: KeyModifiers) -> Event {
        Event::Key(KeyEvent::new(code, modifiers))
    }

    fn press(editor: &mut Editor, code: KeyCode) -> Edited {
        editor.event(key(code, KeyModifiers::NONE), false)
    }

    fn control(editor: &mut Editor, c: char) -> Edited {
        editor.event(key(KeyCode::Char(c), KeyModifiers::CONTROL), false)
    }

    fn type_text(editor: &mut Editor, text: &str) {
        for c in text.chars() {
            assert_eq!(press(editor, KeyCode::Char(c)), Edited::Nothing);
        }
    }

    fn paste(editor: &mut Editor, text: &str) -> Edited {
        editor.event(Event::Paste(text.to_owned()), false)
    }

    #[test]
    fn keys_edit_words_and_lines() {
        let mut line = editor(&[]);
        type_text(&mut line, "fix the big bug");
        control(&mut line, 'w');
        assert_eq!(line.shown(), ("fix the big ", 12));
        control(&mut line, 'a');
        type_text(&mut line, "do ");
        control(&mut line, 'e');
        line.event(key(KeyCode::Left, KeyModifiers::ALT), false);
        control(&mut line, 'k');
        assert_eq!(line.shown().0, "do fix the ");
        control(&mut line, 'y');
        assert_eq!(line.shown().0, "do fix the big ");
        line.event(key(KeyCode::Enter, KeyModifiers::ALT), false);
        type_text(&mut line, "now\\");
        assert_eq!(press(&mut line, KeyCode::Enter), Edited::Nothing);
        type_text(&mut line, "end");
        press(&mut line, KeyCode::Up);
        assert_eq!(line.shown(), ("do fix the big \nnow\nend", "do fix the big \nnow".len()));
        let sent = Edited::Submit("do fix the big \nnow\nend".to_owned());
        assert_eq!(press(&mut line, KeyCode::Enter), sent);
        assert_eq!(line.shown(), ("", 0));
    }

    #[test]
    fn a_large_paste_is_one_mark_and_is_sent_whole() {
        let mut line = editor(&[]);
        let text = "a line\n".repeat(1001);
        type_text(&mut line, "read ");
        assert_eq!(paste(&mut line, &text), Edited::Nothing);
        assert_eq!(paste(&mut line, &text.replace("a line", "b")), Edited::Nothing);
        assert_eq!(line.shown().0, "read [1,001 lines pasted][1,001 lines pasted #2]");
        let Edited::Submit(sent) = press(&mut line, KeyCode::Enter) else { panic!("not sent") };
        assert_eq!(sent.matches("a line").count(), 1001);
        assert_eq!(sent.matches("\nb").count(), 1000);
        press(&mut line, KeyCode::Up);
        assert_eq!(line.shown().0, "[2,001 lines pasted]");
        // A mark that was edited stands for nothing.
        press(&mut line, KeyCode::Backspace);
        let sent = Edited::Submit("[2,001 lines pasted".to_owned());
        assert_eq!(press(&mut line, KeyCode::Enter), sent);
    }

    #[test]
    fn what_the_user_cannot_see_is_not_taken() {
        let mut line = editor(&[]);
        let left_out = Edited::Refused(LEFT_OUT.to_owned());
        assert_eq!(paste(&mut line, "a\u{1b}[31mb\u{7}\u{202e}c\r\nd\te👩\u{200d}💻"), left_out);
        assert_eq!(line.shown().0, "a[31mbc\nd\te👩\u{200d}💻");
        for hidden in ['\u{7}', '\u{2028}', '\u{e0041}', '\u{9b}', '\u{3164}'] {
            let refused = Edited::Refused(REFUSED.to_owned());
            assert_eq!(press(&mut line, KeyCode::Char(hidden)), refused, "{hidden:?}");
        }
        line.clear();
        let large = paste(&mut line, &"x".repeat(MAX_PROMPT + 1));
        assert!(matches!(large, Edited::Refused(_)));
        assert_eq!(line.shown().0, "");
    }

    #[test]
    fn a_return_within_a_burst_is_part_of_a_paste() {
        let mut line = editor(&[]);
        type_text(&mut line, "one");
        assert_eq!(line.event(key(KeyCode::Enter, KeyModifiers::NONE), true), Edited::Nothing);
        type_text(&mut line, "two");
        assert_eq!(press(&mut line, KeyCode::Enter), Edited::Submit("one\ntwo".to_owned()));
    }

    #[test]
    fn older_prompts_come_back_and_are_searched() {
        let mut line = editor(&["build it", "test it", "ship"]);
        type_text(&mut line, "half");
        press(&mut line, KeyCode::Up);
        press(&mut line, KeyCode::Up);
        assert_eq!(line.shown().0, "test it");
        press(&mut line, KeyCode::Down);
        press(&mut line, KeyCode::Down);
        assert_eq!(line.shown().0, "half");
        control(&mut line, 'r');
        type_text(&mut line, "it");
        assert_eq!(line.search(), Some(("it", Some("test it"))));
        control(&mut line, 'r');
        assert_eq!(line.search(), Some(("it", Some("build it"))));
        // Return takes the prompt into the line. It is sent with the next Return only.
        assert_eq!(press(&mut line, KeyCode::Enter), Edited::Nothing);
        assert_eq!(press(&mut line, KeyCode::Enter), Edited::Submit("build it".to_owned()));
        press(&mut line, KeyCode::Up);
        assert_eq!(line.shown().0, "build it");
    }

    #[test]
    fn ctrl_d_leaves_an_empty_line_only_and_esc_and_ctrl_c_keep_the_text() {
        let mut line = editor(&[]);
        type_text(&mut line, "ab");
        control(&mut line, 'a');
        assert_eq!(control(&mut line, 'd'), Edited::Nothing);
        assert_eq!(line.shown().0, "b");
        assert_eq!(press(&mut line, KeyCode::Esc), Edited::Abort);
        assert_eq!(line.shown().0, "b");
        assert_eq!(control(&mut line, 'c'), Edited::Interrupt);
        assert_eq!(line.shown().0, "b", "the caller decides what Ctrl-C ends");
        line.clear();
        assert_eq!(control(&mut line, 'd'), Edited::Leave);
        assert_eq!(control(&mut line, 'z'), Edited::Suspend);
    }
}
