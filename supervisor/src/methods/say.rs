//! `say`: sends a prompt to the voice client that owns the session, or to its Pi.

use super::tool_parameters::beneath;
use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::registry::Purpose;
use crate::session::agent::SendCommand;
use crate::wire::{reference, truthy};
use quackd_protocol::agent::AgentCommand;
use quackd_protocol::client::{SayData, SayParams};
use serde_json::Value;

impl Serve<SayParams> for Caller {
    async fn serve(&self, params: SayParams) -> Result<SayData, MethodError> {
        let SayParams { message, session_id, prefer_pi, cwd } = params;
        if !truthy(&message) {
            return Err(MethodError::NoMessage);
        }

        let services = &self.services;
        // A voice client gets the prompt also in a session whose workspace is unknown.
        let found = self.find(reference(&session_id), Purpose::Describe).await?;
        let found = found.ok_or(MethodError::NoSessionToFollow)?;
        services.interrupted.resumed(&found.session_id);
        let mut data = SayData {
            session_id: found.session_id.clone(),
            session_name: found.session_name.clone(),
            seq: None,
            turn: None,
        };

        if !truthy(&prefer_pi)
            && let Some(routed) = services.voice.route_say(&found.session_id, &message)
        {
            return routed.map(|()| data);
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
        let accepted = agent.send(SendCommand { command, found }).await??;
        (data.seq, data.turn) = (accepted.seq, accepted.turn);
        // Mark the session as used only after Pi replied, even if Pi refused the prompt.
        self.find(Some(data.session_id.0.clone()), Purpose::Use).await.ok();
        if !accepted.success {
            let (error, code) = (accepted.error, accepted.code);
            return Err(MethodError::Say { error, code, data: Box::new(data) });
        }
        Ok(data)
    }
}
