//! The user's Pi, one process per session.
//!
//! - [`handle`] is the actor that owns one session's Pi. Its other messages are in [`requests`]. [`lifecycle`] starts
//!   and stops the process, [`frames`] handles its frames, and [`child_impl`] implements the child interface.
//! - [`commands`] and [`dialogs`] are its two tables. [`turns`] assigns the ids of turns.
//! - [`locate`] finds the program and builds its arguments. [`crate::children::pi_env`] builds its environment: only there do keys
//!   leave the daemon. [`outside`] protects both from commands. [`history`] makes Pi work in the workspace without
//!   starting there.
//!
//! A session's entry in the table has the actor, once the session has needed a Pi.

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
mod turns;

pub(crate) use handle::{EnsureStarted, PiHandle, PromptAccepted, SendPrompt};
pub(crate) use health::checks;
pub(crate) use requests::{AbortTurn, AnswerDialog, RefreshState};

use crate::children::DrainReason;
use crate::pool::sessions::ProcessKind;
use crate::session::owner::Owner;
use crate::session::services::SessionServices;
use crate::session::{FoundSession, SessionEntry};
use actix::prelude::*;
use handle::Drain;
use quackd_protocol::SessionId;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Timeout for stopping a Pi, in addition to the time for its turn.
const END_SLACK: Duration = Duration::from_secs(6);

/// Maximum length of a recorded failure, in characters.
const MAX_FAILURE: usize = 400;

/// The last failure of a Pi, until a Pi of the same session succeeds. For `doctor`.
#[derive(Debug, Default)]
pub(crate) struct LastFailure(RefCell<Option<Failure>>);

/// Failure of a session's Pi.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    session: SessionId,
    pub(crate) session_name: String,
    /// ISO 8601 UTC.
    pub(crate) at: String,
    pub(crate) why: String,
}

impl LastFailure {
    /// Records that a session's Pi failed to start, or crashed.
    fn note(&self, session: &SessionId, name: &str, why: &str) {
        let plain = why.chars().filter(|c| !c.is_control()).take(MAX_FAILURE).collect();
        self.0.replace(Some(Failure {
            session: session.clone(),
            session_name: name.to_owned(),
            at: crate::clock::now_text(),
            why: plain,
        }));
    }

    /// Removes the failure, because the session's Pi works or the session was deleted.
    fn forget(&self, session: &SessionId) {
        self.0.borrow_mut().take_if(|failure| failure.session == *session);
    }

    fn get(&self) -> Option<Failure> {
        self.0.borrow().clone()
    }
}

/// Returns the actor of a session's Pi, which is created on first use. `None` if the session was deleted.
pub(crate) fn handle_of(
    found: &FoundSession,
    services: &Rc<SessionServices>,
    owner: &Owner,
) -> Option<Addr<PiHandle>> {
    let entry = services.table.get(&found.session_id)?;
    let create = || {
        let services = Rc::clone(services);
        let handle = PiHandle::new(found, services, owner.clone(), Rc::downgrade(&entry)).start();
        entry.manage_by(ProcessKind::Pi, handle.clone().recipient());
        handle
    };
    Some(entry.handle.pi.get_or_init(create).clone())
}

/// Stops a session's Pi. A busy one may finish its turn until `until`.
pub(crate) async fn drain(entry: Rc<SessionEntry>, until: Instant, ending: DrainReason) {
    if let Some(handle) = entry.handle.pi.get() {
        // A stopped actor has no process.
        handle.send(Drain { until, ending }).await.ok();
    }
}

/// Stops the Pi of a deleted session.
pub(crate) async fn delete(services: &SessionServices, entry: Rc<SessionEntry>) {
    services.pi_failure.forget(&entry.id);
    let (session, drained) = (entry.id.clone(), drain(entry, Instant::now(), DrainReason::Deleted));
    if tokio::time::timeout(END_SLACK, drained).await.is_err() {
        tracing::error!(%session, "Pi of a deleted session has not exited yet");
    }
}
