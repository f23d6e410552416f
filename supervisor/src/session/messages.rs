//! Messages from clients, the registry and the session's own processes to the actor of a session, and their handlers.
//! Calls of tools and commands for the agent have their own messages, in [`super::worker`] and [`super::agent`].

use super::FoundSession;
use super::actor::SessionActor;
use super::agent::native::open_work::ModelAnswer;
use super::agent::{AgentChoice, OfAgent};
use super::network::TellNetwork;
use super::worker::OfWorker;
use crate::children::{
    Child, ChildActor, DrainReason, LifecycleDriver, Manage, ManageDriver, ProcessKind, Request,
};
use actix::prelude::*;
use quackd_policy::hosts::{HostPort, SessionRules};
use quackd_protocol::CallId;
use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::client::{CallInfo, RunningJob};
use quackd_protocol::isolate::CopiedTree;
use quackd_protocol::mcp::McpServer;
use quackd_protocol::policy::Policy;
use quackd_supervision::Demander;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

/// Request to a session. The reply is whether there was something to do.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub(crate) enum TellSession {
    /// Start a worker soon, because a client attached. Retries after a failure.
    StartWorker,
    /// Like `StartWorker`, for the agent.
    StartAgent(FoundSession),
    /// The policy of the next worker, and the rules of hosts, which apply at once. A worker with another policy is
    /// replaced when nothing runs in it, and so is an agent that was started with another network or safe mode.
    SetPolicy { policy: Policy, rules: Arc<SessionRules>, safe_mode: bool },
    /// Reply with the owner of the worker's network, which is started if necessary. No reply without a worker.
    OpenNetwork(oneshot::Sender<Recipient<TellNetwork>>),
    /// The user's choice of the session's agent. An idle agent ends, so that the next command starts the right one.
    SetAgent(AgentChoice),
    /// MCP servers that a client gives the session, in place of earlier ones.
    SetMcpServers(Vec<McpServer>),
    /// Reply with the session's MCP servers.
    GetMcpServers(oneshot::Sender<Vec<McpServer>>),
    /// Options that a client sets for the agent, in place of earlier ones.
    SetAgentOptions(Box<AgentOptions>),
    /// Reply with the options of the agent.
    GetAgentOptions(oneshot::Sender<Box<AgentOptions>>),
    /// The session's copy was made again. A running worker has the old one and must have been stopped.
    SetIsolated(CopiedTree),
    /// Allow connections to this host and port for a while.
    AllowOnce(HostPort),
    /// A part of a model's answer, for the process that sent the request.
    ModelPart(ModelAnswer),
    /// The process of this generation does not take the pieces of an answer.
    AgentIsSlow { generation: u64 },
    /// Does nothing: earlier requests have been handled when it is answered.
    Settle,
    /// No proxy will start for this worker's sockets any more: replace the worker as soon as nothing runs in it.
    NetworkFailed(Recipient<TellNetwork>),
    /// Replace a worker with an older policy as soon as no call runs in it. Its background jobs end.
    EndJobs,
    /// The client that claimed the session has disconnected. End the background jobs, after the running calls.
    ClientLeft,
    /// Return a credit: output of a streamed call was passed on, so the worker may send more.
    OutputTaken(CallId),
    /// End every call, each of which gets its own result, and the agent's turn. The result is whether there was a call,
    /// or a process of the agent.
    Abort(oneshot::Sender<AbortedWork>),
    /// Request the agent's state. The reply arrives with the state, or at once if no state can be expected.
    RefreshAgent,
}

/// Work that an abort ended.
#[derive(Debug)]
pub(crate) struct AbortedWork {
    pub(crate) calls: Vec<CallInfo>,
    /// Background jobs, which go on.
    pub(crate) jobs: Vec<RunningJob>,
    /// Whether a turn was running.
    pub(crate) turn: bool,
}

impl SessionActor {
    /// Updates the session's name and the file of its conversation from the registry.
    pub(super) fn learn(&mut self, found: &FoundSession) {
        self.name.clone_from(&found.session_name);
        self.agent.learn(&found.pi_session_file, &found.agent, found.safe_mode);
    }

