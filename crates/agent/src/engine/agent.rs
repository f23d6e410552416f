//! The agent: the state of a session's turns, and the steps that all parts of the engine share, such as entries in the
//! session file, events, answers and requests.

use super::compaction_state::Compaction;
use super::effect::Effect;
use super::input::Now;
use super::instructions::Instructions;
use super::model_names::{missing_text, scoped};
use super::run_state::Run;
use super::servers::ServerTools;
use crate::message::{Message, UserMessage};
use crate::providers::{ErrorKind, ProviderError, ProviderRequest, ToolSpec, clamp};
use crate::transcript::{EntryKind, Transcript, iso_time};
use quackd_protocol::agent::{AgentModels, AgentSettings, EventName};
use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::model::{MAX_MODEL_REQUEST_BYTES, ModelInfo, ModelRequest, ThinkingLevel};
use serde::Serialize;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Settings of an agent that do not change.
#[derive(Debug)]
pub struct AgentSetup {
    /// Absolute path of the session file, for `get_state`.
    pub session_file: String,
    /// Absolute path of the workspace.
    pub workspace: String,
    /// Default model and thinking level, and the models that a client may select.
    pub models: AgentModels,
    /// Whether the default model replaces the one in the session file.
    pub is_model_chosen: bool,
    /// Limits and switches of turns, from the configuration.
    pub settings: AgentSettings,
    /// Tools that the model gets, unless its window is small.
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
pub(super) enum QueueMode {
    All,
    OneAtATime,
}

/// A command of the user that runs in the shell.
#[derive(Debug)]
pub(super) struct Shell {
    /// Number of the client's command.
    pub(super) number: u64,
    /// Number of the tool call.
    pub(super) call: u64,
    pub(super) command: String,
    pub(super) is_excluded: bool,
}

/// The agent of one session.
#[derive(Debug)]
pub struct Agent {
    pub(super) setup: AgentSetup,
    pub(super) transcript: Transcript,
    pub(super) model: ModelInfo,
    pub(super) thinking: ThinkingLevel,
    /// Whether the session file names the current model and level.
    pub(super) is_model_recorded: bool,
    pub(super) steering: VecDeque<UserMessage>,
    pub(super) follow_up: VecDeque<UserMessage>,
    pub(super) steering_mode: QueueMode,
    pub(super) follow_up_mode: QueueMode,
    pub(super) auto_retry: bool,
    pub(super) auto_compaction: bool,
    /// Instructions and facts of the workspace, read before each run.
    pub(super) instructions: Option<Instructions>,
    /// Tools of MCP servers.
    pub(super) servers: ServerTools,
    /// Directory of the user at the last prompt, relative to the workspace. Empty: the workspace.
    pub(super) directory: String,
    /// JSON schema of the answer to the prompt that begins a run now.
    pub(super) schema: Option<Value>,
    pub(super) run: Option<Run>,
    pub(super) compaction: Option<Compaction>,
    /// Automatic summaries that failed in a row.
    pub(super) failed_summaries: u32,
    /// Whether a message was queued during a summary without a run. A run then begins after the summary.
    pub(super) was_queued_in_summary: bool,
    /// Prompts that came during a compaction.
    pub(super) waiting: VecDeque<UserMessage>,
    /// `abort` commands that are answered at the end of the run.
    pub(super) aborts: Vec<u64>,
    /// Commands of the user that run in the shell: the command, the tool call and its text.
    pub(super) shells: Vec<Shell>,
    /// Results of the user's commands that are recorded after the run.
    pub(super) shell_messages: Vec<Message>,
    pub(super) last_request: u64,
    pub(super) last_call: u64,
    pub(super) effects: Vec<Effect>,
    pub(super) now: Now,
}

impl Agent {
    /// Creates the agent of a conversation.
    #[must_use]
    pub fn new(mut setup: AgentSetup, transcript: Transcript) -> Self {
        let context = transcript.context();
        // A model that was chosen for this process wins over the one in the file.
        let named = context.model.filter(|_| !setup.is_model_chosen);
        let recorded = named.as_ref().and_then(|(provider, id)| {
            let is_it = |model: &&ModelInfo| model.provider == *provider && model.id == *id;
            setup.models.models.iter().find(is_it).cloned()
        });

        match named {
            Some(_) if recorded.is_some() => setup.model_notice = None,
            Some((provider, id)) => {
                let gone = missing_text(&provider, &id, &setup.models.default);
                setup.model_notice = Some(gone);
            }
            None => {}
        }

        let is_model_recorded = recorded.is_some();
        let thinking = context.thinking.filter(|_| is_model_recorded);

        // Without a recorded model, the first one of the client's list applies.
        let first = scoped(&setup.options.models, &setup.models.models).into_iter().next();
        let (first, level) = first.filter(|_| !setup.is_model_chosen).unzip();
        let model = recorded.or(first).unwrap_or_else(|| setup.models.default.clone());
        let thinking = thinking.or_else(|| level.flatten()).unwrap_or(setup.models.thinking);
        let thinking = clamp(thinking, &model);

        let (auto_retry, auto_compaction) =
            (setup.settings.auto_retry, setup.settings.auto_compaction);

        let servers = ServerTools::new(setup.has_mcp_servers);
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

    /// Whether the agent does nothing and has nothing to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.run.is_none() && self.compaction.is_none() && self.shells.is_empty()
    }

