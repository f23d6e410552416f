//! `voice_tool_call` and `quack.tool`: one tool call, from the client's line to the session's
//! [`WorkerActor`](crate::session::worker::WorkerActor) and back.
//!
//! The tool's result is forwarded as the raw JSON string from the worker. It is not parsed here.

use super::approvals;
use super::attach::named;
use super::directories::resolve;
use super::forward::forwards_line;
use super::permission::{self, After, EndedCall};
use super::streaming::{MAX_CALL_ID_BYTES, NamedCall};
use super::tool_parameters::{beneath, is_beneath, same_path, unknown_parameter};
use super::{Caller, Serve};
use crate::errors::{CallError, MethodError};
use crate::events::client_registry::Transport;
use crate::registry::{FindSession, Purpose};
use crate::session::FoundSession;
use crate::session::agent::native::mcp_servers;
use crate::session::agent::native::tool_runner::AgentCall;
use crate::session::copy_limit::permit;
use crate::session::pending_calls::tool_info;
use crate::session::worker::{self, CallDone, CallResult, CallTool};
use crate::wire::{js_string, reference, truthy};
use quackd_config::{Origin, Setting};
use quackd_protocol::client::{ToolData, ToolInfo, ToolParams, VoiceToolCallParams, VoiceToolData};
use quackd_protocol::limits::{
    LOCAL_APP_ANSWER, LOCAL_APP_DEADLINE, MAX_ARGUMENTS_BYTES, MAX_JOB_TIME, MAX_TOOL_DEADLINE,
    MAX_TOOL_NAME_BYTES, MIN_TOOL_DEADLINE,
};
use quackd_protocol::tools::{self, BashArguments, is_internal, is_meant_as_json, runs_commands};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Deadline of a call by the session's own agent that sets none, in milliseconds.
const AGENT_DEADLINE_MS: u64 = 120_000;

/// Internal tools that the session's own agent may call.
const FOR_AGENTS: [&str; 4] = [tools::INSTRUCTIONS, tools::IMAGE, tools::MCP_LIST, tools::MCP_CALL];

/// One tool call, parsed. Both methods use this type.
struct ToolRequest {
    tool: String,
    /// The client's own id of the call.
    client_id: Option<String>,
    arguments: String,
    timeout_ms: Option<u64>,
    safe_mode: bool,
    /// Time after which the caller gives up, if it is known.
    gives_up: Option<Duration>,
    /// Refuses parameters that the tool does not have. Upstream's method ignores them.
    is_strict: bool,
    /// Deadline if neither the caller nor the configuration sets one.
    fallback_ms: Option<u64>,
    /// Whether a command without a deadline of the caller or the configuration has none.
    has_no_deadline: bool,
    /// Directory of the caller, relative to the workspace.
    cwd: String,
    stream_rows: bool,
    /// The name of the tool in events, for a call of the session's own agent.
    agents: Option<String>,
    /// Ends a call of the agent.
    cancel: Option<CancellationToken>,
}

impl ToolRequest {
    /// Whether the caller may call a tool of this name, if there is one.
    fn may_name_tool(&self) -> bool {
        let is_for_caller = match &self.agents {
            Some(_) => FOR_AGENTS.contains(&&*self.tool),
            None => false,
        };
        self.tool.len() <= MAX_TOOL_NAME_BYTES && (is_for_caller || !is_internal(&self.tool))
    }
}

impl Serve<VoiceToolCallParams> for Caller {
    async fn serve(&self, asked: VoiceToolCallParams) -> Result<VoiceToolData, MethodError> {
        let session = session_of_voice_call(&asked, self).await?;
        let wanted = ToolRequest {
            tool: js_string(&asked.tool_name),
            client_id: client_id(asked.call_id.as_ref()),
            arguments: match asked.arguments {
                Value::String(text) => text,
                other => js_string(&other),
            },
            timeout_ms: None,
            safe_mode: truthy(&asked.safe_mode),
            gives_up: self.gives_up(),
            is_strict: false,
            fallback_ms: None,
            has_no_deadline: false,
            cwd: String::new(),
            stream_rows: false,
            agents: None,
            cancel: None,
        };
        let ToolData { text, info, .. } = run(session, wanted, self, None).await;
        Ok(VoiceToolData { call_id: asked.call_id, result: text, hint: info.hint })
    }
}

