//! One session of the editor: its connection to the daemon, its prompts and its questions.
//!
//! A connection follows one session, so each session has its own. It is opened again if the daemon was restarted.

mod questions;

use crate::agent_options::{self, AgentOptions};
use crate::modes::Modes;
use crate::prompt::{PromptCommand, PromptMessage};
use crate::replay;
use crate::rpc::{Peer, RpcError};
use crate::turns::{Outcome, StopReason, Turns};
use crate::updates::{Displays, Translator, session_info};
use crate::{ReadTranscript, lock};
use quackd_agent::message::Message;
use quackd_client::{Client, ClientError, Event, Events, OpenQuestions, Question};
use quackd_protocol::approval::{ApprovalClosed, ApprovalRequest};
use quackd_protocol::client::{
    AbortParams, FollowParams, SandboxSession, SandboxShow, SayData, SayParams, SessionSetParams,
    StateParams, ToolParams,
};
use quackd_protocol::mcp::McpServer;
use quackd_protocol::tools::UndoArguments;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Timeout of replies that need no worker and no agent.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout until the agent has accepted a prompt. It may have to start.
const SAY_TIMEOUT: Duration = Duration::from_secs(120);

/// Time between two attempts to end a turn, and their number. The daemon kills an agent that does not end its turn.
const ABORT_INTERVAL: Duration = Duration::from_secs(1);
const MAX_ABORTS: u32 = 30;

/// Name and capabilities of the client, from `initialize`, and how the user started the program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// Whether new sessions work in a private copy of their workspace.
    pub(crate) isolated: bool,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) has_forms: bool,
    pub(crate) displays: Displays,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    shared: Arc<Shared>,
    link: AsyncMutex<Option<Arc<Link>>>,
    options: Mutex<AgentOptions>,
    has_title: AtomicBool,
    /// MCP servers of the client. Sent again to a daemon that was restarted, because it keeps them in memory only.
    mcp_servers: Mutex<Vec<McpServer>>,
    /// Directory that the client named, and the workspace.
    places: Mutex<(PathBuf, String)>,
    /// Held while the session connects again.
    pub(crate) connecting: AsyncMutex<()>,
    _permit: OwnedSemaphorePermit,
}

/// Parts that the tasks of a session use.
#[derive(Debug)]
struct Shared {
    id: String,
    peer: Arc<Peer>,
    facts: Facts,
    translator: Mutex<Translator>,
    turns: Turns,
    questions: Mutex<OpenQuestions<()>>,
}

/// One connection that follows the session.
#[derive(Debug)]
struct Link {
    client: Arc<Client>,
    /// Cancelled when the connection has closed.
    ended: CancellationToken,
    _reader: AbortOnDropHandle<()>,
}

async fn send_mcp_servers(
    client: &Client,
    session: &str,
    servers: &[McpServer],
) -> Result<(), RpcError> {
    let params = SessionSetParams {
        session_id: session.into(),
        mcp_servers: Some(servers.to_vec()),
        ..SessionSetParams::default()
    };
    client.call_within(params, REPLY_TIMEOUT).await?;
    Ok(())
}

/// Ends the prompt of a session.
struct Prompting<'a>(&'a Session);

impl Drop for Prompting<'_> {
    fn drop(&mut self) {
        lock(&self.0.shared.translator).is_prompting = false;
    }
}

impl Session {
    /// Creates a session without a connection.
    pub(crate) fn new(
        id: String,
        peer: Arc<Peer>,
        facts: Facts,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let shared = Shared {
            id,
            peer,
            translator: Mutex::new(Translator::new(facts.displays)),
            facts,
            turns: Turns::default(),
            questions: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            link: AsyncMutex::default(),
            options: Mutex::default(),
            has_title: AtomicBool::new(true),
            mcp_servers: Mutex::default(),
            places: Mutex::default(),
            connecting: AsyncMutex::default(),
            _permit: permit,
        }
    }

    /// Returns the id, which is that of the daemon's session.
    pub(crate) fn id(&self) -> &str {
        &self.shared.id
    }

    /// Returns true if the connection is open.
    pub(crate) async fn is_connected(&self) -> bool {
        self.link.lock().await.as_ref().is_some_and(|link| !link.client.is_closed())
    }

