//! Summaries of a conversation that became too long: after or within a run, because of an overflow,
//! or on demand.

use super::compaction_state::{Compaction, Reason};
use super::incoming::{Arrived, Incoming};
use super::run_state::{Phase, Run};
use super::{Agent, Effect, Part};
use crate::compaction::{self, CompactionError, Plan, Prompt};
use crate::message::{Message, StopReason, Usage};
use crate::providers::{self, RequestOptions, StreamEnd};
use crate::transcript::EntryKind;
use quackd_protocol::agent::EventName;
use serde_json::{Value, json};

/// Failures of automatic summaries in a row after which the agent starts no further one: each may cost as much as the
/// longest request.
const MAX_FAILED: u32 = 2;

impl Agent {
    /// Makes a summary because the user asked for it.
    pub(super) fn compact_by_hand(&mut self, number: u64, instructions: Option<&str>) {
        self.start_compaction(Reason::Manual(number), instructions);
    }

    /// Whether the agent may make a summary without a command.
    pub(super) fn may_compact(&self) -> bool {
        self.auto_compaction && self.failed_summaries < MAX_FAILED
    }

    /// Makes a summary if the conversation is close to the limit. Returns false, without an event, if it is not or if
    /// there is nothing to summarize. Otherwise the end of the summary, which may have come already, calls
    /// [`Self::settle`].
    pub(super) fn compact_if_full(&mut self) -> bool {
        self.compact_full(Reason::Threshold)
    }

    /// Makes a summary between two requests of a run if the conversation is close to the limit. Returns false, without an
    /// event, if it is not, if there is nothing to summarize, or if a summary did not help before the last request.
    pub(super) fn compact_within_run(&mut self) -> bool {
        let has_progress = self.run.as_ref().is_some_and(Run::may_summarize);
        has_progress && self.compact_full(Reason::WithinRun)
    }

    fn compact_full(&mut self, reason: Reason) -> bool {
        if !self.may_compact() {
            return false;
        }

        let tokens = compaction::estimate_tokens(&self.transcript.messages());
        let reserve = self.setup.settings.reserve_tokens;
        if !compaction::should_compact(tokens, self.model.context_window, reserve) {
            return false;
        }

        // A provider that counts far more tokens than the texts seem to have leaves room for the newest message only.
        let plan = self.compaction_plan().or_else(|_| compaction::plan(&self.transcript, 1));
        let Ok(plan) = plan else { return false };

        if reason == Reason::WithinRun {
            self.set_phase(Phase::Compacting);
        }
        self.event_start(reason);
        self.summarize(reason, plan, None);
        true
    }

    /// Makes a summary because the model refused the conversation. The run continues afterwards.
    pub(super) fn compact_overflow(&mut self) {
        self.start_compaction(Reason::Overflow, None);
    }

    fn start_compaction(&mut self, reason: Reason, instructions: Option<&str>) {
        self.event_start(reason);
        match self.compaction_plan() {
            Ok(plan) => self.summarize(reason, plan, instructions),
            // A summary never replaces the newest messages.
            Err(_) if reason == Reason::Overflow => {
                let text = if self.leave_refused_prompt() {
                    "this prompt is too large for the model and was left out of the conversation; shorten it, or \
                         choose a model that reads more"
                } else {
                    "the newest messages alone are too large for the model; `quack fork` continues before them, \
                         `quack new` starts anew"
                };
                self.compaction_failed(reason, text.to_owned(), false);
            }
            Err(error) => self.compaction_failed(reason, error.to_string(), false),
        }
    }

    /// Takes the prompt of this run out of the conversation if the model has not answered to any part of it. Otherwise
    /// each later prompt would be refused as well.
    fn leave_refused_prompt(&mut self) -> bool {
        let is_refusal = |message: &Message| match message {
            Message::Assistant(answer) => answer.stop_reason == StopReason::Error,
            Message::User(_) => true,
            _ => false,
        };
        let Some(run) = self.run.as_ref().filter(|run| run.messages.iter().all(is_refusal)) else {
            return false;
        };

        let tokens: u64 = run.messages.iter().map(compaction::message_tokens).sum();
        let parent = run.parent.clone();
        let reason = format!(
            "The user sent a prompt of about {tokens} tokens. It was too large for the model, which has not seen it."
        );
        self.leave_branch(parent.as_deref(), reason);
        true
    }

