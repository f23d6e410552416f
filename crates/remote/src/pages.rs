//! Pages in a browser: their tokens, as far as the listener needs them, and the check of where a request comes from.
//!
//! The supervisor owns the codes and tokens, and sends each change to [`crate::Remote::set_pages`]. A token is random,
//! so its SHA-256 is enough to check it. It is bound to the page: a browser that sends it for another site is refused.

use crate::host_header::DialedHost;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::HeaderMap;
use hyper::header::ORIGIN;
use quackd_protocol::client::PageRights;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::SystemTime;
use subtle::ConstantTimeEq;

/// The page tokens and codes.
#[derive(Debug, Clone, Default)]
pub struct Pages {
    /// The tokens of pages.
    pub tokens: Vec<PageToken>,
    /// The codes that are not used.
    pub codes: Vec<PageSecret>,
}

/// A page token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageToken {
    /// Hash, host and end of the token.
    pub secret: PageSecret,
    /// The page that has the token.
    pub page: Page,
}

/// A page token or a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSecret {
    /// Hash of the token or code.
    pub hash: PageTokenHash,
    /// Host name under which browsers may reach the page, in addition to IP addresses, `localhost` and the configured
    /// host. Another name may be one that a hostile site has pointed to this machine (DNS rebinding).
    pub host: Option<String>,
    /// When it expires, unless it is replaced before.
    pub expires: SystemTime,
}

impl PageSecret {
    fn is_valid(&self) -> bool {
        SystemTime::now() < self.expires
    }
}

/// A page with a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Id of the token.
    pub id: Arc<str>,
    /// Rights of the token.
    pub rights: PageRights,
}

/// SHA-256 of a page token. `Debug` does not print it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PageTokenHash(
    /// The digest.
    pub [u8; 32],
);

impl std::fmt::Debug for PageTokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PageTokenHash(hidden)")
    }
}

impl PageTokenHash {
    /// Hashes a token or a code.
    #[must_use]
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Compares two hashes in constant time.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// Parses the text of [`Self::to_text`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }

    /// Returns the hash as base64url.
    #[must_use]
    pub fn to_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }
}

/// Holder of a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenHolder {
    /// A client with the token of remote control.
    Main,
    /// A page with its own token.
    Page(Page),
}

impl TokenHolder {
    pub(crate) fn page(self) -> Option<Page> {
        match self {
            Self::Main => None,
            Self::Page(page) => Some(page),
        }
    }
}

impl Pages {
    /// Returns the page with this token, unless it has expired. Takes the same time for every token.
    pub(crate) fn find(&self, token: &str) -> Option<Page> {
        let hash = PageTokenHash::of(token);
        let mut found = None;
        for valid in &self.tokens {
            if valid.secret.hash.is(&hash) && valid.secret.is_valid() {
                found = Some(valid.page.clone());
            }
        }
        found
    }

    /// Returns whether this is a code that is not used. Takes the same time for every code.
    pub(crate) fn has_code(&self, code: &str) -> bool {
        let hash = PageTokenHash::of(code);
        let is_right = |known: &&PageSecret| known.hash.is(&hash) && known.is_valid();
        self.codes.iter().filter(is_right).count() != 0
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.tokens.iter().any(|token| &*token.page.id == id)
    }

    fn hosts(&self) -> impl Iterator<Item = &str> {
        let of_tokens = self.tokens.iter().map(|token| &token.secret);
        let valid = of_tokens.chain(&self.codes).filter(|secret| secret.is_valid());
        valid.filter_map(|secret| secret.host.as_deref())
    }

    /// Returns true for the request of a browser that shows another site, or reached this machine under an unknown name.
    /// A request without `Origin` is not from the script of a page.
    pub(crate) fn is_foreign(
        &self,
        headers: &HeaderMap,
        seen: Option<&DialedHost>,
        configured: &str,
    ) -> bool {
        let mut origins = headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else { return false };
        let Some(seen) = seen.filter(|_| origins.next().is_none()) else { return true };

        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        // The scheme may differ: a proxy may end TLS.
        let is_own = origin.is_some_and(|(_, site)| site.eq_ignore_ascii_case(&seen.authority));
        let is_known = |name: &str| seen.is_named(name);
        !is_own || !(seen.is_address() || is_known(configured) || self.hosts().any(is_known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HOST, HeaderValue};
    use std::time::Duration;

    fn secret(text: &str, host: Option<&str>, seconds: u64) -> PageSecret {
        let (hash, host) = (PageTokenHash::of(text), host.map(str::to_owned));
        PageSecret { hash, host, expires: SystemTime::now() + Duration::from_secs(seconds) }
    }

    #[test]
    fn a_browser_with_another_site_or_under_an_unknown_name_is_foreign() {
        let secret = |host: &str, until| secret("", Some(host), until);
        let codes = vec![secret("Duck.example", 60), secret("expired.example", 0)];
        let pages = Pages { codes, ..Pages::default() };
        for (host, origin, is_foreign) in [
            ("127.0.0.1:7", "http://127.0.0.1:7", false),
            ("localhost:7", "http://LOCALHOST:7", false),
            ("[::1]:7", "http://[::1]:7", false),
            ("192.168.1.2:7", "http://192.168.1.2:7", false),
            ("duck.example", "https://duck.example", false),
            ("my-mac:7", "http://my-mac:7", false),
            ("127.0.0.1:7", "http://127.0.0.1:8", true),
            ("127.0.0.1:7", "http://localhost:7", true),
            ("127.0.0.1:7", "https://evil.example", true),
            ("127.0.0.1:7", "null", true),
            ("127.0.0.1:7", "", true),
            ("127.0.0.1:7", "http://127.0.0.1:7/", true),
            ("evil.example:7", "http://evil.example:7", true),
            ("expired.example", "https://expired.example", true),
            ("127.0.0.1.evil.example:7", "http://127.0.0.1.evil.example:7", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            let seen = DialedHost::read(&headers).unwrap();
            assert!(!pages.is_foreign(&headers, seen.as_ref(), "my-mac"), "{host}: no origin");
            headers.insert(ORIGIN, HeaderValue::from_static(origin));
            let found = pages.is_foreign(&headers, seen.as_ref(), "my-mac");
            assert_eq!(found, is_foreign, "{host} {origin}");
            assert!(pages.is_foreign(&headers, None, "my-mac"));
            headers.append(ORIGIN, HeaderValue::from_static(origin));
            assert!(pages.is_foreign(&headers, seen.as_ref(), "my-mac"), "two");
        }
    }

    #[test]
    fn a_token_is_found_by_its_hash_and_a_hash_is_written_as_text() {
        let page = Page { id: "a".into(), rights: PageRights::default() };
        let hash = PageTokenHash::of("right");
        let token =
            |text, until| PageToken { secret: secret(text, None, until), page: page.clone() };
        let codes = vec![secret("code", None, 60), secret("expired", None, 0)];
        let pages = Pages { tokens: vec![token("right", 60), token("expired", 0)], codes };
        assert_eq!((pages.find("right"), pages.find("wrong")), (Some(page.clone()), None));
        assert_eq!((pages.find("expired"), pages.find("code")), (None, None));
        assert!(pages.has_code("code") && !pages.has_code("expired") && !pages.has_code("right"));
        assert!(pages.has("a") && !pages.has("b"));
        assert_eq!(PageTokenHash::parse(&hash.to_text()), Some(hash));
        for bad in ["", "x", &hash.to_text()[1..]] {
            assert_eq!(PageTokenHash::parse(bad), None, "{bad}");
        }
    }
}
