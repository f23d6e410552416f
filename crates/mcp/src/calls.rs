//! One `tools/call`: one `quack.tool` request, with progress and cancellation.

use crate::daemon_link::{
    AgentSession, CallOutput, DaemonLink, LinkError, PATIENCE, REPLY_TIMEOUT, RunningCall,
};
use crate::elicitations;
use crate::gateway::{Gateway, Scope};
use crate::habits;
use crate::parked_calls::StartedCall;
use crate::questions::{self, Way};
use crate::results::{self, Reply};
use crate::tasks;
use crate::tool_list::{WORKSPACE, has_structured_content};
use quackd_client::ClientError;
use quackd_protocol::client::{ErrorCode, Method, ToolParams};
use quackd_protocol::limits::MAX_TOOL_DEADLINE;
use quackd_protocol::output::CancelParams;
use quackd_protocol::tools::runs_commands;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, InputResponses, ProgressNotificationParam,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Deadline of a call that names none: the one of `quack tool`, because agents run builds and tests.
const DEFAULT_DEADLINE_MS: u64 = 120_000;

/// Time for a cancelled call to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time without a progress notification. Agents give up after 30 s or more without one.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Shortest time between two progress notifications.
const PROGRESS_PAUSE: Duration = Duration::from_millis(200);

/// Maximum length of a tool's name in an error, in characters.
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
    let CallToolRequestParams { name, arguments, input_responses, request_state, .. } = params;
    if !gateway.options.selection.has(&name) {
        let name: String = name.chars().take(MAX_NAME_CHARS).collect();
        return Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None));
    }

    let structured = has_structured_content(context.client_info().as_ref());
    let arguments = arguments.unwrap_or_default();
    let parked = match request_state {
        Some(state) => {
            let call = gateway.parked.take(&state, &name, &arguments)?;
            Some((call, input_responses.unwrap_or_default()))
        }
        None => None,
    };

    let failed =
        |error: &LinkError| Ok(results::failure(&failure_text(&name, error), structured).into());
    let reply = match run(gateway, &name, &arguments, parked, &context).await {
        Ok(Outcome::Ended(reply)) => reply,
        Ok(Outcome::Asks(call)) => {
            let question = gateway.parked.park(&name, arguments, call);
            return question.map(Into::into).or_else(|error| failed(&error));
        }
        Err(error) => return failed(&error),
    };

    if let Some(path) = &reply.info.full_output_path {
        gateway.remember_file(path, &reply.info.session_id);
    }

    if let Some(task) = tasks::start(gateway, &name, &reply, &context) {
        return Ok(CallToolResponse::Task(task));
    }
    Ok(results::complete(&name, reply, structured).into())
}

/// Outcome of a request.
enum Outcome {
    Ended(Reply),
    /// The call waits for the user.
    Asks(StartedCall),
}

/// Runs a tool, or goes on with a parked call and the answers to its questions. Reports progress from the beginning,
/// because a call may wait for others.
async fn run(
    gateway: &Gateway,
    tool: &str,
    arguments: &Map<String, Value>,
    parked: Option<(StartedCall, InputResponses)>,
    context: &RequestContext<RoleServer>,
) -> Result<Outcome, LinkError> {
    let known = parked.as_ref().map(|(call, _)| Arc::clone(&call.output));
    let output = known.unwrap_or_default();
    tokio::select! {
        outcome = run_quietly(gateway, tool, arguments, parked, context, &output) => outcome,
        never = report(context, &output) => match never {},
    }
}

