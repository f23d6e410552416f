//! Takes changes of the other program that writes `metadata.json` into memory.
//!
//! Every save imports them first ([`quackd_rubber_duck::Saved`]). A change of the other program alone starts a save. A
//! session that the other program deleted is deleted here too, unless work runs in it: then it is written again. For an
//! unknown reference, the registry reads the file once before it reports an error.

use super::Registry;
use super::deleting::clear_away;
use super::saves::{Saved, Saving, kept};
use crate::errors::chain;
use crate::session::owner::Owner;
use actix::prelude::*;
use quackd_protocol::WorkspaceId;
use quackd_rubber_duck::{Gone, Saved as Kept, SetAside, rebase, trim_workspaces};
use quackd_store::Snapshot;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Delay after a save that another program overtook. Without it, two programs that keep writing would keep the disk
/// busy.
const CATCH_UP: Duration = Duration::from_millis(100);

/// Timeout of reading the file for an unknown reference.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

impl Registry {
    /// Saves, and thereby imports, whenever the writer reports that another program has written the metadata.
    pub(super) fn listen(&self, ctx: &mut Context<Self>) {
        let Saving::To(writer) = &self.saving_to else { return };
        let changed = writer.changed();
        let waiting = async move { changed.notified().await };
        ctx.spawn(waiting.into_actor(self).map(|(), registry, ctx| {
            if !registry.draining {
                // The log reports a failure.
                drop(registry.save(ctx));
            }
            registry.listen(ctx);
        }));
    }

    /// Takes the result of a save into memory. `snapshot` is the saved state.
    pub(super) fn take_over(&mut self, snapshot: Snapshot, kept: Kept, ctx: &mut Context<Self>) {
        let Kept { metadata, gone, notes, set_aside, not_exported, is_behind } = kept;
        // The allocation is the same if the other program changed nothing.
        let mut keeps_labels = false;
        if !Arc::ptr_eq(&metadata, &snapshot.metadata) {
            let labels = self.shown_labels();
            self.metadata = if Arc::ptr_eq(&self.metadata, &snapshot.metadata) {
                Arc::clone(&metadata)
            } else {
                Arc::new(rebase(&snapshot.metadata, &metadata, &self.metadata))
            };
            let (sessions, workspaces) = (metadata.sessions.len(), metadata.workspaces.len());
            tracing::info!(sessions, workspaces, "took over what another program has written");
            // A session that got another name frees its label.
            keeps_labels = self.keep_labels(&labels);
        }

        // The disk has this state now, so a later save that fails returns to it.
        self.durable = Snapshot { metadata, state: snapshot.state };
        for note in notes {
            tracing::warn!(note, "another program has changed metadata.json too");
        }

        let not_exported = not_exported.map(|error| chain(&error));
        if let Some(why) = &not_exported {
            tracing::error!(why, "the change is saved, but metadata.json does not show it yet");
        }

        self.health.save_failed.replace(not_exported);
        if let Some(SetAside { path, reason }) = set_aside {
            let path = path.display().to_string();
            tracing::error!(
                path,
                reason,
                "metadata.json was unusable: it was moved, and the daemon's data was written"
            );
            self.health.set_aside.replace(Some((path, reason)));
        }

        self.is_behind = is_behind;
        if is_behind {
            ctx.run_later(CATCH_UP, |registry, ctx| {
                // Another save may have caught up during the delay.
                if registry.is_behind && !registry.draining {
                    drop(registry.save(ctx));
                }
            });
        }

        if !gone.is_empty() {
            self.delete_idle(gone, ctx);
        } else if keeps_labels && !self.draining {
            // The log reports a failure.
            drop(self.save(ctx));
        }
    }

    /// Deletes the sessions in `gone` that run nothing.
    fn delete_idle(&mut self, gone: Gone, ctx: &mut Context<Self>) {
        if self.draining {
            return;
        }

        let mut deleted = Vec::new();
        let labels = self.shown_labels();
        for id in gone.sessions {
            let snapshot = self.services.table.snapshot(&id);
            if !snapshot.worker.running().is_none() || snapshot.agent.is_busy {
                tracing::warn!(session = %id, "deleted by another program; kept, because something runs in it");
                continue;
            }
            let creation = self.creation(&id);
            if let Ok(session) = self.remove(&id) {
                tracing::info!(session = %id, "deleted by another program");
                deleted.push((session, creation));
            }
        }

        self.keep_labels(&labels);
        let used: HashSet<_> =
            self.metadata.sessions.iter().map(|session| session.workspace_id.clone()).collect();
        let is_gone = |id: &WorkspaceId| gone.workspaces.contains(id) && !used.contains(id);
        let workspaces = &mut Arc::make_mut(&mut self.metadata).workspaces;
        workspaces.retain(|workspace| !is_gone(&workspace.id));

        if self.health.are_all_sessions_known() {
            // The other program may restore it from an old copy.
            trim_workspaces(Arc::make_mut(&mut self.state), &self.metadata, is_gone);
        }

        // Sessions that stay are written again.
        let saved = self.save(ctx);
        let clearing = async move { kept(Some(saved)).await.is_ok() };
        ctx.spawn(clearing.into_actor(self).then(
            move |is_kept, registry, ctx: &mut Context<Self>| {
                let deleted = if is_kept { deleted } else { Vec::new() };
                let (actors, voice) = (Rc::clone(&registry.actors), Rc::clone(&registry.voice));
                let owner = Owner::new(&ctx.address());
                async move {
                    for (session, creation) in deleted {
                        clear_away(&actors, &voice, &session).await;
                        if let Some(creation) = creation {
                            // The log names the command if this fails.
                            creation.destroy(&actors.services, &owner).await;
                        }
                    }
                }
                .into_actor(registry)
            },
        ));
    }

    /// Reads the file to find an unknown session. `None` if the file cannot contain more sessions.
    pub(super) fn look_for_more(&mut self, ctx: &mut Context<Self>) -> Option<Looking> {
        if self.draining || !matches!(self.saving_to, Saving::To(_)) {
            return None;
        }
        let saved: Saved = self.save(ctx);
        // Callers repeat the look-up regardless of the result.
        Some(Box::pin(async move {
            drop(tokio::time::timeout(LOOK_LIMIT, saved).await);
        }))
    }
}

/// Reading of the file.
pub(super) type Looking = std::pin::Pin<Box<dyn Future<Output = ()>>>;
