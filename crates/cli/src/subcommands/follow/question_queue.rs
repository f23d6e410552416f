//! Queue of the questions for the user at this terminal, asked one at a time. Pure state machine: takes questions and
//! typed lines, returns texts and answers. Used by [`super::asking`].
//!
//! An answer that allows more than the waiting operation needs two lines: the number of the option, then the host or a
//! code ([`Confirmation`]).

use super::stdin_lines::StdinLine;
use crate::sanitize::one_line;
use crate::subcommands::confirmation::Confirmation;
use quackd_client::{Answer, OpenQuestions, Question, QuestionKind, QuestionPermission};
use quackd_protocol::approval::{AnswerScope, ApprovalKind, DENY_OPTION};
use quackd_protocol::client::UiResponseParams;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Time after a question about a permission appears in which typing does not count: it was meant for something else.
pub(crate) const SETTLE: Duration = Duration::from_secs(1);

/// Maximum length of a title, message or option in characters, and maximum number of shown options.
const MAX_TEXT: usize = 400;
const MAX_OPTIONS: usize = 200;

/// Maximum number of lines of a question about a permission.
const MAX_LINES: usize = 8;

/// Hint after a wrong confirmation.
const MISMATCH: &str = "that is not what this question is about: nothing was allowed";

/// Maximum length of an answer, in bytes.
const MAX_ANSWER: usize = 1024 * 1024;

/// A question at this terminal, with the input for it so far.
#[derive(Debug)]
pub(crate) struct Dialog {
    question: Arc<Question>,
    /// First line: the facts, for a question about a permission.
    title: String,
    /// Further lines of a question about a permission, with words of others.
    details: Vec<String>,
    /// Lines of an [`QuestionKind::Editor`] so far.
    typed: String,
    permission: Option<AskedPermission>,
}

/// Additional fields of a question about a permission.
#[derive(Debug)]
struct AskedPermission {
    /// Host and port, directory, command or tool.
    target: String,
    /// Whether the prompt has the target: a host or the use of a credential, which are short and without words of others.
    is_in_prompt: bool,
    confirmation: Confirmation,
    /// The option that the user has to confirm.
    chosen: Option<String>,
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
    /// The user has chosen an option. Ask for the confirmation.
    Confirm,
    /// The line completes this answer. For a permission, with the record of the chosen option and its target.
    Answer(Box<UiResponseParams>, Option<String>),
}

/// A question that ended elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClosedQuestion {
    /// Whether it was the current one, so that typing for it may still arrive.
    pub(crate) was_current: bool,
    /// Remark about its end.
    pub(crate) remark: &'static str,
}

/// Queue of unanswered questions.
#[derive(Debug, Default)]
pub(crate) struct QuestionQueue {
    open: OpenQuestions<Dialog>,
    /// Confirm every answer that allows something: other programs may print on this terminal.
    confirms_all: bool,
}

impl Dialog {
    pub(super) fn new(question: Arc<Question>) -> Self {
        let permission = question.permission.as_ref().map(AskedPermission::new);
        let message = question.message.as_str();
        let mut lines = match permission {
            Some(_) => message.split('\n').take(MAX_LINES).collect(),
            None => vec![message],
        };

        let title: Vec<String> = [question.title.as_str(), lines.remove(0)]
            .into_iter()
            .filter(|text| !text.trim().is_empty())
            .map(|text| one_line(text, MAX_TEXT))
            .collect();

        let details = lines.into_iter().map(|line| one_line(line, MAX_TEXT)).collect();
        Self { title: title.join(" "), details, typed: String::new(), permission, question }
    }

    /// Whether the question is about a permission.
    pub(crate) fn is_about_permission(&self) -> bool {
        self.permission.is_some()
    }

    /// Returns the target on one line. `None` for a question of Pi.
    pub(crate) fn target(&self) -> Option<String> {
        self.permission.as_ref().map(|permission| one_line(&permission.target, MAX_TEXT))
    }

    /// Returns the facts and words of the question, without options.
    pub(crate) fn head(&self) -> (&str, &[String]) {
        (&self.title, &self.details)
    }

    /// Whether the question has this id.
    pub(crate) fn is(&self, id: &Value) -> bool {
        self.question.id == *id
    }

