//! The open questions of all sessions, the last closed ones, and what the user denied lately. Does no I/O; time is an
//! argument.

use quackd_protocol::SessionId;
use quackd_protocol::approval::{AnswerScope, ApprovalKind, Decision, RecentApproval};
use quackd_protocol::limits::{
    DENIED_FOR, LATE_ANSWER, MAX_APPROVALS, MAX_APPROVALS_PER_MINUTE, MAX_APPROVALS_PER_SESSION,
    RECENT_APPROVALS,
};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Period of [`MAX_APPROVALS_PER_MINUTE`].
const MINUTE: Duration = Duration::from_secs(60);

/// Number of denials within [`HOUR`] after which a target is denied without questions for the session.
const MAX_DENIALS: usize = 3;
const HOUR: Duration = Duration::from_secs(60 * 60);

/// Most remembered denials of one session. The oldest is dropped first.
const MAX_DENIED: usize = 64;

/// The operation that a question is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    pub(crate) session: SessionId,
    pub(crate) kind: ApprovalKind,
    /// Host and port, directory, command or tool.
    pub(crate) target: String,
    /// The target as the agent named it. A denial counts for this name: otherwise an immediate one would tell that two
    /// names lead to one directory.
    pub(crate) given: String,
}

/// A question without an answer. `Q` is what the caller keeps with it.
#[derive(Debug)]
pub(crate) struct Open<Q> {
    pub(crate) id: String,
    pub(crate) subject: Subject,
    pub(crate) opened: Instant,
    pub(crate) until: Instant,
    pub(crate) with: Q,
}

/// A question that is closed.
#[derive(Debug, Clone)]
pub(crate) struct Closed<L> {
    pub(crate) record: RecentApproval,
    subject: Subject,
    at: Instant,
    late: L,
}

/// Reason why nothing is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAsked {
    /// The user denied an equal operation lately.
    Denied,
    /// Too many questions are open, or were asked within a minute.
    TooMany,
}

/// The state of the questions.
#[derive(Debug)]
pub(crate) struct Table<Q, L> {
    last: u64,
    open: Vec<Open<Q>>,
    closed: VecDeque<Closed<L>>,
    /// Times of each session's questions in the last minute.
    opened: HashMap<SessionId, VecDeque<Instant>>,
    /// Times of the requests of each session's agents in the last minute.
    requested: HashMap<SessionId, VecDeque<Instant>>,
    denied: HashMap<SessionId, VecDeque<Denied>>,
    /// Operations that the user allowed once after their question had expired.
    late: Vec<(Subject, Instant)>,
}

/// Denials of one target.
#[derive(Debug)]
struct Denied {
    kind: ApprovalKind,
    given: String,
    times: VecDeque<Instant>,
    /// True if it is denied until the session ends.
    is_final: bool,
}

impl Denied {
    fn is_about(&self, subject: &Subject) -> bool {
        (self.kind, &self.given) == (subject.kind, &subject.given)
    }
}

impl<Q, L> Default for Table<Q, L> {
    fn default() -> Self {
        Self {
            last: 0,
            open: Vec::new(),
            closed: VecDeque::new(),
            opened: HashMap::new(),
            requested: HashMap::new(),
            denied: HashMap::new(),
            late: Vec::new(),
        }
    }
}

impl<Q, L: Clone> Table<Q, L> {
    /// Returns the open question about an equal operation.
    pub(crate) fn same(&mut self, subject: &Subject) -> Option<&mut Open<Q>> {
        self.open.iter_mut().find(|open| open.subject == *subject)
    }

    /// Returns whether a new question may be asked.
    pub(crate) fn admit(&mut self, subject: &Subject, now: Instant) -> Result<(), NotAsked> {
        if self.is_denied(subject, now) {
            return Err(NotAsked::Denied);
        }

        let of_session = self.of_session(&subject.session).count();
        let opened = self.opened.entry(subject.session.clone()).or_default();
        forget_older(opened, now);
        let is_full = MAX_APPROVALS <= self.open.len()
            || MAX_APPROVALS_PER_SESSION <= of_session
            || MAX_APPROVALS_PER_MINUTE <= opened.len();
        if is_full { Err(NotAsked::TooMany) } else { Ok(()) }
    }

