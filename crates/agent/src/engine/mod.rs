//! The turns of one session, as a state machine. [`Agent::handle`] takes an input with the current time, and returns
//! effects in their order. The driver carries them out: it writes to the session file and to the supervisor.
//!
//! - [`commands`]: commands of clients;
//! - [`attachments`]: images and schemas of prompts;
//! - [`models`]: the model of the session;
//! - [`run`]: a run, from a prompt to the end of its last turn;
//! - [`answer`]: one answer of the model, and further attempts;
//! - [`incoming`]: requests, and their answers as they arrive;
//! - [`tools`] and [`results`]: the calls of one answer, and their results;
//! - [`servers`]: tools of MCP servers;
//! - [`shells`]: commands that the user runs in the shell;
//! - [`compact`]: summaries of a conversation that became too long;
//! - [`events`]: events for clients.

mod answer;
mod attachments;
mod commands;
mod compact;
mod events;
mod incoming;
mod loops;
mod models;
mod results;
mod run;
mod servers;
mod shells;
#[cfg(test)]
mod tests;
mod tools;

pub use tools::{ToolRoute, route};

use crate::message::{Message, UserMessage};
use crate::providers::ToolSpec;
use crate::transcript::{EntryKind, Transcript, iso_time};
use quackd_protocol::agent::{
    AgentCommand, AgentModels, AgentSettings, AgentToolCall, AgentToolDone, EventName, OtherCommand,
};
use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::instructions::InstructionFile;
use quackd_protocol::model::{ModelFailure, ModelHead, ModelInfo, ModelRequest, ThinkingLevel};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Messages in both queues together. A further one is refused.
const MAX_QUEUED: usize = 64;

/// The current time and a random number, which the driver provides with each input.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Unix time in milliseconds.
    pub unix_ms: i64,
    /// For ids of entries.
    pub random: u32,
}

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// A client's command. Answered by one [`Effect::Answer`] with the same number.
    Command {
        /// Number of the command.
        number: u64,
        /// The command.
        command: AgentCommand,
    },
    /// A part of a model's answer.
    Model {
        /// Number of the request.
        number: u64,
        /// The part.
        part: Part,
    },
    /// A tool call has ended.
    ToolDone(Box<AgentToolDone>),
    /// The timer of the last [`Effect::Timer`] has expired.
    Timer,
    /// The models have changed.
    Models(Box<AgentModels>),
}

/// A part of a model's answer, with its bytes decoded.
#[derive(Debug)]
pub enum Part {
    /// The head.
    Head(ModelHead),
    /// Bytes of the body.
    Bytes(Vec<u8>),
    /// The body is complete.
    Done,
    /// The answer is missing or incomplete.
    Failed(ModelFailure),
}

/// Something that the driver must do.
#[derive(Debug)]
pub enum Effect {
    /// Answer a command.
    Answer {
        /// Number of the command.
        number: u64,
        /// Its data, or the text of the error.
        result: Result<Option<Box<RawValue>>, String>,
    },
    /// Publish an event.
    Event {
        /// Its name.
        name: EventName,
        /// The whole object.
        data: Box<RawValue>,
    },
    /// Append to the session file, before any later effect.
    Append(String),
    /// Send a request to a model.
    Request(Box<ModelRequest>),
    /// Give up a request.
    CancelRequest {
        /// Number of the request.
        number: u64,
    },
    /// Call a tool.
    Call(Box<AgentToolCall>),
    /// Stop a tool call.
    CancelCall {
        /// Number of the call.
        number: u64,
    },
    /// Tell the supervisor what requests have cost, in US dollars.
    Spent(f64),
    /// Set the timer to this many milliseconds from now, or stop it.
    Timer(Option<u64>),
}

