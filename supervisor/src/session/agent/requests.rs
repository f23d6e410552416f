//! Requests from clients to an agent, other than prompts: abort the turn, report the state, answer a dialog.

use super::OfAgent;
use super::choice::{AgentChoice, StartFacts};
use super::dialogs::{AnswerOutcome, explanation};
use super::part::Waiter;
use crate::approvals::CloseReason;
use crate::children::{KillReason, LifecycleDriver, STALL_THRESHOLD};
use crate::errors::AgentError;
use crate::session::actor::SessionActor;
use actix::prelude::*;
use quackd_protocol::agent::{AgentCommand, Engine, UiAnswer};
use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::limits::AGENT_ABORT_LIMIT;
use quackd_supervision::Cause;
use std::time::Instant;
use tokio::sync::oneshot;

impl SessionActor {
    /// Aborts the turn, and kills the agent if it does not react. The result is whether an agent was running.
    pub(in crate::session) fn abort_turn(
        &mut self,
        ctx: &mut Context<Self>,
    ) -> ResponseActFuture<Self, bool> {
        let had_unsent = !self.agent.unsent.is_empty();
        self.refuse_unsent(&AgentError::Aborted);
        if !self.is_agent_ready() || self.agent.end.is_some() {
            return Box::pin(actix::fut::ready(had_unsent));
        }
        self.end_dialogs();
        let generation = self.agent.child.generation;
        let heard = [AgentCommand::Abort, AgentCommand::AbortBash].map(|command| {
            let (reply, heard) = oneshot::channel();
            self.send_command(command, Waiter::Abort(reply), ctx);
            heard
        });
        let mut heard = futures_util::future::join_all(heard);
        let due = Instant::now() + AGENT_ABORT_LIMIT;
        let waited = async move {
            match tokio::time::timeout(AGENT_ABORT_LIMIT, &mut heard).await {
                // The agent may have been suspended as well.
                Err(_) if STALL_THRESHOLD < due.elapsed() => {
                    tokio::time::timeout(AGENT_ABORT_LIMIT, heard).await
                }
                waited => waited,
            }
        };
        Box::pin(waited.into_actor(self).map(move |heard, handle, ctx| {
            let is_heard = heard.is_ok_and(|heard| heard.iter().all(Result::is_ok));
            if !is_heard && handle.agent.child.generation == generation && handle.is_agent_ready() {
                handle.kill_for(OfAgent, Cause::NotResponding, KillReason::NoAbort, ctx);
            }
            true
        }))
    }
}

impl SessionActor {
    /// Takes the user's choice of the agent.
    pub(in crate::session) fn set_agent(&mut self, choice: AgentChoice, ctx: &mut Context<Self>) {
        self.agent.chosen = choice;
        self.end_if_replaced(ctx);
    }

    /// Takes the options that a client sets. An idle agent ends, so that the next one has them.
    pub(in crate::session) fn set_agent_options(
        &mut self,
        options: AgentOptions,
        ctx: &mut Context<Self>,
    ) {
        self.agent.options = options;
        self.end_if_replaced(ctx);
    }

    /// Returns the options that a client has set.
    pub(in crate::session) fn agent_options(&self) -> AgentOptions {
        self.agent.options.clone()
    }

    /// Returns what a process gets that is started now.
    pub(super) fn start_facts(&self) -> StartFacts {
        StartFacts {
            choice: self.agent.chosen.clone(),
            servers: self.agent.mcp_servers.clone(),
            options: self.agent.options.clone(),
            is_safe: self.agent.is_safe,
            network: self.worker.policy.network_mode(),
            models: self.services.models.version(),
        }
    }

    /// Whether another process would be started differently. The user's Pi knows nothing of the session's settings.
    pub(super) fn is_replaced(&self) -> bool {
        let (started, now) = (&self.agent.started, self.start_facts());
        match self.agent.engine {
            Engine::Native => *started != now,
            Engine::Pi => started.choice != now.choice || started.options != now.options,
        }
    }

    /// Ends an idle process if another one is to replace it.
    pub(in crate::session) fn end_if_replaced(&mut self, ctx: &mut Context<Self>) {
        if self.is_replaced() && self.is_agent_ready() && !self.agent.is_busy() {
            self.drain(OfAgent, ctx);
        }
    }
}

impl SessionActor {
    /// Requests the agent's state. The receiver gets a message with the state, or is closed if no state can be
    /// expected.
    pub(in crate::session) fn refresh_agent(
        &mut self,
        ctx: &mut Context<Self>,
    ) -> oneshot::Receiver<()> {
        let (told, tells) = oneshot::channel();
        self.ask_state(Some(told), ctx);
        tells
    }
}

/// Pass a client's answer to an open dialog.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), AgentError>")]
pub(crate) struct AnswerDialog(pub(crate) UiAnswer);

impl Handler<AnswerDialog> for SessionActor {
    type Result = Result<(), AgentError>;

    fn handle(
        &mut self,
        AnswerDialog(answer): AnswerDialog,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        let found = self.agent.dialogs.answer(&answer.id);
        if let AnswerOutcome::Late(why) = found {
            return Err(AgentError::DialogClosed { id: answer.id, how: explanation(why) });
        }
        if !self.is_agent_ready() || self.agent.end.is_some() {
            return Err(AgentError::NotRunning(self.name.clone()));
        }
        self.agent.active = Instant::now();
        let id = answer.id.clone();
        self.send_answer(answer);
        if found == AnswerOutcome::First {
            self.publish_closed(&id, CloseReason::Answered);
            self.arm_dialogs(ctx);
        }
        self.publish_agent();
        Ok(())
    }
}
