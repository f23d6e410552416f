//! `sessions`: the known sessions, in stored order.

use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::registry::catalog::Selection;
use crate::wire::{reference, truthy};
use quackd_protocol::client::{SessionsData, SessionsParams};

impl Serve<SessionsParams> for Caller {
    async fn serve(&self, params: SessionsParams) -> Result<SessionsData, MethodError> {
        let SessionsParams { all, workspace_id } = params;
        let selection = if truthy(&all) {
            Selection::All
        } else {
            reference(&workspace_id).map_or(Selection::Active, Selection::Workspace)
        };

        let snapshot = self.snapshot().await?;
        Ok(SessionsData { sessions: snapshot.sessions(&selection, &self.services.sessions) })
    }
}
