//! The user's Pi, one per session: found, started in a process of its own, spoken to, watched and ended.
//!
//! - [`handle`] is the actor that owns one session's Pi: its messages, with those in [`requests`]. [`lifecycle`] starts
//!   and ends the process,
//!   [`frames`] is what it says, [`child_impl`] what [`crate::children`] asks of it.
//! - [`commands`] and [`dialogs`] are its two tables, [`status`] what others may see of it.
//! - [`locate`] says which program is started and with which arguments, [`environment`] what it gets: the one
//!   place where keys leave the daemon. [`outside`] keeps both out of reach of commands, and [`history`] has Pi work
//!   in the workspace without starting there.
//!
//! [`Pis`] has one handle per session that has or had a Pi.

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

pub(crate) use handle::{Said, Say, Wake};
pub(crate) use health::checks;
pub(crate) use requests::{Abort, AnswerDialog, AskState};

use crate::children::{Ending, Eviction, Manage, Outgrown};
use crate::pool::session_status::Standings;
use crate::session::FoundSession;
use crate::session::owner::Owner;
use crate::session::services::SessionServices;
use actix::prelude::*;
use bytes::Bytes;
use handle::{Drain, PiHandle};
use quackd_protocol::SessionId;
use quackd_protocol::client::PiInfo;
use serde_json::value::RawValue;
use status::View;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a Pi may take to end, beyond the time that it is given.
const END_SLACK: Duration = Duration::from_secs(6);

/// Longest text of a failure that is kept, in characters.
const MAX_FAILURE: usize = 400;

/// All sessions' Pis. One instance per daemon, on the actors' thread.
#[derive(Debug, Default)]
pub(crate) struct Pis {
    sessions: RefCell<HashMap<SessionId, Entry>>,
    /// The last one that no later success of the same session's Pi has refuted. For `doctor`.
    failure: RefCell<Option<Failure>>,
}

/// How a session's Pi failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    session: SessionId,
    pub(crate) session_name: String,
    /// ISO 8601 UTC.
    pub(crate) at: String,
    pub(crate) why: String,
}

#[derive(Debug, Clone)]
struct Entry {
    handle: Addr<PiHandle>,
    view: Rc<View>,
}

impl Pis {
    /// The handle of a session's Pi, made if there is none.
    pub(crate) fn of(
        &self,
        found: &FoundSession,
        services: &Rc<SessionServices>,
        owner: &Owner,
    ) -> Addr<PiHandle> {
        let mut sessions = self.sessions.borrow_mut();
        let entry = sessions.entry(found.session_id.clone()).or_insert_with(|| {
            let view = Rc::new(View::new(Instant::now()));
            let services = Rc::clone(services);
            let handle = PiHandle::new(found, services, owner.clone(), Rc::clone(&view));
            Entry { handle: handle.start(), view }
        });
        entry.handle.clone()
    }

    /// The handle of a session's Pi, if there is one.
    pub(crate) fn get(&self, session: &SessionId) -> Option<Addr<PiHandle>> {
        self.sessions.borrow().get(session).map(|entry| entry.handle.clone())
    }

    /// Notes that a session's Pi did not start, or died.
    fn note_failure(&self, session: &SessionId, name: &str, why: &str) {
        let plain = why.chars().filter(|c| !c.is_control()).take(MAX_FAILURE).collect();
        self.failure.replace(Some(Failure {
            session: session.clone(),
            session_name: name.to_owned(),
            at: crate::clock::now_text(),
            why: plain,
        }));
    }

    /// A session's Pi works, or the session does not exist any more.
    fn forget_failure(&self, session: &SessionId) {
        self.failure.borrow_mut().take_if(|failure| failure.session == *session);
    }

