//! Counts wrong tokens: how many one address, and all together, may still try.
//!
//! Buckets that fill with time. The table of addresses is bounded: an address whose bucket is full is
//! forgotten, and when every place is taken by others, a new one has only what is left for all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Addresses that are remembered.
const MAX_PEERS: usize = 1024;

/// Wrong tokens that one address may try at once, and how long it takes until it may try one more.
const PEER: Rate = Rate { burst: 30, refill: Duration::from_millis(500) };

/// The same for all together. Checking slowly takes about 60 ms of one processor's time each.
const ALL: Rate = Rate { burst: 120, refill: Duration::from_millis(125) };

#[derive(Debug, Clone, Copy)]
struct Rate {
    burst: u32,
    refill: Duration,
}

/// What is left of a rate, as the time at which all of it is there again.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    full_at: Instant,
}

impl Bucket {
    fn has_one(self, rate: Rate, now: Instant) -> bool {
        let missing = self.full_at.saturating_duration_since(now);
        missing <= rate.refill * (rate.burst - 1)
    }

    fn take_one(&mut self, rate: Rate, now: Instant) {
        self.full_at = self.full_at.max(now) + rate.refill;
        // Never more than empty: what was refused costs nothing.
        self.full_at = self.full_at.min(now + rate.refill * rate.burst);
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Limiter {
    all: Bucket,
    peers: HashMap<IpAddr, Bucket>,
}

impl Limiter {
    pub(crate) fn new(now: Instant) -> Self {
        Self { all: Bucket { full_at: now }, peers: HashMap::new() }
    }

    /// Whether a token from this address may be looked at.
    pub(crate) fn allows(&self, peer: IpAddr, now: Instant) -> bool {
        let of_peer = self.peers.get(&network(peer));
        self.all.has_one(ALL, now) && of_peer.is_none_or(|bucket| bucket.has_one(PEER, now))
    }

    /// A wrong token has come from this address.
    pub(crate) fn failed(&mut self, peer: IpAddr, now: Instant) {
        self.all.take_one(ALL, now);
        if MAX_PEERS <= self.peers.len() {
            self.peers.retain(|_, bucket| now < bucket.full_at);
        }
        if self.peers.len() < MAX_PEERS || self.peers.contains_key(&network(peer)) {
            let bucket = self.peers.entry(network(peer)).or_insert(Bucket { full_at: now });
            bucket.take_one(PEER, now);
        }
    }
}

/// Who has one address of IPv6 has 2^64 of them.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
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

    #[test]
    fn one_address_is_stopped_and_gets_a_try_back_with_time() {
        let begun = Instant::now();
        let mut limiter = Limiter::new(begun);
        for _ in 0..PEER.burst {
            assert!(limiter.allows(v4(1), begun));
            limiter.failed(v4(1), begun);
        }
        assert!(!limiter.allows(v4(1), begun));
        assert!(limiter.allows(v4(2), begun), "another address is not stopped");
        let later = begun + PEER.refill;
        assert!(limiter.allows(v4(1), later));
        limiter.failed(v4(1), later);
        assert!(!limiter.allows(v4(1), later));
        // Tries that were refused do not make the wait longer.
        for _ in 0..1000 {
            limiter.failed(v4(1), later);
        }
        assert!(limiter.allows(v4(1), later + PEER.refill));
    }

    #[test]
    fn all_together_are_stopped_and_the_table_has_an_end() {
        let begun = Instant::now();
        let mut limiter = Limiter::new(begun);
        for n in 0..100_000 {
            limiter.failed(v4(n), begun);
        }
        assert_eq!(limiter.peers.len(), MAX_PEERS);
        assert!(!limiter.allows(v4(200_000), begun));
        let later = begun + ALL.refill;
        assert!(limiter.allows(v4(200_000), later));
        limiter.failed(v4(200_000), begun + PEER.refill);
        assert_eq!(limiter.peers.len(), 1, "those who are over are forgotten");
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_count_as_one() {
        let (a, b): (IpAddr, IpAddr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        assert_eq!(network(a), network(b));
        assert_ne!(network(a), network("fd00:0:0:1::1".parse().unwrap()));
        assert_eq!(network("::ffff:1.2.3.4".parse().unwrap()), network("1.2.3.4".parse().unwrap()));
    }
}
