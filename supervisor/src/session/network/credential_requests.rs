//! The requests of a proxy for credentials, and the uses that the user allowed once. Does no I/O; time is an argument.

use crate::approvals::Subject;
use quackd_protocol::approval::Decision;
use quackd_protocol::credentials::{CredentialRefusal, CredentialUse, MAX_CREDENTIAL_REQUESTS};
use quackd_protocol::network::ALLOWED_ONCE;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Most requests of one session in a minute, without those for public keys. Each starts a process. A rebase may sign
/// hundreds of commits.
const MAX_PER_MINUTE: usize = 600;

/// Time in which a use that the user has not answered is not asked about again: ssh tries all keys.
const UNANSWERED_TIME: Duration = Duration::from_secs(10);

const MINUTE: Duration = Duration::from_secs(60);

/// Most processes of one session at the same time. Other requests wait.
const MAX_PROCESSES: usize = 4;

/// State of a session's requests.
#[derive(Debug)]
pub(super) struct CredentialRequests {
    /// Requests without an answer, by their ids.
    pub(super) open: HashMap<u64, OpenRequest>,
    /// Uses that the user allowed once, and when.
    once: Vec<(CredentialUse, Instant)>,
    /// Uses about which the user did not answer, and when the questions closed.
    unanswered: Vec<(CredentialUse, Instant)>,
    /// Start of the current minute, and its number of requests.
    minute: Option<(Instant, usize)>,
    /// Permits to start a process.
    pub(super) processes: Rc<Semaphore>,
}

impl Default for CredentialRequests {
    fn default() -> Self {
        let processes = Rc::new(Semaphore::new(MAX_PROCESSES));
        let (once, unanswered) = (Vec::new(), Vec::new());
        Self { open: HashMap::new(), once, unanswered, minute: None, processes }
    }
}

/// A request without an answer.
#[derive(Debug, Default)]
pub(super) struct OpenRequest {
    /// The possible uses: several if the key of the host has several names.
    pub(super) uses: Vec<CredentialUse>,
    /// The use of these that was chosen.
    pub(super) purpose: Option<CredentialUse>,
    /// The question to the user about it.
    pub(super) asked: Option<Subject>,
    /// Whether the question was asked while calls ran: a command of these calls waits.
    pub(super) is_of_calls: bool,
}

/// Decision of the supervisor about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// Carry it out.
    Allow,
    /// Ask the user.
    Ask,
    /// Refuse it.
    Refuse(CredentialRefusal),
}

/// Returns the use that decides, and the decision. `uses` are names for the same key, so a denial of one of them wins, and
/// a grant for one that the session may reach counts for all. `None` without a use.
pub(super) fn choose(
    uses: &[CredentialUse],
    may_reach: impl Fn(&CredentialUse) -> bool,
    decision: impl Fn(&CredentialUse) -> Option<Decision>,
) -> Option<(&CredentialUse, Choice)> {
    let is_denied = |purpose: &&CredentialUse| decision(purpose) == Some(Decision::Deny);
    if let Some(denied) = uses.iter().find(is_denied) {
        return Some((denied, Choice::Refuse(CredentialRefusal::Denied)));
    }

    let is_allowed = |purpose: &&CredentialUse| decision(purpose) == Some(Decision::Allow);
    let mut reachable = uses.iter().filter(|purpose| may_reach(purpose));
    if let Some(allowed) = reachable.clone().find(is_allowed) {
        return Some((allowed, Choice::Allow));
    }
    match reachable.next() {
        Some(first) => Some((first, Choice::Ask)),
        None => Some((uses.first()?, Choice::Refuse(CredentialRefusal::HostNotAllowed))),
    }
}

impl CredentialRequests {
    /// Whether the proxy may send a request with this id.
    pub(super) fn may_open(&self, id: u64) -> bool {
        self.open.len() < MAX_CREDENTIAL_REQUESTS && !self.open.contains_key(&id)
    }

    /// Counts a request. Returns false beyond [`MAX_PER_MINUTE`].
    pub(super) fn count(&mut self, now: Instant) -> bool {
        let current = self.minute.filter(|(start, _)| now.duration_since(*start) < MINUTE);
        let (start, n) = current.unwrap_or((now, 0));
        self.minute = Some((start, n + 1));
        n < MAX_PER_MINUTE
    }

    /// Allows a use for [`ALLOWED_ONCE`].
    pub(super) fn allow_once(&mut self, purpose: CredentialUse, now: Instant) {
        self.once.retain(|(_, at)| now.duration_since(*at) < ALLOWED_ONCE);
        self.once.push((purpose, now));
    }

