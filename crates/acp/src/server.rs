//! The requests of the client: one task for each, until the input ends.

use crate::agent_options::AgentOptions;
use crate::params::{
    self, CancelRequest, Initialize, List, Load, New, OfSession, SetMode, SetOption,
};
use crate::rpc::{self, Incoming, Peer, RpcError, parse_params};
use crate::session::{Facts, REPLY_TIMEOUT, Session};
use crate::updates::Displays;
use crate::{ReadTranscript, lock, mcp_servers, prompt, sessions};
use bytes::Bytes;
use quackd_client::{Client, Connector};
use quackd_ipc::lines::{Line, LineReader};
use quackd_protocol::VERSION;
use quackd_protocol::client::SessionDeleteParams;
use quackd_protocol::limits::MAX_LINE_BYTES;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Version of the protocol.
const PROTOCOL: u64 = 1;

/// Requests without an answer. Further ones are refused.
const MAX_REQUESTS: usize = 256;

/// Open sessions of one client. Further ones are refused.
const MAX_SESSIONS: usize = 64;

/// Messages that wait for a reader of the output. The senders of further ones wait.
const MAX_WAITING: usize = 64;

/// Time for running prompts to end after the input has ended.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for the last messages to be read.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time that an answer waits for the options of an agent, which may have to start.
const OPTIONS_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves one client until its input ends, it stops reading, or `ended` is cancelled. Then running prompts are aborted.
/// `read_blocking` reads the conversations of loaded sessions. With `isolated`, each new session works in a private copy of
/// its workspace.
pub async fn serve_lines<R, W>(
    connector: Connector,
    read_blocking: ReadTranscript,
    isolated: bool,
    input: R,
    output: W,
    ended: CancellationToken,
) where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (lines, waiting) = mpsc::channel(MAX_WAITING);
    let mut writer = tokio::spawn(write(output, waiting));
    let server = Arc::new(Server {
        connector,
        read_blocking,
        peer: Arc::new(Peer::new(lines.clone())),
        facts: Mutex::new(Facts { isolated, ..Facts::default() }),
        sessions: Mutex::default(),
        slots: Arc::new(Semaphore::new(MAX_SESSIONS)),
        in_flight: Mutex::default(),
    });

    let mut tasks = JoinSet::new();
    let mut reader = LineReader::new(input, MAX_LINE_BYTES);
    loop {
        let line = tokio::select! {
            () = ended.cancelled() => break,
            () = lines.closed() => break,
            // Removes tasks that have ended from the set.
            Some(_) = tasks.join_next() => continue,
            line = reader.next() => line,
        };

        match line {
            Ok(Some(Line::Text(line))) => server.line(&line, &mut tasks).await,
            Ok(Some(Line::TooLong)) => {
                let text = format!("the message is longer than {MAX_LINE_BYTES} bytes");
                server.peer.answer(&Value::Null, Err(RpcError::invalid_request(text))).await;
            }
            Ok(None) | Err(_) => break,
        }
    }

    lock(&server.in_flight).values().for_each(|request| request.cancel.cancel());
    let ending = async { while tasks.join_next().await.is_some() {} };
    // A client that does not read loses the last messages.
    timeout(END_TIMEOUT, ending).await.ok();
    tasks.shutdown().await;

    // Without senders, the writer ends after the last message.
    lock(&server.sessions).clear();
    drop((server, lines));
    if timeout(CLOSE_TIMEOUT, &mut writer).await.is_err() {
        writer.abort();
    }
}