    /// Follows the session on this connection, which replaces the one before.
    pub(crate) async fn follow(&self, client: Client) -> Result<(), RpcError> {
        let shared = &self.shared;
        let events = client.events().await?;
        let params = FollowParams {
            session_id: shared.id.clone().into(),
            answers: Some(true),
            ..FollowParams::default()
        };

        let data = client.call_within(params, REPLY_TIMEOUT).await?;
        // The daemon also finds sessions by name, but events have the id.
        if data.session_id.0 != shared.id {
            return Err(RpcError::unknown_session(&shared.id));
        }

        let servers = lock(&self.mcp_servers).clone();
        if !servers.is_empty() {
            send_mcp_servers(&client, &shared.id, &servers).await?;
        }
        lock(&shared.translator).set_workspace(&data.workspace_path);
        lock(&self.places).1 = data.workspace_path;

        // The turns of the connection before can no longer end.
        shared.turns.clear();

        let (client, ended) = (Arc::new(client), CancellationToken::new());
        let reading = Arc::clone(shared).read(events, Arc::clone(&client));
        let at_end = ended.clone().drop_guard();
        let reader = tokio::spawn(async move {
            let _at_end = at_end;
            reading.await;
        });

        let link = Link { client, ended, _reader: AbortOnDropHandle::new(reader) };
        *self.link.lock().await = Some(Arc::new(link));
        Ok(())
    }

    /// Sets the directory in which prompts start, and MCP servers in place of earlier ones. `None` keeps those.
    pub(crate) async fn configure(
        &self,
        directory: &str,
        mcp_servers: Option<Vec<McpServer>>,
    ) -> Result<(), RpcError> {
        lock(&self.places).0 = PathBuf::from(directory);
        if let Some(servers) = mcp_servers {
            send_mcp_servers(&self.link().await?.client, &self.shared.id, &servers).await?;
            *lock(&self.mcp_servers) = servers;
        }
        Ok(())
    }

    /// Returns the directory in which prompts start, if it is not the workspace.
    fn directory(&self) -> Option<String> {
        let (directory, workspace) = lock(&self.places).clone();
        quackd_client::directory_in(&workspace, &directory)
    }

    async fn link(&self) -> Result<Arc<Link>, RpcError> {
        let link = self.link.lock().await.clone();
        link.ok_or_else(|| RpcError::internal("the session has no connection to the daemon"))
    }

    /// Sends a prompt and waits for the end of its turn. `cancel` ends the turn.
    pub(crate) async fn prompt(
        &self,
        message: &PromptMessage,
        cancel: &CancellationToken,
    ) -> Outcome {
        let text = message.text.as_str();
        if std::mem::replace(&mut lock(&self.shared.translator).is_prompting, true) {
            return Err(RpcError::invalid_request(
                "the session has a running prompt; cancel it, or wait until it ends",
            ));
        }
        let _prompting = Prompting(self);

        let link = self.link().await?;
        let command = crate::prompt::command(text).filter(|_| lock(&self.options).has_commands);
        match command {
            Some(PromptCommand::Compact(kept)) => return self.compact(&link, kept, cancel).await,
            Some(PromptCommand::Undo) => return self.undo(&link).await,
            None => {}
        }

        if !self.has_title.swap(true, Ordering::Relaxed) {
            let title = session_info(&crate::prompt::title(text));
            self.shared.peer.update(self.id(), title).await;
        }

        let turn = self.turn(&link, message);
        tokio::pin!(turn);
        let outcome = tokio::select! {
            outcome = &mut turn => outcome,
            () = cancel.cancelled() => {
                for _ in 0..MAX_ABORTS {
                    self.abort(&link.client).await;
                    if timeout(ABORT_INTERVAL, &mut turn).await.is_ok() {
                        break;
                    }
                }
                Ok(StopReason::Cancelled)
            }
        };
        self.report_usage(&link.client).await;
        outcome
    }

