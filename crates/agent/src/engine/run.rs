//! A run: from a prompt to the end of the last turn that it causes.

use super::agent::QueueMode;
use super::incoming::Incoming;
use super::instructions::Instructions;
use super::model_names::is_same;
use super::run_state::{Answer, Loading, Phase, Run};
use super::{Agent, Effect};
use crate::message::{
    AssistantMessage, Block, Content, Message, StopReason, Usage, UserMessage, cost_text,
};
use crate::prompt;
use crate::providers::{self, RequestOptions};
use quackd_protocol::agent::{AgentToolCall, EventName};
use quackd_protocol::model::{EndReason, ModelInfo, Price};
use serde_json::json;
use std::collections::VecDeque;

/// Internal tool that returns the instructions for agents in the workspace.
pub(super) const INSTRUCTIONS: &str = quackd_protocol::tools::INSTRUCTIONS;

/// Internal tool that lists the tools of MCP servers.
pub(super) const MCP_LIST: &str = quackd_protocol::tools::MCP_LIST;

impl Agent {
    /// Starts a run with this message, and with messages that were queued while the agent was idle.
    pub(super) fn begin_run(&mut self, message: UserMessage) {
        // The last turn may have been cut by the end of the process.
        self.mark_interruption();
        let parent = self.transcript.leaf().map(str::to_owned);
        self.run = Some(Run::new(parent, self.schema.take()));

        self.agent_start();

        // Reported at the first run, so that a session that is only opened stays silent.
        if let Some(text) = self.setup.model_notice.take()
            && is_same(&self.model, &self.setup.models.default)
        {
            self.tell_user("models", &text);
        }

        self.plain_event(EventName::TurnStart);
        self.add_user(message);
        self.take_steering();

        // The files may have changed, and the user may be in another directory.
        let is_read = !self.setup.options.no_context_files;
        let instructions = is_read.then(|| self.next_call());
        let servers = self.servers.is_due.then(|| self.next_call());
        self.set_phase(Phase::Loading(Loading { instructions, servers }));

        let git = self.instructions.as_ref().and_then(|known| known.git.as_ref());
        let head = git.map(|git| git.head.clone()).unwrap_or_default();
        let calls = [(instructions, INSTRUCTIONS), (servers, MCP_LIST)];
        for (number, tool) in calls.into_iter().filter_map(|(n, tool)| Some((n?, tool))) {
            self.effects.push(Effect::Call(Box::new(AgentToolCall {
                number,
                tool: tool.to_owned(),
                arguments: json!({ "directory": self.directory, "head": head }).to_string(),
                shown_tool: String::new(),
                tool_call_id: String::new(),
                cwd: String::new(),
            })));
        }

        self.request_if_loaded();
    }

    pub(super) fn set_phase(&mut self, phase: Phase) {
        if let Some(run) = &mut self.run {
            run.phase = phase;
        }
    }

    fn add_user(&mut self, message: UserMessage) {
        self.add_message(Message::User(message));
    }

    /// Publishes and records a message that exists as a whole.
    pub(super) fn add_message(&mut self, message: Message) {
        self.message_start(&message);
        self.finish_message(message);
    }

    /// Records a message, then publishes its end.
    pub(super) fn finish_message(&mut self, message: Message) {
        self.record(message.clone());
        self.message_end(&message);
        if let Some(run) = &mut self.run {
            run.messages.push(message);
        }
    }

    /// Adds queued messages of steering to the conversation. Returns true if there were any.
    fn take_steering(&mut self) -> bool {
        let taken = take(&mut self.steering, self.steering_mode);
        self.add_taken(taken)
    }

    fn take_follow_up(&mut self) -> bool {
        let taken = take(&mut self.follow_up, self.follow_up_mode);
        self.add_taken(taken)
    }

    fn add_taken(&mut self, taken: Vec<UserMessage>) -> bool {
        if taken.is_empty() {
            return false;
        }
        self.queue_event();
        taken.into_iter().for_each(|message| self.add_user(message));
        true
    }

