//! Counts wrong tokens. Limits the number per address before a temporary block, and the total for all
//! addresses that never sent the correct one.
//!
//! During a block, every token from the address is refused, including the correct one, so that a guesser
//! learns nothing. Blocks grow up to [`MAX_BLOCK`]. Requests during a block do not extend it. An attacker
//! may share an address with the owner, for example behind the same proxy. Such an attacker can delay the
//! owner but cannot block them permanently.
//!
//! The table of addresses is bounded: see [`MAX_PEERS`].

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// Maximum number of tracked addresses. A full table blocks no address: [`AttemptLimiter::failed`] drops the forgotten
/// addresses, then the oldest. The shared budget allows fewer wrong tokens than this within [`FORGET_AFTER`], so that an
/// attacker cannot push out an address that is blocked.
const MAX_PEERS: usize = 1024;

/// Wrong tokens of one address before its first block, and between two blocks.
const FIRST_TRIES: u32 = 10;
const TRIES: u32 = 5;

/// First block of an address. Each block is twice as long as the previous one, up to the longest.
const FIRST_BLOCK: Duration = Duration::from_secs(5);
const MAX_BLOCK: Duration = Duration::from_secs(60);

/// Forget an address after this long without a wrong token. This allows fewer guesses per minute than the blocks do.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// Budget of wrong tokens for all addresses together, and the time to regain one.
const ALL_TRIES: u32 = 120;
const ALL_REFILL: Duration = Duration::from_secs(1);

/// Maximum number of addresses remembered as having sent the right token.
const MAX_KNOWN: usize = 64;

/// Attempts of one address.
#[derive(Debug, Clone, Copy)]
struct Peer {
    /// Wrong tokens until the next block.
    tries: u32,
    /// Number of blocks so far.
    blocks: u32,
    blocked_until: Instant,
    last: Instant,
}

/// Counts wrong tokens per address and in total.
#[derive(Debug)]
pub(crate) struct AttemptLimiter {
    /// The time at which the shared budget is full again.
    full_at: Instant,
    peers: HashMap<IpAddr, Peer>,
    /// Addresses that have sent the correct token, newest last.
    known: VecDeque<IpAddr>,
}

impl AttemptLimiter {
    pub(crate) fn new(now: Instant) -> Self {
        Self { full_at: now, peers: HashMap::new(), known: VecDeque::new() }
    }

    /// Returns the remaining block of this address, or `None`. The shared budget does not apply to an address that
    /// has sent the right token.
    pub(crate) fn blocked(&self, peer: IpAddr, now: Instant) -> Option<Duration> {
        let peer = network(peer);
        let until = self.peers.get(&peer).map_or(now, |peer| peer.blocked_until);
        let all = (self.full_at + ALL_REFILL).checked_sub(ALL_REFILL * ALL_TRIES).unwrap_or(now);
        let until = if self.known.contains(&peer) { until } else { until.max(all) };
        Some(until.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Records a wrong token from this address.
    pub(crate) fn failed(&mut self, peer: IpAddr, now: Instant) {
        // The budget cannot become negative.
        let full_at = self.full_at.max(now) + ALL_REFILL;
        self.full_at = full_at.min(now + ALL_REFILL * ALL_TRIES);

        let network = network(peer);
        if !self.peers.contains_key(&network) {
            self.make_room(now);
        }
        self.peers.entry(network).or_insert_with(|| Peer::new(now)).failed(now);
    }

    /// Removes one address from a full table.
    fn make_room(&mut self, now: Instant) {
        if MAX_PEERS <= self.peers.len() {
            self.peers.retain(|_, peer| !peer.is_forgotten(now));
        }

        if MAX_PEERS <= self.peers.len()
            && let Some((oldest, _)) = self.peers.iter().min_by_key(|(_, peer)| peer.last)
        {
            let oldest = *oldest;
            self.peers.remove(&oldest);
        }
    }

    /// Records the correct token from this address. Does not reset its attempts: a guesser may share the
    /// address.
    pub(crate) fn succeeded(&mut self, peer: IpAddr) {
        let peer = network(peer);
        self.known.retain(|known| *known != peer);
        if MAX_KNOWN <= self.known.len() {
            self.known.pop_front();
        }
        self.known.push_back(peer);
    }
}

impl Peer {
    fn new(now: Instant) -> Self {
        Self { tries: FIRST_TRIES, blocks: 0, blocked_until: now, last: now }
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        FORGET_AFTER < now.saturating_duration_since(self.last)
    }

    fn failed(&mut self, now: Instant) {
        if self.is_forgotten(now) {
            *self = Self::new(now);
        }

        self.last = now;
        self.tries = self.tries.saturating_sub(1);
        if self.tries == 0 {
            let block = FIRST_BLOCK.saturating_mul(2_u32.saturating_pow(self.blocks));
            self.blocked_until = now + block.min(MAX_BLOCK);
            self.blocks = self.blocks.saturating_add(1);
            self.tries = TRIES;
        }
    }
}

/// Maps an address to the key under which it is counted: an IPv6 /64 is one key, and so are all loopback addresses.
/// A local proxy therefore shares one key among all its clients; the `X-Forwarded-For` header is ignored.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        loopback if loopback.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(n: u32) -> IpAddr {
        IpAddr::V4(n.into())
    }

