//! The actor that owns one session: its worker, its agent, the calls in flight and the policy. Also the services that
//! the actors of all sessions share: they contain the table with the addresses of the actors.
//!
//! Receives: [`CallTool`](super::worker::CallTool), [`SendCommand`](super::agent::SendCommand),
//! [`AnswerDialog`](super::agent::AnswerDialog), and the messages of [`super::messages`] (from clients, through the
//! registry); `ChannelEvent` of the worker and of the agent (from the links);
//! [`Manage`](crate::children::Manage) (from [`crate::pool::sessions`], and from the user).
//! Publishes: one snapshot after each change, in the session's entry of the table.
//! Blocks on: nothing. The main thread starts and reaps processes.
//! Mailbox: [`MAILBOX`] messages; a sender waits until there is space.
//! Ends: with the daemon, or with its session. Dropping their senders then answers the remaining calls.

use super::agent::native::tool_runner::ToolRunner;
use super::agent::{AgentPart, LastFailure};
use super::call_record::CallJournal;
use super::models::Models;
use super::owner::Owner;
use super::spending::Spending;
use super::unrecorded::UnrecordedCalls;
use super::worker::WorkerPart;
use crate::approvals::Approvals;
use crate::children::ChildServices;
use crate::daemon_info::DaemonInfo;
use crate::events::Events;
use crate::log::journal::Journal;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::pool::sessions;
use actix::prelude::*;
use quackd_egress::Egress;
use quackd_policy::hosts::SessionRules;
use quackd_protocol::SessionId;
use quackd_protocol::agent::Engine;
use quackd_protocol::isolate::CopiedTree;
use quackd_protocol::metadata::Session;
use quackd_protocol::policy::Policy;
use std::cell::OnceCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Size of the mailbox: messages of many clients of one session, and one frame of each process at a time.
const MAILBOX: usize = 256;

pub(crate) type SessionEntry = sessions::SessionEntry<Addr<SessionActor>>;
pub(crate) type SessionTable = sessions::SessionTable<Addr<SessionActor>>;

/// Owner of one session's processes. Runs as an actor.
pub(crate) struct SessionActor {
    pub(super) session: SessionId,
    pub(super) name: String,
    /// Label when the actor started.
    pub(super) label: String,
    pub(super) workspace: String,
    pub(super) services: Rc<SessionServices>,
    pub(super) owner: Owner,
    /// Entry in the table, which has the published state.
    pub(super) entry: Weak<SessionEntry>,
    pub(super) worker: WorkerPart,
    pub(super) agent: AgentPart,
    pub(super) checkpoints: UnrecordedCalls,
}

impl SessionActor {
    /// Starts the actor without a process. Returns the session's entry for the table.
    pub(crate) fn start_for(
        session: &Session,
        label: String,
        workspace: String,
        (policy, rules): (Policy, Arc<SessionRules>),
        isolated: Option<CopiedTree>,
        services: Rc<SessionServices>,
        owner: Owner,
    ) -> Rc<SessionEntry> {
        let ctx = Context::new();
        let (handle, id) = (ctx.address(), session.id.clone());
        let entry = SessionEntry::new(id.clone(), handle.clone(), handle.recipient());
        let entry = Rc::new(entry);
        ctx.run(Self {
            worker: WorkerPart::new(&id, policy, rules, isolated),
            agent: AgentPart::new(&id, session.pi_session_file.clone()),
            checkpoints: UnrecordedCalls::default(),
            session: id,
            name: session.name.clone(),
            label,
            workspace,
            services,
            owner,
            entry: Rc::downgrade(&entry),
        });
        entry
    }
}

impl Actor for SessionActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }
}

/// Services that the workers and agents of all sessions share. One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct SessionServices {
    pub(crate) daemon: Rc<DaemonInfo>,
    pub(crate) children: ChildServices,
    pub(crate) pool: Pool,
    pub(crate) events: Rc<Events>,
    pub(crate) approvals: Rc<Approvals>,
    /// Requests of commands for hosts.
    pub(crate) network_journal: Journal,
    /// Calls that were answered.
    pub(crate) call_journal: CallJournal,
    pub(crate) table: SessionTable,
    pub(crate) agent_failure: LastFailure,
    /// Runs tool calls of quackd's own agents. Set once at the start.
    pub(crate) tool_runner: OnceCell<Box<dyn ToolRunner>>,
    /// Web searches and model requests, with their keys.
    pub(crate) egress: Rc<Egress>,
    /// Models of quackd's own agent.
    pub(crate) models: Models,
    /// Cost of quackd's own agents.
    pub(crate) spending: Rc<Spending>,
    pub(crate) metrics: Arc<Metrics>,
    /// Permits for [`SessionServices::look`].
    pub(crate) lookups: Arc<Semaphore>,
}

/// The reason why [`SessionServices::look`] has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoLook {
    /// The daemon is stopping.
    Ended,
    TimedOut,
}

impl SessionServices {
    /// Reads changed models, so that a running agent of quackd that does not know them is replaced.
    pub(crate) async fn refresh_models(&self, session: &SessionId) {
        let agent = &self.table.snapshot(session).agent;
        if agent.engine == Engine::Native && agent.process.is_alive() {
            self.models.catalog().await;
        }
    }

    /// Runs file system access of users' directories on the blocking pool. An access that hangs, for example on a dead
    /// mount, keeps its permit, so that at most a few threads hang.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        limit: Duration,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoLook> {
        let lookups = Arc::clone(&self.lookups);
        let looking = async move {
            let permit = lookups.acquire_owned().await.ok()?;
            let look = move || {
                let _permit = permit;
                look()
            };
            actix_rt::task::spawn_blocking(look).await.ok()
        };
        let found = tokio::time::timeout(limit, looking).await.map_err(|_late| NoLook::TimedOut)?;
        found.ok_or(NoLook::Ended)
    }
}
