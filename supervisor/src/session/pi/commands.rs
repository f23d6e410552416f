//! The commands that one Pi has not answered, and the prompts that it has accepted. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// Accepted prompts that may still be reported as failed; the oldest is forgotten first.
const MAX_ACCEPTED: usize = 64;

/// A command that waits for its answer, with `W`, who waits for it.
#[derive(Debug)]
pub(crate) struct Sent<W> {
    pub(crate) name: &'static str,
    pub(crate) at: Instant,
    pub(crate) waiter: W,
}

/// What an answer is to.
#[derive(Debug)]
pub(crate) enum Answered<W> {
    /// A command that waits.
    Waiting(Sent<W>),
    /// A prompt that was accepted: it has failed after all.
    Accepted,
    /// Nobody waits.
    Nobody,
}

/// See the module's documentation. Numbers are never used again.
#[derive(Debug)]
pub(crate) struct Commands<W> {
    last: u64,
    sent: BTreeMap<u64, Sent<W>>,
    accepted: VecDeque<u64>,
}

impl<W> Default for Commands<W> {
    fn default() -> Self {
        Self { last: 0, sent: BTreeMap::new(), accepted: VecDeque::new() }
    }
}

impl<W> Commands<W> {
    /// The number of the next command.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A command goes to Pi.
    pub(crate) fn insert(&mut self, number: u64, name: &'static str, at: Instant, waiter: W) {
        self.sent.insert(number, Sent { name, at, waiter });
    }

    /// Pi has answered `number`.
    pub(crate) fn answered(&mut self, number: u64, success: bool) -> Answered<W> {
        if let Some(sent) = self.sent.remove(&number) {
            if success && sent.name == "prompt" {
                if self.accepted.len() == MAX_ACCEPTED {
                    self.accepted.pop_front();
                }
                self.accepted.push_back(number);
            }
            return Answered::Waiting(sent);
        }
        match self.accepted.iter().position(|accepted| *accepted == number) {
            Some(at) if !success => {
                self.accepted.remove(at);
                Answered::Accepted
            }
            _ => Answered::Nobody,
        }
    }

    /// Takes one that has waited for too long.
    pub(crate) fn give_up(&mut self, number: u64) -> Option<Sent<W>> {
        self.sent.remove(&number)
    }

    /// Takes all that wait: Pi is gone.
    pub(crate) fn take(&mut self) -> Vec<Sent<W>> {
        self.accepted.clear();
        std::mem::take(&mut self.sent).into_values().collect()
    }

    /// How many of this name wait.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.sent.values().filter(|sent| sent.name == name).count()
    }

    /// Since when the oldest of this name waits.
    pub(crate) fn oldest(&self, name: &str) -> Option<Instant> {
        self.sent.values().find(|sent| sent.name == name).map(|sent| sent.at)
    }

    /// Whether any waits.
    pub(crate) fn any(&self) -> bool {
        !self.sent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_was_accepted_can_still_fail_once() {
        let mut commands = Commands::default();
        let now = Instant::now();
        let (first, second) = (commands.next_number(), commands.next_number());
        commands.insert(first, "prompt", now, "one");
        commands.insert(second, "abort", now, "two");
        assert_eq!(commands.count("prompt"), 1);
        assert!(matches!(
            commands.answered(first, true),
            Answered::Waiting(Sent { waiter: "one", .. })
        ));
        assert!(matches!(commands.answered(second, true), Answered::Waiting(_)));
        assert!(matches!(commands.answered(first, true), Answered::Nobody));
        assert!(matches!(commands.answered(first, false), Answered::Accepted));
        assert!(matches!(commands.answered(first, false), Answered::Nobody));
        assert!(matches!(commands.answered(second, false), Answered::Nobody));
        assert!(!commands.any());
    }

    #[test]
    fn a_prompt_that_failed_at_once_fails_no_second_time() {
        let mut commands = Commands::default();
        let number = commands.next_number();
        commands.insert(number, "prompt", Instant::now(), ());
        assert!(matches!(commands.answered(number, false), Answered::Waiting(_)));
        // The first releases of Pi answer a refused prompt a second time, with success.
        assert!(matches!(commands.answered(number, true), Answered::Nobody));
        assert!(matches!(commands.answered(number, false), Answered::Nobody));
    }

    #[test]
    fn nothing_grows() {
        let mut commands = Commands::default();
        for _ in 0..1000 {
            let number = commands.next_number();
            commands.insert(number, "prompt", Instant::now(), ());
            assert!(matches!(commands.answered(number, true), Answered::Waiting(_)));
        }
        assert_eq!(commands.accepted.len(), MAX_ACCEPTED);
        assert!(commands.take().is_empty() && commands.accepted.is_empty());
    }
}
