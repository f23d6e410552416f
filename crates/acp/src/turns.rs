//! The turns of one session that have ended, for the prompt that waits for one of them.

use crate::lock;
use crate::rpc::RpcError;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Mutex;
use tokio::sync::Notify;

/// Turns that are remembered. A prompt waits for one, which is among the newest.
const MAX_TURNS: usize = 16;

/// Reason for the end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StopReason {
    EndTurn,
    MaxTokens,
    MaxTurnRequests,
    Refusal,
    Cancelled,
}

/// End of a turn: its reason, or the error of the prompt.
pub(crate) type Outcome = Result<StopReason, RpcError>;

/// The turns that have ended.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    ended: Mutex<VecDeque<(u64, Outcome)>>,
    changed: Notify,
}

impl Turns {
    /// Records the end of a turn. The first outcome of a turn counts.
    pub(crate) fn end(&self, turn: u64, outcome: Outcome) {
        let mut ended = lock(&self.ended);
        if MAX_TURNS <= ended.len() {
            ended.pop_front();
        }
        ended.push_back((turn, outcome));
        drop(ended);
        self.changed.notify_waiters();
    }

    /// Waits until the turn has ended. Cancel-safe.
    pub(crate) async fn wait(&self, turn: u64) -> Outcome {
        loop {
            // Before the look, so that no end is missed.
            let changed = self.changed.notified();
            let ended = lock(&self.ended).iter().find(|(of, _)| *of == turn).cloned();
            if let Some((_, outcome)) = ended {
                return outcome;
            }
            changed.await;
        }
    }

    /// Forgets all turns. A new daemon counts from 1 again.
    pub(crate) fn clear(&self) {
        lock(&self.ended).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_outcome_of_a_turn_counts_before_and_after_the_wait_begins() {
        let turns = Turns::default();
        turns.end(1, Err(RpcError::internal("late")));
        turns.end(1, Ok(StopReason::EndTurn));
        assert_eq!(turns.wait(1).await, Err(RpcError::internal("late")));
        let (outcome, ()) = tokio::join!(turns.wait(2), async {
            for turn in 3..10 {
                turns.end(turn, Ok(StopReason::MaxTokens));
            }
            turns.end(2, Ok(StopReason::Refusal));
        });
        assert_eq!(outcome, Ok(StopReason::Refusal));
    }
}
