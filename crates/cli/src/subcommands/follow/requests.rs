//! Requests sent while a session is followed, each a future that returns its result. Used by [`super::session_view`].

use super::slash::AgentRequest;
use quackd_client::{Client, ClientError};
use quackd_protocol::client::{
    AbortParams, AgentParams, PsParams, SayParams, StateData, StateParams, ToolParams,
    UiResponseParams, VoiceStartParams,
};
use quackd_protocol::limits::REPLY_TIMEOUT;
use quackd_protocol::tools::BashArguments;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Timeout for Pi to accept a prompt. Pi may have to start, and has 30 s to answer.
pub(super) const SAY_LIMIT: Duration = Duration::from_secs(75);

/// Timeout for a summary, which the model writes.
const COMPACT_LIMIT: Duration = Duration::from_secs(300);

/// Timeout for a command of the prompt, which has no deadline in the session.
const SHELL_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Interval and number of attempts to start the app's voice while the app is not connected, the same as upstream's.
const VOICE_INTERVAL: Duration = Duration::from_millis(250);
const VOICE_TRIES: u32 = 12;
const VOICE_ABSENT: &str = "voice_not_connected";

/// Message if the app did not connect, in upstream's words.
pub(super) const NO_VOICE: &str =
    "Rubber Duck app is not connected. Press Option+D in the app to start voice.";

/// Result of a request.
#[derive(Debug)]
pub(super) enum RequestResult {
    /// Whether Pi accepted the prompt, with the id of its turn unless it was handled without one.
    Said(Result<Option<u64>, ClientError>),
    /// The running turn gets the prompt.
    Queued,
    /// Whether the daemon accepted an answer to a question, with the record of one about a permission.
    Answered(Result<Option<String>, ClientError>),
    /// The turn was aborted, or no turn was running.
    Aborted,
    /// State of Pi: `busy` as reported by the daemon, `streams` as reported by Pi.
    Looked { busy: Option<bool>, streams: Option<bool> },
    /// State of the session, for the last row of the prompt.
    State(Box<StateData>),
    /// Prompts that the agent had not read when the turn ended.
    Unread(Vec<String>),
    /// The answer of the agent to a command of the prompt.
    Agent(AgentRequest, Result<Value, ClientError>),
    /// A command of the prompt has ended.
    Ran(Result<(), String>),
    /// The app is not connected.
    NoVoice,
    /// The result changes nothing in the view.
    Nothing,
}

/// A prompt with what belongs to it.
#[derive(Debug, Default)]
pub(crate) struct Prompt {
    pub(crate) message: String,
    /// Images, as the agent's `prompt` has them.
    pub(crate) images: Vec<Value>,
    /// JSON schema of the answer.
    pub(crate) schema: Option<Value>,
    /// `steer` or `followUp`: it joins a running turn.
    pub(crate) joins: Option<&'static str>,
}

/// The session to which requests are sent, and its connection.
#[derive(Debug)]
pub(super) struct RequestTarget {
    pub(super) client: Arc<Client>,
    /// Id of the session.
    pub(super) session: String,
    /// Directory from which prompts are sent, if it is not the workspace.
    pub(super) cwd: Option<String>,
}

impl RequestTarget {
    /// Sends a prompt to the session's agent, and waits until the agent accepts or refuses it.
    pub(super) async fn say(self, prompt: Prompt, limit: Duration) -> RequestResult {
        let Prompt { message, images, schema, joins } = prompt;
        // `say` has no field for more than a message.
        if images.is_empty() && schema.is_none() && joins.is_none() {
            let params = SayParams {
                cwd: self.cwd,
                message: Value::from(message),
                session_id: Value::from(self.session),
                prefer_pi: Value::Bool(true),
            };
            let reply = self.client.call_within(params, limit).await;
            return RequestResult::Said(reply.map(|data| data.turn));
        }

        let fields = [
            ("type", Some(json!("prompt"))),
            ("message", Some(json!(message))),
            ("images", (!images.is_empty()).then(|| json!(images))),
            ("outputSchema", schema),
            ("streamingBehavior", joins.map(Value::from)),
            ("cwd", self.cwd.map(Value::from)),
        ];
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let command = Value::Object(fields.collect());

        match ask_agent(&self.client, self.session, command, limit).await {
            Ok(data) if data.get("disposition").and_then(Value::as_str) == Some("queued") => {
                RequestResult::Queued
            }
            reply => {
                RequestResult::Said(reply.map(|data| data.get("turn").and_then(Value::as_u64)))
            }
        }
    }

