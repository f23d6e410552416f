//! The calls of one session without a reply.
//!
//! Invariant: a call leaves this table exactly when it is answered.

use crate::errors::CallError;
use crate::events::{Events, SessionCall};
use crate::metrics::call_latency::CallOutcome;
use crate::pool::command_slots::CommandSlot;
use crate::pool::snapshot::CallSnapshot;
use crate::session::pending_input::PendingInput;
use crate::session::worker::{CallResult, CallTool, Printed};
use actix::SpawnHandle;
use quackd_protocol::client::ToolInfo;
use quackd_protocol::limits::MAX_CALLS_PER_SESSION;
use quackd_protocol::tools::WEB_SEARCH;
use quackd_protocol::worker::{CallSpec, ToolFinished};
use quackd_protocol::{CallId, SessionId};
use serde_json::value::to_raw_value;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

/// Shorter waits do not reduce a call's deadline: the timeout error of a call names the timeout that the caller
/// requested.
const NEGLIGIBLE_WAIT: Duration = Duration::from_millis(100);

/// A call with less time left is not sent, because it could only time out.
const MIN_SEND_BUDGET: Duration = Duration::from_millis(50);

/// A call without a reply.
#[derive(Debug)]
struct PendingCall {
    call: SessionCall,
    /// Name of the tool, cut for display.
    label: Rc<str>,
    /// Whether a web search was started for the call.
    has_searched: bool,
    /// Waits for the search. Canceled when the call ends.
    search: Option<SpawnHandle>,
    /// Waits for a command slot.
    queued: Option<SpawnHandle>,
    /// Command slot, held while the command runs.
    slot: Option<CommandSlot>,
    /// Id and command for questions to the user. `None` if no client can answer.
    told: Option<Rc<(String, String)>>,
    /// False: the next worker may get the call. True: no other worker gets it, unless its worker reports that the call
    /// was not run.
    is_sent: bool,
    /// The worker reported that the call was not run. A second such report is the final result.
    was_returned: bool,
    since: Instant,
    answer: oneshot::Sender<CallResult>,
    wait: CallWait,
    /// Limit of the current wait.
    due: Instant,
    /// Receives the output of a streamed call.
    stream: Option<mpsc::Sender<Printed>>,
    /// The input that its client sends.
    input: Option<PendingInput>,
    /// Waits for its client to cancel it.
    cancel: Option<SpawnHandle>,
}

/// Event that a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallWait {
    /// A worker that is ready.
    Worker,
    /// A command slot.
    Slot,
    /// The worker's answer, for this long.
    Answer(Duration),
}

/// The worker sent output for an unknown call, or more than its credits allow.
#[derive(Debug)]
pub(crate) struct Unpaid;

/// The pending calls of one session, ordered by arrival.
#[derive(Debug, Default)]
pub(crate) struct PendingCalls {
    /// Boxed, because an empty map keeps the memory for some entries.
    calls: BTreeMap<u64, Box<PendingCall>>,
    last: u64,
}

impl PendingCall {
    /// Time left until the deadline.
    fn time_left(&self, now: Instant) -> Duration {
        self.call.spec.deadline().saturating_sub(now.saturating_duration_since(self.since))
    }
}

impl PendingCalls {
    /// Whether the session has reached its limit of calls.
    pub(crate) fn is_full(&self) -> bool {
        MAX_CALLS_PER_SESSION <= self.calls.len()
    }

    /// Whether a call was sent and is not answered.
    pub(crate) fn any_sent(&self) -> bool {
        self.calls.values().any(|call| call.is_sent)
    }

    /// Whether a call waits for a worker.
    pub(crate) fn any_unsent(&self) -> bool {
        self.calls.values().any(|call| !call.is_sent)
    }

    /// Returns a new call number.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Adds an unsent call, which waits for a worker until `due`.
    pub(crate) fn insert(
        &mut self,
        number: u64,
        msg: CallTool,
        told: Option<Rc<(String, String)>>,
        now: Instant,
        due: Instant,
    ) -> oneshot::Receiver<CallResult> {
        let (answer, answered) = oneshot::channel();
        let CallTool { mut call, stream, input, cancel: _ } = msg;
        call.spec.stream = stream.is_some();
        call.spec.stdin = input.is_some();

        let call = PendingCall {
            label: call.shown_tool().into(),
            call,
            has_searched: false,
            search: None,
            queued: None,
            slot: None,
            told,
            is_sent: false,
            was_returned: false,
            since: now,
            answer,
            wait: CallWait::Worker,
            due,
            stream,
            input: input.map(PendingInput::new),
            cancel: None,
        };

        self.calls.insert(number, Box::new(call));
        answered
    }

