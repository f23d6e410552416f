//! Passes each input to the part of the engine that handles it. Called by the driver.

use super::{Agent, Effect, Input, Now, Part};

impl Agent {
    /// Takes an input. Returns what to do, in order.
    pub fn handle(&mut self, input: Input, now: Now) -> Vec<Effect> {
        self.now = now;
        match input {
            Input::Command { number, command } => self.on_command(number, command),
            Input::Model { number, part } => self.on_model(number, part),
            Input::ToolDone(done) => self.on_tool_done(*done),
            Input::Timer => self.retry_now(),
            Input::Models(models) => self.set_models(*models),
        }
        std::mem::take(&mut self.effects)
    }

    fn on_model(&mut self, number: u64, part: Part) {
        if self.compaction.as_ref().is_some_and(|compaction| compaction.is_for(number)) {
            return self.on_summary(part);
        }
        if self.run.as_ref().is_some_and(|run| run.is_for_request(number)) {
            self.on_answer(part);
        }
    }
}
