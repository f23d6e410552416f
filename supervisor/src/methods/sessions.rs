//! `sessions`: the known sessions, in stored order.

use super::Caller;
use crate::errors::MethodError;
use crate::registry::TakeSnapshot;
use crate::registry::catalog::Selection;
use crate::wire::{reference, truthy};
use quackd_protocol::client::{SessionsData, SessionsParams};

pub(super) async fn sessions(
    SessionsParams { all, workspace_id }: SessionsParams,
    caller: &Caller,
) -> Result<SessionsData, MethodError> {
    let selection = if truthy(&all) {
        Selection::All
    } else {
        reference(&workspace_id).map_or(Selection::Active, Selection::Workspace)
    };
    let snapshot = caller.registry.send(TakeSnapshot).await?;
    Ok(SessionsData { sessions: snapshot.sessions(&selection, &caller.services.sessions) })
}
