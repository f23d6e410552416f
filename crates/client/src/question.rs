//! Questions of the daemon to the user, and the answers: those about permissions, and those of a Pi.

use quackd_protocol::client::UiResponseParams;
use serde::Deserialize;
use serde_json::Value;

/// A question, as the event `extension_ui_request` has it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// Session of the event.
    #[serde(skip)]
    pub session: String,
    /// Identifies the question.
    pub id: Value,
    /// `confirm`, `select`, `input` or `editor`. Others need no answer.
    pub method: String,
    /// Short text.
    #[serde(default)]
    pub title: String,
    /// Long text.
    #[serde(default)]
    pub message: String,
    /// Texts to choose from, for `select`.
    #[serde(default)]
    pub options: Vec<String>,
    /// Text to edit.
    #[serde(default)]
    pub prefill: Option<String>,
    /// Time for an answer, in milliseconds.
    #[serde(default)]
    pub timeout: Option<u64>,
    /// Present for a question about a permission.
    #[serde(default)]
    pub permission: Option<OfPermission>,
}

/// The member `permission` of a question.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfPermission {
    /// The call that the question is about, if it is known.
    #[serde(default)]
    pub tool_call_id: Option<String>,
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
        let is_offered = |value: &Value| {
            self.permission.is_none()
                || self.options.iter().any(|option| Some(option.as_str()) == value.as_str())
        };

        let mut params = UiResponseParams {
            id: self.id.clone(),
            session_id: self.session.clone().into(),
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