    fn system_prompt(&self) -> String {
        let none = Instructions::default();
        let known = self.instructions.as_ref().unwrap_or(&none);
        let facts: Vec<String> = self.setup.facts.iter().cloned().chain(known.facts()).collect();
        let instructions = prompt::instructions(&known.own, &known.project);
        prompt::system(
            known.workspace.as_ref().unwrap_or(&self.setup.workspace),
            &self.directory,
            &facts,
            &self.setup.options,
            &instructions,
        )
    }

    /// Sends the conversation to the model.
    pub(super) fn request(&mut self) {
        let max_turns = self.setup.settings.max_turns;
        let Some(run) = &mut self.run else { return };

        run.reason = None;
        if run.turns >= max_turns {
            run.reason = Some(EndReason::MaxTurns);
            return self.end_with_error(format!(
                "Stopped after {max_turns} requests to the model in one run (agent.max_turns)"
            ));
        }

        run.turns += 1;
        if let Some(text) = self.over_budget() {
            // Set again, because the check has borrowed the agent in between.
            if let Some(run) = &mut self.run {
                run.reason = Some(EndReason::Budget);
            }
            return self.end_with_error(text);
        }

        let system = self.system_prompt();
        let options = RequestOptions {
            system: &system,
            tools: if self.model.has_small_window() {
                &self.setup.small_tools
            } else {
                &self.setup.tools
            },
            thinking: self.thinking,
            max_tokens: None,
            cache_key: &self.transcript.header().id,
            schema: self.run.as_ref().and_then(|run| run.schema.as_ref()),
        };

        let made = providers::request(&self.model, &self.transcript.messages(), &options);
        let number = self.next_request();
        let incoming = Incoming::new(number, &self.model);
        let answer = Answer { incoming, is_started: false, began_ms: self.now.unix_ms };

        self.set_phase(Phase::Answering(Box::new(answer)));
        if let Err(error) = self.send(number, made) {
            self.answer_failed(error);
        }
    }

    /// Returns the reason for which no further request may be sent: its cost has a limit, which is reached or cannot hold.
    pub(super) fn over_budget(&self) -> Option<String> {
        let settings = &self.setup.settings;
        let limit = settings.max_cost_usd;
        let key = match (0.0 < limit, settings.has_daily_limit) {
            (false, false) => return None,
            (true, _) => "agent.max_cost_usd",
            (false, true) => "agent.max_cost_usd_per_day",
        };

        let model = &self.model;
        if model.price == Price::Unknown {
            return Some(format!(
                "Not sent: the price of {}/{} is not known, so that {key} cannot hold. Give it a `cost` in \
                 ~/.pi/agent/models.json, or remove the limit: `quack config unset {key}`, then `quack restart`",
                model.provider, model.id
            ));
        }

        let spent = self.run.as_ref().map(|run| run.cost)?;
        if spent.unknown {
            return Some(format!(
                "Stopped: {} has not sent the cost of an answer, so that {key} cannot hold",
                model.provider
            ));
        }

        (0.0 < limit && limit <= spent.total).then(|| {
            let (spent, limit) = (cost_text(spent.total, false), cost_text(limit, false));
            format!("Stopped: this prompt has cost {spent} of {limit} ({key})")
        })
    }

    /// Continues after an answer without an error: with its calls, with queued messages, or not at all.
    pub(super) fn after_answer(&mut self, message: AssistantMessage) {
        let calls: Vec<_> = message.tool_calls().cloned().collect();
        if !calls.is_empty() {
            return self.run_calls(message, calls);
        }
        self.turn_end(&message, &[]);
        self.next_turn(false);
    }

    /// Starts the next turn, if the model has to answer to tool results or queued messages.
    pub(super) fn next_turn(&mut self, has_results: bool) {
        let has_queued = !self.steering.is_empty() || (!has_results && !self.follow_up.is_empty());
        if !has_results && !has_queued {
            return self.end_run();
        }
        if has_results && self.compact_within_run() {
            return;
        }
        self.continue_turns(has_results);
    }

    /// Sends the next request of a run.
    pub(super) fn continue_turns(&mut self, has_results: bool) {
        self.plain_event(EventName::TurnStart);
        if !self.take_steering() && !has_results {
            self.take_follow_up();
        }
        self.request();
    }

    /// Ends the run with an answer that exists only to show an error.
    pub(super) fn end_with_error(&mut self, error: String) {
        self.end_with(StopReason::Error, error);
    }

