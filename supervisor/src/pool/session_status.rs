//! What each session is doing, since when and why: for `ps`, `sessions` and `get_state`, and for whoever must
//! choose a process that nobody needs.
//!
//! Written by the handles of workers and Pis whenever something of theirs changes, read without asking them.
//! On the actors' thread, where nothing comes in between. Which sessions are pinned is here too; the registry
//! keeps it durable.

use crate::children::Eviction;
use quackd_protocol::SessionId;
use quackd_protocol::client::{SessionStatus, StatusInfo};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// What one process of a session is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It is not there.
    Stopped(Stopped),
    /// It is there, or about to be, and nobody uses it.
    Idle {
        /// Since when.
        since: Instant,
        /// When it is ended for that; `None` if it is not.
        until: Option<Instant>,
    },
    /// It has work.
    Working {
        /// Tool calls that are not answered, or prompts that wait.
        calls: usize,
        /// Background jobs.
        jobs: usize,
        /// A turn of its agent is under way.
        turn: bool,
    },
    /// It has asked a person something.
    Waiting,
    /// It is not started before somebody asks again, for this reason.
    Failed(String),
}

/// Why a process is not there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// Nobody has asked for it.
    #[default]
    Unasked,
    /// Nobody used it.
    Evicted(Eviction),
    /// It ended as it should.
    Ended,
    /// It died of this.
    Died(String),
}

impl Doing {
    fn status(&self) -> SessionStatus {
        match self {
            Self::Stopped(_) => SessionStatus::Stopped,
            Self::Idle { .. } => SessionStatus::Idle,
            Self::Working { .. } => SessionStatus::Working,
            Self::Waiting => SessionStatus::Waiting,
            Self::Failed(_) => SessionStatus::Failed,
        }
    }

    /// What counts more when two processes of a session differ.
    fn weight(&self) -> u8 {
        match self {
            Self::Stopped(Stopped::Unasked) => 0,
            Self::Stopped(_) => 1,
            Self::Idle { .. } => 2,
            Self::Failed(_) => 3,
            Self::Working { .. } => 4,
            Self::Waiting => 5,
        }
    }

    fn why(&self, is_pinned: bool, now: Instant) -> String {
        match self {
            Self::Stopped(Stopped::Unasked) => "nobody has asked for it".to_owned(),
            Self::Stopped(Stopped::Ended) => "it was ended; the next call starts it".to_owned(),
            Self::Stopped(Stopped::Evicted(why)) => {
                format!("{}; the next call starts it", why.why())
            }
            Self::Stopped(Stopped::Died(cause)) => format!("it died: {cause}"),
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

/// A time for people: no finer than matters.
fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds => format!("{} min", (seconds + 30) / 60),
    }
}

/// The processes of one session.
#[derive(Debug, Clone)]
struct Standing {
    worker: Doing,
    pi: Doing,
    /// When the status last became another one.
    since: Instant,
}

impl Standing {
    fn counts(&self) -> &Doing {
        if self.worker.weight() < self.pi.weight() { &self.pi } else { &self.worker }
    }
}

/// All sessions that have or had a process. One instance per daemon.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    sessions: RefCell<HashMap<SessionId, Standing>>,
    pinned: RefCell<HashSet<SessionId>>,
}

impl Standings {
    /// What a session's worker is doing.
    pub(crate) fn set_worker(&self, session: &SessionId, doing: Doing) {
        self.set(session, |standing| standing.worker = doing);
    }

    /// What a session's Pi is doing.
    pub(crate) fn set_pi(&self, session: &SessionId, doing: Doing) {
        self.set(session, |standing| standing.pi = doing);
    }

    fn set(&self, session: &SessionId, change: impl FnOnce(&mut Standing)) {
        let mut sessions = self.sessions.borrow_mut();
        if let Some(standing) = sessions.get_mut(session) {
            let before = standing.counts().status();
            change(standing);
            if standing.counts().status() != before {
                standing.since = Instant::now();
            }
        } else {
            let none = Doing::Stopped(Stopped::Unasked);
            let since = Instant::now();
            let mut standing = Standing { worker: none.clone(), pi: none, since };
            change(&mut standing);
            sessions.insert(session.clone(), standing);
        }
    }

