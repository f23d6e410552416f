//! The rules of the session, and the decision about each request.

use crate::asks::Asks;
use crate::credentials::Credentials;
use crate::log::Log;
use crate::lookups::Lookups;
use crate::own::{NearHosts, is_own_address, told_reason};
use crate::pair::Pair;
use quackd_network::synthetic::SyntheticAddresses;
use quackd_policy::hosts::{Decision, Host, HostRules, askable, askable_address};
use quackd_policy::upstream::UpstreamProxy;
use quackd_protocol::credentials::{CredentialRefusal, RefusedCredential};
use quackd_protocol::network::{
    DenyReason, FailReason, LogEntry, RequestPath, Rules, ToWorkerPacket, Verdict,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

/// Maximum number of connections at the same time.
const MAX_CONNECTIONS: usize = 1024;

/// Maximum number of connections to one host at the same time.
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
    /// The rule that allows the host, for the log.
    pub(crate) rule: Option<String>,
    /// True if the user allowed it once. Then only a rule that denies it ends the connection.
    pub(crate) is_once: bool,
}

/// State of the proxy. On one thread.
pub(crate) struct Proxy {
    rules: RefCell<Rc<HostRules>>,
    /// True if a client can answer questions.
    can_ask: Cell<bool>,
    /// True if a setting turns the network off.
    is_off: Cell<bool>,
    pub(crate) asks: Asks,
    /// Counts changes of the rules.
    pub(crate) version: watch::Sender<u64>,
    pub(crate) addresses: RefCell<SyntheticAddresses>,
    pub(crate) log: Log,
    pub(crate) pair: Pair,
    pub(crate) credentials: Credentials,
    /// For git over https. `None` if the proxy does not serve it.
    pub(crate) tls: Option<TlsConnector>,
    pub(crate) lookups: Rc<Lookups>,
    pub(crate) near: NearHosts,
    /// The proxy of the user's network.
    pub(crate) upstream: Option<UpstreamProxy>,
    /// Label of the session, for texts.
    pub(crate) label: String,
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
    pub(crate) fn new(rules: &Rules, pair: Pair) -> Self {
        Self {
            rules: RefCell::new(Rc::new(HostRules::parse(&rules.rules))),
            can_ask: Cell::new(rules.asks && !rules.is_off),
            is_off: Cell::new(rules.is_off),
            asks: Asks::default(),
            version: watch::Sender::new(0),
            addresses: RefCell::new(SyntheticAddresses::starting_at(random())),
            log: Log::default(),
            pair,
            credentials: Credentials::default(),
            tls: None,
            lookups: Lookups::by_system(),
            near: NearHosts::default(),
            upstream: None,
            label: String::new(),
            connections: Cell::new(0),
            by_host: RefCell::default(),
        }
    }

    /// Replaces the rules. Running connections look at them again.
    pub(crate) fn set_rules(&self, rules: &Rules) {
        *self.rules.borrow_mut() = Rc::new(HostRules::parse(&rules.rules));
        self.can_ask.set(rules.asks && !rules.is_off);
        self.is_off.set(rules.is_off);
        // Off also takes back what the user allowed once.
        if rules.is_off {
            self.asks.forget_once();
        }
        self.version.send_modify(|version| *version += 1);
    }

    /// Returns the rules in force. A later change does not affect them.
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

    /// Whether a query for the name gets an address: a rule or an answer of the user could allow a connection.
    pub(crate) fn knows_name(&self, host: &Host) -> bool {
        // A query has no port. Port 0 stands for any.
        match self.decide(host, 0) {
            Ok(_) => true,
            Err(DenyReason::NotListed) => self.may_ask(host, 0),
            Err(_) => false,
        }
    }

    /// Decides by the rules, and by what the user allowed once.
    pub(crate) fn decide(&self, host: &Host, port: u16) -> Result<Admitted, DenyReason> {
        match self.rules().decide(host, port) {
            Decision::Allowed(by) => {
                Ok(Admitted { raw: by.rule.raw, rule: Some(by.to_string()), is_once: false })
            }
            Decision::Denied(_) => Err(DenyReason::DenyRule),
            Decision::NotListed if self.counts_once() && self.asks.is_allowed_once(host, port) => {
                Ok(Admitted { raw: false, rule: Some("allowed once".to_owned()), is_once: true })
            }
            Decision::NotListed => Err(DenyReason::NotListed),
        }
    }

