//! How a change becomes durable: one save in flight, and one group that waits for the next.
//!
//! Changes that arrive while a save is in flight share the next one. If a save fails, memory goes back
//! to the last durable state, and everyone who shared the save, or waited for the one after it, is told.
//! A save also brings what another program has written meanwhile ([`super::external_writer`]).

use super::Registry;
use crate::errors::MethodError;
use actix::prelude::*;
use quackd_store::{Saved as Kept, Snapshot, StoreError, Writer};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Where changes go.
#[derive(Debug)]
pub(crate) enum Saving {
    /// To the store's thread. Dropping it saves what was handed over.
    To(Writer),
    /// Nowhere: the files must not be written.
    Off {
        /// Why, for whoever wants to change something.
        why: String,
    },
}

/// Why a change is not on disk. One failure answers everyone who shared the save.
#[derive(Debug, Clone)]
pub(super) enum NotKept {
    Failed(StoreError),
    ReadOnly(String),
}

impl From<NotKept> for MethodError {
    fn from(not_kept: NotKept) -> Self {
        match not_kept {
            NotKept::Failed(error) => Self::NotSaved(error),
            NotKept::ReadOnly(why) => Self::ReadOnly(why),
        }
    }
}

/// Somebody who waits for a save.
pub(super) type Waiter = oneshot::Sender<Result<(), NotKept>>;

/// The end of a save.
pub(super) type Saved = oneshot::Receiver<Result<(), NotKept>>;

/// Waits for a save, if there is one to wait for.
pub(super) async fn kept(saved: Option<Saved>) -> Result<(), MethodError> {
    match saved {
        None => Ok(()),
        Some(saved) => saved.await.map_err(|_ended| MethodError::ShuttingDown)?.map_err(Into::into),
    }
}

impl Registry {
    /// Whether memory and disk differ, and could be made the same.
    pub(super) fn is_unsaved(&self) -> bool {
        let differs =
            *self.metadata != *self.durable.metadata || *self.state != *self.durable.state;
        (differs || self.is_behind) && matches!(self.saving_to, Saving::To(_))
    }

    /// Waits for what was changed to be durable, or for a change of somebody else that is on its way.
    pub(super) fn keep(&mut self, changed: bool, ctx: &mut Context<Self>) -> Option<Saved> {
        // What is there already may still be on its way to the disk, by somebody else's change.
        if changed { Some(self.save(ctx)) } else { self.join_save() }
    }

    /// Makes memory durable. The answer comes when the save that holds it has ended.
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

    /// Waits with those whose change is being saved, if there are any.
    pub(super) fn join_save(&mut self) -> Option<Saved> {
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
                // The client may have left; the change stays.
                waiter.send(result.clone()).ok();
            }
        };
        let waiting = std::mem::take(&mut self.waiting);
        let next = std::mem::take(&mut self.waiting_next);
        match result {
            Ok((snapshot, kept)) => {
                self.take_over(snapshot, kept, ctx);
                self.health.save_failed.replace(None);
                answer(waiting, &Ok(()));
                if !next.is_empty() {
                    self.waiting = next;
                    self.start_save(ctx);
                }
            }
            Err(error) => {
                tracing::error!(?error, "nothing was saved; the change is taken back");
                let why = MethodError::from(error.clone()).to_string();
                self.health.save_failed.replace(Some(why));
                self.metadata = Arc::clone(&self.durable.metadata);
                self.state = Arc::clone(&self.durable.state);
                self.tell_policies(None);
                self.tell_pins();
                answer(waiting, &Err(error.clone()));
                answer(next, &Err(error));
            }
        }
    }
}