    /// What a session is doing.
    pub(crate) fn of(&self, session: &SessionId, now: Instant) -> StatusInfo {
        let sessions = self.sessions.borrow();
        let pinned = self.is_pinned(session);
        let Some(standing) = sessions.get(session) else {
            let doing = Doing::Stopped(Stopped::Unasked);
            let status_why = doing.why(pinned, now);
            return StatusInfo { status_why, pinned, ..StatusInfo::default() };
        };
        let counts = standing.counts();
        StatusInfo {
            status: counts.status(),
            status_since: Some(ago(now.saturating_duration_since(standing.since))),
            status_why: counts.why(pinned, now),
            pinned,
        }
    }

    /// Why a session's worker lives, or does not.
    pub(crate) fn why_worker(&self, session: &SessionId) -> String {
        self.why(session, |standing| &standing.worker)
    }

    /// The same of its Pi.
    pub(crate) fn why_pi(&self, session: &SessionId) -> String {
        self.why(session, |standing| &standing.pi)
    }

    fn why(&self, session: &SessionId, which: impl Fn(&Standing) -> &Doing) -> String {
        let sessions = self.sessions.borrow();
        let none = Doing::Stopped(Stopped::Unasked);
        let doing = sessions.get(session).map_or(&none, which);
        doing.why(self.is_pinned(session), Instant::now())
    }

    /// Whether a session's processes stay however long nobody uses them.
    pub(crate) fn is_pinned(&self, session: &SessionId) -> bool {
        self.pinned.borrow().contains(session)
    }

    /// Exactly these are pinned.
    pub(crate) fn set_pinned(&self, sessions: impl Iterator<Item = SessionId>) {
        self.pinned.replace(sessions.collect());
    }

    /// A session was deleted.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.sessions.borrow_mut().remove(session);
        self.pinned.borrow_mut().remove(session);
    }
}

/// A point in time as others are written: for display only.
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
        let (standings, session, now) =
            (Standings::default(), SessionId("s".to_owned()), Instant::now());
        let status = || {
            let StatusInfo { status, status_why, .. } = standings.of(&session, now);
            (status, status_why)
        };
        let is = |status, why: &str| (status, why.to_owned());
        assert_eq!(status(), is(SessionStatus::Stopped, "nobody has asked for it"));
        let until = Some(now + Duration::from_secs(1800));
        standings.set_worker(&session, Doing::Idle { since: now, until });
        assert_eq!(status(), is(SessionStatus::Idle, "idle for 0 s; ended in 30 min"));
        standings.set_pi(&session, Doing::Working { calls: 1, jobs: 0, turn: true });
        assert_eq!(status(), is(SessionStatus::Working, "1 call, a turn"));
        standings.set_pi(&session, Doing::Waiting);
        standings.set_worker(&session, Doing::Working { calls: 0, jobs: 2, turn: false });
        assert_eq!(status(), is(SessionStatus::Waiting, "its agent has asked you something"));
        assert_eq!(standings.why_worker(&session), "2 background jobs");
        standings.set_pi(&session, Doing::Failed("signal 9".to_owned()));
        assert_eq!(status().0, SessionStatus::Working, "its tools still work");
        standings.set_worker(&session, Doing::Stopped(Stopped::Evicted(Eviction::Memory)));
        assert_eq!(status(), is(SessionStatus::Failed, "signal 9"));
        standings.set_pi(&session, Doing::Stopped(Stopped::Unasked));
        let evicted = "memory was short; the next call starts it";
        assert_eq!(status(), is(SessionStatus::Stopped, evicted));
        standings.forget(&session);
        assert_eq!(status(), is(SessionStatus::Stopped, "nobody has asked for it"));
    }

    #[test]
    fn since_is_told_of_the_status_and_not_of_each_change() {
        let (standings, session) = (Standings::default(), SessionId("s".to_owned()));
        let working = |calls| Doing::Working { calls, jobs: 0, turn: false };
        standings.set_worker(&session, working(1));
        let since = standings.sessions.borrow()[&session].since;
        standings.set_worker(&session, working(2));
        assert_eq!(standings.sessions.borrow()[&session].since, since);
    }

    #[test]
    fn who_is_pinned_is_said_to_be_so() {
        let (standings, session, now) =
            (Standings::default(), SessionId("s".to_owned()), Instant::now());
        standings.set_worker(&session, Doing::Idle { since: now, until: None });
        standings.set_pinned([session.clone()].into_iter());
        let info = standings.of(&session, now + Duration::from_secs(300));
        assert!(info.pinned);
        assert_eq!(info.status_why, "idle for 5 min; pinned");
    }
}
