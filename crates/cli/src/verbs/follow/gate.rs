//! Which events of a session belong to what was said here: others speak to the same Pi. A pure state machine: events
//! and Pi's answer in, the events that count out, in order. Used by [`super::live`] for `quack say`.
//!
//! A turn is ours if it began after Pi had accepted our words, and if they are what it begins with. Pi may have
//! rewritten them (a template, an extension); then it is ours unless Pi says by then that it refuses us.

use super::course::AT_WORK;
use quackd_client::Event;
use serde_json::Value;
use std::collections::VecDeque;

/// Most that is kept while it is not known whose it is, in bytes and in events; the oldest are left out first.
const MAX_HELD_BYTES: usize = 8 * 1024 * 1024;
const MAX_HELD: usize = 20_000;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Gate {
    /// What was said.
    words: String,
    stage: Stage,
    /// The turn that runs.
    turn: Turn,
    /// The turn that ran when nothing had come yet.
    first: Turn,
    held: VecDeque<Event>,
    held_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Pi has not answered.
    Asking,
    /// It has accepted our words after this event, and has not begun with them. `None`: a daemon that does not say.
    Accepted(Option<u64>),
    /// Our turn has begun.
    Ours,
    /// It has refused our words.
    Refused,
    /// Our turn has ended: what comes now is another one's.
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    None,
    /// Somebody else's.
    Foreign,
    /// It is not known yet. `late`: it began after Pi had accepted ours. `other`: it begins with other words.
    Open {
        late: bool,
        other: bool,
    },
}

impl Gate {
    /// `words` are being said to a Pi that is in a turn, or is not.
    pub(super) fn new(words: &str, is_at_work: bool) -> Self {
        let first = if is_at_work { Turn::Foreign } else { Turn::None };
        Self {
            words: words.trim().to_owned(),
            stage: Stage::Asking,
            turn: first,
            first,
            held: VecDeque::new(),
            held_bytes: 0,
        }
    }

    /// Takes an event; gives those that count by now.
    pub(super) fn pass(&mut self, event: Event) -> Vec<Event> {
        let data = read(&event);
        match self.stage {
            // Pi answers when it dies, if it has not before: what belongs to the answer comes first.
            Stage::Asking if event.name == "session_deleted" => vec![event],
            Stage::Refused if !concerns_all(&event.name, &data) => Vec::new(),
            Stage::Refused => vec![event],
            Stage::Ours | Stage::Over => self.of_ours(event, &data),
            Stage::Accepted(after) => self.accepting(event, &data, after, true),
            Stage::Asking => {
                match event.name.as_str() {
                    "agent_start" => self.turn = Turn::Foreign,
                    "agent_end" => self.turn = Turn::None,
                    // A command of an extension's may ask before it is accepted.
                    "extension_ui_request" | "extension_ui_closed" if self.turn == Turn::None => {
                        return vec![event];
                    }
                    _ => {}
                }
                self.hold(event);
                Vec::new()
            }
        }
    }

    /// Pi has accepted our words after event `after`; gives what has come since and counts.
    pub(super) fn accepted(&mut self, after: Option<u64>) -> Vec<Event> {
        if self.stage != Stage::Asking {
            return Vec::new();
        }
        self.stage = Stage::Accepted(after);
        self.turn = self.first;
        let held = self.take_held();
        held.into_iter().flat_map(|event| self.replay(event, after)).collect()
    }

    /// Pi has refused our words; gives what concerns everybody.
    pub(super) fn refused(&mut self) -> Vec<Event> {
        self.stage = Stage::Refused;
        let held = self.take_held();
        held.into_iter().filter(|event| concerns_all(&event.name, &read(event))).collect()
    }

    /// Events are missing: what comes from now on may be ours, and is shown.
    pub(super) fn lost(&mut self) {
        self.take_held();
        if let Stage::Accepted(_) = self.stage {
            self.stage = Stage::Ours;
        }
    }

    fn replay(&mut self, event: Event, after: Option<u64>) -> Vec<Event> {
        let data = read(&event);
        match self.stage {
            Stage::Accepted(_) => self.accepting(event, &data, after, after.is_some()),
            _ => self.of_ours(event, &data),
        }
    }

    /// An event of our turn, unless it has ended.
    fn of_ours(&mut self, event: Event, data: &Value) -> Vec<Event> {
        if self.stage == Stage::Over || is_refusal(&event.name, data) {
            return Vec::new();
        }
        if event.name == "agent_end" {
            self.stage = Stage::Over;
        }
        vec![event]
    }

