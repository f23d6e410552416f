//! Requests for credentials of the user, which the supervisor answers, and the credentials of repositories that are kept
//! for a short time.

use hyper::header::HeaderValue;
use quackd_protocol::credentials::{
    CREDENTIAL_KEPT, CredentialAnswer, CredentialRefusal, CredentialRequest,
    MAX_CREDENTIAL_REQUESTS, Repository,
};
use quackd_protocol::network::FromProxy;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

/// Longest time that a command waits for an answer. The supervisor answers earlier, also if the user does not.
const MAX_WAIT: Duration = Duration::from_secs(10 * 60);

/// Time between two requests. The supervisor starts a process for each.
const PAUSE: Duration = Duration::from_millis(20);

/// Maximum number of kept credentials. The oldest is dropped first.
const MAX_KEPT: usize = 64;

/// Answer of the supervisor to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Result<CredentialAnswer, CredentialRefusal>,
    /// Text of the use.
    pub(crate) used_as: Option<String>,
}

impl From<CredentialRefusal> for Answer {
    fn from(why: CredentialRefusal) -> Self {
        Self { result: Err(why), used_as: None }
    }
}

/// Credentials of one session.
pub(crate) struct Credentials {
    last: Cell<u64>,
    open: RefCell<HashMap<u64, oneshot::Sender<Answer>>>,
    /// When the next request may be sent.
    next: Cell<Option<Instant>>,
    frames: mpsc::Sender<FromProxy>,
    unsent: RefCell<Option<mpsc::Receiver<FromProxy>>>,
    kept: RefCell<Vec<Kept>>,
    /// Number of times that all were dropped.
    generation: Cell<u64>,
}

struct Kept {
    repository: Repository,
    push: bool,
    /// `None` if it has expired: a request of the same command needs another one.
    value: Option<HeaderValue>,
    at: Instant,
}

/// Credential of a repository, as far as it is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Value(HeaderValue),
    /// The repository needs one, which has expired.
    Expired,
    /// None was needed so far.
    Nothing,
}

impl Default for Credentials {
    fn default() -> Self {
        let (frames, unsent) = mpsc::channel(MAX_CREDENTIAL_REQUESTS);
        Self {
            last: Cell::default(),
            open: RefCell::default(),
            next: Cell::default(),
            frames,
            unsent: RefCell::new(Some(unsent)),
            kept: RefCell::default(),
            generation: Cell::default(),
        }
    }
}

impl Credentials {
    /// Returns the requests for the supervisor. `None` at the second call.
    pub(crate) fn take_unsent(&self) -> Option<mpsc::Receiver<FromProxy>> {
        self.unsent.take()
    }

    /// Sends a request and waits for the answer.
    pub(crate) async fn ask(&self, request: CredentialRequest) -> Answer {
        let turn = self.next.get().map_or_else(Instant::now, |next| next.max(Instant::now()));
        self.next.set(Some(turn + PAUSE));
        sleep_until(turn).await;

        let answered = match self.send(request) {
            Ok(answered) => answered,
            Err(why) => return why.into(),
        };
        match timeout(MAX_WAIT, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => CredentialRefusal::Timeout.into(),
        }
    }

    fn send(
        &self,
        request: CredentialRequest,
    ) -> Result<oneshot::Receiver<Answer>, CredentialRefusal> {
        let mut open = self.open.borrow_mut();
        if MAX_CREDENTIAL_REQUESTS <= open.len() {
            return Err(CredentialRefusal::TooMany);
        }

        let id = self.last.get() + 1;
        self.last.set(id);
        let frame = FromProxy::Credential { id, request };
        // A full channel means that the supervisor is slow.
        self.frames.try_send(frame).map_err(|_full| CredentialRefusal::TooMany)?;
        let (answer, answered) = oneshot::channel();
        open.insert(id, answer);
        Ok(answered)
    }

    /// Passes an answer on to the request.
    pub(crate) fn answered(&self, id: u64, answer: Answer) {
        if let Some(open) = self.open.borrow_mut().remove(&id) {
            // The command may be gone.
            open.send(answer).ok();
        }
    }