    /// Whether the user has allowed a use within [`ALLOWED_ONCE`].
    pub(super) fn is_allowed_once(&self, purpose: &CredentialUse, now: Instant) -> bool {
        let is_recent = |at: &Instant| now.duration_since(*at) < ALLOWED_ONCE;
        self.once.iter().any(|(allowed, at)| is_recent(at) && allowed.includes(purpose))
    }

    /// Records that the user did not answer about a use.
    pub(super) fn not_answered(&mut self, purpose: CredentialUse, now: Instant) {
        self.unanswered.retain(|(_, at)| now.duration_since(*at) < UNANSWERED_TIME);
        self.unanswered.push((purpose, now));
    }

    /// Whether the user has not answered about a use within [`UNANSWERED_TIME`].
    pub(super) fn was_unanswered(&self, purpose: &CredentialUse, now: Instant) -> bool {
        let is_recent = |at: &Instant| now.duration_since(*at) < UNANSWERED_TIME;
        self.unanswered.iter().any(|(asked, at)| is_recent(at) && asked == purpose)
    }

    /// Forgets the uses that were allowed once.
    pub(super) fn forget_once(&mut self) {
        self.once.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_key_are_decided_together() {
        let uses = ["a", "b", "c"].map(|host| CredentialUse::ssh("git", host, 22).unwrap());
        let chosen = |reached: &str, allowed: &str, denied: &str| {
            let is_in = |purpose: &CredentialUse, hosts: &str| {
                purpose.host().is_some_and(|(host, _)| hosts.contains(host))
            };
            let decision = |purpose: &CredentialUse| {
                let allowed = is_in(purpose, allowed).then_some(Decision::Allow);
                if is_in(purpose, denied) { Some(Decision::Deny) } else { allowed }
            };
            let (purpose, choice) =
                choose(&uses, |purpose| is_in(purpose, reached), decision).unwrap();
            (purpose.to_string(), choice)
        };
        let denied = Choice::Refuse(CredentialRefusal::Denied);
        for (reached, allowed, denials, host, expected) in [
            ("abc", "", "", "a", Choice::Ask),
            ("bc", "", "", "b", Choice::Ask),
            ("abc", "b", "", "b", Choice::Allow),
            ("abc", "ab", "c", "c", denied),
            ("a", "a", "c", "c", denied),
            ("a", "b", "", "a", Choice::Ask),
            ("", "a", "", "a", Choice::Refuse(CredentialRefusal::HostNotAllowed)),
        ] {
            let expected = (format!("ssh git@{host}"), expected);
            assert_eq!(
                chosen(reached, allowed, denials),
                expected,
                "{reached} {allowed} {denials}"
            );
        }
        assert_eq!(choose(&[], |_| true, |_| None), None);
    }

    #[test]
    fn a_use_that_was_allowed_once_is_allowed_for_a_minute() {
        let (now, mut requests) = (Instant::now(), CredentialRequests::default());
        let [push, fetch] = ["push a.example/x", "fetch a.example/x"].map(|it| it.parse().unwrap());
        requests.allow_once(push, now);
        assert!(requests.is_allowed_once(&fetch, now + ALLOWED_ONCE / 2));
        assert!(!requests.is_allowed_once(&fetch, now + ALLOWED_ONCE));
        assert!(!requests.is_allowed_once(&CredentialUse::Sign, now));
        requests.forget_once();
        assert!(!requests.is_allowed_once(&fetch, now));
    }

    #[test]
    fn a_use_without_an_answer_is_not_asked_about_again_for_a_while() {
        let (now, mut requests) = (Instant::now(), CredentialRequests::default());
        requests.not_answered(CredentialUse::Sign, now);
        assert!(requests.was_unanswered(&CredentialUse::Sign, now + UNANSWERED_TIME / 2));
        assert!(!requests.was_unanswered(&CredentialUse::Sign, now + UNANSWERED_TIME));
        let other = "fetch a.example/x".parse().unwrap();
        assert!(!requests.was_unanswered(&other, now));
    }

    #[test]
    fn requests_are_limited_at_the_same_time_and_in_a_minute() {
        let (now, mut requests) = (Instant::now(), CredentialRequests::default());
        for id in 0..MAX_CREDENTIAL_REQUESTS as u64 {
            assert!(requests.may_open(id));
            requests.open.insert(id, OpenRequest::default());
            assert!(!requests.may_open(id));
        }
        assert!(!requests.may_open(1000));
        assert!((0..MAX_PER_MINUTE).all(|_| requests.count(now)));
        assert!(!requests.count(now) && requests.count(now + MINUTE));
    }
}