async fn run_quietly(
    gateway: &Gateway,
    tool: &str,
    arguments: &Map<String, Value>,
    parked: Option<(StartedCall, InputResponses)>,
    context: &RequestContext<RoleServer>,
    output: &Arc<CallOutput>,
) -> Result<Outcome, LinkError> {
    let takes_questions = questions::way(context) == Some(Way::Result);
    let mut is_retried = parked.is_some() || matches!(gateway.options.scope, Scope::Session(_));

    let mut call = match parked {
        Some((mut call, answers)) => {
            call.answer(answers).await;
            call
        }
        None => start(gateway, tool, arguments, context, output).await?,
    };

    loop {
        match call.wait(takes_questions, &context.ct).await {
            None => return Ok(Outcome::Asks(call)),
            Some(Ok(reply)) => return Ok(Outcome::Ended(reply)),
            // Another client deleted the session, so nothing has run.
            Some(Err(ClientError::Refused { code: Some(ErrorCode::SessionNotFound), .. }))
                if !is_retried =>
            {
                is_retried = true;
                call.link.forget_sessions();
                call = start(gateway, tool, arguments, context, output).await?;
            }
            Some(Err(error)) => return Err(error.into()),
        }
    }
}

/// Starts a call in the agent's session.
async fn start(
    gateway: &Gateway,
    tool: &str,
    arguments: &Map<String, Value>,
    context: &RequestContext<RoleServer>,
    output: &Arc<CallOutput>,
) -> Result<StartedCall, LinkError> {
    let mut arguments = arguments.clone();
    let may_choose = matches!(gateway.options.scope, Scope::Any(_));
    let directory = match may_choose.then(|| arguments.remove(WORKSPACE)).flatten() {
        None | Some(Value::Null) => None,
        Some(Value::String(path)) => Some(PathBuf::from(path)),
        Some(_) => return Err(LinkError::RelativeWorkspace),
    };

    let runs_in = runs_commands(tool).then(|| habits::of_bash(&mut arguments)).flatten();
    let slot = Arc::clone(&gateway.slots).acquire_owned();
    // The semaphore is never closed.
    let slot = until_cancelled(context, async { Ok(slot.await) }).await?;

    let link = until_cancelled(context, gateway.link(context.client_info())).await?;
    let finding = gateway.session(&link, directory.as_deref(), context);
    let AgentSession { id: mut session, mut cwd, workspace } =
        until_cancelled(context, finding).await?;

    if let Some(path) = runs_in {
        let base = cwd.or(workspace).unwrap_or_default();
        cwd = Some(habits::absolute(base.as_ref(), &path).to_string_lossy().into_owned());
    }

    let way = questions::way(context);
    if way.is_some() && matches!(gateway.options.scope, Scope::Session(_)) {
        // Questions name their session by its id.
        session = link.id_of(session).await;
    }
    if way == Some(Way::Request) {
        elicitations::pass_on(&link, &session, &context.peer).await;
    }

    let deadline_ms =
        arguments.get("timeout_ms").and_then(Value::as_u64).unwrap_or(DEFAULT_DEADLINE_MS);

    let running = link.start_call(output);
    let params = ToolParams {
        tool: tool.to_owned(),
        arguments: Value::Object(arguments),
        session_id: Some(session.clone()),
        cwd,
        safe_mode: gateway.options.safe.then_some(true),
        default_timeout_ms: Some(DEFAULT_DEADLINE_MS),
        call_id: Some(running.id.clone()),
        // The daemon ends the call when this process dies.
        stream: Some(true),
        answers: (way == Some(Way::Result)).then_some(true),
        ..ToolParams::default()
    };

    let (id, cancel) = (running.id.clone(), CancellationToken::new());
    let (of_task, cancelled) = (Arc::clone(&link), cancel.clone());
    let reply = tokio::spawn(async move {
        let _slot = slot;
        request(&of_task, params, &running, &cancelled).await
    });
    Ok(StartedCall {
        id,
        session,
        link,
        output: Arc::clone(output),
        cancel,
        reply: AbortOnDropHandle::new(reply),
        deadline: Duration::from_millis(deadline_ms).min(MAX_TOOL_DEADLINE),
        questions: Vec::new(),
    })
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
    cancelled: &CancellationToken,
) -> Result<Reply, ClientError> {
    let calling = link.client.call_within(params, PATIENCE);
    tokio::pin!(calling);
    tokio::select! {
        // The call is sent before its cancellation: the daemon would not find a later call, and run it.
        biased;
        reply = &mut calling => return reply,
        () = cancelled.cancelled() => {}
    }

    let params = CancelParams { call_id: running.id.clone() };
    let cancelling = link.client.call_within(params, REPLY_TIMEOUT);
    // A call that waits to be sent keeps its place before the cancellation.
    let ending = async { tokio::join!(biased; calling, cancelling).0 };
    let late =
        || ClientError::Timeout { method: CancelParams::NAME.to_owned(), after: CANCEL_TIMEOUT };
    timeout(CANCEL_TIMEOUT, ending).await.unwrap_or_else(|_elapsed| Err(late()))
}

