//! `quack rpc`: Pi's RPC protocol on stdin and stdout, as a client of the daemon. Programs that start `pi --mode rpc` can
//! start this instead.
//!
//! Commands run at the same time, and each gets exactly one response with its id. A prompt's response precedes its
//! events.

use crate::args::rpc::RpcArgs;
use crate::connect::{REPLY_TIMEOUT, start_and_connect};
use crate::directory;
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::subcommands::follow::follow_connection::FollowConnection;
use quackd_client::{Client, ClientError, Event};
use quackd_home::Home;
use quackd_ipc::lines::{Line, LineReader};
use quackd_protocol::client::{
    AgentData, AgentParams, AttachData, ForkData, ForkParams, SessionDeleteParams,
    SessionNewParams, SessionParams, StateData, UiResponseParams,
};
use quackd_protocol::limits::MAX_LINE_BYTES;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

/// Timeout of a command, longer than the daemon's own.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(620);

/// Commands at the same time. Further lines wait.
const MAX_COMMANDS: usize = 64;

/// Commands that select another session, so that no other command may run meanwhile.
const SWITCHES: [&str; 4] = ["new_session", "switch_session", "fork", "clone"];

/// A response, and what its order depends on.
struct Done {
    line: String,
    order: Order,
}

/// Order of a response and the events of a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Any,
    /// The response precedes the events.
    First,
    /// The response follows the end of the turn.
    Last,
}

/// The followed session.
struct Session {
    client: Arc<Client>,
    follow: FollowConnection,
    /// Delete it at the end.
    is_temporary: bool,
}

/// Runs the subcommand.
pub(crate) async fn run(args: RpcArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    for (given, name) in
        [(args.session_dir.is_some(), "--session-dir"), (args.tools.is_some(), "--tools")]
    {
        if given {
            note(&format!("{name} has no effect"));
        }
    }
    let client = Arc::new(start_and_connect(output).await?.client);
    let mut session = begin(&args, client).await?;
    let ended = serve(&mut session).await;
    session.end().await;
    ended.map(|()| ExitCode::Ok)
}

/// Writes a note to stderr: stdout is for the protocol alone.
fn note(text: &str) {
    // A failed write cannot be reported.
    drop(writeln!(std::io::stderr(), "note: {text}"));
}

/// Creates or finds the session.
async fn begin(args: &RpcArgs, client: Arc<Client>) -> anyhow::Result<Session> {
    let path = directory::workspace(args.dir.as_deref(), false)?;
    let model = match (&args.provider, &args.model) {
        (Some(provider), Some(model)) if !model.starts_with(&format!("{provider}/")) => {
            Some(format!("{provider}/{model}"))
        }
        (_, model) => model.clone(),
    };
    let id = if let Some(wanted) = &args.session {
        find(&client, wanted).await?
    } else if args.continues {
        let params = json!({ "path": path, "activate": false });
        let found: AttachData = client.request("attach", params, REPLY_TIMEOUT).await?;
        found.session.id.0
    } else {
        let params = SessionNewParams {
            path: Some(path),
            engine: args.engine.clone(),
            model: model.clone(),
            ..SessionNewParams::default()
        };
        let made: AttachData = client.request("quack.session_new", params, REPLY_TIMEOUT).await?;
        made.session.id.0
    };
    let follow = FollowConnection::begin(Arc::clone(&client), id.clone(), (None, true)).await?;
    let session = Session { client, follow, is_temporary: args.no_session };
    if let (Some(model), true) = (&model, args.session.is_some() || args.continues) {
        let (provider, name) = model.split_once('/').unwrap_or(("", model));
        let command = json!({ "type": "set_model", "provider": provider, "modelId": name });
        send(&session.client, &id, command).await?;
    }
    if let Some(level) = args.thinking.as_deref().filter(|level| *level != "off") {
        let command = json!({ "type": "set_thinking_level", "level": level });
        send(&session.client, &id, command).await?;
    }
    Ok(session)
}

