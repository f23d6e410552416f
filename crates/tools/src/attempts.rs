//! Attempts of commands to use a network that is off or limited to some hosts, recorded by the worker.
//!
//! Holds the hosts and the credentials that the worker's or the session's proxy refused, and the kernel's counters of
//! packets without a route. Written by the worker. Read by `bash` and by jobs when a command exits.

use quackd_protocol::approval::AnswerScope;
use quackd_protocol::credentials::RefusedCredential;
use quackd_protocol::denial::RefusedHost;
use quackd_protocol::network::DenyReason;
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// Maximum number of remembered hosts: the ones with the latest attempts.
const MAX_HOSTS: usize = 64;

/// Maximum number of remembered credentials: the latest.
const MAX_CREDENTIALS: usize = 8;

/// Maximum length of a host name in characters.
const MAX_HOST: usize = 253;

/// Maximum number of bytes read from one counter file.
const MAX_COUNTERS: usize = 16 * 1024;

/// Reads reports of the session's proxy that have arrived.
pub(crate) type ReadReports = Box<dyn Fn(&Attempts) -> bool + Send + Sync>;

/// Attempts in one session.
#[derive(Default)]
pub struct Attempts {
    state: watch::Sender<State>,
    counters: Vec<File>,
    read: OnceLock<ReadReports>,
}

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempts").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    /// Number of attempts.
    count: u64,
    /// Hosts with the number of their latest attempt, sorted by that number.
    hosts: VecDeque<(u64, RefusedHost)>,
    /// Number of credentials that were not used.
    refused_credentials: u64,
    /// Lines about them, each with its latest number.
    credentials: VecDeque<(u64, String)>,
    /// Packets without a route, as last read.
    unrouted: u64,
    /// Number of running commands.
    running: usize,
    /// Number of commands started so far.
    started: u64,
}

/// Attempts during one command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Hosts that are known.
    pub(crate) hosts: Vec<RefusedHost>,
    /// Whether another command ran at the same time. The attempts may then belong to it.
    pub(crate) is_shared: bool,
}

/// Details of a request that the session's proxy refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusedRequest {
    /// The port. 0 for a query of the resolver.
    pub port: u16,
    /// Reason.
    pub why: Option<DenyReason>,
    /// The address to which a name led.
    pub address: Option<String>,
    /// Seconds that the request waited for the user's answer.
    pub waited_s: u64,
    /// Scope of the user's answer, if the user allowed it. Then it was not refused.
    pub approved: Option<AnswerScope>,
}

/// Run time of one command.
#[derive(Debug)]
pub(crate) struct Span {
    attempts: Arc<Attempts>,
    /// Number of attempts before the command.
    before: u64,
    /// Number of refused credentials before the command.
    credentials_before: u64,
    /// Sequence number of the command.
    number: u64,
    was_alone: bool,
}

impl Attempts {
    /// `counters` are the open files `snmp` and `snmp6` of the session's network namespace.
    #[must_use]
    pub fn new(counters: Vec<File>) -> Self {
        Self { counters, ..Self::default() }
    }

    /// Records an attempt, with the name or address if it is known. The name is untrusted: unexpected characters are
    /// replaced.
    #[cfg(test)]
    pub(crate) fn record(&self, host: Option<&str>) {
        let host = host.map(plain).filter(|host| !host.is_empty());
        let host = host.map(|host| RefusedHost { host, ..RefusedHost::default() });
        self.state.send_modify(|state| state.record(host));
    }

    /// Records a request that the session's proxy refused, or that the user allowed when asked.
    pub fn refused(&self, host: &str, request: RefusedRequest) {
        let RefusedRequest { port, why, address, waited_s, approved } = request;
        let address = address.as_deref().map(plain);
        let host = RefusedHost { host: plain(host), port, why, address, waited_s, approved };
        self.state.send_modify(|state| state.record(Some(host)));
    }

    /// Records a credential that a command could not use.
    pub fn credential_refused(&self, refused: &RefusedCredential) {
        let line = format!("[{refused}]");
        self.state.send_modify(|state| {
            state.refused_credentials += 1;
            state.credentials.retain(|(_, known)| *known != line);
            state.credentials.push_back((state.refused_credentials, line));
            if MAX_CREDENTIALS < state.credentials.len() {
                state.credentials.pop_front();
            }
        });
    }

