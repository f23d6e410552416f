//! The network of each session: requests of commands for hosts, and forwarded ports. Written by the
//! owner of the session's proxy, read by methods.

use crate::clock::now_text;
use quackd_policy::hosts::SessionRules;
use quackd_protocol::SessionId;
use quackd_protocol::client::{ForwardInfo, HostTotals, NetworkRequest, TimedDenial};
use quackd_protocol::credentials::RefusedCredential;
use quackd_protocol::denial::{Denial, DenialKind};
use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::limits::MAX_NETWORK_LOG;
use quackd_protocol::network::{LogEntry, MAX_TRANSPARENT_PORTS, USUAL_PORTS, Verdict};
use quackd_protocol::tools::BASH;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Maximum number of hosts with totals per session. Requests for more are counted together.
const MAX_HOSTS: usize = 512;

/// Name under which the requests for more hosts are counted.
const OTHER_HOSTS: &str = "(other hosts)";

/// Time in which an equal denial causes no second event, because programs repeat refused requests.
const SAME_DENIAL: Duration = Duration::from_secs(5);

/// Most events of one session in 1 s. More would push its other events out of the ring. The list of requests has all
/// denials.
const MAX_EVENTS: usize = 20;
const EVENTS_TIME: Duration = Duration::from_secs(1);

/// Maximum number of different refused credentials per session: the latest.
const MAX_REFUSED_CREDENTIALS: usize = 16;

/// Longest host from a proxy, in bytes.
const MAX_HOST_BYTES: usize = 256;

/// Ports with a listener for programs that use no proxy, besides the usual ones, as a worker got them when it started.
/// `None` if the configuration turns them off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TransparentPorts(Option<Vec<u16>>);

impl TransparentPorts {
    /// Returns the ports of these rules, at most [`MAX_TRANSPARENT_PORTS`] with the usual ones.
    pub(crate) fn of(rules: &SessionRules, is_on: bool) -> Self {
        Self(is_on.then(|| Self::in_rules(rules)))
    }

    fn in_rules(rules: &SessionRules) -> Vec<u16> {
        let is_more = |port: &u16| !USUAL_PORTS.contains(port);
        let ports = rules.hosts().ports();
        ports.into_iter().filter(is_more).take(MAX_TRANSPARENT_PORTS - USUAL_PORTS.len()).collect()
    }

    /// Returns the list that a worker gets when it starts.
    pub(crate) fn list(&self) -> Option<Vec<u16>> {
        self.0.clone()
    }

    /// Returns whether a worker with these ports serves all that the rules name. If not, the worker
    /// is replaced.
    pub(crate) fn serve(&self, rules: &SessionRules) -> bool {
        let serve_all =
            |ports: &Vec<u16>| Self::in_rules(rules).iter().all(|port| ports.contains(port));
        self.0.as_ref().is_none_or(serve_all)
    }
}

/// Networks of all sessions. One instance per daemon, on the actors' thread.
#[derive(Debug, Default)]
pub(crate) struct SessionNetworks(RefCell<HashMap<SessionId, Rc<SessionNetwork>>>);

/// Network of one session, for as long as the daemon runs.
#[derive(Debug, Default)]
pub(crate) struct SessionNetwork {
    log: RefCell<NetworkLog>,
    /// Open forwards, and those that the next proxy opens again.
    pub(crate) forwards: RefCell<Vec<ForwardInfo>>,
    /// Ports on which quackd listens in the network namespace of the running worker. Empty without such a namespace.
    pub(crate) own_ports: RefCell<Vec<u16>>,
    /// Credentials that commands could not use: the number of refusals, and the last different ones.
    pub(crate) refused_credentials: RefCell<(u64, Vec<TimedDenial>)>,
}

#[derive(Debug, Default)]
struct NetworkLog {
    last: u64,
    requests: VecDeque<NetworkRequest>,
    hosts: BTreeMap<String, HostTotals>,
    dropped: u64,
    /// Denials with an event, and its time.
    announced: VecDeque<(String, u16, Instant)>,
    /// Start of the current second of events, and their number.
    events: Option<(Instant, usize)>,
}

impl SessionNetworks {
    /// Returns the network of a session. Creates it first if necessary.
    pub(crate) fn of(&self, session: &SessionId) -> Rc<SessionNetwork> {
        Rc::clone(self.0.borrow_mut().entry(session.clone()).or_default())
    }

    /// Returns the network of a session; `None` if the session has not used one.
    pub(crate) fn get(&self, session: &SessionId) -> Option<Rc<SessionNetwork>> {
        self.0.borrow().get(session).cloned()
    }

    /// Removes a deleted session.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.0.borrow_mut().remove(session);
    }

    /// Returns the forwards of all sessions.
    pub(crate) fn forwards(&self) -> Vec<(SessionId, ForwardInfo)> {
        let all = self.0.borrow();
        let of = |(session, network): (&SessionId, &Rc<SessionNetwork>)| {
            let forwards = network.forwards.borrow().clone();
            forwards.into_iter().map(|forward| (session.clone(), forward)).collect::<Vec<_>>()
        };
        all.iter().flat_map(of).collect()
    }
}

impl SessionNetwork {
    /// Adds a credential that a command could not use. Only the last one of equal refusals is kept.
    pub(crate) fn refuse_credential(&self, refused: &RefusedCredential) {
        let what = (!refused.what.is_empty()).then_some(refused.what.as_str());
        let denial = TimedDenial {
            at: now_text(),
            tool: BASH.name.to_owned(),
            denial: Denial::new(DenialKind::Credential, what, false),
            hint: Some(refused.to_string()),
        };

        let mut known = self.refused_credentials.borrow_mut();
        let (total, last) = &mut *known;
        *total = total.saturating_add(1);
        last.retain(|earlier| earlier.hint != denial.hint);
        if MAX_REFUSED_CREDENTIALS <= last.len() {
            last.remove(0);
        }
        last.push(denial);
    }

