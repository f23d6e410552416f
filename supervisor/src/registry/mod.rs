//! The registry: all workspaces and sessions, and the active session.
//!
//! Owns: metadata and state in memory, their last durable version, and the entries of the table of sessions.
//! Receives: [`OpenSession`], [`Activate`], [`Delete`], [`ChangeSession`], [`FindSession`] and [`TakeSnapshot`] (methods),
//! the messages of [`crate::session::owner`] (the sessions' actors), `KeepHosts` and [`ConfigHeld`] (methods and the
//! start), and [`Drain`] (shutdown).
//! Blocks on: nothing. The store's thread saves while look-ups continue.
//! Mailbox: [`MAILBOX`] messages; senders wait for free space.
//! Ends: with the daemon.
//!
//! Invariant: a change succeeds only after it is on disk ([`persistence`]). If a save fails, memory returns to the last
//! durable state and all waiting requests fail.

mod agent_updates;
pub(crate) mod catalog;
mod claims;
mod deleting;
mod external_writer;
mod grants;
mod host_rules;
pub(crate) mod in_progress;
pub(crate) mod labels;
mod link_names;
mod lookups;
mod mutations;
mod persistence;
mod policies;
mod presets;
mod restrictions;
mod saves;
pub(crate) mod shutdown_record;
mod snapshot;

pub(crate) use agent_updates::ConfigHeld;
pub(crate) use claims::Claim;
pub(crate) use deleting::Delete;
pub(crate) use link_names::{LinkNames, Named};
pub(crate) use lookups::{FindSession, Purpose};
pub(crate) use mutations::{Activate, Open, OpenSession};
pub(crate) use policies::{
    AgentChange, ChangeSession, FoundPolicy, GrantChange, PolicyChange, SessionChange,
};
pub(crate) use presets::{Problems, ask_tools};
pub(crate) use restrictions::Restrictions;
pub(crate) use saves::Saving;
pub(crate) use snapshot::{RegistrySnapshot, TakeSnapshot};

use crate::children::DrainReason;
use crate::events::client_registry::Clients;
use crate::health::Health;
use crate::session::actors::ActorTable;
use crate::session::services::SessionServices;
use crate::voice::Voice;
use actix::prelude::*;
use quackd_protocol::SessionId;
use quackd_protocol::metadata::Metadata;
use quackd_protocol::state::{DaemonState, SessionState};
use quackd_store::Snapshot;
use saves::Waiter;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Maximum number of waiting messages. Each takes microseconds.
const MAILBOX: usize = 4096;

/// Actor that owns the metadata.
pub(crate) struct Registry {
    services: Rc<SessionServices>,
    actors: Rc<ActorTable>,
    health: Rc<Health>,
    voice: Rc<Voice>,
    clients: Rc<Clients>,
    saving_to: Saving,
    metadata: Arc<Metadata>,
    state: Arc<DaemonState>,
    durable: Snapshot,
    saving: bool,
    /// Memory contains changes of the other program that the file no longer contains.
    is_behind: bool,
    /// Requests that wait for the save in flight.
    waiting: Vec<Waiter>,
    /// Requests that wait for the next save.
    waiting_next: Vec<Waiter>,
    draining: bool,
}

impl Registry {
    /// Creates the registry of the loaded metadata.
    pub(crate) fn new(
        actors: Rc<ActorTable>,
        health: Rc<Health>,
        voice: Rc<Voice>,
        clients: Rc<Clients>,
        loaded: Snapshot,
        saving_to: Saving,
    ) -> Self {
        Self {
            services: Rc::clone(&actors.services),
            actors,
            health,
            voice,
            clients,
            saving_to,
            metadata: Arc::clone(&loaded.metadata),
            state: Arc::clone(&loaded.state),
            durable: loaded,
            saving: false,
            is_behind: false,
            waiting: Vec::new(),
            waiting_next: Vec::new(),
            draining: false,
        }
    }

    /// Returns quackd's own state of a session.
    fn state_of(&self, session: &SessionId) -> SessionState {
        self.state.sessions.get(session).cloned().unwrap_or_default()
    }

    /// Changes quackd's own state of a session. Returns whether it differs.
    fn change_state(
        &mut self,
        session: &SessionId,
        change: impl FnOnce(&mut SessionState),
    ) -> bool {
        let before = self.state_of(session);
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return false;
        }

        let sessions = &mut Arc::make_mut(&mut self.state).sessions;
        // The state contains only sessions that differ from the defaults.
        if after.is_default() {
            sessions.remove(session);
        } else {
            sessions.insert(session.clone(), after);
        }
        true
    }

    /// Publishes the pinned sessions to the eviction.
    fn tell_pins(&self) {
        let pinned = self.state.sessions.iter().filter(|(_, state)| state.pinned);
        self.services.table.set_pinned(pinned.map(|(id, _)| id.clone()));
    }
}

impl Actor for Registry {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.listen(ctx);
        self.tell_pins();
        self.ask_for_configuration(ctx);
    }
}

/// Refuse new work, let calls finish until `until`, and stop every process. Answered when all have exited.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Drain {
    pub(crate) until: Instant,
}

impl Handler<Drain> for Registry {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Drain { until }: Drain, ctx: &mut Self::Context) -> Self::Result {
        // Requests that would change something are refused from here on.
        self.draining = true;

        let saved = if self.is_unsaved() { Some(self.save(ctx)) } else { self.join_save() };
        let ending = DrainReason::Shutdown;
        let sessions = self.actors.all().into_iter();
        let drained: Vec<_> = sessions.map(|actors| actors.drain(until, ending)).collect();

        Box::pin(async move {
            // Sent to all actors before the first wait: sessions drain concurrently.
            futures_util::future::join_all(drained).await;
            if let Some(saved) = saved {
                // The log contains a failure already.
                saved.await.ok();
            }
        })
    }
}
