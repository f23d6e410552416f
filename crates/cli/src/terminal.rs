//! The right to print. An asynchronous write holds the only permit while it runs, and an open question holds it until it
//! is closed. Other texts wait here. Used by [`crate::output`], which prints everything.
//!
//! Otherwise the output of a command or a model could contain a forged question, after the real one.

use std::cell::RefCell;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum size of short texts that wait for the end of a question, in bytes. Streams do not count:
/// they wait unread.
const MAX_HELD: usize = 64 * 1024;

static TURN: Semaphore = Semaphore::const_new(1);

thread_local! {
    /// Texts that wait. `None` if no question is open. Subcommands print on the main thread.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Texts that wait for the end of a question.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Each with whether it is for stderr.
    pub(crate) texts: Vec<(bool, String)>,
    /// Number of lines that were too much.
    pub(crate) omitted: usize,
    bytes: usize,
}

/// The right to print, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: SemaphorePermit<'static>,
}

/// Waits for the right to print. Cancel-safe.
pub(crate) async fn turn() -> Option<Turn> {
    // The semaphore is never closed.
    TURN.acquire().await.ok().map(|_permit| Turn { _permit })
}

/// Begins to hold texts back. The caller has the [`Turn`].
pub(crate) fn hold() {
    HELD.set(Some(Held::default()));
}

/// Ends to hold texts back, and returns them.
pub(crate) fn release() -> Held {
    HELD.take().unwrap_or_default()
}

/// Whether a text has to wait. It is then kept, or counted.
pub(crate) fn keeps(to_stderr: bool, text: &str) -> bool {
    HELD.with_borrow_mut(|held| {
        let Some(held) = held else { return false };
        if MAX_HELD < held.bytes + text.len() {
            held.omitted += text.lines().count();
        } else {
            held.bytes += text.len();
            held.texts.push((to_stderr, text.to_owned()));
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_wait_while_a_question_is_open_and_are_bounded() {
        assert!(!keeps(true, "before"));
        hold();
        assert!(keeps(true, "one\n") && keeps(false, "two\n"));
        assert!(keeps(true, &"x\n".repeat(MAX_HELD)));
        let held = release();
        assert_eq!(held.texts, [(true, "one\n".to_owned()), (false, "two\n".to_owned())]);
        assert_eq!(held.omitted, MAX_HELD);
        assert!(!keeps(true, "after"));
    }
}