/// Writes lines until the output breaks or all senders are gone.
async fn write<W: AsyncWrite + Unpin>(mut output: W, mut lines: mpsc::Receiver<Bytes>) {
    while let Some(line) = lines.recv().await {
        if output.write_all(&line).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}

struct Server {
    connector: Connector,
    read_blocking: ReadTranscript,
    peer: Arc<Peer>,
    facts: Mutex<Facts>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    slots: Arc<Semaphore>,
    /// Requests without an answer, by id.
    in_flight: Mutex<HashMap<String, InFlight>>,
}

struct InFlight {
    cancel: CancellationToken,
    /// Session of a prompt.
    prompted: Option<String>,
}

/// Result of a request, and the session and update that follow the answer.
struct Reply {
    result: Value,
    after: Option<(String, Value)>,
}

impl From<Value> for Reply {
    fn from(result: Value) -> Self {
        Self { result, after: None }
    }
}

impl Reply {
    /// Adds the id of a new session.
    fn of(mut self, session: &str) -> Self {
        if let Some(result) = self.result.as_object_mut() {
            result.insert("sessionId".to_owned(), session.into());
        }
        self
    }
}

impl Server {
    async fn line(self: &Arc<Self>, line: &[u8], tasks: &mut JoinSet<()>) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }

        match rpc::parse_line(line) {
            Ok(Incoming::Request { id, method, params }) => {
                if let Err(error) = self.begin(&id, method, params, tasks) {
                    self.peer.answer(&id, Err(error)).await;
                }
            }
            Ok(Incoming::Notification { method, params }) => self.notified(&method, params),
            Ok(Incoming::Response { id, result }) => self.peer.deliver(id, result),
            Err((id, error)) => self.peer.answer(&id, Err(error)).await,
        }
    }

    /// Starts a request in a task. Refuses an id that is in use.
    fn begin(
        self: &Arc<Self>,
        id: &Value,
        method: String,
        params: Value,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), RpcError> {
        let cancel = CancellationToken::new();
        // Known before the next line, which may cancel it.
        let prompted = (method == "session/prompt")
            .then(|| params.get("sessionId").and_then(Value::as_str).map(ToOwned::to_owned))
            .flatten();
        {
            let mut in_flight = lock(&self.in_flight);
            if in_flight.contains_key(&id.to_string()) {
                return Err(RpcError::invalid_request("the id is in use"));
            }
            if MAX_REQUESTS <= in_flight.len() {
                return Err(RpcError::invalid_request("too many requests are in flight"));
            }
            in_flight.insert(id.to_string(), InFlight { cancel: cancel.clone(), prompted });
        }

        let (server, id) = (Arc::clone(self), id.clone());
        tasks.spawn(async move {
            let reply = server.handle(&method, params, &cancel).await;
            lock(&server.in_flight).remove(&id.to_string());
            let (result, after) = match reply {
                Ok(Reply { result, after }) => (Ok(result), after),
                Err(error) => (Err(error), None),
            };
            server.peer.answer(&id, result).await;
            if let Some((session, update)) = after {
                server.peer.update(&session, update).await;
            }
        });
        Ok(())
    }

    fn notified(&self, method: &str, params: Value) {
        match method {
            "session/cancel" => {
                if let Ok(OfSession { session_id }) = parse_params(params) {
                    self.cancel_prompts(&session_id);
                }
            }
            "$/cancel_request" => {
                if let Ok(CancelRequest { request_id }) = parse_params(params)
                    && let Some(request) = lock(&self.in_flight).get(&request_id.to_string())
                {
                    request.cancel.cancel();
                }
            }
            // Notifications have no answer, not even an error.
            _ => {}
        }
    }

    fn cancel_prompts(&self, session: &str) {
        let in_flight = lock(&self.in_flight);
        let prompts = in_flight.values().filter(|call| call.prompted.as_deref() == Some(session));
        prompts.for_each(|call| call.cancel.cancel());
    }

    async fn handle(
        self: &Arc<Self>,
        method: &str,
        params: Value,
        cancel: &CancellationToken,
    ) -> Result<Reply, RpcError> {
        // A cancelled prompt has an answer: the reason for the end of its turn.
        if method == "session/prompt" {
            return self.prompt(parse_params(params)?, cancel).await;
        }
        tokio::select! {
            reply = Box::pin(self.answered(method, params)) => reply,
            () = cancel.cancelled() => Err(RpcError::cancelled()),
        }
    }

    async fn answered(self: &Arc<Self>, method: &str, params: Value) -> Result<Reply, RpcError> {
        match method {
            "initialize" => Ok(self.initialize(parse_params(params)?).into()),
            "authenticate" => {
                Err(RpcError::invalid_params("there are no methods of authentication"))
            }
            "session/new" => self.create(parse_params(params)?).await,
            "session/load" => self.load(parse_params(params)?, true).await,
            "session/resume" => self.load(parse_params(params)?, false).await,
            "session/fork" => self.fork(parse_params(params)?).await,
            "session/list" => {
                let List { cwd, cursor } = parse_params(params)?;
                let client = self.connect().await?;
                Ok(sessions::list(&client, cwd.as_deref(), cursor.as_deref()).await?.into())
            }
            "session/close" => {
                Ok(self.close(&parse_params::<OfSession>(params)?.session_id)?.into())
            }
            "session/delete" => self.delete(parse_params(params)?).await,
            "session/set_mode" => {
                let SetMode { session_id, mode_id } = parse_params(params)?;
                self.session(&session_id).await?.set_mode(&mode_id).await?;
                Ok(json!({}).into())
            }
            "session/set_config_option" => {
                let SetOption { session_id, config_id, value } = parse_params(params)?;
                let value = value.as_str().unwrap_or_default();
                let session = self.session(&session_id).await?;
                Ok(json!({"configOptions": session.set_option(&config_id, value).await?}).into())
            }
            _ => Err(RpcError::unknown_method(method)),
        }
    }

    fn initialize(&self, params: Initialize) -> Value {
        let capabilities = params.client_capabilities;
        let of = |path: &str| capabilities.pointer(path).is_some_and(Value::is_object);
        let info = params.client_info.unwrap_or_default();
        let mut facts = lock(&self.facts);
        *facts = Facts {
            isolated: facts.isolated,
            name: info.name,
            version: info.version,
            has_forms: of("/elicitation/form"),
            displays: Displays {
                notices: of("/session/notices"),
                compaction: of("/session/compaction"),
            },
        };
        drop(facts);

        json!({
            "protocolVersion": PROTOCOL,
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": {"image": true, "audio": false, "embeddedContext": true},
                "mcpCapabilities": {"http": true, "sse": true},
                "sessionCapabilities": {"list": {}, "delete": {}, "resume": {}, "close": {}, "fork": {}},
            },
            "authMethods": [],
            "agentInfo": {"name": "quackd", "title": "quackd", "version": VERSION},
        })
    }

    async fn connect(&self) -> Result<Client, RpcError> {
        let facts = lock(&self.facts).clone();
        sessions::connect(&self.connector, &facts).await
    }

    fn slot(&self) -> Result<OwnedSemaphorePermit, RpcError> {
        let slot = Arc::clone(&self.slots).try_acquire_owned();
        slot.map_err(|_| {
            RpcError::invalid_request(format!("{MAX_SESSIONS} sessions are open; close one"))
        })
    }

    async fn create(self: &Arc<Self>, params: New) -> Result<Reply, RpcError> {
        let New { cwd, mcp_servers } = params;
        sessions::check_directory(&cwd).await?;
        let servers = mcp_servers::checked(mcp_servers)?;

        let slot = self.slot()?;
        let client = self.connect().await?;
        let facts = lock(&self.facts).clone();
        let id =
            sessions::create(&client, &sessions::workspace(&client, &cwd).await, &facts).await?;
        let session = self.open(id, client, slot).await?;
        session.is_new();
        session.configure(&cwd, Some(servers).filter(|servers| !servers.is_empty())).await?;
        self.described(&session).await.map(|reply| reply.of(session.id()))
    }

    /// Opens a session of the daemon. `replays`: its conversation is sent before the answer.
    async fn load(self: &Arc<Self>, params: Load, replays: bool) -> Result<Reply, RpcError> {
        let Load { session_id, cwd, mcp_servers } = params;
        sessions::check_directory(&cwd).await?;
        let servers = mcp_servers.map(mcp_servers::checked).transpose()?;

        let known = lock(&self.sessions).get(&session_id).cloned();
        let session = match known {
            Some(session) => self.reconnected(session).await?,
            None => {
                let slot = self.slot()?;
                if session_id.is_empty() {
                    return Err(RpcError::unknown_session(&session_id));
                }
                let client = self.connect().await?;
                self.open(session_id, client, slot).await?
            }
        };
        session.configure(&cwd, servers).await?;
        if replays {
            session.replay(self.read_blocking).await?;
        }
        self.described(&session).await
    }

    /// Creates a session that continues a copy of the conversation. The reply has no conversation, as that of a resumed
    /// session.
    async fn fork(self: &Arc<Self>, params: Load) -> Result<Reply, RpcError> {
        let Load { session_id, cwd, mcp_servers } = params;
        sessions::check_directory(&cwd).await?;
        let servers = mcp_servers.map(mcp_servers::checked).transpose()?;

        let slot = self.slot()?;
        if session_id.is_empty() {
            return Err(RpcError::unknown_session(&session_id));
        }
        let client = self.connect().await?;
        let facts = lock(&self.facts).clone();
        let id = sessions::fork(&client, &session_id, &facts).await?;
        let session = self.open(id, client, slot).await?;
        session.configure(&cwd, servers).await?;
        self.described(&session).await.map(|reply| reply.of(session.id()))
    }

    async fn open(
        &self,
        id: String,
        client: Client,
        slot: OwnedSemaphorePermit,
    ) -> Result<Arc<Session>, RpcError> {
        let facts = lock(&self.facts).clone();
        let session = Arc::new(Session::new(id.clone(), Arc::clone(&self.peer), facts, slot));
        session.follow(client).await?;
        lock(&self.sessions).insert(id, Arc::clone(&session));
        Ok(session)
    }

    /// Returns the modes and options of a session, and its commands for after the reply.
    async fn described(self: &Arc<Self>, session: &Arc<Session>) -> Result<Reply, RpcError> {
        let modes = session.modes().await?.state();
        let mut result = json!({ "modes": modes });

        // In a task, so that the timeout does not end it.
        let mut fetching = {
            let session = Arc::clone(session);
            tokio::spawn(async move { session.fetch_options().await })
        };
        let options = match timeout(OPTIONS_TIMEOUT, &mut fetching).await {
            Ok(options) => options.unwrap_or_default(),
            Err(_elapsed) => {
                // They follow when the agent has started.
                let (peer, id) = (Arc::clone(&self.peer), session.id().to_owned());
                tokio::spawn(async move {
                    let options = fetching.await.unwrap_or_default();
                    if let Some(all) = options.options() {
                        let update =
                            json!({"sessionUpdate": "config_option_update", "configOptions": all});
                        peer.update(&id, update).await;
                    }
                    peer.update(&id, options.commands()).await;
                });
                AgentOptions::default()
            }
        };

        if let (Some(options), Some(result)) = (options.options(), result.as_object_mut()) {
            result.insert("configOptions".to_owned(), options);
        }
        Ok(Reply { result, after: Some((session.id().to_owned(), options.commands())) })
    }

    /// Returns an open session, with a connection.
    async fn session(&self, id: &str) -> Result<Arc<Session>, RpcError> {
        let session = lock(&self.sessions).get(id).cloned();
        self.reconnected(session.ok_or_else(|| RpcError::unknown_session(id))?).await
    }

    /// Connects the session again if the daemon has ended.
    async fn reconnected(&self, session: Arc<Session>) -> Result<Arc<Session>, RpcError> {
        // Two requests at once must not connect twice.
        let connecting = session.connecting.lock().await;
        if !session.is_connected().await {
            session.follow(self.connect().await?).await?;
        }
        drop(connecting);
        Ok(session)
    }

    async fn prompt(
        &self,
        params::Prompt { session_id, prompt }: params::Prompt,
        cancel: &CancellationToken,
    ) -> Result<Reply, RpcError> {
        let text = prompt::message(&prompt)?;
        let session = self.session(&session_id).await?;
        let stop = Box::pin(session.prompt(&text, cancel)).await?;
        Ok(json!({"stopReason": stop}).into())
    }

    /// Forgets a session and ends its prompt. The daemon keeps it.
    fn close(&self, id: &str) -> Result<Value, RpcError> {
        let session = lock(&self.sessions).remove(id);
        session.ok_or_else(|| RpcError::unknown_session(id))?;
        self.cancel_prompts(id);
        Ok(json!({}))
    }

    /// Deletes a session of the daemon. Ends what runs in it only if it is open here.
    async fn delete(&self, OfSession { session_id }: OfSession) -> Result<Reply, RpcError> {
        let is_ours = self.close(&session_id).is_ok();
        let client = self.connect().await?;
        let params = SessionDeleteParams { session_id: session_id.into(), force: Some(is_ours) };
        client.call_within(params, REPLY_TIMEOUT).await?;
        Ok(json!({}).into())
    }
}
