//! The gateway: from MCP requests to the daemon. One for each agent, shared by all its requests.

use crate::daemon_link::{
    AgentSession, ClaimOptions, DaemonLink, LinkError, PATIENCE, REPLY_TIMEOUT,
};
use crate::lock;
use crate::parked_calls::ParkedCalls;
use crate::results::Reply;
use crate::tool_list::Selection;
use quackd_client::Connector;
use quackd_protocol::client::{SandboxSession, SandboxShow, ToolParams};
use rmcp::model::Implementation;
use rmcp::service::{RequestContext, RoleServer};
use rmcp::task_manager::TaskManager;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::timeout;
use url::Url;

/// Calls of one agent that the daemon has at once. Further ones wait. A session takes 32.
const MAX_CALLS: usize = 24;

/// Maximum number of agents with a separate gateway.
const MAX_AGENTS: usize = 32;

/// Files of long outputs that are offered as resources. The daemon keeps the last 8 of a session.
const MAX_FILES: usize = 32;

/// Timeout of an agent's list of directories.
const ROOTS_TIMEOUT: Duration = Duration::from_secs(5);

/// Directory or session of the calls.
#[derive(Debug, Clone)]
pub enum Scope {
    /// This session, by reference.
    Session(String),
    /// A session in the workspace of this directory.
    Directory(PathBuf),
    /// As `Directory`; where this directory can be no workspace, the first root that the agent names.
    Current(PathBuf),
    /// As `Current`, but a call may name another directory.
    Any(PathBuf),
}

/// Options of the server.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Directory or session of the calls.
    pub scope: Scope,
    /// Whether nothing may be written.
    pub safe: bool,
    /// The tools that are offered.
    pub selection: Selection,
    /// Whether background jobs survive the connection.
    pub keep_jobs: bool,
    /// Whether the agent works in a private copy of the workspace.
    pub isolated: bool,
}

/// The gateways by name of the agent. Over stdin and stdout there is one; over HTTP, several agents may use one server.
pub struct Gateways {
    options: ServeOptions,
    connector: Connector,
    by_name: Mutex<HashMap<String, Arc<Gateway>>>,
}

impl fmt::Debug for Gateways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateways").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Gateways {
    /// Creates the table without a gateway. Connects to nothing.
    #[must_use]
    pub fn new(options: ServeOptions, connector: Connector) -> Arc<Self> {
        Arc::new(Self { options, connector, by_name: Mutex::default() })
    }

    /// Returns what is served.
    #[must_use]
    pub fn options(&self) -> &ServeOptions {
        &self.options
    }

    /// Returns the gateway of the agent that sent a request.
    pub(crate) fn of(&self, context: &RequestContext<RoleServer>) -> Arc<Gateway> {
        let name = context.client_info().map(|agent| agent.name).unwrap_or_default();
        let mut by_name = lock(&self.by_name);
        // Agents choose their names, so further ones share a gateway.
        let name = if by_name.contains_key(&name) || by_name.len() < MAX_AGENTS {
            name
        } else {
            String::new()
        };
        let new = || Arc::new(Gateway::new(self.options.clone(), Arc::clone(&self.connector)));
        Arc::clone(by_name.entry(name).or_insert_with(new))
    }
}

/// The gateway of one agent.
pub(crate) struct Gateway {
    pub(crate) options: ServeOptions,
    connector: Connector,
    link: AsyncMutex<Option<Arc<DaemonLink>>>,
    /// Permits for calls.
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) parked: ParkedCalls,
    pub(crate) tasks: TaskManager,
    pub(crate) tasks_started: AtomicUsize,
    /// Files of long outputs, with the id of their session.
    files: Mutex<VecDeque<(PathBuf, String)>>,
}

impl Gateway {
    fn new(options: ServeOptions, connector: Connector) -> Self {
        let (slots, parked) = (Arc::new(Semaphore::new(MAX_CALLS)), ParkedCalls::default());
        let (link, files) = (AsyncMutex::default(), Mutex::default());
        let (tasks, tasks_started) = (TaskManager::new(), AtomicUsize::new(0));
        Self { options, connector, link, slots, parked, tasks, tasks_started, files }
    }

