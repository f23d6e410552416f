//! The methods of the client wire: one file each, and one row each in [`table`].

mod abort;
mod attach;
mod config;
mod daemon;
mod doctor;
mod doctor_supervision;
mod extension_ui;
mod find;
mod follow;
mod gc;
mod kill;
mod metrics;
mod pin;
mod ping;
mod ps;
mod remote;
mod sandbox;
mod say;
mod session_admin;
mod sessions;
mod state;
mod streaming;
mod table;
mod tool;
mod tree;
mod voice;

pub(crate) use metrics::metrics_text;

use crate::errors::MethodError;
use crate::events::client_registry::Client;
use crate::registry::Registry;
use crate::services::Services;
use crate::wire::{self, ParsedRequest};
use actix::Addr;
use bytes::Bytes;
use quackd_protocol::client::LOCAL_APP;
use quackd_protocol::limits::LOCAL_APP_DEADLINE;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::rc::Rc;
use std::time::Duration;
use table::Method;

/// The calling client, with the services that methods use.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) services: Rc<Services>,
    pub(crate) registry: Addr<Registry>,
    pub(crate) client: Rc<Client>,
}

impl Caller {
    pub(crate) fn new(
        services: Rc<Services>,
        registry: Addr<Registry>,
        client: Rc<Client>,
    ) -> Self {
        Self { services, registry, client }
    }

    /// The time after which this client gives up, if it is known.
    fn gives_up(&self) -> Option<Duration> {
        let kind = self.services.voice.kind(&self.client.id)?;
        (kind == LOCAL_APP).then_some(LOCAL_APP_DEADLINE)
    }

    /// Ends the client's following and its voice role, after a disconnect or an unfollow.
    pub(crate) fn disconnect(&self) {
        let session = self.client.stop_following();
        let voice = &self.services.voice;
        if let Some(session) = session {
            voice.unfollowed(&session, &self.client);
        }
        voice.forget(&self.client.id);
    }
}

/// Whether other requests of the client run at the same time as this one. Unknown methods are answered in order.
pub(crate) fn is_concurrent(request: &ParsedRequest) -> bool {
    Method::find(&request.method).is_some_and(Method::is_concurrent)
}

/// Answers one request with exactly one reply.
pub(crate) async fn answer(mut request: ParsedRequest, caller: &Caller) -> Bytes {
    let Some(method) = Method::find(&request.method) else {
        return wire::failure(request.id.as_ref(), &wire::unknown_method(&request.method));
    };
    match table::admit(method, &request, caller.client.transport) {
        Ok(()) => (method.run)(&mut request, caller).await,
        Err(error) => wire::failure(request.id.as_ref(), &error.to_string()),
    }
}

/// Success without data.
fn done(request: &ParsedRequest) -> Bytes {
    wire::success::<()>(request.id.as_ref(), None)
}

async fn answered<D: Serialize>(
    request: &mut ParsedRequest,
    caller: &Caller,
    method: impl AsyncFnOnce(&mut ParsedRequest, &Caller) -> Result<D, MethodError>,
) -> Bytes {
    let result = method(request, caller).await;
    reply(request, result)
}

fn reply<D: Serialize>(request: &ParsedRequest, result: Result<D, MethodError>) -> Bytes {
    match result {
        Ok(data) => wire::success(request.id.as_ref(), Some(data)),
        Err(error) => wire::failure(request.id.as_ref(), &error.to_string()),
    }
}

fn params<T: DeserializeOwned>(
    request: &mut ParsedRequest,
    method: &'static str,
) -> Result<T, MethodError> {
    request.params().map_err(|why| MethodError::Params { method, why })
}

/// A session reference in a parameter of quackd's own methods: `None` if absent.
///
/// # Errors
/// `NoReference` if it is empty. Upstream's methods read an empty reference as none, which means the active session.
fn own_reference(given: Option<&str>) -> Result<Option<String>, MethodError> {
    match given {
        Some(text) if text.trim().is_empty() => Err(MethodError::NoReference),
        other => Ok(other.map(str::to_owned)),
    }
}
