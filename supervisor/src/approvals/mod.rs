//! Questions to the user about denied operations.
//!
//! Requests come from proxies ([`crate::session`]) and from calls ([`crate::methods`]). A question goes to the followers
//! of its session as an `extension_ui_request`, and to the clients that watch questions. The first answer counts.
//! Nothing is asked without a client that can answer. Saving an answer is the job of the method that receives it: it
//! takes the question, and closes it when the answer is in force.
//!
//! Not an actor: every function runs on the actors' thread.

mod outcome;
mod table;
pub(crate) mod words;

pub(crate) use outcome::{CloseReason, NoAnswer, Outcome};
pub(crate) use table::Subject;

use crate::clock::{ms, now_text};
use crate::events::Events;
use crate::events::client_registry::Clients;
use crate::log::journal::Journal;
use crate::metrics::Metrics;
use crate::wire;
use bytes::Bytes;
use outcome::Answer;
use quackd_protocol::SessionId;
use quackd_protocol::approval::{
    AnswerScope, ApprovalClosed, ApprovalKind, ApprovalRequest, DENY_OPTION, Decision, Permission,
    REQUEST_PREFIX, RecentApproval,
};
use quackd_protocol::client::{EventLine, ToldLine};
use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use table::{NotAsked, Open, Table};
use tokio::sync::oneshot;

/// Most operations that wait for one question.
const MAX_WAITERS: usize = 64;

/// A request to ask the user.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) subject: Subject,
    /// The question, such as `Allow network access?`.
    pub(crate) title: &'static str,
    /// Text with the facts and the words of others, from [`words::message`].
    pub(crate) message: String,
    /// A preset that has the host.
    pub(crate) preset: Option<String>,
    /// The call that caused it, if it is known.
    pub(crate) tool_call_id: Option<String>,
    /// Whether the target was inferred from a program's output.
    pub(crate) likely: bool,
    /// Whether the operation can be allowed. Otherwise the only option denies.
    pub(crate) is_possible: bool,
}

/// An open question with its waiting operations.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) request: ApprovalRequest,
    pub(crate) at: String,
    /// Number of the event that announced it, and the event.
    seq: u64,
    line: Bytes,
    waiters: Vec<oneshot::Sender<Outcome>>,
}

/// An open question.
pub(crate) type OpenQuestion = Open<Waiting>;

/// An answer that is being saved. Dropping it opens the question again: the answer was refused, or its client left.
#[derive(Debug)]
pub(crate) struct Answering {
    pub(crate) subject: Subject,
    pub(crate) request: ApprovalRequest,
    open: Option<OpenQuestion>,
    approvals: Rc<Approvals>,
}

impl Answering {
    /// Whether the question had expired.
    pub(crate) fn is_late(&self) -> bool {
        self.open.is_none()
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            self.approvals.reopen(open);
        }
    }
}

/// An operation that waits for an outcome. Dropping it ends the question, unless others wait for it too.
#[derive(Debug)]
pub(crate) struct PendingOutcome {
    outcome: oneshot::Receiver<Outcome>,
    approvals: Rc<Approvals>,
    subject: Subject,
}

impl Future for PendingOutcome {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = Pin::new(&mut self.outcome).poll(context);
        outcome.map(|outcome| outcome.unwrap_or(Outcome::Ended))
    }
}

impl Drop for PendingOutcome {
    fn drop(&mut self) {
        self.outcome.close();
        self.approvals.abandoned(&self.subject);
    }
}

/// Receives the number of a session's open questions.
type Publish = Box<dyn Fn(&SessionId, usize)>;

/// The function of [`Approvals::on_change`]. Empty until it is set.
#[derive(Default)]
struct OnChange(OnceCell<Publish>);

impl fmt::Debug for OnChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnChange")
    }
}

/// All questions. One instance per daemon.
#[derive(Debug)]
pub(crate) struct Approvals {
    events: Rc<Events>,
    clients: Rc<Clients>,
    journal: Journal,
    metrics: Arc<Metrics>,
    /// Distinguishes the ids of this run of the daemon.
    epoch: String,
    on_change: OnChange,
    table: RefCell<Table<Waiting, ApprovalRequest>>,
}

impl Approvals {
    /// Creates the state without questions.
    pub(crate) fn new(
        events: Rc<Events>,
        clients: Rc<Clients>,
        journal: Journal,
        metrics: Arc<Metrics>,
    ) -> Rc<Self> {
        // Without random numbers, the process id tells the runs apart.
        let id = quackd_home::new_id().unwrap_or_else(|_| std::process::id().to_string());
        let epoch = id.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
        let (on_change, table) = (OnChange::default(), RefCell::default());
        Rc::new(Self { events, clients, journal, metrics, epoch, on_change, table })
    }

