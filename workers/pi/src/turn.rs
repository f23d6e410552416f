//! When a turn is over. Pi ends each run with `agent_end`, also one that it is about to try again; clients end
//! with the turn. So the end of a run that may be tried again is held back until it is known. Pure: time is an
//! argument.

use crate::dialect::{Event, Meaning};
use std::time::{Duration, Instant};

/// How long the end of a run that failed waits for the news that it is tried again, if Pi does not say so
/// itself. It comes in the same breath.
const PATIENCE: Duration = Duration::from_millis(150);

/// The end that is held back, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    held: Option<(Event, Option<Instant>)>,
}

impl Turn {
    /// Takes an event; gives those that are to be told now, in order.
    pub(crate) fn pass(&mut self, event: Event, now: Instant) -> Vec<Event> {
        match event.meaning {
            Meaning::Begin => {
                self.held = None;
                vec![event]
            }
            Meaning::End { again: Some(false) } => {
                self.held = None;
                vec![event]
            }
            Meaning::End { again } => {
                self.held = Some((event, again.is_none().then(|| now + PATIENCE)));
                Vec::new()
            }
            Meaning::Again => {
                if let Some((_, until)) = &mut self.held {
                    *until = None;
                }
                vec![event]
            }
            Meaning::GaveUp => [Some(event), self.release()].into_iter().flatten().collect(),
            Meaning::Settled => [self.release(), Some(event)].into_iter().flatten().collect(),
            Meaning::Other => vec![event],
        }
    }

    /// When [`Turn::release`] is due, if it is.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.held.as_ref().and_then(|(_, until)| *until)
    }

    /// The end that was held back: there will be no other.
    pub(crate) fn release(&mut self) -> Option<Event> {
        self.held.take().map(|(event, _)| event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{Said, read};

    /// What is told of these lines, in short; `|` stands for some time.
    fn told(lines: &[&str]) -> String {
        let (mut turn, mut now, mut told) = (Turn::default(), Instant::now(), String::new());
        let mut tell = |events: Vec<Event>| {
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
            let Some(Said::Event(event)) = read(line) else { panic!("{line}") };
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