    /// Returns the lines after the head, without the prompt.
    pub(crate) fn options(&self) -> Vec<String> {
        match &self.question.kind {
            QuestionKind::Select(options) if self.chosen().is_none() => {
                let options = options.iter().take(MAX_OPTIONS).zip(1..);
                options.map(|(text, n)| format!("  {n}) {}", one_line(text, MAX_TEXT))).collect()
            }
            QuestionKind::Input if !self.question.placeholder.is_empty() => {
                vec![format!("  such as: {}", one_line(&self.question.placeholder, MAX_TEXT))]
            }
            QuestionKind::Editor => {
                let prefill = self.prefill();
                let lines = prefill.lines().take(MAX_OPTIONS);
                let lines = lines.map(|line| format!("  {}", one_line(line, MAX_TEXT)));
                let keeps = match prefill {
                    "" => "",
                    _ => "; nothing before it keeps the text above",
                };
                let hint = format!("  (a line with only a . ends the text{keeps})");
                lines.chain([hint]).collect()
            }
            QuestionKind::Select(_) | QuestionKind::Confirm | QuestionKind::Input => Vec::new(),
        }
    }

    fn prefill(&self) -> &str {
        self.question.prefill.as_deref().unwrap_or_default()
    }

    /// Returns the prompt before the cursor. It names the host: on a small screen it may be all that is left.
    pub(crate) fn prompt(&self) -> String {
        if let Some(permission) = &self.permission {
            return match &permission.chosen {
                Some(option) => {
                    let request = permission.confirmation.request();
                    format!("{option}? {request}, Enter denies: ")
                }
                None if permission.is_in_prompt => {
                    format!("{} [number, Enter denies] ", one_line(&permission.target, MAX_TEXT))
                }
                None => "[number, Enter denies] ".to_owned(),
            };
        }

        let prompt = match self.question.kind {
            QuestionKind::Confirm => "[y/n, Ctrl-D cancels] ",
            QuestionKind::Select(_) => "[number, Ctrl-D cancels] ",
            QuestionKind::Input => "[text, Ctrl-D cancels] ",
            QuestionKind::Editor => ". ",
        };
        prompt.to_owned()
    }

    /// Returns the option that waits for its confirmation.
    pub(crate) fn chosen(&self) -> Option<&String> {
        self.permission.as_ref()?.chosen.as_ref()
    }

    /// Handles a line of a question about a permission. `None`: the line selects an option.
    fn confirm(&mut self, line: &str) -> Option<InputResult> {
        let permission = self.permission.as_mut()?;
        // Taken, so that a wrong confirmation goes back to the options.
        let option = match permission.chosen.take() {
            _ if line.trim().is_empty() => DENY_OPTION.to_owned(),
            Some(option) if permission.confirmation.is_given(line) => option,
            Some(_) => return Some(InputResult::Again(MISMATCH)),
            None => return None,
        };
        Some(self.answer(Answer::Value(option.into())))
    }

    fn take(&mut self, line: &str, confirms_all: bool) -> InputResult {
        if let Some(result) = self.confirm(line) {
            return result;
        }

        let value = match &self.question.kind {
            QuestionKind::Confirm => {
                return match line.trim().to_lowercase().as_str() {
                    "y" | "yes" => self.answer(Answer::Confirmed(true)),
                    "n" | "no" => self.answer(Answer::Confirmed(false)),
                    _ => InputResult::Again("answer y or n"),
                };
            }
            QuestionKind::Select(options) => {
                // Only those that were shown.
                let mut shown = options.iter().take(MAX_OPTIONS);
                let number = line.trim().parse::<usize>().ok();
                let by_number = number.and_then(|n| shown.clone().nth(n.checked_sub(1)?));
                let by_name = || shown.find(|option| option.trim() == line.trim());
                let Some(option) = by_number.or_else(by_name).cloned() else {
                    return InputResult::Again("answer with one of these numbers");
                };

                // Nothing else may be allowed with one line.
                let is_free =
                    option == DENY_OPTION || option == AnswerScope::Once.option() && !confirms_all;
                if let Some(permission) = self.permission.as_mut().filter(|_| !is_free) {
                    permission.chosen = Some(option);
                    return InputResult::Confirm;
                }
                option
            }
            QuestionKind::Input => line.to_owned(),
            QuestionKind::Editor => {
                if line != "." {
                    if MAX_ANSWER < self.typed.len() + line.len() {
                        return InputResult::Again(
                            "the text is too long; end it with a . on a line",
                        );
                    }
                    self.typed.push_str(line);
                    self.typed.push('\n');
                    return InputResult::More;
                }

                // An empty text keeps the one that was shown.
                let text = if self.typed.is_empty() { self.prefill() } else { self.typed.as_str() };
                text.trim_end_matches('\n').to_owned()
            }
        };

        self.answer(Answer::Value(value.into()))
    }