    /// Sets the function that receives the number of a session's open questions after each change.
    pub(crate) fn on_change(&self, publish: impl Fn(&SessionId, usize) + 'static) {
        // Set once, at the start, so there is no earlier function.
        self.on_change.0.set(Box::new(publish)).ok();
    }

    fn changed(&self, session: &SessionId) {
        if let Some(publish) = self.on_change.0.get() {
            publish(session, self.table.borrow().of_session(session).count());
        }
    }

    /// Returns whether a client can answer for the session.
    pub(crate) fn can_answer(&self, session: &SessionId) -> bool {
        self.events.answerers.has(session)
    }

    /// Returns false if a request about the session can only have the outcome [`Outcome::NoAnswerer`]: no client can
    /// answer, and the user has not answered an expired question lately.
    pub(crate) fn may_ask(&self, session: &SessionId) -> bool {
        self.can_answer(session) || self.table.borrow().has_late_answers(session)
    }

    /// Counts a request of an agent for a permission, whether or not it leads to a question. Returns false beyond the
    /// limit of a minute.
    pub(crate) fn count_request(&self, session: &SessionId) -> bool {
        self.table.borrow_mut().count_request(session, Instant::now())
    }

    /// Asks the user, unless an equal question is open. The future ends with the outcome, after `wait` at the latest.
    pub(crate) fn ask(self: &Rc<Self>, question: Question, wait: Duration) -> PendingOutcome {
        let (waiter, outcome) = oneshot::channel();
        let (approvals, subject) = (Rc::clone(self), question.subject.clone());
        let outcome = PendingOutcome { outcome, approvals, subject };
        let now = Instant::now();

        if let Some(open) = self.table.borrow_mut().same(&question.subject) {
            open.with.waiters.retain(|waiter| !waiter.is_closed());
            if MAX_WAITERS <= open.with.waiters.len() {
                reply(waiter, Outcome::TooMany);
            } else {
                open.with.waiters.push(waiter);
            }
            return outcome;
        }

        // The user has answered an earlier question about this operation after its time.
        if self.table.borrow_mut().take_late_answer(&question.subject, now) {
            reply(waiter, Outcome::Allowed(AnswerScope::Once));
            return outcome;
        }

        // The borrow must end before a new question is opened.
        let admitted = self.table.borrow_mut().admit(&question.subject, now);
        match admitted {
            Err(NotAsked::Denied) => reply(waiter, Outcome::Denied),
            Err(NotAsked::TooMany) => reply(waiter, Outcome::TooMany),
            Ok(()) if !self.can_answer(&question.subject.session) => {
                reply(waiter, Outcome::NoAnswerer);
            }
            Ok(()) => self.open(question, waiter, now, wait),
        }
        outcome
    }

    fn open(
        self: &Rc<Self>,
        question: Question,
        waiter: oneshot::Sender<Outcome>,
        now: Instant,
        wait: Duration,
    ) {
        let Question { subject, preset, tool_call_id, likely, is_possible, .. } = question;
        let number = self.table.borrow_mut().next_number();
        let id = format!("{REQUEST_PREFIX}{}-{number}", self.epoch);
        // Without a scope, the only option denies.
        let scopes = if is_possible { subject.kind.scopes(likely).to_vec() } else { Vec::new() };
        let allow = scopes.iter().map(|scope| scope.option().to_owned());
        let request = ApprovalRequest {
            kind: ApprovalRequest::NAME.to_owned(),
            id: id.clone(),
            method: "select".to_owned(),
            title: question.title.to_owned(),
            message: question.message,
            options: std::iter::once(DENY_OPTION.to_owned()).chain(allow).collect(),
            timeout: ms(wait),
            permission: Permission {
                kind: subject.kind,
                target: subject.target.clone(),
                preset,
                tool_call_id,
                likely,
                scopes,
            },
        };

        let session = subject.session.clone();
        let event = ApprovalRequest::NAME;
        let seq = self.events.publish(&session, event, || &request);
        let line = EventLine { event, session_id: &session, data: &request, seq, turn: None };
        let line = wire::event(&line);
        self.tell_watchers(&session, event, &request);

        let with = Waiting { request, at: now_text(), seq, line, waiters: vec![waiter] };
        let open = Open { id: id.clone(), subject, opened: now, until: now + wait, with };
        self.table.borrow_mut().open(open);
        self.metrics.approvals_asked.add(1);
        self.changed(&session);

        // Not canceled when the question is closed: `close` then finds nothing.
        let approvals = Rc::clone(self);
        actix::spawn(async move {
            tokio::time::sleep(wait).await;
            approvals.close(&id, CloseReason::TimedOut);
        });
    }