    fn compaction_plan(&self) -> Result<Plan, CompactionError> {
        let configured = self.setup.settings.keep_recent_tokens;
        let keep = compaction::keep_recent_tokens(configured, self.model.context_window);
        compaction::plan(&self.transcript, keep)
    }

    fn summarize(&mut self, reason: Reason, plan: Plan, instructions: Option<&str>) {
        let prompts = compaction::summary_prompts(&plan, instructions);
        let compaction = Compaction {
            reason,
            plan,
            prompts,
            is_history: true,
            history: None,
            turn_prefix: None,
            usage: Usage::default(),
            incoming: None,
            is_billed: false,
        };

        self.compaction = Some(compaction);
        self.next_summary();
    }

    fn event_start(&mut self, reason: Reason) {
        let kind = EventName::AutoCompactionStart;
        self.event(kind, &json!({ "type": kind, "reason": reason.name() }));
    }

    /// Sends the next prompt, or records the summary.
    fn next_summary(&mut self) {
        if let Some(text) = self.over_budget() {
            return self.summary_failed(text);
        }

        let number = self.next_request();
        let Some(compaction) = &mut self.compaction else { return };
        let history = compaction.prompts.history.take();
        compaction.is_history = history.is_some();

        let prompt: Option<Prompt> = history.or_else(|| compaction.prompts.turn_prefix.take());
        let Some(prompt) = prompt else { return self.finish_compaction() };
        compaction.incoming = Some(Incoming::new(number, &self.model));

        let reserve = self.setup.settings.reserve_tokens;
        let options = RequestOptions {
            system: prompt.system,
            tools: &[],
            thinking: self.thinking,
            max_tokens: Some(prompt.max_tokens(reserve).min(self.model.max_tokens)),
            cache_key: &self.transcript.header().id,
            schema: None,
        };

        let message = super::run::user_message(&prompt.user, Vec::new(), self.now.unix_ms);
        let made = providers::request(&self.model, &[Message::User(message)], &options);
        if self.send(number, made).is_err() {
            let text = "The conversation is longer than a request may be; start a new session";
            self.summary_failed(text.to_owned());
        }
    }

    /// Takes a part of the model's answer to a prompt for a summary.
    pub(super) fn on_summary(&mut self, part: Part) {
        let Some(compaction) = &mut self.compaction else { return };
        let Some(incoming) = &mut compaction.incoming else { return };
        let number = incoming.number;

        let arrived = incoming.take(part);
        // A summary that fails later may be billed as well.
        compaction.is_billed |= incoming.has_bytes;

        match arrived {
            Arrived::Deltas(_) => {}
            Arrived::Last(_) => {
                self.effects.push(Effect::CancelRequest { number });
                self.end_summary(StreamEnd::Complete);
            }
            Arrived::End(how) => self.end_summary(how),
            Arrived::Refused(error) => self.summary_failed(error.text),
            Arrived::Missing(failure) => self.summary_failed(failure.text),
        }
    }

    fn end_summary(&mut self, how: StreamEnd) {
        let Some(compaction) = &mut self.compaction else { return };
        let Some(incoming) = compaction.incoming.take() else { return };
        let (_, finished) = incoming.stream.finish(how);
        // Counted before the check: a summary that fails costs as well.
        compaction.usage += finished.usage;
        if let Some(error) = finished.error {
            return self.summary_failed(error.text);
        }

        let text = crate::message::text_of(&finished.content);
        if text.trim().is_empty() {
            return self.summary_failed("The model wrote no summary".to_owned());
        }

        if compaction.is_history {
            compaction.history = Some(text);
        } else {
            compaction.turn_prefix = Some(text);
        }
        self.next_summary();
    }

