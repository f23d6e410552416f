//! `say`: sends a prompt to the voice client that owns the session, or to its Pi.

use super::tool_parameters::beneath;
use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::registry::{FindSession, Purpose};
use crate::session::FoundSession;
use crate::session::agent::SendCommand;
use crate::wire::{reference, truthy};
use quackd_protocol::agent::AgentCommand;
use quackd_protocol::client::{SayData, SayParams};
use serde_json::Value;

impl Serve<SayParams> for Caller {
    async fn serve(&self, asked: SayParams) -> Result<SayData, MethodError> {
        let SayParams { message, session_id, prefer_pi, cwd } = asked;
        if !truthy(&message) {
            return Err(MethodError::NoMessage);
        }
        let services = &self.services;
        let found = find(self, &session_id, Purpose::Describe).await?;
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
            return Ok(data);
        }
        if !found.has_workspace {
            return Err(MethodError::WorkspaceOfSay(found.session_name));
        }
        let Value::String(message) = message else { return Err(MethodError::MessageNotText) };
        let cwd =
            cwd.map(|cwd| beneath(&found.workspace_path, &cwd)).transpose()?.unwrap_or_default();
        let command = AgentCommand::Prompt { message, cwd };
        services.sessions.refresh_models(&found.session_id).await;
        let agent = found.actors.agent.clone();
        let said = agent.send(SendCommand { command, found }).await??;
        (data.seq, data.turn) = (said.seq, said.turn);
        // Mark the session as used only after Pi replied, even if Pi refused the prompt.
        find(self, &data.session_id.0.clone().into(), Purpose::Use).await.ok();
        if !said.success {
            let (error, code) = (said.error, said.code);
            return Err(MethodError::Say { error, code, data: Box::new(data) });
        }
        Ok(data)
    }
}

async fn find(
    caller: &Caller,
    session: &Value,
    purpose: Purpose,
) -> Result<FoundSession, MethodError> {
    let find = FindSession { reference: reference(session), purpose };
    caller.registry.send(find).await??.ok_or(MethodError::NoSessionToFollow)
}