    /// Counts a request of a session's agent. Returns false beyond [`MAX_APPROVALS_PER_MINUTE`].
    pub(crate) fn count_request(&mut self, session: &SessionId, now: Instant) -> bool {
        let requested = self.requested.entry(session.clone()).or_default();
        forget_older(requested, now);

        let is_within = requested.len() < MAX_APPROVALS_PER_MINUTE;
        // A request beyond the limit does not count, so that a minute of waiting is enough.
        if is_within {
            requested.push_back(now);
        }
        is_within
    }

    /// Allows the next attempt of an operation.
    pub(crate) fn answer_late(&mut self, subject: Subject, now: Instant) {
        if self.late.len() == MAX_APPROVALS {
            self.late.remove(0);
        }
        self.late.push((subject, now));
    }

    /// Returns whether the user has allowed this attempt. It is then used up.
    pub(crate) fn take_late_answer(&mut self, subject: &Subject, now: Instant) -> bool {
        self.late.retain(|(_, at)| now.duration_since(*at) < LATE_ANSWER);
        let at = self.late.iter().position(|(late, _)| late == subject);
        at.map(|at| self.late.remove(at)).is_some()
    }

    /// Returns whether an attempt of the session was allowed.
    pub(crate) fn has_late_answers(&self, session: &SessionId) -> bool {
        self.late.iter().any(|(subject, _)| subject.session == *session)
    }

    /// Returns the number for the id of the next question.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Opens a question after [`Self::admit`].
    pub(crate) fn open(&mut self, open: Open<Q>) {
        self.opened.entry(open.subject.session.clone()).or_default().push_back(open.opened);
        self.open.push(open);
    }

    /// Opens a question again that was taken.
    pub(crate) fn reopen(&mut self, open: Open<Q>) {
        let at = self.open.partition_point(|other| other.opened <= open.opened);
        self.open.insert(at, open);
    }

    /// Takes a question that is being answered or closed. Nothing else can answer it then.
    pub(crate) fn take(&mut self, id: &str) -> Option<Open<Q>> {
        let at = self.open.iter().position(|open| open.id == id)?;
        Some(self.open.remove(at))
    }

    /// Returns the open questions, oldest first.
    pub(crate) fn pending(&self) -> &[Open<Q>] {
        &self.open
    }

    /// Returns the open questions of a session, oldest first.
    pub(crate) fn of_session(&self, session: &SessionId) -> impl Iterator<Item = &Open<Q>> {
        self.open.iter().filter(move |open| open.subject.session == *session)
    }

    /// Records the end of a question. `late` is kept for a late answer.
    pub(crate) fn note(&mut self, subject: Subject, record: RecentApproval, late: L, now: Instant) {
        if let (Some(Decision::Deny), Some(scope)) = (record.decision, record.scope) {
            self.deny(&subject, scope == AnswerScope::Session, now);
        }

        // A late answer replaces the record of the question that had expired.
        self.closed.retain(|closed| closed.record.id != record.id);
        if self.closed.len() == RECENT_APPROVALS {
            self.closed.pop_front();
        }
        self.closed.push_back(Closed { record, subject, at: now, late });
    }

    /// Returns the closed questions, oldest first.
    pub(crate) fn recent(&self) -> impl Iterator<Item = &Closed<L>> {
        self.closed.iter()
    }

    /// Returns the closed question with this id.
    pub(crate) fn closed(&self, id: &str) -> Option<&Closed<L>> {
        self.closed.iter().find(|closed| closed.record.id == id)
    }

    /// Forgets the denials and limits of a session.
    pub(crate) fn forget(&mut self, session: &SessionId) {
        self.opened.remove(session);
        self.requested.remove(session);
        self.denied.remove(session);
        self.late.retain(|(subject, _)| subject.session != *session);
    }