    /// Numbers of the calls that wait for a worker, oldest first.
    pub(crate) fn unsent(&self) -> Vec<u64> {
        self.calls.iter().filter(|(_, c)| !c.is_sent).map(|(n, _)| *n).collect()
    }

    /// Numbers of the calls that a worker has.
    pub(crate) fn sent(&self) -> Vec<u64> {
        self.calls.iter().filter(|(_, c)| c.is_sent).map(|(n, _)| *n).collect()
    }

    /// Marks a call as sent. Returns its frame and the remaining time. From here on the call may have run. Returns
    /// `None` if hardly any time is left; the timer then answers the call.
    pub(crate) fn send(&mut self, number: u64, now: Instant) -> Option<(CallSpec, Duration)> {
        let call = self.calls.get_mut(&number)?;
        let is_prompt = now.saturating_duration_since(call.since) < NEGLIGIBLE_WAIT;
        let left = if is_prompt { call.call.spec.deadline() } else { call.time_left(now) };
        if left < MIN_SEND_BUDGET || call.is_sent {
            return None;
        }
        call.is_sent = true;
        let mut frame = call.call.spec.clone();
        frame.set_deadline(left);
        Some((frame, left))
    }

    /// Makes a sent call unsent again, because its worker reports that it was not run. Returns false if it was
    /// returned before, or if a web search was made for it.
    pub(crate) fn take_back(&mut self, number: u64) -> bool {
        let Some(call) = self.calls.get_mut(&number) else { return false };
        let may_return = call.is_sent && !call.was_returned && !call.has_searched;
        if may_return {
            (call.is_sent, call.was_returned) = (false, true);
        }
        may_return
    }

    /// A call.
    pub(crate) fn get(&self, number: u64) -> Option<&SessionCall> {
        self.calls.get(&number).map(|call| &call.call)
    }

    /// The sent calls whose beginning is not recorded, with the time since each arrived.
    pub(crate) fn unrecorded(&self) -> Vec<(u64, Duration)> {
        let is_unrecorded = |call: &PendingCall| call.is_sent && !call.call.is_begun;
        let unrecorded = self.calls.iter().filter(|(_, call)| is_unrecorded(call));
        unrecorded.map(|(number, call)| (*number, call.since.elapsed())).collect()
    }

    /// Records the beginning of a call that still runs, once. `record` returns whether it is in the journal.
    pub(crate) fn begin(
        &mut self,
        number: u64,
        record: impl FnOnce(&SessionCall, Duration) -> bool,
    ) {
        if let Some(call) = self.calls.get_mut(&number).filter(|it| !it.call.is_begun) {
            call.call.is_begun = record(&call.call, call.since.elapsed());
        }
    }

    /// Sets what a call waits for, and the limit of that wait.
    pub(crate) fn set_wait(&mut self, number: u64, wait: CallWait, due: Instant) {
        if let Some(call) = self.calls.get_mut(&number) {
            (call.wait, call.due) = (wait, due);
        }
    }

