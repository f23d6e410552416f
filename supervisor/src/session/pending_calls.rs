//! The calls of one session that are not answered yet.
//!
//! Invariant: a call leaves this table exactly when it is answered, and it is answered by leaving it.

use crate::errors::CallError;
use crate::events::{Events, ShownCall};
use crate::metrics::call_latency::CallOutcome;
use crate::pool::command_slots::Place;
use crate::session::worker::CallDone;
use actix::SpawnHandle;
use quackd_protocol::client::{CallInfo, ToolInfo};
use quackd_protocol::limits::MAX_CALLS_PER_SESSION;
use quackd_protocol::output::OutputPiece;
use quackd_protocol::worker::ToolCall;
use quackd_protocol::{CallId, SessionId};
use serde_json::value::to_raw_value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

/// A wait shorter than this is not taken off a call's deadline: the answer of a call that ran into its
/// limit names the limit that was asked for.
const NEGLIGIBLE: Duration = Duration::from_millis(100);

/// A call that has less time left than this could only run into its deadline.
const LEAST: Duration = Duration::from_millis(50);

/// What a call is answered with.
pub(crate) type CallResult = Result<CallDone, CallError>;

/// One call.
#[derive(Debug)]
struct Call {
    /// What followers are told of it.
    shown: ShownCall,
    /// A web search is under way for it, or was.
    has_searched: bool,
    /// What waits for the search; of no use once the call has ended.
    search: Option<SpawnHandle>,
    /// What waits for a place to run its command.
    queued: Option<SpawnHandle>,
    /// Held while its command runs.
    place: Option<Place>,
    arguments: String,
    safe_mode: bool,
    /// False: it may go to the next worker. True: never, unless its worker reports that it was not run.
    is_sent: bool,
    /// A worker reported that it was not run. A second report is its answer.
    was_returned: bool,
    since: Instant,
    deadline: Duration,
    answer: oneshot::Sender<CallResult>,
    timer: SpawnHandle,
    /// Receives the output of a streamed call.
    stream: Option<mpsc::Sender<Printed>>,
    /// Waits for its client to cancel it.
    cancel: Option<SpawnHandle>,
}

/// The next output of a streamed call.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) call_id: CallId,
    pub(crate) piece: OutputPiece,
}

/// The worker sent output that no call has asked for, or more than it has credits for.
#[derive(Debug)]
pub(crate) struct Unpaid;

/// See the module's documentation. Ordered by arrival.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    calls: BTreeMap<u64, Call>,
    last: u64,
}

/// What a call brings.
#[derive(Debug)]
pub(crate) struct NewCall {
    pub(crate) shown: ShownCall,
    pub(crate) arguments: String,
    pub(crate) safe_mode: bool,
    pub(crate) deadline: Duration,
    pub(crate) stream: Option<mpsc::Sender<Printed>>,
}

impl Calls {
    /// Whether the session has as many calls as it may have.
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