    /// Publishes a message for the user about `topic`, such as `models`.
    pub(super) fn tell_user(&mut self, topic: &str, text: &str) {
        let kind = EventName::ExtensionError;
        let data = json!({
            "type": kind, "extensionPath": "quackd", "event": topic, "error": text,
        });
        self.event(kind, &data);
    }

    pub(super) fn next_request(&mut self) -> u64 {
        self.last_request += 1;
        self.last_request
    }

    pub(super) fn next_call(&mut self) -> u64 {
        self.last_call += 1;
        self.last_call
    }

    /// Records an entry in memory and in the session file. Counts its cost.
    pub(super) fn append(&mut self, kind: EntryKind) {
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
    pub(super) fn leave_branch(&mut self, parent: Option<&str>, reason: String) {
        let from_id = self.transcript.leaf().unwrap_or_default().to_owned();
        let kind =
            EntryKind::BranchSummary { from_id, summary: reason, details: None, usage: None };

        let (time, random) = (iso_time(self.now.unix_ms), self.next_random());
        let line = self.transcript.branch(parent, kind, &time, random);
        self.effects.push(Effect::Append(line));
    }

    /// Records a message, after the model that is in use.
    pub(super) fn record(&mut self, message: Message) {
        self.record_model();
        self.append(EntryKind::Message(message));
    }

    pub(super) fn record_model(&mut self) {
        if self.is_model_recorded {
            return;
        }

        self.is_model_recorded = true;
        let (provider, model_id) = (self.model.provider.clone(), self.model.id.clone());
        self.append(EntryKind::ModelChange { provider, model_id });

        let thinking_level = self.thinking.name().to_owned();
        self.append(EntryKind::ThinkingLevelChange { thinking_level });
    }

    pub(super) fn event(&mut self, name: EventName, data: &impl Serialize) {
        // Events are structs and maps with text keys, which always have a JSON form.
        if let Ok(data) = to_raw_value(data) {
            self.effects.push(Effect::Event { name, data });
        }
    }

    pub(super) fn answer(&mut self, number: u64, data: Option<&impl Serialize>) {
        let data = data.and_then(|data| to_raw_value(data).ok());
        self.effects.push(Effect::Answer { number, result: Ok(data) });
    }

    pub(super) fn done(&mut self, number: u64) {
        self.answer(number, None::<&Value>);
    }

    pub(super) fn refuse(&mut self, number: u64, error: impl Into<String>) {
        self.effects.push(Effect::Answer { number, result: Err(error.into()) });
    }

    /// Sends a request with this number to the current model.
    ///
    /// # Errors
    ///
    /// The request is too long.
    pub(super) fn send(&mut self, number: u64, made: ProviderRequest) -> Result<(), ProviderError> {
        // The supervisor refuses a longer request.
        if MAX_MODEL_REQUEST_BYTES < made.body.get().len() {
            let mib = MAX_MODEL_REQUEST_BYTES / 1024 / 1024;
            let text = format!(
                "The conversation is longer than a request may be ({mib} MiB); run `compact`, or start a new session"
            );
            return Err(ProviderError { text, kind: ErrorKind::Overflow });
        }

        self.effects.push(Effect::Request(Box::new(ModelRequest {
            number,
            provider: self.model.provider.clone(),
            api: self.model.api,
            model: self.model.id.clone(),
            betas: made.betas,
            body: made.body,
        })));
        Ok(())
    }
}
