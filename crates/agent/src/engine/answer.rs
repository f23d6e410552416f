//! One answer of the model: its stream, its end, and further attempts after a failure.

use super::incoming::{Arrived, Incoming};
use super::model_names::is_same;
use super::run::empty_message;
use super::run_state::{Answer, Phase};
use super::{Agent, Effect, Part};
use crate::message::{AssistantMessage, Message, StopReason};
use crate::providers::{Delta, ErrorKind, ProviderError, StreamEnd, retry_delay, stated_window};
use quackd_protocol::agent::EventName;
use quackd_protocol::model::{EndReason, ModelFailureKind, ModelHead, ModelInfo};
use serde_json::json;

impl Agent {
    /// Takes a part of the answer that the run waits for.
    pub(super) fn on_answer(&mut self, part: Part) {
        let Some(Phase::Answering(answer)) = self.run.as_mut().map(|run| &mut run.phase) else {
            return;
        };
        let (number, has_head) = (answer.incoming.number, answer.incoming.head.is_some());

        match answer.incoming.take(part) {
            Arrived::Deltas(deltas) => self.publish(&deltas),
            Arrived::Last(deltas) => {
                self.publish(&deltas);
                // The content of the stream has ended, so the rest of the connection is not needed.
                self.effects.push(Effect::CancelRequest { number });
                self.end_answer(StreamEnd::Complete);
            }
            Arrived::End(how) => self.end_answer(how),
            Arrived::Refused(error) => self.answer_failed(error),
            Arrived::Missing(failure) => {
                let kind = self.kind_of(failure.kind, has_head);
                self.answer_failed(ProviderError { text: failure.text, kind });
            }
        }
    }

    /// Decides whether a request is sent again that got no byte of an answer. A provider that has received it may bill
    /// it. A connection that broke before the head was often closed by the provider before the request came, so one
    /// further attempt is made.
    fn kind_of(&mut self, failure: ModelFailureKind, has_head: bool) -> ErrorKind {
        let Some(run) = &mut self.run else { return ErrorKind::Fatal };
        let may_retry = match failure {
            ModelFailureKind::NotConnected | ModelFailureKind::Busy => true,
            ModelFailureKind::Broken => !has_head && !std::mem::replace(&mut run.was_broken, true),
            ModelFailureKind::Budget => return ErrorKind::Final(EndReason::Budget),
            ModelFailureKind::Untrusted
            | ModelFailureKind::Idle
            | ModelFailureKind::NotConfigured
            | ModelFailureKind::Refused => false,
        };
        if may_retry { ErrorKind::Retryable } else { ErrorKind::Fatal }
    }

    fn publish(&mut self, deltas: &[Delta]) {
        for delta in deltas {
            self.start_answer();
            self.delta(delta);
        }
    }

    /// Announces the message before its first delta.
    fn start_answer(&mut self) {
        let Some(Phase::Answering(answer)) = self.run.as_mut().map(|run| &mut run.phase) else {
            return;
        };
        if std::mem::replace(&mut answer.is_started, true) {
            return;
        }
        let model = answer.incoming.stream.model();
        let message = empty_message(model, StopReason::Stop, None, self.now.unix_ms);
        self.message_start(&Message::Assistant(message));
    }

