//! The handler of MCP requests.

use crate::calls;
use crate::daemon_link::LinkError;
use crate::gateway::{Gateways, Scope};
use crate::results;
use crate::tool_list::{self, ListFacts};
use quackd_protocol::VERSION;
use quackd_protocol::client::ToolParams;
use quackd_protocol::tools::ReadFileArguments;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CustomRequest, CustomResult,
    ErrorCode, ErrorData, GetTaskParams, GetTaskResult, Implementation, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ResourceContents, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::json;
use std::sync::Arc;
use url::Url;

/// How to use the tools, for a model.
const INSTRUCTIONS: &str = "\
These tools work in one workspace directory, in a sandbox that the operating system enforces: they read and write the \
workspace only, and commands usually have no network. Prefer them to other shell, edit and search tools. A line \
`[Sandbox: …]` in a result names what was denied and how a person can allow it. Start servers and long builds with \
`background` of bash.";

/// Addition for an agent in a private copy.
const ISOLATED: &str = " You work in a private copy of the workspace. A person sees your changes with `quack diff` and takes \
them over with `quack apply`; say so when you are done, and do not try to copy files elsewhere. Name files by \
relative paths: commands may find the copy at another path than that of the workspace.";

/// Methods of this server. A request with one of these names and other parameters than the revision has is refused
/// for its parameters.
const METHODS: &[&str] = &[
    "tools/call",
    "tools/list",
    "resources/list",
    "resources/read",
    "tasks/get",
    "tasks/cancel",
    "tasks/update",
    "initialize",
];

/// Serves agents; see the crate.
#[derive(Debug, Clone)]
pub struct AgentServer {
    gateways: Arc<Gateways>,
}

impl AgentServer {
    /// Creates the handler.
    #[must_use]
    pub fn new(gateways: Arc<Gateways>) -> Self {
        Self { gateways }
    }
}

impl ServerHandler for AgentServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_resources().enable_tasks().build();
        let me = Implementation::new("quackd", VERSION).with_title("quackd");
        let copy = if self.gateways.options().isolated { ISOLATED } else { "" };
        let instructions = format!("{INSTRUCTIONS}{copy}");
        ServerConfig::new(capabilities).with_server_info(me).with_instructions(instructions)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let options = self.gateways.options();
        // An unknown network counts as one, so that the annotations do not promise too much.
        let has_network = self.gateways.of(&context).has_network(&context).await;
        let facts = ListFacts {
            safe: options.safe,
            network: has_network.unwrap_or(true),
            any_workspace: matches!(options.scope, Scope::Any(_)),
            structured: tool_list::has_structured_content(context.client_info().as_ref()),
        };

        Ok(ListToolsResult::with_all_items(tool_list::tools(&options.selection, facts)))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        calls::call(&self.gateways.of(&context), request, context).await
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let files = self.gateways.of(&context).files();
        let resources = files.iter().filter_map(|(path, _)| results::resource(path)).collect();
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let gateway = self.gateways.of(&context);
        let path = Url::parse(&request.uri).ok().and_then(|uri| uri.to_file_path().ok());
        let mut files = gateway.files().into_iter();
        let Some((path, session)) = files.find(|(file, _)| Some(file) == path.as_ref()) else {
            let data = json!({"uri": request.uri});
            return Err(ErrorData::resource_not_found(
                "no long output has this address",
                Some(data),
            ));
        };

        let failed = |error: LinkError| ErrorData::internal_error(error.to_string(), None);
        let file = || ReadFileArguments::builder().path(path.to_str());
        let read = |call: ToolParams| gateway.ask(call, &session, context.client_info());

        let mut reply = read(file().into()).await.map_err(failed)?;
        if reply.info.is_error {
            // It is too long. The answer says how to go on.
            reply = read(file().offset(1).into()).await.map_err(failed)?;
        }

        if reply.info.is_error {
            Err(ErrorData::resource_not_found(reply.text, None))
        } else {
            let contents = ResourceContents::text(reply.text, request.uri);
            Ok(ReadResourceResult::new(vec![contents]).into())
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.gateways.of(&context).tasks.get_task(&request.task_id).map(GetTaskResult::new)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.gateways.of(&context).tasks.cancel_task(&request.task_id)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, .. } = request;
        // The newest revision has no `initialize`.
        let version = context.protocol_version();
        let is_new = version.is_some_and(|version| ProtocolVersion::V_2026_07_28 <= version);

        let is_known = METHODS.contains(&method.as_str()) && !(is_new && method == "initialize");
        Err(if is_known {
            ErrorData::invalid_params(format!("malformed parameters of {method}"), None)
        } else {
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None)
        })
    }
}