    async fn turn(&self, link: &Link, message: &PromptMessage) -> Outcome {
        let PromptMessage { text, images } = message;
        let cwd = self.directory();
        let reply: SayData = if images.is_empty() {
            let params = SayParams {
                message: text.clone().into(),
                session_id: self.id().into(),
                prefer_pi: true.into(),
                cwd,
            };
            link.client.call_within(params, SAY_TIMEOUT).await?
        } else {
            let command = json!({
                "type": "prompt", "message": text, "images": images, "cwd": cwd,
            });
            let reply = agent_options::command(&link.client, self.id(), command).await?;
            serde_json::from_value(reply).map_err(|error| RpcError::internal(error.to_string()))?
        };

        // A command of an extension has no turn.
        let Some(turn) = reply.turn else { return Ok(StopReason::EndTurn) };
        tokio::select! {
            biased;
            outcome = self.shared.turns.wait(turn) => outcome,
            () = link.ended.cancelled() => Err(link.client.why_closed().into()),
        }
    }

    async fn compact(&self, link: &Link, kept: &str, cancel: &CancellationToken) -> Outcome {
        let mut command = json!({"type": "compact"});
        if let (false, Some(command)) = (kept.is_empty(), command.as_object_mut()) {
            command.insert("customInstructions".to_owned(), kept.into());
        }

        let compacting = agent_options::command(&link.client, self.id(), command);
        let text = tokio::select! {
            done = compacting => match done {
                Ok(_) => "The conversation was summarized.".to_owned(),
                Err(ClientError::Refused { text, .. }) => text,
                Err(error) => return Err(error.into()),
            },
            () = cancel.cancelled() => {
                self.abort(&link.client).await;
                return Ok(StopReason::Cancelled);
            }
        };
        self.answer(&text).await;
        Ok(StopReason::EndTurn)
    }

    /// Takes back the changes of the agent's last turn.
    async fn undo(&self, link: &Link) -> Outcome {
        let session_id = Some(self.id().to_owned());
        let params = ToolParams { session_id, ..UndoArguments::builder().turn(0).into() };
        let undone = link.client.call_within(params, REPLY_TIMEOUT);
        let text = match undone.await {
            Ok(undone) => undone.text,
            Err(ClientError::Refused { text, .. }) => text,
            Err(error) => return Err(error.into()),
        };
        self.answer(&text).await;
        Ok(StopReason::EndTurn)
    }

    /// Sends a text as a message of the agent.
    async fn answer(&self, text: &str) {
        let chunk = {
            let mut translator = lock(&self.shared.translator);
            translator.next_message();
            translator.chunk("agent_message_chunk", json!({"type": "text", "text": text}))
        };
        self.shared.peer.update(self.id(), chunk).await;
    }

    /// Ends the turn and the calls of the session.
    async fn abort(&self, client: &Client) {
        // A refusal means that nothing runs.
        client.call_within(AbortParams::of(self.id()), REPLY_TIMEOUT).await.ok();
    }

    /// Sends the used part of the context, if its size became known only now.
    async fn report_usage(&self, client: &Client) {
        if lock(&self.shared.translator).window.is_some() {
            return;
        }

        let state = agent_options::last_state(client, self.id()).await;
        let window = state.pointer("/model/contextWindow").and_then(Value::as_u64);
        let update = {
            let mut translator = lock(&self.shared.translator);
            translator.window = window;
            translator.usage_update()
        };
        if let Some(update) = update {
            self.shared.peer.update(self.id(), update).await;
        }
    }

    /// Notes that the session has no conversation yet: it gets a title, and its cost is known.
    pub(crate) fn is_new(&self) {
        self.has_title.store(false, Ordering::Relaxed);
        lock(&self.shared.translator).cost = Some(0.0);
    }

    /// Sends the whole conversation.
    pub(crate) async fn replay(&self, read_blocking: ReadTranscript) -> Result<(), RpcError> {
        let link = self.link().await?;
        let messages = self.history(&link.client, read_blocking).await?;
        self.has_title.store(!messages.is_empty(), Ordering::Relaxed);
        let updates = {
            let mut translator = lock(&self.shared.translator);
            translator.cost = Some(0.0);
            translator.replay(&messages)
        };
        for update in updates {
            self.shared.peer.update(self.id(), update).await;
        }
        Ok(())
    }