    /// Decides about a connection. Asks the user if no rule names the host and a client can answer. Records a refusal.
    pub(crate) async fn admit(
        &self,
        request: &Request,
        slot: &mut Slot,
    ) -> Result<Admitted, DenyReason> {
        let Request { host, port, .. } = request;
        // Counted before the question, so that waiting connections count too.
        let decided =
            if slot.count_for(host) { self.decide(host, *port) } else { Err(DenyReason::TooMany) };

        let (reason, waited) = match decided {
            Err(DenyReason::NotListed) if self.may_ask(host, *port) => {
                let begin = Instant::now();
                match self.asks.ask(host, *port, None).await {
                    Ok(scope) => {
                        let host = host.to_string();
                        self.pair.tell(&ToWorkerPacket::Approved { host, port: *port, scope });
                        // The rule of the answer has arrived before it.
                        match self.decide(&request.host, *port) {
                            Ok(admitted) => return Ok(admitted),
                            Err(reason) => (reason, Duration::ZERO),
                        }
                    }
                    // A rule may have been added or removed while the connection waited.
                    Err(reason) => match self.decide(host, *port) {
                        Ok(admitted) => return Ok(admitted),
                        Err(DenyReason::NotListed) => (reason, begin.elapsed()),
                        Err(by_rule) => (by_rule, Duration::ZERO),
                    },
                }
            }
            Ok(admitted) => return Ok(admitted),
            Err(reason) => (reason, Duration::ZERO),
        };

        self.record_refusal(request, reason, None, seconds(waited));
        Err(reason)
    }

    /// Whether the user allowed an address of a local network once, and no rule denies it.
    pub(crate) fn is_address_allowed_once(&self, address: IpAddr, port: u16) -> bool {
        let host = Host::Address(address.to_canonical());
        self.counts_once()
            && self.asks.is_allowed_once(&host, port)
            && !self.denies_address(address, port)
    }

    /// Whether hosts and addresses that the user allowed once may still be connected to.
    pub(crate) fn counts_once(&self) -> bool {
        !self.is_off.get()
    }

    /// Whether a rule denies the address.
    pub(crate) fn denies_address(&self, address: IpAddr, port: u16) -> bool {
        let host = Host::Address(address.to_canonical());
        matches!(self.rules().decide(&host, port), Decision::Denied(_))
    }

    /// Asks about an address of a local network, to which an allowed name leads. Returns true if the user allows it.
    pub(crate) async fn ask_about_address(&self, request: &Request, address: IpAddr) -> bool {
        let (Host::Name(name), port) = (&request.host, request.port) else { return false };
        let host = Host::Address(address.to_canonical());
        let is_askable = self.can_ask.get()
            && askable_address(address, port).is_some()
            && !is_own_address(address)
            && !self.denies_address(address, port);
        if !is_askable {
            return false;
        }

        let Ok(scope) = self.asks.ask(&host, port, Some(name)).await else {
            // A rule that names the address may have been added while the connection waited.
            return !self.rules().refuses_address(address, port, is_own_address);
        };

        self.pair.tell(&ToWorkerPacket::Approved { host: host.to_string(), port, scope });
        true
    }

    /// Whether the user may be asked about a host. Any port stands for the others in a query for a name.
    fn may_ask(&self, host: &Host, port: u16) -> bool {
        self.can_ask.get() && askable(host, port.max(1)).is_some()
    }

    /// Records a refused request: first for the worker, so that it knows it when the command ends.
    pub(crate) fn refuse(&self, request: &Request, why: DenyReason, address: Option<IpAddr>) {
        self.record_refusal(request, why, address, 0);
    }

    fn record_refusal(
        &self,
        request: &Request,
        why: DenyReason,
        address: Option<IpAddr>,
        waited_s: u64,
    ) {
        let why = told_reason(&request.host, why);
        let address = address.map(|address| address.to_string());
        let host = request.host.to_string();
        let packet = ToWorkerPacket::Refused { host, port: request.port, why, address, waited_s };
        self.pair.tell(&packet);

        let rule = match self.rules().decide(&request.host, request.port) {
            Decision::Denied(by) => Some(by.to_string()),
            _ => None,
        };
        self.report(request, Verdict::Denied(why), rule, Traffic::default());
    }

    /// Tells the worker of a credential that was not used, and returns the line about it. `what` is the text of the use,
    /// or empty.
    pub(crate) fn refuse_credential(&self, what: String, why: CredentialRefusal) -> String {
        let refused = RefusedCredential { what, why, label: self.label.clone() };
        let words = refused.to_string();
        self.pair.tell(&ToWorkerPacket::CredentialRefused(refused));
        words
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
            count: 1,
            sent: traffic.sent,
            received: traffic.received,
            took_ms: u64::try_from(traffic.took.as_millis()).unwrap_or(u64::MAX),
        });
    }
}

/// A number that differs between processes.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(())
}

/// Rounds to whole seconds.
fn seconds(time: Duration) -> u64 {
    time.saturating_add(Duration::from_millis(500)).as_secs()
}

/// Bytes and duration of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traffic {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) took: Duration,
}