/// Finds a session by its file or by a reference.
async fn find(client: &Client, wanted: &str) -> Result<String, ClientError> {
    let file = wanted.to_owned();
    let of_file = tokio::task::spawn_blocking(move || of_file_blocking(&file)).await;
    let reference = of_file.ok().flatten().unwrap_or_else(|| wanted.to_owned());
    let params = SessionParams { session_id: Some(reference) };
    let state: StateData = client.request("get_state", params, REPLY_TIMEOUT).await?;
    Ok(state.session_id.0)
}

/// Returns the session with this file, according to the daemon's state.
fn of_file_blocking(file: &str) -> Option<String> {
    if !file.contains('/') {
        return None;
    }
    let home = Home::from_process_env_blocking().ok()?;
    let state = super::gc::own_metadata_blocking(&home.state_file()).ok()?;
    let found = state.sessions.into_iter().find(|session| session.pi_session_file == file);
    found.map(|session| session.id.0.clone())
}

async fn send(client: &Client, session: &str, command: Value) -> Result<AgentData, ClientError> {
    let params = AgentParams { session_id: session.into(), command };
    client.request("quack.agent", params, COMMAND_TIMEOUT).await
}

impl Session {
    fn id(&self) -> String {
        self.follow.session().to_owned()
    }

    async fn abort(&self) {
        let abort = SessionParams { session_id: Some(self.id()) };
        // There may be nothing to abort.
        drop(self.client.request_raw("abort", abort, REPLY_TIMEOUT).await);
    }

    async fn end(&self) {
        let id = self.id();
        self.abort().await;
        if self.is_temporary {
            let params = SessionDeleteParams { session_id: id.into(), force: Some(true) };
            drop(self.client.request_raw("quack.session_delete", params, REPLY_TIMEOUT).await);
        }
    }

    /// Follows another session.
    async fn follow(&mut self, id: String) -> Result<(), ClientError> {
        let begin = |id| FollowConnection::begin(Arc::clone(&self.client), id, (None, true));
        let next = match begin(id).await {
            Ok(next) => next,
            Err(error) => {
                // The attempt has ended the old subscription.
                self.follow = begin(self.id()).await?;
                return Err(error);
            }
        };
        let old = std::mem::replace(&mut self.follow, next);
        if self.is_temporary {
            let id = old.session().to_owned();
            let params = SessionDeleteParams { session_id: id.into(), force: Some(true) };
            drop(self.client.request_raw("quack.session_delete", params, REPLY_TIMEOUT).await);
        }
        Ok(())
    }

    /// Runs a command that selects another session.
    async fn switch(
        &mut self,
        name: &str,
        fields: &Map<String, Value>,
    ) -> Result<Value, ClientError> {
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let cancelled = json!({ "cancelled": false });
        match name {
            "switch_session" => {
                let id = find(&self.client, text("sessionPath")).await?;
                self.follow(id).await?;
                Ok(cancelled)
            }
            "fork" | "clone" => {
                let entry_id = (name == "fork").then(|| text("entryId").to_owned());
                let session_id = self.id().into();
                let params = ForkParams { session_id, entry_id, ..ForkParams::default() };
                let made: ForkData =
                    self.client.request("quack.fork", params, REPLY_TIMEOUT).await?;
                self.follow(made.session_id.0).await?;
                Ok(match name {
                    "fork" => json!({ "text": made.text.unwrap_or_default(), "cancelled": false }),
                    _ => cancelled,
                })
            }
            _ => {
                let path = self.follow.followed().workspace_path.clone();
                let params = SessionNewParams { path: Some(path), ..SessionNewParams::default() };
                let made: AttachData =
                    self.client.request("quack.session_new", params, REPLY_TIMEOUT).await?;
                self.follow(made.session.id.0).await?;
                Ok(cancelled)
            }
        }
    }
}

