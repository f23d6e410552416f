//! The questions of a session: requests to the client, and their answers.

use super::{REPLY_TIMEOUT, Shared};
use crate::lock;
use crate::permissions::{self, Told};
use quackd_client::{Answer, Client, Question};
use quackd_protocol::approval::{AnswerScope, Decision};
use quackd_protocol::client::AnswerParams;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Open questions of one session. Further ones are not shown.
const MAX_QUESTIONS: usize = 64;

impl Shared {
    /// Asks the client, in a task. The first answer of any client counts.
    pub(super) async fn ask(self: &Arc<Self>, question: Question, client: &Arc<Client>) {
        let is_shown = question.call().is_some_and(|call| lock(&self.translator).is_open(call));
        let asked = permissions::asked(&question, self.facts.has_forms, is_shown);
        let closed = CancellationToken::new();
        let is_known = {
            let mut questions = lock(&self.questions);
            let is_known = questions.contains_key(&question.key());
            if !is_known && questions.len() < MAX_QUESTIONS && asked.is_some() {
                questions.insert(question.key(), closed.clone());
            }
            is_known
        };
        if is_known {
            return;
        }

        let is_open = lock(&self.questions).contains_key(&question.key());
        let Some(asked) = asked.filter(|_| is_open) else {
            return self.not_shown(&question, client).await;
        };
        let Some(mut pending) = self.peer.request(asked.method, asked.params).await else {
            // The client is gone, but other clients may still answer.
            self.forget(&question);
            return self.not_shown(&question, client).await;
        };

        let (shared, client) = (Arc::clone(self), Arc::clone(client));
        tokio::spawn(async move {
            let result = tokio::select! {
                result = pending.answer() => result,
                () = closed.cancelled() => return pending.cancel(&shared.peer).await,
            };
            shared.forget(&question);
            match result {
                Some(Ok(result)) => {
                    reply(&client, &question, permissions::told(&question, &result)).await;
                }
                Some(Err(_)) | None => shared.not_shown(&question, &client).await,
            }
        });
    }

    /// Cancels a question that the client does not show, if the client's own prompt is running. Otherwise another client
    /// may answer.
    async fn not_shown(&self, question: &Question, client: &Client) {
        if lock(&self.translator).is_prompting {
            reply(client, question, Told::Answer(Answer::Cancelled)).await;
        }
    }

    fn forget(&self, question: &Question) {
        lock(&self.questions).remove(&question.key());
    }

    /// Withdraws a question that has ended.
    pub(super) fn closed(&self, text: &str) {
        #[derive(Deserialize)]
        struct Closed {
            id: Value,
        }
        let Ok(Closed { id }) = serde_json::from_str(text) else { return };
        let key = id.as_str().map_or_else(|| id.to_string(), ToOwned::to_owned);
        if let Some(closed) = lock(&self.questions).remove(&key) {
            closed.cancel();
        }
    }
}

/// Passes an answer on. A refusal means that another client was first or the question has timed out.
async fn reply(client: &Client, question: &Question, outcome: Told) {
    match outcome {
        Told::Answer(answer) => {
            client.call_within(question.reply(answer), REPLY_TIMEOUT).await.ok();
        }
        Told::DenySession => {
            let params = AnswerParams {
                id: question.key(),
                decision: Decision::Deny,
                scope: Some(AnswerScope::Session),
            };
            client.call_within(params, REPLY_TIMEOUT).await.ok();
        }
    }
}