impl Serve<ToolParams> for Caller {
    async fn serve(&self, asked: ToolParams) -> Result<ToolData, MethodError> {
        // Register the name first: a `quack.cancel` that arrives before the session is found ends the call.
        let named = NamedCall::new(&asked, self)?;
        let session = session_of_quack_tool(&asked, self).await?;
        let cwd =
            asked.cwd.as_deref().map(|cwd| beneath(&session.workspace_path, cwd)).transpose()?;
        let cwd = cwd.unwrap_or_default();
        let can_answer = asked.answers == Some(true);
        let _answerer = can_answer.then(|| approvals::during_call(&session.session_id, self));
        let arguments = match asked.arguments {
            Value::Null => "{}".to_owned(),
            // Otherwise the text would run as a command. As JSON it is either valid or refused.
            Value::String(text) if is_meant_as_json(&asked.tool, &text) => text,
            given => given.to_string(),
        };
        let runs_commands = runs_commands(&asked.tool);
        let wanted = ToolRequest {
            tool: asked.tool,
            client_id: asked.call_id,
            arguments,
            timeout_ms: asked.timeout_ms,
            safe_mode: asked.safe_mode.unwrap_or(false),
            gives_up: None,
            is_strict: true,
            fallback_ms: asked.default_timeout_ms,
            has_no_deadline: asked.no_deadline == Some(true)
                && asked.stream == Some(true)
                && runs_commands
                && self.client.transport == Transport::Socket,
            cwd,
            stream_rows: asked.stream_rows == Some(true),
            agents: None,
            cancel: None,
        };
        Ok(run(session, wanted, self, named).await)
    }
}

/// Runs a call of the session's own agent. `None` if the session is gone.
pub(super) async fn run_for_agent(call: AgentCall, caller: &Caller) -> Option<ToolData> {
    let AgentCall { session, call, cancel } = call;
    let find = FindSession { reference: Some(session.0), purpose: Purpose::Use };
    let session = caller.registry.send(find).await.ok()?.ok()??;
    // The agent is another process. The directory is checked like that of a client.
    if !is_beneath(&call.cwd) {
        return None;
    }
    let arguments =
        mcp_servers::complete(&session.actors.agent, &call.tool, call.arguments).await?;
    let wanted = ToolRequest {
        tool: call.tool,
        client_id: (!call.tool_call_id.is_empty()).then_some(call.tool_call_id),
        arguments,
        timeout_ms: None,
        safe_mode: false,
        gives_up: None,
        is_strict: false,
        fallback_ms: Some(AGENT_DEADLINE_MS),
        has_no_deadline: false,
        cwd: call.cwd,
        stream_rows: false,
        agents: Some(call.shown_tool),
        cancel: Some(cancel),
    };
    Some(run_tool(session, wanted, caller, None).await)
}

async fn session_of_voice_call(
    asked: &VoiceToolCallParams,
    caller: &Caller,
) -> Result<FoundSession, MethodError> {
    let voice = &caller.services.voice;
    let bound = || voice.bound(&caller.client.id).flatten().map(|session| session.id.0);
    let reference = reference(&asked.session_id).or_else(bound);
    let found = caller
        .registry
        .send(FindSession { reference, purpose: Purpose::Use })
        .await??
        .ok_or(MethodError::NoSessionForTool)?;
    if voice.is_owned_by_another(&found.session_id, &caller.client.id) {
        return Err(MethodError::VoiceToolRefused);
    }
    match &asked.workspace_path {
        Value::String(path) if !path.is_empty() && !same_path(path, &found.workspace_path) => {
            // Another spelling of the same directory is the same workspace.
            let resolved = resolve(caller, PathBuf::from(path)).await;
            if resolved.is_ok_and(|path| path == found.workspace_path) {
                Ok(found)
            } else {
                Err(MethodError::WorkspaceMismatch)
            }
        }
        _ => Ok(found),
    }
}

async fn session_of_quack_tool(
    asked: &ToolParams,
    caller: &Caller,
) -> Result<FoundSession, MethodError> {
    let (id, path) = (asked.session_id.as_deref(), asked.path.as_deref());
    let find = FindSession { reference: named(id, path, caller).await?, purpose: Purpose::Use };
    caller.registry.send(find).await??.ok_or(MethodError::NoSessionForTool)
}