    /// Closes the question about this subject if no operation waits for it: its client has disconnected, or the
    /// call was cancelled.
    fn abandoned(&self, subject: &Subject) {
        let mut table = self.table.borrow_mut();
        // A question that is closed or being answered needs no waiter.
        let Some(open) = table.same(subject) else { return };
        open.with.waiters.retain(|waiter| !waiter.is_closed());
        if !open.with.waiters.is_empty() {
            return;
        }

        // The waiter's own timer may fire before the one of the question.
        let is_late = open.until <= Instant::now();
        let reason = if is_late { CloseReason::TimedOut } else { CloseReason::Ended };
        let id = open.id.clone();
        drop(table);
        self.close(&id, reason);
    }

    /// Closes a question without an answer.
    fn close(&self, id: &str, reason: CloseReason) {
        // A question that is being answered is not in the table: the answer closes it.
        let Some(open) = self.table.borrow_mut().take(id) else { return };
        let outcome = match reason {
            CloseReason::TimedOut => Outcome::TimedOut,
            CloseReason::Answered | CloseReason::Ended => Outcome::Ended,
        };
        self.end(open, reason, None, outcome);
    }

    /// Closes the open question about this subject, because a changed rule decides about it. A question that is being
    /// answered is not open: its answer may be that rule.
    pub(crate) fn withdraw(&self, subject: &Subject) {
        let id = self.table.borrow_mut().same(subject).map(|open| open.id.clone());
        let open = id.and_then(|id| self.table.borrow_mut().take(&id));
        if let Some(open) = open {
            self.end(open, CloseReason::Ended, None, Outcome::RulesChanged);
        }
    }

    /// Leaves an open question to the other clients that can answer, and closes it if there is none. `own` counts how often
    /// the client that has no answer can answer for a session. Returns the session.
    pub(crate) fn dismissed(
        self: &Rc<Self>,
        id: &str,
        own: impl FnOnce(&SessionId) -> usize,
    ) -> Result<SessionId, NoAnswer> {
        let mut answering = self.take(id)?;
        let session = answering.subject.session.clone();

        let has_others = own(&session) < self.events.answerers.count(&session);
        // Otherwise the drop opens it again.
        if !has_others && let Some(open) = answering.open.take() {
            self.end(open, CloseReason::Ended, None, Outcome::NoAnswerer);
        }
        Ok(session)
    }

    /// Closes all questions, because the daemon stops.
    pub(crate) fn end_all(&self) {
        // Collected first, because `close` borrows the table.
        let ids: Vec<_> =
            self.table.borrow().pending().iter().map(|open| open.id.clone()).collect();
        ids.iter().for_each(|id| self.close(id, CloseReason::Ended));
    }

    /// Closes the questions of a session that has ended.
    pub(crate) fn end_session(&self, session: &SessionId) {
        let ids: Vec<_> =
            self.table.borrow().of_session(session).map(|open| open.id.clone()).collect();
        ids.iter().for_each(|id| self.close(id, CloseReason::Ended));
        self.table.borrow_mut().forget(session);
    }

    /// Starts to answer the question with this id, also for a while after it has expired. Another answer to it is then
    /// refused. An answer always names its question: another one may have been opened since the user read it.
    pub(crate) fn take(self: &Rc<Self>, id: &str) -> Result<Answering, NoAnswer> {
        let approvals = Rc::clone(self);
        let mut table = self.table.borrow_mut();
        if let Some(open) = table.take(id) {
            let (subject, request) = (open.subject.clone(), open.with.request.clone());
            return Ok(Answering { subject, request, open: Some(open), approvals });
        }

        let closed = table.closed(id).ok_or(NoAnswer::Unknown)?;
        let late = closed.late(Instant::now());
        let closed = || NoAnswer::Closed(Box::new(closed.record.clone()));
        let (subject, request) = late.ok_or_else(closed)?;
        Ok(Answering { subject, request, open: None, approvals })
    }

    fn reopen(&self, open: OpenQuestion) {
        let (id, is_late) = (open.id.clone(), open.until <= Instant::now());
        self.table.borrow_mut().reopen(open);
        // Its timer has fired while it was being answered, and found nothing.
        if is_late {
            self.close(&id, CloseReason::TimedOut);
        }
    }

