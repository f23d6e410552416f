//! What clients ask of a Pi besides speaking to it: to end its turn, to tell its state, to take an answer.

use super::dialogs::{Answer, Closed};
use super::handle::{PiHandle, Waiter};
use crate::children::LATE;
use crate::errors::PiError;
use actix::prelude::*;
use quackd_protocol::limits::PI_ABORT_LIMIT;
use quackd_protocol::pi::{PiCommand, UiAnswer};
use quackd_supervision::Cause;
use std::time::Instant;
use tokio::sync::oneshot;

/// End the turn, whatever Pi does about it. Answered with whether there was a Pi.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub(crate) struct Abort;

impl Handler<Abort> for PiHandle {
    type Result = ResponseActFuture<Self, bool>;

    fn handle(&mut self, _: Abort, ctx: &mut Self::Context) -> Self::Result {
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
                // Pi may have been stopped too.
                Err(_) if LATE < due.elapsed() => tokio::time::timeout(PI_ABORT_LIMIT, heard).await,
                waited => waited,
            }
        };
        Box::pin(waited.into_actor(self).map(move |heard, handle, ctx| {
            let is_heard = heard.is_ok_and(|heard| heard.iter().all(Result::is_ok));
            if !is_heard && handle.child.generation == generation && handle.is_ready() {
                handle.condemn(Cause::NotResponding, "it did not abort", ctx);
            }
            true
        }))
    }
}

/// Have Pi tell its state. Answered when it has, or at once if it cannot be expected to.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct AskState;

impl Handler<AskState> for PiHandle {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: AskState, ctx: &mut Self::Context) -> Self::Result {
        let (told, tells) = oneshot::channel();
        self.ask_state(Some(told), ctx);
        Box::pin(async {
            // Either way what is known then is shown.
            tells.await.ok();
        })
    }
}

/// A client answers a question.
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
        let found = self.view.dialogs.borrow_mut().answer(&answer.id);
        if let Answer::Late(why) = found {
            return Err(PiError::DialogClosed { id: answer.id, how: why.told() });
        }
        if !self.is_ready() || self.end.is_some() {
            return Err(PiError::NotRunning(self.name.clone()));
        }
        self.view.active.set(Instant::now());
        let id = answer.id.clone();
        self.send_answer(answer);
        if found == Answer::First {
            self.tell_closed(&id, Closed::Answered);
            self.arm_dialogs(ctx);
        }
        self.show();
        Ok(())
    }
}