    /// Returns the connection to the daemon. Connects if there is none or the daemon has ended.
    pub(crate) async fn link(
        &self,
        agent: Option<Implementation>,
    ) -> Result<Arc<DaemonLink>, LinkError> {
        // Held while connecting, so that two calls do not connect twice.
        let mut current = self.link.lock().await;
        if let Some(link) = current.as_ref().filter(|link| !link.is_closed()) {
            return Ok(Arc::clone(link));
        }

        let client = (self.connector)().await?;
        let ServeOptions { keep_jobs, isolated, .. } = self.options;
        let options = ClaimOptions { keep_jobs, isolated };

        let link = Arc::new(DaemonLink::open(client, agent, options, current.as_deref()).await?);
        *current = Some(Arc::clone(&link));
        Ok(link)
    }

    /// Returns the session of a call. `named`: the directory in the arguments of the call.
    pub(crate) async fn session(
        &self,
        link: &DaemonLink,
        named: Option<&Path>,
        context: &RequestContext<RoleServer>,
    ) -> Result<AgentSession, LinkError> {
        let current = match (&self.options.scope, named) {
            (Scope::Session(id), _) => {
                return Ok(AgentSession { id: id.clone(), cwd: None, workspace: None });
            }
            (Scope::Directory(dir), _) => return link.claim(dir).await,
            (Scope::Any(_), Some(dir)) => return link.claim(dir).await,
            (Scope::Current(dir) | Scope::Any(dir), _) => dir,
        };

        // The directory of this process may be none of a project, so the agent's own root is tried.
        let error = match link.claim(current).await {
            Err(error @ LinkError::Refused { .. }) => error,
            other => return other,
        };

        match first_root(context).await {
            Some(root) => link.claim(&root).await,
            None => Err(LinkError::NoDirectory {
                why: error.to_string(),
                may_choose: matches!(self.options.scope, Scope::Any(_)),
            }),
        }
    }

    /// Runs a tool in this session, without progress and cancellation.
    pub(crate) async fn ask(
        &self,
        call: ToolParams,
        session: &str,
        agent: Option<Implementation>,
    ) -> Result<Reply, LinkError> {
        let link = self.link(agent).await?;
        let params = ToolParams { session_id: Some(session.to_owned()), ..call };
        Ok(link.client.call_within(params, PATIENCE).await?)
    }

    /// Returns whether commands have a network. `None` if that is not known before a call.
    pub(crate) async fn has_network(&self, context: &RequestContext<RoleServer>) -> Option<bool> {
        let link = self.link(context.client_info()).await.ok()?;
        let session = self.session(&link, None, context).await.ok()?;
        let params = SandboxShow { session: SandboxSession::of(session.id) };
        let policy = link.client.call_within(params, REPLY_TIMEOUT).await.ok()?.policy;
        Some(policy.network || policy.hosts.is_some())
    }

    /// Remembers the file of a long output, which is offered as a resource from now on.
    pub(crate) fn remember_file(&self, path: &str, session: &str) {
        let mut files = lock(&self.files);
        if MAX_FILES <= files.len() {
            files.pop_front();
        }
        files.push_back((PathBuf::from(path), session.to_owned()));
    }

    /// Returns the files that are offered as resources, oldest first, each with its session.
    pub(crate) fn files(&self) -> Vec<(PathBuf, String)> {
        lock(&self.files).iter().cloned().collect()
    }
}

/// Returns the first directory that the agent names as a root. Only agents of older revisions have roots.
#[expect(deprecated, reason = "editors of older revisions start servers outside of the project")]
async fn first_root(context: &RequestContext<RoleServer>) -> Option<PathBuf> {
    context.client_capabilities()?.roots?;
    let roots = timeout(ROOTS_TIMEOUT, context.peer.list_roots()).await.ok()?.ok()?;
    roots.roots.iter().find_map(|root| Url::parse(&root.uri).ok()?.to_file_path().ok())
}
