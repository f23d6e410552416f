//! The open questions of one connection. Used by the prompts of `quack`, `quack mcp` and `quack acp`, each with its own
//! state for a question.

use crate::Question;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A question without an answer.
#[derive(Debug)]
pub struct OpenQuestion<T> {
    /// The question.
    pub question: Arc<Question>,
    /// Cancelled when the question leaves the table.
    pub closed: CancellationToken,
    /// State of the client that shows it.
    pub state: T,
}

impl<T> Drop for OpenQuestion<T> {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

/// Open questions with unique ids.
#[derive(Debug)]
pub struct OpenQuestions<T> {
    /// At most [`OpenQuestions::MAX`], the oldest first. Only [`OpenQuestions::open`] adds to them.
    pub list: VecDeque<OpenQuestion<T>>,
}

impl<T> Default for OpenQuestions<T> {
    fn default() -> Self {
        Self { list: VecDeque::new() }
    }
}

impl<T> OpenQuestions<T> {
    /// Most open questions of a connection.
    pub const MAX: usize = 64;

    /// Adds a question. A question of Pi replaces an earlier one with its id and another text. Returns `None` if the
    /// question is known or the table is full, otherwise the token that is cancelled at its end.
    pub fn open(&mut self, question: Arc<Question>, state: T) -> Option<CancellationToken> {
        let closed = CancellationToken::new();
        if let Some(open) = self.get_mut(&question.id) {
            // quackd's own questions never change.
            if question.permission.is_some() || open.question.is_like(&question) {
                return None;
            }
            *open = OpenQuestion { question, closed: closed.clone(), state };
        } else if Self::MAX <= self.list.len() {
            return None;
        } else {
            self.list.push_back(OpenQuestion { question, closed: closed.clone(), state });
        }
        Some(closed)
    }

    /// Returns the question with this id.
    pub fn get_mut(&mut self, id: &Value) -> Option<&mut OpenQuestion<T>> {
        self.list.iter_mut().find(|open| open.question.id == *id)
    }

    /// Removes this question, and no other one that has taken its id since. Returns false if it is not open.
    pub fn close_exactly(&mut self, question: &Arc<Question>) -> bool {
        let before = self.list.len();
        self.list.retain(|open| !Arc::ptr_eq(&open.question, question));
        self.list.len() < before
    }

    /// Removes the question with this id. Returns false if it is not open.
    pub fn close(&mut self, id: &Value) -> bool {
        let before = self.list.len();
        self.list.retain(|open| open.question.id != *id);
        self.list.len() < before
    }
}
