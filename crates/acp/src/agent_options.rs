//! Options of the session's agent, such as its model, and its commands. An agent without them has no options.

use quackd_client::{Client, ClientError};
use quackd_protocol::client::{AgentParams, StateParams};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::time::Duration;

/// Timeout of a command of the agent, which may have to start.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout of a compaction, which is a request to the model.
const COMPACT_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum number of models that are offered.
const MAX_MODELS: usize = 1000;

/// Id of the option for the model.
pub(crate) const MODEL: &str = "model";

/// Id of the option for the level of thinking.
pub(crate) const THINKING: &str = "thinking";

/// The options of a session, as its agent last reported them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AgentOptions {
    models: Vec<Model>,
    model: Option<String>,
    levels: Vec<String>,
    level: Option<String>,
    /// Size of the model's context, in tokens.
    pub(crate) window: Option<u64>,
    /// Whether the agent has commands.
    pub(crate) has_commands: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Model {
    provider: String,
    id: String,
    name: String,
}

impl Model {
    fn of(model: &Value) -> Option<Self> {
        let text = |name: &str| model.get(name).and_then(Value::as_str);
        let (provider, id) = (text("provider")?.to_owned(), text("id")?.to_owned());
        let name = text("name").unwrap_or(&id).to_owned();
        Some(Self { provider, id, name })
    }

    fn value(&self) -> String {
        format!("{}/{}", self.provider, self.id)
    }
}

/// Sends a command to the session's agent. Starts the agent if necessary.
pub(crate) async fn command(
    client: &Client,
    session: &str,
    command: Value,
) -> Result<Value, ClientError> {
    let is_compaction = command.get("type").and_then(Value::as_str) == Some("compact");
    let limit = if is_compaction { COMPACT_TIMEOUT } else { COMMAND_TIMEOUT };
    let params = AgentParams { session_id: session.into(), command };
    let reply = client.call_within(params, limit).await?;
    let text = reply.data.as_deref().map_or("null", RawValue::get);
    Ok(serde_json::from_str(text).unwrap_or_default())
}

impl AgentOptions {
    /// Asks the agent for its options. Unsupported options are absent.
    pub(crate) async fn fetch(client: &Client, session: &str) -> Self {
        let ask = |kind: &'static str| command(client, session, json!({ "type": kind }));
        let Ok(models) = ask("get_available_models").await else { return Self::default() };
        let levels = ask("get_available_thinking_levels").await.unwrap_or_default();
        let state = match ask("get_state").await {
            Ok(state) => state,
            Err(_) => last_state(client, session).await,
        };
        Self::of(&models, &levels, &state)
    }

    fn of(models: &Value, levels: &Value, state: &Value) -> Self {
        let models = models.get("models").and_then(Value::as_array);
        let levels = levels.get("levels").and_then(Value::as_array);
        let level = |level: &Value| level.as_str().map(ToOwned::to_owned);
        let model = state.get("model");
        Self {
            models: models.into_iter().flatten().filter_map(Model::of).take(MAX_MODELS).collect(),
            model: model.and_then(Model::of).map(|model| model.value()),
            levels: levels.into_iter().flatten().filter_map(level).take(MAX_MODELS).collect(),
            level: state.get("thinkingLevel").and_then(level),
            window: model.and_then(|model| model.get("contextWindow")?.as_u64()),
            has_commands: true,
        }
    }

    /// Returns the options for the client, `None` without any.
    pub(crate) fn options(&self) -> Option<Value> {
        let option =
            |id: &str, name: &str, category: &str, current: &Option<String>, all: Vec<Value>| {
                let is_offered = |current: &&String| {
                    all.iter().any(|offered| offered["value"] == current.as_str())
                };
                // A select has a current value.
                let current = current.as_ref().filter(is_offered)?;
                Some(json!({"id": id, "name": name, "category": category, "type": "select",
                "currentValue": current, "options": all}))
            };

        let models = self.models.iter().map(|model| {
            json!({"value": model.value(), "name": model.name, "description": model.provider})
        });
        let levels = self.levels.iter().map(|level| json!({"value": level, "name": level}));

        let options: Vec<Value> = [
            option(MODEL, "Model", "model", &self.model, models.collect()),
            option(THINKING, "Thinking", "thought_level", &self.level, levels.collect()),
        ]
        .into_iter()
        .flatten()
        .collect();

        (!options.is_empty()).then(|| options.into())
    }

    /// Returns the command that sets an option. `None` if the option or the value is not offered.
    pub(crate) fn setting(&self, option: &str, value: &str) -> Option<Value> {
        match option {
            MODEL => {
                let model = self.models.iter().find(|model| model.value() == value)?;
                Some(json!({"type": "set_model", "provider": model.provider, "modelId": model.id}))
            }
            THINKING => {
                let level = self.levels.iter().find(|level| *level == value)?;
                Some(json!({"type": "set_thinking_level", "level": level}))
            }
            _ => None,
        }
    }

    /// Returns the update with the commands of the session.
    pub(crate) fn commands(&self) -> Value {
        let compact = json!({"name": "compact", "description": "Summarize the conversation to free context",
            "input": {"hint": "what the summary must keep"}});
        let undo =
            json!({"name": "undo", "description": "Take back what the last turn changed in files"});
        let commands = if self.has_commands { vec![compact, undo] } else { Vec::new() };
        json!({"sessionUpdate": "available_commands_update", "availableCommands": commands})
    }
}

/// Returns the last state that the session's agent reported. Starts nothing.
pub(crate) async fn last_state(client: &Client, session: &str) -> Value {
    let state = client.call_within(StateParams::of(session), COMMAND_TIMEOUT).await;
    state.ok().and_then(|state| state.pi_state).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_has_a_current_value_and_takes_only_offered_ones() {
        let models = json!({"models": [{"provider": "p", "id": "a/b", "name": "AB"}, {"id": "broken"}, {"provider": "q", "id": "c"}]});
        let levels = json!({"levels": ["off", "high"]});
        let state = json!({"model": {"provider": "p", "id": "a/b", "contextWindow": 1000}, "thinkingLevel": "off"});
        let all = AgentOptions::of(&models, &levels, &state);
        let options = all.options().unwrap();
        assert_eq!(options[0]["currentValue"], "p/a/b");
        assert_eq!(
            options[0]["options"][1],
            json!({"value": "q/c", "name": "c", "description": "q"})
        );
        assert_eq!(
            (&options[1]["id"], &options[1]["category"]),
            (&json!("thinking"), &json!("thought_level"))
        );
        assert_eq!(all.window, Some(1000));
        assert_eq!(all.setting("model", "p/a/b").unwrap()["modelId"], "a/b");
        assert_eq!(all.setting("model", "p/x"), None);
        assert_eq!(all.setting("thinking", "max"), None);
        assert_eq!(all.setting("mood", "high"), None);
        assert_eq!(AgentOptions::of(&models, &Value::Null, &Value::Null).options(), None);
        assert_eq!(AgentOptions::default().options(), None);
    }
}