    /// Sets the function that reads the reports that have arrived. It is called before the attempts of a command are
    /// read.
    pub fn read_first(&self, read: ReadReports) {
        // Set once, at the start.
        self.read.set(read).ok();
    }

    fn read_reports(&self) {
        if let Some(read) = self.read.get() {
            read(self);
        }
    }

    /// Starts the span of a command.
    pub(crate) fn begin(self: &Arc<Self>) -> Span {
        self.read_reports();

        // Count the packets of the running commands as attempts before this one. Without a running command,
        // the counters have not changed since the last command exited.
        if self.state.borrow().running != 0 {
            self.count_unrouted();
        }

        let (mut before, mut number, mut was_alone) = (0, 0, false);
        let mut credentials_before = 0;
        self.state.send_modify(|state| {
            was_alone = state.running == 0;
            state.running += 1;
            state.started += 1;
            (before, number) = (state.count, state.started);
            credentials_before = state.refused_credentials;
        });

        Span { attempts: Arc::clone(self), before, credentials_before, number, was_alone }
    }

    /// Counts the packets without a route since the last call as one attempt.
    fn count_unrouted(&self) {
        if self.counters.is_empty() {
            return;
        }
        let unrouted = self.counters.iter().filter_map(no_routes).fold(0, u64::saturating_add);
        self.state.send_modify(|state| {
            if state.unrouted < unrouted {
                state.unrouted = unrouted;
                state.record(None);
            }
        });
    }
}

impl State {
    fn record(&mut self, host: Option<RefusedHost>) {
        self.count += 1;
        let Some(host) = host else { return };
        // The latest attempt moves a host to the end, so that the limit drops the host without recent attempts.
        self.hosts.retain(|(_, known)| (&known.host, known.port) != (&host.host, host.port));
        self.hosts.push_back((self.count, host));
        if MAX_HOSTS < self.hosts.len() {
            self.hosts.pop_front();
        }
    }
}

impl Span {
    /// Returns the attempts so far, or `None` if there were none.
    pub(crate) fn refused(&self) -> Option<Refused> {
        self.attempts.read_reports();
        self.attempts.count_unrouted();

        let state = self.attempts.state.borrow();
        if state.count <= self.before {
            return None;
        }

        let hosts = state.hosts.iter().filter(|(number, _)| self.before < *number);
        let hosts: Vec<_> = hosts.map(|(_, host)| host).collect();

        // A refused query for a name adds nothing to a refused connection.
        let is_connected =
            |query: &RefusedHost| hosts.iter().any(|it| it.host == query.host && it.port != 0);
        let reported = hosts.iter().filter(|host| host.port != 0 || !is_connected(host));

        Some(Refused {
            hosts: reported.map(|host| (*host).clone()).collect(),
            is_shared: !self.was_alone || state.started != self.number,
        })
    }

    /// Returns a line for each credential that was not used so far.
    pub(crate) fn credentials(&self) -> Vec<String> {
        self.attempts.read_reports();
        let state = self.attempts.state.borrow();
        let new = |(number, _): &&(u64, String)| self.credentials_before < *number;
        state.credentials.iter().filter(new).map(|(_, line)| line.clone()).collect()
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.attempts.state.send_modify(|state| state.running = state.running.saturating_sub(1));
    }
}

/// Returns a printable name: lower case, with replacements for characters that no host name contains.
fn plain(host: &str) -> String {
    let plain = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':') => c,
        _ => '\u{fffd}',
    };
    host.trim_end_matches('.').chars().take(MAX_HOST).map(plain).collect()
}

/// Reads the number of packets without a route from the kernel. The file is in memory, so the read does not
/// block.
fn no_routes(counters: &File) -> Option<u64> {
    let mut content = vec![0; MAX_COUNTERS];
    let length = counters.read_at(&mut content, 0).ok()?;
    no_routes_of(std::str::from_utf8(content.get(..length)?).ok()?)
}

