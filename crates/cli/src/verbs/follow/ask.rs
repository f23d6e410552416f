//! The requests that go beside the events of a session, each a future that ends with what came of it. Used by
//! [`super::live`].

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

/// Longest wait for Pi to take what was typed: it may have to be started, and has 30 s for the answer itself.
pub(super) const SAY_LIMIT: Duration = Duration::from_secs(75);

/// How often, and how many times, the app's voice is asked to begin while the app is not there, as upstream has it.
const VOICE_INTERVAL: Duration = Duration::from_millis(250);
const VOICE_TRIES: u32 = 12;
const VOICE_ABSENT: &str = "voice_not_connected";

/// What a person is told if it did not come, in upstream's words.
pub(super) const NO_VOICE: &str =
    "Rubber Duck app is not connected. Press Option+D in the app to start voice.";

/// What came of a request.
#[derive(Debug)]
pub(super) enum Done {
    /// Pi has accepted what was said, after this event if the daemon says so; or not.
    Said(Result<Option<u64>, ClientError>),
    /// An answer to a question was taken, or not.
    Answered(Result<(), ClientError>),
    /// The turn was aborted, or there was none.
    Aborted,
    /// What is known of Pi: whether it is busy, as the daemon says, and whether it streams, as it says itself.
    Looked { busy: Option<bool>, streams: Option<bool> },
    /// The app's voice has begun, or is under way.
    Voice,
    /// The app is not there.
    NoVoice,
}

/// Says something to the session's Pi.
pub(super) async fn say(
    client: Arc<Client>,
    session: String,
    message: String,
    limit: Duration,
) -> Done {
    let params = SayParams {
        message: Value::from(message),
        session_id: Value::from(session),
        prefer_pi: Value::Bool(true),
    };
    let said = client.request::<_, SayData>("say", params, limit).await;
    Done::Said(said.map(|data| data.seq))
}

/// Answers a question of Pi's.
pub(super) async fn answer(client: Arc<Client>, session: String, answer: UiResponseParams) -> Done {
    let params = UiResponseParams { session_id: Value::from(session), ..answer };
    let told =
        client.request::<_, UiResponseData>("extension_ui_response", params, REPLY_TIMEOUT).await;
    Done::Answered(told.map(|_data| ()))
}

/// Aborts what the session does.
pub(super) async fn abort(client: Arc<Client>, session: String) -> Done {
    let params = SessionParams { session_id: Some(session) };
    // That there is nothing to abort is as good.
    let _nothing = client.request::<_, AbortData>("abort", params, REPLY_TIMEOUT).await;
    Done::Aborted
}

/// Looks whether the session's Pi does something.
pub(super) async fn look(client: Arc<Client>, session: String) -> Done {
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
    Done::Looked { busy, streams }
}

/// Asks the app's voice to begin; waits a moment for an app that is about to connect.
pub(super) async fn voice(client: Arc<Client>, session: String) -> Done {
    for tried in 0..VOICE_TRIES {
        if tried != 0 {
            sleep(VOICE_INTERVAL).await;
        }
        let params = VoiceStartParams { session_id: Value::from(session.as_str()) };
        let begun = client.request::<_, VoiceStartData>("voice_start", params, REPLY_TIMEOUT).await;
        if begun.map_or(true, |data| data.reason.as_deref() != Some(VOICE_ABSENT)) {
            return Done::Voice;
        }
    }
    Done::NoVoice
}