    fn answer(&self, answer: Answer) -> InputResult {
        let params = self.question.reply(answer);
        // A canceled question about a permission is denied.
        let option = params.value.as_ref().and_then(Value::as_str).unwrap_or(DENY_OPTION);
        let record = self.target().map(|target| format!("{option}: {target}"));
        InputResult::Answer(Box::new(params), record)
    }
}

impl AskedPermission {
    fn new(permission: &QuestionPermission) -> Self {
        let facts = permission.facts.as_ref();
        let target = facts.map(|facts| facts.target.clone()).unwrap_or_default();
        // Without the kind, a code.
        let kind = facts.map_or(ApprovalKind::Command, |facts| facts.kind);
        let confirmation = Confirmation::new(kind, &target);
        let is_in_prompt = matches!(kind, ApprovalKind::Network | ApprovalKind::Credential);
        Self { target, is_in_prompt, confirmation, chosen: None }
    }
}

impl QuestionQueue {
    /// Creates an empty queue. `confirms_all`: also an answer for the waiting operation only has to be confirmed.
    pub(crate) fn new(confirms_all: bool) -> Self {
        Self { open: OpenQuestions::default(), confirms_all }
    }

    /// Reads the data of an event, and adds its question: `None` if it needs no answer. Returns true if the current
    /// question has to be shown. Beyond the limit of the table, another client can answer.
    pub(crate) fn open(&mut self, data: &Value) -> Option<bool> {
        let question = Arc::new(Question::read("", data)?);
        let dialog = Dialog::new(Arc::clone(&question));
        let is_new = self.open.open(Arc::clone(&question), dialog).is_some();
        Some(is_new && self.current().is_some_and(|current| current.is(&question.id)))
    }

    /// Returns the question that is shown, the oldest one.
    pub(crate) fn current(&self) -> Option<&Dialog> {
        self.open.list.front().map(|open| &open.state)
    }

    /// Handles a typed line. A complete answer removes its question.
    pub(crate) fn take(&mut self, typed: &StdinLine) -> InputResult {
        let Some(open) = self.open.list.front_mut() else { return InputResult::Nothing };
        let result = match typed {
            StdinLine::Line(line) => open.state.take(line, self.confirms_all),
            StdinLine::End => open.state.answer(Answer::Cancelled),
        };

        if matches!(result, InputResult::Answer(..)) {
            self.open.list.pop_front();
        }
        result
    }

    /// Reads the data of an event about the end of a question, and removes the question. `None` if it is not queued, for
    /// example because it was answered here.
    pub(crate) fn close(&mut self, data: &Value) -> Option<ClosedQuestion> {
        let id = &data["id"];
        let was_current = self.current().is_some_and(|question| question.is(id));
        let remark = match data.get("reason").and_then(Value::as_str).unwrap_or_default() {
            "answered" => "another client has answered",
            "timeout" => "there was no answer in time",
            _ => "the question was withdrawn",
        };
        self.open.close(id).then_some(ClosedQuestion { was_current, remark })
    }

