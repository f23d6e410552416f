//! Queue of Pi's questions for the user at this terminal, asked one at a time. Pure state machine: takes questions and
//! typed lines, returns texts and answers. Used by [`super::session_view`].

use super::stdin_lines::StdinLine;
use crate::sanitize::one_line;
use quackd_protocol::approval::DENY_OPTION;
use quackd_protocol::client::UiResponseParams;
use serde_json::Value;
use std::collections::VecDeque;
use std::time::Duration;

/// Time after a question appears in which typed lines do not count: they were meant for something else.
pub(crate) const SETTLE: Duration = Duration::from_millis(400);

/// Maximum number of queued questions. The daemon also keeps all of them for later followers.
const MAX_WAITING: usize = 64;

/// Maximum length of a title, message or option in characters, and maximum number of options.
const MAX_TEXT: usize = 400;
const MAX_OPTIONS: usize = 200;

/// Maximum length of an answer, in bytes.
const MAX_ANSWER: usize = 1024 * 1024;

/// Question of Pi.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    id: String,
    title: String,
    kind: QuestionKind,
    /// Answer to an empty line: a question about a permission has one.
    default: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum QuestionKind {
    Confirm,
    Select(Vec<String>),
    Input { placeholder: String },
    Editor { prefill: String, typed: String },
}

/// Meaning of a typed line.
#[derive(Debug)]
pub(crate) enum InputResult {
    /// No question is open.
    Nothing,
    /// The answer continues on the next line.
    More,
    /// The line is not a valid answer. Show the hint and ask again.
    Again(&'static str),
    /// The line completes this answer.
    Answer(Box<UiResponseParams>),
}

/// Queue of unanswered questions.
#[derive(Debug, Default)]
pub(crate) struct QuestionQueue {
    waiting: VecDeque<Question>,
}

impl Question {
    /// Parses the data of an `extension_ui_request`. `None` if it needs no answer.
    pub(crate) fn read(data: &Value) -> Option<Self> {
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
        let id = Some(text("id")).filter(|id| !id.is_empty())?;
        let kind = match text("method") {
            "confirm" => QuestionKind::Confirm,
            "select" => {
                let options = data.get("options").and_then(Value::as_array);
                let options = options.into_iter().flatten().filter_map(Value::as_str);
                QuestionKind::Select(options.take(MAX_OPTIONS).map(str::to_owned).collect())
            }
            "input" => QuestionKind::Input { placeholder: text("placeholder").to_owned() },
            "editor" => {
                QuestionKind::Editor { prefill: text("prefill").to_owned(), typed: String::new() }
            }
            _ => return None,
        };
        let title: Vec<String> = [text("title"), text("message")]
            .into_iter()
            .filter(|text| !text.trim().is_empty())
            .map(|text| one_line(text, MAX_TEXT))
            .collect();
        let default = data.get("permission").map(|_| DENY_OPTION.to_owned());
        Some(Self { id: id.to_owned(), title: title.join(" "), kind, default })
    }

    /// Whether the question is about a permission.
    pub(crate) fn is_about_permission(&self) -> bool {
        self.default.is_some()
    }

    /// Whether the question has this id.
    pub(crate) fn is(&self, id: &str) -> bool {
        self.id == id
    }

    /// Returns the question as lines, without its prompt.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.title.clone()];
        match &self.kind {
            QuestionKind::Confirm => {}
            QuestionKind::Select(options) => {
                let shown = options.iter().enumerate();
                lines.extend(
                    shown.map(|(n, option)| format!("  {}) {}", n + 1, one_line(option, MAX_TEXT))),
                );
            }
            QuestionKind::Input { placeholder } if placeholder.is_empty() => {}
            QuestionKind::Input { placeholder } => {
                lines.push(format!("  such as: {}", one_line(placeholder, MAX_TEXT)));
            }
            QuestionKind::Editor { prefill, .. } => {
                lines.extend(
                    prefill
                        .lines()
                        .take(MAX_OPTIONS)
                        .map(|line| format!("  {}", one_line(line, MAX_TEXT))),
                );
                lines.push(match prefill.is_empty() {
                    true => "  (a line with only a . ends the text)".to_owned(),
                    false => {
                        "  (a line with only a . ends the text; nothing before it keeps the text above)"
                            .to_owned()
                    }
                });
            }
        }
        lines
    }