    /// Finishes an answer that is in force. The waiting operations get it.
    pub(crate) fn answered(
        &self,
        mut answering: Answering,
        decision: Decision,
        scope: AnswerScope,
        by: String,
    ) {
        let subject = answering.subject.clone();
        let (outcome, counter) = match decision {
            Decision::Allow => (Outcome::Allowed(scope), &self.metrics.approvals_allowed),
            Decision::Deny => (Outcome::Denied, &self.metrics.approvals_denied),
        };
        counter.add(1);
        if decision == Decision::Allow {
            self.table.borrow_mut().pardon(&subject);
        }

        let answer = Some(Answer { decision, scope, by });
        // Taken, so that the drop does not open the question again.
        if let Some(open) = answering.open.take() {
            return self.end(open, CloseReason::Answered, answer, outcome);
        }

        // No operation waits any longer. The next equal one gets the answer; the proxy allows a host for a while.
        let is_once = (decision, scope) == (Decision::Allow, AnswerScope::Once);
        if is_once && subject.kind != ApprovalKind::Network {
            self.table.borrow_mut().answer_late(subject.clone(), Instant::now());
        }
        let request = answering.request.clone();
        let record = record(&subject, &request, CloseReason::Answered, answer, Duration::ZERO);
        self.note(subject, record, request);
    }

    /// Ends a question that was taken out of the table. The waiting operations get the outcome.
    fn end(
        &self,
        open: OpenQuestion,
        reason: CloseReason,
        answer: Option<Answer>,
        outcome: Outcome,
    ) {
        let Open { subject, opened, with: Waiting { request, waiters, .. }, .. } = open;
        let record = record(&subject, &request, reason, answer, opened.elapsed());
        let closed = ApprovalClosed {
            kind: ApprovalClosed::NAME.to_owned(),
            id: record.id.clone(),
            reason: record.reason.clone(),
            decision: record.decision,
            scope: record.scope,
            by: record.by.clone(),
        };
        self.events.publish(&subject.session, ApprovalClosed::NAME, || &closed);
        self.tell_watchers(&subject.session, ApprovalClosed::NAME, &closed);

        if reason == CloseReason::TimedOut {
            self.metrics.approvals_expired.add(1);
        }
        self.changed(&subject.session);
        self.note(subject, record, request);
        waiters.into_iter().for_each(|waiter| reply(waiter, outcome));
    }

    /// Keeps the record of a closed question, and writes it to the journal.
    fn note(&self, subject: Subject, record: RecentApproval, request: ApprovalRequest) {
        self.journal.add(&record);
        self.table.borrow_mut().note(subject, record, request, Instant::now());
    }

    fn tell_watchers<D: serde::Serialize>(&self, session: &SessionId, event: &str, data: &D) {
        let line = wire::event(&ToldLine { event, session_id: session, data });
        self.clients.push_to_watchers(session, &line);
    }

    /// Returns the announcements of open questions that a follower does not get if it starts with event `next`.
    pub(crate) fn announced_before(&self, session: &SessionId, next: u64) -> Vec<Bytes> {
        let table = self.table.borrow();
        let earlier = table.of_session(session).filter(|open| open.with.seq < next);
        earlier.map(|open| open.with.line.clone()).collect()
    }

    /// Calls `read` with the open questions, oldest first.
    pub(crate) fn with_pending<T>(&self, read: impl FnOnce(&[OpenQuestion]) -> T) -> T {
        read(self.table.borrow().pending())
    }

    /// Returns the last closed questions, oldest first.
    pub(crate) fn recent(&self) -> Vec<RecentApproval> {
        self.table.borrow().recent().map(|closed| closed.record.clone()).collect()
    }
}

/// Describes a closed question.
fn record(
    subject: &Subject,
    request: &ApprovalRequest,
    reason: CloseReason,
    answer: Option<Answer>,
    waited: Duration,
) -> RecentApproval {
    RecentApproval {
        at: now_text(),
        id: request.id.clone(),
        session_id: subject.session.clone(),
        kind: subject.kind,
        target: subject.target.clone(),
        reason: reason.name().to_owned(),
        decision: answer.as_ref().map(|answer| answer.decision),
        scope: answer.as_ref().map(|answer| answer.scope),
        by: answer.map(|answer| answer.by),
        waited_ms: ms(waited),
    }
}

fn reply(waiter: oneshot::Sender<Outcome>, outcome: Outcome) {
    // The operation may have ended.
    waiter.send(outcome).ok();
}
