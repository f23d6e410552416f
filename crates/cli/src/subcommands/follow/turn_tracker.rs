//! Decides when an awaited turn of Pi is over, and its outcome. Pure state machine: takes events, replies and the time,
//! returns the outcome. Used by [`super::session_view`] for `quack say`.

use crate::exit::CliError;
use quackd_client::ClientError;
use quackd_protocol::client::ErrorCode;
use quackd_protocol::model::EndReason;
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time for the remaining events of a failure to arrive.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Time for the remaining events to arrive after a refused prompt or an abort.
const AFTER_REFUSAL: Duration = Duration::from_millis(200);

/// Timeout for the end of a turn after Ctrl-C. The daemon kills a Pi that does not abort within 3 s.
const AFTER_INTERRUPT: Duration = Duration::from_secs(6);

/// Delay after Ctrl-C before the user is notified that the turn has not begun.
const NOTICE_DELAY: Duration = Duration::from_millis(300);

/// Delay and interval of the checks whether an accepted prompt began a turn. A command of an extension begins none.
const LOOK_AFTER: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time without events after which a prompt without a turn is done, the same as upstream's.
const QUIET_TIMEOUT: Duration = Duration::from_secs(10);

/// Outcome of a turn.
#[derive(Debug)]
pub(super) enum TurnOutcome {
    /// Pi completed the turn.
    Well,
    /// The turn failed for this reason, which the stream contains as well.
    Failed(String),
    /// The last answer is cut, empty, a refusal, or none, for this reason, which the stream contains as well.
    NoAnswer(String),
    /// The user aborted the turn.
    Interrupted,
    /// The user stopped waiting for the turn to begin. The text says that it still may.
    Left(String),
    /// The turn failed, and this error is the only report.
    Because(anyhow::Error),
}

/// State of a turn from its prompt to its end.
#[derive(Debug)]
pub(super) struct TurnTracker {
    /// The session as hints name it, quoted for a shell.
    session: String,
    deadline: Instant,
    /// Time when Pi accepted the prompt.
    accepted: Option<Instant>,
    /// Time of the last event.
    active: Instant,
    began: bool,
    failed: bool,
    busy: bool,
    /// Whether the model's last answer ended in an error or was aborted.
    ended_badly: bool,
    /// Whether the model's last answer was cut, empty, a refusal, or none.
    no_answer: bool,
    /// Reason of the failure: the first one of an error, else that of the last answer.
    reason: Option<String>,
    refused: Option<ClientError>,
    interrupted: bool,
    /// Whether the turn has begun after Ctrl-C and must be aborted.
    aborts: bool,
    /// Whether the prompt is done without a turn.
    quiet: bool,
    end_at: Option<Instant>,
    look_at: Option<Instant>,
    /// Time to notify the user after Ctrl-C.
    tell_at: Option<Instant>,
    /// Number of consecutive checks that found Pi idle.
    idle: u32,
}

impl TurnTracker {
    /// Creates a tracker for a prompt to `session`, whose turn must be over at `deadline`.
    pub(super) fn new(session: String, now: Instant, deadline: Instant) -> Self {
        Self {
            session,
            deadline,
            accepted: None,
            active: now,
            began: false,
            failed: false,
            busy: false,
            ended_badly: false,
            no_answer: false,
            reason: None,
            refused: None,
            interrupted: false,
            aborts: false,
            quiet: false,
            end_at: None,
            look_at: None,
            tell_at: None,
            idle: 0,
        }
    }

    /// Records that Pi accepted or refused the prompt.
    pub(super) fn answered(&mut self, answer: Result<(), ClientError>, now: Instant) {
        match answer {
            // After a lost connection the reply is unknown. If the daemon is still running, its events show the
            // outcome.
            Ok(()) | Err(ClientError::Disconnected) => {
                self.accepted.get_or_insert(now);
                self.look_at = Some(now + LOOK_AFTER);
            }
            Err(error) => {
                self.refused = Some(error);
                // Events that Pi sent before its exit may arrive together with the refusal.
                self.end_by(now + AFTER_REFUSAL);
            }
        }
    }

