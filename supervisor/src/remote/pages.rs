//! Pages in a browser: one-time codes, the tokens that pages get for them, and the file of the tokens.
//!
//! The listener checks tokens and codes, and gets a copy of their hashes with each change. Codes are only in memory.

use crate::clock::now_text;
use quackd_home::own_file::read_blocking;
use quackd_protocol::client::{PageRights, PageTokenInfo};
use quackd_protocol::limits::{
    MAX_PAGE_CODES, MAX_PAGE_TOKENS, PAGE_CODE_LIFETIME, PAGE_TOKEN_LIFETIME,
};
use quackd_remote::{Page, PageSecret, PageToken, PageTokenHash, Pages};
use quackd_store::{replace_file_blocking, set_aside_blocking};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// Maximum size of the file, in bytes. Each token needs less than 1 KiB.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Interval at which uses of tokens are saved.
const USE_SAVE_INTERVAL: Duration = Duration::from_secs(3600);

/// The codes and tokens.
#[derive(Debug)]
pub(crate) struct PageAccess {
    path: PathBuf,
    /// The oldest first.
    codes: Vec<PageCode>,
    /// The one first that was not used for longest.
    tokens: Vec<StoredToken>,
    /// When the last use of a token was saved by this daemon.
    use_saved: Option<Instant>,
}

/// A code that is not used yet.
#[derive(Debug)]
pub(super) struct PageCode {
    hash: PageTokenHash,
    rights: PageRights,
    host: Option<String>,
    expires: Instant,
}

/// A token in the file. Unknown keys of a later version are dropped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredToken {
    hash: String,
    /// Host name of the page, if the listener must know it. Valid as long as the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(flatten)]
    info: PageTokenInfo,
}

impl StoredToken {
    /// Returns when the token expires if it is not used. A damaged time counts as long ago.
    fn expires(&self) -> SystemTime {
        let used: Result<jiff::Timestamp, _> = self.info.last_used.parse();
        used.map_or(SystemTime::UNIX_EPOCH, |used| SystemTime::from(used) + PAGE_TOKEN_LIFETIME)
    }
}

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct TokenFile {
    tokens: Vec<StoredToken>,
}