    /// Ends the stream of the answer, as `how` says.
    pub(super) fn end_answer(&mut self, how: StreamEnd) {
        let Some(Phase::Answering(answer)) =
            self.run.as_mut().map(|run| std::mem::replace(&mut run.phase, Phase::Waiting))
        else {
            return;
        };

        let Answer { incoming, is_started, began_ms } = *answer;
        let is_aborted = matches!(how, StreamEnd::Aborted);
        let (model, head) = (incoming.stream.model().clone(), incoming.head.clone());
        let empty = |stop| empty_message(&model, stop, None, self.now.unix_ms);
        let begun = Message::Assistant(empty(StopReason::Stop));

        let (deltas, finished) = incoming.stream.finish(how);

        // A client gets the start of a message before its deltas, so the start has no content.
        let mut message = AssistantMessage {
            content: finished.content,
            usage: finished.usage,
            response_id: finished.response_id,
            duration_ms: u64::try_from(self.now.unix_ms - began_ms).ok(),
            raw_stop_reason: finished.raw_stop_reason,
            ..empty(finished.stop_reason)
        };

        let mut is_announced = is_started;
        for delta in &deltas {
            if !is_announced && !matches!(delta, Delta::Usage(_)) {
                is_announced = true;
                self.message_start(&begun);
            }
            self.delta(delta);
        }

        let mut error = match (is_aborted, finished.error) {
            (true, _) => Some(ProviderError {
                text: "Request was aborted".to_owned(),
                kind: ErrorKind::Fatal,
            }),
            // A whole answer that filled the context. The summary follows after the run.
            (false, Some(error))
                if error.kind == ErrorKind::Overflow
                    && finished.stop_reason == StopReason::Stop =>
            {
                None
            }
            (false, error) => error,
        };

        message.images_refused =
            error.as_mut().is_some_and(|error| self.leave_out_images(error, &model));
        message.error_message = error.as_ref().map(|error| error.text.clone());
        let whole = Message::Assistant(message.clone());
        // An answer without any delta was not announced yet.
        if !is_announced {
            self.message_start(&whole);
        }
        self.finish_message(whole);
        self.record_change_after(&model);

        match error {
            Some(_) if is_aborted => {
                self.turn_end(&message, &[]);
                self.end_run();
            }
            Some(error) => {
                let is_billed = finished.any_bytes && !finished.has_refused;
                self.after_failure(&message, error, head, is_billed);
            }
            None => {
                self.end_retry(None);
                let reason = match message.stop_reason {
                    StopReason::Length => Some(EndReason::Length),
                    _ => finished.is_refusal.then_some(EndReason::Refusal),
                };
                if let Some(run) = &mut self.run {
                    run.reason = reason;
                }
                self.after_answer(message);
            }
        }
    }

    /// Ends an answer that never began.
    pub(super) fn answer_failed(&mut self, mut error: ProviderError) {
        let Some(Phase::Answering(answer)) =
            self.run.as_mut().map(|run| std::mem::replace(&mut run.phase, Phase::Waiting))
        else {
            return;
        };

        let Incoming { stream, head, has_bytes, .. } = answer.incoming;
        let images_refused = self.leave_out_images(&mut error, stream.model());
        let (text, now) = (error.text.clone(), self.now.unix_ms);

        let mut message = empty_message(stream.model(), StopReason::Error, Some(text), now);
        message.images_refused = images_refused;
        message.duration_ms = u64::try_from(now - answer.began_ms).ok();

        // Recorded as well, so that the conversation shows the failure.
        self.add_message(Message::Assistant(message.clone()));
        self.record_change_after(stream.model());
        self.after_failure(&message, error, head, has_bytes);
    }

    /// Records the current model again if the last answer came from another one, which a reader of the file would take
    /// for the current one.
    fn record_change_after(&mut self, answered: &ModelInfo) {
        self.is_model_recorded &= is_same(answered, &self.model);
        self.record_model();
    }

