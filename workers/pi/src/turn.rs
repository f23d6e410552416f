//! Detects the end of a turn. Pi ends each run with `agent_end`, even if it will retry the run. Clients treat that
//! event as the end of the turn. So the event of a run that may be retried is held back until the outcome is known.
//! Pure: the time is an argument.

use crate::dialect::{PiEvent, TurnEffect};
use std::time::{Duration, Instant};

/// Time for which the end of a failed run is held back if Pi does not report whether it retries. Pi prints the start
/// of a retry immediately after the end.
const PATIENCE: Duration = Duration::from_millis(150);

/// The end of a run that is held back, with the time of its release.
#[derive(Debug, Default)]
pub(crate) struct HeldTurnEnd {
    held: Option<(PiEvent, Option<Instant>)>,
}

impl HeldTurnEnd {
    /// Takes an event. Returns the events to send now, in order.
    pub(crate) fn pass(&mut self, event: PiEvent, now: Instant) -> Vec<PiEvent> {
        match event.meaning {
            TurnEffect::Begin => {
                self.held = None;
                vec![event]
            }
            TurnEffect::End { again: Some(false) } => {
                self.held = None;
                vec![event]
            }
            TurnEffect::End { again } => {
                self.held = Some((event, again.is_none().then(|| now + PATIENCE)));
                Vec::new()
            }
            TurnEffect::Again => {
                if let Some((_, until)) = &mut self.held {
                    // The run goes on, so its end waits without a limit.
                    *until = None;
                }
                vec![event]
            }
            TurnEffect::GaveUp => [Some(event), self.release()].into_iter().flatten().collect(),
            TurnEffect::Settled => [self.release(), Some(event)].into_iter().flatten().collect(),
            TurnEffect::Other => vec![event],
        }
    }

    /// Returns the time at which [`HeldTurnEnd::release`] is due, if any.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.held.as_ref().and_then(|(_, until)| *until)
    }

    /// Returns the event that was held back.
    pub(crate) fn release(&mut self) -> Option<PiEvent> {
        self.held.take().map(|(event, _)| event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{PiLine, read};

    /// Events sent for these lines, abbreviated. `|` means that time passes.
    fn told(lines: &[&str]) -> String {
        let (mut turn, mut now, mut told) = (HeldTurnEnd::default(), Instant::now(), String::new());
        let mut tell = |events: Vec<PiEvent>| {
            for event in events {
                told.push_str(&event.name);
                told.push(' ');
            }
        };
        for line in lines {
            if *line == "|" {
                now += 2 * PATIENCE;
                if turn.due().is_some_and(|due| due <= now) {
                    tell(turn.release().into_iter().collect());
                }
                continue;
            }
            let Some(PiLine::Event(event)) = read(line) else { panic!("{line}") };
            tell(turn.pass(event, now));
        }
        tell(turn.release().into_iter().collect());
        told.trim().to_owned()
    }

    const START: &str = r#"{"type":"agent_start"}"#;
    const GOOD: &str = r#"{"type":"agent_end","messages":[{"stopReason":"stop"}]}"#;
    const BAD: &str = r#"{"type":"agent_end","messages":[{"stopReason":"error"}]}"#;
    const RETRY: &str = r#"{"type":"auto_retry_start"}"#;
    const WILL: &str = r#"{"type":"agent_end","messages":[],"willRetry":true}"#;
    const WONT: &str = r#"{"type":"agent_end","messages":[],"willRetry":false}"#;
    const SETTLED: &str = r#"{"type":"agent_settled"}"#;
    const NO_MORE: &str = r#"{"type":"auto_retry_end","success":false}"#;

    #[test]
    fn a_run_that_is_tried_again_does_not_end_the_turn() {
        let expected = "agent_start auto_retry_start agent_start agent_end";
        assert_eq!(told(&[START, BAD, RETRY, "|", "|", START, GOOD]), expected);
        let expected = "agent_start auto_retry_start agent_start agent_end agent_settled";
        assert_eq!(told(&[START, WILL, "|", RETRY, START, WONT, SETTLED]), expected);
    }

    #[test]
    fn a_turn_that_failed_ends_once() {
        assert_eq!(
            told(&[START, BAD, "|", START, GOOD]),
            "agent_start agent_end agent_start agent_end"
        );
        assert_eq!(told(&[START, BAD]), "agent_start agent_end", "also with the process");
        let expected = "agent_start auto_retry_start auto_retry_end agent_end";
        assert_eq!(told(&[START, BAD, RETRY, "|", NO_MORE]), expected);
        assert_eq!(told(&[START, BAD, NO_MORE]), "agent_start auto_retry_end agent_end");
        assert_eq!(told(&[START, WILL, SETTLED]), "agent_start agent_end agent_settled");
    }

    #[test]
    fn a_compaction_that_is_followed_by_another_run_does_not_end_the_turn() {
        let start = r#"{"type":"compaction_start","reason":"overflow"}"#;
        let again = r#"{"type":"compaction_end","willRetry":true}"#;
        let over = r#"{"type":"compaction_end","willRetry":false}"#;
        assert_eq!(
            told(&[START, BAD, start, "|", again, "|", START, GOOD]),
            "agent_start auto_compaction_start auto_compaction_end agent_start agent_end"
        );
        assert_eq!(
            told(&[START, BAD, start, "|", over]),
            "agent_start auto_compaction_start auto_compaction_end agent_end"
        );
        assert_eq!(
            told(&[START, GOOD, start, over]),
            "agent_start agent_end auto_compaction_start auto_compaction_end"
        );
    }
}
