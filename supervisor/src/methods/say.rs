//! `say`: sends a prompt to the voice client that owns the session, or to its Pi.

use super::tool_parameters::beneath;
use super::{Caller, Reply};
use crate::errors::MethodError;
use crate::registry::{FindSession, Purpose};
use crate::session::FoundSession;
use crate::session::agent::{CommandReply, SendCommand};
use crate::wire::{self, reference, truthy};
use bytes::Bytes;
use quackd_protocol::agent::AgentCommand;
use quackd_protocol::client::{SayData, SayParams};
use quackd_schema::{Shape, shape_of};
use serde_json::Value;

/// The session, and whether the prompt was accepted. Unlike other methods, an error reply of `say` contains the session.
pub(super) struct SayReply(SayData, CommandReply);

impl Reply for SayReply {
    const SHAPE: Option<Shape> = Some(shape_of::<SayData>);

    fn line(self, id: Option<&Value>) -> Bytes {
        match self {
            Self(data, CommandReply { success: true, .. }) => wire::success(id, Some(data)),
            Self(data, CommandReply { error, code, .. }) => {
                wire::refusal(id, error.as_deref(), data, code)
            }
        }
    }
}

pub(super) async fn say(
    SayParams { message, session_id, prefer_pi, cwd }: SayParams,
    caller: &Caller,
) -> Result<SayReply, MethodError> {
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
    let routed = if truthy(&prefer_pi) {
        None
    } else {
        services.voice.route_say(&found.session_id, &message)
    };
    if let Some(routed) = routed {
        routed?;
        return Ok(SayReply(data, CommandReply { success: true, ..CommandReply::default() }));
    }
    if !found.has_workspace {
        return Err(MethodError::WorkspaceOfSay(found.session_name));
    }
    let Value::String(message) = message else { return Err(MethodError::MessageNotText) };
    let cwd = cwd.map(|cwd| beneath(&found.workspace_path, &cwd)).transpose()?.unwrap_or_default();
    let command = AgentCommand::Prompt { message, cwd };
    services.sessions.refresh_models(&found.session_id).await;
    let handle = found.handle.clone();
    let said = handle.send(SendCommand { command, found }).await??;
    (data.seq, data.turn) = (said.seq, said.turn);
    // Mark the session as used only after Pi replied, even if Pi refused the prompt.
    find(caller, &data.session_id.0.clone().into(), Purpose::Use).await.ok();
    Ok(SayReply(data, said))
}

async fn find(
    caller: &Caller,
    session: &Value,
    purpose: Purpose,
) -> Result<FoundSession, MethodError> {
    let find = FindSession { reference: reference(session), purpose };
    caller.registry.send(find).await??.ok_or(MethodError::NoSessionToFollow)
}
