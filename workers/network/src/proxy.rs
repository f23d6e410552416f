//! The rules of the session, and the decision about each request.

use crate::log::Log;
use crate::pair::Pair;
use quackd_network::synthetic::SyntheticAddresses;
use quackd_policy::hosts::{Decision, Host, HostRules, RuleError};
use quackd_protocol::limits::MAX_APPROVALS_PER_SESSION;
use quackd_protocol::network::{
    Answer, DenyReason, FailReason, FromProxy, LogEntry, ONCE_SECONDS, RequestPath, Rules, Scope,
    ToWorkerPacket, Verdict,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// Most connections at the same time.
const MAX_CONNECTIONS: usize = 1024;

/// Most connections to one host at the same time.
const MAX_PER_HOST: usize = 128;

/// Most connections that wait for an answer.
const MAX_WAITING: usize = 32;

/// Longest time that a connection waits for an answer. The supervisor answers earlier.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// A request of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) path: RequestPath,
}

/// A request that may pass.
#[derive(Debug, Clone, Default)]
pub(crate) struct Admitted {
    /// True if traffic on ports 80 and 443 need not be HTTP or TLS.
    pub(crate) raw: bool,
    /// The rule, for the log.
    pub(crate) rule: Option<String>,
}

/// A question for the user, with the connections that wait for it.
#[derive(Debug, Default)]
struct Question {
    id: u64,
    waiting: Vec<oneshot::Sender<Answer>>,
}

/// State of the proxy. On one thread.
pub(crate) struct Proxy {
    rules: RefCell<Rc<HostRules>>,
    may_ask: Cell<bool>,
    /// Counts changes of the rules.
    pub(crate) version: watch::Sender<u64>,
    pub(crate) addresses: RefCell<SyntheticAddresses>,
    pub(crate) log: Log,
    pub(crate) pair: Pair,
    pub(crate) frames: mpsc::Sender<FromProxy>,
    questions: RefCell<HashMap<(Host, u16), Question>>,
    last_question: Cell<u64>,
    /// Hosts and ports that the user allowed once, and until when.
    once: RefCell<HashMap<(Host, u16), Instant>>,
    connections: Cell<usize>,
    by_host: RefCell<HashMap<Host, usize>>,
}

/// A place among the connections.
pub(crate) struct Slot {
    proxy: Rc<Proxy>,
    host: Option<Host>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.proxy.connections.set(self.proxy.connections.get().saturating_sub(1));
        let Some(host) = self.host.take() else { return };
        let mut by_host = self.proxy.by_host.borrow_mut();
        if let Some(n) = by_host.get_mut(&host) {
            *n = n.saturating_sub(1);
            if *n == 0 {
                by_host.remove(&host);
            }
        }
    }
}

impl Slot {
    /// Counts the connection for its host. False if the host has too many.
    pub(crate) fn count_for(&mut self, host: &Host) -> bool {
        let mut by_host = self.proxy.by_host.borrow_mut();
        let n = by_host.entry(host.clone()).or_default();
        if MAX_PER_HOST <= *n {
            return false;
        }
        *n += 1;
        self.host = Some(host.clone());
        true
    }
}

impl Proxy {
    pub(crate) fn new(
        rules: &Rules,
        pair: Pair,
        frames: mpsc::Sender<FromProxy>,
    ) -> Result<Self, RuleError> {
        Ok(Self {
            rules: RefCell::new(Rc::new(HostRules::parse(&rules.rules)?)),
            may_ask: Cell::new(rules.may_ask),
            version: watch::Sender::new(0),
            addresses: RefCell::default(),
            log: Log::default(),
            pair,
            frames,
            questions: RefCell::default(),
            last_question: Cell::new(0),
            once: RefCell::default(),
            connections: Cell::new(0),
            by_host: RefCell::default(),
        })
    }

