//! Runs one tool call: refuses it or sends it to its session, streams its output, asks the user about a refusal, and makes
//! the reply. `tool.rs` reads the requests.
//!
//! The tool's result is forwarded as the raw JSON string from the worker. It is not parsed here.

use super::Caller;
use super::call_deadline::RequestedTime;
use super::forward::forwards_line;
use super::permission::{self, After, EndedCall};
use super::streaming::NamedCall;
use super::tool_parameters::unknown_parameter;
use crate::clock::ms;
use crate::errors::CallError;
use crate::events::SessionCall;
use crate::session::FoundSession;
use crate::session::copy_limit::permit;
use crate::session::pending_calls::tool_info;
use crate::session::worker::{self, CallDone, CallResult, CallTool};
use quackd_protocol::client::{ToolData, ToolInfo};
use quackd_protocol::limits::{
    LOCAL_APP_ANSWER, LOCAL_APP_DEADLINE, MAX_ARGUMENTS_BYTES, MAX_TOOL_NAME_BYTES,
    MIN_TOOL_DEADLINE,
};
use quackd_protocol::tools::{Callers, REQUEST_PERMISSION, Tool};
use quackd_protocol::worker::ToolFinished;
use serde_json::value::{RawValue, to_raw_value};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// One tool call of a client or of the session's own agent.
#[derive(Debug)]
pub(super) struct ToolRequest {
    pub(super) call: SessionCall,
    pub(super) time: RequestedTime,
    /// Refuses parameters that the tool does not have. Upstream's method ignores them.
    pub(super) is_strict: bool,
    /// Ends a call of the agent.
    pub(super) cancel: Option<CancellationToken>,
}

impl ToolRequest {
    /// Returns the reason for not running the call.
    fn refusal(&self) -> Option<CallError> {
        let SessionCall { spec, row, agents, .. } = &self.call;
        let may_call = match row.map(|row| row.callers) {
            // The worker refuses an unknown tool.
            None | Some(Callers::All) => true,
            Some(Callers::Agent) => agents.is_some(),
            Some(Callers::Supervisor) => false,
        };

        if !may_call || MAX_TOOL_NAME_BYTES < spec.tool.len() {
            return Some(CallError::UnknownTool);
        }
        if MAX_ARGUMENTS_BYTES < spec.arguments.len() {
            return Some(CallError::TooLong);
        }
        if self.is_strict { unknown_parameter(&self.call) } else { None }
    }
}

/// Runs a call. Counts and logs it if the client named itself.
pub(super) async fn run_counted(
    session: FoundSession,
    request: ToolRequest,
    caller: &Caller,
    named: Option<NamedCall<'_>>,
) -> ToolData {
    let client = &caller.client;
    let Some(hello) = client.hello() else { return run(session, request, caller, named).await };

    let (id, tool) = (session.session_id.clone(), request.call.shown_tool());
    let call = client.calls.get() + 1;
    client.calls.set(call);
    client.calls_running.set(client.calls_running.get() + 1);
    let data = run(session, request, caller, named).await;

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

/// Runs a call.
pub(super) async fn run(
    session: FoundSession,
    request: ToolRequest,
    caller: &Caller,
    named: Option<NamedCall<'_>>,
) -> ToolData {
    let started = Instant::now();
    caller.services.interrupted.resumed(&session.session_id);
    let refusal = request.refusal();
    let ToolRequest { mut call, time, cancel, .. } = request;

    let default = time.default_deadline(&caller.services.daemon.config.tools.default_timeout);
    let is_safe_call = call.spec.safe_mode;
    call.spec.safe_mode |= session.safe_mode;
    call.spec.set_deadline(time.deadline(&call.facts, default));
    call.spec.approved =
        call.spec.safe_mode && permission::is_allowed_command(&session, &call, caller).await;
    call.caller = caller.client.hello();

    let input = named.as_ref().and_then(|named| named.input.clone());
    let input = input.filter(|_| call.runs_commands());
    let cancel = cancel.or_else(|| named.as_ref().map(|named| named.cancel.clone()));
    let (tool, row, is_job) = (call.shown_tool(), call.row, call.facts.background);
    let call = CallTool { call, stream: None, input, cancel };
    let (gives_up, named_call) = (time.gives_up, named.as_ref());
    let run = CallRun { session: &session, caller, named: named_call, gives_up, is_safe_call };

    let is_request = row.is_some_and(|row| row.name == REQUEST_PERMISSION.name);
    let mut done = match refusal {
        None if is_request => return run.ask_permission(&call).await,
        None => run.make_limited(call).await,
        Some(refusal) => Err(refusal),
    };

    let closing = match (&mut done, &named) {
        (Ok(CallDone { finished, .. }), Some(named)) => {
            for piece in std::mem::take(&mut finished.output) {
                named.send(piece, &session).await;
            }
            finished.closing.take()
        }
        _ => None,
    };
    if let Ok(CallDone { finished, .. }) = &mut done
        && let Some(line) = forwards_line(row, is_job, &session, caller)
    {
        finished.text = permission::with_line(&finished.text, &line);
    }

    let info = ToolInfo {
        unknown_tool: row.is_none_or(Tool::is_internal),
        ..tool_info(&session.session_id, &done, started.elapsed())
    };
    match done {
        Ok(CallDone { finished: ToolFinished { text, data, .. }, .. }) => {
            ToolData { text, info, data, closing }
        }
        Err(error) => {
            ToolData { text: json_text(&error.text(&tool)), info, data: None, closing: None }
        }
    }
}

/// A call that runs, and all that its result depends on.
#[derive(Debug)]
struct CallRun<'a> {
    session: &'a FoundSession,
    caller: &'a Caller,
    named: Option<&'a NamedCall<'a>>,
    /// Time after which the caller gives up, if it is known.
    gives_up: Option<Duration>,
    /// Whether the client requested safe mode.
    is_safe_call: bool,
}

