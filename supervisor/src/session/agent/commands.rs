//! The commands that one agent has not answered, and the prompts that it has accepted. Does no I/O.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// Accepted prompts that may still be reported as failed. The oldest is dropped first.
const MAX_ACCEPTED: usize = 64;

/// A command without a response. `W` is the waiting caller.
#[derive(Debug)]
pub(crate) struct PendingCommand<W> {
    pub(crate) name: Cow<'static, str>,
    pub(crate) at: Instant,
    pub(crate) waiter: W,
}

/// Meaning of a response from the agent.
#[derive(Debug)]
pub(crate) enum CommandResponse<W> {
    /// Response to a pending command.
    Waiting(PendingCommand<W>),
    /// Failure of a prompt that the agent had accepted.
    Accepted,
    /// Response to no pending command.
    Nobody,
}

/// The pending commands of one agent. Numbers are not reused.
#[derive(Debug)]
pub(crate) struct PendingCommands<W> {
    last: u64,
    sent: BTreeMap<u64, PendingCommand<W>>,
    accepted: VecDeque<u64>,
}

impl<W> Default for PendingCommands<W> {
    fn default() -> Self {
        Self { last: 0, sent: BTreeMap::new(), accepted: VecDeque::new() }
    }
}

impl<W> PendingCommands<W> {
    /// Returns a new command number.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Adds a command that is sent to the agent.
    pub(crate) fn insert(
        &mut self,
        number: u64,
        name: impl Into<Cow<'static, str>>,
        at: Instant,
        waiter: W,
    ) {
        self.sent.insert(number, PendingCommand { name: name.into(), at, waiter });
    }

    /// Handles the agent's response to command `number`.
    pub(crate) fn answered(&mut self, number: u64, success: bool) -> CommandResponse<W> {
        if let Some(sent) = self.sent.remove(&number) {
            if success && sent.name == "prompt" {
                if self.accepted.len() == MAX_ACCEPTED {
                    self.accepted.pop_front();
                }
                self.accepted.push_back(number);
            }
            return CommandResponse::Waiting(sent);
        }
        match self.accepted.iter().position(|accepted| *accepted == number) {
            Some(at) if !success => {
                self.accepted.remove(at);
                CommandResponse::Accepted
            }
            _ => CommandResponse::Nobody,
        }
    }

    /// Removes a command that timed out.
    pub(crate) fn give_up(&mut self, number: u64) -> Option<PendingCommand<W>> {
        self.sent.remove(&number)
    }

    /// Removes all pending commands, because the agent has exited.
    pub(crate) fn take(&mut self) -> Vec<PendingCommand<W>> {
        self.accepted.clear();
        std::mem::take(&mut self.sent).into_values().collect()
    }

    /// Number of pending commands with this name.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.sent.values().filter(|sent| sent.name == name).count()
    }

    /// Number of pending commands of clients: all but requests of the state.
    pub(crate) fn len_of_clients(&self) -> usize {
        self.sent.values().filter(|sent| sent.name != "get_state").count()
    }

    /// Time at which the oldest pending command with this name was sent.
    pub(crate) fn oldest(&self, name: &str) -> Option<Instant> {
        self.sent.values().find(|sent| sent.name == name).map(|sent| sent.at)
    }

    /// Whether any command is pending.
    pub(crate) fn any(&self) -> bool {
        !self.sent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_was_accepted_can_still_fail_once() {
        let mut commands = PendingCommands::default();
        let now = Instant::now();
        let (first, second) = (commands.next_number(), commands.next_number());
        commands.insert(first, "prompt", now, "one");
        commands.insert(second, "abort", now, "two");
        assert_eq!(commands.count("prompt"), 1);
        assert!(matches!(
            commands.answered(first, true),
            CommandResponse::Waiting(PendingCommand { waiter: "one", .. })
        ));
        assert!(matches!(commands.answered(second, true), CommandResponse::Waiting(_)));
        assert!(matches!(commands.answered(first, true), CommandResponse::Nobody));
        assert!(matches!(commands.answered(first, false), CommandResponse::Accepted));
        assert!(matches!(commands.answered(first, false), CommandResponse::Nobody));
        assert!(matches!(commands.answered(second, false), CommandResponse::Nobody));
        assert!(!commands.any());
    }

    #[test]
    fn a_prompt_that_failed_at_once_fails_no_second_time() {
        let mut commands = PendingCommands::default();
        let number = commands.next_number();
        commands.insert(number, "prompt", Instant::now(), ());
        assert!(matches!(commands.answered(number, false), CommandResponse::Waiting(_)));
        // Early versions of Pi answer a refused prompt a second time, with success.
        assert!(matches!(commands.answered(number, true), CommandResponse::Nobody));
        assert!(matches!(commands.answered(number, false), CommandResponse::Nobody));
    }

    #[test]
    fn nothing_grows() {
        let mut commands = PendingCommands::default();
        for _ in 0..1000 {
            let number = commands.next_number();
            commands.insert(number, "prompt", Instant::now(), ());
            assert!(matches!(commands.answered(number, true), CommandResponse::Waiting(_)));
        }
        assert_eq!(commands.accepted.len(), MAX_ACCEPTED);
        assert!(commands.take().is_empty() && commands.accepted.is_empty());
    }
}
