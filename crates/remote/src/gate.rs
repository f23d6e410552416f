//! The token: making one, keeping its hash, and telling the right one from a wrong one.
//!
//! The hash is upstream's: scrypt over the salt's text, 16384 × 8 × 1, 32 bytes as hex. It takes about
//! 60 ms and 16 MiB, on purpose, and so it is done as seldom as can be, on a thread for blocking work, one
//! at a time. A token that was right is remembered as a digest with a key that only this process has ever
//! had; comparing with that costs next to nothing, and tells a wrong token as surely.
//!
//! [`crate::limiter`] counts wrong tokens and blocks an address after too many. During a block the gate also refuses
//! the right token, because a different answer would confirm a guess. Open WebSockets are not affected. A request on
//! a connection that has sent the right token before is checked like any other, because a proxy may use one
//! connection for several clients.

use crate::limiter::Limiter;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quackd_protocol::limits::MIN_REMOTE_TOKEN_BYTES;
use scrypt::{Params, scrypt};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Longest token that is looked at, in bytes. It came in a header that is bounded too.
pub const MAX_TOKEN_BYTES: usize = 1024;

/// Bytes of chance in a new token and in a new salt.
const TOKEN_BYTES: usize = 24;
const SALT_BYTES: usize = 16;

/// Slow checks that may wait for their turn; one more is refused, and told to come back after this.
const MAX_WAITING: usize = 8;
const WAITING_ROOM_FULL: Duration = Duration::from_secs(1);

/// What is kept of a token. Its `Debug` shows nothing that helps to find the token.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenHash {
    /// 64 hexadecimal digits.
    pub hash: String,
    /// The salt, as text.
    pub salt: String,
}

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(hidden)")
    }
}

impl TokenHash {
    /// Hashes a token with a new salt. Takes a while; not for a thread with other work.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new_blocking(token: &SecretString) -> io::Result<Self> {
        let salt = random::<SALT_BYTES>()?;
        let hash = derive_blocking(token.expose_secret(), &salt);
        Ok(Self { hash: hash.map(|hash| hex(&hash)).unwrap_or_default(), salt })
    }

    /// Whether this is the token. Takes a while; not for a thread with other work.
    #[must_use]
    pub fn verifies_blocking(&self, token: &SecretString) -> bool {
        let token = token.expose_secret();
        let (Some(kept), Some(given)) = (unhex(&self.hash), derive_blocking(token, &self.salt))
        else {
            return false;
        };
        token.len() <= MAX_TOKEN_BYTES && kept.ct_eq(&given).into()
    }
}

/// A new token: 24 random bytes as 32 characters that fit into a URL.
///
/// # Errors
/// The system has no random numbers.
pub fn new_token() -> io::Result<SecretString> {
    random::<TOKEN_BYTES>().map(SecretString::from)
}

fn random<const N: usize>() -> io::Result<String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn derive_blocking(token: &str, salt: &str) -> Option<[u8; 32]> {
    let params = Params::new(14, 8, 1).ok()?;
    let mut hash = [0; 32];
    scrypt(token.as_bytes(), salt.as_bytes(), &params, &mut hash).ok()?;
    Some(hash)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let bytes = text.as_bytes();
    if bytes.len() != 64 {
        return None;
    }
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

/// What the gate says to a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Right,
    Wrong,
    /// Not looked at for this long: too many were wrong.
    TooMany(Duration),
}

/// One token's gate. Another token has another one.
#[derive(Debug)]
pub(crate) struct Gate {
    token: TokenHash,
    key: [u8; 32],
    /// The right token's digest, once it is known.
    right: Cell<Option<[u8; 32]>>,
    /// Whether the right token is shorter than new ones may be, once it is known.
    is_short: Arc<AtomicBool>,
    limiter: Rc<RefCell<Limiter>>,
    slow: Semaphore,
    waiting: Cell<usize>,
    /// Cancelled when the token is no longer the one.
    pub(crate) revoked: CancellationToken,
}

impl Gate {
    /// A gate for this token. `plain` is the token itself if that is known: it must have been verified.
    pub(crate) fn new(
        token: TokenHash,
        plain: Option<&SecretString>,
        limiter: Rc<RefCell<Limiter>>,
        is_short: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        let gate = Self {
            token,
            key,
            right: Cell::new(None),
            is_short,
            limiter,
            slow: Semaphore::new(1),
            waiting: Cell::new(0),
            revoked: CancellationToken::new(),
        };
        gate.is_short.store(false, Ordering::Relaxed);
        if let Some(plain) = plain {
            gate.remember(plain.expose_secret());
        }
        Ok(gate)
    }

    pub(crate) fn is_for(&self, token: &TokenHash) -> bool {
        self.token == *token
    }

    /// Looks at a token that came from this address.
    pub(crate) async fn check(&self, peer: IpAddr, token: &str) -> Verdict {
        if let Some(wait) = self.blocked(peer) {
            return Verdict::TooMany(wait);
        }
        let is_right = match self.is_known_right(token) {
            Some(is_right) => is_right,
            None => match self.check_slowly(token).await {
                Some(is_right) => is_right,
                None => return Verdict::TooMany(WAITING_ROOM_FULL),
            },
        };
        // While it was checked others of the same address may have been wrong too often.
        if let Some(wait) = self.blocked(peer) {
            return Verdict::TooMany(wait);
        }
        let mut limiter = self.limiter.borrow_mut();
        if is_right {
            limiter.succeeded(peer);
            return Verdict::Right;
        }
        limiter.failed(peer, Instant::now());
        Verdict::Wrong
    }

    fn blocked(&self, peer: IpAddr) -> Option<Duration> {
        self.limiter.borrow().blocked(peer, Instant::now())
    }

    /// `None`: nobody has shown the right token yet.
    fn is_known_right(&self, token: &str) -> Option<bool> {
        let digest = self.digest(token);
        self.right.get().map(|right| right.ct_eq(&digest).into())
    }

    fn digest(&self, token: &str) -> [u8; 32] {
        // Never shown to anybody, so that nobody can make use of how the key is put in front.
        Sha256::new().chain_update(self.key).chain_update(token).finalize().into()
    }

    fn remember(&self, token: &str) {
        self.is_short.store(token.len() < MIN_REMOTE_TOKEN_BYTES, Ordering::Relaxed);
        self.right.set(Some(self.digest(token)));
    }

    /// `None`: too many wait already.
    async fn check_slowly(&self, token: &str) -> Option<bool> {
        if MAX_WAITING <= self.waiting.get() || MAX_TOKEN_BYTES < token.len() {
            return None;
        }
        let _counted = Waiting::new(&self.waiting);
        let _turn = self.slow.acquire().await.ok()?;
        // Somebody before us may have been right.
        if let Some(is_right) = self.is_known_right(token) {
            return Some(is_right);
        }
        let (hash, given) = (self.token.clone(), SecretString::from(token));
        let checking = tokio::task::spawn_blocking(move || hash.verifies_blocking(&given));
        let is_right = checking.await.ok()?;
        if is_right {
            self.remember(token);
        }
        Some(is_right)
    }
}

/// Counts while it lives.
struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests;