/// Settings of an agent that do not change.
#[derive(Debug)]
pub struct AgentSetup {
    /// Absolute path of the session file, for `get_state`.
    pub session_file: String,
    /// Absolute path of the workspace.
    pub workspace: String,
    /// The models.
    pub models: AgentModels,
    /// Whether the default model replaces the one in the session file.
    pub is_model_chosen: bool,
    /// Settings of turns.
    pub settings: AgentSettings,
    /// The tools that the model gets.
    pub tools: Vec<ToolSpec>,
    /// Options of a client: the tools that the model may call, prompts and models.
    pub options: AgentOptions,
    /// Tools for a model with a small window.
    pub small_tools: Vec<ToolSpec>,
    /// Lines about the confinement, for the system prompt.
    pub facts: Vec<String>,
    /// Whether the session has MCP servers, whose tools are listed at the first prompt.
    pub has_mcp_servers: bool,
    /// Text for the user about the default model, for the first run with it.
    pub model_notice: Option<String>,
}

/// How many queued messages one turn takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum QueueMode {
    All,
    OneAtATime,
}

/// The agent of one session.
#[derive(Debug)]
pub struct Agent {
    setup: AgentSetup,
    transcript: Transcript,
    model: ModelInfo,
    thinking: ThinkingLevel,
    /// Whether the session file names the current model and level.
    is_model_recorded: bool,
    steering: VecDeque<UserMessage>,
    follow_up: VecDeque<UserMessage>,
    steering_mode: QueueMode,
    follow_up_mode: QueueMode,
    auto_retry: bool,
    auto_compaction: bool,
    /// Instructions and facts of the workspace, read before each run.
    instructions: Option<Instructions>,
    /// Tools of MCP servers.
    servers: servers::ServerTools,
    /// Directory of the user at the last prompt, relative to the workspace. Empty: the workspace.
    directory: String,
    /// JSON schema of the answer to the prompt that begins a run now.
    schema: Option<Value>,
    run: Option<run::Run>,
    compaction: Option<compact::Compaction>,
    /// Automatic summaries that failed in a row.
    failed_summaries: u32,
    /// Whether a message was queued during a summary without a run. A run then begins after the summary.
    was_queued_in_summary: bool,
    /// Prompts that came during a compaction.
    waiting: VecDeque<UserMessage>,
    /// `abort` commands that are answered at the end of the run.
    aborts: Vec<u64>,
    /// Commands of the user that run in the shell: the command, the tool call and its text.
    shells: Vec<shells::Shell>,
    /// Results of the user's commands that are recorded after the run.
    shell_messages: Vec<Message>,
    last_request: u64,
    last_call: u64,
    effects: Vec<Effect>,
    now: Now,
}

/// Instructions for agents, and facts about the workspace.
#[derive(Debug, Clone, Default)]
struct Instructions {
    /// Those of the user.
    own: Vec<InstructionFile>,
    /// Those of the workspace.
    project: Vec<InstructionFile>,
    /// Name of the shell that runs commands. Empty if it is not known.
    shell: String,
    /// The repository. `None` without one.
    git: Option<Git>,
}

/// The repository of the workspace when the agent first saw its current HEAD. Later states would change the system
/// prompt, and make the provider read the whole conversation again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Git {
    head: String,
    #[serde(default)]
    text: String,
}

impl Instructions {
    /// Returns the paths of the files.
    fn files(&self) -> Vec<&str> {
        self.own.iter().chain(&self.project).map(|file| file.path.as_str()).collect()
    }

    /// Returns the facts for the system prompt.
    fn facts(&self) -> impl Iterator<Item = String> {
        let shell = Some(&self.shell).filter(|shell| !shell.is_empty());
        let shell = shell.map(|shell| format!("The tool bash runs commands with {shell}."));
        let git = self.git.as_ref().map(|git| {
            format!(
                "Git, when you first saw this branch: {}. `git status` shows the present state.",
                git.text
            )
        });
        shell.into_iter().chain(git)
    }
}