    /// Removes all questions after a lost connection. The daemon sends the open ones again.
    pub(crate) fn clear(&mut self) {
        self.open.list.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn dialog(data: &Value) -> Dialog {
        Dialog::new(Arc::new(Question::read("", data).unwrap()))
    }

    fn ask(more: Value) -> QuestionQueue {
        let mut data = json!({"id": "q1", "title": "Which\u{1b}[2J?"});
        for (key, value) in more.as_object().unwrap() {
            data[key] = value.clone();
        }
        let mut questions = QuestionQueue::default();
        assert_eq!(questions.open(&data), Some(true));
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
                InputResult::Confirm => json!("confirm"),
                InputResult::Answer(answer, _) => serde_json::to_value(answer).unwrap(),
            };
        }
        last
    }

    #[test]
    fn what_is_typed_is_the_answer_or_the_question_is_asked_again() {
        let select = json!({"method": "select", "options": ["a", "b c", 7]});
        let editor = json!({"method": "editor", "prefill": "old\ntext"});
        let options = ["Deny", "Allow once", "Always allow"];
        let permission = json!({"id": "quack-1", "method": "select", "options": options,
            "permission": {"kind": "network", "target": "evil.example:80", "likely": false, "scopes": ["once", "always"]}});
        let mut credential = permission.clone();
        credential["permission"]["kind"] = json!("credential");
        credential["permission"]["target"] = json!("push git.example/me/app");
        let allowed = |option: &str| json!({"id": "quack-1", "value": option});
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
            (permission.clone(), &[""], allowed("Deny")),
            (permission.clone(), &["2"], allowed("Allow once")),
            (permission.clone(), &["3"], json!("confirm")),
            (permission.clone(), &["3", "evil.example"], allowed("Always allow")),
            (permission.clone(), &["3", "EVIL.example:80"], allowed("Always allow")),
            (permission.clone(), &["Always allow", "npm.example"], json!(MISMATCH)),
            (permission.clone(), &["3", "3"], json!(MISMATCH)),
            (
                permission.clone(),
                &["3", "y", "evil.example"],
                json!("answer with one of these numbers"),
            ),
            (permission.clone(), &["3", ""], allowed("Deny")),
            (credential.clone(), &["3", "git.example"], allowed("Always allow")),
            (credential, &["3", "push"], json!(MISMATCH)),
            (permission, &["3", "^D"], json!({"id": "quack-1", "cancelled": true})),
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
    fn beside_other_programs_every_allowing_answer_is_confirmed() {
        let data = json!({"id": "quack-1", "method": "select", "options": ["Deny", "Allow once"],
            "permission": {"kind": "network", "target": "evil.example:80", "likely": false, "scopes": ["once"]}});
        let asked = || {
            let mut questions = QuestionQueue::new(true);
            assert_eq!(questions.open(&data), Some(true));
            questions
        };
        assert_eq!(answered(&mut asked(), &["2"]), "confirm");
        assert_eq!(answered(&mut asked(), &["2", "evil.example"])["value"], "Allow once");
        assert_eq!(answered(&mut asked(), &["1"])["value"], "Deny");
    }

    #[test]
    fn a_question_of_pi_is_never_taken_for_one_about_a_permission() {
        let permission = json!({"kind": "network", "target": "a:1", "likely": false, "scopes": []});
        let data = json!({"id": "1", "method": "select", "title": "Allow?", "message": "a\nb", "permission": permission});
        let question = dialog(&data);
        assert!(!question.is_about_permission());
        assert_eq!(question.head(), ("Allow? a\\nb", &[][..]));
    }

    #[test]
    fn questions_are_asked_one_after_the_other() {
        let mut questions = ask(json!({"method": "confirm"}));
        let second = json!({"id": "q2", "method": "input", "title": "Name?"});
        assert_eq!(questions.open(&second), Some(false));
        let changed = json!({"id": "q1", "method": "confirm"});
        assert_eq!(questions.open(&changed), Some(true), "one of Pi that changes is shown again");
        assert_eq!(questions.open(&changed), Some(false));
        assert_eq!(questions.current().unwrap().prompt(), "[y/n, Ctrl-D cancels] ");
        let data = json!({"id": "q1", "reason": "timeout"});
        let remark = "there was no answer in time";
        assert_eq!(questions.close(&data), Some(ClosedQuestion { was_current: true, remark }));
        assert_eq!(questions.close(&data), None);
        assert!(questions.current().unwrap().is(&second["id"]));
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
            let question = dialog(&data);
            let (title, said) = question.head();
            let options = question.options();
            for line in said.iter().chain(&options).chain([&title.to_owned()]) {
                assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
            }
        }
        let mut questions = QuestionQueue::default();
        for n in 0..1000 {
            questions.open(&json!({"id": n.to_string(), "method": "confirm"}));
        }
        assert_eq!(questions.open.list.len(), 64);
        assert_eq!(questions.open(&json!({"id": "1", "method": "notify"})), None);
    }
}