    /// Returns the kept credential of a repository. One to write also serves to read.
    pub(crate) fn known(&self, repository: &Repository, push: bool) -> Known {
        self.expire();
        let kept = self.kept.borrow();
        let found =
            kept.iter().rev().find(|one| one.repository == *repository && (one.push || !push));
        match found.map(|one| one.value.clone()) {
            Some(Some(value)) => Known::Value(value),
            Some(None) => Known::Expired,
            None => Known::Nothing,
        }
    }

    /// Returns the number for [`Self::keep`]. Read it before the request for the credential.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Keeps a credential for [`CREDENTIAL_KEPT`]. Not if all were dropped since it was requested: its grant may be gone.
    pub(crate) fn keep(
        &self,
        repository: &Repository,
        push: bool,
        value: HeaderValue,
        generation: u64,
    ) {
        if generation != self.generation.get() {
            return;
        }
        let mut kept = self.kept.borrow_mut();
        kept.retain(|one| (&one.repository, one.push) != (repository, push));
        if kept.len() == MAX_KEPT {
            kept.remove(0);
        }
        let (repository, value) = (repository.clone(), Some(value));
        kept.push(Kept { repository, push, value, at: Instant::now() });
    }

    /// Drops the credentials of a repository: the server does not accept one.
    pub(crate) fn drop_kept(&self, repository: &Repository) {
        self.kept.borrow_mut().retain(|one| one.repository != *repository);
    }

    /// Drops all credentials.
    pub(crate) fn forget(&self) {
        self.generation.update(|generation| generation + 1);
        self.kept.borrow_mut().clear();
    }

    /// Drops credentials whose time is over.
    pub(crate) fn expire(&self) {
        for one in self.kept.borrow_mut().iter_mut() {
            if CREDENTIAL_KEPT <= one.at.elapsed() {
                one.value = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(path: &str) -> Repository {
        Repository::new("git.example", path).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_credential_serves_its_repository_and_use_for_a_short_time() {
        let credentials = Credentials::default();
        let (app, value) = (repository("me/app"), HeaderValue::from_static("Basic x"));
        let known = |path: &str, push| credentials.known(&repository(path), push);
        credentials.keep(&app, false, value.clone(), 0);
        assert_eq!(known("me/app", false), Known::Value(value.clone()));
        assert_eq!(known("me/app", true), Known::Nothing);
        assert_eq!(known("me/other", false), Known::Nothing);

        credentials.drop_kept(&app);
        assert_eq!(known("me/app", false), Known::Nothing);
        credentials.keep(&app, true, value.clone(), 0);
        assert_eq!(known("me/app", false), Known::Value(value.clone()), "writing includes reading");
        assert_eq!(known("me/app", true), Known::Value(value.clone()));
        tokio::time::advance(CREDENTIAL_KEPT).await;
        assert_eq!(known("me/app", true), Known::Expired);
        credentials.forget();
        assert_eq!(known("me/app", true), Known::Nothing);

        // It was requested before all were dropped.
        credentials.keep(&app, true, value.clone(), 0);
        assert_eq!(known("me/app", true), Known::Nothing);

        let generation = credentials.generation();
        for n in 0..1000 {
            credentials.keep(&repository(&format!("me/{n}")), false, value.clone(), generation);
        }
        assert_eq!(credentials.kept.borrow().len(), MAX_KEPT);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_bounded_and_get_their_own_answer() {
        let credentials = Credentials::default();
        let mut unsent = credentials.take_unsent().unwrap();
        let waiting: Vec<_> = (0..MAX_CREDENTIAL_REQUESTS)
            .map(|_| credentials.send(CredentialRequest::Keys {}).unwrap())
            .collect();
        let refused = credentials.ask(CredentialRequest::Keys {}).await;
        assert_eq!(refused.result, Err(CredentialRefusal::TooMany));

        let mut ids = Vec::new();
        while let Ok(FromProxy::Credential { id, .. }) = unsent.try_recv() {
            ids.push(id);
        }
        for id in ids.into_iter().rev() {
            let answer = CredentialAnswer::Signature(id.to_string());
            credentials.answered(id, Answer { result: Ok(answer), used_as: None });
            // A second answer changes nothing.
            credentials.answered(id, CredentialRefusal::Denied.into());
        }
        for (n, answered) in (1..).zip(waiting) {
            let expected = CredentialAnswer::Signature(format!("{n}"));
            assert_eq!(answered.await.unwrap().result, Ok(expected));
        }
    }
}
