//! Commands of clients, with the names, members and texts of Pi's protocol.

use super::agent::QueueMode;
use super::attachments::images;
use super::instructions::Instructions;
use super::run::user_message;
use super::run_state::Phase;
use super::{Agent, Effect};
use crate::compaction;
use crate::message::{Message, UserMessage};
use crate::providers::{StreamEnd, clamp, levels};
use crate::transcript::EntryKind;
use quackd_protocol::agent::{AgentCommand, EventName, OtherCommand};
use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::limits::{MAX_AGENT_ANSWER_BYTES, MAX_AGENT_EVENT_BYTES};
use quackd_protocol::model::ThinkingLevel;
use quackd_protocol::shorten::shorten;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Maximum number of messages in both queues together.
pub(super) const MAX_QUEUED: usize = 64;

/// Maximum number of messages and entries in one answer. A client reads the session file for more.
const MAX_LISTED: usize = 2_000;

/// Maximum size of messages and entries in one answer, in bytes. The rest of
/// [`MAX_AGENT_ANSWER_BYTES`] is for its other members.
const MAX_LISTED_BYTES: usize = MAX_AGENT_ANSWER_BYTES - 64 * 1024;

const NO_MESSAGE: &str = "The message is missing or empty";

/// Answer to `get_entries`. There are more entries if the last one is not the leaf.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entries<'a> {
    entries: Vec<Box<RawValue>>,
    leaf_id: Option<&'a str>,
}

impl Agent {
    pub(super) fn on_command(&mut self, number: u64, command: AgentCommand) {
        match command {
            AgentCommand::GetState => {
                let state = self.state();
                self.answer(number, Some(&state));
            }
            AgentCommand::Prompt { message, cwd } => {
                self.prompt(number, &message, &json!({ "cwd": cwd }));
            }
            AgentCommand::Abort => self.abort(number),
            AgentCommand::AbortBash => self.abort_shells(number),
            AgentCommand::Other(command) => self.on_other(number, &command),
        }
    }

    fn on_other(&mut self, number: u64, command: &OtherCommand) {
        let fields = fields(command);
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();

        match command.name.as_str() {
            "prompt" => self.prompt(number, text("message"), &fields),
            "steer" => self.queue(number, true, text("message"), &fields),
            "follow_up" => self.queue(number, false, text("message"), &fields),
            "clear_queue" => self.clear_queues(number),
            "abort" => self.abort(number),
            "abort_bash" => self.abort_shells(number),
            "abort_retry" => {
                self.give_up_retry();
                self.done(number);
            }
            "set_model" => self.set_model(number, text("provider"), text("modelId")),
            "cycle_model" => self.cycle_model(number),
            "set_thinking_level" => match ThinkingLevel::named(text("level")) {
                Some(level) => {
                    self.set_thinking(level);
                    self.done(number);
                }
                None => {
                    let names = ThinkingLevel::ALL.map(ThinkingLevel::name).join(", ");
                    self.refuse(number, format!("Unknown thinking level; known are {names}"));
                }
            },
            "cycle_thinking_level" => self.cycle_thinking(number),
            "set_steering_mode" | "set_follow_up_mode" => {
                let mode = match text("mode") {
                    "all" => QueueMode::All,
                    "one-at-a-time" => QueueMode::OneAtATime,
                    _ => return self.refuse(number, "The mode must be all or one-at-a-time"),
                };
                if command.name == "set_steering_mode" {
                    self.steering_mode = mode;
                } else {
                    self.follow_up_mode = mode;
                }
                self.done(number);
            }
            "set_auto_compaction" | "set_auto_retry" => {
                let Some(enabled) = fields.get("enabled").and_then(Value::as_bool) else {
                    return self.refuse(number, "enabled must be true or false");
                };
                if command.name == "set_auto_retry" {
                    self.auto_retry = enabled;
                } else {
                    self.auto_compaction = enabled;
                }
                self.done(number);
            }
            "compact" => {
                let instructions = fields.get("customInstructions").and_then(Value::as_str);
                self.compact_on_demand(number, instructions);
            }
            "set_session_name" => self.set_name(number, text("name").trim()),
            "bash" => {
                let is_excluded = fields.get("excludeFromContext") == Some(&Value::Bool(true));
                self.shell(number, text("command"), text("cwd"), is_excluded);
            }
            name => self.query(number, name, &fields),
        }
    }

