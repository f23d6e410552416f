//! Requests to models and tool calls of quackd's own agent. The agent has neither a key nor tools: egress sends its
//! requests, and the session's worker runs its calls.

use super::OfPi;
use super::frames::MAX_EVENT_NAME;
use crate::children::{KillReason, LifecycleDriver};
use crate::session::actor::{SessionActor, TellSession};
use actix::prelude::*;
use futures_util::future::LocalBoxFuture;
use quackd_protocol::SessionId;
use quackd_protocol::limits::{MAX_ARGUMENTS_BYTES, MAX_CALLS_PER_SESSION};
use quackd_protocol::model::{
    MAX_MODEL_REQUEST_BYTES, MAX_MODEL_REQUESTS, MODEL_PIECES, ModelPart, ModelRequest,
};
use quackd_protocol::pi::{AgentToolCall, AgentToolDone, ToPiWorker};
use quackd_supervision::Cause;
use std::collections::HashMap;
use std::fmt::Debug;
use std::rc::Rc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Requests for summaries of one turn.
const SUMMARIES: usize = 16;

/// Longest id of a call by a model, in bytes.
const MAX_CALL_ID: usize = 512;

/// Runs a tool call of a session's agent like one of a client, with its questions to the user.
pub(crate) trait ToolRunner: Debug {
    /// Returns the result. `cancel` ends the call.
    fn run(&self, call: AgentCall) -> LocalBoxFuture<'static, AgentToolDone>;
}

/// A tool call of a session's agent.
#[derive(Debug)]
pub(crate) struct AgentCall {
    pub(crate) session: SessionId,
    pub(crate) call: AgentToolCall,
    pub(crate) cancel: CancellationToken,
}

/// What the agent's process waits for.
#[derive(Debug, Default)]
pub(super) struct AgentWork {
    requests: HashMap<u64, OpenRequest>,
    calls: HashMap<u64, CancellationToken>,
    /// Requests since the last turn ended.
    n_requests: u32,
}

/// A request to a model.
#[derive(Debug)]
struct OpenRequest {
    /// A permit for each piece that the agent may still get.
    credits: Rc<Semaphore>,
    cancel: CancellationToken,
}

impl AgentWork {
    /// Gives up a request. A request that has ended is ignored: both may cross.
    pub(super) fn cancel_request(&mut self, number: u64) {
        if let Some(request) = self.requests.remove(&number) {
            request.cancel.cancel();
        }
    }

    /// Stops a call. A call that has ended is ignored.
    pub(super) fn cancel_call(&mut self, number: u64) {
        if let Some(cancel) = self.calls.get(&number) {
            cancel.cancel();
        }
    }

    /// Counts the requests of the next turn.
    pub(super) fn turn_ended(&mut self) {
        self.n_requests = 0;
    }

    /// Gives up everything, because the process has exited.
    pub(super) fn end(&mut self) {
        self.turn_ended();
        self.requests.drain().for_each(|(_, request)| request.cancel.cancel());
        self.calls.drain().for_each(|(_, cancel)| cancel.cancel());
    }
}