    /// Returns the prompt before the cursor.
    pub(crate) fn prompt(&self) -> &'static str {
        match self.kind {
            QuestionKind::Confirm => "[y/n, Ctrl-D cancels] ",
            QuestionKind::Select(_) if self.default.is_some() => "[number, Enter denies] ",
            QuestionKind::Select(_) => "[number, Ctrl-D cancels] ",
            QuestionKind::Input { .. } => "[text, Ctrl-D cancels] ",
            QuestionKind::Editor { .. } => ". ",
        }
    }

    fn take(&mut self, line: &str) -> InputResult {
        let value = match &mut self.kind {
            QuestionKind::Confirm => {
                let is_so = match line.trim().to_lowercase().as_str() {
                    "y" | "yes" => true,
                    "n" | "no" => false,
                    _ => return InputResult::Again("answer y or n"),
                };
                let confirmed = Some(Value::Bool(is_so));
                return self.answer(UiResponseParams { confirmed, ..UiResponseParams::default() });
            }
            QuestionKind::Select(options) => {
                let number = line.trim().parse::<usize>().ok();
                let by_default = self.default.as_ref().filter(|_| line.trim().is_empty());
                let by_number = number.and_then(|n| options.get(n.checked_sub(1)?));
                let by_name = || options.iter().find(|option| option.trim() == line.trim());
                match by_default.or(by_number).or_else(by_name) {
                    Some(option) => option.clone(),
                    None => return InputResult::Again("answer with one of these numbers"),
                }
            }
            QuestionKind::Input { .. } => line.to_owned(),
            QuestionKind::Editor { prefill, typed } => {
                if line != "." {
                    if MAX_ANSWER < typed.len() + line.len() {
                        return InputResult::Again(
                            "the text is too long; end it with a . on a line",
                        );
                    }
                    typed.push_str(line);
                    typed.push('\n');
                    return InputResult::More;
                }
                let text = if typed.is_empty() { prefill } else { typed };
                text.trim_end_matches('\n').to_owned()
            }
        };
        let value = Some(Value::from(value));
        self.answer(UiResponseParams { value, ..UiResponseParams::default() })
    }

    fn answer(&self, answer: UiResponseParams) -> InputResult {
        let id = Value::from(self.id.as_str());
        InputResult::Answer(Box::new(UiResponseParams { id, ..answer }))
    }
}

