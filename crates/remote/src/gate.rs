//! The token of remote control: creates, hashes and verifies it.
//!
//! The hash is upstream's: scrypt over the salt's text, 16384 × 8 × 1, 32 bytes as hex. It takes about 60 ms
//! and 16 MiB by design. So it runs rarely, on a blocking thread, one check at a time. A correct token is
//! remembered as a digest with a random key of this process. Comparing with the digest is cheap and just as
//! reliable.
//!
//! [`crate::attempt_limiter`] counts wrong tokens and blocks an address after too many. During a block the
//! correct token is refused too, because a different answer would confirm a guess. Open WebSockets are not
//! affected. Every request is checked, even on a connection that has sent the correct token, because a proxy
//! may use one connection for several clients.

use crate::attempt_limiter::AttemptLimiter;
use crate::pages::{Page, TokenHolder};
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

/// Maximum length of a token, in bytes.
pub const MAX_TOKEN_BYTES: usize = 1024;

/// Random bytes in a new token and in a new salt.
const TOKEN_BYTES: usize = 24;
const SALT_BYTES: usize = 16;

/// Maximum number of waiting scrypt checks. One more is refused, with this `Retry-After` time.
const MAX_WAITING: usize = 8;
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Hash and salt of a token. `Debug` prints neither.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenHash {
    /// 64 hexadecimal digits.
    pub hash: String,
    /// Random text, used as bytes.
    pub salt: String,
}

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(hidden)")
    }
}

impl TokenHash {
    /// Hashes a token with a new salt. Takes about 60 ms, so call it on a blocking thread.
    ///
    /// # Errors
    /// The system's random source failed.
    pub fn new_blocking(token: &SecretString) -> io::Result<Self> {
        let salt = random::<SALT_BYTES>()?;
        let hash = derive_blocking(token.expose_secret(), &salt);
        Ok(Self { hash: hash.map(|hash| hex(&hash)).unwrap_or_default(), salt })
    }

    /// Returns true if `token` is the correct one. Takes about 60 ms, so call it on a blocking thread.
    #[must_use]
    pub fn verifies_blocking(&self, token: &SecretString) -> bool {
        let token = token.expose_secret();
        let Some(hash) = derive_blocking(token, &self.salt) else { return false };
        // The digits may be in upper case.
        let expected = self.hash.to_ascii_lowercase();
        token.len() <= MAX_TOKEN_BYTES && hex(&hash).as_bytes().ct_eq(expected.as_bytes()).into()
    }
}

/// Creates a token: 24 random bytes as 32 base64url characters.
///
/// # Errors
/// The system's random source failed.
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

/// Result of checking a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenCheck {
    Right(TokenHolder),
    Wrong,
    /// Not checked: too many wrong tokens or waiting checks. Retry after this time.
    TooMany(Duration),
}

/// Verifies one token. A new token gets a new verifier.
#[derive(Debug)]
pub(crate) struct TokenVerifier {
    token: TokenHash,
    key: [u8; 32],
    /// Digest of the correct token; `None` until a client has sent it.
    right: Cell<Option<[u8; 32]>>,
    /// True if the correct token is known and shorter than a new one may be.
    is_short: Arc<AtomicBool>,
    limiter: Rc<RefCell<AttemptLimiter>>,
    slow: Semaphore,
    /// Permits to wait for `slow`.
    waiting: Semaphore,
    /// Cancelled when the token was replaced.
    pub(crate) revoked: CancellationToken,
}

impl TokenVerifier {
    /// Creates a verifier of this token. `plain` is the token in plain text if it is known and verified.
    pub(crate) fn new(
        token: TokenHash,
        plain: Option<&SecretString>,
        limiter: Rc<RefCell<AttemptLimiter>>,
        is_short: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        let verifier = Self {
            token,
            key,
            right: Cell::new(None),
            is_short,
            limiter,
            slow: Semaphore::new(1),
            waiting: Semaphore::new(MAX_WAITING),
            revoked: CancellationToken::new(),
        };

        // Unknown until the token is seen in plain text.
        verifier.is_short.store(false, Ordering::Relaxed);
        if let Some(plain) = plain {
            verifier.remember(plain.expose_secret());
        }
        Ok(verifier)
    }

    pub(crate) fn is_for(&self, token: &TokenHash) -> bool {
        self.token == *token
    }

    /// Checks a token from this address and counts wrong ones. `page` is the page that has this token, if any.
    pub(crate) async fn check(&self, peer: IpAddr, token: &str, page: Option<Page>) -> TokenCheck {
        if let Some(page) = page {
            // A page token is too long to be guessed, and another site in the same browser must not block the page.
            return TokenCheck::Right(TokenHolder::Page(page));
        }
        if let Some(wait) = self.blocked(peer) {
            return TokenCheck::TooMany(wait);
        }

        let is_right = match self.is_known_right(token) {
            Some(is_right) => is_right,
            None => match self.check_slowly(token).await {
                Some(is_right) => is_right,
                None => return TokenCheck::TooMany(BUSY_RETRY_AFTER),
            },
        };
        // Other requests from this address may have been wrong during the check.
        if let Some(wait) = self.blocked(peer) {
            return TokenCheck::TooMany(wait);
        }

        self.record(peer, is_right);
        if is_right { TokenCheck::Right(TokenHolder::Main) } else { TokenCheck::Wrong }
    }

    /// Counts a token or a code of this address.
    pub(crate) fn record(&self, peer: IpAddr, is_right: bool) {
        let mut limiter = self.limiter.borrow_mut();
        if is_right {
            limiter.succeeded(peer);
        } else {
            limiter.failed(peer, Instant::now());
        }
    }

    /// Returns the remaining block of this address.
    pub(crate) fn blocked(&self, peer: IpAddr) -> Option<Duration> {
        self.limiter.borrow().blocked(peer, Instant::now())
    }

    /// Returns `None` if no client has sent the correct token yet.
    fn is_known_right(&self, token: &str) -> Option<bool> {
        let digest = self.digest(token);
        self.right.get().map(|right| right.ct_eq(&digest).into())
    }

    fn digest(&self, token: &str) -> [u8; 32] {
        // The digest never leaves the process, so length extension of a prefixed key is not a risk.
        Sha256::new().chain_update(self.key).chain_update(token).finalize().into()
    }

    fn remember(&self, token: &str) {
        self.is_short.store(token.len() < MIN_REMOTE_TOKEN_BYTES, Ordering::Relaxed);
        self.right.set(Some(self.digest(token)));
    }

    /// Checks a token by its slow hash. Returns `None` if too many checks are waiting.
    async fn check_slowly(&self, token: &str) -> Option<bool> {
        if MAX_TOKEN_BYTES < token.len() {
            return None;
        }

        let _waiting = self.waiting.try_acquire().ok()?;
        let _turn = self.slow.acquire().await.ok()?;
        // The previous check may have been of the correct token.
        if let Some(is_right) = self.is_known_right(token) {
            return Some(is_right);
        }

        // On another thread, because a check takes about 60 ms.
        let (hash, secret) = (self.token.clone(), SecretString::from(token));
        let checking = tokio::task::spawn_blocking(move || hash.verifies_blocking(&secret));
        let is_right = checking.await.ok()?;

        if is_right {
            self.remember(token);
        }
        Some(is_right)
    }
}

#[cfg(test)]
mod tests;
