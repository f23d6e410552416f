//! Status, start time and reason for each session. Read by `ps`, `sessions`, `get_state` and the eviction.
//!
//! The handles of workers and Pis update it on every change, so that readers do not ask the handles. Used only on the
//! actors' thread, so no update happens during a read. Also holds the set of pinned sessions, which the registry makes
//! durable.

use crate::children::EvictionReason;
use quackd_protocol::SessionId;
use quackd_protocol::client::{SessionStatus, StatusInfo};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

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
    Failed(String),
}

/// The reason why a process does not run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// No call has needed it yet.
    #[default]
    Unasked,
    /// It was evicted while idle.
    Evicted(EvictionReason),
    /// It exited as requested.
    Ended,
    /// It crashed for this reason.
    Died(String),
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

    fn why(&self, is_pinned: bool, now: Instant) -> String {
        match self {
            Self::Stopped(StopReason::Unasked) => "nobody has asked for it".to_owned(),
            Self::Stopped(StopReason::Ended) => "it was ended; the next call starts it".to_owned(),
            Self::Stopped(StopReason::Evicted(why)) => {
                format!("{}; the next call starts it", why.why())
            }
            Self::Stopped(StopReason::Died(cause)) => format!("it died: {cause}"),
            Self::Idle { since, .. } if is_pinned => {
                format!("idle for {}; pinned", span(now.saturating_duration_since(*since)))
            }
            Self::Idle { since, until } => {
                let idle = span(now.saturating_duration_since(*since));
                match until {
                    Some(until) => {
                        let left = span(until.saturating_duration_since(now));
                        format!("idle for {idle}; ended in {left}")
                    }
                    None => format!("idle for {idle}"),
                }
            }
            Self::Working { calls, jobs, turn } => {
                let count = |n: &usize, one: &str, many: &str| match n {
                    0 => None,
                    1 => Some(format!("1 {one}")),
                    n => Some(format!("{n} {many}")),
                };
                let turn = turn.then(|| "a turn".to_owned());
                let calls = count(calls, "call", "calls");
                let jobs = count(jobs, "background job", "background jobs");
                [calls, jobs, turn].into_iter().flatten().collect::<Vec<_>>().join(", ")
            }
            Self::Waiting => "its agent has asked you something".to_owned(),
            Self::Failed(cause) => cause.clone(),
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

/// The processes of one session.
#[derive(Debug, Clone)]
struct SessionActivity {
    worker: Activity,
    pi: Activity,
    /// When the status last changed.
    since: Instant,
}

impl SessionActivity {
    fn dominant(&self) -> &Activity {
        if self.worker.priority() < self.pi.priority() { &self.pi } else { &self.worker }
    }
}

/// All sessions that have or had a process. One instance per daemon.
#[derive(Debug, Default)]
pub(crate) struct SessionStatuses {
    sessions: RefCell<HashMap<SessionId, SessionActivity>>,
    pinned: RefCell<HashSet<SessionId>>,
}

impl SessionStatuses {
    /// Sets the activity of a session's worker.
    pub(crate) fn set_worker(&self, session: &SessionId, activity: Activity) {
        self.set(session, |row| row.worker = activity);
    }

    /// Sets the activity of a session's Pi.
    pub(crate) fn set_pi(&self, session: &SessionId, activity: Activity) {
        self.set(session, |row| row.pi = activity);
    }

    fn set(&self, session: &SessionId, change: impl FnOnce(&mut SessionActivity)) {
        let mut sessions = self.sessions.borrow_mut();
        if let Some(row) = sessions.get_mut(session) {
            let before = row.dominant().status();
            change(row);
            if row.dominant().status() != before {
                row.since = Instant::now();
            }
        } else {
            let none = Activity::Stopped(StopReason::Unasked);
            let since = Instant::now();
            let mut row = SessionActivity { worker: none.clone(), pi: none, since };
            change(&mut row);
            sessions.insert(session.clone(), row);
        }
    }

    /// Returns the status of a session.
    pub(crate) fn of(&self, session: &SessionId, now: Instant) -> StatusInfo {
        let sessions = self.sessions.borrow();
        let pinned = self.is_pinned(session);
        let Some(row) = sessions.get(session) else {
            let activity = Activity::Stopped(StopReason::Unasked);
            let status_why = activity.why(pinned, now);
            return StatusInfo { status_why, pinned, ..StatusInfo::default() };
        };
        let counts = row.dominant();
        StatusInfo {
            status: counts.status(),
            status_since: Some(ago(now.saturating_duration_since(row.since))),
            status_why: counts.why(pinned, now),
            pinned,
        }
    }

    /// Returns the reason for the state of a session's worker.
    pub(crate) fn worker_reason(&self, session: &SessionId) -> String {
        self.why(session, |row| &row.worker)
    }

    /// Like [`Self::worker_reason`], for Pi.
    pub(crate) fn pi_reason(&self, session: &SessionId) -> String {
        self.why(session, |row| &row.pi)
    }

    fn why(&self, session: &SessionId, which: impl Fn(&SessionActivity) -> &Activity) -> String {
        let sessions = self.sessions.borrow();
        let none = Activity::Stopped(StopReason::Unasked);
        let activity = sessions.get(session).map_or(&none, which);
        activity.why(self.is_pinned(session), Instant::now())
    }

    /// Whether the session's processes are exempt from idle eviction.
    pub(crate) fn is_pinned(&self, session: &SessionId) -> bool {
        self.pinned.borrow().contains(session)
    }

    /// Replaces the set of pinned sessions.
    pub(crate) fn set_pinned(&self, sessions: impl Iterator<Item = SessionId>) {
        self.pinned.replace(sessions.collect());
    }

    /// Removes a deleted session.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.sessions.borrow_mut().remove(session);
        self.pinned.borrow_mut().remove(session);
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

    #[test]
    fn a_session_does_what_the_more_important_of_its_processes_does() {
        let (statuses, session, now) =
            (SessionStatuses::default(), SessionId("s".to_owned()), Instant::now());
        let status = || {
            let StatusInfo { status, status_why, .. } = statuses.of(&session, now);
            (status, status_why)
        };
        let is = |status, why: &str| (status, why.to_owned());
        assert_eq!(status(), is(SessionStatus::Stopped, "nobody has asked for it"));
        let until = Some(now + Duration::from_secs(1800));
        statuses.set_worker(&session, Activity::Idle { since: now, until });
        assert_eq!(status(), is(SessionStatus::Idle, "idle for 0 s; ended in 30 min"));
        statuses.set_pi(&session, Activity::Working { calls: 1, jobs: 0, turn: true });
        assert_eq!(status(), is(SessionStatus::Working, "1 call, a turn"));
        statuses.set_pi(&session, Activity::Waiting);
        statuses.set_worker(&session, Activity::Working { calls: 0, jobs: 2, turn: false });
        assert_eq!(status(), is(SessionStatus::Waiting, "its agent has asked you something"));
        assert_eq!(statuses.worker_reason(&session), "2 background jobs");
        statuses.set_pi(&session, Activity::Failed("signal 9".to_owned()));
        assert_eq!(status().0, SessionStatus::Working, "its tools still work");
        statuses
            .set_worker(&session, Activity::Stopped(StopReason::Evicted(EvictionReason::Memory)));
        assert_eq!(status(), is(SessionStatus::Failed, "signal 9"));
        statuses.set_pi(&session, Activity::Stopped(StopReason::Unasked));
        let evicted = "memory was short; the next call starts it";
        assert_eq!(status(), is(SessionStatus::Stopped, evicted));
        statuses.forget(&session);
        assert_eq!(status(), is(SessionStatus::Stopped, "nobody has asked for it"));
    }

    #[test]
    fn since_is_told_of_the_status_and_not_of_each_change() {
        let (statuses, session) = (SessionStatuses::default(), SessionId("s".to_owned()));
        let working = |calls| Activity::Working { calls, jobs: 0, turn: false };
        statuses.set_worker(&session, working(1));
        let since = statuses.sessions.borrow()[&session].since;
        statuses.set_worker(&session, working(2));
        assert_eq!(statuses.sessions.borrow()[&session].since, since);
    }

    #[test]
    fn who_is_pinned_is_said_to_be_so() {
        let (statuses, session, now) =
            (SessionStatuses::default(), SessionId("s".to_owned()), Instant::now());
        statuses.set_worker(&session, Activity::Idle { since: now, until: None });
        statuses.set_pinned([session.clone()].into_iter());
        let info = statuses.of(&session, now + Duration::from_secs(300));
        assert!(info.pinned);
        assert_eq!(info.status_why, "idle for 5 min; pinned");
    }
}
