//! One row of the table of methods: its schema, its order, the access of remote clients and its handler. `table.rs`
//! has the rows, and `dispatch.rs` runs one.

use super::Caller;
use super::handler::{Params, Reply};
use crate::errors::MethodError;
use crate::wire::{self, ParsedRequest};
use bytes::Bytes;
use quackd_protocol::client;
use quackd_schema::MethodSchema;
use std::pin::Pin;

/// One method.
#[derive(Debug)]
pub(super) struct Method {
    pub(super) schema: MethodSchema,
    pub(super) order: Order,
    pub(super) remote: Remote,
    pub(super) run: for<'a> fn(&'a mut ParsedRequest, &'a Caller) -> Replying<'a>,
}

/// Future of a reply. Runs on the actors' thread.
type Replying<'a> = Pin<Box<dyn Future<Output = Bytes> + 'a>>;

/// Order of the replies to one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The next request waits for this reply.
    InOrder,
    /// The handler may wait for a disk or a worker, and other requests run at the same time.
    Concurrent,
}

/// Access of remote clients to a method.
#[derive(Debug, Clone, Copy)]
pub(super) enum Remote {
    /// Like local clients.
    All,
    /// The handler refuses some requests.
    Part,
    /// None, with this error.
    Nothing(fn() -> MethodError),
}

/// Builds the table of methods. A row begins with the type that clients call. The documentation of a row is the
/// description of the method.
macro_rules! methods {
    ($(
        $(#[doc = $about:literal])+
        $called:ident: $order:ident, $remote:expr, $handler:path $(, needs [$($required:literal),+])?;
    )+) => {
        pub(super) const METHODS: &[Method] = {
            use row::Order::{Concurrent, InOrder};
            use row::Remote::{All, Nothing, Part};
            use quackd_protocol::client::Method as _;
            &[$(Method {
                schema: row::schema::<$called, _, _>(
                    concat!($($about),+).trim_ascii_start(),
                    &[$($($required),+)?],
                    &$handler,
                ),
                order: $order,
                remote: $remote,
                run: |request, caller| Box::pin(row::call($called::NAME, request, caller, $handler)),
            }),+]
        };
    };
}
pub(super) use methods;

/// Returns the schema of a method with this handler.
pub(super) const fn schema<M: client::Method, P: Params, R: Reply>(
    about: &'static str,
    required: &'static [&'static str],
    _handler: &impl AsyncFn(P, &Caller) -> Result<R, MethodError>,
) -> MethodSchema {
    MethodSchema { name: M::NAME, about, params: P::SHAPE, required, data: R::SHAPE }
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