    /// The calls that have waited too long, oldest first, with the limit that each has passed.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<(u64, CallWait, Instant)> {
        let overdue = self.calls.iter().filter(|(_, call)| call.due <= now);
        overdue.map(|(number, call)| (*number, call.wait, call.due)).collect()
    }

    /// When the next wait ends.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.calls.values().map(|call| call.due).min()
    }

    /// Answers a call with the result that `result` returns for its deadline, after `tell` has read the result. Returns
    /// the handles of the call's background work. If the client has disconnected, the result is dropped.
    pub(crate) fn answer(
        &mut self,
        number: u64,
        result: impl FnOnce(Duration) -> CallResult,
        tell: impl FnOnce(&SessionCall, &CallResult, Duration),
    ) -> Vec<SpawnHandle> {
        let Some(call) = self.calls.remove(&number) else { return Vec::new() };
        let result = result(call.call.spec.deadline());
        tell(&call.call, &result, call.since.elapsed());
        call.answer.send(result).ok();
        let waiting = call.input.and_then(PendingInput::into_waiting);
        [call.search, call.queued, call.cancel, waiting].into_iter().flatten().collect()
    }

    /// Stores the task that waits for the client to cancel the call.
    pub(crate) fn cancelled_by(&mut self, number: u64, cancel: SpawnHandle) {
        if let Some(call) = self.calls.get_mut(&number) {
            call.cancel = Some(cancel);
        }
    }

    /// Marks a call that its client cancels, so that no other worker gets it. Returns whether a worker has it; `None`
    /// if it was answered.
    pub(crate) fn cancel(&mut self, number: u64) -> Option<bool> {
        let call = self.calls.get_mut(&number)?;
        call.was_returned = true;
        Some(call.is_sent)
    }

    /// Passes on the output of a streamed call.
    pub(crate) fn printed(&self, printed: Printed) -> Result<(), Unpaid> {
        let number = self.sent_number(&printed.call_id).ok_or(Unpaid)?;
        let stream = self.calls.get(&number).and_then(|call| call.stream.as_ref()).ok_or(Unpaid)?;
        match stream.try_send(printed) {
            // Without a reader the output is dropped.
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full(_)) => Err(Unpaid),
        }
    }

    /// Whether a call's output is streamed.
    pub(crate) fn is_streamed(&self, number: u64) -> bool {
        self.calls.get(&number).is_some_and(|call| call.stream.is_some())
    }

    /// Returns the input of a call.
    pub(crate) fn input(&mut self, number: u64) -> Option<&mut PendingInput> {
        self.calls.get_mut(&number)?.input.as_mut()
    }

    /// Whether an unsent call runs a command and holds no slot.
    pub(crate) fn needs_slot(&self, number: u64) -> bool {
        let call = self.calls.get(&number).filter(|call| !call.is_sent && call.slot.is_none());
        call.is_some_and(|call| call.call.runs_commands())
    }

    /// Whether a call waits for a command slot.
    pub(crate) fn is_queued(&self, number: u64) -> bool {
        self.calls.get(&number).is_some_and(|call| call.queued.is_some())
    }

    /// Stores the task that waits for the call's slot.
    pub(crate) fn queue(&mut self, number: u64, queued: SpawnHandle) {
        if let Some(call) = self.calls.get_mut(&number) {
            call.queued = Some(queued);
        }
    }

    /// Stores the slot with its call. Drops the slot if the call was answered in the meantime.
    pub(crate) fn assign_slot(&mut self, number: u64, slot: CommandSlot) {
        if let Some(call) = self.calls.get_mut(&number) {
            call.queued = None;
            call.slot = Some(slot);
        }
    }

    /// Time left until a call's deadline.
    pub(crate) fn time_left(&self, number: u64, now: Instant) -> Duration {
        self.calls.get(&number).map_or(Duration::ZERO, |call| call.time_left(now))
    }

    /// A sent call.
    pub(crate) fn sent_call(&self, id: &CallId) -> Option<&SessionCall> {
        self.get(self.sent_number(id)?)
    }

    /// Marks a sent `web_search` call as searching. Returns `false` if it is not such a call, or has already searched.
    pub(crate) fn begin_search(&mut self, id: &CallId) -> bool {
        let Some(number) = self.sent_number(id) else { return false };
        self.calls.get_mut(&number).is_some_and(|call| {
            call.call.spec.tool == WEB_SEARCH.name
                && !std::mem::replace(&mut call.has_searched, true)
        })
    }

    /// Number of running web searches.
    pub(crate) fn searches(&self) -> usize {
        self.calls.values().filter(|call| call.search.is_some()).count()
    }

    /// Stores the task that waits for the web search of a call. `None`: the search has ended.
    pub(crate) fn set_search(&mut self, id: &CallId, search: Option<SpawnHandle>) {
        let call = self.sent_number(id).and_then(|number| self.calls.get_mut(&number));
        if let Some(call) = call {
            call.search = search;
        }
    }

    /// Number of pending calls.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Number of a sent call with the id that a worker reported.
    pub(crate) fn sent_number(&self, id: &CallId) -> Option<u64> {
        let number = id.as_str().parse().ok()?;
        self.calls.get(&number).filter(|call| call.is_sent)?;
        Some(number)
    }

    /// The calls, oldest first.
    pub(crate) fn snapshot(&self) -> Vec<CallSnapshot> {
        let row = |(number, call): (&u64, &PendingCall)| CallSnapshot {
            number: *number,
            tool: Rc::clone(&call.label),
            is_sent: call.is_sent,
            since: call.since,
            deadline: call.call.spec.deadline(),
            event_id: call.call.event_id().map(Rc::from),
            told: call.told.clone(),
        };
        self.calls.iter().map(|(number, call)| row((number, call))).collect()
    }
}

/// Id of a call in frames to the worker.
pub(crate) fn call_id(number: u64) -> CallId {
    CallId(number.to_string())
}

