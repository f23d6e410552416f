//! The published state of one session: its worker, its agent, its status and the reasons.
//!
//! The session's actors publish their halves after every change, so that readers do not ask them. Used only on the actors'
//! thread, so no update happens during a read. Times are kept as [`Instant`]s; readers convert them.

use crate::children::{ChildSnapshot, StopReason};
use crate::errors::{RunningWork, count};
use crate::pool::network::TransparentPorts;
use bytes::Bytes;
use quackd_policy::hosts::SessionRules;
use quackd_protocol::agent::Engine;
use quackd_protocol::client::{
    PendingChange, ProcessState, SessionStatus, StatusInfo, TimedDenial,
};
use quackd_protocol::policy::{NetworkMode, Policy};
use quackd_protocol::worker::{Hello, JobInfo};
use quackd_supervision::{AGENT, Cause, ChildSpec, SESSION_WORKER, State};
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// State of a session at one moment. A change copies it while a reader holds it, so its large parts are counted references.
/// The default is the state of a session that nothing has used.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionSnapshot {
    pub(crate) worker: WorkerSnapshot,
    pub(crate) agent: AgentSnapshot,
    /// When the status last changed. `None` if nothing has run yet.
    pub(super) since: Option<Instant>,
    /// Open questions to the user about denied operations.
    pub(super) n_asked: usize,
}

/// A session's worker, its calls and its jobs.
#[derive(Debug, Clone)]
pub(crate) struct WorkerSnapshot {
    pub(crate) process: ProcessSnapshot,
    /// Calls without a reply.
    pub(crate) calls: Vec<CallSnapshot>,
    /// Background jobs, oldest first.
    pub(crate) jobs: Rc<[JobSnapshot]>,
    /// Hello frame of the running worker. For display only.
    pub(crate) hello: Option<Rc<Hello>>,
    /// Policy of the running worker, or of the last one.
    pub(crate) policy: Option<Rc<Policy>>,
    /// Ports of hosts that the worker serves for programs that use no proxy.
    pub(crate) ports: TransparentPorts,
    pub(crate) denials: Rc<Denials>,
    /// Change that waits for calls or jobs of the worker.
    pub(crate) pending: Option<Rc<PendingChange>>,
    /// Whether the worker runs on another machine. Its process id means another process here.
    pub(crate) is_far: bool,
    /// The reason why a far worker does not answer now.
    pub(crate) link: Option<Rc<str>>,
}

/// A session's agent.
#[derive(Debug, Clone)]
pub(crate) struct AgentSnapshot {
    /// The agent of the process, or of the last one.
    pub(crate) engine: Engine,
    pub(crate) process: ProcessSnapshot,
    /// Process ids of the worker and of the agent, as the worker reported them. For display only.
    pub(crate) pids: Option<(u32, u32)>,
    /// Whether a turn runs, or a caller or a dialog waits.
    pub(crate) is_busy: bool,
    /// Id of the running turn.
    pub(crate) turn: Option<u64>,
    /// Whether a process was ever started.
    pub(crate) has_run: bool,
    /// The agent's last reported state. `None` without a process.
    pub(crate) state: Option<Rc<RawValue>>,
    /// MCP servers that the agent could not use when it listed their tools, one line each.
    pub(crate) mcp_problems: Rc<[String]>,
    /// Open dialogs: the number of the event that announced each, and the event as JSON.
    pub(crate) dialogs: Vec<(u64, Bytes)>,
}

/// State that a worker and an agent both have.
#[derive(Debug, Clone)]
pub(crate) struct ProcessSnapshot {
    pub(crate) child: ChildSnapshot,
    pub(crate) stage: Stage,
    pub(crate) activity: Activity,
    /// Since when the process could be evicted, if its session is not pinned.
    pub(crate) free_since: Option<Instant>,
}

/// Stage of a process, from which the slots are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No process runs or starts.
    Gone,
    /// The process was asked to exit.
    Leaving,
    /// The process runs or is starting.
    Here,
}

impl Stage {
    pub(crate) fn of(state: &State) -> Self {
        match state {
            State::Absent | State::Backoff { .. } | State::Failed { .. } => Self::Gone,
            State::Draining { .. } => Self::Leaving,
            State::Starting { .. } | State::Ready { .. } => Self::Here,
        }
    }
}

