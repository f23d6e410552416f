//! `remote_status` for all clients, and `remote_configure` for local ones.

use super::{Caller, schema_like};
use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::wire::truthy;
use quackd_protocol::client::{RemoteConfigureParams, RemoteData, RemoteStatusParams};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Accepts any JSON value in each parameter, as upstream does.
#[derive(Deserialize)]
pub(super) struct StatusFields(Map<String, Value>);
schema_like!(StatusFields, RemoteStatusParams);

/// See [`StatusFields`].
#[derive(Deserialize)]
pub(super) struct ConfigureFields(Map<String, Value>);
schema_like!(ConfigureFields, RemoteConfigureParams);

pub(super) async fn remote_status(
    StatusFields(params): StatusFields,
    caller: &Caller,
) -> Result<RemoteData, MethodError> {
    let is_token_wanted = params.get("includeToken").is_some_and(truthy);
    // The token is never sent to remote clients.
    let may_have_token = caller.client.transport == Transport::Socket;
    Ok(caller.services.remote.data(is_token_wanted && may_have_token).await)
}

pub(super) async fn remote_configure(
    ConfigureFields(params): ConfigureFields,
    caller: &Caller,
) -> Result<RemoteData, MethodError> {
    Ok(caller.services.remote.configure(params).await?)
}
