//! The last row of the prompt: model, tokens, cost, network and time. Used by [`super::session_view`].

use super::requests::queued_texts;
use crate::display;
use crate::output::DIM;
use crate::time_format;
use quackd_protocol::client::StateData;
use serde_json::Value;
use std::time::{Duration, Instant};

/// State of the session, for the last row.
#[derive(Debug, Default)]
pub(super) struct Status {
    model: Option<String>,
    thinking: Option<String>,
    /// Share of the model's window in percent, and the window in tokens.
    window: Option<(f64, u64)>,
    /// The cost in words. `None` before anything is known.
    cost: Option<String>,
    network: &'static str,
    /// When the running turn began.
    began: Option<Instant>,
    /// Prompts that the agent reads before its next step.
    queued: Vec<String>,
}

impl Status {
    /// Takes over the state of the session.
    pub(super) fn read(&mut self, state: &StateData) {
        let worker = &state.worker;
        self.network = match worker.network {
            _ if worker.hosts => "network: hosts",
            Some(true) => "network: on",
            Some(false) => "network: off",
            None => "",
        };

        if let Some(agent) = &state.pi_state {
            self.agent(agent);
        }
        if let Some(stats) = &state.stats {
            self.stats(stats);
        }
    }

    /// Takes over the state of the agent.
    pub(super) fn agent(&mut self, agent: &Value) {
        self.model = model_name(agent).map(str::to_owned);
        let level = agent.get("thinkingLevel").and_then(Value::as_str);
        self.thinking = level.filter(|level| *level != "off").map(str::to_owned);
        if let Some(stats) = agent.get("stats") {
            self.stats(stats);
        }
    }

    fn stats(&mut self, stats: &Value) {
        let usage = stats.get("contextUsage");
        let percent = usage.and_then(|usage| usage.get("percent")?.as_f64());
        let window = usage.and_then(|usage| usage.get("contextWindow")?.as_u64());
        self.window = percent.zip(window);
        self.cost = Some(display::cost_of(stats));
    }

    /// Records the beginning or the end of a turn.
    pub(super) fn turn(&mut self, is_running: bool, now: Instant) {
        if is_running {
            self.began.get_or_insert(now);
        } else {
            self.began = None;
            self.queued.clear();
        }
    }

    /// Records the prompts that wait for the agent's next step.
    pub(super) fn queue(&mut self, data: &Value) {
        self.queued = queued_texts(data);
    }

    /// Whether prompts wait for the agent's next step.
    pub(super) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Returns a row for each prompt that waits for the agent's next step, and for the end of the turn.
    pub(super) fn queued(&self, waiting: &[String], columns: usize) -> Vec<String> {
        let width = columns.saturating_sub(11);
        let rows = self.queued.iter().chain(waiting).map(|text| {
            let text = display::cut(text.lines().next().unwrap_or_default(), width);
            format!("{DIM}  queued: {text}{DIM:#}")
        });
        rows.collect()
    }

    /// Returns the row, narrower than `columns`.
    pub(super) fn row(&self, columns: usize, now: Instant) -> String {
        let mut words = Vec::new();
        words.extend(self.model.clone());
        words.extend(self.thinking.as_ref().map(|level| format!("thinking: {level}")));

        if let Some((percent, window)) = self.window {
            words.push(format!("{percent:.0}% of {}", tokens(window)));
        }
        words.extend(self.cost.clone());
        if !self.network.is_empty() {
            words.push(self.network.to_owned());
        }

        if let Some(began) = self.began {
            let seconds = now.saturating_duration_since(began).as_secs();
            let time = match seconds {
                0..60 => format!("{seconds} s"),
                _ => time_format::span(Duration::from_secs(seconds)),
            };
            words.push(format!("{time}, Esc aborts"));
        }

        let text = display::cut(&words.join(" · "), columns.saturating_sub(1));
        if text.is_empty() { text } else { format!("{DIM}{text}{DIM:#}") }
    }
}

/// Returns the name of the agent's model, which a state has as a text or as an object with an id.
pub(super) fn model_name(agent: &Value) -> Option<&str> {
    let model = agent.get("model")?;
    model.as_str().or_else(|| model.get("id")?.as_str())
}

fn tokens(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{}M", count / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_row_says_what_is_known_and_fits() {
        let mut status = Status::default();
        let now = Instant::now();
        assert_eq!(status.row(80, now), "");
        status.agent(&json!({"model": {"id": "m-1"}, "thinkingLevel": "high", "stats": {
            "cost": 0.01234, "contextUsage": {"percent": 12.4, "contextWindow": 128_000}}}));
        status.turn(true, now);
        let row = |status: &Status, columns| {
            anstream::adapter::strip_str(&status.row(columns, now + Duration::from_secs(34)))
                .to_string()
        };
        assert_eq!(
            row(&status, 80),
            "m-1 · thinking: high · 12% of 128k · $0.0123 · 34 s, Esc aborts"
        );
        assert_eq!(row(&status, 20), "m-1 · thinking: hi…");
        status.agent(&json!({"model": "m", "stats": {"cost": null, "contextUsage":
            {"percent": 0, "contextWindow": 8000}}}));
        status.turn(false, now);
        assert_eq!(row(&status, 80), "m · 0% of 8000 · cost unknown");
        status.agent(&json!({"model": "m", "stats": {"cost": 0.5, "costUnknown": true}}));
        assert_eq!(row(&status, 80), "m · cost unknown, at least $0.5000");
        status.queue(&json!({"steering": ["also\nthis"], "followUp": ["and that"]}));
        assert_eq!(status.queued(&["later".to_owned()], 80).len(), 3);
    }
}
