//! `extension_ui_response`: the user's answer to a question from Pi or about a permission. Only the first answer counts.

use super::approvals::by_option;
use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::registry::Purpose;
use crate::session::agent::AnswerDialog;
use crate::wire::{js_string, reference, truthy};
use quackd_protocol::agent::UiAnswer;
use quackd_protocol::approval::REQUEST_PREFIX;
use quackd_protocol::client::{UiResponseData, UiResponseParams};

impl Serve<UiResponseParams> for Caller {
    async fn serve(&self, params: UiResponseParams) -> Result<UiResponseData, MethodError> {
        let own = params.id.as_str().filter(|id| id.starts_with(REQUEST_PREFIX)).map(str::to_owned);
        if let Some(id) = own {
            return by_option(&id, params, self).await;
        }

        let UiResponseParams { id, session_id, value, confirmed, cancelled, dismissed: _ } = params;
        let found = self.find(reference(&session_id), Purpose::Look).await?;
        let found = found.ok_or(MethodError::NoSessionForAnswer)?;
        if !truthy(&id) {
            return Err(MethodError::NoDialogId);
        }

        let answer = UiAnswer { id: js_string(&id), value, confirmed, cancelled };
        found.actors.agent.send(AnswerDialog(answer)).await??;
        Ok(UiResponseData { session_id: found.session_id })
    }
}