    fn finish_compaction(&mut self) {
        let Some(Compaction { reason, plan, history, turn_prefix, usage, .. }) =
            self.compaction.take()
        else {
            return;
        };

        self.failed_summaries = 0;
        let entry = plan.entry(history.as_deref(), turn_prefix.as_deref(), Some(usage));
        self.append(entry);
        let entry = self.transcript.entries().last().map(serde_json::to_value);
        let mut data = entry.and_then(Result::ok).unwrap_or_default();
        if let Some(data) = data.as_object_mut() {
            // Members of the event itself.
            data.retain(|name, _| !["type", "id", "parentId", "timestamp"].contains(&&**name));
        }

        let will_retry = reason == Reason::Overflow;
        let kind = EventName::AutoCompactionEnd;
        let name = reason.name();
        let event = json!({
            "type": kind, "reason": name, "result": data, "aborted": false, "willRetry": will_retry,
        });
        self.event(kind, &event);

        if let Reason::Manual(number) = reason {
            self.answer(number, Some(&data));
        }
        self.after_compaction(reason, true, false);
    }

    fn summary_failed(&mut self, mut error: String) {
        let Some(compaction) = self.compaction.take() else { return };
        let reason = compaction.reason;
        // Each automatic summary that was billed counts, so that a model that cannot summarize does
        // not cost more and more.
        if !matches!(reason, Reason::Manual(_)) && compaction.is_billed {
            self.failed_summaries += 1;
            if !self.may_compact() {
                error.push_str("; no further automatic summary is made; run `compact` to make one");
            }
        }

        self.record_usage(compaction);
        self.compaction_failed(reason, error, false);
    }

    /// Records what a summary without a result has cost.
    fn record_usage(&mut self, compaction: Compaction) {
        let Compaction { mut usage, incoming, .. } = compaction;
        if let Some(incoming) = incoming {
            usage += incoming.stream.finish(StreamEnd::Aborted).1.usage;
        }
        if usage.total_tokens != 0 {
            self.append(EntryKind::Usage { usage });
        }
    }

    /// Stops a summary.
    pub(super) fn abort_compaction(&mut self) {
        let Some(compaction) = self.compaction.take() else { return };
        let reason = compaction.reason;
        if let Some(Incoming { number, .. }) = compaction.incoming {
            self.effects.push(Effect::CancelRequest { number });
        }

        self.record_usage(compaction);
        self.compaction_failed(reason, "Compaction cancelled".to_owned(), true);
    }

    fn compaction_failed(&mut self, reason: Reason, error: String, is_aborted: bool) {
        let kind = EventName::AutoCompactionEnd;
        let name = reason.name();
        let text = if is_aborted { error.clone() } else { format!("Compaction failed: {error}") };
        let event = json!({
            "type": kind, "reason": name, "result": Value::Null, "aborted": is_aborted,
            "willRetry": false, "errorMessage": text,
        });
        self.event(kind, &event);

        if let Reason::Manual(number) = reason {
            self.refuse(number, error);
        }
        self.after_compaction(reason, false, is_aborted);
    }

    /// Continues with what waited for the summary.
    fn after_compaction(&mut self, reason: Reason, is_done: bool, is_aborted: bool) {
        match reason {
            Reason::Overflow if is_done && self.run.is_some() => {
                self.set_phase(Phase::Waiting);
                self.agent_start();
                self.plain_event(EventName::TurnStart);
                self.request();
            }
            Reason::Overflow => self.end_run(),
            Reason::WithinRun if is_aborted => {
                self.plain_event(EventName::TurnStart);
                self.end_aborted();
            }
            Reason::WithinRun => {
                if let Some(run) = &mut self.run {
                    // Without this, the next request would start another summary.
                    run.summarized();
                }
                self.set_phase(Phase::Waiting);
                self.continue_turns(true);
            }
            Reason::Threshold => self.settle(is_aborted),
            Reason::Manual(_) if self.run.is_none() => self.begin_next(),
            Reason::Manual(_) => {}
        }
    }
}