    /// `late`: the event came after Pi had accepted our words, if it has a higher number.
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
                self.turn = if is_old { Turn::Foreign } else { Turn::Open { late, other: false } };
                if !is_old {
                    self.hold(event);
                }
                Vec::new()
            }
            ("agent_end", Turn::None | Turn::Foreign) => {
                self.turn = Turn::None;
                Vec::new()
            }
            _ if is_old => Vec::new(),
            (name, Turn::Open { late, other }) => match whose(name, data, &self.words) {
                Whose::Ours => self.ours(event),
                Whose::Others => self.others(event, late),
                // Pi is about to do it for somebody: for us, then, or we would have been refused.
                Whose::Nobodys if late => self.ours(event),
                Whose::Nobodys => {
                    self.take_held();
                    self.turn = Turn::Foreign;
                    Vec::new()
                }
                Whose::Unknown if other && is_refusal(name, data) => {
                    self.take_held();
                    self.turn = Turn::Foreign;
                    vec![event]
                }
                Whose::Unknown => {
                    self.hold(event);
                    Vec::new()
                }
            },
            (name, Turn::Foreign) => {
                if is_refusal(name, data) {
                    vec![event]
                } else {
                    Vec::new()
                }
            }
            (name, Turn::None) => {
                // Who began to follow in the middle of a turn has not seen its beginning.
                if whose(name, data, "") != Whose::Unknown && name != "extension_ui_request" {
                    self.turn = Turn::Foreign;
                }
                // Calls of tools are Pi's in a turn, and other clients' without one.
                let is_beside = self.turn == Turn::None && !name.starts_with("tool_execution_");
                if is_beside { vec![event] } else { Vec::new() }
            }
        }
    }

    fn ours(&mut self, event: Event) -> Vec<Event> {
        self.stage = Stage::Ours;
        self.turn = Turn::None;
        let ours = self.take_held().into_iter().chain([event]);
        ours.flat_map(|event| {
            let data = read(&event);
            self.of_ours(event, &data)
        })
        .collect()
    }

    /// The turn begins with other words. If Pi has refused somebody since it began, that was us.
    fn others(&mut self, event: Event, late: bool) -> Vec<Event> {
        let refusal = self.held.iter().position(|held| is_refusal(&held.name, &read(held)));
        if let Some(refusal) = refusal.and_then(|at| self.held.remove(at)) {
            self.take_held();
            self.turn = Turn::Foreign;
            return vec![refusal];
        }
        self.turn = Turn::Open { late, other: true };
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

/// Whose turn it is, as far as one event tells.
#[derive(Debug, PartialEq, Eq)]
enum Whose {
    /// It begins with our words.
    Ours,
    /// It begins with other words.
    Others,
    /// The model is at it, whatever it began with.
    Nobodys,
    Unknown,
}

fn whose(name: &str, data: &Value, words: &str) -> Whose {
    let message = data.get("message").unwrap_or(&Value::Null);
    let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
    match (name, role) {
        ("message_start" | "message_end", "user") if text(message).trim() == words => Whose::Ours,
        ("message_start" | "message_end", "user") => Whose::Others,
        ("message_start" | "message_end", "assistant") => Whose::Nobodys,
        ("message_update" | "turn_end" | "agent_end" | "extension_ui_request", _) => Whose::Nobodys,
        _ => Whose::Unknown,
    }
}

/// What a user's message says: a text, or parts of which some are.
fn text(message: &Value) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
        }
        _ => String::new(),
    }
}

/// The end of Pi and of the session end everybody's waiting.
fn concerns_all(name: &str, data: &Value) -> bool {
    let is_death = || data.get("event").and_then(Value::as_str) == Some("process_death");
    name == "session_deleted" || name == "extension_error" && is_death()
}

/// Pi has refused somebody's words after it had accepted them, because it is at work.
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

    /// A gate for the words `mine`, and the number of the last event that was made.
    struct Story {
        gate: Gate,
        seq: u64,
    }

    impl Story {
        fn new(is_at_work: bool) -> Self {
            Self { gate: Gate::new(" mine\n", is_at_work), seq: 0 }
        }

        fn event(&mut self, name: &str, data: &Value) -> Event {
            self.seq += 1;
            let data = Some(to_raw_value(data).unwrap());
            Event { name: name.to_owned(), session_id: None, data, seq: Some(self.seq) }
        }

        /// What counts of a story in short words, event by event: `+WORDS` begins a turn with them, `a` is of the
        /// model, `-` ends a turn, `busy` and `broke` are prompts that failed, `ok` is Pi's answer, `old-ok` one of
        /// a daemon that says no number, `no` a refusal.
        fn tell(&mut self, steps: &str) -> String {
            let mut told = Vec::new();
            for step in steps.split_whitespace() {
                let counted = match step {
                    "ok" => self.gate.accepted(Some(self.seq)),
                    "old-ok" => self.gate.accepted(None),
                    "no" => self.gate.refused(),
                    "lost" => {
                        self.gate.lost();
                        Vec::new()
                    }
                    step => self.events(step).into_iter().flat_map(|e| self.gate.pass(e)).collect(),
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
            // Events may come before the answer that was given before them.
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
        let counted = story.gate.accepted(Some(after));
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
        let told: Vec<String> = story.gate.pass(event).iter().map(short).collect();
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
            assert!(story.gate.pass(event.clone()).is_empty());
        }
        assert!(story.gate.held_bytes <= MAX_HELD_BYTES, "{}", story.gate.held_bytes);
        let small = story.event("turn_start", &Value::Null);
        for _ in 0..2 * MAX_HELD {
            assert!(story.gate.pass(small.clone()).is_empty());
        }
        assert!(story.gate.held.len() <= MAX_HELD);
        story.gate.accepted(None);
        assert_eq!((story.gate.held.len(), story.gate.held_bytes), (0, 0));
    }
}