    /// Forgets that the user denied an operation, because the user has allowed it since.
    pub(crate) fn pardon(&mut self, subject: &Subject) {
        if let Some(denied) = self.denied.get_mut(&subject.session) {
            denied.retain(|one| !one.is_about(subject));
        }
    }

    fn deny(&mut self, subject: &Subject, is_final: bool, now: Instant) {
        let all = self.denied.entry(subject.session.clone()).or_default();
        if let Some(known) = all.iter_mut().find(|one| one.is_about(subject)) {
            known.times.retain(|at| now.duration_since(*at) < HOUR);
            known.times.push_back(now);
            known.is_final |= is_final || MAX_DENIALS <= known.times.len();
            return;
        }

        if all.len() == MAX_DENIED {
            all.pop_front();
        }
        let (kind, given) = (subject.kind, subject.given.clone());
        all.push_back(Denied { kind, given, times: VecDeque::from([now]), is_final });
    }

    fn is_denied(&self, subject: &Subject, now: Instant) -> bool {
        let mut all = self.denied.get(&subject.session).into_iter().flatten();
        all.any(|one| {
            let last = one.times.back();
            one.is_about(subject)
                && (one.is_final || last.is_some_and(|at| now.duration_since(*at) < DENIED_FOR))
        })
    }
}

/// Removes the times that are a minute old.
fn forget_older(times: &mut VecDeque<Instant>, now: Instant) {
    while times.front().is_some_and(|at| MINUTE <= now.duration_since(*at)) {
        times.pop_front();
    }
}