    /// Records that the running turn of another client has the prompt.
    pub(super) fn queued(&mut self, now: Instant) {
        self.quiet = true;
        self.end_by(now);
    }

    /// Handles an event of this turn, as selected by [`super::turn_filter`].
    pub(super) fn happened(&mut self, name: &str, data: &Value, now: Instant) {
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
        self.active = now;

        match name {
            "agent_start" => {
                self.aborts |= self.interrupted && !self.began;
                self.began = true;
                self.look_at = None;
            }
            "message_end" => {
                let message = data.get("message").unwrap_or(&Value::Null);
                let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
                if text("role") == "assistant" {
                    let reason = text("stopReason");
                    self.ended_badly = matches!(reason, "error" | "aborted");
                    self.no_answer = reason == "length";
                    let has_reason = self.ended_badly || self.no_answer;
                    self.reason = has_reason.then(|| match text("errorMessage") {
                        "" => format!("the answer ended with the reason \"{reason}\""),
                        error => error.to_owned(),
                    });
                }
            }
            // An end without a beginning belongs to an earlier turn of another client.
            "agent_end" if self.began => {
                self.failed |= self.ended_badly;
                // An unknown reason of a newer agent does not change the outcome.
                let reason =
                    data.get("reason").and_then(|reason| EndReason::deserialize(reason).ok());
                self.no_answer |= matches!(
                    reason,
                    Some(
                        EndReason::Length
                            | EndReason::Empty
                            | EndReason::Refusal
                            | EndReason::NotAnAnswer
                    )
                );
                self.end_by(now);
            }
            "prompt_error" => {
                self.failed = true;
                self.busy |= data.get("code") == Some(&json!(ErrorCode::PiBusy));
                self.reason.get_or_insert_with(|| text("error").to_owned());
                // If the turn has begun, its end follows.
                self.end_by(if self.began { now + AFTER_FAILURE } else { now });
            }
            // The turn continues if only the session's worker crashes.
            "extension_error" if text("event") == "process_death" && text("process") == "pi" => {
                self.failed = true;
                self.reason.get_or_insert_with(|| text("error").to_owned());
                self.end_by(now + AFTER_FAILURE);
            }
            "session_deleted" => {
                self.failed = true;
                // The deletion is reported also after another failure.
                self.reason = Some("the session was deleted".to_owned());
                self.end_by(now);
            }
            _ => {}
        }
    }

    /// Records a check whether Pi is busy, for a prompt that began no turn.
    pub(super) fn looked(&mut self, busy: Option<bool>, streams: Option<bool>, now: Instant) {
        self.idle = if busy == Some(false) { self.idle + 1 } else { 0 };
        let was_quiet = self.active.max(self.accepted.unwrap_or(now)) + QUIET_TIMEOUT <= now;

        if self.began {
            return;
        }

        // One check may fall between the acceptance of the prompt and the start of the turn.
        if 2 <= self.idle || was_quiet && streams != Some(true) {
            self.quiet = true;
            return self.end_by(now);
        }
        self.look_at = Some(now + if self.idle == 0 { LOOK_EVERY } else { LOOK_AFTER });
    }

    /// Handles Ctrl-C. Returns true if the turn must be aborted now. Before the turn begins, another client's turn may
    /// be running. A second Ctrl-C ends the wait at once.
    pub(super) fn interrupt(&mut self, now: Instant) -> bool {
        if self.interrupted {
            self.end_at = Some(now);
            return false;
        }

        self.interrupted = true;
        self.end_by(now + AFTER_INTERRUPT);
        // Abort only our own turn: the daemon aborts all work of the session, including that of other clients.
        if !self.began {
            self.tell_at = Some(now + NOTICE_DELAY);
        }
        self.began
    }

