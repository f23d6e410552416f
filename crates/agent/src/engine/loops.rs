//! Detects a model that repeats the same calls with the same results.

use super::Agent;
use quackd_protocol::model::EndReason;
use serde_json::json;

/// Equal answers in a row after which the model gets a hint, and after which the run ends.
const TOLD_OF_LOOP: u32 = 4;
const END_OF_LOOP: u32 = 8;

/// Result of [`Agent::watch_loop`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Loop {
    No,
    Tell(u32),
    End,
}

impl Agent {
    /// Counts equal answers in a row. Returns the text for the model, or ends the run.
    pub(super) fn watch_loop(&mut self, calls: &[crate::message::ToolCall]) -> Loop {
        let key = calls.iter().map(|call| json!([call.name, call.arguments]).to_string());
        let key: String = key.collect();

        let Some(run) = &mut self.run else { return Loop::No };
        let (last, count) = &mut run.last_calls;

        if *last == key {
            *count += 1;
        } else {
            (*last, *count) = (key, 1);
        }

        match *count {
            END_OF_LOOP.. => {
                run.reason = Some(EndReason::Loop);
                Loop::End
            }
            TOLD_OF_LOOP.. => Loop::Tell(*count),
            _ => Loop::No,
        }
    }

    /// Takes the results of calls. Another result than the last one is no loop: the model waits for something.
    pub(super) fn watch_results(&mut self, results: u64) {
        let Some(run) = &mut self.run else { return };
        if std::mem::replace(&mut run.last_results, results) != results {
            run.last_calls.1 = run.last_calls.1.min(1);
        }
    }
}
