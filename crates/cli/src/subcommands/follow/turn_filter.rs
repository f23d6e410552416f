//! Selects the events of the turn that answers this client's prompt, because other clients share the same Pi. Pure
//! state machine: takes events and Pi's reply, returns the selected events in order. Used by [`super::session_view`]
//! for `quack say`.
//!
//! The reply names the turn, and each event of a turn carries its id. Events may arrive before the reply.

use quackd_client::Event;
use serde_json::Value;
use std::collections::VecDeque;

/// Maximum size and number of events held until the reply. The oldest events are dropped first.
const MAX_HELD_BYTES: usize = 8 * 1024 * 1024;
const MAX_HELD: usize = 20_000;

/// Filter for the events of one prompt.
#[derive(Debug, Default)]
pub(super) struct TurnFilter {
    stage: PromptStage,
    held: VecDeque<Event>,
    held_bytes: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum PromptStage {
    /// Pi has not replied.
    #[default]
    Asking,
    /// Pi has accepted the prompt for this turn. `None`: a command of an extension handles it without a turn.
    Accepted(Option<u64>),
    /// The reply or some events were lost. All events may belong to our turn.
    Lost,
    /// Pi has refused the prompt.
    Refused,
    /// Our turn has ended. Later events belong to other turns.
    Over,
}

impl TurnFilter {
    /// Handles an event. Returns it if it is selected.
    pub(super) fn pass(&mut self, event: Event) -> Option<Event> {
        // A command of an extension may ask a question before Pi accepts it.
        let is_early = match event.name.as_str() {
            "session_deleted" => true,
            "extension_ui_request" | "extension_ui_closed" => event.turn.is_none(),
            _ => false,
        };

        // Only the reply tells whether the event is one of this turn.
        if self.stage == PromptStage::Asking && !is_early {
            self.hold(event);
            return None;
        }
        self.select(event)
    }

    /// Records that Pi accepted the prompt for this turn. Returns the selected ones of the held events.
    pub(super) fn accepted(&mut self, turn: Option<u64>) -> Vec<Event> {
        self.answered(PromptStage::Accepted(turn))
    }

    /// Records that Pi refused the prompt. Returns the held events that concern all clients.
    pub(super) fn refused(&mut self) -> Vec<Event> {
        self.answered(PromptStage::Refused)
    }

    /// Records that the reply, or events since, are lost.
    pub(super) fn lost(&mut self) {
        if let PromptStage::Asking | PromptStage::Accepted(_) = self.stage {
            self.answered(PromptStage::Lost);
        }
    }

    fn answered(&mut self, stage: PromptStage) -> Vec<Event> {
        // A reply after a loss cannot restore the lost events, so the filter stays open.
        if self.stage == PromptStage::Asking || stage == PromptStage::Lost {
            self.stage = stage;
        }

        self.held_bytes = 0;
        std::mem::take(&mut self.held).into_iter().filter_map(|event| self.select(event)).collect()
    }

    fn select(&mut self, event: Event) -> Option<Event> {
        let is_of_turn = match (self.stage, event.turn) {
            (PromptStage::Over | PromptStage::Refused, _) => false,
            (PromptStage::Lost | PromptStage::Asking, _) => true,
            // Tool calls without a turn are those of other clients.
            (PromptStage::Accepted(_), None) => !event.name.starts_with("tool_execution_"),
            (PromptStage::Accepted(ours), turn) => turn == ours,
        };

        // Such events are selected regardless of their turn.
        if self.stage != PromptStage::Over && concerns_all(&event) {
            return Some(event);
        }

        if is_of_turn && event.name == "agent_end" {
            self.stage = PromptStage::Over;
        }
        is_of_turn.then_some(event)
    }

