//! The questions of a session: requests to the client, and their answers.

use super::{REPLY_TIMEOUT, Shared};
use crate::lock;
use crate::permissions::{self, QuestionReply};
use quackd_client::{Answer, Client, Question};
use quackd_protocol::approval::{AnswerScope, Decision};
use quackd_protocol::client::AnswerParams;
use std::sync::Arc;

impl Shared {
    /// Asks the client, in a task. The first answer of any client counts.
    pub(super) async fn ask(self: &Arc<Self>, question: Question, client: &Arc<Client>) {
        let is_shown = question.call().is_some_and(|call| lock(&self.translator).is_open(call));
        let request = permissions::request(&question, self.facts.has_forms, is_shown);
        let question = Arc::new(question);
        let closed =
            request.as_ref().and_then(|_| lock(&self.questions).open(Arc::clone(&question), ()));
        // A second copy of an open question.
        if closed.is_none() && lock(&self.questions).get_mut(&question.id).is_some() {
            return;
        }

        // The client has no form for it, or the table is full.
        let (Some(request), Some(closed)) = (request, closed) else {
            return self.not_shown(&question, client).await;
        };
        let Some(mut pending) = self.peer.request(request.method, request.params).await else {
            // The client is gone, but other clients may still answer.
            lock(&self.questions).close(&question.id);
            return self.not_shown(&question, client).await;
        };

        let (shared, client) = (Arc::clone(self), Arc::clone(client));
        tokio::spawn(async move {
            let result = tokio::select! {
                biased;
                () = closed.cancelled() => return pending.cancel(&shared.peer).await,
                result = pending.answer() => result,
            };
            // An answer to the text of a question that was replaced must not answer the new one.
            if !lock(&shared.questions).close_exactly(&question) {
                return;
            }
            match result {
                Some(Ok(result)) => {
                    send(&client, &question, permissions::reply(&question, &result)).await;
                }
                Some(Err(_)) | None => shared.not_shown(&question, &client).await,
            }
        });
    }

    /// Cancels a question that the client does not show, if the client's own prompt is running. Otherwise another client
    /// may answer.
    async fn not_shown(&self, question: &Question, client: &Client) {
        if lock(&self.translator).is_prompting {
            send(client, question, QuestionReply::Answer(Answer::Cancelled)).await;
        }
    }
}

/// Passes a reply on to the daemon.
async fn send(client: &Client, question: &Question, reply: QuestionReply) {
    // A refusal means that another client was first or the question has timed out.
    match reply {
        QuestionReply::Answer(answer) => {
            client.call_within(question.reply(answer), REPLY_TIMEOUT).await.ok();
        }
        QuestionReply::DenySession => {
            let params = AnswerParams {
                id: question.key(),
                decision: Decision::Deny,
                scope: Some(AnswerScope::Session),
            };
            client.call_within(params, REPLY_TIMEOUT).await.ok();
        }
    }
}
