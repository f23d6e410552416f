//! Requests sent while a session is followed, each a future that returns its result. Used by [`super::session_view`].

use crate::connect::REPLY_TIMEOUT;
use quackd_client::{Client, ClientError};
use quackd_protocol::client::{
    AbortData, PsData, SayData, SayParams, SessionParams, StateData, UiResponseData,
    UiResponseParams, VoiceStartData, VoiceStartParams,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Timeout for Pi to accept a prompt. Pi may have to start, and has 30 s to answer.
pub(super) const SAY_LIMIT: Duration = Duration::from_secs(75);

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
    /// Whether the daemon accepted an answer to a question, with the record of one about a permission.
    Answered(Result<Option<String>, ClientError>),
    /// The turn was aborted, or no turn was running.
    Aborted,
    /// State of Pi: `busy` as reported by the daemon, `streams` as reported by Pi.
    Looked { busy: Option<bool>, streams: Option<bool> },
    /// The app's voice has started or is starting.
    Voice,
    /// The app is not connected.
    NoVoice,
}

/// Sends a prompt to the session's Pi.
pub(super) async fn say(
    client: Arc<Client>,
    (session, cwd): (String, Option<String>),
    message: String,
    limit: Duration,
) -> RequestResult {
    let params = SayParams {
        cwd,
        message: Value::from(message),
        session_id: Value::from(session),
        prefer_pi: Value::Bool(true),
    };
    let said = client.request::<_, SayData>("say", params, limit).await;
    RequestResult::Said(said.map(|data| data.turn))
}

/// Answers a question of Pi.
pub(super) async fn answer(
    client: Arc<Client>,
    session: String,
    answer: UiResponseParams,
    record: Option<String>,
) -> RequestResult {
    let params = UiResponseParams { session_id: Value::from(session), ..answer };
    let told =
        client.request::<_, UiResponseData>("extension_ui_response", params, REPLY_TIMEOUT).await;
    RequestResult::Answered(told.map(|_data| record))
}

/// Aborts the session's running work.
pub(super) async fn abort(client: Arc<Client>, session: String) -> RequestResult {
    let params = SessionParams { session_id: Some(session) };
    // Having nothing to abort is fine.
    let _nothing = client.request::<_, AbortData>("abort", params, REPLY_TIMEOUT).await;
    RequestResult::Aborted
}

/// Checks whether the session's Pi is busy.
pub(super) async fn look(client: Arc<Client>, session: String) -> RequestResult {
    let params = SessionParams { session_id: Some(session.clone()) };
    let (ps, state) = tokio::join!(
        client.request::<_, PsData>("quack.ps", json!({}), REPLY_TIMEOUT),
        client.request::<_, StateData>("get_state", params, REPLY_TIMEOUT),
    );
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
        let begun = client.request::<_, VoiceStartData>("voice_start", params, REPLY_TIMEOUT).await;
        if begun.map_or(true, |data| data.reason.as_deref() != Some(VOICE_ABSENT)) {
            return RequestResult::Voice;
        }
    }
    RequestResult::NoVoice
}