impl Agent {
    /// Creates the agent of a conversation.
    #[must_use]
    pub fn new(mut setup: AgentSetup, transcript: Transcript) -> Self {
        let context = transcript.context();
        let wanted = context.model.filter(|_| !setup.is_model_chosen);
        let recorded = wanted.as_ref().and_then(|(provider, id)| {
            let is_it = |model: &&ModelInfo| model.provider == *provider && model.id == *id;
            setup.models.models.iter().find(is_it).cloned()
        });
        match wanted {
            Some(_) if recorded.is_some() => setup.model_notice = None,
            Some((provider, id)) => {
                let gone = missing_text(&provider, &id, &setup.models.default);
                setup.model_notice = Some(gone);
            }
            None => {}
        }
        let is_model_recorded = recorded.is_some();
        let thinking = context.thinking.filter(|_| is_model_recorded);
        let first = models::scoped(&setup.options.models, &setup.models.models).into_iter().next();
        let (first, level) = first.filter(|_| !setup.is_model_chosen).unzip();
        let model = recorded.or(first).unwrap_or_else(|| setup.models.default.clone());
        let thinking = thinking.or_else(|| level.flatten()).unwrap_or(setup.models.thinking);
        let thinking = crate::providers::clamp(thinking, &model);
        let (auto_retry, auto_compaction) =
            (setup.settings.auto_retry, setup.settings.auto_compaction);
        let servers = servers::ServerTools::new(setup.has_mcp_servers);
        Self {
            setup,
            transcript,
            model,
            thinking,
            is_model_recorded,
            steering: VecDeque::new(),
            follow_up: VecDeque::new(),
            steering_mode: QueueMode::OneAtATime,
            follow_up_mode: QueueMode::OneAtATime,
            auto_retry,
            auto_compaction,
            instructions: None,
            servers,
            directory: String::new(),
            schema: None,
            run: None,
            compaction: None,
            failed_summaries: 0,
            was_queued_in_summary: false,
            waiting: VecDeque::new(),
            aborts: Vec::new(),
            shells: Vec::new(),
            shell_messages: Vec::new(),
            last_request: 0,
            last_call: 0,
            effects: Vec::new(),
            now: Now { unix_ms: 0, random: 0 },
        }
    }

    /// Takes an input. Returns what to do, in order.
    pub fn handle(&mut self, input: Input, now: Now) -> Vec<Effect> {
        self.now = now;
        match input {
            Input::Command { number, command } => self.on_command(number, command),
            Input::Model { number, part } => self.on_model(number, part),
            Input::ToolDone(done) => self.on_tool_done(*done),
            Input::Timer => self.on_timer(),
            Input::Models(models) => self.set_models(*models),
        }
        std::mem::take(&mut self.effects)
    }