/// Runs a call. Counts and logs it if the client named itself.
async fn run(
    session: FoundSession,
    wanted: ToolRequest,
    caller: &Caller,
    named: Option<NamedCall<'_>>,
) -> ToolData {
    let client = &caller.client;
    let Some(hello) = client.hello() else { return run_tool(session, wanted, caller, named).await };
    let (id, tool) = (session.session_id.clone(), shown(&wanted.tool));
    let call = client.calls.get() + 1;
    client.calls.set(call);
    client.calls_running.set(client.calls_running.get() + 1);
    let data = run_tool(session, wanted, caller, named).await;
    client.calls_running.set(client.calls_running.get() - 1);
    let (client, outcome) = (&hello.client.name, outcome(&data.info));
    let duration_ms = data.info.duration_ms;
    // The number keeps the log from counting equal lines instead of writing them.
    tracing::info!(client, tool, session = %id, call, duration_ms, outcome, "tool call");
    data
}

/// Returns the outcome of a call for the log.
fn outcome(info: &ToolInfo) -> &'static str {
    match info {
        ToolInfo { aborted: true, .. } => "aborted",
        ToolInfo { timed_out: true, .. } => "timed_out",
        ToolInfo { worker_died: true, .. } => "died",
        ToolInfo { busy: true, .. } => "busy",
        ToolInfo { is_error: true, .. } => "failed",
        _ => "ok",
    }
}

async fn run_tool(
    session: FoundSession,
    wanted: ToolRequest,
    caller: &Caller,
    named: Option<NamedCall<'_>>,
) -> ToolData {
    let started = Instant::now();
    caller.services.interrupted.resumed(&session.session_id);
    let tool = wanted.tool.clone();
    let refusal = match &wanted {
        wanted if !wanted.may_name_tool() => Some(CallError::UnknownTool),
        ToolRequest { arguments, .. } if MAX_ARGUMENTS_BYTES < arguments.len() => {
            Some(CallError::TooLong)
        }
        ToolRequest { is_strict: true, .. } => unknown_parameter(&wanted.tool, &wanted.arguments),
        _ => None,
    };
    let of_bash = match refusal {
        Some(_) => BashOptions::default(),
        None => of_bash(&wanted),
    };
    let default = default_deadline(&caller.services.daemon.config.tools.default_timeout, &wanted);
    let safe_mode = session.safe_mode || wanted.safe_mode;
    let call = CallTool {
        deadline: deadline(&wanted, &of_bash, default),
        background: of_bash.background,
        approved: safe_mode
            && runs_commands(&tool)
            && permission::is_allowed_command(&session, &wanted.arguments, caller).await,
        safe_mode,
        tool: wanted.tool,
        client_id: wanted.client_id,
        caller: caller.client.hello(),
        arguments: wanted.arguments,
        stream_rows: wanted.stream_rows,
        stream: None,
        cwd: wanted.cwd,
        input: named.as_ref().and_then(NamedCall::input).filter(|_| runs_commands(&tool)),
        cancel: wanted.cancel.or_else(|| named.as_ref().map(NamedCall::token)),
        agents: wanted.agents,
    };
    if tool == tools::REQUEST_PERMISSION.name && refusal.is_none() {
        return ask_permission(&session, &call, caller).await;
    }
    let (gives_up, is_safe_call) = (wanted.gives_up, wanted.safe_mode);
    let mut done = match refusal {
        Some(refusal) => Err(refusal),
        None => make_limited(&session, call, gives_up, named.as_ref(), is_safe_call, caller).await,
    };
    let closing = match (&mut done, &named) {
        (Ok(CallDone { streamed: Some((output, closing)), .. }), Some(named)) => {
            named.send_all(std::mem::take(output), &session).await;
            closing.take()
        }
        _ => None,
    };
    if let Ok(done) = &mut done
        && let Some(line) = forwards_line(&tool, of_bash.background, &session, caller)
    {
        done.text = permission::with_line(&done.text, &line);
    }
    let info = ToolInfo {
        unknown_tool: tools::find(&tool).is_none(),
        ..tool_info(&session.session_id, &done, started.elapsed())
    };
    match done {
        Ok(CallDone { text, data, .. }) => ToolData { text, info, data, closing },
        Err(error) => {
            let text = error.text(&shown(&tool));
            // A string always has a JSON form.
            let text = to_raw_value(&text).unwrap_or_else(|_| RawValue::NULL.to_owned());
            ToolData { text, info, data: None, closing: None }
        }
    }
}

