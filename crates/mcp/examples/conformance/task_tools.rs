//! Tools whose result comes as a task, for clients that know tasks.

use crate::rounds;
use crate::server::{FixtureServer, text};
use rmcp::model::{
    CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock, CreateTaskResult,
    ErrorData, JsonObject,
};
use rmcp::task_manager::{TaskContext, TaskExit, TaskOptions};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// Longest time that a fixture computes.
const LONGEST: f64 = 120.0;

impl FixtureServer {
    /// Calls one of the task tools. `None` for any other tool.
    pub(crate) async fn call_task_tool(
        &self,
        name: &str,
        arguments: &JsonObject,
        client: &ClientCapabilities,
    ) -> Option<Result<CallToolResponse, ErrorData>> {
        let seconds = arguments.get("seconds").and_then(Value::as_f64).unwrap_or_default();
        let wait = Duration::from_secs_f64(seconds.clamp(0.0, LONGEST));
        if name == "slow_compute" && !client.supports_tasks() {
            sleep(wait).await;
            return Some(Ok(text("computed").into()));
        }
        let task = match name {
            "slow_compute" => self.spawn(move |task| compute(task, wait)),
            _ if !matches!(
                name,
                "failing_job" | "protocol_error_job" | "confirm_delete" | "multi_input"
            ) =>
            {
                return None;
            }
            _ if !client.supports_tasks() => {
                let needed = ClientCapabilities::builder().enable_tasks().build();
                return Some(Err(ErrorData::missing_required_client_capability(needed)));
            }
            "failing_job" => self.spawn(|_task| async {
                Ok(CallToolResult::error(vec![ContentBlock::text("This job fails.")]))
            }),
            "protocol_error_job" => self.spawn(|_task| async {
                Err(TaskExit::Error(ErrorData::internal_error("This job breaks.", None)))
            }),
            "confirm_delete" => self.spawn_asking(&["confirm"]),
            _ => self.spawn_asking(&["first", "second"]),
        };
        Some(Ok(task))
    }

    /// Starts a task that ends with this text.
    pub(crate) fn spawn_done(&self, done: String) -> CallToolResponse {
        self.spawn(|_task| async move { Ok(text(&done)) })
    }

    fn spawn<F, R>(&self, run: F) -> CallToolResponse
    where
        F: FnOnce(TaskContext) -> R,
        R: Future<Output = Result<CallToolResult, TaskExit>> + Send + 'static,
    {
        let task = self.tasks.spawn(TaskOptions::new(), |task| Box::pin(run(task)));
        CallToolResponse::Task(CreateTaskResult::new(task))
    }

    /// Starts a task that asks for all these inputs at once.
    fn spawn_asking(&self, keys: &[&str]) -> CallToolResponse {
        let wanted: Map<String, Value> =
            keys.iter().map(|key| ((*key).to_owned(), "confirm".into())).collect();
        let requests = rounds::requests(&self.fixtures, &wanted);
        self.spawn(|task| async move {
            let asking =
                requests?.into_iter().map(|(key, request)| task.request_input(key, request));
            let answers = futures_util::future::try_join_all(asking).await?;
            Ok(text(&json!(answers).to_string()))
        })
    }
}

async fn compute(task: TaskContext, wait: Duration) -> Result<CallToolResult, TaskExit> {
    tokio::select! {
        () = sleep(wait) => Ok(text("computed")),
        () = task.cancelled() => Err(TaskExit::Cancelled),
    }
}
