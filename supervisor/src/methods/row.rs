//! One method: its row of `quackd_protocol`, its schema and its handler. `table.rs` has them all, and `dispatch.rs`
//! runs one.

use super::Caller;
use super::handler::{Params, Reply};
use crate::errors::MethodError;
use crate::wire::{self, ParsedRequest};
use bytes::Bytes;
use quackd_protocol::client::MethodRow;
use quackd_schema::MethodSchema;
use std::pin::Pin;

/// One method.
#[derive(Debug)]
pub(super) struct Method {
    pub(super) row: MethodRow,
    pub(super) schema: MethodSchema,
    pub(super) run: for<'a> fn(&'a mut ParsedRequest, &'a Caller) -> Replying<'a>,
}

/// Future of a reply. Runs on the actors' thread.
type Replying<'a> = Pin<Box<dyn Future<Output = Bytes> + 'a>>;

/// Builds the table of handlers. A row begins with the type that clients call.
macro_rules! methods {
    ($($called:ident: $handler:path;)+) => {
        pub(super) const METHODS: &[Method] = {
            use quackd_protocol::client::{ListedMethod as _, Method as _};
            &[$(Method {
                row: $called::ROW,
                schema: row::schema($called::ROW, &$handler),
                run: |request, caller| Box::pin(row::call($called::NAME, request, caller, $handler)),
            }),+]
        };
    };
}
pub(super) use methods;

/// Returns the schema of a method with this handler.
pub(super) const fn schema<P: Params, R: Reply>(
    row: MethodRow,
    _handler: &impl AsyncFn(P, &Caller) -> Result<R, MethodError>,
) -> MethodSchema {
    let MethodRow { name, about, required, .. } = row;
    MethodSchema { name, about, params: P::SHAPE, required, data: R::SHAPE }
}

/// Reads the parameters of a request, runs the handler and returns the reply.
pub(super) async fn call<P: Params, R: Reply>(
    method: &'static str,
    request: &mut ParsedRequest,
    caller: &Caller,
    handler: impl AsyncFn(P, &Caller) -> Result<R, MethodError>,
) -> Bytes {
    let done = match P::read(request) {
        Ok(params) => handler(params, caller).await,
        Err(why) => Err(MethodError::Params { method, why }),
    };
    match done {
        Ok(reply) => reply.line(request.id.as_ref()),
        Err(error) => refused(request, &error),
    }
}

/// Returns the reply for a request that failed.
pub(super) fn refused(request: &ParsedRequest, error: &MethodError) -> Bytes {
    wire::failure(request.id.as_ref(), &error.to_string(), error.code())
}