    fn children(&mut self) -> [&mut Child; 2] {
        [&mut self.worker.child, &mut self.agent.child]
    }
}

impl Handler<TellSession> for SessionActor {
    type Result = ResponseActFuture<Self, bool>;

    fn handle(&mut self, msg: TellSession, ctx: &mut Self::Context) -> Self::Result {
        match msg {
            TellSession::StartWorker if self.worker.child.ending.is_none() => {
                self.demand(OfWorker, Demander::Attach, ctx);
            }
            TellSession::StartAgent(found) => {
                self.learn(&found);
                if self.agent.child.ending.is_none() {
                    self.demand(OfAgent, Demander::Attach, ctx);
                }
            }
            TellSession::StartWorker => {}
            TellSession::SetPolicy { policy, rules, safe_mode } => {
                self.worker.set_rules(rules);
                self.set_policy(policy, ctx);
                self.tell_rules();
                self.agent.is_safe = safe_mode;
                self.end_if_replaced(ctx);
            }
            TellSession::OpenNetwork(reply) => {
                if let Some(network) = self.open_network() {
                    // The client may be gone.
                    reply.send(network).ok();
                }
            }
            TellSession::SetAgent(choice) => self.set_agent(choice, ctx),
            TellSession::SetMcpServers(servers) => self.set_mcp_servers(servers, ctx),
            TellSession::GetMcpServers(reply) => {
                // The call may have ended.
                reply.send(self.mcp_servers()).ok();
            }
            TellSession::SetAgentOptions(options) => self.set_agent_options(*options, ctx),
            TellSession::GetAgentOptions(reply) => {
                // The client may be gone.
                reply.send(Box::new(self.agent_options())).ok();
            }
            TellSession::SetIsolated(copied) => self.set_isolated(copied, ctx),
            TellSession::AllowOnce(target) => self.allow_once(target),
            TellSession::ModelPart(answer) => self.model_part(answer, ctx),
            TellSession::AgentIsSlow { generation } => self.agent_is_slow(generation, ctx),
            TellSession::Settle => {}
            TellSession::NetworkFailed(network) => self.network_failed(&network, ctx),
            TellSession::EndJobs => self.end_jobs(ctx),
            TellSession::ClientLeft => self.client_left(ctx),
            TellSession::OutputTaken(call) => self.output_taken(call, ctx),
            TellSession::Abort(reply) => {
                let turn = self.agent.is_busy();
                let (calls, jobs) = self.abort_calls(ctx);
                let had_calls = !calls.is_empty();
                // The client may be gone.
                reply.send(AbortedWork { calls, jobs, turn }).ok();
                let aborted = self.abort_turn(ctx);
                return Box::pin(aborted.map(move |had_turn, _, _| had_calls || had_turn));
            }
            TellSession::RefreshAgent => {
                let refreshed = self.refresh_agent(ctx);
                return Box::pin(async { refreshed.await.is_ok() }.into_actor(self));
            }
        }
        Box::pin(actix::fut::ready(true))
    }
}

impl Handler<Manage> for SessionActor {
    type Result = bool;

    fn handle(&mut self, Manage(kind, request): Manage, ctx: &mut Self::Context) -> bool {
        match (kind, request) {
            // A call that waits for this worker arrived after the worker was chosen.
            (ProcessKind::Worker, Request::Evict(_)) if self.has_calls() => {
                self.publish_status(OfWorker);
                false
            }
            (ProcessKind::Worker, request) => self.manage(OfWorker, request, ctx),
            (ProcessKind::Agent, request) => self.manage(OfAgent, request, ctx),
        }
    }
}

/// Accept no more work, let running calls and a turn finish until `until`, then stop the processes. The reply arrives
/// after their exit.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Drain {
    pub(crate) until: Instant,
    pub(crate) ending: DrainReason,
}

impl Handler<Drain> for SessionActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Drain { until, ending }: Drain, ctx: &mut Self::Context) -> Self::Result {
        for child in self.children() {
            child.ending = Some(ending);
        }
        let worker = self.drain_worker(ending, until, ctx);
        let pi = self.drain_agent(ending, until, ctx);
        Box::pin(async {
            futures_util::future::join(worker, pi).await;
        })
    }
}
