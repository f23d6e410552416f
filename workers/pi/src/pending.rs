//! Commands without an answer from Pi yet, for answers without an id. Pure.

use std::collections::VecDeque;

/// Maximum number of remembered commands. The oldest is dropped first.
const MAX_PENDING: usize = 64;

/// Numbers and names of commands, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pending(VecDeque<(u64, String)>);

impl Pending {
    /// Adds a command that is sent to Pi.
    pub(crate) fn sent(&mut self, number: u64, name: &str) {
        if self.0.len() == MAX_PENDING {
            self.0.pop_front();
        }
        self.0.push_back((number, name.to_owned()));
    }

    /// Removes the command of an answer and returns its number. An answer without a number belongs to the oldest
    /// command with its name. A Pi that could not parse a command reports the name `parse`. That answer is only
    /// attributed if a single command is pending.
    pub(crate) fn answered(&mut self, number: Option<u64>, name: &str) -> Option<u64> {
        if let Some(number) = number {
            self.0.retain(|(known, _)| *known != number);
            return Some(number);
        }
        let is_only = name == "parse" && self.0.len() == 1;
        let at = self.0.iter().position(|(_, known)| is_only || known == name)?;
        self.0.remove(at).map(|(number, _)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_a_number_is_that_of_the_oldest_command_of_its_name() {
        let mut pending = Pending::default();
        for (number, name) in [(1, "get_state"), (2, "prompt"), (3, "prompt"), (4, "abort")] {
            pending.sent(number, name);
        }
        assert_eq!(pending.answered(None, "prompt"), Some(2));
        assert_eq!(pending.answered(None, "prompt"), Some(3));
        assert_eq!(pending.answered(None, "prompt"), None);
        assert_eq!(pending.answered(None, "parse"), None, "it may be either");
        assert_eq!(pending.answered(Some(1), "get_state"), Some(1));
        assert_eq!(pending.answered(None, "parse"), Some(4));
        assert_eq!(pending.answered(Some(2), "prompt"), Some(2), "a second answer has its number");
    }

    #[test]
    fn a_pi_that_never_answers_fills_no_memory() {
        let mut pending = Pending::default();
        (0..1000).for_each(|number| pending.sent(number, "prompt"));
        assert_eq!(pending.0.len(), MAX_PENDING);
    }
}
