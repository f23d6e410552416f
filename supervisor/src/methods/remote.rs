//! `remote_status` for all clients, and `remote_configure` for local ones. Each parameter may be any JSON value, as
//! upstream accepts it.

use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::wire::truthy;
use quackd_protocol::client::{RemoteConfigureParams, RemoteData, RemoteStatusParams};
use serde_json::{Map, Value};

impl Serve<RemoteStatusParams> for Caller {
    async fn serve(&self, params: Map<String, Value>) -> Result<RemoteData, MethodError> {
        let is_token_wanted = params.get("includeToken").is_some_and(truthy);
        // The token is never sent to remote clients.
        let may_have_token = self.client.transport == Transport::Socket;
        Ok(self.services.remote.data(is_token_wanted && may_have_token).await)
    }
}

impl Serve<RemoteConfigureParams> for Caller {
    async fn serve(&self, params: Map<String, Value>) -> Result<RemoteData, MethodError> {
        self.services.remote.configure(params).await
    }
}