    /// Returns the messages of the session's file, else those that the agent knows.
    async fn history(
        &self,
        client: &Client,
        read_blocking: ReadTranscript,
    ) -> Result<Vec<Message>, RpcError> {
        let state = client.call_within(StateParams::of(self.id()), REPLY_TIMEOUT).await?;
        let of_agent = || Some(state.pi_state?.get("sessionFile")?.as_str()?.to_owned());
        let file = state.pi_session_file.or_else(of_agent);
        if let Some(file) = file.filter(|file| !file.is_empty()) {
            let file = PathBuf::from(file);
            let read = tokio::task::spawn_blocking(move || read_blocking(&file)).await;
            let read = read.unwrap_or_else(|error| Err(error.into()));
            let failed =
                |error| RpcError::internal(format!("cannot read the conversation: {error}"));
            let transcript = read.map_err(failed)?;
            // Without a file the session has no conversation yet.
            return Ok(transcript.as_ref().map(replay::messages).unwrap_or_default());
        }

        let command = json!({"type": "get_messages"});
        let mut known = match agent_options::command(client, self.id(), command).await {
            Ok(known) => known,
            // An agent that refuses has no messages to show.
            Err(ClientError::Refused { .. }) => Value::Null,
            Err(error) => return Err(error.into()),
        };
        let messages = known.get_mut("messages").map(Value::take).unwrap_or_default();
        Ok(serde_json::from_value(messages).unwrap_or_default())
    }

    /// Returns the modes that the session may have, and the current one.
    pub(crate) async fn modes(&self) -> Result<Modes, RpcError> {
        let link = self.link().await?;
        let params = SandboxShow { session: SandboxSession::of(self.id()) };
        let data = link.client.call_within(params, REPLY_TIMEOUT).await?;
        Ok(Modes::of(&data))
    }

    /// Sets the mode.
    pub(crate) async fn set_mode(&self, mode: &str) -> Result<(), RpcError> {
        let params = self.modes().await?.change(mode, self.id());
        let params = params.ok_or_else(|| RpcError::invalid_params("the mode is not available"))?;
        let link = self.link().await?;
        link.client.call_within(params, REPLY_TIMEOUT).await?;
        Ok(())
    }

    /// Asks the agent for its options. Starts the agent if necessary.
    pub(crate) async fn fetch_options(&self) -> AgentOptions {
        let Ok(link) = self.link().await else { return AgentOptions::default() };
        let options = AgentOptions::fetch(&link.client, self.id()).await;
        if options.window.is_some() {
            lock(&self.shared.translator).window = options.window;
        }
        lock(&self.options).clone_from(&options);
        options
    }

    /// Sets an option. Returns all.
    pub(crate) async fn set_option(&self, option: &str, value: &str) -> Result<Value, RpcError> {
        let command = lock(&self.options).setting(option, value);
        let command = command
            .ok_or_else(|| RpcError::invalid_params("the option or value is not offered"))?;
        let link = self.link().await?;
        agent_options::command(&link.client, self.id(), command).await?;
        let options = self.fetch_options().await.options();
        Ok(options.unwrap_or_else(|| json!([])))
    }
}

impl Shared {
    /// Passes events on until the connection closes.
    async fn read(self: Arc<Self>, mut events: Events, client: Arc<Client>) {
        while let Some(event) = events.recv().await {
            if event.session_id.as_deref() == Some(&self.id) {
                self.event(&event, &client).await;
            }
        }
        lock(&self.questions).list.clear();
    }

    async fn event(self: &Arc<Self>, event: &Event, client: &Arc<Client>) {
        let text = event.data.as_deref().map(RawValue::get).unwrap_or("null");
        let Ok(data) = serde_json::from_str::<Value>(text) else { return };
        match event.name.as_str() {
            ApprovalRequest::NAME => {
                if let Some(question) = Question::read(&self.id, &data) {
                    return self.ask(question, client).await;
                }
            }
            // Withdraws a question that has ended.
            ApprovalClosed::NAME => {
                lock(&self.questions).close(data.get("id").unwrap_or(&Value::Null));
                return;
            }
            _ => {}
        }

        let translated = lock(&self.translator).event(&event.name, &data, event.turn);
        for update in translated.updates {
            self.peer.update(&self.id, update).await;
        }
        if let Some((turn, outcome)) = translated.ended {
            self.turns.end(turn, outcome);
        }
    }
}
