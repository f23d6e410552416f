//! The user's Pi, one process per session.
//!
//! - [`handle`] is the actor that owns one session's Pi. Its other messages are in [`requests`]. [`lifecycle`] starts
//!   and stops the process, [`frames`] handles its frames, and [`child_impl`] implements the child interface.
//! - [`commands`] and [`dialogs`] are its two tables. [`turns`] assigns the ids of
//!   turns. [`status`] is the state that other modules read.
//! - [`locate`] finds the program and builds its arguments. [`crate::children::pi_env`] builds its environment: only there do keys
//!   leave the daemon. [`outside`] protects both from commands. [`history`] makes Pi work in the workspace without
//!   starting there.
//!
//! [`PiPool`] has one handle per session that has or had a Pi.

mod child_impl;
mod commands;
mod dialogs;
mod frames;
mod handle;
mod health;
mod history;
mod lifecycle;
mod locate;
mod outside;
mod requests;
mod status;
mod turns;

pub(crate) use handle::{EnsureStarted, PromptAccepted, SendPrompt};
pub(crate) use health::checks;
pub(crate) use requests::{AbortTurn, AnswerDialog, RefreshState};

use crate::children::{DrainReason, EvictionReason, Manage, MemoryLimitExceeded};
use crate::pool::session_status::SessionStatuses;
use crate::session::FoundSession;
use crate::session::owner::Owner;
use crate::session::services::SessionServices;
use actix::prelude::*;
use bytes::Bytes;
use handle::{Drain, PiHandle};
use quackd_protocol::SessionId;
use quackd_protocol::client::PiInfo;
use serde_json::value::RawValue;
use status::PiStatus;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Timeout for stopping a Pi, in addition to the time for its turn.
const END_SLACK: Duration = Duration::from_secs(6);

/// Maximum length of a recorded failure, in characters.
const MAX_FAILURE: usize = 400;

/// All sessions' Pis. One instance per daemon, on the actors' thread.
#[derive(Debug, Default)]
pub(crate) struct PiPool {
    sessions: RefCell<HashMap<SessionId, PiEntry>>,
    /// The last failure, until a Pi of the same session succeeds. For `doctor`.
    failure: RefCell<Option<Failure>>,
}

/// Failure of a session's Pi.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    session: SessionId,
    pub(crate) session_name: String,
    /// ISO 8601 UTC.
    pub(crate) at: String,
    pub(crate) why: String,
}

#[derive(Debug, Clone)]
struct PiEntry {
    handle: Addr<PiHandle>,
    view: Rc<PiStatus>,
}

impl PiPool {
    /// Returns the handle of a session's Pi. Creates it if necessary.
    pub(crate) fn of(
        &self,
        found: &FoundSession,
        services: &Rc<SessionServices>,
        owner: &Owner,
    ) -> Addr<PiHandle> {
        let mut sessions = self.sessions.borrow_mut();
        let entry = sessions.entry(found.session_id.clone()).or_insert_with(|| {
            let view = Rc::new(PiStatus::new(Instant::now()));
            let services = Rc::clone(services);
            let handle = PiHandle::new(found, services, owner.clone(), Rc::clone(&view));
            PiEntry { handle: handle.start(), view }
        });
        entry.handle.clone()
    }

    /// Returns the handle of a session's Pi, if there is one.
    pub(crate) fn get(&self, session: &SessionId) -> Option<Addr<PiHandle>> {
        self.sessions.borrow().get(session).map(|entry| entry.handle.clone())
    }

    /// Records that a session's Pi failed to start, or crashed.
    fn note_failure(&self, session: &SessionId, name: &str, why: &str) {
        let plain = why.chars().filter(|c| !c.is_control()).take(MAX_FAILURE).collect();
        self.failure.replace(Some(Failure {
            session: session.clone(),
            session_name: name.to_owned(),
            at: crate::clock::now_text(),
            why: plain,
        }));
    }

    /// Removes the failure, because the session's Pi works or the session was deleted.
    fn forget_failure(&self, session: &SessionId) {
        self.failure.borrow_mut().take_if(|failure| failure.session == *session);
    }