/// Reports progress while a call runs, if the agent wants it: soon after new output, and regularly without.
async fn report(context: &RequestContext<RoleServer>, output: &CallOutput) -> Infallible {
    let token = context.meta.get_progress_token();
    let Some(token) = token else { return std::future::pending().await };

    let began = Instant::now();
    loop {
        // A timeout is the usual case: a report without new output.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon_link::ClaimOptions;
    use quackd_client::Client;
    use serde_json::json;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::thread::JoinHandle;

    const OPTIONS: ClaimOptions = ClaimOptions { keep_jobs: false, isolated: false };

    /// A daemon that runs no call, and answers one when it was cancelled. Returns the methods with their call ids.
    fn daemon(listener: UnixListener) -> JoinHandle<Vec<(String, String)>> {
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut seen, mut running) = (Vec::new(), Value::Null);
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines.map_while(Result::ok) {
                let request: Value = serde_json::from_str(&line).unwrap();
                let method = request["method"].as_str().unwrap().to_owned();
                let call = request["params"]["callId"].as_str().unwrap_or_default().to_owned();
                let mut replies = Vec::new();
                if method == "quack.tool" {
                    running = request["id"].clone();
                } else {
                    replies.push(json!({"id": request["id"], "ok": true, "data": {"found": true}}));
                }
                if seen.iter().any(|(_, known)| *known == call) {
                    replies.push(json!({"id": running, "ok": false, "error": "cancelled"}));
                }
                if !call.is_empty() {
                    seen.push((method, call));
                }
                for reply in replies {
                    writeln!(stream, "{reply}").unwrap();
                }
            }
            seen
        })
    }

    #[tokio::test]
    async fn a_call_that_is_cancelled_at_once_is_sent_before_its_cancellation() {
        let socket = std::env::temp_dir().join(format!("quack-mcp-{}.sock", std::process::id()));
        let daemon = daemon(UnixListener::bind(&socket).unwrap());
        let client = Client::connect(&socket, REPLY_TIMEOUT).await.unwrap();
        std::fs::remove_file(&socket).unwrap();
        let link = DaemonLink::open(client, None, OPTIONS, None).await.unwrap();
        // The order of a random choice would be right by chance.
        for _ in 0..64 {
            let running = link.start_call(&Arc::default());
            let params = ToolParams { call_id: Some(running.id.clone()), ..ToolParams::default() };
            let cancelled = CancellationToken::new();
            cancelled.cancel();
            let ended = request(&link, params, &running, &cancelled).await;
            assert!(matches!(ended, Err(ClientError::Refused { .. })), "{ended:?}");
        }
        drop(link);
        // The connection is closed by a task of this thread.
        let seen = tokio::task::spawn_blocking(|| daemon.join()).await.unwrap().unwrap();
        assert_eq!(seen.len(), 128);
        for pair in seen.chunks(2) {
            let methods = [pair[0].0.as_str(), &pair[1].0];
            assert_eq!(methods, ["quack.tool", "quack.cancel"], "{pair:?}");
        }
    }
}
