//! `voice_tool_call` and `quack.tool`, and the tool calls of the session's own agent: reads the request and finds its
//! session. `run_call.rs` runs the call.

use super::approvals;
use super::attach;
use super::call_deadline::RequestedTime;
use super::directories::resolve;
use super::run_call::{self, ToolRequest};
use super::streaming::{MAX_CALL_ID_BYTES, NamedCall};
use super::tool_parameters::{beneath, is_beneath, same_path};
use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::events::SessionCall;
use crate::registry::Purpose;
use crate::session::FoundSession;
use crate::session::agent::native::mcp_servers;
use crate::session::agent::native::tool_runner::AgentCall;
use crate::wire::{js_string, reference, truthy};
use quackd_protocol::client::{ToolData, ToolParams, VoiceToolCallParams, VoiceToolData};
use quackd_protocol::tools::is_meant_as_json;
use quackd_protocol::worker::CallSpec;
use serde_json::Value;
use std::path::PathBuf;

/// Deadline of a call by the session's own agent that sets none, in milliseconds.
const AGENT_DEADLINE_MS: u64 = 120_000;

impl Serve<VoiceToolCallParams> for Caller {
    async fn serve(&self, params: VoiceToolCallParams) -> Result<VoiceToolData, MethodError> {
        let session = session_of_voice_call(&params, self).await?;
        let spec = CallSpec {
            tool: js_string(&params.tool_name),
            arguments: match params.arguments {
                Value::String(text) => text,
                other => js_string(&other),
            },
            safe_mode: truthy(&params.safe_mode),
            ..CallSpec::default()
        };
        let client_id = client_id(params.call_id.as_ref());

        let request = ToolRequest {
            call: SessionCall { client_id, ..SessionCall::new(spec) },
            time: RequestedTime { gives_up: self.gives_up(), ..RequestedTime::default() },
            is_strict: false,
            cancel: None,
        };
        let ToolData { text, info, .. } = run_call::run_counted(session, request, self, None).await;
        Ok(VoiceToolData { call_id: params.call_id, result: text, hint: info.hint })
    }
}

impl Serve<ToolParams> for Caller {
    async fn serve(&self, params: ToolParams) -> Result<ToolData, MethodError> {
        // Register the name first: a `quack.cancel` that arrives before the session is found ends the call.
        let named = NamedCall::new(&params, self)?;
        let (id, path) = (params.session_id.as_deref(), params.path.as_deref());
        let session = self.find(attach::named(id, path, self).await?, Purpose::Use).await?;
        let session = session.ok_or(MethodError::NoSessionForTool)?;

        let cwd = params.cwd.as_deref().map(|cwd| beneath(&session.workspace_path, cwd));
        let cwd = cwd.transpose()?.unwrap_or_default();
        let can_answer = params.answers == Some(true);
        let _answerer = can_answer.then(|| approvals::during_call(&session.session_id, self));

        let spec = CallSpec {
            arguments: match params.arguments {
                Value::Null => "{}".to_owned(),
                // Otherwise the text would run as a command. As JSON it is either valid or refused.
                Value::String(text) if is_meant_as_json(&params.tool, &text) => text,
                other => other.to_string(),
            },
            tool: params.tool,
            safe_mode: params.safe_mode.unwrap_or(false),
            stream_rows: params.stream_rows == Some(true),
            cwd,
            ..CallSpec::default()
        };
        let call = SessionCall { client_id: params.call_id, ..SessionCall::new(spec) };
        let time = RequestedTime {
            timeout_ms: params.timeout_ms,
            gives_up: None,
            fallback_ms: params.default_timeout_ms,
            has_no_deadline: params.no_deadline == Some(true)
                && params.stream == Some(true)
                && call.runs_commands()
                && self.is_local(),
        };
        let request = ToolRequest { call, time, is_strict: true, cancel: None };
        Ok(run_call::run_counted(session, request, self, named).await)
    }
}

/// Runs a call of the session's own agent. `None` if the session is gone.
pub(super) async fn run_for_agent(call: AgentCall, caller: &Caller) -> Option<ToolData> {
    let AgentCall { session, call, cancel } = call;
    let session = caller.session(Some(session.0), Purpose::Use).await.ok()?;
    // The agent is another process. The directory is checked like that of a client.
    if !is_beneath(&call.cwd) {
        return None;
    }

    let arguments =
        mcp_servers::complete(&session.actors.agent, &call.tool, call.arguments).await?;
    let spec = CallSpec { tool: call.tool, arguments, cwd: call.cwd, ..CallSpec::default() };
    let request = ToolRequest {
        call: SessionCall {
            client_id: (!call.tool_call_id.is_empty()).then_some(call.tool_call_id),
            agents: Some(call.shown_tool),
            ..SessionCall::new(spec)
        },
        time: RequestedTime { fallback_ms: Some(AGENT_DEADLINE_MS), ..RequestedTime::default() },
        is_strict: false,
        cancel: Some(cancel),
    };
    Some(run_call::run(session, request, caller, None).await)
}

async fn session_of_voice_call(
    params: &VoiceToolCallParams,
    caller: &Caller,
) -> Result<FoundSession, MethodError> {
    let voice = &caller.services.voice;
    let bound = || voice.bound(&caller.client.id).flatten().map(|session| session.id.0);
    let reference = reference(&params.session_id).or_else(bound);
    let found = caller.find(reference, Purpose::Use).await?;
    let found = found.ok_or(MethodError::NoSessionForTool)?;
    if voice.is_owned_by_another(&found.session_id, &caller.client.id) {
        return Err(MethodError::VoiceToolRefused);
    }

    if let Value::String(path) = &params.workspace_path
        && !path.is_empty()
        && !same_path(path, &found.workspace_path)
    {
        // Another spelling of the same directory is the same workspace.
        let resolved = resolve(caller, PathBuf::from(path)).await;
        if !resolved.is_ok_and(|path| path == found.workspace_path) {
            return Err(MethodError::WorkspaceMismatch);
        }
    }
    Ok(found)
}

/// Returns the client's id of a call, if events may repeat it.
fn client_id(id: Option<&Value>) -> Option<String> {
    let id = id?.as_str()?;
    (!id.is_empty() && id.len() <= MAX_CALL_ID_BYTES).then(|| id.to_owned())
}
