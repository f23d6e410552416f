//! Ids of one agent's turns. The agent runs one turn at a time and does not say which prompt began it, so the ids are
//! assigned from the order of its responses and events. Does no I/O.

use std::collections::VecDeque;

/// Maximum number of accepted prompts without a turn. The oldest is dropped first.
const MAX_ACCEPTED: usize = 64;

/// The running turn, and the accepted prompts whose turn has not begun. Ids count from 1 and are not reused.
#[derive(Debug, Default)]
pub(super) struct Turns {
    last: u64,
    running: Option<Turn>,
    accepted: VecDeque<Turn>,
    /// The agent was idle after it had accepted the prompts up to this id.
    idle_after: u64,
}

/// A turn and the command that asked for it. `None`: an extension began it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    id: u64,
    command: Option<u64>,
}

impl Turns {
    fn next(&mut self, command: Option<u64>) -> Turn {
        self.last += 1;
        Turn { id: self.last, command }
    }

    /// Id of the running turn.
    pub(super) fn running(&self) -> Option<u64> {
        self.running.map(|turn| turn.id)
    }

    /// Whether an accepted prompt waits for its turn.
    pub(super) fn is_awaited(&self) -> bool {
        !self.accepted.is_empty()
    }

    /// Records that the agent accepted the prompt of this command. Returns the id of its turn.
    pub(super) fn accept(&mut self, command: u64) -> u64 {
        // The agent was idle after the removed prompts: they were commands of extensions, which begin no turn or begin
        // it later.
        self.accepted.retain(|turn| self.idle_after < turn.id);
        if self.accepted.len() == MAX_ACCEPTED {
            self.accepted.pop_front();
        }
        let turn = self.next(Some(command));
        self.accepted.push_back(turn);
        turn.id
    }

    /// Records that an accepted prompt failed. Returns the id of its turn. With `is_busy`, the agent works on another
    /// prompt. A running turn that was assigned to the failed prompt then belongs to the next one.
    pub(super) fn fail(&mut self, command: u64, is_busy: bool) -> Option<u64> {
        if let Some(at) = self.accepted.iter().position(|turn| turn.command == Some(command)) {
            return self.accepted.remove(at).map(|turn| turn.id);
        }
        let failed = self.running.filter(|turn| turn.command == Some(command))?;
        if is_busy {
            self.running = None;
            self.begin();
        }
        Some(failed.id)
    }

    /// Records that a turn began: that of the prompt that was accepted first, else one of an extension. The agent
    /// begins a running turn again when it retries a request.
    pub(super) fn begin(&mut self) {
        if self.running.is_none() {
            let turn = self.accepted.pop_front();
            self.running = Some(turn.unwrap_or_else(|| self.next(None)));
        }
    }

    /// Records that the turn ended.
    pub(super) fn end(&mut self) {
        self.running = None;
    }

    /// Newest id so far.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Records that the agent was idle after it had accepted the prompts up to turn `last`. The next accepted prompt
    /// replaces them.
    pub(super) fn was_idle(&mut self, last: u64) {
        if self.running.is_none() {
            self.idle_after = last;
        }
    }

    /// Removes the running turn and all accepted prompts, because the agent has exited. Returns the ids, the running
    /// one first.
    pub(super) fn clear(&mut self) -> Vec<u64> {
        self.running.take().into_iter().chain(self.accepted.drain(..)).map(|turn| turn.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_begin_in_the_order_of_the_accepted_prompts() {
        let mut turns = Turns::default();
        assert_eq!((turns.accept(10), turns.accept(11)), (1, 2));
        turns.begin();
        assert_eq!(turns.running(), Some(1));
        turns.begin();
        assert_eq!(turns.running(), Some(1), "a retry");
        turns.end();
        assert_eq!((turns.running(), turns.is_awaited()), (None, true));
        turns.begin();
        assert_eq!(turns.running(), Some(2));
        turns.end();
        turns.begin();
        assert_eq!(turns.running(), Some(3), "an extension began it");
    }

    #[test]
    fn refused_prompts_get_no_turn() {
        let mut turns = Turns::default();
        let (first, second) = (turns.accept(10), turns.accept(11));
        turns.begin();
        assert_eq!(turns.fail(11, true), Some(second));
        assert_eq!(turns.running(), Some(first));
        assert_eq!(turns.fail(10, false), Some(first));
        assert_eq!(turns.running(), Some(first), "it ends with its own event");
        turns.end();
        let (third, fourth) = (turns.accept(12), turns.accept(13));
        turns.begin();
        assert_eq!(turns.fail(12, true), Some(third));
        assert_eq!(turns.running(), Some(fourth), "the other prompt had begun it");
        assert_eq!(turns.fail(99, true), None);
        assert_eq!(turns.clear(), [fourth]);
    }

    #[test]
    fn an_idle_pi_has_handled_what_it_accepted() {
        let mut turns = Turns::default();
        turns.accept(10);
        turns.was_idle(turns.last());
        let second = turns.accept(11);
        turns.begin();
        assert_eq!(turns.running(), Some(second));
        turns.end();
        let command = turns.accept(12);
        turns.was_idle(turns.last());
        turns.begin();
        assert_eq!(turns.running(), Some(command), "the command of an extension began a turn");
        turns.end();
        for command in 0..1000 {
            turns.accept(command);
        }
        assert_eq!(turns.accepted.len(), MAX_ACCEPTED);
    }
}