/// A call without a reply.
#[derive(Debug, Clone)]
pub(crate) struct CallSnapshot {
    /// The supervisor's number of the call.
    pub(crate) number: u64,
    pub(crate) tool: Rc<str>,
    /// Whether a worker has it.
    pub(crate) is_sent: bool,
    pub(crate) since: Instant,
    pub(crate) deadline: Duration,
    /// Id of the call in events. `None` if no event shows it.
    pub(crate) event_id: Option<Rc<str>>,
    /// Id and command for questions to the user. `None` if no client could answer when the call arrived.
    pub(crate) told: Option<Rc<(String, String)>>,
}

#[derive(Debug, Clone)]
pub(crate) struct JobSnapshot {
    pub(crate) info: JobInfo,
    pub(crate) since: Instant,
}

/// Accesses that the sandbox of the session's workers denied: the number of all, and the last ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Denials {
    pub(crate) total: u64,
    pub(crate) last: VecDeque<TimedDenial>,
}

impl ProcessSnapshot {
    fn new(spec: ChildSpec) -> Self {
        Self {
            child: ChildSnapshot::new(spec),
            stage: Stage::Gone,
            activity: Activity::Stopped(StopReason::Unasked),
            free_since: None,
        }
    }

    /// Returns whether a process runs or is being started.
    pub(crate) fn is_alive(&self) -> bool {
        self.stage != Stage::Gone && self.child.has_process
    }
}

impl Default for WorkerSnapshot {
    fn default() -> Self {
        Self {
            process: ProcessSnapshot::new(SESSION_WORKER),
            calls: Vec::new(),
            jobs: Rc::default(),
            hello: None,
            policy: None,
            ports: TransparentPorts::default(),
            denials: Rc::default(),
            pending: None,
            is_far: false,
            link: None,
        }
    }
}

impl Default for AgentSnapshot {
    fn default() -> Self {
        Self {
            engine: Engine::Pi,
            process: ProcessSnapshot::new(AGENT),
            pids: None,
            is_busy: false,
            turn: None,
            has_run: false,
            state: None,
            mcp_problems: Rc::from([]),
            dialogs: Vec::new(),
        }
    }
}

impl WorkerSnapshot {
    /// Returns the state of the worker for clients. `Busy` if it has calls.
    pub(crate) fn state(&self) -> ProcessState {
        match self.process.child.state() {
            ProcessState::Ready if self.calls.iter().any(|call| call.is_sent) => ProcessState::Busy,
            state => state,
        }
    }

    /// Returns whether the worker runs or is starting. A slow start also counts.
    pub(crate) fn is_up(&self) -> bool {
        let child = &self.process.child;
        child.monitor_pid.is_some() || child.state() == ProcessState::Starting
    }

    /// Returns the work that the end of the session would interrupt.
    pub(crate) fn running(&self) -> RunningWork {
        RunningWork { calls: self.calls.len(), jobs: self.jobs.len() }
    }

    /// Returns [`Self::running`] without the terminals, whose programs the user sees.
    pub(crate) fn running_without_terminals(&self) -> RunningWork {
        let jobs = self.jobs.iter().filter(|job| job.info.terminal.is_none()).count();
        RunningWork { jobs, ..self.running() }
    }

    /// Returns whether commands of the running worker reach the hosts of rules only.
    pub(crate) fn has_hosts(&self) -> bool {
        let mode = self.policy.as_ref().map(|policy| policy.network_mode());
        self.has_sockets() && mode == Some(NetworkMode::Hosts)
    }

    /// Returns whether the running worker has passed on its sockets, so that a proxy can serve
    /// hosts.
    pub(crate) fn has_sockets(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.sandbox.hosts)
    }

    /// Returns whether the running worker must be replaced, because it does not enforce this policy.
    pub(crate) fn is_outdated(&self, policy: &Policy, rules: &SessionRules) -> bool {
        // A worker in use is not replaced for missing ports.
        let is_used = !self.jobs.is_empty() || self.calls.iter().any(|call| call.is_sent);
        let has_proxy = self.has_sockets() && (is_used || self.ports.serve(rules));

        let enforced = self.policy.as_ref();
        self.process.child.has_process
            && enforced.is_some_and(|it| !quackd_policy::confines_like(it, policy, has_proxy))
    }
}