    /// The last failure of a session's Pi without a success since then.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure.borrow().clone()
    }

    /// Whether a session's Pi runs.
    pub(crate) fn is_running(&self, session: &SessionId) -> bool {
        self.sessions.borrow().get(session).is_some_and(|entry| entry.view.is_alive.get())
    }

    /// Sessions with a running Pi.
    pub(crate) fn running(&self) -> HashSet<SessionId> {
        let sessions = self.sessions.borrow();
        let running = sessions.iter().filter(|(_, entry)| entry.view.is_alive.get());
        running.map(|(session, _)| session.clone()).collect()
    }

    /// Process id of the monitor of a session's Pi, if there is one.
    pub(crate) fn monitor(&self, session: &SessionId) -> Option<u32> {
        let sessions = self.sessions.borrow();
        let view = &sessions.get(session)?.view;
        view.info.borrow().as_ref()?.monitor_pid.filter(|_| view.is_alive.get())
    }

    /// Tells the handle that its session is over the memory limit.
    pub(crate) fn report_memory_exceeded(
        &self,
        session: &SessionId,
        exceeded: MemoryLimitExceeded,
    ) {
        if let Some(entry) = self.sessions.borrow().get(session) {
            // If the mailbox is full, the next sample reports it again.
            entry.handle.try_send(Manage::OverMemory(exceeded)).ok();
        }
    }

    /// Pi's last reported state. `None` without a Pi or a report.
    pub(crate) fn state(&self, session: &SessionId) -> Option<Rc<RawValue>> {
        self.sessions.borrow().get(session)?.view.state.borrow().clone()
    }

    /// Open dialogs that a follower does not get if it starts with event `next`.
    pub(crate) fn dialogs(&self, session: &SessionId, next: u64) -> Vec<Bytes> {
        let sessions = self.sessions.borrow();
        sessions
            .get(session)
            .map_or_else(Vec::new, |entry| entry.view.dialogs.borrow().before(next))
    }

    /// Row for `ps`.
    pub(crate) fn describe(&self, session: &SessionId) -> Option<PiInfo> {
        let sessions = self.sessions.borrow();
        let view = &sessions.get(session)?.view;
        let info = view.info.borrow().clone()?;
        Some(PiInfo { busy: view.is_busy.get(), ..info })
    }

    /// Frees a slot among at most `max`: evicts the Pi that was idle longest and is not pinned. Returns `false` if none
    /// can be evicted.
    fn make_room(&self, max: usize, statuses: &SessionStatuses) -> bool {
        let sessions = self.sessions.borrow();
        let stays = |entry: &&PiEntry| entry.view.is_running.get() && !entry.view.is_leaving.get();
        if sessions.values().filter(stays).count() < max {
            return true;
        }
        match idle(&sessions, statuses, |_| true) {
            Some((_, entry)) => {
                // From here on the entry counts as stopping. A full mailbox means that the Pi is busy.
                entry.view.is_leaving.set(true);
                entry.handle.try_send(Manage::Evict(EvictionReason::Room)).is_ok()
            }
            None => false,
        }
    }

    /// Time since when the Pi that was idle longest is idle, among those that may be evicted. A Pi without a process
    /// uses no memory and does not count.
    pub(crate) fn idle_longest(&self, statuses: &SessionStatuses) -> Option<Instant> {
        let sessions = self.sessions.borrow();
        Some(idle(&sessions, statuses, |entry| entry.view.is_alive.get())?.1.view.active.get())
    }

    /// Evicts the Pi that was idle longest.
    pub(crate) fn evict_idle_longest(&self, why: EvictionReason, statuses: &SessionStatuses) {
        let sessions = self.sessions.borrow();
        if let Some((_, entry)) = idle(&sessions, statuses, |entry| entry.view.is_alive.get()) {
            // A full mailbox means that the Pi is busy: do not evict it.
            entry.handle.try_send(Manage::Evict(why)).ok();
        }
    }

    /// Resets the timers of all Pis after a suspend.
    pub(crate) fn reset_timers(&self) {
        for entry in self.sessions.borrow().values() {
            // If the mailbox is full, the heartbeat detects the suspend itself.
            entry.handle.try_send(Manage::ResetTimers).ok();
        }
    }

    /// Stops all Pis. Busy ones may finish their turn until `until`.
    pub(crate) async fn drain(&self, until: Instant) {
        let handles: Vec<_> =
            self.sessions.borrow().values().map(|entry| entry.handle.clone()).collect();
        let drain = |handle: Addr<PiHandle>| async move {
            let drain = Drain { until, ending: DrainReason::Shutdown };
            handle.send(drain).await
        };
        futures_util::future::join_all(handles.into_iter().map(drain)).await;
    }

    /// Stops the Pi of a deleted session, and removes its entry.
    pub(crate) async fn delete(&self, session: &SessionId) {
        self.forget_failure(session);
        let Some(entry) = self.sessions.borrow_mut().remove(session) else { return };
        let drain = Drain { until: Instant::now(), ending: DrainReason::Deleted };
        if entry.handle.send(drain).timeout(END_SLACK).await.is_err() {
            tracing::error!(%session, "Pi of a deleted session has not exited yet");
        }
    }
}

/// Returns the Pi that was idle longest, among those that may be evicted and match the filter.
fn idle<'a>(
    sessions: &'a HashMap<SessionId, PiEntry>,
    statuses: &SessionStatuses,
    is_meant: impl Fn(&PiEntry) -> bool,
) -> Option<(&'a SessionId, &'a PiEntry)> {
    let may_end = |(session, entry): &(&SessionId, &PiEntry)| {
        let view = &entry.view;
        let stays = view.is_running.get() && !view.is_leaving.get();
        stays && !view.is_busy.get() && !statuses.is_pinned(session) && is_meant(entry)
    };
    sessions.iter().filter(may_end).min_by_key(|(_, entry)| entry.view.active.get())
}
