//! The open questions of one connection. Used by the prompts of `quack`, `quack mcp` and `quack acp`, each with its own
//! state for a question.

use crate::Question;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Most open questions of a connection.
const MAX_OPEN: usize = 64;

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

/// At most 64 open questions, the oldest first. Each id is unique.
#[derive(Debug)]
pub struct OpenQuestions<T>(VecDeque<OpenQuestion<T>>);

impl<T> Default for OpenQuestions<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> OpenQuestions<T> {
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
        } else if self.is_full() {
            return None;
        } else {
            self.0.push_back(OpenQuestion { question, closed: closed.clone(), state });
        }
        Some(closed)
    }

    /// Removes the question with this id. Returns false if it is not open.
    pub fn close(&mut self, id: &Value) -> bool {
        let before = self.0.len();
        self.0.retain(|open| open.question.id != *id);
        self.0.len() < before
    }

    /// Removes all questions.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns true if no further question is added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        MAX_OPEN <= self.0.len()
    }

    /// Returns the question with this id.
    pub fn get_mut(&mut self, id: &Value) -> Option<&mut OpenQuestion<T>> {
        self.0.iter_mut().find(|open| open.question.id == *id)
    }

    /// Returns the oldest question.
    #[must_use]
    pub fn first(&self) -> Option<&OpenQuestion<T>> {
        self.0.front()
    }

    /// Returns the oldest question, for changes of its state.
    pub fn first_mut(&mut self) -> Option<&mut OpenQuestion<T>> {
        self.0.front_mut()
    }

    /// Removes the oldest question.
    pub fn remove_first(&mut self) {
        self.0.pop_front();
    }

    /// Removes the questions for which `keeps` is false.
    pub fn retain(&mut self, keeps: impl FnMut(&OpenQuestion<T>) -> bool) {
        self.0.retain(keeps);
    }

    /// Returns the questions, the oldest first.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut OpenQuestion<T>> {
        self.0.iter_mut()
    }
}