    /// Whether to notify the user now. Returns true at most once.
    pub(super) fn tells(&mut self, now: Instant) -> bool {
        let is_due = self.tell_at.take_if(|at| *at <= now).is_some();
        is_due && !self.began && !self.is_over(now)
    }

    /// Whether to abort the turn now that it has begun. Returns true at most once.
    pub(super) fn aborts(&mut self, now: Instant) -> bool {
        std::mem::take(&mut self.aborts) && !self.is_over(now)
    }

    /// Records that the daemon aborted the turn or had nothing to abort.
    pub(super) fn aborted(&mut self, now: Instant) {
        self.end_by(now + AFTER_REFUSAL);
    }

    /// Whether a check is due.
    pub(super) fn look_is_due(&mut self, now: Instant) -> bool {
        self.look_at.take_if(|at| *at <= now).is_some()
    }

    /// Returns the time of the next timer.
    pub(super) fn due(&self) -> Instant {
        [self.end_at, self.look_at, self.tell_at]
            .into_iter()
            .flatten()
            .fold(self.deadline, Instant::min)
    }

    /// Whether the turn is over, so that later events do not belong to it.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.end_at.is_some_and(|at| at <= now)
    }

    /// Returns the outcome if the turn is over.
    pub(super) fn end(&mut self, now: Instant) -> Option<TurnOutcome> {
        let is_over = self.is_over(now);
        if !is_over && now < self.deadline {
            return None;
        }

        let session = &self.session;
        let ways = format!(
            "`quack follow --session {session}` shows it, `quack abort --session {session}` ends it"
        );

        let is_settled = self.began || self.failed || self.quiet || self.refused.is_some();
        let may_begin = format!("the agent has not begun this turn and may still do so: {ways}");

        let because = |text: String| TurnOutcome::Because(CliError::busy(text).into());
        let is_busy = || because(format!("the agent is busy with something else: {ways}"));

        Some(match self.refused.take() {
            // Ctrl-C comes first: an aborted turn also ends badly.
            _ if self.interrupted && is_settled => TurnOutcome::Interrupted,
            _ if self.interrupted => TurnOutcome::Left(may_begin),
            Some(ClientError::Refused { code: Some(ErrorCode::PiBusy), .. }) => is_busy(),
            Some(ClientError::Timeout { .. }) => because(may_begin),
            Some(error) => TurnOutcome::Because(error.into()),
            None if self.busy => is_busy(),
            None if self.no_answer => {
                TurnOutcome::NoAnswer(self.reason("the model gave no whole answer"))
            }
            None if self.failed => TurnOutcome::Failed(self.reason("the turn failed")),
            None if !is_over && !self.began => because(may_begin),
            None if !is_over => because(format!("the turn is not over yet and continues: {ways}")),
            None => TurnOutcome::Well,
        })
    }

    fn end_by(&mut self, at: Instant) {
        self.end_at = Some(self.end_at.map_or(at, |known| known.min(at)));
    }

    /// Takes the reason of the failure, or returns `otherwise`.
    fn reason(&mut self, otherwise: &str) -> String {
        let reason = self.reason.take().filter(|reason| !reason.is_empty());
        reason.unwrap_or_else(|| otherwise.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{ExitCode, of_error};

    const SEC: Duration = Duration::from_secs(1);

    /// Runs these steps, 1 s apart. Returns the exit code and the number of steps until the end, or 0 if the turn
    /// continues.
    fn tracker(steps: &[(&str, Value)]) -> (u8, usize) {
        let mut now = Instant::now();
        let mut tracker = TurnTracker::new("s".to_owned(), now, now + 100 * SEC);
        for (n, (name, data)) in steps.iter().enumerate() {
            match *name {
                "ok" => tracker.answered(Ok(()), now),
                "refused" => {
                    let code = serde_json::from_value(data.clone()).unwrap();
                    let text = "refused".to_owned();
                    tracker.answered(Err(ClientError::Refused { text, code }), now);
                }
                "lost" => tracker.answered(Err(ClientError::Disconnected), now),
                "idle" => tracker.looked(Some(false), None, now),
                "busy" => tracker.looked(Some(true), data.as_bool(), now),
                "^C" => {
                    tracker.interrupt(now);
                }
                "aborted" => tracker.aborted(now),
                "later" => now += 10 * SEC,
                name => tracker.happened(name, data, now),
            }
            now += 2 * AFTER_FAILURE;
            if let Some(end) = tracker.end(now) {
                let code = match end {
                    TurnOutcome::Well => 0,
                    TurnOutcome::Failed(_) => 1,
                    TurnOutcome::NoAnswer(_) => 5,
                    TurnOutcome::Interrupted => 130,
                    TurnOutcome::Left(_) => 131,
                    TurnOutcome::Because(error) => of_error(&error).code(),
                };
                return (code, n + 1);
            }
        }
        (255, 0)
    }

    fn step(name: &'static str) -> (&'static str, Value) {
        (name, Value::Null)
    }

    fn message(reason: &str) -> (&'static str, Value) {
        ("message_end", json!({"message": {"role": "assistant", "stopReason": reason}}))
    }

    fn ended(reason: &str) -> (&'static str, Value) {
        ("agent_end", json!({ "reason": reason }))
    }

    fn failed(code: Value) -> (&'static str, Value) {
        ("prompt_error", json!({"error": "no", "code": code}))
    }

    fn death(process: &str) -> (&'static str, Value) {
        ("extension_error", json!({"event": "process_death", "process": process}))
    }

    #[test]
    fn a_turn_ends_with_its_end_and_not_with_another_ones() {
        let (start, end, ok) = (step("agent_start"), step("agent_end"), step("ok"));
        for (steps, expected) in [
            (vec![ok.clone(), start.clone(), message("stop"), end.clone()], (0, 4)),
            (vec![start.clone(), end.clone()], (0, 2)),
            (vec![end.clone(), ok.clone(), start.clone(), end.clone()], (0, 4)),
            (vec![ok.clone(), start.clone(), message("error"), end.clone()], (1, 4)),
            (vec![start.clone(), message("error"), message("stop"), end.clone()], (0, 4)),
            (vec![ok.clone(), start.clone(), message("aborted"), end.clone()], (1, 4)),
            (vec![ok.clone(), start.clone()], (255, 0)),
            (vec![step("lost"), start.clone(), end.clone()], (0, 3)),
            (vec![ok.clone(), start.clone(), message("length"), end.clone()], (5, 4)),
            (vec![ok.clone(), start.clone(), message("error"), ended("empty")], (5, 4)),
            (vec![ok.clone(), start.clone(), message("stop"), ended("refusal")], (5, 4)),
            (vec![ok.clone(), start.clone(), message("error"), ended("budget")], (1, 4)),
            (vec![ok.clone(), start.clone(), message("stop"), ended("a_newer_one")], (0, 4)),
            (vec![ok.clone(), failed(Value::Null)], (1, 2)),
            (vec![ok.clone(), start.clone(), failed(Value::Null)], (1, 3)),
            (vec![ok.clone(), start.clone(), failed(json!("pi_busy")), end], (4, 3)),
            (vec![ok.clone(), failed(json!("pi_busy"))], (4, 2)),
            (vec![ok.clone(), start.clone(), death("pi")], (1, 3)),
            (vec![ok.clone(), start.clone(), death("worker")], (255, 0)),
            (vec![ok, start, step("session_deleted")], (1, 3)),
        ] {
            assert_eq!(tracker(&steps), expected, "{steps:?}");
        }
    }

    #[test]
    fn a_refusal_says_whether_it_is_worth_trying_again() {
        for (code, exit) in [
            (Value::Null, 1),
            (json!("a_newer_one"), 1),
            (json!("session_not_found"), 1),
            (json!("pi_busy"), 4),
            (json!("busy"), 4),
        ] {
            assert_eq!(tracker(&[("refused", code.clone())]), (exit, 1), "{code}");
        }
    }

    #[test]
    fn what_begins_no_turn_ends_when_pi_is_idle_or_quiet() {
        let busy = |streams: bool| ("busy", json!(streams));
        for (steps, expected) in [
            (vec![step("ok"), step("idle"), step("idle")], (0, 3)),
            (vec![step("ok"), step("idle"), busy(false), step("idle")], (255, 0)),
            (vec![step("ok"), step("agent_start"), step("idle"), step("idle")], (255, 0)),
            (vec![step("ok"), step("later"), busy(false)], (0, 3)),
            (vec![step("ok"), step("later"), busy(true)], (255, 0)),
            (vec![step("ok"), step("later"), step("tool_execution_start"), busy(false)], (255, 0)),
        ] {
            assert_eq!(tracker(&steps), expected, "{steps:?}");
        }
    }

    #[test]
    fn ctrl_c_waits_for_the_end_and_twice_does_not() {
        let (start, end) = (step("agent_start"), step("agent_end"));
        for (steps, expected) in [
            (vec![start.clone(), step("^C"), message("aborted"), end], (130, 4)),
            (vec![start.clone(), step("^C"), step("aborted")], (130, 3)),
            (vec![start.clone(), step("^C"), step("^C")], (130, 3)),
            (vec![start, step("^C"), step("later")], (130, 3)),
        ] {
            assert_eq!(tracker(&steps), expected, "{steps:?}");
        }
    }

    #[test]
    fn ctrl_c_before_the_turn_ends_it_when_it_begins_and_nobody_elses() {
        let (ok, start, end) = (step("ok"), step("agent_start"), step("agent_end"));
        for (steps, expected) in [
            (vec![step("^C"), start.clone(), end], (130, 3)),
            (vec![step("^C"), start, step("^C")], (130, 3)),
            (vec![ok.clone(), step("^C"), step("^C")], (131, 3)),
            (vec![step("^C"), step("refused")], (130, 2)),
            (vec![ok.clone(), step("^C"), failed(Value::Null)], (130, 3)),
            (vec![ok.clone(), step("^C"), step("idle"), step("idle")], (130, 4)),
            (vec![ok, step("^C"), step("busy"), step("later")], (131, 4)),
        ] {
            assert_eq!(tracker(&steps), expected, "{steps:?}");
        }
        let now = Instant::now();
        let mut tracker = TurnTracker::new("s".to_owned(), now, now + SEC);
        assert!(!tracker.interrupt(now), "the turn has not begun");
        assert!(!tracker.aborts(now), "nothing of ours runs");
        assert_eq!(tracker.due(), now + NOTICE_DELAY);
        assert!(
            !tracker.tells(now)
                && tracker.tells(now + NOTICE_DELAY)
                && !tracker.tells(now + NOTICE_DELAY)
        );
        tracker.happened("agent_start", &Value::Null, now);
        assert!(tracker.aborts(now) && !tracker.aborts(now), "once");
        let mut tracker = TurnTracker::new("s".to_owned(), now, now + SEC);
        tracker.happened("agent_start", &Value::Null, now);
        assert!(tracker.interrupt(now));
        assert!(!tracker.aborts(now), "it is being aborted already");
    }

    #[test]
    fn a_turn_that_takes_too_long_is_left_to_itself() {
        let begun = Instant::now();
        let mut tracker = TurnTracker::new("s".to_owned(), begun, begun + SEC);
        tracker.answered(Ok(()), begun);
        tracker.happened("agent_start", &Value::Null, begun);
        assert_eq!(tracker.due(), begun + SEC);
        assert!(tracker.end(begun).is_none());
        let Some(TurnOutcome::Because(error)) = tracker.end(begun + SEC) else {
            panic!("not late")
        };
        assert_eq!(of_error(&error), ExitCode::BusyOrLate);
        assert!(error.to_string().contains("`quack abort --session s` ends it"), "{error}");
    }
}
