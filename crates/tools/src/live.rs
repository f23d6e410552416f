//! What a running command prints, as text for those who follow the session.
//!
//! Bytes become text piece by piece: a character that a piece ends inside of waits for the next one.
//! Called by [`crate::bash`]; [`Watch`] is the executor's.

use quackd_process::{Live, Piece};
use quackd_protocol::limits::{MAX_SHOWN_BYTES, UPDATE_INTERVAL};
use std::convert::Infallible;
use std::rc::Rc;
use tokio::time::sleep;

/// Takes a call's updates.
pub trait Watch: std::fmt::Debug {
    /// Whether an update may be sent now. If not, what it would say goes into the next one.
    fn is_ready(&self) -> bool;

    /// Sends an update. Called only right after [`Watch::is_ready`] said so.
    fn show(&self, update: Update);
}

/// What came since the last update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The newest text.
    pub delta: String,
    /// The beginning of the whole output; grows up to [`MAX_SHOWN_BYTES`] and never changes what it said.
    /// `None` once it is full and was said.
    pub partial: Option<String>,
    /// Bytes of output until now.
    pub total_bytes: u64,
    /// Bytes that came since the last update and are not in `delta`, before it.
    pub omitted_bytes: u64,
}

/// One command's way to its watcher.
#[derive(Debug)]
pub(crate) struct LiveText {
    live: Live,
    watch: Rc<dyn Watch>,
    partial: String,
    /// Something was left out of `partial`, so that it may not grow any more.
    is_full: bool,
    /// The first bytes of a character.
    carry: Vec<u8>,
    has_shown: bool,
}

impl LiveText {
    pub(crate) fn new(live: Live, watch: Rc<dyn Watch>) -> Self {
        let (partial, carry) = (String::new(), Vec::new());
        Self { live, watch, partial, is_full: false, carry, has_shown: false }
    }

    /// Where the command's output goes in.
    pub(crate) fn source(&self) -> Live {
        self.live.clone()
    }

    /// Shows what is printed, at most one update per [`UPDATE_INTERVAL`]. Dropped when the command ends.
    pub(crate) async fn forward(&mut self) -> Infallible {
        loop {
            self.live.changed().await;
            // What follows right away comes along; most commands have ended by then and need no update.
            sleep(UPDATE_INTERVAL).await;
            if self.watch.is_ready() {
                let update = self.next(self.live.take(), false);
                self.has_shown = true;
                self.watch.show(update);
            }
        }
    }

    /// What was not shown when the command ended. Nothing if no update was shown: the answer says it all.
    pub(crate) fn finish(mut self) -> Option<Update> {
        let piece = self.live.take();
        let is_news = self.has_shown && !(piece.bytes.is_empty() && self.carry.is_empty());
        is_news.then(|| self.next(piece, true))
    }

    fn next(&mut self, piece: Piece, is_last: bool) -> Update {
        let mut bytes = std::mem::take(&mut self.carry);
        let mut omitted = piece.omitted;
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

    /// Returns whether there is anything new.
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

/// Bytes at the end that may be the beginning of a character.
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
