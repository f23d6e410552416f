//! Group commit of the registry: one save is in flight, and all later changes share the next save.
//!
//! If a save fails, memory returns to the last durable state. Every request that shared the save, or waits for the
//! next one, fails. A save also returns changes that another program wrote ([`super::external_writer`]).

use super::Registry;
use super::saves::{NotKept, Saved, Saving, Waiter};
use crate::errors::MethodError;
use actix::prelude::*;
use quackd_rubber_duck::Saved as Kept;
use quackd_store::Snapshot;
use std::sync::Arc;
use tokio::sync::oneshot;

impl Registry {
    /// Whether memory and disk differ, and saving is possible.
    pub(super) fn is_unsaved(&self) -> bool {
        let differs =
            *self.metadata != *self.durable.metadata || *self.state != *self.durable.state;
        (differs || self.is_behind) && matches!(self.saving_to, Saving::To(_))
    }

    /// Saves a change. Without a change, joins the save in flight.
    pub(super) fn keep(&mut self, changed: bool, ctx: &mut Context<Self>) -> Option<Saved> {
        // The state that the caller found may be the change of another request whose save is in flight.
        if changed { Some(self.save(ctx)) } else { self.join_save() }
    }

    /// Saves the memory. The result arrives when the save that contains it has finished.
    pub(super) fn save(&mut self, ctx: &mut Context<Self>) -> Saved {
        let (answer, answered) = oneshot::channel();
        if self.saving {
            self.waiting_next.push(answer);
        } else {
            self.waiting.push(answer);
            self.start_save(ctx);
        }
        answered
    }

    /// Joins the save in flight, if there is one.
    pub(super) fn join_save(&mut self) -> Option<Saved> {
        // A later change may already wait for the next save, which then contains the state that the
        // caller found.
        let group = match (self.saving, self.waiting_next.is_empty()) {
            (false, _) => return None,
            (true, true) => &mut self.waiting,
            (true, false) => &mut self.waiting_next,
        };

        let (answer, answered) = oneshot::channel();
        group.push(answer);
        Some(answered)
    }

    fn start_save(&mut self, ctx: &mut Context<Self>) {
        let writer = match &self.saving_to {
            Saving::To(writer) => writer,
            Saving::Off { why } => {
                let why = why.clone();
                return self.saved(Err(NotKept::ReadOnly(why)), ctx);
            }
        };

        self.saving = true;
        let snapshot =
            Snapshot { metadata: Arc::clone(&self.metadata), state: Arc::clone(&self.state) };

        let saving = writer.save(snapshot.clone());
        ctx.spawn(saving.into_actor(self).map(|result, registry, ctx| {
            registry.saving = false;
            let result = result.map(|kept| (snapshot, kept)).map_err(NotKept::Failed);
            registry.saved(result, ctx);
        }));
    }

    fn saved(&mut self, result: Result<(Snapshot, Kept), NotKept>, ctx: &mut Context<Self>) {
        let answer = |waiting: Vec<Waiter>, result: &Result<(), NotKept>| {
            for waiter in waiting {
                // The client may have disconnected; the change stays.
                waiter.send(result.clone()).ok();
            }
        };

        let waiting = std::mem::take(&mut self.waiting);
        let next = std::mem::take(&mut self.waiting_next);
        match result {
            Ok((snapshot, kept)) => {
                self.take_over(snapshot, kept, ctx);
                answer(waiting, &Ok(()));
                // Changes of these requests came after the snapshot, so they need one more save. The import may have
                // started it. Two saves at once would lose what the first one imports.
                if !next.is_empty() {
                    self.waiting.extend(next);
                    if !self.saving {
                        self.start_save(ctx);
                    }
                }
            }
            Err(error) => {
                tracing::error!(?error, "nothing was saved; the change is taken back");
                let why = MethodError::from(error.clone()).to_string();
                self.health.save_failed.replace(Some(why));
                self.metadata = Arc::clone(&self.durable.metadata);
                // Later changes were made on top of the lost one, so they are lost too.
                self.state = Arc::clone(&self.durable.state);
                self.tell_policies(None);
                self.tell_pins();
                answer(waiting, &Err(error.clone()));
                answer(next, &Err(error));
            }
        }
    }
}
