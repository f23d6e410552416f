//! One turn of Pi that a verb waits for: when it is over, and how it went. A pure state machine: events, answers and
//! the time in, an exit out. Used by [`super::live`] for `quack say`.

use crate::exit::Fault;
use quackd_client::ClientError;
use serde_json::Value;
use std::time::{Duration, Instant};

/// How long the events that belong to a failure have to come: they are on their way.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The same for a prompt that was refused, and after an abort.
const AFTER_REFUSAL: Duration = Duration::from_millis(200);

/// Longest wait for a turn to end after Ctrl-C. The daemon ends a Pi that does not abort within 3 s.
const AFTER_INTERRUPT: Duration = Duration::from_secs(6);

/// How long a turn that is to be ended may take to begin before a person is told what is waited for.
const UNTOLD: Duration = Duration::from_millis(300);

/// When it is looked whether a prompt that was accepted began no turn, and how often: a command of an extension's.
const LOOK_AFTER: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long nothing may happen after a prompt that began no turn, as upstream has it.
const QUIET: Duration = Duration::from_secs(10);

/// How Pi says that it works already, in every version.
pub(super) const AT_WORK: &str = "already processing";

/// What the daemon says if it takes no more; see docs/protocol.md, `say`.
const NO_ROOM: [&str; 2] = ["messages waiting in this session", "Pis are at work"];

/// How it went.
#[derive(Debug)]
pub(super) enum End {
    /// Pi has done it.
    Well,
    /// Not; the stream says why.
    Failed,
    /// A person has ended it.
    Interrupted,
    /// A person does not wait any longer for it to begin, and has to know this.
    Left(String),
    /// Not; nothing else says why.
    Because(anyhow::Error),
}

/// What to do after Ctrl-C.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// Abort the turn, and wait for its end.
    Abort,
    /// It has not begun, and what runs may be another one: wait a moment for it to begin, and abort it then.
    Wait,
    /// End.
    Now,
}

/// A turn from what was said to its end.
#[derive(Debug)]
pub(super) struct Course {
    session: String,
    deadline: Instant,
    /// When Pi took it.
    accepted: Option<Instant>,
    /// When something last happened.
    active: Instant,
    began: bool,
    failed: bool,
    busy: bool,
    /// The last answer of the model ended in an error, or was aborted.
    ended_badly: bool,
    refused: Option<ClientError>,
    interrupted: bool,
    /// It was to be aborted, and has begun since.
    aborts: bool,
    /// It was found to be over without a turn.
    quiet: bool,
    end_at: Option<Instant>,
    look_at: Option<Instant>,
    /// When a person is told what is waited for after Ctrl-C.
    tell_at: Option<Instant>,
    /// Looks in a row after which Pi was idle.
    idle: u32,
}

impl Course {
    /// Something is being said to `session`; its turn must be over at `deadline`.
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

    /// Pi has accepted or refused it.
    pub(super) fn answered(&mut self, answer: Result<(), ClientError>, now: Instant) {
        match answer {
            // Without a connection it is not known; the events will tell, if the daemon is still there.
            Ok(()) | Err(ClientError::Disconnected) => {
                self.accepted.get_or_insert(now);
                self.look_at = Some(now + LOOK_AFTER);
            }
            Err(error) => {
                self.refused = Some(error);
                // What Pi has said in its last moments comes beside the refusal.
                self.end_by(now + AFTER_REFUSAL);
            }
        }
    }

    /// Something happened in the session that counts for this turn ([`super::gate`]).
    pub(super) fn happened(&mut self, name: &str, data: &Value, now: Instant) {
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
        self.active = now;
        match name {
            "agent_start" => {
                self.aborts |= self.interrupted && !self.began;
                self.began = true;
                self.look_at = None;
                if self.busy && !self.interrupted {
                    // Somebody else was refused, because of this turn.
                    (self.busy, self.failed, self.end_at) = (false, false, None);
                }
            }
            "message_end" => {
                let message = data.get("message").unwrap_or(&Value::Null);
                let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
                if text("role") == "assistant" {
                    self.ended_badly = matches!(text("stopReason"), "error" | "aborted");
                }
            }
            // One that ends and did not begin here is the turn of somebody else before.
            "agent_end" if self.began => {
                self.failed |= self.ended_badly;
                self.end_by(now);
            }
            "prompt_error" => match (self.began, text("error").contains(AT_WORK)) {
                // Somebody else's: this turn is what it was refused for.
                (true, true) => {}
                (began, is_busy) => {
                    self.failed = true;
                    self.busy |= is_busy;
                    // The end of a turn that began is told too, and so is the beginning of one that is about to.
                    self.end_by(match (began, is_busy) {
                        (true, _) => now + AFTER_FAILURE,
                        (false, true) => now + AFTER_REFUSAL,
                        (false, false) => now,
                    });
                }
            },
            // A worker of the session's tools may die and its turn go on.
            "extension_error"
                if text("event") == "process_death" && text("error").starts_with("Pi ") =>
            {
                self.failed = true;
                self.end_by(now + AFTER_FAILURE);
            }
            "session_deleted" => {
                self.failed = true;
                self.end_by(now);
            }
            _ => {}
        }
    }

