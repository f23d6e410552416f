//! Questions to the user about hosts that no rule names, and the hosts that the user allowed once.
//!
//! Connections to one host and port share a question. The supervisor answers each question, at the latest when the
//! user has not answered in time.

use quackd_policy::hosts::Host;
use quackd_protocol::approval::AnswerScope;
use quackd_protocol::network::{
    ALLOWED_ONCE, DenyReason, FromProxy, MAX_CONNECTION_WAIT, MAX_PROXY_ASKS,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Instant;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Maximum number of connections that wait for an answer.
const MAX_WAITING: usize = 32;

/// Maximum number of hosts that are allowed once at the same time. The oldest is dropped first.
const MAX_ONCE: usize = 64;

type Answer = Result<AnswerScope, DenyReason>;

/// The questions of one proxy.
#[derive(Debug)]
pub(crate) struct Asks {
    last: Cell<u64>,
    open: RefCell<HashMap<u64, Open>>,
    waiting: Cell<usize>,
    once: RefCell<Vec<(Host, u16, Instant)>>,
    frames: mpsc::Sender<FromProxy>,
    unsent: RefCell<Option<mpsc::Receiver<FromProxy>>>,
}

/// A question without an answer.
#[derive(Debug)]
struct Open {
    host: Host,
    port: u16,
    answer: watch::Sender<Option<Answer>>,
}

/// Counts a waiting connection.
struct Waiting<'a>(&'a Cell<usize>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

impl Default for Asks {
    fn default() -> Self {
        let (frames, unsent) = mpsc::channel(MAX_PROXY_ASKS);
        Self {
            last: Cell::default(),
            open: RefCell::default(),
            waiting: Cell::default(),
            once: RefCell::default(),
            frames,
            unsent: RefCell::new(Some(unsent)),
        }
    }
}

impl Asks {
    /// Returns the questions for the supervisor. `None` at the second call.
    pub(crate) fn take_unsent(&self) -> Option<mpsc::Receiver<FromProxy>> {
        self.unsent.take()
    }

    /// Asks about a connection, and waits for the answer.
    ///
    /// `name`: the name that led to an address of a local network.
    pub(crate) async fn ask(&self, host: &Host, port: u16, name: Option<&str>) -> Answer {
        if MAX_WAITING <= self.waiting.get() {
            return Err(DenyReason::TooManyAsks);
        }

        self.waiting.set(self.waiting.get() + 1);
        let _waiting = Waiting(&self.waiting);

        let mut answered = self.subscribe(host, port, name)?;
        let waiting = answered.wait_for(Option::is_some);
        match timeout(MAX_CONNECTION_WAIT, waiting).await {
            Ok(Ok(answer)) => answer.unwrap_or(Err(DenyReason::Timeout)),
            // The question stays open: a late answer helps the next attempt.
            Ok(Err(_)) | Err(_) => Err(DenyReason::Timeout),
        }
    }

    /// Returns the answer of the open question about the host and port. Opens one if there is none.
    fn subscribe(
        &self,
        host: &Host,
        port: u16,
        name: Option<&str>,
    ) -> Result<watch::Receiver<Option<Answer>>, DenyReason> {
        let mut open = self.open.borrow_mut();
        if let Some(same) = open.values().find(|open| open.host == *host && open.port == port) {
            return Ok(same.answer.subscribe());
        }

        if MAX_PROXY_ASKS <= open.len() {
            return Err(DenyReason::TooManyAsks);
        }

        let id = self.last.get() + 1;
        self.last.set(id);
        let name = name.map(str::to_owned);
        let frame = FromProxy::Ask { id, host: host.to_string(), port, name };
        // A full channel means that the supervisor is slow.
        self.frames.try_send(frame).map_err(|_full| DenyReason::TooManyAsks)?;

        let (answer, answered) = watch::channel(None);
        open.insert(id, Open { host: host.clone(), port, answer });
        Ok(answered)
    }

    /// Passes an answer on to the waiting connections.
    pub(crate) fn answered(&self, id: u64, result: Answer) {
        let Some(open) = self.open.borrow_mut().remove(&id) else { return };
        if result == Ok(AnswerScope::Once) {
            self.allow_once(open.host, open.port);
        }
        open.answer.send_replace(Some(result));
    }

    /// Allows connections to a host and port for [`ALLOWED_ONCE`].
    pub(crate) fn allow_once(&self, host: Host, port: u16) {
        let mut once = self.once.borrow_mut();
        once.retain(|(known, known_port, _)| (known, *known_port) != (&host, port));
        if once.len() == MAX_ONCE {
            once.remove(0);
        }
        once.push((host, port, Instant::now()));
    }

    /// Forgets what the user has allowed once.
    pub(crate) fn forget_once(&self) {
        self.once.borrow_mut().clear();
    }

    /// Whether the user has allowed the host and port once. Port 0 stands for any port.
    pub(crate) fn is_allowed_once(&self, host: &Host, port: u16) -> bool {
        let mut once = self.once.borrow_mut();
        once.retain(|(_, _, at)| at.elapsed() < ALLOWED_ONCE);
        once.iter()
            .any(|(known, known_port, _)| known == host && (port == 0 || *known_port == port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::read(text).unwrap()
    }

    #[tokio::test]
    async fn equal_connections_share_a_question_and_its_answer() {
        let asks = Asks::default();
        let mut unsent = asks.take_unsent().unwrap();
        let (a, b) = (host("a.example"), host("b.example"));
        let answering = async {
            let Some(FromProxy::Ask { id, host, port, .. }) = unsent.recv().await else { panic!() };
            assert_eq!((host.as_str(), port), ("a.example", 443));
            let Some(FromProxy::Ask { id: other, .. }) = unsent.recv().await else { panic!() };
            assert!(unsent.try_recv().is_err(), "one question for two connections");
            asks.answered(other, Err(DenyReason::DeniedByUser));
            asks.answered(id, Ok(AnswerScope::Once));
        };
        let asked = futures_util::future::join3(
            asks.ask(&a, 443, None),
            asks.ask(&a, 443, None),
            asks.ask(&b, 443, None),
        );
        let (answers, ()) = tokio::join!(asked, answering);
        let once = Ok(AnswerScope::Once);
        assert_eq!(answers, (once, once, Err(DenyReason::DeniedByUser)));
        assert!(asks.is_allowed_once(&a, 443) && asks.is_allowed_once(&a, 0));
        assert!(!asks.is_allowed_once(&a, 80) && !asks.is_allowed_once(&b, 443));
        assert_eq!(asks.waiting.get(), 0);
    }

    #[tokio::test]
    async fn questions_and_waiting_connections_are_bounded() {
        let asks = Asks::default();
        let name = |n: usize| host(&format!("h{n}.example"));
        for n in 0..MAX_PROXY_ASKS {
            assert!(asks.subscribe(&name(n), 443, None).is_ok());
        }
        assert_eq!(asks.subscribe(&name(99), 443, None).err(), Some(DenyReason::TooManyAsks));
        asks.waiting.set(MAX_WAITING);
        assert_eq!(asks.ask(&name(0), 443, None).await, Err(DenyReason::TooManyAsks));
        for n in 0..1000 {
            asks.allow_once(name(n), 443);
        }
        assert_eq!(asks.once.borrow().len(), MAX_ONCE);
    }
}