    /// Sends wrong tokens until the address is blocked. Returns their number and the block's duration.
    fn guess(limiter: &mut AttemptLimiter, peer: IpAddr, now: Instant) -> (u32, Duration) {
        let mut n = 0;
        loop {
            match limiter.blocked(peer, now) {
                Some(wait) => return (n, wait),
                None => limiter.failed(peer, now),
            }
            n += 1;
        }
    }

    #[test]
    fn blocks_grow_to_a_bound_and_the_right_token_gives_no_try_back() {
        let mut now = Instant::now();
        let mut limiter = AttemptLimiter::new(now);
        limiter.succeeded(v4(1));
        let mut seconds = Vec::new();
        for _ in 0..7 {
            let (n, block) = guess(&mut limiter, v4(1), now);
            assert_eq!(n, if seconds.is_empty() { FIRST_TRIES } else { TRIES });
            seconds.push(block.as_secs());
            // The block applies to this address only.
            assert!(limiter.blocked(v4(1), now + block / 2).is_some());
            assert_eq!(limiter.blocked(v4(2), now), None);
            limiter.succeeded(v4(1));
            assert_eq!(limiter.blocked(v4(1), now + block), None);
            now += block;
        }
        assert_eq!(seconds, [5, 10, 20, 40, 60, 60, 60]);
        now += FORGET_AFTER + Duration::from_secs(1);
        assert_eq!(guess(&mut limiter, v4(1), now), (FIRST_TRIES, FIRST_BLOCK), "forgotten");
    }

    #[test]
    fn all_together_are_limited_but_for_who_had_the_right_token_and_the_table_has_an_end() {
        let now = Instant::now();
        let mut limiter = AttemptLimiter::new(now);
        limiter.succeeded(v4(300_000));
        for n in 0..3_000 {
            limiter.failed(v4(n), now);
        }
        assert_eq!(limiter.peers.len(), MAX_PEERS);
        assert!(limiter.blocked(v4(200_000), now).is_some());
        let mut limiter = AttemptLimiter::new(now);
        limiter.succeeded(v4(300_000));
        for n in 0..ALL_TRIES {
            assert_eq!(limiter.blocked(v4(n), now), None);
            limiter.failed(v4(n), now);
        }
        assert_eq!(limiter.blocked(v4(200_000), now), Some(ALL_REFILL));
        assert_eq!(limiter.blocked(v4(300_000), now), None);
        assert_eq!(limiter.blocked(v4(200_000), now + ALL_REFILL), None);
    }

    #[test]
    fn a_full_table_locks_nobody_out() {
        let mut now = Instant::now();
        let mut limiter = AttemptLimiter::new(now);
        let (owner, other) = (v4(300_000), v4(300_001));
        limiter.succeeded(owner);
        // As many attackers as the table holds, as fast as the shared budget lets them.
        for n in 0..u32::try_from(MAX_PEERS).unwrap() {
            now += limiter.blocked(v4(n), now).unwrap_or_default();
            limiter.failed(v4(n), now);
        }
        assert_eq!(limiter.peers.len(), MAX_PEERS);
        assert_eq!(limiter.blocked(owner, now), None);
        assert_eq!(limiter.blocked(other, now), Some(ALL_REFILL));
        assert_eq!(limiter.blocked(other, now + ALL_REFILL), None);
        // The attackers continue: the owner stays unblocked, the owner's wrong token is counted, and a new
        // address waits only for the budget.
        for n in 10_000..12_000 {
            now += limiter.blocked(v4(n), now).unwrap_or_default();
            limiter.failed(v4(n), now);
            assert_eq!(limiter.blocked(owner, now), None);
            assert!(limiter.peers.len() <= MAX_PEERS);
        }
        assert_eq!(guess(&mut limiter, owner, now), (FIRST_TRIES, FIRST_BLOCK));
        now += FORGET_AFTER + Duration::from_secs(1);
        assert_eq!(limiter.blocked(other, now), None);
        assert_eq!(limiter.blocked(owner, now), None);
    }

    #[test]
    fn addresses_of_one_network_count_as_one() {
        let address = |text: &str| network(text.parse().unwrap());
        assert_eq!(address("fd00::1"), address("fd00::2"));
        assert_ne!(address("fd00::1"), address("fd00:0:0:1::1"));
        assert_eq!(address("::ffff:1.2.3.4"), address("1.2.3.4"));
        for own in ["127.0.0.2", "127.255.0.1", "::1", "::ffff:127.0.0.9"] {
            assert_eq!(address(own), v4(0x7f00_0001), "{own}");
        }
    }
}