    /// Ends a run that was aborted between two answers.
    pub(super) fn end_aborted(&mut self) {
        self.end_with(StopReason::Aborted, "Request was aborted".to_owned());
    }

    fn end_with(&mut self, stop_reason: StopReason, error: String) {
        let message = empty_message(&self.model, stop_reason, Some(error), self.now.unix_ms);
        self.add_message(Message::Assistant(message.clone()));
        self.turn_end(&message, &[]);
        self.end_run();
    }

    /// Ends the run, and starts what waited for it.
    pub(super) fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        // Stops the wait for another attempt.
        self.effects.push(Effect::Timer(None));
        self.agent_end(&run.messages, run.reason);

        self.replace_missing_model();
        // No other message may be between a call and its result, so these waited.
        for message in std::mem::take(&mut self.shell_messages) {
            self.record(message);
        }

        self.answer_aborts();
        let is_failed = matches!(
            run.messages.last(),
            Some(Message::Assistant(AssistantMessage {
                stop_reason: StopReason::Error | StopReason::Aborted,
                ..
            }))
        );

        // After a failure, a summary would fail as well.
        if is_failed || !self.compact_if_full() {
            self.settle(run.is_aborted);
        }
    }

    /// Reports that the agent is idle, unless a prompt waits.
    pub(super) fn settle(&mut self, is_aborted: bool) {
        let kind = EventName::AgentSettled;
        self.event(kind, &json!({ "type": kind, "aborted": is_aborted }));
        self.begin_next();
    }

    /// Starts a run with a prompt that waited for a summary, or else with a message that was queued during it.
    pub(super) fn begin_next(&mut self) {
        let was_queued = std::mem::take(&mut self.was_queued_in_summary);
        if let Some(next) = self.waiting.pop_front() {
            return self.begin_run(next);
        }

        let queued = [&mut self.steering, &mut self.follow_up].into_iter();
        let next = queued.filter(|_| was_queued).find_map(VecDeque::pop_front);
        if let Some(next) = next {
            self.queue_event();
            self.begin_run(next);
        }
    }

    pub(super) fn answer_aborts(&mut self) {
        for number in std::mem::take(&mut self.aborts) {
            self.done(number);
        }
    }

    /// Marks a turn that ended with its process: calls get error results, and a missing answer a message that says so.
    fn mark_interruption(&mut self) {
        let Some(interrupted) = self.transcript.interrupted() else { return };
        for call in interrupted.calls {
            let text = "The agent ended before this call did. It is not known whether the call had an effect.";
            self.record(Message::ToolResult(crate::message::ToolResultMessage {
                tool_call_id: call.id,
                tool_name: call.name,
                content: vec![Block::text(text)],
                details: None,
                is_error: true,
                timestamp: self.now.unix_ms,
            }));
        }

        let error = "Interrupted: the agent's process ended during this turn".to_owned();
        let message =
            empty_message(&self.model, StopReason::Aborted, Some(error), self.now.unix_ms);
        self.record(Message::Assistant(message));
    }
}

fn take(queue: &mut VecDeque<UserMessage>, mode: QueueMode) -> Vec<UserMessage> {
    let n = match mode {
        QueueMode::All => queue.len(),
        QueueMode::OneAtATime => queue.len().min(1),
    };
    queue.drain(..n).collect()
}

/// Creates a message of the model without content.
pub(super) fn empty_message(
    model: &ModelInfo,
    stop_reason: StopReason,
    error_message: Option<String>,
    timestamp: i64,
) -> AssistantMessage {
    AssistantMessage {
        content: Vec::new(),
        api: model.api.name().to_owned(),
        provider: model.provider.clone(),
        model: model.id.clone(),
        usage: Usage::default(),
        stop_reason,
        raw_stop_reason: None,
        error_message,
        timestamp,
        response_id: None,
        duration_ms: None,
        images_refused: false,
    }
}

/// Creates a message of the user.
pub(super) fn user_message(text: &str, images: Vec<Block>, unix_ms: i64) -> UserMessage {
    let mut blocks = vec![Block::text(text)];
    blocks.extend(images);
    UserMessage { content: Content::Blocks(blocks), timestamp: unix_ms }
}