impl AgentSnapshot {
    /// Returns the announcements of open dialogs that a follower does not get if it starts with
    /// event `next`.
    pub(crate) fn dialogs_before(&self, next: u64) -> Vec<Bytes> {
        let earlier = self.dialogs.iter().filter(|(seq, _)| *seq < next);
        earlier.map(|(_, line)| line.clone()).collect()
    }
}

impl SessionSnapshot {
    /// Returns whether the session has a process.
    pub(crate) fn is_running(&self) -> bool {
        self.worker.process.child.monitor_pid.is_some() || self.agent.process.is_alive()
    }

    /// Returns the status of the session and its reason. A question to the user comes before any
    /// activity.
    pub(crate) fn status(&self, pinned: bool, now: Instant) -> StatusInfo {
        let dominant = self.dominant();
        StatusInfo {
            status: self.word(),
            status_since: self.since.map(|since| ago(now.saturating_duration_since(since))),
            status_why: match self.n_asked {
                0 => match &self.worker.link {
                    Some(notice) => notice.to_string(),
                    None => dominant.why(pinned, now),
                },
                _ => "it waits for your answer: quack approvals".to_owned(),
            },
            pinned,
        }
    }

    fn word(&self) -> SessionStatus {
        if self.n_asked == 0 { self.dominant().status() } else { SessionStatus::Waiting }
    }

    /// The more important activity of the two processes. It decides the status.
    fn dominant(&self) -> &Activity {
        let (worker, pi) = (&self.worker.process.activity, &self.agent.process.activity);
        if worker.priority() < pi.priority() { pi } else { worker }
    }

    /// Changes the state, and notes when the status changes with it.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let before = self.word();
        change(self);
        // The first change counts too, although it may not change the status.
        if self.since.is_none() || self.word() != before {
            self.since = Some(Instant::now());
        }
    }
}

/// Activity of one process of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Activity {
    /// The process does not run.
    Stopped(StopReason),
    /// The process runs or is starting, and is idle.
    Idle {
        since: Instant,
        /// Time of the idle eviction. `None` if the process is exempt.
        until: Option<Instant>,
    },
    /// The process has work.
    Working {
        /// Tool calls without a reply, or queued prompts.
        calls: usize,
        jobs: usize,
        /// Whether the agent is in a turn.
        turn: bool,
    },
    /// The agent asked the user a question.
    Waiting,
    /// The process failed for this reason, and starts again only on demand.
    Failed(Cause),
}

impl Activity {
    fn status(&self) -> SessionStatus {
        match self {
            Self::Stopped(_) => SessionStatus::Stopped,
            Self::Idle { .. } => SessionStatus::Idle,
            Self::Working { .. } => SessionStatus::Working,
            Self::Waiting => SessionStatus::Waiting,
            Self::Failed(_) => SessionStatus::Failed,
        }
    }

    /// Priority of this activity if two processes of a session differ. The higher one decides the status.
    fn priority(&self) -> u8 {
        match self {
            Self::Stopped(StopReason::Unasked) => 0,
            Self::Stopped(_) => 1,
            Self::Idle { .. } => 2,
            Self::Failed(_) => 3,
            Self::Working { .. } => 4,
            Self::Waiting => 5,
        }
    }

    pub(crate) fn why(&self, is_pinned: bool, now: Instant) -> String {
        match self {
            Self::Stopped(StopReason::Unasked) => "nobody has asked for it".to_owned(),
            Self::Stopped(StopReason::Ended) => "it was ended; the next call starts it".to_owned(),
            Self::Stopped(StopReason::Evicted(reason)) => {
                format!("{}; the next call starts it", reason.why())
            }
            Self::Stopped(StopReason::Died(cause)) => format!("it died: {cause}"),
            Self::Idle { since, until } => {
                let idle = format!("idle for {}", span(now.saturating_duration_since(*since)));
                match until {
                    _ if is_pinned => format!("{idle}; pinned"),
                    Some(until) => {
                        format!("{idle}; ended in {}", span(until.saturating_duration_since(now)))
                    }
                    None => idle,
                }
            }
            Self::Working { calls, jobs, turn } => {
                let turn = turn.then(|| "a turn".to_owned());
                let parts = [count(*calls, "call"), count(*jobs, "background job"), turn];
                parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
            }
            Self::Waiting => "its agent has asked you something".to_owned(),
            Self::Failed(cause) => cause.to_string(),
        }
    }
}