impl PageAccess {
    /// Reads the tokens. Quarantines an unusable file: then no page has a token.
    pub(super) fn load_blocking(path: PathBuf) -> Self {
        let read = read_blocking(&path, MAX_FILE_BYTES)
            .and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::other));
        let mut file: TokenFile = match read {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => TokenFile::default(),
            Err(error) => {
                let kept = set_aside_blocking(&path).map(|kept| kept.display().to_string());
                tracing::error!(%error, ?kept, "page tokens are unusable, pages must sign in again");
                TokenFile::default()
            }
        };
        file.tokens.truncate(MAX_PAGE_TOKENS);
        let mut access = Self { path, codes: Vec::new(), tokens: file.tokens, use_saved: None };
        access.forget_unused(SystemTime::now());
        access
    }

    /// Removes the tokens that were not used for too long. The file has them until the next change.
    pub(super) fn forget_unused(&mut self, now: SystemTime) {
        self.tokens.retain(|token| now < token.expires());
    }

    /// Adds a code. The oldest of too many is dropped.
    pub(super) fn add_code(
        &mut self,
        code: &SecretString,
        rights: PageRights,
        host: Option<String>,
        now: Instant,
    ) {
        self.forget_expired(now);
        if MAX_PAGE_CODES <= self.codes.len() {
            self.codes.remove(0);
        }
        let hash = PageTokenHash::of(code.expose_secret());
        self.codes.push(PageCode { hash, rights, host, expires: now + PAGE_CODE_LIFETIME });
    }

    /// Returns the code's entry, once.
    pub(super) fn take_code(&mut self, code: &str, now: Instant) -> Option<PageCode> {
        self.forget_expired(now);
        let hash = PageTokenHash::of(code);
        let at = self.codes.iter().position(|known| known.hash.is(&hash))?;
        Some(self.codes.remove(at))
    }

    fn forget_expired(&mut self, now: Instant) {
        self.codes.retain(|code| now < code.expires);
    }

    /// Adds a token. Replaces the one that was not used for longest if there are too many. Returns the page and the
    /// replaced token.
    pub(super) fn add_token(
        &mut self,
        token: &SecretString,
        code: PageCode,
        agent: String,
    ) -> (Page, Removed) {
        let hash = PageTokenHash::of(token.expose_secret());
        let [a, b, c, d, ..] = hash.0;
        // The id tells nothing useful about a random token.
        let id = format!("{:08x}", u32::from_be_bytes([a, b, c, d]));
        let page = Page { id: id.as_str().into(), rights: code.rights };

        let too_many = (self.tokens.len() + 1).saturating_sub(MAX_PAGE_TOKENS);
        let replaced = Removed(self.tokens.drain(..too_many).collect());
        let now = now_text();
        let info =
            PageTokenInfo { id, created: now.clone(), last_used: now, rights: code.rights, agent };
        self.tokens.push(StoredToken { hash: hash.to_text(), host: code.host, info });
        (page, replaced)
    }

    /// Puts tokens back whose removal was not saved: they would be valid again after a restart.
    pub(super) fn put_back(&mut self, removed: Removed) {
        self.tokens.extend(removed.0);
        self.tokens.sort_by(|one, other| one.info.last_used.cmp(&other.info.last_used));
    }

    /// Removes the token with this id, or all tokens and codes. Returns the removed tokens.
    pub(super) fn revoke(&mut self, id: Option<&str>) -> Removed {
        let is_meant = |token: &StoredToken| id.is_none_or(|id| token.info.id == id);
        if id.is_none() {
            self.codes.clear();
        }
        let (revoked, kept) = self.tokens.drain(..).partition(is_meant);
        self.tokens = kept;
        Removed(revoked)
    }

    /// Records the use of a token. Returns whether the uses must be saved.
    pub(super) fn used(&mut self, id: &str, now: Instant) -> bool {
        let Some(at) = self.tokens.iter().position(|token| token.info.id == id) else {
            return false;
        };
        let mut token = self.tokens.remove(at);
        token.info.last_used = now_text();
        self.tokens.push(token);

        let is_due = |saved: Instant| USE_SAVE_INTERVAL <= now.saturating_duration_since(saved);
        let must_save = self.use_saved.is_none_or(is_due);
        if must_save {
            self.use_saved = Some(now);
        }
        must_save
    }

    /// Returns the tokens without their hashes.
    pub(super) fn infos(&self) -> Vec<PageTokenInfo> {
        infos(&self.tokens)
    }

    /// Returns a function that saves the tokens, and blocks.
    pub(super) fn save(&self) -> impl FnOnce() -> io::Result<()> + use<> {
        let (path, tokens) = (self.path.clone(), self.tokens.clone());
        move || replace_file_blocking(&path, &serde_json::to_vec(&TokenFile { tokens })?)
    }

    /// Returns the part that the listener checks. Skips tokens with a damaged hash.
    pub(super) fn pages(&self) -> Pages {
        let token = |token: &StoredToken| {
            let page = Page { id: token.info.id.as_str().into(), rights: token.info.rights };
            let (hash, host) = (PageTokenHash::parse(&token.hash)?, token.host.clone());
            let secret = PageSecret { hash, host, expires: token.expires() };
            Some(PageToken { secret, page })
        };
        let (now, wall_clock) = (Instant::now(), SystemTime::now());
        let code = |code: &PageCode| PageSecret {
            hash: code.hash,
            host: code.host.clone(),
            expires: wall_clock + code.expires.saturating_duration_since(now),
        };
        Pages {
            tokens: self.tokens.iter().filter_map(token).collect(),
            codes: self.codes.iter().map(code).collect(),
        }
    }
}

/// Tokens that are no longer valid, until that is saved.
#[derive(Debug)]
pub(super) struct Removed(Vec<StoredToken>);

