//! The resumable stream, without I/O: keeps sent bytes until the other side has them, and counts received bytes. Used by
//! both sides.

use crate::packet::{MAX_DATA, Violation};
use bytes::{Buf, Bytes, BytesMut};

/// Maximum number of bytes that are not acknowledged, in each direction.
pub(crate) const MAX_KEPT: usize = 4 * 1024 * 1024;

/// Both directions of one stream, over one link after the other.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Bytes that the other side may not have received.
    kept: BytesMut,
    /// Position of the first of them in the stream.
    begin: u64,
    /// Number of them that were sent over the present link.
    n_sent: usize,
    /// End of the bytes that were sent over any link.
    sent_end: u64,
    /// Position up to which the other side has passed on its bytes.
    acknowledged: u64,
    /// Received bytes.
    received: u64,
    /// Received bytes that were passed on.
    delivered: u64,
    /// Acknowledgement sent over the present link.
    announced: u64,
    /// Highest acknowledgement sent over any link.
    granted: u64,
}

impl Window {
    /// Number of bytes that may be pushed. Only acknowledgements raise it: bytes that the other side has received and
    /// not passed on fill its memory.
    pub(crate) fn room(&self) -> usize {
        let end = self.begin.saturating_add(long(self.kept.len()));
        MAX_KEPT.saturating_sub(short(end.saturating_sub(self.acknowledged)))
    }

    /// Appends bytes for the other side.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
    }

    /// Returns the next bytes to send.
    pub(crate) fn next_data(&mut self) -> Option<Bytes> {
        let rest = self.kept.get(self.n_sent..).filter(|rest| !rest.is_empty())?;
        let data = Bytes::copy_from_slice(rest.get(..MAX_DATA).unwrap_or(rest));
        self.n_sent += data.len();
        self.sent_end = self.sent_end.max(self.begin.saturating_add(long(self.n_sent)));
        Some(data)
    }

    /// Whether all bytes were sent over the present link.
    pub(crate) fn is_all_sent(&self) -> bool {
        self.n_sent == self.kept.len()
    }

    /// Reads an acknowledgement.
    pub(crate) fn acknowledge(&mut self, total: u64) -> Result<(), Violation> {
        if total < self.acknowledged || self.sent_end < total {
            return Err(Violation::Acknowledgement);
        }
        self.acknowledged = total;
        self.drop_until(total);
        Ok(())
    }

    /// Begins a new link. The other side has received `total` bytes of the stream in all.
    pub(crate) fn resume(&mut self, total: u64) -> Result<(), Violation> {
        if total < self.begin || self.sent_end < total {
            return Err(Violation::Acknowledgement);
        }
        self.drop_until(total);
        self.n_sent = 0;
        // The last acknowledgement may be lost.
        self.announced = 0;
        Ok(())
    }

    fn drop_until(&mut self, total: u64) {
        let n = short(total.saturating_sub(self.begin)).min(self.kept.len());
        self.kept.advance(n);
        self.begin = self.begin.saturating_add(long(n));
        self.n_sent = self.n_sent.saturating_sub(n);
    }

    /// Counts received bytes.
    pub(crate) fn take(&mut self, n: usize) -> Result<(), Violation> {
        self.received = self.received.saturating_add(long(n));
        if long(MAX_KEPT) < self.received.saturating_sub(self.granted) {
            return Err(Violation::Window);
        }
        Ok(())
    }

    /// Number of received bytes of the stream.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// All received bytes but `n` were passed on.
    pub(crate) fn deliver_all_but(&mut self, n: usize) {
        self.delivered = self.delivered.max(self.received.saturating_sub(long(n)));
    }

    /// Number of bytes that the next acknowledgement would add.
    pub(crate) fn unannounced(&self) -> u64 {
        self.delivered.saturating_sub(self.announced)
    }

    /// Returns the total to acknowledge.
    pub(crate) fn announce(&mut self) -> u64 {
        self.announced = self.delivered;
        self.granted = self.delivered;
        self.delivered
    }
}