    fn clear_queues(&mut self, number: u64) {
        let texts = |queue: &mut std::collections::VecDeque<UserMessage>| {
            queue.drain(..).map(|message| message.content.text()).collect::<Vec<_>>()
        };

        let steering = texts(&mut self.steering);
        let follow_up = texts(&mut self.follow_up);

        self.queue_event();
        self.answer(number, Some(&json!({ "steering": steering, "followUp": follow_up })));
    }

    fn compact_on_demand(&mut self, number: u64, instructions: Option<&str>) {
        if self.compaction.is_some() {
            return self.refuse(number, "A compaction is already running");
        }
        if self.run.is_some() {
            return self.refuse(number, "Abort the turn before a compaction");
        }
        self.compact_by_hand(number, instructions);
    }

    /// Answers a command that changes nothing.
    fn query(&mut self, number: u64, name: &str, fields: &Value) {
        match name {
            "get_state" => self.on_command(number, AgentCommand::GetState),
            "get_messages" => {
                let mut messages = listed(self.transcript.messages().iter().rev());
                messages.reverse();
                self.answer(number, Some(&BTreeMap::from([("messages", messages)])));
            }
            "get_last_assistant_text" => {
                let text = self.transcript.last_assistant_text();
                self.answer(number, Some(&json!({ "text": text })));
            }
            "get_session_stats" => {
                let stats = self.stats(&self.transcript.messages());
                self.answer(number, Some(&stats));
            }
            "get_available_models" => {
                let models = self.setup.models.models.clone();
                self.answer(number, Some(&json!({ "models": models })));
            }
            "get_available_thinking_levels" => {
                let levels = levels(&self.model);
                self.answer(number, Some(&json!({ "levels": levels })));
            }
            "get_fork_messages" => {
                let points = self.transcript.fork_points().into_iter();
                let points =
                    points.map(|(entry_id, text)| json!({ "entryId": entry_id, "text": text }));
                let messages = listed(points);
                self.answer(number, Some(&BTreeMap::from([("messages", messages)])));
            }
            "get_entries" => self.entries(number, fields.get("since").and_then(Value::as_str)),
            // This agent has no commands of extensions.
            "get_commands" => self.answer(number, Some(&json!({ "commands": [] }))),
            other => {
                let name: String = other.chars().take(64).collect();
                self.refuse(number, format!("Unknown command: {name}"));
            }
        }
    }

    fn prompt(&mut self, number: u64, message: &str, fields: &Value) {
        let images = match images(fields) {
            Ok(images) => images,
            Err(error) => return self.refuse(number, error),
        };
        if message.is_empty() && images.is_empty() {
            return self.refuse(number, NO_MESSAGE);
        }

        let schema = match self.schema(fields) {
            Ok(schema) => schema,
            Err(error) => return self.refuse(number, error),
        };

        let message = user_message(message, images, self.now.unix_ms);
        if let Some(text) = self.too_large(&message) {
            return self.refuse(number, text);
        }

        // A message that joins a run gets no schema of its own: the run has one for all its
        // answers.
        if schema.is_some() && (self.run.is_some() || self.compaction.is_some()) {
            let text = "Agent is already processing. A schema is for a turn of its own";
            return self.refuse(number, text);
        }

        if self.run.is_some() {
            return match fields.get("streamingBehavior").and_then(Value::as_str) {
                Some("steer") => self.enqueue(number, true, message),
                Some("followUp") => self.enqueue(number, false, message),
                _ => self.refuse(
                    number,
                    "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message.",
                ),
            };
        }

        let directory = fields.get("cwd").and_then(Value::as_str).unwrap_or_default();
        if self.compaction.is_some() {
            if MAX_QUEUED <= self.waiting.len() {
                let text = format!(
                    "At most {MAX_QUEUED} prompts can wait for a summary; send it again after the summary"
                );
                return self.refuse(number, text);
            }
            directory.clone_into(&mut self.directory);
            self.waiting.push_back(message);
            // It begins its own turn, although later.
            return self.answer(number, Some(&json!({ "disposition": "started" })));
        }

        directory.clone_into(&mut self.directory);
        self.answer(number, Some(&json!({ "disposition": "started" })));
        self.schema = schema;
        self.begin_run(message);
    }

