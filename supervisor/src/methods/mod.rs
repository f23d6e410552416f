//! The methods of the client wire: one file each, one `match` here.

mod abort;
mod attach;
mod config;
mod doctor;
mod follow;
mod manage;
mod ping;
mod ps;
mod sandbox;
mod sessions;
mod state;
mod tool;

use crate::errors::MethodError;
use crate::events::Following;
use crate::outbox::Outbox;
use crate::registry::Registry;
use crate::services::Services;
use crate::wire::{self, Request};
use actix::Addr;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Who asks, and what a method may use.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) services: Rc<Services>,
    pub(crate) registry: Addr<Registry>,
    /// The session that this client follows. Following again replaces it.
    following: RefCell<Option<Following>>,
    /// Counts what the client has asked for about following. The last request decides, not the one
    /// whose look-ups take longest.
    turn: Cell<u64>,
}

impl Caller {
    pub(crate) fn new(services: Rc<Services>, registry: Addr<Registry>) -> Self {
        Self { services, registry, following: RefCell::new(None), turn: Cell::new(0) }
    }

    /// Another request about following has come.
    pub(crate) fn take_turn(&self) -> u64 {
        self.turn.set(self.turn.get() + 1);
        self.turn.get()
    }

    /// Replaces what this client follows, unless a later request has decided already.
    pub(crate) fn set_following(&self, turn: u64, following: Option<Following>) {
        if turn == self.turn.get() {
            drop(self.following.replace(following));
        }
    }

    /// A reply is on its way: events that it announced may follow it.
    pub(crate) fn replied(&self, outbox: &Outbox) {
        if let Some(following) = self.following.borrow_mut().as_mut() {
            following.start(outbox);
        }
    }
}

/// Whether a method may wait for a disk or a worker. The others are answered in order.
pub(crate) fn waits(request: &Request) -> bool {
    matches!(
        request.method.as_str(),
        "attach"
            | "activate_session"
            | "doctor"
            | "follow"
            | "quack.ps"
            | "quack.sandbox"
            | "quack.session_delete"
            | "quack.session_new"
            | "quack.tool"
            | "voice_tool_call"
    )
}

/// The reply to one request. Exactly one, always.
pub(crate) async fn answer(mut request: Request, caller: &Caller) -> Bytes {
    let request = &mut request;
    match request.method.as_str() {
        "ping" => reply(request, Ok(ping::ping(caller))),
        "attach" => answered(request, caller, attach::attach).await,
        "follow" => answered(request, caller, follow::follow).await,
        "unfollow" => {
            follow::unfollow(caller);
            wire::success::<()>(request.id.as_ref(), None)
        }
        "sessions" => answered(request, caller, sessions::sessions).await,
        "workspaces" => reply(request, manage::workspaces(caller).await),
        "activate_session" => answered(request, caller, manage::activate_session).await,
        "get_state" => answered(request, caller, state::get_state).await,
        "abort" => answered(request, caller, abort::abort).await,
        "doctor" => answered(request, caller, doctor::doctor).await,
        "voice_tool_call" => tool::voice_tool_call(request, caller).await,
        "quack.tool" => tool::quack_tool(request, caller).await,
        "quack.ps" => reply(request, ps::ps(caller).await),
        "quack.session_new" => answered(request, caller, manage::session_new).await,
        "quack.session_delete" => answered(request, caller, manage::session_delete).await,
        "quack.sandbox" => answered(request, caller, sandbox::sandbox).await,
        "quack.config" => reply(request, Ok(config::config(caller))),
        "quack.shutdown" => {
            // A full queue means that somebody asked already.
            caller.services.stop.try_send(()).ok();
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
