//! Tools and prompts that ask the client for input before they answer, possibly several times.
//!
//! The state that the client sends back is only a name for what the server keeps, so that a changed one is refused.

use crate::fixtures::{Fixtures, parsed};
use rmcp::model::{
    ClientCapabilities, ErrorData, InputRequest, InputRequests, InputRequiredResult, InputResponses,
};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use tokio::sync::Mutex;

/// The answer of a tool that asks.
pub(crate) enum Round {
    /// It needs these inputs.
    Ask(InputRequiredResult),
    /// It has all its inputs.
    Done(Value),
}

/// The rounds that each state waits for.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Mutex<HashMap<String, usize>>);

impl Rounds {
    /// Plays one round of the tool or prompt. `None` if it asks for nothing.
    pub(crate) async fn play(
        &self,
        fixtures: &Fixtures,
        name: &str,
        given: (Option<InputResponses>, Option<String>),
        client: &ClientCapabilities,
    ) -> Option<Result<Round, ErrorData>> {
        let rounds: Vec<Map<String, Value>> = parsed(fixtures.get("rounds", name)?.clone()).ok()?;
        Some(self.answer(fixtures, &rounds, given, client).await)
    }

    async fn answer(
        &self,
        fixtures: &Fixtures,
        rounds: &[Map<String, Value>],
        (responses, state): (Option<InputResponses>, Option<String>),
        client: &ClientCapabilities,
    ) -> Result<Round, ErrorData> {
        let mut states = self.0.lock().await;
        let mut number = match &state {
            Some(state) => *states
                .get(state)
                .ok_or_else(|| ErrorData::invalid_params("the request state was changed", None))?,
            None => 0,
        };
        let responses = responses.unwrap_or_default();
        let is_answered = |key: &String| responses.get(key).is_some_and(Value::is_object);
        if rounds.get(number).is_some_and(|wanted| wanted.keys().all(is_answered)) {
            number += 1;
        }
        let Some(wanted) = rounds.get(number) else { return Ok(Round::Done(json!(responses))) };
        let requests = allowed(requests(fixtures, wanted)?, client)?;
        let state = format!("round-{number}-of-{}", states.len());
        states.insert(state.clone(), number);
        Ok(Round::Ask(InputRequiredResult::new(Some(requests), Some(state))))
    }
}

/// Returns the requests that these keys name.
pub(crate) fn requests(
    fixtures: &Fixtures,
    wanted: &Map<String, Value>,
) -> Result<InputRequests, ErrorData> {
    let request = |(key, name): (&String, &Value)| {
        let request = fixtures.get("requests", name.as_str().unwrap_or_default());
        Ok((key.clone(), parsed(request.cloned().unwrap_or_default())?))
    };
    wanted.iter().map(request).collect()
}

/// Leaves out what the client cannot answer.
///
/// # Errors
/// The client can answer none.
fn allowed(
    requests: InputRequests,
    client: &ClientCapabilities,
) -> Result<InputRequests, ErrorData> {
    let needed = |request: &InputRequest| match request {
        InputRequest::CreateMessage(_) => "sampling",
        InputRequest::Elicitation(_) => "elicitation",
        _ => "roots",
    };
    let declared = json!(client);
    let all: Map<String, Value> =
        requests.values().map(|request| (needed(request).to_owned(), json!({}))).collect();
    let allowed: InputRequests = requests
        .into_iter()
        .filter(|(_, request)| declared.get(needed(request)).is_some())
        .collect();
    if allowed.is_empty() {
        Err(ErrorData::missing_required_client_capability(parsed(Value::Object(all))?))
    } else {
        Ok(allowed)
    }
}