/// Adds a line to the text of a call.
fn add_line(done: &mut CallDone, line: &str) {
    done.text = permission::with_line(&done.text, line);
    if let Some((_, closing)) = &mut done.streamed {
        *closing = closing.as_ref().map(|text| permission::with_line(text, line));
    }
}

/// Makes a call unless the copy of its session is full, and adds lines about the copy and the policy to its text.
async fn make_limited(
    session: &FoundSession,
    call: CallTool,
    gives_up: Option<Duration>,
    named: Option<&NamedCall<'_>>,
    is_safe_call: bool,
    caller: &Caller,
) -> CallResult {
    let copies = &caller.services.sessions.pool.copies;
    let permit = permit(session, &call, copies).await?;
    let mut done = make_and_ask(session, call, gives_up, named, is_safe_call, caller).await?;
    let lines = [permit.line(copies).await, done.about_policy.take()];
    lines.iter().flatten().for_each(|line| add_line(&mut done, line));
    Ok(done)
}

/// Makes a call. If it was refused and a client can answer, asks the user before the reply. `is_safe_call`: the client
/// requested safe mode.
async fn make_and_ask(
    session: &FoundSession,
    call: CallTool,
    gives_up: Option<Duration>,
    named: Option<&NamedCall<'_>>,
    is_safe_call: bool,
    caller: &Caller,
) -> CallResult {
    let started = Instant::now();
    if gives_up.is_some() || !caller.services.sessions.approvals.may_ask(&session.session_id) {
        return make(session, call, gives_up, named).await;
    }
    let mut done = make(session, call.clone(), gives_up, named).await?;
    let ended = EndedCall {
        session,
        tool: &call.tool,
        arguments: &call.arguments,
        id: call.client_id.as_deref(),
        is_safe_call,
        was_approved: call.approved,
        left: call.deadline.saturating_sub(started.elapsed()),
        cancel: call.cancel.clone(),
    };
    match permission::after_call(ended, &done, caller).await {
        After::Unchanged => Ok(done),
        After::Line(line) => {
            add_line(&mut done, &line);
            Ok(done)
        }
        After::RunAgain => {
            let deadline = call.deadline.saturating_sub(started.elapsed()).max(MIN_TOOL_DEADLINE);
            let again = CallTool { approved: true, deadline, ..call };
            make(session, again, gives_up, named).await
        }
    }
}

/// Makes a call, and sends its output to the client while it runs.
async fn make(
    session: &FoundSession,
    mut call: CallTool,
    gives_up: Option<Duration>,
    named: Option<&NamedCall<'_>>,
) -> CallResult {
    let (stream, printed) = named.and_then(NamedCall::channel).unzip();
    call.stream_rows &= stream.is_some();
    call.stream = stream;
    let calling = worker::call(&session.actors.worker, call);
    match (gives_up, named, printed) {
        (Some(_), ..) => in_time(calling).await,
        (None, Some(named), Some(printed)) => named.stream_while(calling, printed, session).await,
        _ => calling.await,
    }
}

/// Answers the tool by which an agent asks the user before it tries.
async fn ask_permission(session: &FoundSession, call: &CallTool, caller: &Caller) -> ToolData {
    let started = Instant::now();
    let asked = EndedCall {
        session,
        tool: &call.tool,
        arguments: &call.arguments,
        id: call.client_id.as_deref(),
        is_safe_call: false,
        was_approved: false,
        left: call.deadline,
        cancel: call.cancel.clone(),
    };
    let (text, is_allowed) = permission::request(asked, caller).await;
    let text = to_raw_value(&text).unwrap_or_else(|_| RawValue::NULL.to_owned());
    let info = ToolInfo {
        session_id: session.session_id.0.clone(),
        is_error: !is_allowed,
        duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        ..ToolInfo::default()
    };
    ToolData { text, info, data: None, closing: None }
}

/// Replies shortly before a caller with a known timeout gives up. The worker still ends the call, and followers receive
/// its end.
async fn in_time(calling: impl Future<Output = CallResult>) -> CallResult {
    let not_ended = CallError::NotEnded { after_s: LOCAL_APP_DEADLINE.as_secs() };
    tokio::time::timeout(LOCAL_APP_ANSWER, calling).await.unwrap_or(Err(not_ended))
}

/// Returns the client's id of a call, if events may repeat it.
fn client_id(id: Option<&Value>) -> Option<String> {
    let id = id?.as_str()?;
    (!id.is_empty() && id.len() <= MAX_CALL_ID_BYTES).then(|| id.to_owned())
}