    /// Whether Pi is at work, as far as is known: for a prompt that began no turn.
    pub(super) fn looked(&mut self, busy: Option<bool>, streams: Option<bool>, now: Instant) {
        self.idle = if busy == Some(false) { self.idle + 1 } else { 0 };
        let was_quiet = self.active.max(self.accepted.unwrap_or(now)) + QUIET <= now;
        if self.began {
            return;
        }
        if 2 <= self.idle || was_quiet && streams != Some(true) {
            self.quiet = true;
            return self.end_by(now);
        }
        self.look_at = Some(now + if self.idle == 0 { LOOK_EVERY } else { LOOK_AFTER });
    }

    /// A person has pressed Ctrl-C.
    pub(super) fn interrupt(&mut self, now: Instant) -> Interrupt {
        if self.interrupted {
            self.end_at = Some(now);
            return Interrupt::Now;
        }
        self.interrupted = true;
        self.end_by(now + AFTER_INTERRUPT);
        // The daemon aborts what its session does, whoever wanted it.
        if self.began {
            return Interrupt::Abort;
        }
        self.tell_at = Some(now + UNTOLD);
        Interrupt::Wait
    }

    /// Whether a person is to be told now what is waited for after Ctrl-C. Once.
    pub(super) fn tells(&mut self, now: Instant) -> bool {
        let is_due = self.tell_at.take_if(|at| *at <= now).is_some();
        is_due && !self.began && !self.is_over(now)
    }

    /// Whether it is to be aborted now that it has begun. Once.
    pub(super) fn aborts(&mut self, now: Instant) -> bool {
        std::mem::take(&mut self.aborts) && !self.is_over(now)
    }

    /// The daemon has aborted it, or there was nothing to abort.
    pub(super) fn aborted(&mut self, now: Instant) {
        self.end_by(now + AFTER_REFUSAL);
    }

    /// Whether it is to be looked now.
    pub(super) fn look_is_due(&mut self, now: Instant) -> bool {
        self.look_at.take_if(|at| *at <= now).is_some()
    }

    /// When something is due without anything having happened.
    pub(super) fn due(&self) -> Instant {
        [self.end_at, self.look_at, self.tell_at]
            .into_iter()
            .flatten()
            .fold(self.deadline, Instant::min)
    }

