//! The input of a call without a reply, between its client and its worker.

use crate::events::CallInput;
use actix::SpawnHandle;
use tokio::sync::oneshot;

/// The input of one call.
#[derive(Debug)]
pub(crate) struct PendingInput {
    input: CallInput,
    state: InputState,
}

#[derive(Debug)]
enum InputState {
    /// The command has not started.
    NotWanted,
    /// The command takes a piece, which the client has not sent.
    Wanted(SpawnHandle),
    /// The worker has a piece. The sender tells the client whether the command takes another one.
    Given(Option<oneshot::Sender<bool>>),
    /// The command takes nothing more.
    Ended,
}

/// The next step when a command has taken its input.
#[derive(Debug)]
pub(crate) enum NextInput {
    /// Wait for the next piece.
    Await(CallInput),
    /// Refuse all further pieces, and end the task that waits for one.
    End(Option<SpawnHandle>, CallInput),
}

impl PendingInput {
    pub(crate) fn new(input: CallInput) -> Self {
        Self { input, state: InputState::NotWanted }
    }

    /// Handles the report of the worker that the command takes input, or none any longer. `None` if the worker may not
    /// report that now.
    pub(crate) fn wanted(&mut self, is_open: bool) -> Option<NextInput> {
        let waiting = match std::mem::replace(&mut self.state, InputState::Ended) {
            InputState::NotWanted => None,
            InputState::Given(taken) => {
                // The client may have disconnected.
                taken.and_then(|taken| taken.send(is_open).err());
                None
            }
            InputState::Wanted(waiting) if !is_open => Some(waiting),
            InputState::Wanted(_) | InputState::Ended => return None,
        };
        let input = self.input.clone();
        Some(if is_open { NextInput::Await(input) } else { NextInput::End(waiting, input) })
    }

    /// Stores the task that waits for the next piece.
    pub(crate) fn awaited(&mut self, waiting: SpawnHandle) {
        self.state = InputState::Wanted(waiting);
    }

    /// Notes that the worker gets a piece. Without `taken`, it is the end.
    pub(crate) fn given(&mut self, taken: Option<oneshot::Sender<bool>>) {
        self.state = InputState::Given(taken);
    }

    /// Returns the task that waits for a piece.
    pub(crate) fn into_waiting(self) -> Option<SpawnHandle> {
        match self.state {
            InputState::Wanted(waiting) => Some(waiting),
            _ => None,
        }
    }
}