impl CallRun<'_> {
    /// Makes a call unless the copy of its session is full, and adds lines about the copy and the policy to its text.
    async fn make_limited(&self, call: CallTool) -> CallResult {
        let copies = &self.caller.services.sessions.pool.copies;
        let permit = permit(self.session, &call.call, copies).await?;
        let mut done = self.make_and_ask(call).await?;

        let lines = [permit.line(copies).await, done.about_policy.take()];
        lines.iter().flatten().for_each(|line| add_line(&mut done.finished, line));
        Ok(done)
    }

    /// Makes a call. If it was refused and a client can answer, asks the user before the reply.
    async fn make_and_ask(&self, call: CallTool) -> CallResult {
        let started = Instant::now();
        let approvals = &self.caller.services.sessions.approvals;
        // A caller with a known timeout gives up before most users have answered.
        if self.gives_up.is_some() || !approvals.may_ask(&self.session.session_id) {
            return self.make(call).await;
        }

        let mut done = self.make(call.clone()).await?;
        let deadline = call.call.spec.deadline();
        let ended = self.ended(&call, deadline.saturating_sub(started.elapsed()));
        match permission::after_call(ended, &done.finished, self.caller).await {
            After::Unchanged => Ok(done),
            After::Line(line) => {
                add_line(&mut done.finished, &line);
                Ok(done)
            }
            After::RunAgain => {
                let mut again = call;
                // The question has used up a part of the deadline.
                let left = deadline.saturating_sub(started.elapsed());
                again.call.spec.set_deadline(left.max(MIN_TOOL_DEADLINE));
                again.call.spec.approved = true;
                self.make(again).await
            }
        }
    }

    /// Makes a call, and sends its output to the client while it runs.
    async fn make(&self, mut call: CallTool) -> CallResult {
        let (stream, printed) = self.named.and_then(NamedCall::channel).unzip();
        // Without a stream, there is no receiver for rows.
        call.call.spec.stream_rows &= stream.is_some();
        call.stream = stream;

        let calling = worker::call(&self.session.actors.worker, call);
        match (self.gives_up, self.named, printed) {
            (Some(_), ..) => in_time(calling).await,
            (None, Some(named), Some(printed)) => {
                named.stream_while(calling, printed, self.session).await
            }
            _ => calling.await,
        }
    }

    /// Answers the tool by which an agent asks the user before it tries.
    async fn ask_permission(&self, call: &CallTool) -> ToolData {
        let started = Instant::now();
        let ended = self.ended(call, call.call.spec.deadline());
        let (text, is_allowed) = permission::request(ended, self.caller).await;

        let info = ToolInfo {
            session_id: self.session.session_id.0.clone(),
            is_error: !is_allowed,
            duration_ms: ms(started.elapsed()),
            ..ToolInfo::default()
        };
        ToolData { text: json_text(&text), info, data: None, closing: None }
    }

    /// Returns the call for questions to the user, with the time until its deadline.
    fn ended<'a>(&'a self, call: &'a CallTool, left: Duration) -> EndedCall<'a> {
        let CallTool { call, cancel, .. } = call;
        let (session, is_safe_call) = (self.session, self.is_safe_call);
        EndedCall { session, call, is_safe_call, left, cancel: cancel.as_ref() }
    }
}

/// Adds a line to the text of a call.
fn add_line(finished: &mut ToolFinished, line: &str) {
    finished.text = permission::with_line(&finished.text, line);
    finished.closing = finished.closing.as_ref().map(|text| permission::with_line(text, line));
}

/// Replies shortly before a caller with a known timeout gives up. The worker still ends the call, and followers receive
/// its end.
async fn in_time(calling: impl Future<Output = CallResult>) -> CallResult {
    let not_ended = CallError::NotEnded { after_s: LOCAL_APP_DEADLINE.as_secs() };
    tokio::time::timeout(LOCAL_APP_ANSWER, calling).await.unwrap_or(Err(not_ended))
}

/// Returns a text as a JSON string. A string always has a JSON form.
fn json_text(text: &str) -> Box<RawValue> {
    to_raw_value(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