impl<L: Clone> Closed<L> {
    /// Returns the subject and request for a late answer, if the question expired lately.
    pub(crate) fn late(&self, now: Instant) -> Option<(Subject, L)> {
        let is_late = self.record.reason == super::CloseReason::TimedOut.name()
            && now.duration_since(self.at) < LATE_ANSWER;
        is_late.then(|| (self.subject.clone(), self.late.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approvals::CloseReason;

    fn subject(session: &str, target: &str) -> Subject {
        let (session, kind) = (SessionId::from(session), ApprovalKind::Network);
        Subject { session, kind, target: target.to_owned(), given: target.to_owned() }
    }

    fn ask(table: &mut Table<(), ()>, subject: &Subject, now: Instant) -> Result<String, NotAsked> {
        table.admit(subject, now)?;
        let id = format!("quack-{}", table.next_number());
        let until = now + Duration::from_secs(30);
        table.open(Open { id: id.clone(), subject: subject.clone(), opened: now, until, with: () });
        Ok(id)
    }

    fn close(
        table: &mut Table<(), ()>,
        id: &str,
        reason: CloseReason,
        decision: Option<(Decision, AnswerScope)>,
        now: Instant,
    ) {
        let open = table.take(id).unwrap();
        let record = RecentApproval {
            at: String::new(),
            id: id.to_owned(),
            session_id: open.subject.session.clone(),
            kind: open.subject.kind,
            target: open.subject.target.clone(),
            reason: reason.name().to_owned(),
            decision: decision.map(|(decision, _)| decision),
            scope: decision.map(|(_, scope)| scope),
            by: None,
            waited_ms: 0,
        };
        table.note(open.subject, record, (), now);
    }

    #[test]
    fn a_denial_holds_for_a_minute_and_the_third_for_the_session() {
        let (mut table, mut now) = (Table::default(), Instant::now());
        let a = subject("s", "a:443");
        let deny = Some((Decision::Deny, AnswerScope::Once));
        for n in 1..=3 {
            let id = ask(&mut table, &a, now).unwrap();
            close(&mut table, &id, CloseReason::Answered, deny, now);
            assert_eq!(ask(&mut table, &a, now), Err(NotAsked::Denied), "{n}");
            assert!(table.admit(&subject("s", "b:443"), now).is_ok());
            assert!(table.admit(&subject("t", "a:443"), now).is_ok());
            now += DENIED_FOR;
        }
        assert_eq!(ask(&mut table, &a, now + HOUR), Err(NotAsked::Denied));
        table.pardon(&a);
        assert!(table.admit(&a, now).is_ok());
        let id = ask(&mut table, &a, now).unwrap();
        let for_session = Some((Decision::Deny, AnswerScope::Session));
        close(&mut table, &id, CloseReason::Answered, for_session, now);
        assert_eq!(ask(&mut table, &a, now + HOUR), Err(NotAsked::Denied));
        table.forget(&a.session);
        assert!(table.admit(&a, now).is_ok());
    }

    #[test]
    fn questions_are_limited_per_session_per_minute_and_in_all() {
        let (mut table, now) = (Table::default(), Instant::now());
        for n in 0..MAX_APPROVALS_PER_SESSION {
            ask(&mut table, &subject("s", &n.to_string()), now).unwrap();
        }
        assert_eq!(ask(&mut table, &subject("s", "more"), now), Err(NotAsked::TooMany));
        for n in MAX_APPROVALS_PER_SESSION..MAX_APPROVALS {
            ask(&mut table, &subject(&format!("s{n}"), "x"), now).unwrap();
        }
        assert_eq!(ask(&mut table, &subject("z", "x"), now), Err(NotAsked::TooMany));
        let ids: Vec<_> = table.pending().iter().map(|open| open.id.clone()).collect();
        for id in ids {
            close(&mut table, &id, CloseReason::Ended, None, now);
        }
        for n in MAX_APPROVALS_PER_SESSION..MAX_APPROVALS_PER_MINUTE {
            let id = ask(&mut table, &subject("s", &n.to_string()), now).unwrap();
            close(&mut table, &id, CloseReason::Ended, None, now);
        }
        assert_eq!(ask(&mut table, &subject("s", "x"), now), Err(NotAsked::TooMany));
        assert!(ask(&mut table, &subject("s", "x"), now + MINUTE).is_ok());
        for n in 0..1000 {
            let id = ask(&mut table, &subject(&format!("t{n}"), "x"), now).unwrap();
            close(&mut table, &id, CloseReason::Ended, None, now);
        }
        assert_eq!(table.recent().count(), RECENT_APPROVALS);
    }

    #[test]
    fn requests_of_an_agent_are_counted_without_a_question() {
        let (mut table, now) = (Table::<(), ()>::default(), Instant::now());
        let session = SessionId::from("s");
        for _ in 0..MAX_APPROVALS_PER_MINUTE {
            assert!(table.count_request(&session, now));
        }
        assert!(!table.count_request(&session, now));
        assert!(table.count_request(&SessionId::from("t"), now));
        assert!(table.count_request(&session, now + MINUTE));
    }

    #[test]
    fn an_expired_question_can_be_answered_late_for_a_while() {
        let (mut table, now) = (Table::default(), Instant::now());
        let id = ask(&mut table, &subject("s", "a"), now).unwrap();
        close(&mut table, &id, CloseReason::TimedOut, None, now);
        let other = ask(&mut table, &subject("s", "b"), now).unwrap();
        close(&mut table, &other, CloseReason::Ended, None, now);
        let late = |table: &Table<(), ()>, id: &str, now| {
            table.closed(id).and_then(|closed| closed.late(now)).map(|(it, ())| it.target)
        };
        assert_eq!(late(&table, &id, now).as_deref(), Some("a"));
        assert_eq!(late(&table, &other, now), None);
        assert_eq!(late(&table, &id, now + LATE_ANSWER), None);
        let a = subject("s", "a");
        table.answer_late(a.clone(), now);
        assert!(table.has_late_answers(&a.session));
        assert!(!table.take_late_answer(&subject("s", "b"), now));
        assert!(table.take_late_answer(&a, now) && !table.take_late_answer(&a, now));
        table.answer_late(a.clone(), now);
        assert!(!table.take_late_answer(&a, now + LATE_ANSWER));
    }
}
