//! Questions of the daemon to the user, and the answers: those about permissions, and those of a Pi.

use quackd_protocol::approval::{Permission, REQUEST_PREFIX};
use quackd_protocol::client::UiResponseParams;
use serde::Deserialize as _;
use serde_json::Value;

/// A question that needs an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Session of the event. Empty if the client needs no session for its answers.
    pub session: String,
    /// Identifies the question.
    pub id: Value,
    /// Form of the answer.
    pub kind: QuestionKind,
    /// Short text.
    pub title: String,
    /// Long text.
    pub message: String,
    /// Example of a text, for [`QuestionKind::Input`].
    pub placeholder: String,
    /// Text to edit.
    pub prefill: Option<String>,
    /// Time for an answer, in milliseconds.
    pub timeout: Option<u64>,
    /// Present for a question of quackd about a permission.
    pub permission: Option<QuestionPermission>,
}

/// Form of the answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionKind {
    /// Yes or no.
    Confirm,
    /// One of these texts.
    Select(Vec<String>),
    /// A line of text.
    Input,
    /// Lines of text.
    Editor,
}

/// The member `permission` of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionPermission {
    /// The call that the question is about, if it is known.
    pub tool_call_id: Option<String>,
    /// The facts. `None` from a daemon with other ones.
    pub facts: Option<Permission>,
}

/// Answer to a question.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Answer to `confirm`.
    Confirmed(bool),
    /// Answer to the other methods.
    Value(Value),
    /// No answer. Denies a permission once.
    Cancelled,
    /// No decision. Leaves a permission to the other clients that can answer.
    Dismissed,
}

impl Question {
    /// Reads the data of an `extension_ui_request`. `None` if it needs no answer. Fields of another type count as absent.
    #[must_use]
    pub fn read(session: &str, data: &Value) -> Option<Self> {
        let value = |key: &str| data.get(key).filter(|value| !value.is_null());
        let text = |key: &str| value(key).and_then(Value::as_str).unwrap_or_default().to_owned();

        // The daemon takes answers to ids that are texts only, so a client cannot answer a question with another id.
        let id = value("id").filter(|id| id.as_str().is_some_and(|id| !id.is_empty()))?;
        let kind = match text("method").as_str() {
            "confirm" => QuestionKind::Confirm,
            "select" => {
                let options = value("options").and_then(Value::as_array).into_iter().flatten();
                let options = options.filter_map(Value::as_str).map(str::to_owned);
                QuestionKind::Select(options.collect())
            }
            "input" => QuestionKind::Input,
            "editor" => QuestionKind::Editor,
            _ => return None,
        };

        // Only quackd's own questions are about permissions. An extension cannot forge one.
        let is_own = id.as_str().is_some_and(|id| id.starts_with(REQUEST_PREFIX));
        let permission = value("permission").filter(|_| is_own);
        let permission = permission.map(|permission| QuestionPermission {
            tool_call_id: permission.get("toolCallId").and_then(Value::as_str).map(str::to_owned),
            facts: Permission::deserialize(permission).ok(),
        });

        Some(Self {
            session: session.to_owned(),
            id: id.clone(),
            kind,
            title: text("title"),
            message: text("message"),
            placeholder: text("placeholder"),
            prefill: value("prefill").and_then(Value::as_str).map(str::to_owned),
            timeout: value("timeout").and_then(Value::as_u64),
            permission,
        })
    }

    /// Whether the user sees the same question. The remaining time may differ.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (&self.kind, &self.title, &self.message, &self.placeholder, &self.prefill)
            == (&other.kind, &other.title, &other.message, &other.placeholder, &other.prefill)
    }

    /// Returns the id as the name of an answer.
    #[must_use]
    pub fn key(&self) -> String {
        self.id.as_str().map_or_else(|| self.id.to_string(), ToOwned::to_owned)
    }

    /// Returns the id of the call that caused a question about a permission, if it is known.
    #[must_use]
    pub fn call(&self) -> Option<&str> {
        self.permission.as_ref()?.tool_call_id.as_deref()
    }

    /// Returns the first line of a question about a permission, which has the facts, and the lines after it, which have
    /// words of others.
    #[must_use]
    pub fn facts_and_words(&self) -> (String, Option<String>) {
        let text = self.text();
        match text.split_once('\n').filter(|_| self.permission.is_some()) {
            Some((facts, words)) => (facts.to_owned(), Some(words.to_owned())),
            None => (text, None),
        }
    }

    /// Returns title and message as one text.
    #[must_use]
    pub fn text(&self) -> String {
        // A title that is a question ends with its mark.
        let between =
            if self.title.ends_with('?') && self.permission.is_some() { " " } else { ": " };
        let parts = [self.title.as_str(), self.message.as_str()];
        let parts = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        parts.join(between)
    }

    /// Returns the parameters that send an answer. A value that a question about a permission does not offer
    /// cancels.
    #[must_use]
    pub fn reply(&self, answer: Answer) -> UiResponseParams {
        let is_offered = |value: &Value| match &self.kind {
            _ if self.permission.is_none() => true,
            QuestionKind::Select(options) => options.iter().any(|option| *value == **option),
            _ => false,
        };

        let session = Some(self.session.as_str()).filter(|session| !session.is_empty());
        let mut params = UiResponseParams {
            id: self.id.clone(),
            session_id: session.into(),
            ..UiResponseParams::default()
        };

        match answer {
            Answer::Confirmed(confirmed) => params.confirmed = Some(confirmed.into()),
            Answer::Value(value) if is_offered(&value) => params.value = Some(value),
            Answer::Dismissed if self.permission.is_some() => params.dismissed = Some(true),
            Answer::Value(_) | Answer::Cancelled | Answer::Dismissed => {
                params.cancelled = Some(true.into());
            }
        }
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_message_without_an_answer_is_no_question() {
        for data in [
            json!({}),
            json!({"method": "confirm"}),
            json!({"id": "", "method": "confirm"}),
            json!({"id": null, "method": "confirm"}),
            json!({"id": 5, "method": "confirm"}),
            json!({"id": 1, "method": "notify", "message": "hello"}),
        ] {
            assert_eq!(Question::read("s", &data), None, "{data}");
        }
        let odd = json!({"id": "1", "method": "select", "title": 5, "options": ["a", 7]});
        let question = Question::read("s", &odd).unwrap();
        assert_eq!(question.kind, QuestionKind::Select(vec!["a".to_owned()]));
        assert_eq!(question.title, "");
    }

    #[test]
    fn only_quackds_own_questions_are_about_permissions() {
        let read = |id: &str| {
            let permission = json!({"toolCallId": "c"});
            let data = json!({"id": id, "method": "select", "permission": permission});
            Question::read("s", &data).unwrap()
        };
        assert_eq!(read("quack-1").call(), Some("c"));
        assert_eq!(read("1").permission, None);
    }
}