    /// The number that the next call gets.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Adds an unsent call. `timer` answers it if nothing else does.
    pub(crate) fn insert(
        &mut self,
        number: u64,
        new: NewCall,
        now: Instant,
        timer: SpawnHandle,
    ) -> oneshot::Receiver<CallResult> {
        let (answer, answered) = oneshot::channel();
        let NewCall { shown, arguments, safe_mode, deadline, stream } = new;
        let call = Call {
            shown,
            has_searched: false,
            search: None,
            queued: None,
            place: None,
            arguments,
            safe_mode,
            is_sent: false,
            was_returned: false,
            since: now,
            deadline,
            answer,
            timer,
            stream,
            cancel: None,
        };
        self.calls.insert(number, call);
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

    /// Marks a call as sent: its frame, and the time that is left for it. From here on it may have run.
    /// A call that has hardly any time left is not sent; its timer answers it.
    pub(crate) fn send(&mut self, number: u64, now: Instant) -> Option<(ToolCall, Duration)> {
        let call = self.calls.get_mut(&number)?;
        let waited = now.saturating_duration_since(call.since);
        let left =
            if waited < NEGLIGIBLE { call.deadline } else { call.deadline.saturating_sub(waited) };
        if left < LEAST {
            return None;
        }
        if call.is_sent {
            return None;
        }
        call.is_sent = true;
        // A call that was returned is sent for the last time.
        let arguments = match call.was_returned {
            true => std::mem::take(&mut call.arguments),
            false => call.arguments.clone(),
        };
        let frame = ToolCall {
            call_id: call_id(number),
            tool: call.shown.tool.clone(),
            arguments,
            deadline_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
            safe_mode: call.safe_mode,
            stream: call.stream.is_some(),
        };
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

    /// The tool of a call.
    pub(crate) fn tool(&self, number: u64) -> Option<&str> {
        self.calls.get(&number).map(|call| call.shown.tool.as_str())
    }

    /// Replaces a call's timer and gives the old one.
    pub(crate) fn set_timer(&mut self, number: u64, timer: SpawnHandle) -> Option<SpawnHandle> {
        let call = self.calls.get_mut(&number)?;
        Some(std::mem::replace(&mut call.timer, timer))
    }

    /// Answers a call with what `result` makes of its deadline, after `tell` has seen the answer, and
    /// gives what ran for it in the background. A client that left does not take its answer; that is its right.
    pub(crate) fn answer(
        &mut self,
        number: u64,
        result: impl FnOnce(Duration) -> CallResult,
        tell: impl FnOnce(&ShownCall, &CallResult, Duration),
    ) -> Vec<SpawnHandle> {
        let Some(call) = self.calls.remove(&number) else { return Vec::new() };
        let result = result(call.deadline);
        tell(&call.shown, &result, call.since.elapsed());
        call.answer.send(result).ok();
        [Some(call.timer), call.search, call.queued, call.cancel].into_iter().flatten().collect()
    }

    /// Keeps what waits for the client to cancel a call.
    pub(crate) fn cancelled_by(&mut self, number: u64, cancel: SpawnHandle) {
        if let Some(call) = self.calls.get_mut(&number) {
            call.cancel = Some(cancel);
        }
    }

    /// Marks a call that its client cancels, so that no other worker gets it. Returns whether a worker has it; `None` if
    /// it was answered.
    pub(crate) fn cancel(&mut self, number: u64) -> Option<bool> {
        let call = self.calls.get_mut(&number)?;
        call.was_returned = true;
        Some(call.is_sent)
    }

    /// Hands on what a streamed call has printed.
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

    /// Whether an unsent call runs a command and has no place for it yet.
    pub(crate) fn needs_place(&self, number: u64) -> bool {
        self.calls
            .get(&number)
            .is_some_and(|call| call.shown.tool == "bash" && !call.is_sent && call.place.is_none())
    }

    /// Whether a call waits for a place.
    pub(crate) fn is_queued(&self, number: u64) -> bool {
        self.calls.get(&number).is_some_and(|call| call.queued.is_some())
    }

    /// Keeps what waits for a call's place.
    pub(crate) fn queue(&mut self, number: u64, queued: SpawnHandle) {
        if let Some(call) = self.calls.get_mut(&number) {
            call.queued = Some(queued);
        }
    }

    /// Gives a call its place. Of a call that was answered meanwhile it is dropped.
    pub(crate) fn give_place(&mut self, number: u64, place: Place) {
        if let Some(call) = self.calls.get_mut(&number) {
            call.queued = None;
            call.place = Some(place);
        }
    }

    /// What is left of a call's deadline.
    pub(crate) fn time_left(&self, number: u64, now: Instant) -> Duration {
        let left =
            |call: &Call| call.deadline.saturating_sub(now.saturating_duration_since(call.since));
        self.calls.get(&number).map_or(Duration::ZERO, left)
    }

    /// What followers are told of a call that was sent.
    pub(crate) fn shown(&self, id: &CallId) -> Option<&ShownCall> {
        let number = self.sent_number(id)?;
        self.calls.get(&number).map(|call| &call.shown)
    }

    /// Takes note that a sent `web_search` call searches the web. `false` if it is none, or did already.
    pub(crate) fn begin_search(&mut self, id: &CallId) -> bool {
        let Some(number) = self.sent_number(id) else { return false };
        self.calls.get_mut(&number).is_some_and(|call| {
            call.shown.tool == "web_search" && !std::mem::replace(&mut call.has_searched, true)
        })
    }

    /// Searches that are under way.
    pub(crate) fn searches(&self) -> usize {
        self.calls.values().filter(|call| call.search.is_some()).count()
    }

    /// Keeps what waits for the search that was begun.
    pub(crate) fn searching(&mut self, id: &CallId, search: SpawnHandle) {
        let call = self.sent_number(id).and_then(|number| self.calls.get_mut(&number));
        if let Some(call) = call {
            call.search = Some(search);
        }
    }

    /// The search of a call has ended.
    pub(crate) fn searched(&mut self, id: &CallId) {
        let call = self.sent_number(id).and_then(|number| self.calls.get_mut(&number));
        if let Some(call) = call {
            call.search = None;
        }
    }

    /// How many calls there are.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// The number of a sent call, from the id that a worker gave.
    pub(crate) fn sent_number(&self, id: &CallId) -> Option<u64> {
        let number = id.as_str().parse().ok()?;
        self.calls.get(&number).filter(|call| call.is_sent)?;
        Some(number)
    }

    /// For `ps`.
    pub(crate) fn describe(&self, now: Instant) -> Vec<CallInfo> {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.calls
            .iter()
            .map(|(number, call)| CallInfo {
                call_id: call_id(*number).0,
                tool: call.shown.tool.chars().take(100).collect(),
                elapsed_ms: ms(now.saturating_duration_since(call.since)),
                deadline_ms: ms(call.deadline),
            })
            .collect()
    }
}

/// The id of a call on the wire to the worker.
pub(crate) fn call_id(number: u64) -> CallId {
    CallId(number.to_string())
}

/// Label of a result in the latency histograms.
pub(crate) fn outcome(result: &CallResult) -> CallOutcome {
    match result {
        Ok(done) if done.report.aborted => CallOutcome::Aborted,
        Ok(done) if done.report.timed_out => CallOutcome::TimedOut,
        Ok(done) if done.report.is_error => CallOutcome::Error,
        Ok(_) => CallOutcome::Ok,
        Err(CallError::Aborted) => CallOutcome::Aborted,
        Err(error) if error.worker_died() => CallOutcome::WorkerDied,
        Err(error) if error.is_busy() => CallOutcome::Busy,
        Err(_) => CallOutcome::Refused,
    }
}

/// What is known of a call's end besides its text.
pub(crate) fn tool_info(session: &SessionId, result: &CallResult, elapsed: Duration) -> ToolInfo {
    let duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    match result {
        Ok(done) => ToolInfo::from_report(session, &done.report, duration_ms),
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
pub(crate) fn ended(
    events: &Events,
    session: &SessionId,
    call: &ShownCall,
    result: &CallResult,
    elapsed: Duration,
) {
    if let Ok(CallDone { update: Some(update), .. }) = result {
        events.tool_printed(session, call, update);
    }
    let failure = result.as_ref().err().and_then(|e| to_raw_value(&e.text(&call.tool)).ok());
    let text = match result {
        Ok(done) => Some(done.shown.as_deref().unwrap_or(&done.text)),
        Err(_) => failure.as_deref(),
    };
    events.tool_ended(session, call, text, &tool_info(session, result, elapsed));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_call(tool: &str) -> NewCall {
        NewCall {
            shown: ShownCall { id: "c".into(), tool: tool.into(), arguments: None },
            arguments: "{}".into(),
            safe_mode: false,
            deadline: Duration::from_secs(30),
            stream: None,
        }
    }

    #[test]
    fn a_call_is_sent_once_and_answered_once() {
        let now = Instant::now();
        let mut calls = Calls::default();
        let number = calls.next_number();
        let mut answered = calls.insert(number, new_call("bash"), now, SpawnHandle::default());
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
        assert!(calls.answer(number, refuse, |shown, _, _| assert_eq!(shown.id, "c")).len() == 1);
        assert_eq!(answered.try_recv().unwrap().unwrap_err(), CallError::NotResponding);
        assert!(calls.answer(number, refuse, |_, _, _| panic!("told twice")).is_empty());
        assert_eq!(calls.sent_number(&call_id(number)), None);
    }

    #[test]
    fn a_call_that_has_waited_its_time_away_is_not_sent() {
        let now = Instant::now();
        let mut calls = Calls::default();
        let number = calls.next_number();
        drop(calls.insert(number, new_call("bash"), now, SpawnHandle::default()));
        assert!(calls.send(number, now + Duration::from_millis(29_990)).is_none());
        assert_eq!(calls.unsent(), [number], "its timer still answers it");
        assert!(calls.send(number, now + Duration::from_secs(29)).is_some());
    }

    #[test]
    fn ids_that_we_did_not_mint_are_nobodys() {
        let calls = Calls::default();
        for id in ["", "1", "-1", "x", "18446744073709551616"] {
            assert_eq!(calls.sent_number(&id.into()), None);
        }
    }
}
