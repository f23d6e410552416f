//! Requests to models and tool calls of quackd's own agent. The agent has neither a key nor tools: egress sends its
//! requests, and the session's worker runs its calls.

use super::instructions;
use super::open_work::OpenRequest;
use super::tool_runner::AgentCall;
use crate::children::{STALL_THRESHOLD, SendError};
use crate::session::agent::actor::AgentActor;
use crate::session::agent::frames::MAX_EVENT_NAME;
use actix::prelude::*;
use quackd_protocol::agent::{AgentToolCall, AgentToolDone, ToAgent};
use quackd_protocol::limits::{MAX_ARGUMENTS_BYTES, MAX_CALLS_PER_SESSION};
use quackd_protocol::model::{
    MAX_MODEL_REQUEST_BYTES, MAX_MODEL_REQUESTS, MODEL_PIECES, ModelFailure, ModelFailureKind,
    ModelPart, ModelRequest,
};
use quackd_protocol::tools::{INSTRUCTIONS, MCP_LIST};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longest time in which an agent must take a piece of an answer. It computes nothing that takes seconds.
const TAKE_LIMIT: Duration = Duration::from_secs(60);

/// Requests for summaries of one turn.
const SUMMARIES: usize = 16;

/// Longest id of a call by a model, in bytes.
const MAX_CALL_ID: usize = 512;