/// Returns a tool's name for error texts, shortened because a client may send any text.
fn shown(tool: &str) -> String {
    tool.chars().take(100).collect()
}

/// Arguments of `bash` that the supervisor reads. Only the worker reads the other arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct BashOptions {
    timeout_ms: Option<u64>,
    background: bool,
}

fn of_bash(wanted: &ToolRequest) -> BashOptions {
    if !runs_commands(&wanted.tool) {
        return BashOptions::default();
    }
    let Some(object) = worker::object_of(&wanted.arguments) else { return BashOptions::default() };
    let BashArguments { timeout_ms, background, .. } = BashArguments::of(&object);
    BashOptions { timeout_ms, background }
}

/// Returns the default deadline. The caller's default only replaces the built-in one.
fn default_deadline(configured: &Setting<Duration>, wanted: &ToolRequest) -> Duration {
    match (&configured.origin, wanted.fallback_ms) {
        (Origin::Default, _) if wanted.has_no_deadline => MAX_JOB_TIME,
        (Origin::Default, Some(ms)) => Duration::from_millis(ms),
        _ => configured.value,
    }
}

/// Returns the call's deadline: the method's parameter, else bash's `timeout_ms` argument, else the default.
fn deadline(wanted: &ToolRequest, of_bash: &BashOptions, default: Duration) -> Duration {
    // For a background job, `timeout_ms` limits the job. The call itself is answered at once.
    let asked = of_bash.timeout_ms.filter(|_| !of_bash.background);
    let given = wanted.timeout_ms.or(asked).map(Duration::from_millis);
    let longest = match wanted.gives_up {
        Some(gives_up) => gives_up,
        None if wanted.has_no_deadline && given.is_none() => MAX_JOB_TIME,
        None => MAX_TOOL_DEADLINE,
    };
    given.unwrap_or(default).clamp(MIN_TOOL_DEADLINE, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_from_the_caller_within_bounds() {
        let check_for = |gives_up, tool: &str, arguments: &str, timeout_ms, expected: Duration| {
            let wanted = ToolRequest {
                tool: tool.into(),
                client_id: None,
                arguments: arguments.into(),
                timeout_ms,
                safe_mode: false,
                gives_up,
                is_strict: false,
                fallback_ms: None,
                has_no_deadline: false,
                cwd: String::new(),
                stream_rows: false,
                agents: None,
                cancel: None,
            };
            assert_eq!(
                deadline(&wanted, &of_bash(&wanted), Duration::from_secs(30)),
                expected,
                "{tool} {arguments} {timeout_ms:?}"
            );
        };
        let check = |tool: &str, arguments: &str, timeout_ms, expected| {
            check_for(None, tool, arguments, timeout_ms, expected);
        };
        check("bash", "{}", None, Duration::from_secs(30));
        check("bash", r#"{"timeout_ms":1500}"#, None, Duration::from_millis(1500));
        check("bash", r#"{"timeout_ms":1500}"#, Some(2000), Duration::from_secs(2));
        check("bash", r#"{"timeout_ms":"x"}"#, None, Duration::from_secs(30));
        check("bash", r#"{"timeout_ms":86400000}"#, None, Duration::from_secs(600));
        let job = r#"{"timeout_ms":100,"background":true}"#;
        check("bash", job, None, Duration::from_secs(30));
        check("bash", job, Some(2000), Duration::from_secs(2));
        let twice = r#"{"timeout_ms":1,"timeout_ms":1500,"background":true,"background":false}"#;
        check("bash", twice, None, Duration::from_millis(1500));
        check(
            "bash",
            r#"{"command":"\ud800","timeout_ms":1500}"#,
            None,
            Duration::from_millis(1500),
        );
        check("bash", "not json", None, Duration::from_secs(30));
        check("bash", "{}", Some(0), Duration::from_millis(100));
        check("grep_search", r#"{"timeout_ms":1500}"#, None, Duration::from_secs(30));
        let app = Some(LOCAL_APP_DEADLINE);
        check_for(app, "bash", "{}", None, Duration::from_secs(9));
        check_for(app, "bash", r#"{"timeout_ms":20000}"#, None, Duration::from_secs(9));
        check_for(app, "bash", r#"{"timeout_ms":1500}"#, None, Duration::from_millis(1500));
    }
}
