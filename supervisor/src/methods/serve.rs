//! Handlers of the methods. [`Caller`] implements [`Serve`] for every row of the table of `quackd_protocol`, and
//! [`METHODS`] has one entry for each row: without a handler it does not compile.

use super::Caller;
use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::wire::{self, ParsedRequest};
use bytes::Bytes;
use quackd_protocol::client::{
    self, Answer, ListedMethod, MethodRow, MethodServer, RemoteAccess, ServesMethod,
};
use std::pin::Pin;

/// Every method, in the order of docs/protocol.md.
pub(super) static METHODS: [Entry; client::METHODS.len()] = client::served_by::<Caller>();

/// The handler of one method.
pub(crate) trait Serve<M: ListedMethod> {
    /// Carries out a request of this client, and returns the data of its reply.
    async fn serve(&self, params: M::Params) -> Result<M::Answer, MethodError>;
}

/// A method with its handler.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(super) row: MethodRow,
    /// Reads the parameters of a request, runs the handler and returns the reply.
    pub(super) run: for<'a> fn(&'a mut ParsedRequest, &'a Caller) -> Replying<'a>,
}

/// Future of a reply. Runs on the actors' thread.
type Replying<'a> = Pin<Box<dyn Future<Output = Bytes> + 'a>>;

impl MethodServer for Caller {
    type Entry = Entry;
}

impl<M: ListedMethod> ServesMethod<M> for Caller
where
    Self: Serve<M>,
{
    const ENTRY: Entry =
        Entry { row: M::ROW, run: |request, caller| Box::pin(reply::<M>(request, caller)) };
}

async fn reply<M: ListedMethod>(request: &mut ParsedRequest, caller: &Caller) -> Bytes
where
    Caller: Serve<M>,
{
    match serve::<M>(request, caller).await {
        Ok(answer) => wire::success(request.id.as_ref(), answer.data()),
        Err(error) => refused(request, &error),
    }
}

async fn serve<M: ListedMethod>(
    request: &mut ParsedRequest,
    caller: &Caller,
) -> Result<M::Answer, MethodError>
where
    Caller: Serve<M>,
{
    let params = request.params();
    let params = params.map_err(|why| MethodError::Params { method: M::NAME, why })?;

    // Dispatch checked the first row of the name only. The row of an action is checked after its parameters are read.
    check_access(&M::ROW, caller.client.transport)?;
    <Caller as Serve<M>>::serve(caller, params).await
}

/// Refuses a method that remote clients may not call.
pub(super) fn check_access(row: &MethodRow, transport: Transport) -> Result<(), MethodError> {
    match (row.remote, transport) {
        (RemoteAccess::Never(why), Transport::RemoteWs | Transport::RemoteHttp) => {
            Err(MethodError::LocalOnly(why))
        }
        _ => Ok(()),
    }
}

/// Returns the reply for a request that failed.
pub(super) fn refused(request: &ParsedRequest, error: &MethodError) -> Bytes {
    let id = request.id.as_ref();
    match error {
        MethodError::Say { error, code, data } => wire::refusal(id, error.as_deref(), data, *code),
        error => wire::failure(id, &error.to_string(), error.code()),
    }
}