    /// Replaces the rules. Running connections look at them again.
    pub(crate) fn set_rules(&self, rules: &Rules) -> Result<(), RuleError> {
        *self.rules.borrow_mut() = Rc::new(HostRules::parse(&rules.rules)?);
        self.may_ask.set(rules.may_ask);
        self.version.send_modify(|version| *version += 1);
        Ok(())
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> Rc<HostRules> {
        Rc::clone(&self.rules.borrow())
    }

    /// Takes a place for a new connection.
    pub(crate) fn slot(self: &Rc<Self>) -> Option<Slot> {
        if MAX_CONNECTIONS <= self.connections.get() {
            return None;
        }
        self.connections.set(self.connections.get() + 1);
        Some(Slot { proxy: Rc::clone(self), host: None })
    }

    /// Whether a query for the name gets an address: a rule names it, or the user may be asked.
    pub(crate) fn knows_name(&self, host: &Host) -> bool {
        match self.rules().decide(host, 0) {
            Decision::Allowed(_) => true,
            Decision::Denied(_) => false,
            Decision::NotListed => self.may_ask.get(),
        }
    }

    /// Decides about a request. Waits for the user if no rule names the host and the user may be asked.
    pub(crate) async fn admit(&self, request: &Request) -> Result<Admitted, DenyReason> {
        if let Some(decided) = self.decide(&request.host, request.port) {
            return decided;
        }
        if !self.may_ask.get() {
            return Err(DenyReason::NotListed);
        }
        match self.ask(&request.host, request.port).await {
            Answer::Denied(why) => Err(why),
            Answer::Once => {
                self.tell_allowed(request, Scope::Once);
                Ok(Admitted { raw: false, rule: Some("allowed once".to_owned()) })
            }
            Answer::Allowed(scope) => {
                self.tell_allowed(request, scope);
                self.decide(&request.host, request.port).unwrap_or(Err(DenyReason::NotListed))
            }
        }
    }

    /// What rules and answers say without asking. `None` if none names the host.
    pub(crate) fn decide(&self, host: &Host, port: u16) -> Option<Result<Admitted, DenyReason>> {
        match self.rules().decide(host, port) {
            Decision::Allowed(by) => {
                Some(Ok(Admitted { raw: by.rule.raw, rule: Some(by.to_string()) }))
            }
            Decision::Denied(_) => Some(Err(DenyReason::DenyRule)),
            Decision::NotListed => {
                let mut once = self.once.borrow_mut();
                once.retain(|_, until| Instant::now() < *until);
                let is_allowed = once.contains_key(&(host.clone(), port));
                let rule = Some("allowed once".to_owned());
                is_allowed.then_some(Ok(Admitted { raw: false, rule }))
            }
        }
    }

    async fn ask(&self, host: &Host, port: u16) -> Answer {
        let key = (host.clone(), port);
        let (reply, answered) = oneshot::channel();
        {
            let mut questions = self.questions.borrow_mut();
            let waiting: usize = questions.values().map(|question| question.waiting.len()).sum();
            let is_new = !questions.contains_key(&key);
            if MAX_WAITING <= waiting || (is_new && MAX_APPROVALS_PER_SESSION <= questions.len()) {
                return Answer::Denied(DenyReason::TooManyQuestions);
            }
            let question = questions.entry(key.clone()).or_default();
            question.waiting.push(reply);
            if is_new {
                let id = self.last_question.get() + 1;
                self.last_question.set(id);
                question.id = id;
                let ask = FromProxy::Ask { id, host: host.to_string(), port };
                if self.frames.try_send(ask).is_err() {
                    questions.remove(&key);
                    return Answer::Denied(DenyReason::TooManyQuestions);
                }
            }
        }
        let answer = tokio::time::timeout(MAX_WAIT, answered).await;
        answer.ok().and_then(Result::ok).unwrap_or(Answer::Denied(DenyReason::Timeout))
    }

    /// Handles the answer to a question.
    pub(crate) fn answered(&self, id: u64, answer: Answer) {
        let mut questions = self.questions.borrow_mut();
        let key =
            questions.iter().find(|(_, question)| question.id == id).map(|(key, _)| key.clone());
        let Some((key, question)) = key.and_then(|key| questions.remove_entry(&key)) else {
            return;
        };
        if answer == Answer::Once {
            let until = Instant::now() + Duration::from_secs(ONCE_SECONDS);
            self.once.borrow_mut().insert(key, until);
        }
        for waiting in question.waiting {
            // The connection may be gone.
            waiting.send(answer).ok();
        }
    }

    fn tell_allowed(&self, Request { host, port, .. }: &Request, scope: Scope) {
        self.pair.tell(&ToWorkerPacket::Allowed { host: host.to_string(), port: *port, scope });
    }

    /// Records a refused request: first for the worker, so that it knows it when the command ends.
    pub(crate) fn refuse(&self, request: &Request, why: DenyReason, address: Option<IpAddr>) {
        let address = address.map(|address| address.to_string());
        let host = request.host.to_string();
        self.pair.tell(&ToWorkerPacket::Refused { host, port: request.port, why, address });
        let rule = match self.rules().decide(&request.host, request.port) {
            Decision::Denied(by) => Some(by.to_string()),
            _ => None,
        };
        self.report(request, Verdict::Denied(why), rule, Traffic::default());
    }

    /// Records a request that failed.
    pub(crate) fn fail(&self, request: &Request, why: FailReason, rule: Option<String>) {
        self.report(request, Verdict::Failed(why), rule, Traffic::default());
    }

    pub(crate) fn report(
        &self,
        request: &Request,
        verdict: Verdict,
        rule: Option<String>,
        traffic: Traffic,
    ) {
        self.log.add(LogEntry {
            host: request.host.to_string(),
            port: request.port,
            path: request.path,
            verdict,
            rule,
            sent: traffic.sent,
            received: traffic.received,
            took_ms: u64::try_from(traffic.took.as_millis()).unwrap_or(u64::MAX),
        });
    }
}

/// Bytes and duration of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traffic {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) took: Duration,
}
