//! `quack.kill`: a person has had enough of a session's worker.

use super::find::{id_of, label};
use super::own_reference;
use super::{Caller, params};
use crate::children::Manage;
use crate::errors::MethodError;
use crate::registry::{FindSession, Purpose};
use crate::wire::Request;
use quackd_protocol::client::{KillData, SessionParams};

pub(super) async fn kill(request: &mut Request, caller: &Caller) -> Result<KillData, MethodError> {
    let SessionParams { session_id } = params(request, "quack.kill")?;
    // Which one is killed is said, and never guessed.
    let wanted = own_reference(session_id.as_deref())?;
    let wanted = wanted.ok_or(MethodError::NoReference)?;
    let reference = Some(id_of(caller, wanted).await?);
    let find = FindSession { reference, purpose: Purpose::Look };
    let found = caller.registry.send(find).await??.ok_or(MethodError::NoSession)?;
    if !found.handle.send(Manage::Kill).await? {
        return Err(MethodError::NothingToKill);
    }
    let label = label(caller, &found.session_id).await?;
    Ok(KillData { session_id: found.session_id, session_name: found.session_name, label })
}
