//! The methods of the client wire: one file each, one `match` here.

mod abort;
mod attach;
mod ping;
mod ps;
mod sessions;
mod tool;

use crate::errors::MethodError;
use crate::registry::Registry;
use crate::services::Services;
use crate::wire::{self, Request};
use actix::Addr;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::rc::Rc;

/// Who asks, and what a method may use.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) services: Rc<Services>,
    pub(crate) registry: Addr<Registry>,
}

/// Whether a method may wait for a disk or a worker. The others are answered in order.
pub(crate) fn waits(request: &Request) -> bool {
    matches!(request.method.as_str(), "attach" | "voice_tool_call" | "quack.tool" | "quack.ps")
}

/// The reply to one request. Exactly one, always.
pub(crate) async fn answer(mut request: Request, caller: &Caller) -> Bytes {
    let request = &mut request;
    match request.method.as_str() {
        "ping" => reply(request, Ok(ping::ping(caller))),
        "attach" => {
            let result = attach::attach(request, caller).await;
            reply(request, result)
        }
        "sessions" => {
            let result = sessions::sessions(request, caller).await;
            reply(request, result)
        }
        "abort" => {
            let result = abort::abort(request, caller).await;
            reply(request, result)
        }
        "voice_tool_call" => tool::voice_tool_call(request, caller).await,
        "quack.tool" => tool::quack_tool(request, caller).await,
        "quack.ps" => reply(request, ps::ps(caller).await),
        "quack.shutdown" => {
            // A full queue means that somebody asked already.
            caller.services.stop.try_send(()).ok();
            wire::success::<()>(request.id.as_ref(), None)
        }
        unknown => wire::failure(request.id.as_ref(), &wire::unknown_method(unknown)),
    }
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
