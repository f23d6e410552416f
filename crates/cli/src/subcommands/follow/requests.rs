//! Requests sent while a session is followed, each a future that returns its result. Used by [`super::session_view`].

use super::slash::Asked;
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
    Agent(Asked, Result<Value, ClientError>),
    /// A command of the prompt has ended.
    Ran(Result<(), String>),
    /// The app's voice has started or is starting.
    Voice,
    /// The app is not connected.
    NoVoice,
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

impl Prompt {
    /// Creates a prompt without more.
    pub(super) fn plain(message: String) -> Self {
        Self { message, ..Self::default() }
    }

    fn is_plain(&self) -> bool {
        self.images.is_empty() && self.schema.is_none() && self.joins.is_none()
    }
}

/// Sends a prompt that is more than a message.
async fn say_more(
    client: Arc<Client>,
    session: String,
    cwd: Option<String>,
    prompt: Prompt,
    limit: Duration,
) -> RequestResult {
    let Prompt { message, images, schema, joins } = prompt;
    let fields = [
        ("type", Some(json!("prompt"))),
        ("message", Some(json!(message))),
        ("images", (!images.is_empty()).then(|| json!(images))),
        ("outputSchema", schema),
        ("streamingBehavior", joins.map(Value::from)),
        ("cwd", cwd.map(Value::from)),
    ];

    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let command = Value::Object(fields.collect());

    match ask_agent(&client, session, command, limit).await {
        Ok(data) if data.get("disposition").and_then(Value::as_str) == Some("queued") => {
            RequestResult::Queued
        }
        reply => RequestResult::Said(reply.map(|data| data.get("turn").and_then(Value::as_u64))),
    }
}

/// Sends a prompt to the session's agent, and waits until the agent accepts or refuses it.
pub(super) async fn say(
    client: Arc<Client>,
    session: String,
    cwd: Option<String>,
    prompt: Prompt,
    limit: Duration,
) -> RequestResult {
    if !prompt.is_plain() {
        return say_more(client, session, cwd, prompt, limit).await;
    }

    let message = prompt.message;
    let params = SayParams {
        cwd,
        message: Value::from(message),
        session_id: Value::from(session),
        prefer_pi: Value::Bool(true),
    };

    let reply = client.call_within(params, limit).await;
    RequestResult::Said(reply.map(|data| data.turn))
}

/// Sends a prompt while a turn runs: the agent reads it before its next step. If the turn has just ended, it begins one.
pub(super) async fn steer(
    client: Arc<Client>,
    session: String,
    cwd: Option<String>,
    message: String,
) -> RequestResult {
    let mut command = json!({"type": "prompt", "message": message, "streamingBehavior": "steer"});
    if let (Some(fields), Some(cwd)) = (command.as_object_mut(), cwd) {
        fields.insert("cwd".to_owned(), Value::from(cwd));
    }
    RequestResult::Said(ask_agent(&client, session, command, SAY_LIMIT).await.map(|_data| None))
}

/// Sends a command to the session's agent. `purpose` decides what is done with the reply.
pub(super) async fn agent(
    client: Arc<Client>,
    session: String,
    command: Value,
    purpose: Asked,
) -> RequestResult {
    let limit = if purpose == Asked::Compact { COMPACT_LIMIT } else { REPLY_TIMEOUT };
    RequestResult::Agent(purpose, ask_agent(&client, session, command, limit).await)
}

pub(crate) async fn ask_agent(
    client: &Client,
    session: String,
    command: Value,
    limit: Duration,
) -> Result<Value, ClientError> {
    let params = AgentParams { session_id: Value::from(session), command };
    let answer = client.call_within(params, limit).await?;
    let text = answer.data.as_deref().map_or("null", serde_json::value::RawValue::get);
    Ok(serde_json::from_str(text).unwrap_or(Value::Null))
}

/// Runs a command in the session. Its output arrives as events.
pub(super) async fn shell(
    client: Arc<Client>,
    session: String,
    cwd: Option<String>,
    command: String,
) -> RequestResult {
    let params = ToolParams {
        session_id: Some(session),
        cwd,
        no_deadline: Some(true),
        answers: Some(true),
        ..BashArguments::builder().command(command).into()
    };
    let ran = client.call_within(params, SHELL_LIMIT).await;
    RequestResult::Ran(ran.map(drop).map_err(|error| error.to_string()))
}

/// Requests the state of the session. `None` if the request fails.
pub(super) async fn state(client: Arc<Client>, session: String) -> Option<Box<StateData>> {
    client.call(StateParams::of(session)).await.ok().map(Box::new)
}

/// Takes back the prompts that the agent has not read.
pub(super) async fn take_back(client: Arc<Client>, session: String) -> RequestResult {
    let command = json!({"type": "clear_queue"});
    let taken = ask_agent(&client, session, command, REPLY_TIMEOUT).await.unwrap_or(Value::Null);
    let texts = ["steering", "followUp"].into_iter().filter_map(|key| taken.get(key)?.as_array());
    let texts = texts.flatten().filter_map(Value::as_str).map(str::to_owned);
    RequestResult::Unread(texts.collect())
}

/// Answers a question of Pi.
pub(super) async fn answer(
    client: Arc<Client>,
    session: String,
    answer: UiResponseParams,
    record: Option<String>,
) -> RequestResult {
    let params = UiResponseParams { session_id: Value::from(session), ..answer };
    let reply = client.call(params).await;
    RequestResult::Answered(reply.map(|_data| record))
}

/// Aborts the session's running work.
pub(super) async fn abort(client: Arc<Client>, session: String) -> RequestResult {
    // Having nothing to abort is fine.
    let _nothing = client.call(AbortParams::of(session)).await;
    RequestResult::Aborted
}

/// Checks whether the session's Pi is busy.
pub(super) async fn look(client: Arc<Client>, session: String) -> RequestResult {
    let state = StateParams::of(session.as_str());
    let (ps, state) = tokio::join!(client.call(PsParams {}), client.call(state));
    let worker = ps
        .ok()
        .and_then(|ps| ps.workers.into_iter().find(|worker| worker.session_id.as_str() == session));
    let busy = worker.and_then(|worker| worker.pi).map(|pi| pi.busy);
    let state = state.ok().and_then(|state| state.pi_state);
    let streams = state.as_ref().and_then(|state| state.get("isStreaming")?.as_bool());
    RequestResult::Looked { busy, streams }
}

/// Starts the app's voice. Waits briefly for an app that is about to connect.
pub(super) async fn voice(client: Arc<Client>, session: String) -> RequestResult {
    for tried in 0..VOICE_TRIES {
        if tried != 0 {
            sleep(VOICE_INTERVAL).await;
        }
        let params = VoiceStartParams { session_id: Value::from(session.as_str()) };
        let begun = client.call(params).await;
        if begun.map_or(true, |data| data.reason.as_deref() != Some(VOICE_ABSENT)) {
            return RequestResult::Voice;
        }
    }
    RequestResult::NoVoice
}