    /// Whether it is over, and nothing that comes now belongs to it.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.end_at.is_some_and(|at| at <= now)
    }

    /// How it went, if it is over.
    pub(super) fn end(&mut self, now: Instant) -> Option<End> {
        let is_over = self.is_over(now);
        if !is_over && now < self.deadline {
            return None;
        }
        let session = &self.session;
        let ways = format!(
            "`quack follow --session {session}` shows it, `quack abort --session {session}` ends it"
        );
        let is_settled = self.began || self.failed || self.quiet || self.refused.is_some();
        let may_begin = format!("Pi has not begun with it and may do so yet: {ways}");
        Some(match self.refused.take() {
            _ if self.interrupted && is_settled => End::Interrupted,
            _ if self.interrupted => End::Left(may_begin),
            Some(ClientError::Refused(text)) if text.contains(AT_WORK) => {
                End::Because(Fault::busy(format!("Pi is at work on something else: {ways}")).into())
            }
            Some(ClientError::Refused(text)) if NO_ROOM.iter().any(|part| text.contains(part)) => {
                End::Because(Fault::busy(text).into())
            }
            Some(ClientError::Timeout { .. }) => End::Because(Fault::busy(may_begin).into()),
            Some(error) => End::Because(error.into()),
            None if self.busy => {
                End::Because(Fault::busy(format!("Pi is at work on something else: {ways}")).into())
            }
            None if self.failed => End::Failed,
            None if !is_over && !self.began => End::Because(Fault::busy(may_begin).into()),
            None if !is_over => End::Because(
                Fault::busy(format!("the turn is not over yet and goes on: {ways}")).into(),
            ),
            None => End::Well,
        })
    }

    fn end_by(&mut self, at: Instant) {
        self.end_at = Some(self.end_at.map_or(at, |known| known.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{Exit, of_error};
    use serde_json::json;

    const SEC: Duration = Duration::from_secs(1);

    /// What becomes of these, a second apart: the exit code and after how many of them; 0 if it goes on.
    fn course(steps: &[(&str, Value)]) -> (u8, usize) {
        let mut now = Instant::now();
        let mut course = Course::new("s".to_owned(), now, now + 100 * SEC);
        for (n, (name, data)) in steps.iter().enumerate() {
            match *name {
                "ok" => course.answered(Ok(()), now),
                "refused" => {
                    let text = data.as_str().unwrap().to_owned();
                    course.answered(Err(ClientError::Refused(text)), now);
                }
                "lost" => course.answered(Err(ClientError::Disconnected), now),
                "idle" => course.looked(Some(false), None, now),
                "busy" => course.looked(Some(true), data.as_bool(), now),
                "^C" => drop(course.interrupt(now)),
                "aborted" => course.aborted(now),
                "later" => now += 10 * SEC,
                name => course.happened(name, data, now),
            }
            now += 2 * AFTER_FAILURE;
            if let Some(end) = course.end(now) {
                let code = match end {
                    End::Well => 0,
                    End::Failed => 1,
                    End::Interrupted => 130,
                    End::Left(_) => 131,
                    End::Because(error) => of_error(&error).code(),
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

    fn failed(error: &str) -> (&'static str, Value) {
        ("prompt_error", json!({"error": error}))
    }

    fn death(error: &str) -> (&'static str, Value) {
        ("extension_error", json!({"event": "process_death", "error": error}))
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
            (vec![ok.clone(), failed("no key")], (1, 2)),
            (vec![ok.clone(), start.clone(), failed("no key")], (1, 3)),
            (vec![ok.clone(), start.clone(), failed("Agent is already processing."), end], (0, 4)),
            (vec![ok.clone(), failed("Agent is already processing.")], (4, 2)),
            (vec![ok.clone(), start.clone(), death("Pi process for …")], (1, 3)),
            (vec![ok.clone(), start.clone(), death("Worker for …")], (255, 0)),
            (vec![ok, start, step("session_deleted")], (1, 3)),
        ] {
            assert_eq!(course(&steps), expected, "{steps:?}");
        }
    }

    #[test]
    fn a_refusal_says_whether_it_is_worth_trying_again() {
        for (text, code) in [
            ("No model selected", 1),
            ("Pi not found. Install it", 1),
            ("Agent is already processing. Specify …", 4),
            ("Pi has 16 messages waiting in this session and takes no more; try again later", 4),
            ("2 Pis are at work (pi.max_live); try again later", 4),
        ] {
            assert_eq!(course(&[("refused", json!(text))]), (code, 1), "{text}");
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
            assert_eq!(course(&steps), expected, "{steps:?}");
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
            assert_eq!(course(&steps), expected, "{steps:?}");
        }
    }

    #[test]
    fn ctrl_c_before_the_turn_ends_it_when_it_begins_and_nobody_elses() {
        let (ok, start, end) = (step("ok"), step("agent_start"), step("agent_end"));
        for (steps, expected) in [
            (vec![step("^C"), start.clone(), end], (130, 3)),
            (vec![step("^C"), start, step("^C")], (130, 3)),
            (vec![ok.clone(), step("^C"), step("^C")], (131, 3)),
            (vec![step("^C"), ("refused", json!("Aborted before Pi had started"))], (130, 2)),
            (vec![ok.clone(), step("^C"), failed("no key")], (130, 3)),
            (vec![ok.clone(), step("^C"), step("idle"), step("idle")], (130, 4)),
            (vec![ok, step("^C"), step("busy"), step("later")], (131, 4)),
        ] {
            assert_eq!(course(&steps), expected, "{steps:?}");
        }
        let now = Instant::now();
        let mut course = Course::new("s".to_owned(), now, now + SEC);
        assert_eq!(course.interrupt(now), Interrupt::Wait);
        assert!(!course.aborts(now), "nothing of ours runs");
        assert_eq!(course.due(), now + UNTOLD);
        assert!(!course.tells(now) && course.tells(now + UNTOLD) && !course.tells(now + UNTOLD));
        course.happened("agent_start", &Value::Null, now);
        assert!(course.aborts(now) && !course.aborts(now), "once");
        let mut course = Course::new("s".to_owned(), now, now + SEC);
        course.happened("agent_start", &Value::Null, now);
        assert_eq!(course.interrupt(now), Interrupt::Abort);
        assert!(!course.aborts(now), "it is being aborted already");
    }

    #[test]
    fn a_refusal_of_somebody_else_before_the_turn_begins_does_not_end_it() {
        let now = Instant::now();
        let mut course = Course::new("s".to_owned(), now, now + 9 * SEC);
        course.answered(Ok(()), now);
        course.happened("prompt_error", &json!({"error": "Agent is already processing."}), now);
        course.happened("agent_start", &Value::Null, now);
        assert!(course.end(now + SEC).is_none());
        course.happened("agent_end", &Value::Null, now + SEC);
        assert!(matches!(course.end(now + SEC), Some(End::Well)));
    }

    #[test]
    fn a_turn_that_takes_too_long_is_left_to_itself() {
        let begun = Instant::now();
        let mut course = Course::new("s".to_owned(), begun, begun + SEC);
        course.answered(Ok(()), begun);
        course.happened("agent_start", &Value::Null, begun);
        assert_eq!(course.due(), begun + SEC);
        assert!(course.end(begun).is_none());
        let Some(End::Because(error)) = course.end(begun + SEC) else { panic!("not late") };
        assert_eq!(of_error(&error), Exit::BusyOrLate);
        assert!(error.to_string().contains("`quack abort --session s` ends it"), "{error}");
    }
}