/// Duration for display: seconds below 2 min, then minutes.
fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds => format!("{} min", (seconds + 30) / 60),
    }
}

/// Formats the time `time` ago as ISO 8601 UTC, for display only.
fn ago(time: Duration) -> String {
    let then = jiff::SignedDuration::try_from(time)
        .ok()
        .and_then(|time| jiff::Timestamp::now().checked_sub(time).ok());
    then.unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::EvictionReason;

    fn is(snapshot: &SessionSnapshot, now: Instant) -> (SessionStatus, String) {
        let StatusInfo { status, status_why, .. } = snapshot.status(false, now);
        (status, status_why)
    }

    #[test]
    fn a_session_does_what_the_more_important_of_its_processes_does() {
        let (mut session, now) = (SessionSnapshot::default(), Instant::now());
        let (mut worker, mut pi) = (Activity::Stopped(StopReason::Unasked), Activity::Waiting);
        let mut status = |new_worker: Option<Activity>, new_pi: Option<Activity>| {
            worker = new_worker.unwrap_or_else(|| worker.clone());
            pi = new_pi.unwrap_or_else(|| pi.clone());
            session.worker.process.activity = worker.clone();
            session.agent.process.activity = pi.clone();
            is(&session, now)
        };
        let shown = |status, why: &str| (status, why.to_owned());
        let unasked = || Some(Activity::Stopped(StopReason::Unasked));
        let nobody = shown(SessionStatus::Stopped, "nobody has asked for it");
        assert_eq!(status(None, unasked()), nobody);
        let until = Some(now + Duration::from_secs(1800));
        let idle = shown(SessionStatus::Idle, "idle for 0 s; ended in 30 min");
        assert_eq!(status(Some(Activity::Idle { since: now, until }), None), idle);
        let turn = Activity::Working { calls: 1, jobs: 0, turn: true };
        let working = shown(SessionStatus::Working, "1 call, a turn");
        assert_eq!(status(None, Some(turn)), working);
        let jobs = Activity::Working { calls: 0, jobs: 2, turn: false };
        let waiting = shown(SessionStatus::Waiting, "its agent has asked you something");
        assert_eq!(status(Some(jobs.clone()), Some(Activity::Waiting)), waiting);
        assert_eq!(jobs.why(false, now), "2 background jobs");
        let failed = Some(Activity::Failed(Cause::Signal(9)));
        assert_eq!(status(None, failed).0, SessionStatus::Working, "its tools still work");
        let evicted = Activity::Stopped(StopReason::Evicted(EvictionReason::Memory));
        let signal = shown(SessionStatus::Failed, &Cause::Signal(9).to_string());
        assert_eq!(status(Some(evicted), None), signal);
        let why = "memory was short; the next call starts it";
        assert_eq!(status(None, unasked()), shown(SessionStatus::Stopped, why));
    }

    #[test]
    fn who_comes_later_is_told_what_waits_but_not_twice() {
        let [first, second] = ["A", "B"].map(|line| Bytes::from_static(line.as_bytes()));
        let pi =
            AgentSnapshot { dialogs: vec![(5, first), (7, second)], ..AgentSnapshot::default() };
        assert_eq!(pi.dialogs_before(8), ["A", "B"]);
        assert_eq!(pi.dialogs_before(7), ["A"], "the replay contains the second one");
        assert_eq!(pi.dialogs_before(5), [""; 0]);
    }

    #[test]
    fn since_is_told_of_the_status_and_not_of_each_change() {
        let mut session = SessionSnapshot::default();
        assert_eq!(session.status(false, Instant::now()).status_since, None);
        let working = |calls| Activity::Working { calls, jobs: 0, turn: false };
        session.change(|session| session.worker.process.activity = working(1));
        let since = session.since;
        assert!(since.is_some());
        session.change(|session| session.worker.process.activity = working(2));
        assert_eq!(session.since, since);
    }

    #[test]
    fn who_is_pinned_is_said_to_be_so() {
        let (mut session, now) = (SessionSnapshot::default(), Instant::now());
        session.worker.process.activity = Activity::Idle { since: now, until: None };
        let info = session.status(true, now + Duration::from_secs(300));
        assert!(info.pinned);
        assert_eq!(info.status_why, "idle for 5 min; pinned");
    }
}
