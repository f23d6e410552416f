//! The rules of the session, and the decision about each request.

use crate::log::Log;
use crate::pair::Pair;
use quackd_network::synthetic::SyntheticAddresses;
use quackd_policy::hosts::{Decision, Host, HostRules, RuleError};
use quackd_protocol::network::{
    DenyReason, FailReason, LogEntry, RequestPath, Rules, ToWorkerPacket, Verdict,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch;

/// Most connections at the same time.
const MAX_CONNECTIONS: usize = 1024;

/// Most connections to one host at the same time.
const MAX_PER_HOST: usize = 128;

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

/// State of the proxy. On one thread.
pub(crate) struct Proxy {
    rules: RefCell<Rc<HostRules>>,
    /// Counts changes of the rules.
    pub(crate) version: watch::Sender<u64>,
    pub(crate) addresses: RefCell<SyntheticAddresses>,
    pub(crate) log: Log,
    pub(crate) pair: Pair,
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
    pub(crate) fn new(rules: &Rules, pair: Pair) -> Result<Self, RuleError> {
        Ok(Self {
            rules: RefCell::new(Rc::new(HostRules::parse(&rules.rules)?)),
            version: watch::Sender::new(0),
            addresses: RefCell::default(),
            log: Log::default(),
            pair,
            connections: Cell::new(0),
            by_host: RefCell::default(),
        })
    }

    /// Replaces the rules. Running connections look at them again.
    pub(crate) fn set_rules(&self, rules: &Rules) -> Result<(), RuleError> {
        *self.rules.borrow_mut() = Rc::new(HostRules::parse(&rules.rules)?);
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

    /// Whether a query for the name gets an address.
    pub(crate) fn knows_name(&self, host: &Host) -> bool {
        matches!(self.rules().decide(host, 0), Decision::Allowed(_))
    }

    /// Decides by the rules.
    pub(crate) fn decide(&self, host: &Host, port: u16) -> Result<Admitted, DenyReason> {
        match self.rules().decide(host, port) {
            Decision::Allowed(by) => Ok(Admitted { raw: by.rule.raw, rule: Some(by.to_string()) }),
            Decision::Denied(_) => Err(DenyReason::DenyRule),
            Decision::NotListed => Err(DenyReason::NotListed),
        }
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
