//! Signs pages in and out: creates codes, exchanges them for tokens, and revokes tokens.

use super::RemoteControl;
use crate::clock::ms;
use crate::errors::MethodError;
use quackd_protocol::client::{PageCodeData, PageRights, PageTokensData};
use quackd_protocol::limits::PAGE_CODE_LIFETIME;
use quackd_remote::gate::new_token;
use quackd_remote::{CodeAnswer, Page};
use secrecy::ExposeSecret;
use std::io;
use std::time::{Instant, SystemTime};

impl RemoteControl {
    /// Creates a code with these rights, for a page under `host`.
    pub(crate) async fn page_code(
        &self,
        rights: PageRights,
        host: Option<String>,
    ) -> Result<PageCodeData, MethodError> {
        let host = host.map(|host| host.to_ascii_lowercase());
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if host
            .as_ref()
            .is_some_and(|host| host.is_empty() || 253 < host.len() || !host.chars().all(is_plain))
        {
            return Err(MethodError::PageHost);
        }

        let code = new_token().map_err(MethodError::NoRandom)?;
        self.pages.borrow_mut().add_code(&code, rights, host, Instant::now());
        self.publish_pages();
        Ok(PageCodeData {
            code: code.expose_secret().to_owned(),
            valid_ms: ms(PAGE_CODE_LIFETIME),
            status: self.status().await,
        })
    }

    /// Exchanges a code for a token, which is saved first.
    pub(crate) async fn exchange(&self, code: &str, agent: String) -> CodeAnswer {
        // First: a revocation during the wait takes the code too.
        let Ok(_turn) = self.turn.acquire().await else {
            return CodeAnswer::NotSaved(MethodError::ShuttingDown.to_string());
        };
        let Some(code) = self.pages.borrow_mut().take_code(code, Instant::now()) else {
            return CodeAnswer::Wrong;
        };
        self.pages.borrow_mut().forget_unused(SystemTime::now());
        let token = match new_token() {
            Ok(token) => token,
            Err(error) => return CodeAnswer::NotSaved(error.to_string()),
        };

        let (page, replaced) = self.pages.borrow_mut().add_token(&token, code, agent);
        if let Err(error) = self.save_pages().await {
            let mut pages = self.pages.borrow_mut();
            pages.revoke(Some(&page.id));
            pages.put_back(replaced);
            drop(pages);
            // The code is used.
            self.publish_pages();
            return CodeAnswer::NotSaved(error.to_string());
        }
        self.publish_pages();
        tracing::info!(id = %page.id, rights = ?page.rights, "page signed in");
        CodeAnswer::Token { token, page }
    }

    /// Returns the tokens.
    pub(crate) fn page_tokens(&self) -> PageTokensData {
        self.pages.borrow_mut().forget_unused(SystemTime::now());
        PageTokensData { tokens: self.pages.borrow().infos() }
    }

    /// Revokes the token with this id, or all tokens and codes. Returns the revoked tokens.
    pub(crate) async fn revoke_pages(
        &self,
        id: Option<&str>,
    ) -> Result<PageTokensData, MethodError> {
        let mut removed = self.pages.borrow_mut().revoke(id);
        if let (Some(id), true) = (id, removed.infos().is_empty()) {
            return Err(MethodError::NoPageToken(id.chars().take(100).collect()));
        }

        // In force before it is saved: a disk that hangs must not keep a page signed in.
        self.publish_pages();
        let _turn = self.turn.acquire().await.map_err(|_closed| MethodError::ShuttingDown)?;
        // An earlier change that could not be saved may have put tokens back.
        removed.add(self.pages.borrow_mut().revoke(id));
        self.publish_pages();
        let tokens = removed.infos();
        if let Err(error) = self.save_pages().await {
            self.pages.borrow_mut().put_back(removed);
            self.publish_pages();
            return Err(MethodError::PagesNotSaved(error));
        }
        Ok(PageTokensData { tokens })
    }

    /// Records that a page connected or left. Saves it from time to time.
    pub(crate) async fn page_used(&self, page: &Page) {
        let must_save = self.pages.borrow_mut().used(&page.id, Instant::now());
        // The listener must not take the token for an unused one.
        self.publish_pages();
        if !must_save {
            return;
        }
        let Ok(_turn) = self.turn.acquire().await else { return };
        if let Err(error) = self.save_pages().await {
            tracing::warn!(%error, "use of a page token not saved");
        }
    }

    fn publish_pages(&self) {
        self.door.set_pages(self.pages.borrow().pages());
    }

    /// Saves the tokens. The caller has the turn.
    async fn save_pages(&self) -> io::Result<()> {
        let save = self.pages.borrow().save();
        actix_rt::task::spawn_blocking(save).await.map_err(io::Error::other)?
    }
}
