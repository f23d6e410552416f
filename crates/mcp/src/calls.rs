//! One `tools/call`: one `quack.tool` request, with progress and cancellation.

use crate::daemon_link::{CallOutput, DaemonLink, LinkError, PATIENCE, REPLY_TIMEOUT, RunningCall};
use crate::gateway::{Gateway, Scope};
use crate::questions;
use crate::results::{self, Reply};
use crate::tasks;
use crate::tool_list::{WORKSPACE, has_structured_content};
use quackd_client::ClientError;
use quackd_protocol::client::{ErrorCode, ToolParams};
use quackd_protocol::output::{CancelData, CancelParams};
use rmcp::model::{CallToolRequestParams, CallToolResponse, ErrorData, ProgressNotificationParam};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Deadline of a call that names none: the one of `quack tool`, because agents run builds and tests.
const DEFAULT_DEADLINE_MS: u64 = 120_000;

/// Time for a cancelled call to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time without a progress notification. Agents give up after 30 s or more without one.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Shortest time between two progress notifications.
const PROGRESS_PAUSE: Duration = Duration::from_millis(200);

/// Most characters of a tool's name in an error.
const MAX_NAME_CHARS: usize = 100;

/// Answers `tools/call`.
///
/// # Errors
/// The tool is not offered. Every other failure is a result that the model reads.
pub(crate) async fn call(
    gateway: &Arc<Gateway>,
    params: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let CallToolRequestParams { name, arguments, .. } = params;
    if !gateway.options.selection.has(&name) {
        let name: String = name.chars().take(MAX_NAME_CHARS).collect();
        return Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None));
    }
    let structured = has_structured_content(context.client_info().as_ref());
    let reply = match run(gateway, &name, arguments.unwrap_or_default(), &context).await {
        Ok(reply) => reply,
        Err(error) => return Ok(results::failure(&failure_text(&name, &error), structured).into()),
    };
    if let Some(path) = &reply.info.full_output_path {
        gateway.remember_file(path, &reply.info.session_id);
    }
    if let Some(task) = tasks::start(gateway, &name, &reply, &context) {
        return Ok(CallToolResponse::Task(task));
    }
    Ok(results::complete(&name, reply, structured).into())
}

/// Runs a tool and returns the daemon's reply. Reports progress from the beginning, because a call may wait for others.
async fn run(
    gateway: &Gateway,
    tool: &str,
    arguments: Map<String, Value>,
    context: &RequestContext<RoleServer>,
) -> Result<Reply, LinkError> {
    let output = Arc::new(CallOutput::default());
    tokio::select! {
        reply = run_quietly(gateway, tool, arguments, context, &output) => reply,
        never = report(context, &output) => match never {},
    }
}

async fn run_quietly(
    gateway: &Gateway,
    tool: &str,
    mut arguments: Map<String, Value>,
    context: &RequestContext<RoleServer>,
    output: &Arc<CallOutput>,
) -> Result<Reply, LinkError> {
    let directory = match gateway.options.scope {
        Scope::Any(_) => arguments.remove(WORKSPACE),
        _ => None,
    };
    let directory = match directory {
        None | Some(Value::Null) => None,
        Some(Value::String(path)) => Some(PathBuf::from(path)),
        Some(_) => return Err(LinkError::RelativeWorkspace),
    };
    // The semaphore is never closed.
    let _slot = until_cancelled(context, async { Ok(gateway.slots.acquire().await) }).await?;
    let link = until_cancelled(context, gateway.link(context.client_info())).await?;
    let mut is_retried = false;
    loop {
        let finding = gateway.session(&link, directory.as_deref(), context);
        let session = until_cancelled(context, finding).await?;
        questions::pass_on(&link, &session, context).await;
        let running = link.start_call(output);
        let params = ToolParams {
            tool: tool.to_owned(),
            arguments: Value::Object(arguments.clone()),
            session_id: Some(session),
            safe_mode: gateway.options.safe.then_some(true),
            default_timeout_ms: Some(DEFAULT_DEADLINE_MS),
            call_id: Some(running.id.clone()),
            // The daemon ends the call when this process dies.
            stream: Some(true),
            ..ToolParams::default()
        };
        match request(&link, params, &running, context).await {
            // Another client deleted the session, so nothing has run.
            Err(ClientError::Refused { code: Some(ErrorCode::SessionNotFound), .. })
                if !is_retried && !matches!(gateway.options.scope, Scope::Session(_)) =>
            {
                is_retried = true;
                link.forget_sessions();
            }
            other => return other.map_err(LinkError::from),
        }
    }
}

/// Waits for a part of a call that runs nothing yet.
async fn until_cancelled<T>(
    context: &RequestContext<RoleServer>,
    part: impl Future<Output = Result<T, LinkError>>,
) -> Result<T, LinkError> {
    tokio::select! {
        done = part => done,
        () = context.ct.cancelled() => Err(LinkError::Cancelled),
    }
}

async fn request(
    link: &DaemonLink,
    params: ToolParams,
    running: &RunningCall,
    context: &RequestContext<RoleServer>,
) -> Result<Reply, ClientError> {
    let calling = link.client.request::<_, Reply>("quack.tool", params, PATIENCE);
    tokio::pin!(calling);
    tokio::select! {
        reply = &mut calling => return reply,
        () = context.ct.cancelled() => {}
    }
    let params = CancelParams { call_id: running.id.clone() };
    let cancelling = link.client.request::<_, CancelData>("quack.cancel", params, REPLY_TIMEOUT);
    let ending = async {
        cancelling.await.ok();
        calling.await
    };
    let late = || ClientError::Timeout { method: "quack.cancel".to_owned(), after: CANCEL_TIMEOUT };
    timeout(CANCEL_TIMEOUT, ending).await.unwrap_or_else(|_elapsed| Err(late()))
}

/// Reports progress while a call runs, if the agent wants it: soon after new output, and regularly without.
async fn report(context: &RequestContext<RoleServer>, output: &CallOutput) -> Infallible {
    let token = context.meta.get_progress_token();
    let Some(token) = token else { return std::future::pending().await };
    let began = Instant::now();
    loop {
        timeout(PROGRESS_INTERVAL, output.grown()).await.ok();
        let seconds = began.elapsed().as_secs_f64();
        let mut progress = ProgressNotificationParam::new(token.clone(), seconds);
        progress.message = Some(match output.last_line() {
            Some(line) => line,
            None => format!("running for {seconds:.0} s"),
        });
        if context.ct.is_cancelled() {
            // The agent expects nothing more of this call.
            return std::future::pending().await;
        }
        // An agent that cannot be reached has disconnected, which ends the call.
        context.peer.notify_progress(progress).await.ok();
        sleep(PROGRESS_PAUSE).await;
    }
}

/// Returns the text for a failure before or without the tool's own answer.
fn failure_text(tool: &str, error: &LinkError) -> String {
    match error {
        LinkError::Client(ClientError::Disconnected) => {
            format!("Error: The daemon ended during {tool}. It may have run; it was not retried.")
        }
        other => format!("Error: {other}"),
    }
}
