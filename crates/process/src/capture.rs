//! Keeps the beginning and the end of one output stream. Filled by [`crate::output`], read by the caller of the
//! command.

use std::collections::VecDeque;

/// Bytes kept from the beginning of a stream. More than half of the text that a caller sees, so a cut at a character
/// boundary always has enough bytes.
pub const HEAD_BYTES: usize = 64 * 1024;

/// Bytes kept from the end of a stream.
pub const TAIL_BYTES: usize = 64 * 1024;

/// Kept bytes of a stream: all of it, or its first [`HEAD_BYTES`] and last [`TAIL_BYTES`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// First bytes of the stream.
    pub head: Vec<u8>,
    /// Last bytes of the stream. Directly continues `head` if nothing was omitted.
    pub tail: Vec<u8>,
    /// Length of the stream in bytes.
    pub total: u64,
}

impl Captured {
    /// Returns the number of bytes between head and tail that were not kept.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        let kept = self.head.len().saturating_add(self.tail.len());
        self.total.saturating_sub(u64::try_from(kept).unwrap_or(u64::MAX))
    }

    /// Returns true if everything was kept.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.omitted() == 0
    }
}

/// Buffer for a stream that is being read. Uses at most [`HEAD_BYTES`] + [`TAIL_BYTES`] and one chunk of memory.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Capture {
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.total = self.total.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));

        let room = HEAD_BYTES - self.head.len();
        let (first, rest) = chunk.split_at(room.min(chunk.len()));
        self.head.extend_from_slice(first);

        // A chunk that is longer than the tail replaces all of it.
        let last = rest.get(rest.len().saturating_sub(TAIL_BYTES)..).unwrap_or_default();
        let excess = (self.tail.len() + last.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        self.tail.extend(last);
    }

    pub(crate) fn finish(self) -> Captured {
        Captured { head: self.head, tail: self.tail.into(), total: self.total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(bytes: &[u8], chunk: usize) -> Captured {
        let mut capture = Capture::default();
        bytes.chunks(chunk).for_each(|chunk| capture.push(chunk));
        capture.finish()
    }

    #[test]
    fn a_stream_that_fits_is_kept_whole_however_it_is_cut() {
        let bytes: Vec<u8> = (0..HEAD_BYTES + TAIL_BYTES).map(|n| n.to_le_bytes()[0]).collect();
        for chunk in [1000, HEAD_BYTES - 1, HEAD_BYTES, bytes.len()] {
            let captured = capture(&bytes, chunk);
            assert!(captured.is_whole());
            assert_eq!([captured.head, captured.tail].concat(), bytes);
        }
    }

    #[test]
    fn a_longer_stream_keeps_its_ends_and_counts_the_rest() {
        let bytes: Vec<u8> = (0..500_000_usize).map(|n| n.to_le_bytes()[1]).collect();
        for chunk in [999, 65_536, 200_000, bytes.len()] {
            let captured = capture(&bytes, chunk);
            assert_eq!(captured.head, bytes[..HEAD_BYTES]);
            assert_eq!(captured.tail, bytes[bytes.len() - TAIL_BYTES..]);
            assert_eq!(captured.total, 500_000);
            assert_eq!(captured.omitted(), 500_000 - 131_072);
        }
    }

    #[test]
    fn silence_is_whole() {
        assert_eq!(capture(&[], 1), Captured::default());
        assert!(Captured::default().is_whole());
    }
}
