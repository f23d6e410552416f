//! The methods of the client wire: one file each, one `match` here.

mod abort;
mod access;
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
mod tool;
mod tree;
mod voice;

pub(crate) use metrics::metrics_text;

use crate::errors::MethodError;
use crate::events::client_registry::Client;
use crate::registry::Registry;
use crate::services::Services;
use crate::services::Stop;
use crate::wire::{self, Request};
use actix::Addr;
use bytes::Bytes;
use quackd_protocol::client::LOCAL_APP;
use quackd_protocol::limits::LOCAL_APP_DEADLINE;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::rc::Rc;
use std::time::Duration;

/// Who asks, and what a method may use.
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

    /// The deadline for what it asks, if it is a program that is known to give up.
    fn gives_up(&self) -> Option<Duration> {
        let kind = self.services.voice.kind(&self.client.id)?;
        (kind == LOCAL_APP).then_some(LOCAL_APP_DEADLINE)
    }

    /// The client follows nothing any more and is no voice client: it has left, or asked for it.
    pub(crate) fn leave(&self) {
        let session = self.client.stop_following();
        let voice = &self.services.voice;
        if let Some(session) = session {
            voice.unfollowed(&session, &self.client);
        }
        voice.forget(&self.client.id);
    }
}

/// Whether a method may wait for a disk or a worker. The others are answered in order.
pub(crate) fn waits(request: &Request) -> bool {
    matches!(
        request.method.as_str(),
        "attach"
            | "activate_session"
            | "abort"
            | "doctor"
            | "extension_ui_response"
            | "follow"
            | "get_state"
            | "say"
            | "quack.daemon"
            | "quack.find"
            | "quack.gc"
            | "quack.kill"
            | "quack.metrics"
            | "quack.pin"
            | "quack.ps"
            | "quack.restart"
            | "quack.sandbox"
            | "quack.session_delete"
            | "quack.session_new"
            | "quack.tool"
            | "quack.tree"
            | "remote_configure"
            | "remote_status"
            | "voice_tool_call"
    )
}

/// The reply to one request. Exactly one, always.
pub(crate) async fn answer(mut request: Request, caller: &Caller) -> Bytes {
    let request = &mut request;
    if let Err(error) = access::admit(request, caller.client.transport) {
        return wire::failure(request.id.as_ref(), &error.to_string());
    }
    match request.method.as_str() {
        "ping" => reply(request, Ok(ping::ping(caller))),
        "attach" => answered(request, caller, attach::attach).await,
        "follow" => answered(request, caller, follow::follow).await,
        "unfollow" => {
            follow::unfollow(caller);
            wire::success::<()>(request.id.as_ref(), None)
        }
        "sessions" => answered(request, caller, sessions::sessions).await,
        "workspaces" => reply(request, session_admin::workspaces(caller).await),
        "activate_session" => answered(request, caller, session_admin::activate_session).await,
        "get_state" => answered(request, caller, state::get_state).await,
        "abort" => answered(request, caller, abort::abort).await,
        "say" => say::say(request, caller).await,
        "extension_ui_response" => {
            answered(request, caller, extension_ui::extension_ui_response).await
        }
        "doctor" => answered(request, caller, doctor::doctor).await,
        "voice_connect" => answered(request, caller, voice::voice_connect).await,
        "voice_start" => answered(request, caller, voice::voice_start).await,
        "voice_state" => match voice::voice_state(request, caller).await {
            Ok(()) => wire::success::<()>(request.id.as_ref(), None),
            Err(error) => wire::failure(request.id.as_ref(), &error.to_string()),
        },
        "remote_status" => answered(request, caller, remote::remote_status).await,
        "remote_configure" => answered(request, caller, remote::remote_configure).await,
        "voice_tool_call" => tool::voice_tool_call(request, caller).await,
        "quack.tool" => tool::quack_tool(request, caller).await,
        "quack.cancel" => answered(request, caller, streaming::cancel).await,
        "quack.kill" => answered(request, caller, kill::kill).await,
        "quack.metrics" => reply(request, metrics::metrics(caller).await),
        "quack.pin" => answered(request, caller, pin::pin).await,
        "quack.ps" => reply(request, ps::ps(caller).await),
        "quack.tree" => reply(request, tree::tree(caller).await),
        "quack.find" => answered(request, caller, find::find).await,
        "quack.session_new" => answered(request, caller, session_admin::session_new).await,
        "quack.session_delete" => answered(request, caller, session_admin::session_delete).await,
        "quack.sandbox" => answered(request, caller, sandbox::sandbox).await,
        "quack.config" => reply(request, Ok(config::config(caller))),
        "quack.gc" => answered(request, caller, gc::gc).await,
        "quack.daemon" => reply(request, daemon::daemon(caller).await),
        "quack.restart" => answered(request, caller, daemon::restart).await,
        "quack.shutdown" => {
            daemon::stop(caller, Stop::Shutdown);
            wire::success::<()>(request.id.as_ref(), None)
        }
        unknown => wire::failure(request.id.as_ref(), &wire::unknown_method(unknown)),
    }
}

async fn answered<D: Serialize>(
    request: &mut Request,
    caller: &Caller,
    method: impl AsyncFnOnce(&mut Request, &Caller) -> Result<D, MethodError>,
) -> Bytes {
    let result = method(request, caller).await;
    reply(request, result)
}

fn reply<D: Serialize>(request: &Request, result: Result<D, MethodError>) -> Bytes {
    match result {
        Ok(data) => wire::success(request.id.as_ref(), Some(data)),
        Err(error) => wire::failure(request.id.as_ref(), &error.to_string()),
    }
}

fn params<T: DeserializeOwned>(
    request: &mut Request,
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