impl Removed {
    pub(super) fn add(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Returns the tokens without their hashes.
    pub(super) fn infos(&self) -> Vec<PageTokenInfo> {
        infos(&self.0)
    }
}

fn infos(tokens: &[StoredToken]) -> Vec<PageTokenInfo> {
    tokens.iter().map(|token| token.info.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_remote::gate::new_token;
    use std::path::Path;

    fn access(path: &Path) -> PageAccess {
        PageAccess::load_blocking(path.to_owned())
    }

    fn code_of(access: &mut PageAccess, now: Instant) -> SecretString {
        let code = new_token().unwrap();
        access.add_code(&code, PageRights { apply: true, ..PageRights::default() }, None, now);
        code
    }

    #[test]
    fn a_code_works_once_and_for_ten_minutes_and_the_oldest_of_too_many_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let mut access = access(&dir.path().join("f"));
        let now = Instant::now();
        let first = code_of(&mut access, now);
        let codes: Vec<_> = (0..MAX_PAGE_CODES).map(|_| code_of(&mut access, now)).collect();
        assert_eq!(access.codes.len(), MAX_PAGE_CODES);
        let last = now + PAGE_CODE_LIFETIME - Duration::from_secs(1);
        assert!(access.take_code(first.expose_secret(), now).is_none(), "dropped");
        assert!(access.take_code(codes[0].expose_secret(), last).unwrap().rights.apply);
        assert!(access.take_code(codes[0].expose_secret(), last).is_none(), "used");
        assert!(access.take_code("", last).is_none());
        let expired = now + PAGE_CODE_LIFETIME;
        assert!(access.take_code(codes[1].expose_secret(), expired).is_none(), "expired");
        assert!(access.codes.is_empty());
    }

    #[test]
    fn tokens_are_saved_as_hashes_and_the_least_used_of_too_many_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page-tokens.json");
        let mut access = access(&path);
        let now = Instant::now();
        let add = |access: &mut PageAccess| {
            let code = code_of(access, now);
            let code = access.take_code(code.expose_secret(), now).unwrap();
            let token = new_token().unwrap();
            (access.add_token(&token, code, "browser".into()).0, token)
        };
        let (first, token) = add(&mut access);
        let (second, _) = add(&mut access);
        for _ in 2..MAX_PAGE_TOKENS {
            add(&mut access);
        }
        assert!(access.used(&first.id, now), "the first use is saved");
        assert!(!access.used(&first.id, now) && !access.used("none", now));
        add(&mut access);
        let ids = |access: &PageAccess| -> Vec<String> {
            infos(&access.tokens).into_iter().map(|it| it.id).collect()
        };
        let known = ids(&access);
        assert_eq!(known.len(), MAX_PAGE_TOKENS);
        assert!(
            known.iter().any(|id| **id == *first.id) && !known.iter().any(|id| **id == *second.id)
        );

        access.save()().unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains(token.expose_secret()));
        let mut read = PageAccess::load_blocking(path.clone());
        assert_eq!(read.tokens, access.tokens);
        assert_eq!(read.pages().tokens.len(), MAX_PAGE_TOKENS);
        let removed = read.revoke(Some(&first.id));
        assert_eq!((removed.infos().len(), read.tokens.len()), (1, MAX_PAGE_TOKENS - 1));
        read.put_back(removed);
        assert_eq!(ids(&read).len(), MAX_PAGE_TOKENS);
        assert_eq!(read.revoke(Some(&first.id)).infos().len(), 1);
        assert_eq!(read.revoke(Some(&first.id)).infos().len(), 0);
        assert_eq!(read.revoke(None).infos().len(), MAX_PAGE_TOKENS - 1);

        let month = PAGE_TOKEN_LIFETIME + Duration::from_secs(2);
        let mut read = PageAccess::load_blocking(path.clone());
        read.forget_unused(SystemTime::now() + month / 2);
        assert_eq!(read.tokens.len(), MAX_PAGE_TOKENS);
        read.tokens[0].info.last_used = "2020-01-01T00:00:00Z".to_owned();
        read.tokens[1].info.last_used = "?".to_owned();
        read.save()().unwrap();
        let mut read = PageAccess::load_blocking(path.clone());
        assert_eq!(read.tokens.len(), MAX_PAGE_TOKENS - 2);
        assert!(SystemTime::now() + month / 2 < read.pages().tokens[0].secret.expires);
        read.forget_unused(SystemTime::now() + month);
        assert!(read.tokens.is_empty());

        std::fs::write(&path, "{").unwrap();
        assert!(PageAccess::load_blocking(path.clone()).tokens.is_empty());
        assert!(!path.exists(), "moved aside");
    }
}
