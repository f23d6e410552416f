//! Reports to the registry: crashes, programs on terminals, the agent's own state that the metadata keeps, hosts of the
//! user's tools ([`super::presets`] keeps them), and a configuration file that commands could change.

use super::Registry;
use super::catalog;
use crate::session::owner::{AgentReport, Crashed, ListWritable, ProgramsChanged};
use actix::prelude::*;
use quackd_protocol::state::{FoundPreset, HeldConfig, MAX_HELD, SessionState};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Prefix of default session names, followed by a number.
const UNNAMED: &str = "duck-";

/// The user's tools reported hosts of derived presets, by preset. Sent by the request that asked the tools.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct KeepHosts(pub(crate) BTreeMap<String, FoundPreset>);

/// Commands of sessions could change the configuration file. Sent by the start, and by requests that let a session write
/// another directory.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct ConfigHeld(pub(crate) HeldConfig);

impl Handler<Crashed> for Registry {
    type Result = ();

    /// Counts a crash of a session's worker or agent. The count survives restarts of the daemon.
    fn handle(&mut self, Crashed(session): Crashed, ctx: &mut Self::Context) {
        let is_known = catalog::by_id(&self.metadata, &session).is_some();
        let count = |state: &mut SessionState| state.restarts = state.restarts.saturating_add(1);
        if is_known && self.change_state(&session, count) && !self.draining {
            // The log reports a failed save, which loses the count.
            drop(self.save(ctx));
        }
    }
}

impl Handler<ProgramsChanged> for Registry {
    type Result = ();

    /// Records the programs for the next daemon. While this one stops, the record stays.
    fn handle(&mut self, msg: ProgramsChanged, ctx: &mut Self::Context) {
        let ProgramsChanged { session, programs } = msg;
        let is_known = catalog::by_id(&self.metadata, &session).is_some();
        let record = |state: &mut SessionState| state.programs = programs;
        if is_known && !self.draining && self.change_state(&session, record) {
            // The log reports a failed save, which loses the record.
            drop(self.save(ctx));
        }
    }
}

impl Handler<AgentReport> for Registry {
    type Result = Option<String>;

    /// Takes the agent's state into the metadata, and returns the session's name. The caller does not wait for the disk.
    fn handle(&mut self, report: AgentReport, ctx: &mut Self::Context) -> Option<String> {
        let AgentReport { session, session_file, session_name } = report;
        let known = catalog::by_id(&self.metadata, &session)?;
        let file = session_file.filter(|file| *file != known.pi_session_file);
        let name =
            session_name.filter(|name| known.name.starts_with(UNNAMED) && *name != known.name);
        let final_name = name.clone().unwrap_or_else(|| known.name.clone());
        if file.is_none() && name.is_none() || self.draining {
            return Some(final_name);
        }

        let known = catalog::by_id_mut(Arc::make_mut(&mut self.metadata), &session)?;
        if let Some(file) = file {
            known.pi_session_file = file;
        }
        if let Some(name) = name {
            known.name = name;
        }

        // The log reports a failed save, which reverts the change. The agent reports its state again after the next
        // turn.
        drop(self.save(ctx));
        Some(final_name)
    }
}

impl Handler<ConfigHeld> for Registry {
    type Result = ();

    /// Remembers that commands could change the configuration file. A failed save is repeated with the next one.
    fn handle(&mut self, ConfigHeld(record): ConfigHeld, ctx: &mut Self::Context) {
        if self.draining || self.state.held.contains(&record) {
            return;
        }

        let held = &mut Arc::make_mut(&mut self.state).held;
        if MAX_HELD <= held.len() {
            held.remove(0);
        }

        held.push(record);
        drop(self.save(ctx));
    }
}

impl Handler<ListWritable> for Registry {
    type Result = Vec<PathBuf>;

    fn handle(&mut self, _: ListWritable, _: &mut Self::Context) -> Vec<PathBuf> {
        self.snapshot().writable(&self.services.daemon.config.sandbox)
    }
}