/// The protocol's output: responses and events in their order.
struct Output {
    stdout: std::io::Stdout,
    /// Prompts without a response, and the events that follow it.
    prompts: usize,
    held: Vec<String>,
    /// Whether a turn runs, and the responses that follow its end.
    in_turn: bool,
    last: Vec<String>,
}

impl Output {
    fn write(&mut self, lines: &[String]) -> std::io::Result<()> {
        lines.iter().try_for_each(|line| writeln!(self.stdout, "{line}"))?;
        self.stdout.flush()
    }

    fn done(&mut self, Done { line, order }: Done) -> std::io::Result<()> {
        match order {
            Order::Last if self.in_turn => self.last.push(line),
            _ => self.write(&[line])?,
        }
        if order == Order::First {
            self.prompts = self.prompts.saturating_sub(1);
        }
        if self.prompts == 0 {
            let held = std::mem::take(&mut self.held);
            self.write(&held)?;
        }
        Ok(())
    }

    /// Writes what waited for the turn, whose events are no longer read.
    fn turn_left(&mut self) -> std::io::Result<()> {
        (self.in_turn, self.prompts) = (false, 0);
        let lines = [std::mem::take(&mut self.held), std::mem::take(&mut self.last)].concat();
        self.write(&lines)
    }

    fn event(&mut self, event: Event) -> std::io::Result<()> {
        match event.name.as_str() {
            "agent_start" => self.in_turn = true,
            "agent_end" => self.in_turn = false,
            _ => {}
        }
        let Some(line) = event_line(event) else { return Ok(()) };
        // The response of a prompt precedes the events of its turn.
        match self.prompts {
            0 => self.write(&[line])?,
            _ => self.held.push(line),
        }
        if !self.in_turn {
            let last = std::mem::take(&mut self.last);
            self.write(&last)?;
        }
        Ok(())
    }
}

/// Serves until the end of stdin. Commands that still run are given up.
async fn serve(session: &mut Session) -> anyhow::Result<()> {
    let mut lines = LineReader::new(tokio::io::stdin(), MAX_LINE_BYTES);
    let slots = Arc::new(Semaphore::new(MAX_COMMANDS));
    let (done, mut finished) = mpsc::channel::<Done>(MAX_COMMANDS);
    let mut running = JoinSet::new();
    let mut output = Output {
        stdout: std::io::stdout(),
        prompts: 0,
        held: Vec::new(),
        in_turn: false,
        last: Vec::new(),
    };
    loop {
        tokio::select! {
            biased;
            Some(done) = finished.recv() => output.done(done)?,
            Some(_) = running.join_next() => {}
            event = session.follow.recv() => {
                let event = event.ok_or_else(|| CliError::daemon_gone("Daemon disconnected."))?;
                output.event(event)?;
            }
            line = lines.next(), if slots.available_permits() != 0 => {
                let Some(line) = line? else { return Ok(()) };
                let Some((id, name, fields)) = obey(session, &line, &mut output).await? else {
                    continue;
                };
                let order = match name.as_str() {
                    "prompt" => Order::First,
                    "abort" | "abort_retry" => Order::Last,
                    _ => Order::Any,
                };
                output.prompts += usize::from(order == Order::First);
                let (client, session) = (Arc::clone(&session.client), session.id());
                let (done, slots) = (done.clone(), Arc::clone(&slots));
                running.spawn(async move {
                    let _slot = slots.acquire_owned().await;
                    let result = run_command(&client, &session, &name, fields).await;
                    let line = response(id.as_ref(), &name, result);
                    drop(done.send(Done { line, order }).await);
                });
            }
        }
    }
}

/// Reads a line. Returns a command for the agent, unless the line was handled here.
async fn obey(
    session: &mut Session,
    line: &Line,
    output: &mut Output,
) -> std::io::Result<Option<Command>> {
    match parse(line) {
        Err(response) => output.write(&[response])?,
        Ok((id, name, fields)) if SWITCHES.contains(&&*name) => {
            // Like Pi: the turn of the old session ends. Its events are no longer followed.
            session.abort().await;
            output.turn_left()?;
            let result = session.switch(&name, &fields).await;
            output.write(&[response(id.as_ref(), &name, result.map(Some))])?;
        }
        Ok((_, name, fields)) if name == "extension_ui_response" => {
            answer_dialog(session, fields).await;
        }
        Ok(command) => return Ok(Some(command)),
    }
    Ok(None)
}

