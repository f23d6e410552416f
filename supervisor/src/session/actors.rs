//! The two actors of a session: the owner of its worker, and the owner of its agent. A request goes to the actor that it
//! concerns; the functions here send to both.

use super::agent::{AbortTurn, AbortedTurn, AgentActor, AgentChoice, AgentStart, SetAgent};
use super::identity::SessionIdentity;
use super::owner::Owner;
use super::services::SessionServices;
use super::worker::{AbortCalls, AbortedCalls, SetPolicy, WorkerActor, WorkerStart};
use crate::children::{ChildRequests, Drain, DrainReason, Settle};
use crate::pool::sessions::SessionEntry;
use actix::prelude::*;
use futures_util::future::join;
use quackd_policy::hosts::SessionRules;
use quackd_protocol::SessionId;
use quackd_protocol::isolate::CopiedTree;
use quackd_protocol::metadata::Session;
use quackd_protocol::policy::Policy;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Addresses of the actors of one session.
#[derive(Debug, Clone)]
pub(crate) struct SessionActors {
    pub(crate) worker: Addr<WorkerActor>,
    pub(crate) agent: Addr<AgentActor>,
}

/// Facts of a session that its actors get when they start.
#[derive(Debug)]
pub(crate) struct SessionStart<'a> {
    pub(crate) session: &'a Session,
    pub(crate) label: String,
    pub(crate) workspace: String,
    pub(crate) policy: Policy,
    pub(crate) rules: Arc<SessionRules>,
    pub(crate) is_safe: bool,
    pub(crate) choice: AgentChoice,
    /// The private copy of an isolated session.
    pub(crate) isolated: Option<CopiedTree>,
    /// As [`SessionIdentity::created`].
    pub(crate) created: Option<String>,
}

impl SessionActors {
    /// Sets the policy and the choice of the agent for the next processes. The rules of hosts and safe mode apply at once.
    /// A worker with another policy is replaced when nothing runs in it, and so is an agent that was started with another
    /// network, safe mode or choice.
    #[expect(
        clippy::disallowed_methods,
        reason = "internal signals that must not be lost; a client's change causes one per actor"
    )]
    pub(crate) fn set_policy(
        &self,
        policy: Policy,
        rules: Arc<SessionRules>,
        is_safe: bool,
        choice: AgentChoice,
    ) {
        let network = policy.network_mode();
        self.worker.do_send(SetPolicy { policy, rules, is_safe });
        self.agent.do_send(SetAgent { network, is_safe, choice });
    }

    /// Ends every call, each of which gets its own result, and then the agent's turn.
    ///
    /// # Errors
    /// An actor has ended.
    pub(crate) async fn abort(&self) -> Result<(AbortedCalls, AbortedTurn), MailboxError> {
        // Both are sent before the first wait: the agent must not continue its turn with the results of the calls.
        let calls = self.worker.send(AbortCalls);
        let turn = self.agent.send(AbortTurn);
        let (calls, turn) = join(calls, turn).await;
        Ok((calls?, turn?))
    }

    /// Waits until both actors have handled earlier requests.
    ///
    /// # Errors
    /// An actor has ended.
    pub(crate) async fn settle(&self) -> Result<(), MailboxError> {
        let (worker, agent) = join(self.worker.send(Settle), self.agent.send(Settle)).await;
        worker.and(agent)
    }

    /// Accepts no more work, lets running calls and a turn finish until `until`, then stops the processes. Both requests
    /// are sent before the future is polled. It ends after the exit of both processes.
    ///
    /// # Errors
    /// An actor has ended.
    pub(crate) fn drain(
        &self,
        until: Instant,
        ending: DrainReason,
    ) -> impl Future<Output = Result<(), MailboxError>> + use<> {
        let drain = Drain { until, ending };
        let (worker, agent) = (self.worker.send(drain), self.agent.send(drain));
        async {
            let (worker, agent) = join(worker, agent).await;
            worker.and(agent)
        }
    }
}

/// Addresses of the actors of all sessions that were used since the daemon started. One instance per daemon.
#[derive(Debug)]
pub(crate) struct ActorTable {
    pub(crate) services: Rc<SessionServices>,
    actors: RefCell<HashMap<SessionId, SessionActors>>,
}

impl ActorTable {
    pub(crate) fn new(services: Rc<SessionServices>) -> Self {
        Self { services, actors: RefCell::default() }
    }

    /// Starts the actors of a session without a process, with an entry in the table of sessions.
    pub(crate) fn start(&self, start: SessionStart<'_>, owner: &Owner) -> SessionActors {
        let SessionStart { session, label, workspace, created, .. } = start;
        let SessionStart { policy, rules, is_safe, choice, isolated, .. } = start;
        let id = session.id.clone();
        let identity = SessionIdentity::new(id.clone(), &session.name, label, workspace, created);
        let identity = Rc::new(identity);

        let (of_worker, of_agent) = (Context::new(), Context::new());
        let actors = SessionActors { worker: of_worker.address(), agent: of_agent.address() };
        let [worker, agent] =
            [ChildRequests::from(&actors.worker), ChildRequests::from(&actors.agent)];
        let entry = Rc::new(SessionEntry::new(id.clone(), worker, agent));

        let agent = AgentStart {
            session: Rc::clone(&identity),
            services: Rc::clone(&self.services),
            owner: owner.clone(),
            entry: Rc::downgrade(&entry),
            session_file: session.pi_session_file.clone(),
            network: policy.network_mode(),
            is_safe,
            choice,
        };
        let worker = WorkerStart {
            session: identity,
            services: Rc::clone(&self.services),
            owner: owner.clone(),
            entry: Rc::downgrade(&entry),
            policy,
            rules,
            is_safe,
            isolated,
        };
        of_worker.run(WorkerActor::new(worker));
        of_agent.run(AgentActor::new(agent));

        self.services.table.insert(entry);
        self.actors.borrow_mut().insert(id, actors.clone());
        actors
    }

    pub(crate) fn get(&self, session: &SessionId) -> Option<SessionActors> {
        self.actors.borrow().get(session).cloned()
    }

    pub(crate) fn all(&self) -> Vec<SessionActors> {
        self.actors.borrow().values().cloned().collect()
    }

    /// Removes a session, here and from the table of sessions. Its actors end with their last request and process.
    pub(crate) fn remove(&self, session: &SessionId) {
        self.actors.borrow_mut().remove(session);
        self.services.table.remove(session);
    }
}
