//! Messages from clients to a Pi handle, other than prompts: abort the turn, report the state, answer a dialog.

use super::dialogs::{AnswerOutcome, CloseReason};
use super::handle::{PiHandle, Waiter};
use crate::children::{KillReason, STALL_THRESHOLD};
use crate::errors::PiError;
use actix::prelude::*;
use quackd_protocol::limits::PI_ABORT_LIMIT;
use quackd_protocol::pi::{PiCommand, UiAnswer};
use quackd_supervision::Cause;
use std::time::Instant;
use tokio::sync::oneshot;

/// Abort the turn, and kill Pi if it does not react. The reply is whether a Pi was running.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub(crate) struct AbortTurn;

impl Handler<AbortTurn> for PiHandle {
    type Result = ResponseActFuture<Self, bool>;

    fn handle(&mut self, _: AbortTurn, ctx: &mut Self::Context) -> Self::Result {
        let had_unsent = !self.unsent.is_empty();
        self.refuse_unsent(&PiError::Aborted);
        if !self.is_ready() || self.end.is_some() {
            return Box::pin(actix::fut::ready(had_unsent));
        }
        self.end_dialogs();
        let generation = self.child.generation;
        let heard = [PiCommand::Abort, PiCommand::AbortBash].map(|command| {
            let (reply, heard) = oneshot::channel();
            self.command(command, Waiter::Abort(reply), ctx);
            heard
        });
        let mut heard = futures_util::future::join_all(heard);
        let due = Instant::now() + PI_ABORT_LIMIT;
        let waited = async move {
            match tokio::time::timeout(PI_ABORT_LIMIT, &mut heard).await {
                // Pi may have been suspended as well.
                Err(_) if STALL_THRESHOLD < due.elapsed() => {
                    tokio::time::timeout(PI_ABORT_LIMIT, heard).await
                }
                waited => waited,
            }
        };
        Box::pin(waited.into_actor(self).map(move |heard, handle, ctx| {
            let is_heard = heard.is_ok_and(|heard| heard.iter().all(Result::is_ok));
            if !is_heard && handle.child.generation == generation && handle.is_ready() {
                handle.kill_for_cause(Cause::NotResponding, KillReason::NoAbort, ctx);
            }
            true
        }))
    }
}

/// Request Pi's state. The reply arrives with the state, or at once if no state can be expected.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct RefreshState;

impl Handler<RefreshState> for PiHandle {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: RefreshState, ctx: &mut Self::Context) -> Self::Result {
        let (told, tells) = oneshot::channel();
        self.ask_state(Some(told), ctx);
        Box::pin(async {
            // After an error, the last known state is used.
            tells.await.ok();
        })
    }
}

/// Pass a client's answer to an open dialog.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), PiError>")]
pub(crate) struct AnswerDialog(pub(crate) UiAnswer);

impl Handler<AnswerDialog> for PiHandle {
    type Result = Result<(), PiError>;

    fn handle(
        &mut self,
        AnswerDialog(answer): AnswerDialog,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        let found = self.dialogs.answer(&answer.id);
        if let AnswerOutcome::Late(why) = found {
            return Err(PiError::DialogClosed { id: answer.id, how: why.explanation() });
        }
        if !self.is_ready() || self.end.is_some() {
            return Err(PiError::NotRunning(self.name.clone()));
        }
        self.active = Instant::now();
        let id = answer.id.clone();
        self.send_answer(answer);
        if found == AnswerOutcome::First {
            self.publish_closed(&id, CloseReason::Answered);
            self.arm_dialogs(ctx);
        }
        self.show();
        Ok(())
    }
}