    /// Whether the agent does nothing and has nothing to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.run.is_none() && self.compaction.is_none() && self.shells.is_empty()
    }

    fn set_models(&mut self, models: AgentModels) {
        self.setup.models = models;
        let models = &self.setup.models.models;
        if let Some(found) = models.iter().find(|model| is_same(model, &self.model)) {
            self.model = found.clone();
        } else if self.run.is_none() {
            self.replace_missing_model();
        }
    }

    /// Uses the default model if the current one was removed.
    fn replace_missing_model(&mut self) {
        let AgentModels { models, default, .. } = &self.setup.models;
        if models.iter().chain([default]).any(|model| is_same(model, &self.model)) {
            return;
        }
        let missing = std::mem::replace(&mut self.model, default.clone());
        self.thinking = crate::providers::clamp(self.thinking, &self.model);
        self.is_model_recorded = false;
        self.tell_user("models", &missing_text(&missing.provider, &missing.id, &self.model));
    }

    /// Publishes a message for the user about `topic`, such as `models`.
    fn tell_user(&mut self, topic: &str, text: &str) {
        let kind = EventName::ExtensionError;
        let data = json!({
            "type": kind, "extensionPath": "quackd", "event": topic, "error": text,
        });
        self.event(kind, &data);
    }

    fn on_model(&mut self, number: u64, part: Part) {
        if self.compaction.as_ref().is_some_and(|it| it.is_for(number)) {
            return self.on_summary(part);
        }
        if self.run.as_ref().is_some_and(|run| run.is_for_request(number)) {
            self.on_answer(part);
        }
    }

    fn on_timer(&mut self) {
        self.retry_now();
    }

    fn next_request(&mut self) -> u64 {
        self.last_request += 1;
        self.last_request
    }

    fn next_call(&mut self) -> u64 {
        self.last_call += 1;
        self.last_call
    }

    /// Records an entry in memory and in the session file. Counts its cost.
    fn append(&mut self, kind: EntryKind) {
        if let Some(cost) = kind.usage().map(|usage| usage.cost) {
            if let Some(run) = &mut self.run {
                run.cost += cost;
            }
            if 0.0 < cost.total {
                self.effects.push(Effect::Spent(cost.total));
            }
        }
        let random = self.next_random();
        let line = self.transcript.append(kind, &iso_time(self.now.unix_ms), random);
        self.effects.push(Effect::Append(line));
    }

    /// Returns another number for each entry of one input. The transcript resolves collisions.
    fn next_random(&mut self) -> u32 {
        self.now.random = self.now.random.wrapping_mul(0x9E37_79B1).wrapping_add(0x7F4A_7C15);
        self.now.random
    }

    /// Leaves the entries after `parent` behind, and records the reason for the model.
    fn leave_branch(&mut self, parent: Option<&str>, reason: String) {
        let from_id = self.transcript.leaf().unwrap_or_default().to_owned();
        let kind =
            EntryKind::BranchSummary { from_id, summary: reason, details: None, usage: None };
        let (time, random) = (iso_time(self.now.unix_ms), self.next_random());
        let line = self.transcript.branch(parent, kind, &time, random);
        self.effects.push(Effect::Append(line));
    }

    /// Records a message, after the model that is in use.
    fn record(&mut self, message: Message) {
        self.record_model();
        self.append(EntryKind::Message(message));
    }

    fn record_model(&mut self) {
        if self.is_model_recorded {
            return;
        }
        self.is_model_recorded = true;
        let (provider, model_id) = (self.model.provider.clone(), self.model.id.clone());
        self.append(EntryKind::ModelChange { provider, model_id });
        let thinking_level = self.thinking.name().to_owned();
        self.append(EntryKind::ThinkingLevelChange { thinking_level });
    }

    fn event(&mut self, name: EventName, data: &impl Serialize) {
        // Events are structs and maps with text keys, which always have a JSON form.
        if let Ok(data) = to_raw_value(data) {
            self.effects.push(Effect::Event { name, data });
        }
    }

    fn answer(&mut self, number: u64, data: Option<&impl Serialize>) {
        let data = data.and_then(|data| to_raw_value(data).ok());
        self.effects.push(Effect::Answer { number, result: Ok(data) });
    }

    fn done(&mut self, number: u64) {
        self.answer(number, None::<&Value>);
    }

    fn refuse(&mut self, number: u64, error: impl Into<String>) {
        self.effects.push(Effect::Answer { number, result: Err(error.into()) });
    }
}

/// Returns the text for the user if a model of the session is gone.
fn missing_text(provider: &str, id: &str, now: &ModelInfo) -> String {
    format!(
        "the model {provider}/{id} is not configured any more; the session uses {}/{}",
        now.provider, now.id
    )
}

/// Whether both are the same model, even if other facts about it have changed.
fn is_same(one: &ModelInfo, other: &ModelInfo) -> bool {
    (&one.provider, &one.id) == (&other.provider, &other.id)
}

/// The fields of a command's body.
fn fields(command: &OtherCommand) -> Value {
    serde_json::from_str(command.body.get()).unwrap_or(Value::Null)
}