    fn hold(&mut self, event: Event) {
        self.held_bytes += size(&event);
        self.held.push_back(event);

        while MAX_HELD < self.held.len() || MAX_HELD_BYTES < self.held_bytes {
            let Some(oldest) = self.held.pop_front() else { break };
            self.held_bytes = self.held_bytes.saturating_sub(size(&oldest));
        }
    }
}

/// Whether the event reports the exit of Pi or the deletion of the session, which concerns all clients.
fn concerns_all(event: &Event) -> bool {
    let is_death = || {
        let data = event.data.as_deref().map_or("null", serde_json::value::RawValue::get);
        let data: Value = serde_json::from_str(data).unwrap_or(Value::Null);
        data.get("event").and_then(Value::as_str) == Some("process_death")
    };

    // Parse the data of this one kind of event only: most events of a turn are large.
    event.name == "session_deleted" || event.name == "extension_error" && is_death()
}

/// Returns the memory that an event takes, in bytes. 128 stand for its fields and the entry of the queue.
fn size(event: &Event) -> usize {
    event.name.len() + event.data.as_deref().map_or(0, |data| data.get().len()) + 128
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    fn event(name: &str, turn: Option<u64>) -> Event {
        let data = if name == "died" { json!({"event": "process_death"}) } else { Value::Null };
        let name = if name == "died" { "extension_error" } else { name }.to_owned();
        let data = Some(to_raw_value(&data).unwrap());
        Event { name, session_id: None, data, seq: None, turn }
    }

    /// Returns the selected events of a story. Steps: `NAME` or `NAME:TURN` is an event, `ok` and `ok:TURN` are Pi's
    /// reply, `no` a refusal, `lost` a loss.
    #[track_caller]
    fn tells(steps: &str, expected: &str) {
        let mut filter = TurnFilter::default();
        let mut selected: Vec<Event> = Vec::new();
        for step in steps.split_whitespace() {
            let (name, turn) = match step.split_once(':') {
                Some((name, turn)) => (name, Some(turn.parse().unwrap())),
                None => (step, None),
            };
            match name {
                "ok" => selected.extend(filter.accepted(turn)),
                "no" => selected.extend(filter.refused()),
                "lost" => filter.lost(),
                name => selected.extend(filter.pass(event(name, turn))),
            }
        }
        let selected: Vec<String> = selected
            .iter()
            .map(|event| {
                let turn = event.turn.map_or_else(String::new, |turn| format!(":{turn}"));
                format!("{}{turn}", event.name)
            })
            .collect();
        assert_eq!(selected.join(" "), expected, "{steps}");
    }

    #[test]
    fn the_events_of_the_turn_of_the_reply_are_selected() {
        tells("a:1 agent_end:1 ok:2 a:2 agent_end:2 a:2 a:3", "a:2 agent_end:2");
        tells("a:1 a:2 agent_end:2 a:3 ok:2 a:2", "a:2 agent_end:2");
        tells("ok:2 prompt_error:3 prompt_error:2", "prompt_error:2");
        tells("ok a:1 queue_update tool_execution_start", "queue_update");
    }

    #[test]
    fn events_without_a_turn_are_told_except_tool_calls() {
        tells("extension_ui_request ok:1", "extension_ui_request");
        tells("extension_ui_request:1 ok:2", "");
        tells("ok:1 tool_execution_start queue_update", "queue_update");
    }

    #[test]
    fn deaths_and_deletions_concern_all_clients() {
        tells("session_deleted", "session_deleted");
        tells("a:1 died:1 no died:1 a:1", "extension_error:1 extension_error:1");
        tells("ok:2 died:1 a:1", "extension_error:1");
        tells("ok:1 agent_end:1 died:1", "agent_end:1");
    }

    #[test]
    fn after_a_loss_everything_is_told_until_a_turn_ends() {
        tells("a:1 lost ok:2 a:2 agent_end:2 a:3", "a:2 agent_end:2");
        tells("ok:2 a:2 lost a:3", "a:2 a:3");
    }

    #[test]
    fn held_events_are_bounded() {
        let mut filter = TurnFilter::default();
        let big = to_raw_value(&"y".repeat(100_000)).unwrap();
        let big = Event { data: Some(big), ..event("message_update", Some(1)) };
        for _ in 0..1000 {
            assert!(filter.pass(big.clone()).is_none());
        }
        assert!(filter.held_bytes <= MAX_HELD_BYTES, "{}", filter.held_bytes);
        for _ in 0..2 * MAX_HELD {
            assert!(filter.pass(event("turn_start", Some(1))).is_none());
        }
        assert!(filter.held.len() <= MAX_HELD);
        filter.accepted(Some(2));
        assert_eq!((filter.held.len(), filter.held_bytes), (0, 0));
    }
}
