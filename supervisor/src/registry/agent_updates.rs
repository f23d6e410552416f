//! Reports of child processes: crashes, the agent's own state that the metadata keeps, and hosts of the user's tools.

use super::Registry;
use crate::session::owner::{AgentReport, OwnerReply, TellOwner};
use actix::prelude::*;
use quackd_protocol::state::{HeldConfig, MAX_HELD};
use std::sync::Arc;

/// Prefix of default session names, followed by a number.
const UNNAMED: &str = "duck-";

impl Handler<TellOwner> for Registry {
    type Result = OwnerReply;

    fn handle(&mut self, msg: TellOwner, ctx: &mut Self::Context) -> OwnerReply {
        match msg {
            TellOwner::Crashed(session) => {
                self.crashed(&session, ctx);
                OwnerReply::Done
            }
            TellOwner::AgentReport(report) => OwnerReply::Name(self.agent_report(report, ctx)),
            TellOwner::KeepHosts(found) => {
                self.keep_hosts(found, ctx);
                OwnerReply::Done
            }
            TellOwner::ConfigHeld(record) => {
                self.keep_held(record, ctx);
                OwnerReply::Done
            }
            TellOwner::ListWritable => {
                let settings = &self.services.daemon.config.sandbox;
                OwnerReply::Writable(self.snapshot().writable(settings))
            }
        }
    }
}

impl Registry {
    /// Remembers that commands could change the configuration file. A failed save is repeated with the next one.
    fn keep_held(&mut self, record: HeldConfig, ctx: &mut Context<Self>) {
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

    /// Takes the agent's state into the metadata, and returns the session's name. The caller does not wait for the
    /// disk.
    fn agent_report(&mut self, report: AgentReport, ctx: &mut Context<Self>) -> Option<String> {
        let AgentReport { session, session_file, session_name } = report;
        let found = self.metadata.sessions.iter().position(|known| known.id == session)?;
        let known = self.metadata.sessions.get(found)?;
        let file = session_file.filter(|file| *file != known.pi_session_file);
        let name =
            session_name.filter(|name| known.name.starts_with(UNNAMED) && *name != known.name);
        let shown = name.clone().unwrap_or_else(|| known.name.clone());
        if file.is_none() && name.is_none() || self.draining {
            return Some(shown);
        }

        let session = Arc::make_mut(&mut self.metadata).sessions.get_mut(found)?;
        if let Some(file) = file {
            session.pi_session_file = file;
        }
        if let Some(name) = name {
            session.name = name;
        }
        // The log reports a failed save, which reverts the change. The agent reports its state again after the next
        // turn.
        drop(self.save(ctx));
        Some(shown)
    }
}
