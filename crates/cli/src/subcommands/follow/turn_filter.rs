//! Selects the events of the turn that answers this client's prompt, because other clients share the same Pi. Pure
//! state machine: takes events and Pi's reply, returns the selected events in order. Used by [`super::session_view`]
//! for `quack say`.
//!
//! A turn is ours if it began after Pi accepted our prompt and starts with that prompt. A template or an extension may
//! have rewritten the prompt. Then the turn is ours unless Pi has refused our prompt by then.

use super::turn_tracker::AT_WORK;
use quackd_client::Event;
use serde_json::Value;
use std::collections::VecDeque;

/// Maximum size and number of events held while their turn has no known owner. The oldest events are dropped first.
const MAX_HELD_BYTES: usize = 8 * 1024 * 1024;
const MAX_HELD: usize = 20_000;

/// Filter for the events of one prompt.
#[derive(Debug)]
pub(super) struct TurnFilter {
    /// Trimmed text of the prompt.
    words: String,
    stage: PromptStage,
    /// Running turn.
    turn: CurrentTurn,
    /// Turn that was running before the first event.
    first: CurrentTurn,
    held: VecDeque<Event>,
    held_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PromptStage {
    /// Pi has not replied.
    Asking,
    /// Pi has accepted the prompt after this event, and its turn has not begun. `None`: an older daemon sends no event
    /// number.
    Accepted(Option<u64>),
    /// Our turn has begun.
    Ours,
    /// Pi has refused the prompt.
    Refused,
    /// Our turn has ended. Later events belong to other turns.
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CurrentTurn {
    None,
    /// Turn of another client.
    Foreign,
    /// The owner is not known yet. `late`: the turn began after Pi accepted our prompt. `other`: it starts with another
    /// prompt.
    Open {
        late: bool,
        other: bool,
    },
}

impl TurnFilter {
    /// Creates a filter for the prompt `words`. `is_at_work`: Pi is already in a turn.
    pub(super) fn new(words: &str, is_at_work: bool) -> Self {
        let first = if is_at_work { CurrentTurn::Foreign } else { CurrentTurn::None };
        Self {
            words: words.trim().to_owned(),
            stage: PromptStage::Asking,
            turn: first,
            first,
            held: VecDeque::new(),
            held_bytes: 0,
        }
    }

    /// Handles an event. Returns the events that are now known to be selected.
    pub(super) fn pass(&mut self, event: Event) -> Vec<Event> {
        let data = read(&event);
        match self.stage {
            // Hold events until Pi replies, which it does at the latest when it exits. Its reply decides about them.
            PromptStage::Asking if event.name == "session_deleted" => vec![event],
            PromptStage::Refused if !concerns_all(&event.name, &data) => Vec::new(),
            PromptStage::Refused => vec![event],
            PromptStage::Ours | PromptStage::Over => self.of_ours(event, &data),
            PromptStage::Accepted(after) => self.accepting(event, &data, after, true),
            PromptStage::Asking => {
                match event.name.as_str() {
                    "agent_start" => self.turn = CurrentTurn::Foreign,
                    "agent_end" => self.turn = CurrentTurn::None,
                    // A command of an extension may ask a question before Pi accepts it.
                    "extension_ui_request" | "extension_ui_closed"
                        if self.turn == CurrentTurn::None =>
                    {
                        return vec![event];
                    }
                    _ => {}
                }
                self.hold(event);
                Vec::new()
            }
        }
    }

    /// Records that Pi accepted the prompt after event `after`. Returns the selected ones of the held events.
    pub(super) fn accepted(&mut self, after: Option<u64>) -> Vec<Event> {
        if self.stage != PromptStage::Asking {
            return Vec::new();
        }
        self.stage = PromptStage::Accepted(after);
        self.turn = self.first;
        let held = self.take_held();
        held.into_iter().flat_map(|event| self.replay(event, after)).collect()
    }

    /// Records that Pi refused the prompt. Returns the held events that concern all clients.
    pub(super) fn refused(&mut self) -> Vec<Event> {
        self.stage = PromptStage::Refused;
        let held = self.take_held();
        held.into_iter().filter(|event| concerns_all(&event.name, &read(event))).collect()
    }

    /// Records lost events. Later events may belong to our turn and are selected.
    pub(super) fn lost(&mut self) {
        self.take_held();
        if let PromptStage::Accepted(_) = self.stage {
            self.stage = PromptStage::Ours;
        }
    }

    fn replay(&mut self, event: Event, after: Option<u64>) -> Vec<Event> {
        let data = read(&event);
        match self.stage {
            PromptStage::Accepted(_) => self.accepting(event, &data, after, after.is_some()),
            _ => self.of_ours(event, &data),
        }
    }

    /// Selects an event of our turn, unless the turn has ended.
    fn of_ours(&mut self, event: Event, data: &Value) -> Vec<Event> {
        if self.stage == PromptStage::Over || is_refusal(&event.name, data) {
            return Vec::new();
        }
        if event.name == "agent_end" {
            self.stage = PromptStage::Over;
        }
        vec![event]
    }

    /// Handles an event after Pi accepted the prompt. `late`: events with a higher number than `after` are later than
    /// that.
    fn accepting(
        &mut self,
        event: Event,
        data: &Value,
        after: Option<u64>,
        late: bool,
    ) -> Vec<Event> {
        let is_old = event.seq.is_some_and(|seq| seq <= after.unwrap_or(0));
        match (event.name.as_str(), self.turn) {
            (name, _) if concerns_all(name, data) => vec![event],
            ("agent_start", _) => {
                self.take_held();
                self.turn = if is_old {
                    CurrentTurn::Foreign
                } else {
                    CurrentTurn::Open { late, other: false }
                };
                if !is_old {
                    self.hold(event);
                }
                Vec::new()
            }
            ("agent_end", CurrentTurn::None | CurrentTurn::Foreign) => {
                self.turn = CurrentTurn::None;
                Vec::new()
            }
            _ if is_old => Vec::new(),
            (name, CurrentTurn::Open { late, other }) => match whose(name, data, &self.words) {
                TurnOwner::Ours => self.ours(event),
                TurnOwner::Others => self.others(event, late),
                // Pi is working for some client. It must be us, because otherwise our prompt would have been refused.
                TurnOwner::Nobodys if late => self.ours(event),
                TurnOwner::Nobodys => {
                    self.take_held();
                    self.turn = CurrentTurn::Foreign;
                    Vec::new()
                }
                TurnOwner::Unknown if other && is_refusal(name, data) => {
                    self.take_held();
                    self.turn = CurrentTurn::Foreign;
                    vec![event]
                }
                TurnOwner::Unknown => {
                    self.hold(event);
                    Vec::new()
                }
            },
            (name, CurrentTurn::Foreign) => {
                if is_refusal(name, data) {
                    vec![event]
                } else {
                    Vec::new()
                }
            }
            (name, CurrentTurn::None) => {
                // A client that started to follow during a turn has not seen its beginning.
                if whose(name, data, "") != TurnOwner::Unknown && name != "extension_ui_request" {
                    self.turn = CurrentTurn::Foreign;
                }
                // Tool calls belong to Pi during a turn, and to other clients otherwise.
                let is_beside =
                    self.turn == CurrentTurn::None && !name.starts_with("tool_execution_");
                if is_beside { vec![event] } else { Vec::new() }
            }
        }
    }

    fn ours(&mut self, event: Event) -> Vec<Event> {
        self.stage = PromptStage::Ours;
        self.turn = CurrentTurn::None;
        let ours = self.take_held().into_iter().chain([event]);
        ours.flat_map(|event| {
            let data = read(&event);
            self.of_ours(event, &data)
        })
        .collect()
    }

    /// Handles a turn that starts with another prompt. If Pi has refused a prompt since its beginning, that prompt was
    /// ours.
    fn others(&mut self, event: Event, late: bool) -> Vec<Event> {
        let refusal = self.held.iter().position(|held| is_refusal(&held.name, &read(held)));
        if let Some(refusal) = refusal.and_then(|at| self.held.remove(at)) {
            self.take_held();
            self.turn = CurrentTurn::Foreign;
            return vec![refusal];
        }
        self.turn = CurrentTurn::Open { late, other: true };
        self.hold(event);
        Vec::new()
    }

    fn hold(&mut self, event: Event) {
        self.held_bytes += size(&event);
        self.held.push_back(event);
        while MAX_HELD < self.held.len() || MAX_HELD_BYTES < self.held_bytes {
            let Some(oldest) = self.held.pop_front() else { break };
            self.held_bytes = self.held_bytes.saturating_sub(size(&oldest));
        }
    }

    fn take_held(&mut self) -> VecDeque<Event> {
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }
}

/// Owner of a turn, as far as one event shows.
#[derive(Debug, PartialEq, Eq)]
enum TurnOwner {
    /// The turn starts with our prompt.
    Ours,
    /// The turn starts with another prompt.
    Others,
    /// The model is working. The event does not show the prompt.
    Nobodys,
    Unknown,
}

fn whose(name: &str, data: &Value, words: &str) -> TurnOwner {
    let message = data.get("message").unwrap_or(&Value::Null);
    let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
    match (name, role) {
        ("message_start" | "message_end", "user") if text(message).trim() == words => {
            TurnOwner::Ours
        }
        ("message_start" | "message_end", "user") => TurnOwner::Others,
        ("message_start" | "message_end", "assistant") => TurnOwner::Nobodys,
        ("message_update" | "turn_end" | "agent_end" | "extension_ui_request", _) => {
            TurnOwner::Nobodys
        }
        _ => TurnOwner::Unknown,
    }
}

/// Returns the text of a user's message, which is a text or a list of parts.
fn text(message: &Value) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
        }
        _ => String::new(),
    }
}

