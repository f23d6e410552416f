//! `remote_status` for all clients, and `remote_configure` for local ones. Each of their parameters may be any JSON
//! value, as upstream accepts it. `quack.page_code` and `quack.page_tokens` for local clients.

use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::wire::truthy;
use quackd_protocol::client::{
    PageCodeData, PageCodeParams, PageTokensData, PageTokensParams, RemoteConfigureParams,
    RemoteData, RemoteStatusParams,
};
use serde_json::{Map, Value};

impl Serve<RemoteStatusParams> for Caller {
    async fn serve(&self, params: Map<String, Value>) -> Result<RemoteData, MethodError> {
        // The token is never sent to remote clients.
        let with_token = self.is_local() && params.get("includeToken").is_some_and(truthy);
        Ok(self.services.remote.data(with_token).await)
    }
}

impl Serve<PageCodeParams> for Caller {
    async fn serve(&self, params: PageCodeParams) -> Result<PageCodeData, MethodError> {
        self.services.remote.page_code(params.rights, params.host).await
    }
}

impl Serve<PageTokensParams> for Caller {
    async fn serve(&self, params: PageTokensParams) -> Result<PageTokensData, MethodError> {
        let remote = &self.services.remote;
        match (params.all, params.revoke) {
            (Some(true), _) => remote.revoke_pages(None).await,
            (_, Some(id)) => remote.revoke_pages(Some(&id)).await,
            (_, None) => Ok(remote.page_tokens()),
        }
    }
}

impl Serve<RemoteConfigureParams> for Caller {
    async fn serve(&self, params: Map<String, Value>) -> Result<RemoteData, MethodError> {
        self.services.remote.configure(params).await
    }
}