    /// Returns the refusal of a prompt that is larger than everything that the model reads. Such a prompt is not
    /// recorded, because each later request would contain it. `None` if the size of the window is unknown.
    fn too_large(&self, message: &UserMessage) -> Option<String> {
        let window = self.model.context_window;
        let tokens = compaction::message_tokens(&Message::User(message.clone()));
        (0 < window && window < tokens).then(|| {
            format!(
                "This prompt has about {tokens} tokens, and {} reads at most {window}. It was not sent. Shorten it, \
                 write it into a file for the agent to search, or choose a model that reads more",
                self.model.id
            )
        })
    }

    fn queue(&mut self, number: u64, is_steering: bool, message: &str, fields: &Value) {
        match images(fields) {
            Ok(images) if message.is_empty() && images.is_empty() => {
                self.refuse(number, NO_MESSAGE);
            }
            Ok(images) => {
                let message = user_message(message, images, self.now.unix_ms);
                match self.too_large(&message) {
                    Some(text) => self.refuse(number, text),
                    None => self.enqueue(number, is_steering, message),
                }
            }
            Err(error) => self.refuse(number, error),
        }
    }

    fn enqueue(&mut self, number: u64, is_steering: bool, message: UserMessage) {
        if MAX_QUEUED <= self.steering.len() + self.follow_up.len() {
            return self.refuse(number, format!("At most {MAX_QUEUED} messages can be queued"));
        }
        if is_steering {
            self.steering.push_back(message);
        } else {
            self.follow_up.push_back(message);
        }

        // No run is there to take the message, so one begins after the summary.
        self.was_queued_in_summary |= self.run.is_none() && self.compaction.is_some();
        self.answer(number, Some(&json!({ "disposition": "queued" })));
        self.queue_event();
    }

    /// Stops the run or the summary. Answered after the end of the run.
    fn abort(&mut self, number: u64) {
        if let Some(run) = &mut self.run {
            run.is_aborted = true;
        }

        if self.compaction.is_some() {
            // A prompt that waited for the summary begins now, and is not meant.
            self.abort_compaction();
            return self.done(number);
        }

        let is_retrying = self.is_retrying();
        let Some(run) = &mut self.run else { return self.done(number) };
        // Answered by the end of the run, so that the client finds an idle agent.
        self.aborts.push(number);

        match &run.phase {
            Phase::Loading(loading) => {
                let numbers = [loading.instructions, loading.servers].into_iter().flatten();
                self.effects.extend(numbers.map(|number| Effect::CancelCall { number }));
            }
            Phase::Answering(answer) => {
                let number = answer.incoming.number;
                self.effects.push(Effect::CancelRequest { number });
                self.end_answer(StreamEnd::Aborted);
            }
            Phase::Calling(_) => self.cancel_calls(),
            Phase::Waiting if is_retrying => self.give_up_retry(),
            Phase::Waiting | Phase::Compacting => self.end_run(),
        }
    }

    pub(super) fn state(&self) -> Value {
        let is_active = self.run.is_some();
        let pending = self.steering.len() + self.follow_up.len() + self.waiting.len();
        let messages = self.transcript.messages();
        let mut state = json!({
            "model": self.model,
            "thinkingLevel": self.thinking.name(),
            "isStreaming": is_active,
            "isCompacting": self.compaction.is_some(),
            "steeringMode": self.steering_mode,
            "followUpMode": self.follow_up_mode,
            "sessionFile": self.setup.session_file,
            "sessionId": self.transcript.header().id,
            "sessionName": self.transcript.name(),
            "autoCompactionEnabled": self.auto_compaction,
            "autoRetryEnabled": self.auto_retry,
            "messageCount": messages.len(),
            "pendingMessageCount": pending,
            "isRetrying": self.is_retrying(),
            "engine": "native",
            "instructions": self.instructions.as_ref().map(Instructions::files),
            "stats": self.stats(&messages),
        });

        if let Some(state) = state.as_object_mut() {
            state.retain(|_, value| !value.is_null());
        }
        state
    }