    /// Adds the report of a proxy, which is hostile: cuts texts. Returns the denials that clients have not heard of in the
    /// last seconds.
    pub(crate) fn add(&self, entries: Vec<LogEntry>, dropped: u64) -> Vec<LogEntry> {
        self.add_at(Instant::now(), entries, dropped)
    }

    fn add_at(&self, now: Instant, entries: Vec<LogEntry>, dropped: u64) -> Vec<LogEntry> {
        let mut log = self.log.borrow_mut();
        log.dropped = log.dropped.saturating_add(dropped);
        let at = now_text();
        entries.into_iter().filter_map(|entry| log.add(cut(entry), &at, now)).collect()
    }

    /// Returns the requests after the number `after`, the totals of all hosts, the number of the
    /// last request, and the number of lost entries.
    pub(crate) fn report(&self, after: u64) -> (Vec<NetworkRequest>, Vec<HostTotals>, u64, u64) {
        let log = self.log.borrow();
        let requests = log.requests.iter().filter(|request| after < request.number).cloned();
        (requests.collect(), log.hosts.values().cloned().collect(), log.last, log.dropped)
    }
}

impl NetworkLog {
    fn add(&mut self, entry: LogEntry, at: &str, now: Instant) -> Option<LogEntry> {
        self.last += 1;
        self.count(&entry, at);

        // The oldest request makes room. The totals still contain it.
        if self.requests.len() == MAX_NETWORK_LOG {
            self.requests.pop_front();
        }
        let request = NetworkRequest { number: self.last, at: at.to_owned(), entry: entry.clone() };
        self.requests.push_back(request);

        let is_news = matches!(entry.verdict, Verdict::Denied(_)) && self.is_news(&entry, now);
        is_news.then_some(entry)
    }

    fn count(&mut self, entry: &LogEntry, at: &str) {
        let is_known = self.hosts.contains_key(&entry.host) || self.hosts.len() < MAX_HOSTS;
        let host = if is_known { entry.host.as_str() } else { OTHER_HOSTS };
        let totals = self.hosts.entry(host.to_owned()).or_default();
        host.clone_into(&mut totals.host);
        at.clone_into(&mut totals.last_at);

        let counter = match entry.verdict {
            Verdict::Allowed => &mut totals.allowed,
            Verdict::Denied(_) => &mut totals.denied,
            Verdict::Failed(_) => &mut totals.failed,
        };

        // Saturating: the numbers come from a proxy, which is hostile.
        *counter = counter.saturating_add(entry.count.into());
        totals.sent = totals.sent.saturating_add(entry.sent);
        totals.received = totals.received.saturating_add(entry.received);
    }

    /// Whether a denial causes an event. Remembers it then.
    fn is_news(&mut self, entry: &LogEntry, now: Instant) -> bool {
        // In the order of their times, so only the first ones can be too old.
        while self.announced.front().is_some_and(|(_, _, at)| SAME_DENIAL < now.duration_since(*at))
        {
            self.announced.pop_front();
        }

        let second = self.events.filter(|(since, _)| now.duration_since(*since) < EVENTS_TIME);
        let (since, n) = second.unwrap_or((now, 0));
        // Not remembered as sent, so the denial causes an event when it is repeated later.
        if n == MAX_EVENTS {
            return false;
        }

        let is_same =
            |(host, port, _): &(String, u16, Instant)| *host == entry.host && *port == entry.port;
        if self.announced.iter().any(is_same) {
            return false;
        }

        if self.announced.len() == MAX_HOSTS {
            self.announced.pop_front();
        }
        self.announced.push_back((entry.host.clone(), entry.port, now));
        self.events = Some((since, n + 1));
        true
    }
}

/// Cuts the texts of an entry, because a proxy may send any text.
fn cut(entry: LogEntry) -> LogEntry {
    let plain = |text: &str| stripped_line(text, MAX_HOST_BYTES);
    LogEntry { host: plain(&entry.host), rule: entry.rule.as_deref().map(plain), ..entry }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::network::{DenyReason, RequestPath};

    fn denied(host: &str) -> LogEntry {
        LogEntry {
            host: host.to_owned(),
            port: 443,
            path: RequestPath::Connect,
            verdict: Verdict::Denied(DenyReason::NotListed),
            rule: None,
            count: 1,
            sent: 1,
            received: 2,
            took_ms: 3,
        }
    }

    #[test]
    fn a_flood_of_hosts_stays_bounded_and_is_told_once() {
        let network = SessionNetwork::default();
        let hosts = (0..2000).map(|n| denied(&format!("h{n}\u{1b}[31m")));
        let start = Instant::now();
        assert_eq!(network.add_at(start, hosts.collect(), 0).len(), MAX_EVENTS);
        let later = start + EVENTS_TIME;
        assert!(network.add_at(later, vec![denied("h1[31m")], 5).is_empty(), "told before");
        assert_eq!(network.add_at(later, vec![LogEntry { count: 7, ..denied("new") }], 0).len(), 1);
        let (requests, hosts, last, dropped) = network.report(1990);
        assert_eq!((requests.len(), last, dropped), (12, 2002, 5));
        assert_eq!(hosts.len(), MAX_HOSTS + 1);
        let denials: u64 = hosts.iter().map(|host| host.denied).sum();
        assert_eq!(denials, 2008);
        let (all, ..) = network.report(0);
        assert_eq!(all.len(), MAX_NETWORK_LOG);
        assert!(all.iter().all(|request| !request.entry.host.contains('\u{1b}')));
    }
}
