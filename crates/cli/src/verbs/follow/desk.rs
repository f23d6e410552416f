//! The questions of Pi that wait for the person at this terminal, one at a time. A pure state machine: questions
//! and typed lines in, texts and answers out. Used by [`super::live`].

use super::typed::Typed;
use crate::render::one_line;
use quackd_protocol::client::UiResponseParams;
use serde_json::Value;
use std::collections::VecDeque;

/// Questions that wait here; the daemon keeps the rest too, for who follows later.
const MAX_WAITING: usize = 64;

/// Longest title, message or option that is shown, in characters; most options.
const MAX_TEXT: usize = 400;
const MAX_OPTIONS: usize = 200;

/// Most that is typed into one answer, in bytes.
const MAX_ANSWER: usize = 1024 * 1024;

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    id: String,
    title: String,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Confirm,
    Select(Vec<String>),
    Input { placeholder: String },
    Editor { prefill: String, typed: String },
}

/// What a typed line means.
#[derive(Debug)]
pub(super) enum Means {
    /// Nobody asked.
    Nothing,
    /// The answer goes on.
    More,
    /// It answers nothing: say so, and ask again.
    Again(&'static str),
    /// The answer.
    Answer(Box<UiResponseParams>),
}

/// The questions that wait.
#[derive(Debug, Default)]
pub(super) struct Desk {
    waiting: VecDeque<Question>,
}

impl Question {
    /// Reads the data of an `extension_ui_request`; `None` if it needs no answer.
    pub(super) fn read(data: &Value) -> Option<Self> {
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
        let id = Some(text("id")).filter(|id| !id.is_empty())?;
        let kind = match text("method") {
            "confirm" => Kind::Confirm,
            "select" => {
                let options = data.get("options").and_then(Value::as_array);
                let options = options.into_iter().flatten().filter_map(Value::as_str);
                Kind::Select(options.take(MAX_OPTIONS).map(str::to_owned).collect())
            }
            "input" => Kind::Input { placeholder: text("placeholder").to_owned() },
            "editor" => Kind::Editor { prefill: text("prefill").to_owned(), typed: String::new() },
            _ => return None,
        };
        let title: Vec<String> = [text("title"), text("message")]
            .into_iter()
            .filter(|text| !text.trim().is_empty())
            .map(|text| one_line(text, MAX_TEXT))
            .collect();
        Some(Self { id: id.to_owned(), title: title.join(" "), kind })
    }

    /// Whether this is its id.
    pub(super) fn is(&self, id: &str) -> bool {
        self.id == id
    }

    /// The question as lines, without what stands before the cursor.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.title.clone()];
        match &self.kind {
            Kind::Confirm => {}
            Kind::Select(options) => {
                let shown = options.iter().enumerate();
                lines.extend(
                    shown.map(|(n, option)| format!("  {}) {}", n + 1, one_line(option, MAX_TEXT))),
                );
            }
            Kind::Input { placeholder } if placeholder.is_empty() => {}
            Kind::Input { placeholder } => {
                lines.push(format!("  such as: {}", one_line(placeholder, MAX_TEXT)));
            }
            Kind::Editor { prefill, .. } => {
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

    /// What stands before the cursor.
    pub(super) fn prompt(&self) -> &'static str {
        match self.kind {
            Kind::Confirm => "[y/n, Ctrl-D cancels] ",
            Kind::Select(_) => "[number, Ctrl-D cancels] ",
            Kind::Input { .. } => "[text, Ctrl-D cancels] ",
            Kind::Editor { .. } => ". ",
        }
    }

    fn take(&mut self, line: &str) -> Means {
        let value = match &mut self.kind {
            Kind::Confirm => {
                let is_so = match line.trim().to_lowercase().as_str() {
                    "y" | "yes" => true,
                    "n" | "no" => false,
                    _ => return Means::Again("answer y or n"),
                };
                let confirmed = Some(Value::Bool(is_so));
                return self.answer(UiResponseParams { confirmed, ..UiResponseParams::default() });
            }
            Kind::Select(options) => {
                let number = line.trim().parse::<usize>().ok();
                let by_number = number.and_then(|n| options.get(n.checked_sub(1)?));
                let by_name = || options.iter().find(|option| option.trim() == line.trim());
                match by_number.or_else(by_name) {
                    Some(option) => option.clone(),
                    None => return Means::Again("answer with the number of one of these"),
                }
            }
            Kind::Input { .. } => line.to_owned(),
            Kind::Editor { prefill, typed } => {
                if line != "." {
                    if MAX_ANSWER < typed.len() + line.len() {
                        return Means::Again("the text is too long; end it with a . on a line");
                    }
                    typed.push_str(line);
                    typed.push('\n');
                    return Means::More;
                }
                let text = if typed.is_empty() { prefill } else { typed };
                text.trim_end_matches('\n').to_owned()
            }
        };
        let value = Some(Value::from(value));
        self.answer(UiResponseParams { value, ..UiResponseParams::default() })
    }

    fn answer(&self, answer: UiResponseParams) -> Means {
        let id = Value::from(self.id.as_str());
        Means::Answer(Box::new(UiResponseParams { id, ..answer }))
    }
}

impl Desk {
    /// A question has come. One that comes again replaces the earlier one. True: it is asked now.
    pub(super) fn open(&mut self, question: Question) -> bool {
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

    /// The question that is asked now.
    pub(super) fn current(&self) -> Option<&Question> {
        self.waiting.front()
    }

    /// What a person typed. An answer takes its question away.
    pub(super) fn take(&mut self, typed: &Typed) -> Means {
        let Some(question) = self.waiting.front_mut() else { return Means::Nothing };
        let means = match typed {
            Typed::Line(line) => question.take(line),
            Typed::End => {
                let cancelled = Some(Value::Bool(true));
                question.answer(UiResponseParams { cancelled, ..UiResponseParams::default() })
            }
        };
        if matches!(means, Means::Answer(_)) {
            self.waiting.pop_front();
        }
        means
    }

    /// A question needs no answer any more, or has ours. True: it was still asked here.
    pub(super) fn close(&mut self, id: &str) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|question| question.id != id);
        self.waiting.len() < before
    }

