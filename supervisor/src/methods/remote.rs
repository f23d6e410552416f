//! `remote_status` and `remote_configure`: for everybody the one, for clients of the socket the other.

use super::{Caller, params};
use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::wire::{Request, truthy};
use quackd_protocol::client::RemoteData;
use serde_json::{Map, Value};

pub(super) async fn remote_status(
    request: &mut Request,
    caller: &Caller,
) -> Result<RemoteData, MethodError> {
    let params: Map<String, Value> = params(request, "remote_status")?;
    let is_token_wanted = params.get("includeToken").is_some_and(truthy);
    // A remote client has a token already, or has borrowed one.
    let may_have_token = caller.client.transport == Transport::Socket;
    Ok(caller.services.remote.data(is_token_wanted && may_have_token).await)
}

pub(super) async fn remote_configure(
    request: &mut Request,
    caller: &Caller,
) -> Result<RemoteData, MethodError> {
    if caller.client.transport != Transport::Socket {
        return Err(MethodError::LocalOnly);
    }
    let params = params(request, "remote_configure")?;
    Ok(caller.services.remote.configure(params).await?)
}
