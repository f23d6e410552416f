//! Calls that wait for the user between two requests of the agent, for revision 2026-07-28.
//!
//! In this revision a server sends no requests. A call with a question is answered with the question, and goes on in
//! the daemon. The agent calls again with the answer and the state that names the call, and gets the call's result.

use crate::daemon_link::{CallOutput, DaemonLink, LinkError, REPLY_TIMEOUT};
use crate::lock;
use crate::questions::{self, TakenQuestion};
use crate::results::Reply;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quackd_client::ClientError;
use rmcp::model::{
    ElicitRequest, ElicitResult, ElicitationAction, ErrorData, InputRequest, InputRequiredResult,
    InputResponses,
};
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Parked calls of one agent. More than its 24 calls that can run.
const MAX_PARKED: usize = 32;

/// Length of a state in random bytes.
const STATE_BYTES: usize = 16;

/// A call that runs in the daemon.
#[derive(Debug)]
pub(crate) struct StartedCall {
    pub(crate) id: String,
    pub(crate) session: String,
    pub(crate) link: Arc<DaemonLink>,
    pub(crate) output: Arc<CallOutput>,
    /// Cancels the call in the daemon.
    pub(crate) cancel: CancellationToken,
    pub(crate) reply: AbortOnDropHandle<Result<Reply, ClientError>>,
    /// Maximum time that the call runs, without its questions.
    pub(crate) deadline: Duration,
    /// The questions that the agent has.
    pub(crate) questions: Vec<TakenQuestion>,
}

impl StartedCall {
    /// Waits for the end of the call. `None` if the user is asked first ([`Self::questions`]) and the agent takes
    /// questions.
    pub(crate) async fn wait(
        &mut self,
        takes_questions: bool,
        agent: &CancellationToken,
    ) -> Option<Result<Reply, ClientError>> {
        let (link, id, session) = (Arc::clone(&self.link), self.id.clone(), self.session.clone());
        let questions = async {
            if takes_questions {
                let is_own = |id_of: &str| id_of == id || !link.is_running(id_of);
                let of = |call: Option<&str>| call.is_none_or(is_own);
                link.questions
                    .take(|question| {
                        question.session == session
                            && question.permission.is_some()
                            && of(question.call())
                    })
                    .await
            } else {
                std::future::pending().await
            }
        };

        tokio::select! {
            // A call that has ended needs no answer to its questions.
            biased;
            reply = &mut self.reply => return Some(ended(reply)),
            taken = questions => {
                self.questions = taken;
                return None;
            }
            () = agent.cancelled() => {}
        }

        self.cancel.cancel();
        // The result of a canceled call is awaited, so that it is not lost.
        Some(ended((&mut self.reply).await))
    }

    /// Answers the questions that the agent has. A question without an answer is asked again.
    pub(crate) async fn answer(&mut self, mut answers: InputResponses) {
        for TakenQuestion { question, closed } in std::mem::take(&mut self.questions) {
            // An answer to a question that was replaced must not answer the new one with its id.
            if closed.is_cancelled() {
                continue;
            }
            let Some(result) = answers.remove(&question.key()) else {
                self.link.questions.put_back(&question);
                continue;
            };

            // A result of another form is no permission.
            let declined = || ElicitResult::new(ElicitationAction::Decline);
            let result = serde_json::from_value(result).unwrap_or_else(|_| declined());

            let answer = questions::answer(&question, &result);
            // A refusal means that another client was first or the question has timed out.
            let client = &self.link.client;
            client.call_within(answer, REPLY_TIMEOUT).await.ok();
        }
    }

    /// Returns the questions as forms, by their keys.
    fn forms(&self) -> impl Iterator<Item = (String, InputRequest)> {
        self.questions.iter().filter_map(|TakenQuestion { question, .. }| {
            let request = ElicitRequest::new(questions::form(question)?);
            Some((question.key(), InputRequest::Elicitation(request)))
        })
    }

    /// Returns the time for which the result is kept: the call's deadline, and the longest timeout
    /// of its questions.
    fn lifetime(&self) -> Duration {
        let timeouts = self.questions.iter().filter_map(|taken| taken.question.timeout);
        self.deadline + Duration::from_millis(timeouts.max().unwrap_or_default())
    }
}

fn ended<E>(reply: Result<Result<Reply, ClientError>, E>) -> Result<Reply, ClientError> {
    // The task panicked, which has already been reported.
    reply.unwrap_or(Err(ClientError::Disconnected))
}

/// The parked calls of one agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct ParkedCalls(Arc<Mutex<Vec<Parked>>>);

#[derive(Debug)]
struct Parked {
    /// Random, because another agent must not guess it.
    state: String,
    tool: String,
    arguments: Map<String, Value>,
    call: StartedCall,
    _expiry: AbortOnDropHandle<()>,
}

impl ParkedCalls {
    /// Keeps a call, and returns what the agent gets: the questions, and the state with which it calls again.
    pub(crate) fn park(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        call: StartedCall,
    ) -> Result<InputRequiredResult, LinkError> {
        let mut random = [0; STATE_BYTES];
        getrandom::fill(&mut random).map_err(|_| LinkError::NoRandom)?;
        let state = URL_SAFE_NO_PAD.encode(random);

        let forms = call.forms().collect();
        let (parked, key, lifetime) = (Arc::downgrade(&self.0), state.clone(), call.lifetime());
        let expiry = tokio::spawn(async move {
            sleep(lifetime).await;
            if let Some(all) = parked.upgrade() {
                let all = Self(all);
                // Outside of the lock, because this ends the task itself.
                let _expired = all.remove(|parked| parked.state == key);
            }
        });

        let expiry = AbortOnDropHandle::new(expiry);
        let tool = tool.to_owned();

        let mut all = lock(&self.0);
        if MAX_PARKED <= all.len() {
            // Fewer calls can run, so one has ended and its agent did not come back for the result.
            let at = all.iter().position(|parked| parked.call.reply.is_finished());
            all.remove(at.unwrap_or_default());
        }

        all.push(Parked { state: state.clone(), tool, arguments, call, _expiry: expiry });
        Ok(InputRequiredResult::new(Some(forms), Some(state)))
    }

    /// Returns the call that a state names. The agent must call the same tool with the same arguments.
    ///
    /// # Errors
    /// No call with this tool and these arguments waits with this state. Nothing has run.
    pub(crate) fn take(
        &self,
        state: &str,
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> Result<StartedCall, ErrorData> {
        let is_same = |parked: &Parked| {
            parked.state == state && parked.tool == tool && parked.arguments == *arguments
        };
        let unknown = "unknown requestState: no call with these arguments waits for an answer, or its time is over; nothing was run";
        self.remove(is_same)
            .map(|parked| parked.call)
            .ok_or_else(|| ErrorData::invalid_params(unknown, None))
    }

    fn remove(&self, is_wanted: impl Fn(&Parked) -> bool) -> Option<Parked> {
        let mut all = lock(&self.0);
        let at = all.iter().position(is_wanted)?;
        Some(all.remove(at))
    }
}