impl SessionActor {
    pub(super) fn model_request(&mut self, request: ModelRequest, ctx: &mut Context<Self>) {
        let number = request.number;
        let work = &mut self.pi.work;
        let is_sound = request.body.get().len() <= MAX_MODEL_REQUEST_BYTES
            && request.provider.len() <= MAX_EVENT_NAME * 4
            && !work.requests.contains_key(&number)
            && work.requests.len() < MAX_MODEL_REQUESTS;
        if !is_sound {
            return self.agent_broke("a request to a model beyond its limits", ctx);
        }
        // Each request costs money, so that none goes out without a prompt or a summary.
        let agent = &self.services.daemon.config.agent;
        let most = (agent.max_turns.value + SUMMARIES) * (agent.retries.value.max(10) + 1);
        work.n_requests += 1;
        let is_meant = usize::try_from(work.n_requests).is_ok_and(|n| n <= most);
        if !is_meant || !(self.pi.in_turn() || self.pi.is_compacting) {
            return self.agent_broke("a request to a model without a turn", ctx);
        }
        let work = &mut self.pi.work;
        let open = OpenRequest {
            credits: Rc::new(Semaphore::new(MODEL_PIECES)),
            cancel: CancellationToken::new(),
        };
        let (credits, cancel) = (Rc::clone(&open.credits), open.cancel.clone());
        work.requests.insert(number, open);
        self.touch_pi();
        let (handle, generation) = (ctx.address(), self.pi.child.generation);
        let services = Rc::clone(&self.services);
        // Ends with the answer, with the request's cancellation, or with the actor.
        actix::spawn(async move {
            let passing = async {
                // The user may have changed the address or the key since the agent started.
                services.models.catalog().await;
                let mut parts = services.models.request(request);
                while let Some(part) = parts.recv().await {
                    if matches!(part, ModelPart::Piece(_)) {
                        match credits.acquire().await {
                            Ok(permit) => permit.forget(),
                            Err(_closed) => return,
                        }
                    }
                    let answer = ModelAnswer { generation, number, part };
                    if handle.send(TellSession::ModelPart(answer)).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                () = passing => {}
                () = cancel.cancelled() => {}
            }
        });
    }

    pub(super) fn model_taken(&mut self, number: u64) {
        if let Some(request) = self.pi.work.requests.get(&number)
            && request.credits.available_permits() < MODEL_PIECES
        {
            request.credits.add_permits(1);
        }
    }

    pub(super) fn agent_call(&mut self, call: AgentToolCall, ctx: &mut Context<Self>) {
        let number = call.number;
        let is_sound = call.tool_call_id.len() <= MAX_CALL_ID
            && call.shown_tool.len() <= MAX_EVENT_NAME * 4
            && call.arguments.len() <= MAX_ARGUMENTS_BYTES
            && !self.pi.work.calls.contains_key(&number)
            && self.pi.work.calls.len() < MAX_CALLS_PER_SESSION;
        if !is_sound {
            return self.agent_broke("a tool call beyond its limits", ctx);
        }
        let services = Rc::clone(&self.services);
        let Some(runner) = services.tool_runner.get() else { return };
        let cancel = CancellationToken::new();
        self.pi.work.calls.insert(number, cancel.clone());
        self.touch_pi();
        let running = runner.run(AgentCall { session: self.session.clone(), call, cancel });
        let generation = self.pi.child.generation;
        ctx.spawn(running.into_actor(self).map(move |done, handle, _| {
            if handle.pi.child.generation == generation {
                handle.pi.work.calls.remove(&number);
                handle.tell_agent(&ToPiWorker::ToolDone(Box::new(done)));
            }
        }));
    }

    fn tell_agent(&mut self, frame: &ToPiWorker) {
        let is_there = self.pi.child.process.is_some() && self.pi.end.is_none();
        if is_there && self.pi.child.try_send(frame).is_err() {
            tracing::warn!(session = %self.session, "cannot send a frame to the agent");
        }
    }

    fn agent_broke(&mut self, why: &'static str, ctx: &mut Context<Self>) {
        self.kill_for(OfPi, Cause::Protocol(why.to_owned()), KillReason::BrokeProtocol, ctx);
    }
}

/// A part of a model's answer, for the process that sent the request.
#[derive(Debug)]
pub(crate) struct ModelAnswer {
    generation: u64,
    number: u64,
    part: ModelPart,
}

impl SessionActor {
    pub(in crate::session) fn model_part(&mut self, answer: ModelAnswer) {
        let ModelAnswer { generation, number, part } = answer;
        if self.pi.child.generation != generation || !self.pi.work.requests.contains_key(&number) {
            return;
        }
        if matches!(part, ModelPart::Done {} | ModelPart::Failed(_)) {
            self.pi.work.requests.remove(&number);
        }
        self.touch_pi();
        self.tell_agent(&ToPiWorker::Model { number, part });
    }
}