    /// Decides what follows a failed answer: a summary, another attempt, or the end.
    fn after_failure(
        &mut self,
        message: &AssistantMessage,
        error: ProviderError,
        head: Option<ModelHead>,
        has_bytes: bool,
    ) {
        self.turn_end(message, &[]);

        // A changed request is no attempt: it does not count, and it starts without a delay.
        let changes_request = match error.kind {
            ErrorKind::Overflow => self.learn_window(&error.text),
            ErrorKind::Images => !self.has_own_image(),
            _ => false,
        };
        if changes_request {
            self.agent_start();
            self.plain_event(EventName::TurnStart);
            return self.request();
        }

        let settings = &self.setup.settings;
        let (max_retries, base, longest) =
            (settings.max_retries, settings.base_delay_ms, settings.max_delay_ms);
        let (auto_retry, may_compact) = (self.auto_retry, self.may_compact());
        let Some(run) = &mut self.run else { return };

        if let ErrorKind::Final(reason) = error.kind {
            run.reason = Some(reason);
        }

        if error.kind == ErrorKind::Overflow && may_compact && !run.was_compacted {
            run.was_compacted = true;
            run.phase = Phase::Compacting;
            return self.compact_overflow();
        }

        let head = head.unwrap_or_default();
        let stated = match error.kind {
            ErrorKind::Waits(delay) => Some(delay),
            _ => None,
        };

        let passes = error.kind == ErrorKind::Retryable || stated.is_some();
        let may_retry = passes && head.should_retry != Some(false);

        // A provider bills what it has sent. The user decides whether to pay for it twice.
        if !auto_retry || !may_retry || has_bytes {
            self.end_retry(Some(&error.text));
            return self.end_run();
        }

        // Doubles with each attempt. The limit of the shift avoids an overflow.
        let doubled = base.saturating_mul(1 << run.attempt.min(20));
        let stated_ms = head.retry_after_ms.or(stated).or_else(|| retry_delay(&error.text));
        let delay_ms = stated_ms.unwrap_or(0).max(doubled.min(longest));
        if run.attempt >= max_retries || longest < delay_ms {
            self.end_retry(Some(&error.text));
            return self.end_run();
        }

        run.attempt += 1;
        let (attempt, kind) = (run.attempt, EventName::AutoRetryStart);
        self.event(
            kind,
            &json!({
                "type": kind, "attempt": attempt, "maxAttempts": max_retries, "delayMs": delay_ms,
                "errorMessage": error.text,
            }),
        );
        self.effects.push(Effect::Timer(Some(delay_ms)));
    }

    /// Takes over the window that a server has stated, and a limit of the answer that fits into it. Returns true if the same
    /// request may succeed with it: the defaults for unknown models are larger than many local servers allow.
    fn learn_window(&mut self, text: &str) -> bool {
        /// An answer below this size is of no use.
        const LEAST: u64 = 256;
        let Some((window, input)) = stated_window(text) else { return false };

        let room = input.map_or(window / 4, |input| window.saturating_sub(input));
        // The server counts the input in its own way, and the input grows.
        let limit = room / 10 * 9;
        if limit < LEAST || self.model.max_tokens <= limit {
            return false;
        }

        self.model.max_tokens = limit;
        self.model.context_window = self.model.context_window.min(window);
        true
    }

    /// Reports the end of further attempts, if there were any.
    fn end_retry(&mut self, error: Option<&str>) {
        let Some(run) = &mut self.run else { return };
        (run.was_broken, run.was_compacted) = (false, false);
        let attempt = std::mem::take(&mut run.attempt);
        if attempt == 0 {
            return;
        }

        let kind = EventName::AutoRetryEnd;
        let mut data = json!({ "type": kind, "success": error.is_none(), "attempt": attempt });
        if let (Some(error), Some(data)) = (error, data.as_object_mut()) {
            data.insert("finalError".to_owned(), error.into());
        }
        self.event(kind, &data);
    }

    /// Sends the request again, if the run waits for this.
    pub(super) fn retry_now(&mut self) {
        if self.is_retrying() {
            self.agent_start();
            self.plain_event(EventName::TurnStart);
            self.request();
        }
    }

    /// Whether the run waits for the time of another attempt.
    pub(super) fn is_retrying(&self) -> bool {
        self.run.as_ref().is_some_and(|run| matches!(run.phase, Phase::Waiting) && run.attempt != 0)
    }

    /// Ends the wait for another attempt.
    pub(super) fn give_up_retry(&mut self) {
        if self.is_retrying() {
            self.end_retry(Some("Retry cancelled"));
            self.end_run();
        }
    }
}