fn long(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn short(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;
    use std::collections::VecDeque;

    /// Numbers without order, the same in each run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            short(self.0 >> 33) % n
        }
    }

    /// One side: its window, its undelivered and its delivered bytes, and the packets in flight to it.
    #[derive(Default)]
    struct Side {
        window: Window,
        pending: usize,
        got: Vec<u8>,
        arriving: VecDeque<Packet>,
    }

    impl Side {
        fn take(&mut self) {
            match self.arriving.pop_front() {
                Some(Packet::Data(data)) => {
                    self.window.take(data.len()).unwrap();
                    self.got.extend_from_slice(&data);
                    self.pending += data.len();
                }
                Some(Packet::Received(total)) => self.window.acknowledge(total).unwrap(),
                _ => {}
            }
        }

        fn send(&mut self, to: &mut Self) {
            to.arriving.extend(self.window.next_data().map(Packet::Data));
            if 0 < self.window.unannounced() {
                to.arriving.push_back(Packet::Received(self.window.announce()));
            }
        }
    }

    #[test]
    fn no_byte_is_lost_or_doubled_whatever_is_lost_and_resumed() {
        let mut numbers = Numbers(7);
        for _ in 0..5 {
            let mut sides = [Side::default(), Side::default()];
            let mut pushed = [Vec::new(), Vec::new()];
            for _ in 0..2_000 {
                let at = numbers.below(2);
                let [a, b] = &mut sides;
                let (one, other) = if at == 0 { (a, b) } else { (b, a) };
                match numbers.below(20) {
                    0..5 => {
                        let n = numbers.below(20_000).min(one.window.room());
                        let bytes: Vec<u8> =
                            (0..n).map(|_| numbers.0.to_le_bytes()[numbers.below(8)]).collect();
                        one.window.push(&bytes);
                        pushed[at].extend(bytes);
                    }
                    5..11 => one.send(other),
                    11..16 => one.take(),
                    16..19 => {
                        one.pending -= numbers.below(one.pending + 1);
                        one.window.deliver_all_but(one.pending);
                    }
                    _ => {
                        // The packets in flight are lost.
                        one.arriving.clear();
                        other.arriving.clear();
                        one.window.resume(other.window.received()).unwrap();
                        other.window.resume(one.window.received()).unwrap();
                    }
                }
                assert!(sides.iter().all(|side| side.window.kept.len() <= MAX_KEPT));
            }

            for _ in 0..200 {
                for at in [0, 1, 0, 1] {
                    let [a, b] = &mut sides;
                    let (one, other) = if at == 0 { (a, b) } else { (b, a) };
                    one.pending = 0;
                    one.window.deliver_all_but(0);
                    one.send(other);
                    while !other.arriving.is_empty() {
                        other.take();
                    }
                }
            }
            assert!(sides[0].got == pushed[1] && sides[1].got == pushed[0]);
            assert!(
                sides.iter().all(|side| side.window.is_all_sent() && side.window.kept.is_empty())
            );
        }
    }

    #[test]
    fn wrong_counts_and_too_many_bytes_are_refused() {
        let mut window = Window::default();
        window.push(b"12345");
        assert_eq!(window.acknowledge(1), Err(Violation::Acknowledgement));
        assert_eq!(window.next_data().unwrap(), "12345");
        window.acknowledge(3).unwrap();
        for total in [2, 6] {
            assert_eq!(window.acknowledge(total), Err(Violation::Acknowledgement));
            assert_eq!(window.resume(total), Err(Violation::Acknowledgement));
        }
        window.resume(4).unwrap();
        assert_eq!(window.next_data().unwrap(), "5");

        window.take(MAX_KEPT).unwrap();
        assert_eq!(window.take(1), Err(Violation::Window));
    }

    #[test]
    fn bytes_that_the_other_side_holds_back_count_after_a_resume() {
        let mut window = Window::default();
        window.push(&vec![0; MAX_KEPT]);
        while window.next_data().is_some() {}
        window.resume(long(MAX_KEPT)).unwrap();
        assert_eq!((window.kept.len(), window.room()), (0, 0));
        window.acknowledge(10).unwrap();
        assert_eq!(window.room(), 10);
    }
}