async fn run_command(
    client: &Client,
    session: &str,
    name: &str,
    fields: Map<String, Value>,
) -> Result<Option<Value>, ClientError> {
    if name == "abort" {
        let params = SessionParams { session_id: Some(session.to_owned()) };
        // An idle session has nothing to abort, which is no error in Pi's protocol.
        return match client.request_raw("abort", params, COMMAND_TIMEOUT).await {
            Ok(_) | Err(ClientError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        };
    }
    let data = send(client, session, Value::Object(fields)).await?.data;
    let data: Option<Value> = data.and_then(|data| serde_json::from_str(data.get()).ok());
    if name == "prompt" {
        let disposition = data.as_ref().and_then(|data| data["disposition"].as_str());
        return Ok(Some(json!({ "disposition": disposition.unwrap_or("started") })));
    }
    Ok(data)
}

/// Passes an answer to a question on. It has no response.
async fn answer_dialog(session: &Session, mut fields: Map<String, Value>) {
    let params = UiResponseParams {
        id: fields.remove("id").unwrap_or_default(),
        session_id: session.id().into(),
        value: fields.remove("value"),
        confirmed: fields.remove("confirmed"),
        cancelled: fields.remove("cancelled"),
    };
    // Another client may have answered.
    drop(session.client.request_raw("extension_ui_response", params, REPLY_TIMEOUT).await);
}

/// A command: its id, its type and the object.
type Command = (Option<Value>, String, Map<String, Value>);

/// Reads a command. The error is the response.
fn parse(line: &Line) -> Result<Command, String> {
    let refuse = |why: String| {
        json!({
            "type": "response", "command": "parse", "success": false,
            "error": format!("Failed to parse command: {why}"),
        })
        .to_string()
    };
    let Line::Text(text) = line else {
        return Err(refuse(format!("the line is longer than {MAX_LINE_BYTES} bytes")));
    };
    let read: Result<Map<String, Value>, _> = serde_json::from_slice(text);
    let mut fields = read.map_err(|error| refuse(error.to_string()))?;
    let name = fields.get("type").and_then(Value::as_str).map(str::to_owned);
    let name = name.ok_or_else(|| refuse("it has no type".to_owned()))?;
    let id = match name.as_str() {
        "extension_ui_response" => None,
        _ => fields.remove("id"),
    };
    Ok((id, name, fields))
}

fn response(id: Option<&Value>, name: &str, result: Result<Option<Value>, ClientError>) -> String {
    let mut line = Map::new();
    if let Some(id) = id {
        line.insert("id".to_owned(), id.clone());
    }
    line.insert("type".to_owned(), "response".into());
    line.insert("command".to_owned(), name.into());
    line.insert("success".to_owned(), result.is_ok().into());
    match result {
        Ok(Some(data)) => drop(line.insert("data".to_owned(), data)),
        Ok(None) => {}
        Err(ClientError::Refused { text, .. }) => {
            drop(line.insert("error".to_owned(), text.into()));
        }
        Err(error) => drop(line.insert("error".to_owned(), error.to_string().into())),
    }
    Value::Object(line).to_string()
}

/// Returns the line of an event: its data, which names the event itself.
fn event_line(event: Event) -> Option<String> {
    let data: Box<RawValue> = event.data?;
    match data.get().contains("\"type\"") {
        true => Some(data.get().to_owned()),
        false => {
            let mut fields: Map<String, Value> = serde_json::from_str(data.get()).ok()?;
            fields.insert("type".to_owned(), event.name.into());
            to_raw_value(&fields).ok().map(|data| data.get().to_owned())
        }
    }
}
