//! Background jobs as tasks, for agents that declare the tasks extension. Others use the tools `job_output` and
//! `job_kill`.

use crate::gateway::Gateway;
use crate::results::{self, Reply};
use crate::tool_list::has_structured_content;
use quackd_protocol::client::ToolParams;
use quackd_protocol::limits::MAX_JOB_TIME;
use quackd_protocol::tools::{JOB_OUTPUT, JobKillArguments, JobOutputArguments, runs_commands};
use rmcp::model::{CallToolResult, CreateTaskResult, Implementation};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::task_manager::{TaskContext, TaskExit, TaskOptions};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::sleep;

/// Number of tasks that one agent may start, because rmcp keeps the results of ended ones for a day. Agents use the tools
/// for further jobs.
const MAX_TASKS: usize = 256;

/// Maximum wait of one `job_output`, in milliseconds. Then the task is checked for cancellation.
const WAIT_MS: u64 = 30_000;

/// Pause between two calls of `job_output`.
const PAUSE: Duration = Duration::from_millis(500);

/// Returns a task if a call has started a background job and the agent knows tasks.
pub(crate) fn start(
    gateway: &Arc<Gateway>,
    tool: &str,
    reply: &Reply,
    context: &RequestContext<RoleServer>,
) -> Option<CreateTaskResult> {
    let data = reply.data.as_ref().filter(|_| runs_commands(tool))?;
    let job = data.get("jobId")?.as_str()?.to_owned();
    if !context.client_capabilities()?.supports_tasks() {
        return None;
    }

    // A task that is refused here is no failure: the agent reads the job with tools.
    if MAX_TASKS <= gateway.tasks_started.fetch_add(1, Ordering::Relaxed) {
        return None;
    }

    let millis = u64::try_from(MAX_JOB_TIME.as_millis()).ok();
    let options = TaskOptions::new().with_ttl_ms(millis).with_status_message(reply.text.clone());
    let (owner, agent) = (Arc::clone(gateway), context.client_info());
    let session = reply.info.session_id.clone();

    let task = gateway.tasks.spawn(options, move |task| {
        Box::pin(async move { follow(&owner, &job, &session, agent, &task).await })
    });
    Some(CreateTaskResult::new(task))
}

/// Waits for the end of a job, or ends it when the task is cancelled. Returns its output.
async fn follow(
    gateway: &Gateway,
    job: &str,
    session: &str,
    agent: Option<Implementation>,
    task: &TaskContext,
) -> Result<CallToolResult, TaskExit> {
    let structured = has_structured_content(agent.as_ref());
    let ask = |call: ToolParams| gateway.ask(call, session, agent.clone());
    let output = || JobOutputArguments::builder().job(job);
    let mut cursor = 0;
    loop {
        let look = ask(output().cursor(cursor).wait_ms(WAIT_MS).into());
        let reply = tokio::select! {
            () = task.cancelled() => {
                // The agent expects no result of a canceled task, so an error is ignored.
                ask(JobKillArguments::builder().job(job).into()).await.ok();
                return Err(TaskExit::Cancelled);
            }
            reply = look => reply,
        };

        let (is_running, reached) = match &reply {
            Ok(reply) if !reply.info.is_error => of(reply.data.as_ref()),
            // The job is gone, or the daemon.
            Ok(reply) => return Ok(results::failure(&reply.text, structured)),
            Err(error) => return Ok(results::failure(&format!("Error: {error}"), structured)),
        };
        cursor = reached;
        if !is_running {
            break;
        }
        // A job may print without a pause.
        sleep(PAUSE).await;
    }

    // From the start: the waits have returned only the parts.
    match ask(output().into()).await {
        Ok(reply) => Ok(results::complete(JOB_OUTPUT.name, reply, structured)),
        Err(error) => Ok(results::failure(&format!("Error: {error}"), structured)),
    }
}

/// Whether a job runs, and the length of its output.
fn of(data: Option<&Value>) -> (bool, u64) {
    let number = |name| data.and_then(|data| data.get(name)?.as_u64());
    let is_running = data.and_then(|data| data.get("running")?.as_bool()).unwrap_or_default();
    (is_running, number("totalBytes").unwrap_or_default())
}
