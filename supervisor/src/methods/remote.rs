//! `remote_status` for all clients, and `remote_configure` for local ones.

use super::{Caller, params};
use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::wire::{ParsedRequest, truthy};
use quackd_protocol::client::RemoteData;
use serde_json::{Map, Value};

pub(super) async fn remote_status(
    request: &mut ParsedRequest,
    caller: &Caller,
) -> Result<RemoteData, MethodError> {
    let params: Map<String, Value> = params(request, "remote_status")?;
    let is_token_wanted = params.get("includeToken").is_some_and(truthy);
    // The token is never sent to remote clients.
    let may_have_token = caller.client.transport == Transport::Socket;
    Ok(caller.services.remote.data(is_token_wanted && may_have_token).await)
}

pub(super) async fn remote_configure(
    request: &mut ParsedRequest,
    caller: &Caller,
) -> Result<RemoteData, MethodError> {
    if caller.client.transport != Transport::Socket {
        return Err(MethodError::LocalOnly);
    }
    let params = params(request, "remote_configure")?;
    Ok(caller.services.remote.configure(params).await?)
}