    /// The last failure of a session's Pi that is not mended.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure.borrow().clone()
    }

    /// Whether a session's Pi is alive.
    pub(crate) fn is_running(&self, session: &SessionId) -> bool {
        self.sessions.borrow().get(session).is_some_and(|entry| entry.view.is_alive.get())
    }

    /// The sessions whose Pi is alive.
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

    /// A session's Pi has too much memory.
    pub(crate) fn outgrown(&self, session: &SessionId, outgrown: Outgrown) {
        if let Some(entry) = self.sessions.borrow().get(session) {
            // A full mailbox has its turn at the next look.
            entry.handle.try_send(Manage::OverMemory(outgrown)).ok();
        }
    }

    /// What a session's Pi last said of its state; `None` if there is no Pi, or it said nothing yet.
    pub(crate) fn state(&self, session: &SessionId) -> Option<Rc<RawValue>> {
        self.sessions.borrow().get(session)?.view.state.borrow().clone()
    }

    /// The questions that wait for a person and that a follower who begins with event `next` does not get.
    pub(crate) fn dialogs(&self, session: &SessionId, next: u64) -> Vec<Bytes> {
        let sessions = self.sessions.borrow();
        sessions
            .get(session)
            .map_or_else(Vec::new, |entry| entry.view.dialogs.borrow().before(next))
    }

    /// For `ps`: what there is of a session's Pi.
    pub(crate) fn describe(&self, session: &SessionId) -> Option<PiInfo> {
        let sessions = self.sessions.borrow();
        let view = &sessions.get(session)?.view;
        let info = view.info.borrow().clone()?;
        Some(PiInfo { busy: view.is_busy.get(), ..info })
    }

    /// Makes room for one more of at most `max`: ends the one that was idle for longest and is not pinned.
    /// `false` if none may be ended.
    fn make_room(&self, max: usize, standings: &Standings) -> bool {
        let sessions = self.sessions.borrow();
        let stays = |entry: &&Entry| entry.view.is_running.get() && !entry.view.is_leaving.get();
        if sessions.values().filter(stays).count() < max {
            return true;
        }
        match idle(&sessions, standings, |_| true) {
            Some((_, entry)) => {
                // Leaving from here on, whoever asks next. A full mailbox means that it has work after all.
                entry.view.is_leaving.set(true);
                entry.handle.try_send(Manage::Evict(Eviction::Room)).is_ok()
            }
            None => false,
        }
    }

    /// Since when the one that was idle for longest and may be ended is idle. One that is not there yet takes
    /// no memory.
    pub(crate) fn idle_longest(&self, standings: &Standings) -> Option<Instant> {
        let sessions = self.sessions.borrow();
        Some(idle(&sessions, standings, |entry| entry.view.is_alive.get())?.1.view.active.get())
    }

    /// Ends it.
    pub(crate) fn evict_idle_longest(&self, why: Eviction, standings: &Standings) {
        let sessions = self.sessions.borrow();
        if let Some((_, entry)) = idle(&sessions, standings, |entry| entry.view.is_alive.get()) {
            // A full mailbox means that it has work after all.
            entry.handle.try_send(Manage::Evict(why)).ok();
        }
    }

    /// The machine slept, or this process was stopped.
    pub(crate) fn renew(&self) {
        for entry in self.sessions.borrow().values() {
            // Without it the heartbeat finds out by itself.
            entry.handle.try_send(Manage::ResetTimers).ok();
        }
    }

    /// Ends all: those that are at work have until `until`.
    pub(crate) async fn drain(&self, until: Instant) {
        let handles: Vec<_> =
            self.sessions.borrow().values().map(|entry| entry.handle.clone()).collect();
        let drain = |handle: Addr<PiHandle>| async move {
            let drain = Drain { until, ending: Ending::Shutdown };
            handle.send(drain).await
        };
        futures_util::future::join_all(handles.into_iter().map(drain)).await;
    }

    /// A session was deleted: ends its Pi, and forgets it.
    pub(crate) async fn delete(&self, session: &SessionId) {
        self.forget_failure(session);
        let Some(entry) = self.sessions.borrow_mut().remove(session) else { return };
        let drain = Drain { until: Instant::now(), ending: Ending::Deleted };
        if entry.handle.send(drain).timeout(END_SLACK).await.is_err() {
            tracing::error!(%session, "the Pi of a deleted session has not ended yet");
        }
    }
}

/// The Pi that was idle for longest, of those that may be ended and are meant.
fn idle<'a>(
    sessions: &'a HashMap<SessionId, Entry>,
    standings: &Standings,
    is_meant: impl Fn(&Entry) -> bool,
) -> Option<(&'a SessionId, &'a Entry)> {
    let may_end = |(session, entry): &(&SessionId, &Entry)| {
        let view = &entry.view;
        let stays = view.is_running.get() && !view.is_leaving.get();
        stays && !view.is_busy.get() && !standings.is_pinned(session) && is_meant(entry)
    };
    sessions.iter().filter(may_end).min_by_key(|(_, entry)| entry.view.active.get())
}