    /// The connection was lost: what still waits will be told again.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ask(more: Value) -> Desk {
        let mut data = json!({"id": "q1", "title": "Which\u{1b}[2J?"});
        for (key, value) in more.as_object().unwrap() {
            data[key] = value.clone();
        }
        let mut desk = Desk::default();
        assert!(desk.open(Question::read(&data).unwrap()));
        desk
    }

    /// What lines make of a question: the answer as the wire has it, or what is said instead.
    fn answered(desk: &mut Desk, lines: &[&str]) -> Value {
        let mut last = Value::Null;
        for line in lines {
            let typed = match *line {
                "^D" => Typed::End,
                line => Typed::Line(line.to_owned()),
            };
            last = match desk.take(&typed) {
                Means::Nothing => json!("nothing"),
                Means::More => json!("more"),
                Means::Again(hint) => json!(hint),
                Means::Answer(answer) => serde_json::to_value(answer).unwrap(),
            };
        }
        last
    }

    #[test]
    fn what_is_typed_is_the_answer_or_the_question_is_asked_again() {
        let select = json!({"method": "select", "options": ["a", "b c", 7]});
        let editor = json!({"method": "editor", "prefill": "old\ntext"});
        for (question, lines, expected) in [
            (json!({"method": "confirm"}), &["YES"][..], json!({"id": "q1", "confirmed": true})),
            (json!({"method": "confirm"}), &["n"], json!({"id": "q1", "confirmed": false})),
            (json!({"method": "confirm"}), &["delete it"], json!("answer y or n")),
            (json!({"method": "confirm"}), &[""], json!("answer y or n")),
            (json!({"method": "confirm"}), &["^D"], json!({"id": "q1", "cancelled": true})),
            (select.clone(), &["2"], json!({"id": "q1", "value": "b c"})),
            (select.clone(), &["b c "], json!({"id": "q1", "value": "b c"})),
            (select.clone(), &["3"], json!("answer with the number of one of these")),
            (select, &["0", "x", "1"], json!({"id": "q1", "value": "a"})),
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
        assert_eq!(answered(&mut Desk::default(), &["hello"]), "nothing");
    }

    #[test]
    fn questions_are_asked_one_after_the_other() {
        let mut desk = ask(json!({"method": "confirm"}));
        let second = Question::read(&json!({"id": "q2", "method": "input", "title": "Name?"}));
        assert!(!desk.open(second.clone().unwrap()));
        assert!(!desk.open(Question::read(&json!({"id": "q1", "method": "confirm"})).unwrap()));
        assert_eq!(desk.current().unwrap().prompt(), "[y/n, Ctrl-D cancels] ");
        assert!(desk.close("q1") && !desk.close("q1"));
        assert_eq!(desk.current(), second.as_ref());
        assert_eq!(answered(&mut desk, &["ada"])["value"], "ada");
        assert!(desk.current().is_none());
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
        let mut desk = Desk::default();
        for n in 0..1000 {
            desk.open(Question::read(&json!({"id": n.to_string(), "method": "confirm"})).unwrap());
        }
        assert_eq!(desk.waiting.len(), MAX_WAITING);
        for data in
            [json!({}), json!({"method": "confirm"}), json!({"id": "1", "method": "notify"})]
        {
            assert_eq!(Question::read(&data), None, "{data}");
        }
    }
}
