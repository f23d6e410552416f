//! `quack.gc`: lists or deletes expired and orphaned files.

use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::retention::prune;
use quackd_protocol::client::{GcData, GcKind, GcParams};

impl Serve<GcParams> for Caller {
    async fn serve(&self, params: GcParams) -> Result<GcData, MethodError> {
        // Remote clients may list the files, but not delete them.
        if !self.is_local() && params.dry_run != Some(true) {
            return Err(MethodError::LocalGc);
        }

        let services = &self.services;
        let dry_run = params.dry_run.unwrap_or(false);
        let force = params.force.unwrap_or(false);
        let only_sessions = params.only_sessions.unwrap_or(false);
        let mut data = if only_sessions {
            GcData { dry_run, ..GcData::default() }
        } else {
            services.retention.gc(params, &self.registry).await?
        };

        let pruned = prune(
            &services.sessions,
            &services.interrupted,
            &self.registry,
            dry_run,
            force,
            only_sessions,
        )
        .await?;

        if !pruned.sessions.is_empty() {
            let items = pruned.sessions.len();
            data.items = data.items.saturating_add(items);
            data.kinds.push(GcKind { kind: "sessions".to_owned(), items, bytes: 0 });
        }
        data.sessions = pruned.sessions;
        data.kept_sessions = pruned.kept;
        Ok(data)
    }
}
