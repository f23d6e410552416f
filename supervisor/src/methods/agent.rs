//! `quack.agent`: passes a command of Pi's protocol to the session's agent. Also runs the tool calls of quackd's own
//! agent, as if a client had made them.

use super::tool;
use super::tool_parameters::beneath;
use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::events::client_registry::{Client, Transport};
use crate::registry::{Purpose, Registry};
use crate::services::Services;
use crate::session::agent::SendCommand;
use crate::session::agent::native::tool_runner::{AgentCall, ToolRunner};
use crate::wire::reference;
use actix::Addr;
use futures_util::future::LocalBoxFuture;
use quackd_protocol::agent::{AgentCommand, AgentToolDone, OtherCommand};
use quackd_protocol::client::{AgentData, AgentParams, LOCAL_AGENT_COMMAND, SayData, ToolData};
use quackd_protocol::foreign_text::{NameError, first_unsafe};
use quackd_protocol::limits::MAX_NAME_CHARS;
use serde::Serialize;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value};
use std::io;
use std::rc::{Rc, Weak};

/// Longest name of a command, in bytes.
const MAX_NAME: usize = 64;

/// Commands that change what the daemon itself decides, with the subcommand for it.
const DECIDED_BY_DAEMON: [(&str, &str); 4] = [
    ("new_session", "quack new"),
    ("switch_session", "quack activate"),
    ("fork", "quack fork"),
    ("clone", "quack fork"),
];

/// Commands that a page may send: `steer` is a prompt like `say`, and the others read.
const OF_PAGES: [&str; 3] = ["steer", "get_messages", "get_state"];

/// Command that names the conversation.
const SET_NAME: &str = "set_session_name";

/// Data of an accepted prompt.
#[derive(Serialize)]
struct Prompted {
    #[serde(flatten)]
    turn: SayData,
    disposition: &'static str,
}

impl Serve<AgentParams> for Caller {
    async fn serve(&self, params: AgentParams) -> Result<AgentData, MethodError> {
        let AgentParams { session_id, command } = params;
        let (name, fields) = parse(command)?;
        let is_page = self.client.page.get().is_some();
        if !(self.is_local() || is_page && OF_PAGES.contains(&name.as_str())) {
            return Err(MethodError::LocalOnly(LOCAL_AGENT_COMMAND));
        }
        let found = self.session(reference(&session_id), Purpose::Use).await?;
        // The session may take the name of the conversation.
        let title = fields.get("name").and_then(Value::as_str).filter(|_| name == SET_NAME);
        if let Some(c) = title.and_then(first_unsafe) {
            return Err(NameError::Unsafe(MAX_NAME_CHARS, c).into());
        }
        let command = command_of(name, fields, &found.workspace_path)?;

        self.services.interrupted.resumed(&found.session_id);
        let agent = found.actors.agent.clone();
        let (session_id, session_name) = (found.session_id.clone(), found.session_name.clone());
        let is_prompt = command.name() == "prompt";
        self.services.sessions.refresh_models(&session_id).await;
        let done = agent.send(SendCommand { command, found }).await??;
        if !done.success {
            let text = done.error.unwrap_or_else(|| "The agent refused the command".to_owned());
            return Err(MethodError::Refused { text, code: done.code });
        }

        let data = if is_prompt {
            let turn = SayData { session_id, session_name, seq: done.seq, turn: done.turn };
            let disposition = if done.is_queued { "queued" } else { "started" };
            to_raw_value(&Prompted { turn, disposition }).ok()
        } else {
            done.data
        };
        Ok(AgentData { data })
    }
}

/// Reads a command: an object with `type`. Its `id` is dropped, because the daemon gives each command its own.
fn parse(command: Value) -> Result<(String, Map<String, Value>), MethodError> {
    let Value::Object(mut fields) = command else { return Err(MethodError::NoCommand) };
    fields.remove("id");
    let name = fields.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || MAX_NAME < name.len() || !name.chars().all(is_name) {
        return Err(MethodError::NoCommand);
    }

    if let Some((_, verb)) = DECIDED_BY_DAEMON.iter().find(|(known, _)| *known == name) {
        let text = format!(
            "{name} is not passed on, because the daemon chooses the session file: use `{verb}`"
        );
        return Err(MethodError::Refused { text, code: None });
    }
    Ok((name, fields))
}

/// Creates the command, with the user's directory relative to the workspace.
fn command_of(
    name: String,
    mut fields: Map<String, Value>,
    workspace: &str,
) -> Result<AgentCommand, MethodError> {
    match fields.remove("cwd") {
        None | Some(Value::Null) => {}
        Some(Value::String(cwd)) => {
            fields.insert("cwd".to_owned(), beneath(workspace, &cwd)?.into());
        }
        Some(_) => return Err(MethodError::Cwd),
    }
    let body = to_raw_value(&fields).map_err(|_no_json| MethodError::NoCommand)?;
    Ok(AgentCommand::Other(OtherCommand { name, body }))
}

/// Runs the tool calls of agents. Has a separate client, which follows nothing.
#[derive(Debug)]
pub(crate) struct AgentTools {
    /// Weak, because the services own the runner.
    services: Weak<Services>,
    registry: Addr<Registry>,
    client: Rc<Client>,
}

impl AgentTools {
    /// Creates the runner, for [`crate::session::services::SessionServices::tool_runner`].
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(crate) fn new(services: &Rc<Services>, registry: Addr<Registry>) -> io::Result<Self> {
        let client = Client::new(Transport::Socket, None)?;
        Ok(Self { services: Rc::downgrade(services), registry, client })
    }
}

impl ToolRunner for AgentTools {
    fn run(&self, call: AgentCall) -> LocalBoxFuture<'static, AgentToolDone> {
        let services = self.services.upgrade();
        let (registry, client) = (self.registry.clone(), Rc::clone(&self.client));
        Box::pin(async move {
            let number = call.call.number;
            let Some(services) = services else {
                return AgentToolDone::failed(number, "The daemon is shutting down");
            };
            match tool::run_for_agent(call, &Caller::new(services, registry, client)).await {
                Some(data) => done(number, data),
                None => AgentToolDone::failed(number, "The session is gone"),
            }
        })
    }
}

fn done(number: u64, ToolData { text, info, data, .. }: ToolData) -> AgentToolDone {
    AgentToolDone {
        number,
        text,
        hint: info.hint,
        data,
        is_error: info.is_error,
        exit_code: info.exit_code,
        signal: info.signal,
        aborted: info.aborted,
        truncated: info.truncated,
        full_output_path: info.full_output_path,
        duration_ms: info.duration_ms,
        user_instructions: None,
    }
}
