//! `say`: sends a prompt to the voice client that owns the session, or to its Pi.

use super::{Caller, params};
use crate::errors::{MethodError, PiError};
use crate::registry::{FindSession, Purpose};
use crate::session::FoundSession;
use crate::session::owner::Owner;
use crate::session::pi::{PromptAccepted, SendPrompt, handle_of};
use crate::wire::{self, ParsedRequest, reference, truthy};
use bytes::Bytes;
use quackd_protocol::client::{SayData, SayParams};
use serde_json::Value;

/// Unlike other methods, an error reply of `say` contains the session.
pub(super) async fn say(request: &mut ParsedRequest, caller: &Caller) -> Bytes {
    let said = match params(request, "say") {
        Ok(asked) => route(asked, caller).await,
        Err(error) => Err(error),
    };
    let id = request.id.as_ref();
    match said {
        Ok((data, PromptAccepted { success: true, .. })) => wire::success(id, Some(data)),
        Ok((data, PromptAccepted { error, .. })) => wire::refusal(id, error.as_deref(), data),
        Err(error) => wire::failure(id, &error.to_string()),
    }
}

async fn route(
    asked: SayParams,
    caller: &Caller,
) -> Result<(SayData, PromptAccepted), MethodError> {
    let SayParams { message, session_id, prefer_pi } = asked;
    if !truthy(&message) {
        return Err(MethodError::NoMessage);
    }
    let services = &caller.services;
    let found = find(caller, &session_id, Purpose::Describe).await?;
    services.interrupted.resumed(&found.session_id);
    let mut data = SayData {
        session_id: found.session_id.clone(),
        session_name: found.session_name.clone(),
        seq: None,
        turn: None,
    };
    let routed = match truthy(&prefer_pi) {
        true => None,
        false => services.voice.route_say(&found.session_id, &message),
    };
    if let Some(routed) = routed {
        routed?;
        return Ok((data, PromptAccepted { success: true, error: None, seq: None, turn: None }));
    }
    if !found.has_workspace {
        return Err(MethodError::WorkspaceOfSay(found.session_name));
    }
    let Value::String(message) = message else { return Err(MethodError::MessageNotText) };
    let pi = handle_of(&found, &services.sessions, &Owner::new(&caller.registry));
    let pi = pi.ok_or(PiError::Deleted)?;
    let said = pi.send(SendPrompt { message, found }).await??;
    (data.seq, data.turn) = (said.seq, said.turn);
    // Mark the session as used only after Pi replied, even if Pi refused the prompt.
    find(caller, &data.session_id.0.clone().into(), Purpose::Use).await.ok();
    Ok((data, said))
}

async fn find(
    caller: &Caller,
    session: &Value,
    purpose: Purpose,
) -> Result<FoundSession, MethodError> {
    let find = FindSession { reference: reference(session), purpose };
    caller.registry.send(find).await??.ok_or(MethodError::NoSessionToFollow)
}