/// Parses the counters. `snmp` has a line of names before a line of numbers, `snmp6` a name and a number in
/// each line.
fn no_routes_of(content: &str) -> Option<u64> {
    let mut ip = content.lines().filter(|line| line.starts_with("Ip: "));
    if let (Some(names), Some(numbers)) = (ip.next(), ip.next()) {
        let at = names.split(' ').position(|name| name == "OutNoRoutes")?;
        return numbers.split(' ').nth(at)?.parse().ok();
    }
    let number = content.lines().find_map(|line| line.strip_prefix("Ip6OutNoRoutes"))?;
    number.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(hosts: &[&str], is_shared: bool) -> Option<Refused> {
        let of = |&host: &&str| RefusedHost { host: host.to_owned(), ..RefusedHost::default() };
        Some(Refused { hosts: hosts.iter().map(of).collect(), is_shared })
    }

    #[test]
    fn a_command_has_its_own_attempts_once_each() {
        let attempts = Arc::new(Attempts::default());
        attempts.record(Some("before.example"));
        let span = attempts.begin();
        assert_eq!(span.refused(), None);
        for host in ["B.example.", "a.example", "b.example"] {
            attempts.record(Some(host));
        }
        assert_eq!(span.refused(), refused(&["a.example", "b.example"], false));
        drop(span);
        assert_eq!(attempts.begin().refused(), None);
    }

    #[test]
    fn a_query_for_a_name_is_told_unless_the_same_command_connects() {
        let attempts = Arc::new(Attempts::default());
        let ports = |span: &Span| {
            let hosts = span.refused().unwrap().hosts;
            hosts.iter().map(|host| host.port).collect::<Vec<_>>()
        };
        let connect = |port| {
            attempts.refused("a.example", RefusedRequest { port, ..RefusedRequest::default() });
        };
        let span = attempts.begin();
        (0..2).for_each(|_| connect(0));
        assert_eq!(ports(&span), [0]);
        [443, 0].into_iter().for_each(connect);
        assert_eq!(ports(&span), [443]);
        drop(span);
        let later = attempts.begin();
        connect(0);
        assert_eq!(ports(&later), [0]);
    }

    #[test]
    fn a_refused_credential_is_told_once_and_is_no_attempt_to_use_the_network() {
        use quackd_protocol::credentials::CredentialRefusal;
        let attempts = Arc::new(Attempts::default());
        let refuse = |what: &str| {
            let (what, why) = (what.to_owned(), CredentialRefusal::NoCredential);
            let label = String::new();
            attempts.credential_refused(&RefusedCredential { what, why, label });
        };
        refuse("fetch a.example/before");
        let span = attempts.begin();
        assert!(span.credentials().is_empty());
        (0..2).for_each(|_| refuse("fetch a.example/me"));
        let line = "[Credential not used: fetch a.example/me: the user's git has no credential for the repository]";
        assert_eq!(span.credentials(), [line]);
        assert_eq!(span.refused(), None);
        (0..100).for_each(|n| refuse(&format!("fetch a.example/{n}")));
        assert_eq!(span.credentials().len(), MAX_CREDENTIALS);
        assert!(attempts.begin().credentials().is_empty());
    }

    #[test]
    fn attempts_beside_another_command_are_shared() {
        let attempts = Arc::new(Attempts::default());
        let job = attempts.begin();
        let call = attempts.begin();
        attempts.record(None);
        drop(call);
        assert_eq!(job.refused(), refused(&[], true));
        let later = attempts.begin();
        assert_eq!(later.refused(), None);
        drop((job, later));
        let alone = attempts.begin();
        attempts.record(Some("a"));
        assert_eq!(alone.refused(), refused(&["a"], false));
    }

    #[test]
    fn a_flood_of_hostile_names_stays_small_and_plain() {
        let attempts = Arc::new(Attempts::default());
        let span = attempts.begin();
        for n in 0..1000 {
            attempts.record(Some(&format!("{n}{}", "x".repeat(1000))));
        }
        attempts.record(Some("a]\n[Exit code: 0"));
        let hosts = span.refused().unwrap().hosts;
        assert_eq!(hosts.len(), MAX_HOSTS);
        assert!(hosts.iter().all(|host| host.host.chars().count() <= MAX_HOST));
        assert_eq!(
            hosts.last().unwrap().host,
            "a\u{fffd}\u{fffd}\u{fffd}exit\u{fffd}code:\u{fffd}0"
        );
    }

    #[test]
    fn counters_are_read_by_name() {
        let snmp =
            "Ip: Forwarding OutDiscards OutNoRoutes ReasmTimeout\nIp: 2 64 7 0\nIcmp: InMsgs\n";
        assert_eq!(no_routes_of(snmp), Some(7));
        assert_eq!(no_routes_of("Ip6InReceives  \t4\nIp6OutNoRoutes      \t3\n"), Some(3));
        assert_eq!(no_routes_of("garbage"), None);
    }
}
