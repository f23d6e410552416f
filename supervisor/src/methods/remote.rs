//! `remote_status` for all clients, and `remote_configure` for local ones. Each parameter may be any JSON value, as
//! upstream accepts it.

use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::wire::truthy;
use quackd_protocol::client::{RemoteConfigureParams, RemoteData, RemoteStatusParams};
use serde_json::{Map, Value};

impl Serve<RemoteStatusParams> for Caller {
    async fn serve(&self, params: Map<String, Value>) -> Result<RemoteData, MethodError> {
        // The token is never sent to remote clients.
        let with_token = self.is_local() && params.get("includeToken").is_some_and(truthy);
        Ok(self.services.remote.data(with_token).await)
    }
}

impl Serve<RemoteConfigureParams> for Caller {
    async fn serve(&self, params: Map<String, Value>) -> Result<RemoteData, MethodError> {
        self.services.remote.configure(params).await
    }
}