/// Whether the event reports the exit of Pi or the deletion of the session, which concerns all clients.
fn concerns_all(name: &str, data: &Value) -> bool {
    let is_death = || data.get("event").and_then(Value::as_str) == Some("process_death");
    name == "session_deleted" || name == "extension_error" && is_death()
}

/// Whether the event reports that Pi, being busy, refused a prompt that it had accepted.
fn is_refusal(name: &str, data: &Value) -> bool {
    let error = || data.get("error").and_then(Value::as_str).unwrap_or_default();
    name == "prompt_error" && error().contains(AT_WORK)
}

fn read(event: &Event) -> Value {
    let data = event.data.as_deref().map_or("null", serde_json::value::RawValue::get);
    serde_json::from_str(data).unwrap_or(Value::Null)
}

fn size(event: &Event) -> usize {
    event.name.len() + event.data.as_deref().map_or(0, |data| data.get().len()) + 128
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    const BUSY: &str = "Agent is already processing.";

    /// A filter for the prompt `mine`, and the number of the last generated event.
    struct Story {
        filter: TurnFilter,
        seq: u64,
    }

    impl Story {
        fn new(is_at_work: bool) -> Self {
            Self { filter: TurnFilter::new(" mine\n", is_at_work), seq: 0 }
        }

        fn event(&mut self, name: &str, data: &Value) -> Event {
            self.seq += 1;
            let data = Some(to_raw_value(data).unwrap());
            Event { name: name.to_owned(), session_id: None, data, seq: Some(self.seq) }
        }

        /// Returns the selected events of a story. Steps: `+WORDS` begins a turn with them, `a` is an event of the
        /// model, `-` ends a turn, `busy` and `broke` are failed prompts, `ok` is Pi's reply, `old-ok` a reply without
        /// a number, `no` a refusal.
        fn tell(&mut self, steps: &str) -> String {
            let mut told = Vec::new();
            for step in steps.split_whitespace() {
                let counted = match step {
                    "ok" => self.filter.accepted(Some(self.seq)),
                    "old-ok" => self.filter.accepted(None),
                    "no" => self.filter.refused(),
                    "lost" => {
                        self.filter.lost();
                        Vec::new()
                    }
                    step => {
                        self.events(step).into_iter().flat_map(|e| self.filter.pass(e)).collect()
                    }
                };
                told.extend(counted.iter().map(short));
            }
            told.join(" ")
        }

        fn events(&mut self, step: &str) -> Vec<Event> {
            let message = |role: &str, text: &str| json!({"message": {"role": role, "content": [{"type": "text", "text": text}]}});
            if let Some(words) = step.strip_prefix('+') {
                return vec![
                    self.event("agent_start", &Value::Null),
                    self.event("turn_start", &Value::Null),
                    self.event("message_start", &message("user", words)),
                ];
            }
            let (name, data) = match step {
                "start" => ("agent_start", Value::Null),
                "a" => ("message_update", message("assistant", "x")),
                "-" => ("agent_end", Value::Null),
                "busy" => ("prompt_error", json!({"error": BUSY})),
                "broke" => ("prompt_error", json!({"error": "no key"})),
                "tool" => ("tool_execution_start", Value::Null),
                "asks" => ("extension_ui_request", json!({"id": "q", "method": "confirm"})),
                "custom" => ("message_start", message("custom", "x")),
                "died" => ("extension_error", json!({"event": "process_death"})),
                name => (name, Value::Null),
            };
            vec![self.event(name, &data)]
        }
    }

    fn short(event: &Event) -> String {
        let data = read(event);
        match event.name.as_str() {
            "agent_start" => "+".to_owned(),
            "turn_start" => "t".to_owned(),
            "message_start" => text(&data["message"]),
            "message_update" => "a".to_owned(),
            "agent_end" => "-".to_owned(),
            "prompt_error" if is_refusal("prompt_error", &data) => "busy".to_owned(),
            "prompt_error" => "broke".to_owned(),
            "tool_execution_start" => "tool".to_owned(),
            "extension_ui_request" => "asks".to_owned(),
            "extension_error" => "died".to_owned(),
            name => name.to_owned(),
        }
    }

    #[track_caller]
    fn tells(steps: &str, expected: &str) {
        assert_eq!(Story::new(false).tell(steps), expected, "{steps}");
    }

    #[test]
    fn a_turn_counts_if_it_began_after_the_answer_with_these_words() {
        for (steps, expected) in [
            ("ok +mine a -", "+ t mine a -"),
            // Events may arrive before an earlier reply.
            ("+other a - ok +mine a -", "+ t mine a -"),
            ("+mine a - ok +mine a tool -", "+ t mine a tool -"),
            ("+other a ok a - +third a - +mine broke died", "+ t third a -"),
            ("ok +mine a - +mine a - tool asks", "+ t mine a -"),
            ("ok +mine a start a -", "+ t mine a + a -"),
        ] {
            tells(steps, expected);
        }
    }

    #[test]
    fn of_turns_before_the_answer_nothing_is_told_whatever_they_say() {
        tells("+other a - +mine a - +other a", "");
        tells("+mine a tool - ok", "");
        tells("+mine a ok a tool busy", "busy");
        assert_eq!(Story::new(true).tell("a asks - ok +mine"), "+ t mine");
        assert_eq!(Story::new(true).tell("ok a tool asks -"), "");
    }

    #[test]
    fn an_answer_that_comes_late_finds_the_turn() {
        let mut story = Story::new(false);
        assert_eq!(story.tell("+other a -"), "");
        let after = story.seq;
        assert_eq!(story.tell("+mine a - +third a"), "");
        let counted = story.filter.accepted(Some(after));
        let told: Vec<String> = counted.iter().map(short).collect();
        assert_eq!(told.join(" "), "+ t mine a -", "and nothing of the next one");
    }

    #[test]
    fn words_that_pi_has_rewritten_are_ours_unless_it_refuses_us() {
        tells("ok +expanded", "");
        tells("ok +expanded a -", "+ t expanded a -");
        tells("ok +other busy a -", "busy");
        tells("ok start busy turn_start message_start", "");
        tells("ok +expanded asks", "+ t expanded asks");
        let mut story = Story::new(false);
        assert_eq!(story.tell("ok start busy"), "");
        let user = json!({"message": {"role": "user", "content": "other"}});
        let event = story.event("message_start", &user);
        let told: Vec<String> = story.filter.pass(event).iter().map(short).collect();
        assert_eq!(told, ["busy"]);
    }

    #[test]
    fn somebody_else_being_refused_is_not_told_to_who_is_at_work() {
        tells("ok +mine busy a busy -", "+ t mine a -");
        tells("ok start busy +mine a", "+ t mine a");
        tells("ok busy", "busy");
        tells("broke ok broke", "broke");
    }

    #[test]
    fn a_daemon_that_says_no_number_is_judged_by_the_words() {
        tells("+other a - +mine a - old-ok", "+ t mine a -");
        tells("+other a old-ok a - +expanded a", "+ t expanded a");
    }

    #[test]
    fn what_belongs_to_no_turn_is_told() {
        tells("asks tool custom died session_deleted", "asks session_deleted");
        tells("+mine a died ok", "died");
        tells("ok +mine a died -", "+ t mine a died -");
        tells("+other a died no died - session_deleted", "died died session_deleted");
        tells("ok +other died", "died");
        tells("ok asks queue_update custom tool", "asks queue_update x");
        tells("+other died ok", "died");
        tells("+other asks ok", "");
    }

    #[test]
    fn after_a_loss_everything_is_told_once_pi_has_accepted() {
        tells("+other lost a ok a", "");
        tells("ok +other lost a -", "a -");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut story = Story::new(false);
        let event = story.event("message_update", &json!({"x": "y".repeat(100_000)}));
        for _ in 0..1000 {
            assert!(story.filter.pass(event.clone()).is_empty());
        }
        assert!(story.filter.held_bytes <= MAX_HELD_BYTES, "{}", story.filter.held_bytes);
        let small = story.event("turn_start", &Value::Null);
        for _ in 0..2 * MAX_HELD {
            assert!(story.filter.pass(small.clone()).is_empty());
        }
        assert!(story.filter.held.len() <= MAX_HELD);
        story.filter.accepted(None);
        assert_eq!((story.filter.held.len(), story.filter.held_bytes), (0, 0));
    }
}