/// Label of a result in the latency histograms.
pub(crate) fn outcome(result: &CallResult) -> CallOutcome {
    match result.as_ref().map(|done| &done.finished.report) {
        Ok(report) if report.aborted => CallOutcome::Aborted,
        Ok(report) if report.timed_out => CallOutcome::TimedOut,
        Ok(report) if report.is_error => CallOutcome::Error,
        Ok(_) => CallOutcome::Ok,
        Err(CallError::Aborted) => CallOutcome::Aborted,
        Err(error) if error.worker_died() => CallOutcome::WorkerDied,
        Err(error) if error.is_busy() => CallOutcome::Busy,
        Err(_) => CallOutcome::Refused,
    }
}

/// Details of a call's end, for followers.
pub(crate) fn tool_info(session: &SessionId, result: &CallResult, elapsed: Duration) -> ToolInfo {
    let duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    match result {
        Ok(done) => ToolInfo::from_report(session, &done.finished.report, duration_ms),
        Err(error) => ToolInfo {
            session_id: session.0.clone(),
            is_error: true,
            timed_out: matches!(error, CallError::NoAnswer { .. }),
            aborted: *error == CallError::Aborted,
            worker_died: error.worker_died(),
            busy: error.is_busy(),
            duration_ms,
            ..ToolInfo::default()
        },
    }
}

/// Publishes the end of a call, with the output that followers have not received.
pub(crate) fn publish_end(
    events: &Events,
    session: &SessionId,
    call: &SessionCall,
    result: &CallResult,
    elapsed: Duration,
) {
    let finished = result.as_ref().ok().map(|done| &done.finished);
    if let Some(ToolFinished { update: Some(update), .. }) = finished {
        events.tool_printed(session, call, update);
    }
    let failure = result.as_ref().err().and_then(|e| to_raw_value(&e.text(&call.spec.tool)).ok());
    let text = finished.map(|it| it.shown.as_deref().unwrap_or(&it.text)).or(failure.as_deref());
    events.tool_ended(session, call, text, &tool_info(session, result, elapsed));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_call() -> CallTool {
        let spec = CallSpec {
            tool: "bash".into(),
            arguments: "{}".into(),
            deadline_ms: 30_000,
            ..CallSpec::default()
        };
        let call = SessionCall { client_id: Some("c".into()), ..SessionCall::new(spec) };
        CallTool { call, stream: None, input: None, cancel: None }
    }

    #[test]
    fn a_call_is_sent_once_and_answered_once() {
        let now = Instant::now();
        let mut calls = PendingCalls::default();
        let number = calls.next_number();
        let mut answered = calls.insert(number, new_call(), None, now, now);
        assert_eq!((calls.unsent(), calls.sent()), (vec![number], vec![]));
        assert_eq!(calls.sent_number(&call_id(number)), None, "not sent yet");

        let (frame, left) = calls.send(number, now + Duration::from_secs(1)).unwrap();
        assert_eq!((frame.deadline_ms, left), (29_000, Duration::from_secs(29)));
        assert!(calls.send(number, now).is_none(), "never sent twice");
        assert_eq!(calls.sent_number(&call_id(number)), Some(number));

        assert!(calls.take_back(number), "its worker has not run it");
        assert_eq!(calls.sent_number(&call_id(number)), None);
        assert_eq!(calls.send(number, now).unwrap().0.arguments, "{}");
        assert!(!calls.take_back(number), "only once");

        let refuse = |_| Err(CallError::NotResponding);
        assert!(calls.answer(number, refuse, |call, _, _| assert_eq!(call.id(), "c")).is_empty());
        assert_eq!(answered.try_recv().unwrap().unwrap_err(), CallError::NotResponding);
        assert!(calls.answer(number, refuse, |_, _, _| panic!("told twice")).is_empty());
        assert_eq!(calls.sent_number(&call_id(number)), None);
    }

    #[test]
    fn a_call_that_has_waited_its_time_away_is_not_sent() {
        let now = Instant::now();
        let mut calls = PendingCalls::default();
        let number = calls.next_number();
        drop(calls.insert(number, new_call(), None, now, now));
        assert!(calls.send(number, now + Duration::from_millis(29_990)).is_none());
        assert_eq!(calls.unsent(), [number], "the timer still answers the call");
        assert!(calls.send(number, now + Duration::from_secs(29)).is_some());
    }

    #[test]
    fn ids_that_we_did_not_mint_are_nobodys() {
        let calls = PendingCalls::default();
        for id in ["", "1", "-1", "x", "18446744073709551616"] {
            assert_eq!(calls.sent_number(&id.into()), None);
        }
    }
}