    fn stats(&self, messages: &[Cow<'_, Message>]) -> Value {
        let tokens = crate::compaction::estimate_tokens(messages);
        let window = self.model.context_window;
        // Token counts are far below 2^52.
        #[expect(clippy::cast_precision_loss, reason = "see above")]
        let percent = tokens as f64 * 100.0 / window.max(1) as f64;

        let mut stats = serde_json::to_value(self.transcript.stats()).unwrap_or_default();
        if let Some(stats) = stats.as_object_mut() {
            stats.insert("sessionId".into(), self.transcript.header().id.clone().into());
            stats.insert("sessionFile".into(), self.setup.session_file.clone().into());
            stats.insert(
                "contextUsage".into(),
                json!({ "tokens": tokens, "contextWindow": window, "percent": percent }),
            );
        }
        stats
    }

    pub(super) fn set_thinking(&mut self, level: ThinkingLevel) {
        let level = clamp(level, &self.model);
        if level == self.thinking {
            return;
        }
        self.thinking = level;

        // Otherwise the level is recorded with the model, before the next message.
        if self.is_model_recorded {
            let thinking_level = level.name().to_owned();
            self.append(EntryKind::ThinkingLevelChange { thinking_level });
        }

        let kind = EventName::ThinkingLevelChanged;
        self.event(kind, &json!({ "type": kind, "level": level.name() }));
    }

    fn cycle_thinking(&mut self, number: u64) {
        let levels = levels(&self.model);
        if levels.len() < 2 {
            return self.answer(number, Some(&Value::Null));
        }

        let next = levels.iter().position(|level| *level == self.thinking).map_or(0, |at| at + 1);
        let next = levels.get(next).or_else(|| levels.first()).copied().unwrap_or_default();
        self.set_thinking(next);
        self.answer(number, Some(&json!({ "level": next.name() })));
    }

    fn set_name(&mut self, number: u64, name: &str) {
        if name.is_empty() {
            return self.refuse(number, "Session name cannot be empty");
        }

        let name = stripped_line(name, 200);
        self.append(EntryKind::SessionInfo { name: name.clone() });

        let kind = EventName::SessionInfoChanged;
        self.event(kind, &json!({ "type": kind, "name": name }));
        self.done(number);
    }

    fn entries(&mut self, number: u64, since: Option<&str>) {
        let entries = self.transcript.entries();
        let begin = match since {
            None => 0,
            Some(id) => match entries.iter().position(|entry| entry.id == id) {
                Some(at) => at + 1,
                None => return self.refuse(number, "No entry with this id"),
            },
        };

        let entries = listed(entries.iter().skip(begin));
        let data = Entries { entries, leaf_id: self.transcript.leaf() };
        let data = to_raw_value(&data).ok();
        self.answer(number, data.as_ref());
    }
}

/// Returns the first items that fit into one answer. An item that is too large for any answer is shortened.
fn listed(items: impl Iterator<Item = impl Serialize>) -> Vec<Box<RawValue>> {
    let mut room = MAX_LISTED_BYTES;
    let texts = items.take(MAX_LISTED).filter_map(|item| {
        let item = to_raw_value(&item).ok()?;
        if item.get().len() < MAX_LISTED_BYTES {
            return Some(item);
        }
        RawValue::from_string(shorten(item.get(), "message", MAX_AGENT_EVENT_BYTES)).ok()
    });

    let fitting = texts.map_while(|item| {
        // A comma separates the items.
        room = room.checked_sub(item.get().len() + 1)?;
        Some(item)
    });
    fitting.collect()
}

/// Returns the members of a command's body. Invalid JSON has none.
fn fields(command: &OtherCommand) -> Value {
    serde_json::from_str(command.body.get()).unwrap_or(Value::Null)
}
