//! `quack.gc`: what nobody needs any more, and deleting it.

use super::{Caller, params};
use crate::clients::Transport;
use crate::errors::MethodError;
use crate::wire::Request;
use quackd_protocol::client::{GcData, GcParams};

pub(super) async fn gc(request: &mut Request, caller: &Caller) -> Result<GcData, MethodError> {
    let params: GcParams = params(request, "quack.gc")?;
    // A phone may look, and delete nothing of this machine.
    if caller.client.transport != Transport::Socket && params.dry_run != Some(true) {
        return Err(MethodError::LocalGc);
    }
    let services = &caller.services;
    Ok(services.keeping.gc(params, &caller.registry, services).await?)
}
