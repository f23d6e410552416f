//! Streams the output of a running command as text to the clients that follow the session.
//!
//! Bytes become text piece by piece. An incomplete character at the end of a piece waits for the next one.
//! Called by [`crate::bash`]; the executor implements [`Watch`].

use quackd_process::{Live, Piece};
use quackd_protocol::limits::{MAX_SHOWN_BYTES, UPDATE_INTERVAL};
use std::convert::Infallible;
use std::rc::Rc;
use tokio::time::sleep;

/// Receiver of a call's updates.
pub trait Watch: std::fmt::Debug {
    /// Whether an update may be sent now. If not, its text goes into the next update.
    fn is_ready(&self) -> bool;

    /// Sends an update. Called only directly after [`Watch::is_ready`] returned true.
    fn show(&self, update: Update);
}

/// Output since the last update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Newest text.
    pub delta: String,
    /// Start of the complete output. Grows up to [`MAX_SHOWN_BYTES`], and sent text never changes. `None` after
    /// the full text was sent.
    pub partial: Option<String>,
    /// Size of the output so far in bytes.
    pub total_bytes: u64,
    /// Number of bytes since the last update that are missing before `delta`.
    pub omitted_bytes: u64,
}

/// Stream of one command's output to its receiver.
#[derive(Debug)]
pub(crate) struct LiveText {
    live: Live,
    watch: Rc<dyn Watch>,
    partial: String,
    /// Whether text was left out of `partial`, which then must not grow further.
    is_full: bool,
    /// First bytes of an incomplete character.
    carry: Vec<u8>,
    has_shown: bool,
}

impl LiveText {
    pub(crate) fn new(live: Live, watch: Rc<dyn Watch>) -> Self {
        let (partial, carry) = (String::new(), Vec::new());
        Self { live, watch, partial, is_full: false, carry, has_shown: false }
    }

    /// Returns the buffer that receives the command's output.
    pub(crate) fn source(&self) -> Live {
        self.live.clone()
    }

    /// Sends the output, at most one update per [`UPDATE_INTERVAL`]. Dropped when the command ends.
    pub(crate) async fn forward(&mut self) -> Infallible {
        loop {
            self.live.changed().await;
            // Wait for output that follows immediately. Most commands end in that time and need no update.
            sleep(UPDATE_INTERVAL).await;
            if self.watch.is_ready() {
                let update = self.next(self.live.take(), false);
                self.has_shown = true;
                self.watch.show(update);
            }
        }
    }

    /// Returns the rest of the output when the command ends. `None` if no update was sent, because the answer
    /// contains everything.
    pub(crate) fn finish(mut self) -> Option<Update> {
        let piece = self.live.take();
        let is_news = self.has_shown && !(piece.bytes.is_empty() && self.carry.is_empty());
        is_news.then(|| self.next(piece, true))
    }

    fn next(&mut self, piece: Piece, is_last: bool) -> Update {
        let mut bytes = std::mem::take(&mut self.carry);
        let mut omitted = piece.omitted;
        // The missing bytes contain the rest of the carried character, so its first bytes are missing too.
        if omitted != 0 {
            omitted += u64::try_from(bytes.len()).unwrap_or(0);
            bytes.clear();
            self.is_full = true;
        }

        bytes.extend_from_slice(&piece.bytes);
        if !is_last {
            self.carry = bytes.split_off(bytes.len() - unfinished(&bytes));
        }

        let delta = String::from_utf8_lossy(&bytes).into_owned();
        let has_grown = self.grow(&delta);
        Update {
            delta,
            partial: has_grown.then(|| self.partial.clone()),
            total_bytes: piece.total,
            omitted_bytes: omitted,
        }
    }

    /// Adds `delta`. Returns whether the text changed.
    fn grow(&mut self, delta: &str) -> bool {
        if self.is_full {
            return false;
        }
        let room = MAX_SHOWN_BYTES - self.partial.len();
        let fits = delta.floor_char_boundary(room);
        self.partial.push_str(delta.get(..fits).unwrap_or_default());
        self.is_full = fits < delta.len();
        fits != 0
    }
}

/// Returns the number of bytes at the end that may begin a character.
pub(crate) fn unfinished(bytes: &[u8]) -> usize {
    match bytes.utf8_chunks().last() {
        Some(last) if matches!(str::from_utf8(last.invalid()), Err(e) if e.error_len().is_none()) => {
            last.invalid().len()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_process::LIVE_BYTES;
    use quackd_protocol::limits::MAX_SHOWN_JSON_BYTES;

    #[derive(Debug)]
    struct Nobody;

    impl Watch for Nobody {
        fn is_ready(&self) -> bool {
            false
        }

        fn show(&self, _: Update) {}
    }

    fn text() -> LiveText {
        LiveText::new(Live::default(), Rc::new(Nobody))
    }

    fn piece(bytes: &[u8], omitted: u64) -> Piece {
        Piece { bytes: bytes.into(), omitted, total: 0 }
    }

    #[test]
    fn text_is_the_same_wherever_its_bytes_are_cut() {
        let whole = "aé€😀\u{fffd}b".as_bytes();
        for cut in 0..=whole.len() {
            let (first, rest) = whole.split_at(cut);
            let mut text = text();
            let both =
                text.next(piece(first, 0), false).delta + &text.next(piece(rest, 0), true).delta;
            assert_eq!(both.as_bytes(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_text_is_replaced_and_never_waits_for_ever() {
        let mut text = text();
        assert_eq!(text.next(piece(b"a\xff\xe2\x82", 0), false).delta, "a\u{fffd}");
        assert_eq!(text.next(piece(b"(", 0), false).delta, "\u{fffd}(");
        assert_eq!(text.next(piece(b"\xe2\x82", 0), true).delta, "\u{fffd}");
    }

    #[test]
    fn the_beginning_only_grows_and_stops_at_its_limit_or_at_a_gap() {
        let mut text = text();
        let partial = |update: Update| update.partial.unwrap();
        assert_eq!(partial(text.next(piece(b"one ", 0), false)), "one ");
        assert_eq!(partial(text.next(piece(b"two ", 0), false)), "one two ");
        let after_gap = text.next(piece(b"four", 5), false);
        assert_eq!((after_gap.delta.as_str(), after_gap.omitted_bytes), ("four", 5));
        assert_eq!(after_gap.partial, None, "nothing new");

        let mut text = self::text();
        let long = "é".repeat(MAX_SHOWN_BYTES);
        let update = text.next(piece(&[b"x", long.as_bytes()].concat(), 0), false);
        assert_eq!(update.partial.unwrap().len(), MAX_SHOWN_BYTES - 1);
        assert_eq!(text.next(piece(b"y", 0), false).partial, None);
    }

    #[test]
    fn no_output_makes_an_update_that_is_too_long_for_its_supervisor() {
        for filling in [b"\0", b"\xff", b"\"", b"\x7f"] {
            let mut text = text();
            drop(text.next(piece(b"\xf0\x9f\x98", 0), false));
            let update = text.next(piece(&filling.repeat(LIVE_BYTES), 0), true);
            for shown in [update.delta, update.partial.unwrap()] {
                let json = serde_json::to_string(&shown).unwrap();
                assert!(json.len() <= MAX_SHOWN_JSON_BYTES, "{filling:?}: {}", json.len());
            }
        }
    }

    #[test]
    fn an_end_without_news_says_nothing() {
        let quiet = text();
        assert_eq!(quiet.live.take(), Piece::default());
        assert_eq!(quiet.finish(), None);
    }
}
