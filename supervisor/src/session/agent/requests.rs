//! Requests to an agent, other than prompts: abort the turn, change its settings, report the state, answer a dialog.

use super::actor::{AgentActor, Waiter};
use super::choice::{AgentChoice, StartFacts};
use super::dialogs::{AnswerOutcome, explanation};
use crate::approvals::CloseReason;
use crate::children::{KillReason, LifecycleDriver, STALL_THRESHOLD};
use crate::errors::AgentError;
use actix::prelude::*;
use quackd_protocol::agent::{AgentCommand, Engine, UiAnswer};
use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::limits::AGENT_ABORT_LIMIT;
use quackd_protocol::policy::NetworkMode;
use quackd_supervision::Cause;
use std::time::Instant;
use tokio::sync::oneshot;

/// Abort the turn. The agent is killed if it does not react.
#[derive(Debug, Message)]
#[rtype(result = "AbortedTurn")]
pub(crate) struct AbortTurn;

/// Result of an abort.
#[derive(Debug)]
pub(crate) struct AbortedTurn {
    /// Whether a turn or a summary ran, or a caller or a dialog waited.
    pub(crate) was_busy: bool,
    /// Whether an agent was running, or a command waited for one.
    pub(crate) had_agent: bool,
}

impl Handler<AbortTurn> for AgentActor {
    type Result = ResponseActFuture<Self, AbortedTurn>;

    fn handle(&mut self, _: AbortTurn, ctx: &mut Self::Context) -> Self::Result {
        let was_busy = self.is_busy();
        let had_unsent = !self.unsent.is_empty();
        self.refuse_unsent(&AgentError::Aborted);

        if !self.is_agent_ready() || self.end.is_some() {
            return Box::pin(actix::fut::ready(AbortedTurn { was_busy, had_agent: had_unsent }));
        }

        self.end_dialogs();
        let generation = self.child.generation;
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
            if !is_heard && handle.child.generation == generation && handle.is_agent_ready() {
                handle.kill_for(Cause::NotResponding, KillReason::NoAbort, ctx);
            }
            AbortedTurn { was_busy, had_agent: true }
        }))
    }
}

/// The registry's facts about the agent: the network of the session's commands, whether the session is in safe mode, and
/// the user's choice of the agent. An idle agent that was started with others ends, so that the next one has them.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct SetAgent {
    pub(crate) network: NetworkMode,
    pub(crate) is_safe: bool,
    pub(crate) choice: AgentChoice,
}

impl Handler<SetAgent> for AgentActor {
    type Result = ();

    fn handle(&mut self, msg: SetAgent, ctx: &mut Self::Context) {
        let SetAgent { network, is_safe, choice } = msg;
        (self.network, self.is_safe, self.chosen) = (network, is_safe, choice);
        self.end_if_replaced(ctx);
    }
}

/// Options that a client sets for the agent, in place of earlier ones. An idle agent ends, so that the next one has them.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct SetAgentOptions(pub(crate) AgentOptions);

impl Handler<SetAgentOptions> for AgentActor {
    type Result = ();

    fn handle(&mut self, SetAgentOptions(options): SetAgentOptions, ctx: &mut Self::Context) {
        self.options = options;
        self.end_if_replaced(ctx);
    }
}

/// Reply with the options that a client has set for the agent.
#[derive(Debug, Message)]
#[rtype(result = "AgentOptions")]
pub(crate) struct GetAgentOptions;

impl Handler<GetAgentOptions> for AgentActor {
    type Result = MessageResult<GetAgentOptions>;

    fn handle(&mut self, _: GetAgentOptions, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.options.clone())
    }
}

impl AgentActor {
    /// Returns the facts for a process that starts now.
    pub(super) fn start_facts(&self) -> StartFacts {
        StartFacts {
            choice: self.chosen.clone(),
            servers: self.mcp_servers.clone(),
            options: self.options.clone(),
            is_safe: self.is_safe,
            network: self.network,
            models: self.services.models.version(),
        }
    }

    /// Whether a new process would get other facts at its start. Of these, the user's Pi gets only the choice and the
    /// options.
    pub(super) fn is_replaced(&self) -> bool {
        let (started, now) = (&self.started, self.start_facts());
        match self.engine {
            Engine::Native => *started != now,
            Engine::Pi => started.choice != now.choice || started.options != now.options,
        }
    }

    /// Ends an idle process if a new one would get other facts. The next command starts the new process.
    pub(super) fn end_if_replaced(&mut self, ctx: &mut Context<Self>) {
        if self.is_replaced() && self.is_agent_ready() && !self.is_busy() {
            self.drain(ctx);
        }
    }
}

/// Request the agent's state. The reply arrives with the state, or at once if no state can be expected.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct RefreshAgent;

impl Handler<RefreshAgent> for AgentActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: RefreshAgent, ctx: &mut Self::Context) -> Self::Result {
        let (waiter, reported) = oneshot::channel();
        self.ask_state(Some(waiter), ctx);
        // If the sender is dropped, the caller continues with the last known state.
        Box::pin(async { reported.await.unwrap_or_default() })
    }
}

/// Pass a client's answer to an open dialog.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), AgentError>")]
pub(crate) struct AnswerDialog(pub(crate) UiAnswer);

impl Handler<AnswerDialog> for AgentActor {
    type Result = Result<(), AgentError>;

    fn handle(
        &mut self,
        AnswerDialog(answer): AnswerDialog,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        let found = self.dialogs.answer(&answer.id);
        if let AnswerOutcome::Late(why) = found {
            return Err(AgentError::DialogClosed { id: answer.id, how: explanation(why) });
        }
        if !self.is_agent_ready() || self.end.is_some() {
            return Err(AgentError::NotRunning(self.session.name().to_string()));
        }
        self.active = Instant::now();
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