impl QuestionQueue {
    /// Adds a question. A repeated question replaces the earlier one. Returns true if it is the current question.
    pub(crate) fn open(&mut self, question: Question) -> bool {
        let was_asked = self.waiting.front().is_some_and(|asked| asked.id == question.id);
        self.waiting.retain(|known| known.id != question.id);
        if was_asked {
            self.waiting.push_front(question);
            return false;
        }
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(question);
        }
        self.waiting.len() == 1
    }

    /// Returns the current question.
    pub(crate) fn current(&self) -> Option<&Question> {
        self.waiting.front()
    }

    /// Handles a typed line. A complete answer removes its question.
    pub(crate) fn take(&mut self, typed: &StdinLine) -> InputResult {
        let Some(question) = self.waiting.front_mut() else { return InputResult::Nothing };
        let means = match typed {
            StdinLine::Line(line) => question.take(line),
            StdinLine::End => {
                let cancelled = Some(Value::Bool(true));
                question.answer(UiResponseParams { cancelled, ..UiResponseParams::default() })
            }
        };
        if matches!(means, InputResult::Answer(_)) {
            self.waiting.pop_front();
        }
        means
    }

    /// Removes a question that was answered or canceled. Returns true if it was still queued here.
    pub(crate) fn close(&mut self, id: &str) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|question| question.id != id);
        self.waiting.len() < before
    }

    /// Removes all questions after a lost connection. The daemon sends the open ones again.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ask(more: Value) -> QuestionQueue {
        let mut data = json!({"id": "q1", "title": "Which\u{1b}[2J?"});
        for (key, value) in more.as_object().unwrap() {
            data[key] = value.clone();
        }
        let mut questions = QuestionQueue::default();
        assert!(questions.open(Question::read(&data).unwrap()));
        questions
    }

    /// Returns the answer that the lines give to a question in its wire format, or the hint.
    fn answered(questions: &mut QuestionQueue, lines: &[&str]) -> Value {
        let mut last = Value::Null;
        for line in lines {
            let typed = match *line {
                "^D" => StdinLine::End,
                line => StdinLine::Line(line.to_owned()),
            };
            last = match questions.take(&typed) {
                InputResult::Nothing => json!("nothing"),
                InputResult::More => json!("more"),
                InputResult::Again(hint) => json!(hint),
                InputResult::Answer(answer) => serde_json::to_value(answer).unwrap(),
            };
        }
        last
    }

    #[test]
    fn what_is_typed_is_the_answer_or_the_question_is_asked_again() {
        let select = json!({"method": "select", "options": ["a", "b c", 7]});
        let editor = json!({"method": "editor", "prefill": "old\ntext"});
        let permission =
            json!({"method": "select", "options": ["Deny", "Allow once"], "permission": {}});
        for (question, lines, expected) in [
            (json!({"method": "confirm"}), &["YES"][..], json!({"id": "q1", "confirmed": true})),
            (json!({"method": "confirm"}), &["n"], json!({"id": "q1", "confirmed": false})),
            (json!({"method": "confirm"}), &["delete it"], json!("answer y or n")),
            (json!({"method": "confirm"}), &[""], json!("answer y or n")),
            (json!({"method": "confirm"}), &["^D"], json!({"id": "q1", "cancelled": true})),
            (select.clone(), &["2"], json!({"id": "q1", "value": "b c"})),
            (select.clone(), &["b c "], json!({"id": "q1", "value": "b c"})),
            (select.clone(), &["3"], json!("answer with one of these numbers")),
            (select, &["0", "x", "1"], json!({"id": "q1", "value": "a"})),
            (permission.clone(), &[""], json!({"id": "q1", "value": "Deny"})),
            (permission, &["2"], json!({"id": "q1", "value": "Allow once"})),
            (json!({"method": "input"}), &[""], json!({"id": "q1", "value": ""})),
            (editor.clone(), &["."], json!({"id": "q1", "value": "old\ntext"})),
            (editor.clone(), &["", " x", "."], json!({"id": "q1", "value": "\n x"})),
            (editor, &["x"], json!("more")),
        ] {
            assert_eq!(
                answered(&mut ask(question.clone()), lines),
                expected,
                "{question} {lines:?}"
            );
        }
        assert_eq!(answered(&mut QuestionQueue::default(), &["hello"]), "nothing");
    }

    #[test]
    fn questions_are_asked_one_after_the_other() {
        let mut questions = ask(json!({"method": "confirm"}));
        let second = Question::read(&json!({"id": "q2", "method": "input", "title": "Name?"}));
        assert!(!questions.open(second.clone().unwrap()));
        assert!(
            !questions.open(Question::read(&json!({"id": "q1", "method": "confirm"})).unwrap())
        );
        assert_eq!(questions.current().unwrap().prompt(), "[y/n, Ctrl-D cancels] ");
        assert!(questions.close("q1") && !questions.close("q1"));
        assert_eq!(questions.current(), second.as_ref());
        assert_eq!(answered(&mut questions, &["ada"])["value"], "ada");
        assert!(questions.current().is_none());
    }

    #[test]
    fn nothing_in_a_question_steers_the_terminal_and_nothing_grows() {
        let evil = "\u{1b}]0;x\u{7}\r\n\u{202e}".repeat(1000);
        let options = vec![evil.clone(); 5000];
        for method in ["confirm", "select", "input", "editor"] {
            let data = json!({"id": "1", "method": method, "title": evil, "message": evil,
                "options": options, "placeholder": evil, "prefill": evil});
            let question = Question::read(&data).unwrap();
            for line in question.lines() {
                assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
            }
        }
        let mut questions = QuestionQueue::default();
        for n in 0..1000 {
            questions
                .open(Question::read(&json!({"id": n.to_string(), "method": "confirm"})).unwrap());
        }
        assert_eq!(questions.waiting.len(), MAX_WAITING);
        for data in
            [json!({}), json!({"method": "confirm"}), json!({"id": "1", "method": "notify"})]
        {
            assert_eq!(Question::read(&data), None, "{data}");
        }
    }
}
