//! The handler: fixtures first, then the handler of the product.

#![expect(
    deprecated,
    reason = "older revisions have logging, sampling and subscriptions to resources"
)]

use crate::fixtures::{Fixtures, parsed};
use crate::rounds::{Round, Rounds};
use quackd_mcp::{AgentServer, Gateways};
use rmcp::ServerHandler;
use rmcp::model::*;
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::task_manager::TaskManager;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// Pause between two notifications of one call.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers the scenarios of the conformance tests.
#[derive(Clone)]
pub(crate) struct FixtureServer {
    agent: AgentServer,
    pub(crate) fixtures: Arc<Fixtures>,
    pub(crate) tasks: TaskManager,
    rounds: Arc<Rounds>,
    changed: Arc<Notify>,
}

impl FixtureServer {
    pub(crate) fn new(gateways: Arc<Gateways>) -> serde_json::Result<Self> {
        let (tasks, rounds, changed) = (TaskManager::new(), Arc::default(), Arc::default());
        let fixtures = Arc::new(Fixtures::read()?);
        Ok(Self { agent: AgentServer::new(gateways), fixtures, tasks, rounds, changed })
    }

    /// Calls a fixture that needs more than the table of results. `None` for a tool of the product.
    async fn call_fixture(
        &self,
        name: &str,
        arguments: &JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Option<Result<CallToolResponse, ErrorData>> {
        let argument = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default();
        if let Some(result) = self.fixtures.get("results", name) {
            return Some(parsed::<CallToolResult>(result.clone()).map(|mut result| {
                result.result_type = Some(ResultType::COMPLETE);
                result.into()
            }));
        }
        if let Some(asked) = self.fixtures.get("asked", name) {
            let params = json!({"message": argument("message"), "requestedSchema": asked});
            return Some(elicit(params, context).await);
        }
        Some(match name {
            "greet" => Ok(text(&format!("Hello, {}!", argument("name"))).into()),
            "test_sampling" => sample(argument("prompt"), context).await,
            "test_tool_with_progress" => progress(context).await,
            "test_tool_with_logging" => self.log(name, context).await,
            // Since 2026-07-28, each request says whether it wants messages.
            "test_logging_tool" if context.meta.log_level().is_some() => {
                self.log(name, context).await
            }
            "test_logging_tool" => Ok(text("no message was wanted").into()),
            "test_trigger_tool_change" => {
                self.changed.notify_waiters();
                Ok(text("changed").into())
            }
            _ => return None,
        })
    }

    async fn log(
        &self,
        name: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let messages = self.fixtures.get("sent", name).and_then(Value::as_array);
        for message in messages.into_iter().flatten() {
            let sent = LoggingMessageNotificationParam::new(LoggingLevel::Info, message.clone());
            context.peer.notify_logging_message(sent).await.map_err(broken)?;
            sleep(PAUSE).await;
        }
        Ok(text("logged").into())
    }
}

impl ServerHandler for FixtureServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = self.agent.get_info();
        info.capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_completions()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_tasks()
            .build();
        info
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.fixtures.tools().ok()?.into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut all = self.agent.list_tools(request, context).await?;
        all.tools.extend(self.fixtures.tools()?);
        Ok(all)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        let arguments = request.arguments.clone().unwrap_or_default();
        let client = context.client_capabilities().unwrap_or_default();
        let given = (request.input_responses.clone(), request.request_state.clone());
        if let Some(round) = self.rounds.play(&self.fixtures, name, given, &client).await {
            return round.map(|round| match round {
                Round::Ask(asked) => asked.into(),
                Round::Done(inputs) if name == "test_tool_with_task" => {
                    self.spawn_done(inputs.to_string())
                }
                Round::Done(inputs) => text(&format!("state-ok: {inputs}")).into(),
            });
        }
        if let Some(task) = self.call_task_tool(name, &arguments, &client).await {
            return task;
        }
        match self.call_fixture(name, &arguments, &context).await {
            Some(result) => result,
            None => self.agent.call_tool(request, context).await,
        }
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.fixtures.all("prompts").map(ListPromptsResult::with_all_items)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let client = context.client_capabilities().unwrap_or_default();
        let given = (request.input_responses, request.request_state);
        match self.rounds.play(&self.fixtures, &request.name, given, &client).await {
            Some(Ok(Round::Ask(asked))) => return Ok(asked.into()),
            Some(Err(error)) => return Err(error),
            Some(Ok(Round::Done(_))) | None => {}
        }
        let unknown = || ErrorData::invalid_params("unknown prompt", None);
        let mut messages =
            self.fixtures.get("messages", &request.name).ok_or_else(unknown)?.to_string();
        for (key, value) in request.arguments.unwrap_or_default() {
            let value = value.to_string();
            messages = messages.replace(&key.to_uppercase(), value.trim_matches('"'));
        }
        let messages: Value = serde_json::from_str(&messages).map_err(broken)?;
        Ok(GetPromptResult::new(parsed::<Vec<PromptMessage>>(messages)?).into())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(CompleteResult::default())
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        only_before_2026(&context, "logging/setLevel")
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.fixtures.all("resources").map(ListResourcesResult::with_all_items)
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.fixtures.all("templates").map(ListResourceTemplatesResult::with_all_items)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let contents = match (id, self.fixtures.get("contents", uri)) {
            (Some(id), _) => {
                let data =
                    json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                json!({"uri": uri, "mimeType": "application/json", "text": data.to_string()})
            }
            (None, Some(contents)) => contents.clone(),
            (None, None) => return self.agent.read_resource(request, context).await,
        };
        Ok(ReadResourceResult::new(vec![parsed(contents)?]).into())
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        loop {
            tokio::select! {
                () = self.changed.notified() => {}
                () = subscription.cancelled() => return Ok(()),
            }
            // The filter of the client refuses what it did not ask for.
            subscription.sink().notify_tool_list_changed().await.ok();
            subscription.sink().notify_prompt_list_changed().await.ok();
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        match self.tasks.get_task(&request.task_id) {
            Ok(task) => Ok(GetTaskResult::new(task)),
            Err(_) => self.agent.get_task(request, context).await,
        }
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match self.tasks.cancel_task(&request.task_id) {
            Ok(()) => Ok(()),
            Err(_) => self.agent.cancel_task(request, context).await,
        }
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        self.agent.on_custom_request(request, context).await
    }
}

fn only_before_2026(
    context: &RequestContext<RoleServer>,
    method: &'static str,
) -> Result<(), ErrorData> {
    let version = context.protocol_version();
    if version.is_some_and(|version| ProtocolVersion::V_2026_07_28 <= version) {
        return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None));
    }
    Ok(())
}

async fn progress(context: &RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
    for done in [0.0, 50.0, 100.0] {
        if let Some(token) = context.meta.get_progress_token() {
            let progress = ProgressNotificationParam::new(token, done).with_total(100.0);
            context.peer.notify_progress(progress).await.map_err(broken)?;
        }
        sleep(PAUSE).await;
    }
    Ok(text("done").into())
}

async fn sample(
    prompt: &str,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
    let params = parsed(json!({"messages": [message], "maxTokens": 100}))?;
    let answer = json!(context.peer.create_message(params).await.map_err(broken)?);
    Ok(text(&format!("LLM response: {answer}")).into())
}

async fn elicit(
    params: Value,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let answer = json!(context.peer.create_elicitation(parsed(params)?).await.map_err(broken)?);
    Ok(text(&format!("User response: {answer}")).into())
}

pub(crate) fn text(text: &str) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn broken(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