impl AgentActor {
    pub(in crate::session::agent) fn model_request(
        &mut self,
        request: ModelRequest,
        ctx: &mut Context<Self>,
    ) {
        let number = request.number;
        let work = &mut self.work;
        let is_sound = request.body.get().len() <= MAX_MODEL_REQUEST_BYTES
            && request.provider.len() <= MAX_EVENT_NAME * 4
            && !work.requests.contains_key(&number)
            && work.requests.len() < MAX_MODEL_REQUESTS;
        if !is_sound {
            return self.agent_broke("a request to a model beyond its limits", ctx);
        }

        // Each request costs money. So the agent may send requests only during a turn or a summary, and a limited
        // number after each message of a client.
        let agent = &self.services.daemon.config.agent;
        let most = (agent.max_turns.value + SUMMARIES) * (agent.retries.value.max(10) + 1);
        work.n_requests += 1;
        let is_meant = usize::try_from(work.n_requests).is_ok_and(|n| n <= most);
        if !is_meant || !(self.in_turn() || self.is_compacting) {
            return self.agent_broke("a request to a model without a turn", ctx);
        }

        let limit = agent.max_cost_usd_per_day.value.usd();
        if let Some(text) = self.services.spending.refusal(limit) {
            let part = ModelPart::Failed(ModelFailure { kind: ModelFailureKind::Budget, text });
            self.tell_agent(&ToAgent::Model { number, part }, ctx);
            return;
        }

        let work = &mut self.work;
        let open = OpenRequest {
            credits: Rc::new(Semaphore::new(MODEL_PIECES)),
            cancel: CancellationToken::new(),
        };
        let (credits, cancel) = (Rc::clone(&open.credits), open.cancel.clone());
        work.requests.insert(number, open);
        self.touch_agent();

        let (handle, generation) = (ctx.address(), self.child.generation);
        let services = Rc::clone(&self.services);
        // Ends with the answer, with the request's cancellation, or with the actor.
        actix::spawn(async move {
            let passing = async {
                // The user may have changed the address or the key since the agent started.
                services.models.catalog().await;
                let mut parts = services.models.request(request);
                while let Some(part) = parts.recv().await {
                    if matches!(part, ModelPart::Piece(_)) {
                        match credit(&credits).await {
                            Ok(Ok(permit)) => permit.forget(),
                            Ok(Err(_closed)) => return,
                            Err(_late) => {
                                // The session may have ended.
                                handle.send(AgentIsSlow { generation }).await.ok();
                                return;
                            }
                        }
                    }

                    let answer = ModelAnswer { generation, number, part };
                    if handle.send(answer).await.is_err() {
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

    pub(in crate::session::agent) fn model_taken(&mut self, number: u64) {
        if let Some(request) = self.work.requests.get(&number)
            && request.credits.available_permits() < MODEL_PIECES
        {
            request.credits.add_permits(1);
        }
    }

    pub(in crate::session::agent) fn agent_call(
        &mut self,
        call: AgentToolCall,
        ctx: &mut Context<Self>,
    ) {
        let number = call.number;
        let is_sound = call.tool_call_id.len() <= MAX_CALL_ID
            && call.shown_tool.len() <= MAX_EVENT_NAME * 4
            && call.arguments.len() <= MAX_ARGUMENTS_BYTES
            && !self.work.calls.contains_key(&number)
            && self.work.calls.len() < MAX_CALLS_PER_SESSION;
        if !is_sound {
            return self.agent_broke("a tool call beyond its limits", ctx);
        }

        let services = Rc::clone(&self.services);
        let Some(runner) = services.tool_runner.get() else {
            let done = AgentToolDone::failed(number, "The daemon is starting: try again");
            self.tell_agent(&ToAgent::ToolDone(Box::new(done)), ctx);
            return;
        };

        let cancel = CancellationToken::new();
        self.work.calls.insert(number, cancel.clone());
        self.touch_agent();

        let (is_loading, is_listing) = (call.tool == INSTRUCTIONS, call.tool == MCP_LIST);
        let running = runner.run(AgentCall { session: self.session.id.clone(), call, cancel });
        let owner = self.owner.clone();
        let running = async move {
            if !is_loading {
                return running.await;
            }

            // The session's worker cannot read the user's own files.
            let (done, own) = tokio::join!(running, instructions::of_user(services, owner));
            AgentToolDone { user_instructions: own, ..done }
        };

        let generation = self.child.generation;
        ctx.spawn(running.into_actor(self).map(move |done, handle, ctx| {
            if handle.child.generation == generation {
                handle.work.calls.remove(&number);
                if is_listing {
                    handle.note_mcp_problems(&done);
                }
                if !handle.tell_agent(&ToAgent::ToolDone(Box::new(done)), ctx) {
                    let done = AgentToolDone::failed(number, "The result is too long");
                    handle.tell_agent(&ToAgent::ToolDone(Box::new(done)), ctx);
                }
            }
        }));
    }

    /// Returns false if the frame is too long. An agent that does not take frames is killed.
    fn tell_agent(&mut self, frame: &ToAgent, ctx: &mut Context<Self>) -> bool {
        if self.end.is_some() {
            return true;
        }
        match self.child.try_send(frame) {
            // A closed channel is the end of the process, which is handled elsewhere.
            Ok(()) | Err(SendError::Closed) => true,
            Err(SendError::TooLong) => false,
            // The agent is killed, because an answer without one of its parts would be another answer.
            Err(SendError::Full) => {
                self.agent_broke("it does not take frames", ctx);
                true
            }
        }
    }
}

/// Report that the process of this generation has not taken a piece of an answer within [`TAKE_LIMIT`].
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct AgentIsSlow {
    generation: u64,
}

impl Handler<AgentIsSlow> for AgentActor {
    type Result = ();

    fn handle(&mut self, AgentIsSlow { generation }: AgentIsSlow, ctx: &mut Self::Context) {
        if self.child.generation == generation {
            self.agent_broke("a piece of an answer was not taken", ctx);
        }
    }
}

/// A part of a model's answer, for the process that sent the request.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct ModelAnswer {
    generation: u64,
    number: u64,
    part: ModelPart,
}

impl Handler<ModelAnswer> for AgentActor {
    type Result = ();

    fn handle(&mut self, answer: ModelAnswer, ctx: &mut Self::Context) {
        let ModelAnswer { generation, number, part } = answer;
        if self.child.generation != generation || !self.work.requests.contains_key(&number) {
            return;
        }
        if matches!(part, ModelPart::Done {} | ModelPart::Failed(_)) {
            self.work.requests.remove(&number);
        }
        self.touch_agent();
        // A piece fits: see `MAX_PIECE_BYTES`.
        self.tell_agent(&ToAgent::Model { number, part }, ctx);
    }
}

/// Waits for the agent to take a piece, at most [`TAKE_LIMIT`].
async fn credit(credits: &Semaphore) -> Result<Result<SemaphorePermit<'_>, AcquireError>, Elapsed> {
    loop {
        let due = Instant::now() + TAKE_LIMIT;
        match timeout(TAKE_LIMIT, credits.acquire()).await {
            // The daemon was suspended, and perhaps the agent too.
            Err(_late) if STALL_THRESHOLD < due.elapsed() => {}
            taken => return taken,
        }
    }
}