    /// Sends a command to the session's agent. `purpose` decides what is done with the reply.
    pub(super) async fn agent(self, command: Value, purpose: AgentRequest) -> RequestResult {
        let limit = if purpose == AgentRequest::Compact { COMPACT_LIMIT } else { REPLY_TIMEOUT };
        let reply = ask_agent(&self.client, self.session, command, limit).await;
        RequestResult::Agent(purpose, reply)
    }

    /// Runs a command in the session. Its output arrives as events.
    pub(super) async fn shell(self, command: String) -> RequestResult {
        let params = ToolParams {
            session_id: Some(self.session),
            cwd: self.cwd,
            no_deadline: Some(true),
            // This client shows the session's questions, so the command may wait for an answer.
            answers: Some(true),
            ..BashArguments::builder().command(command).into()
        };
        let ran = self.client.call_within(params, SHELL_LIMIT).await;
        RequestResult::Ran(ran.map(drop).map_err(|error| error.to_string()))
    }

    /// Requests the state of the session.
    pub(super) async fn state(self) -> RequestResult {
        let state = self.client.call(StateParams::of(self.session)).await;
        // Without a state, the last row stays as it is.
        state.map_or(RequestResult::Nothing, |state| RequestResult::State(Box::new(state)))
    }

    /// Takes back the prompts that the agent has not read.
    pub(super) async fn take_back(self) -> RequestResult {
        let command = json!({"type": "clear_queue"});
        let queue = ask_agent(&self.client, self.session, command, REPLY_TIMEOUT).await;
        RequestResult::Unread(queued_texts(&queue.unwrap_or_default()))
    }

    /// Answers a question of Pi.
    pub(super) async fn answer(
        self,
        answer: UiResponseParams,
        record: Option<String>,
    ) -> RequestResult {
        let params = UiResponseParams { session_id: Value::from(self.session), ..answer };
        let reply = self.client.call(params).await;
        RequestResult::Answered(reply.map(|_data| record))
    }

    /// Aborts the session's running work.
    pub(super) async fn abort(self) -> RequestResult {
        // Having nothing to abort is fine.
        self.client.call(AbortParams::of(self.session)).await.ok();
        RequestResult::Aborted
    }

    /// Checks whether the session's Pi is busy.
    pub(super) async fn look(self) -> RequestResult {
        let state = StateParams::of(self.session.as_str());
        let (ps, state) = tokio::join!(self.client.call(PsParams {}), self.client.call(state));
        let workers = ps.map(|ps| ps.workers).unwrap_or_default();
        let worker = workers.into_iter().find(|worker| worker.session_id.0 == self.session);
        let busy = worker.and_then(|worker| worker.pi).map(|pi| pi.busy);
        let state = state.ok().and_then(|state| state.pi_state);
        let streams = state.as_ref().and_then(|state| state.get("isStreaming")?.as_bool());
        RequestResult::Looked { busy, streams }
    }

    /// Starts the app's voice. Waits briefly for an app that is about to connect.
    pub(super) async fn voice(self) -> RequestResult {
        for attempt in 0..VOICE_TRIES {
            if attempt != 0 {
                sleep(VOICE_INTERVAL).await;
            }

            // Every other reply is final: the voice has started, or cannot start.
            let params = VoiceStartParams { session_id: Value::from(self.session.as_str()) };
            let reply = self.client.call(params).await;
            if reply.map_or(true, |data| data.reason.as_deref() != Some(VOICE_ABSENT)) {
                return RequestResult::Nothing;
            }
        }
        RequestResult::NoVoice
    }
}

/// Sends a command to a session's agent. Returns the data of its reply.
pub(crate) async fn ask_agent(
    client: &Client,
    session: String,
    command: Value,
    limit: Duration,
) -> Result<Value, ClientError> {
    let params = AgentParams { session_id: Value::from(session), command };
    let reply = client.call_within(params, limit).await?;
    let text = reply.data.as_deref().map_or("null", serde_json::value::RawValue::get);
    // Too deeply nested JSON counts as no data.
    Ok(serde_json::from_str(text).unwrap_or(Value::Null))
}

/// Returns the prompts of an agent's queue, in the order in which the agent reads them.
pub(super) fn queued_texts(queue: &Value) -> Vec<String> {
    let lists = ["steering", "followUp"].into_iter().filter_map(|key| queue.get(key)?.as_array());
    lists.flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
