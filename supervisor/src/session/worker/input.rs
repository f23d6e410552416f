//! Passes the input that a client sends to the command of its call, one piece at a time. The worker requests each piece,
//! so a command that does not read makes its client wait.

use super::actor::WorkerActor;
use crate::events::InputRequest;
use crate::session::pending_calls::call_id;
use crate::session::pending_input::NextInput;
use actix::prelude::*;
use quackd_protocol::CallId;
use quackd_protocol::limits::CREDIT_INTERVAL;
use quackd_protocol::output::InputPiece;
use quackd_protocol::worker::ToWorker;

impl WorkerActor {
    /// Handles the worker's report that a command takes input, or none any longer.
    pub(super) fn input_wanted(&mut self, id: &CallId, is_open: bool, ctx: &mut Context<Self>) {
        let number = self.calls.sent_number(id);
        let input = number.and_then(|number| Some((number, self.calls.input(number)?)));

        match input.and_then(|(number, input)| Some((number, input.wanted(is_open)?))) {
            Some((number, NextInput::Await(input))) => {
                let next = async move { input.next().await };
                let next = next.into_actor(self);
                let waiting = ctx.spawn(
                    next.map(move |piece, handle, ctx| handle.give_input(number, piece, ctx)),
                );
                if let Some(input) = self.calls.input(number) {
                    input.awaited(waiting);
                }
            }
            Some((_, NextInput::End(waiting, input))) => {
                if let Some(waiting) = waiting {
                    ctx.cancel_future(waiting);
                }
                input.close();
            }
            None => self.worker_broke("a request for input that no call has", ctx),
        }
    }

    /// Sends a piece to the worker. Without one, the client can send no more.
    fn give_input(&mut self, number: u64, next: Option<InputRequest>, ctx: &mut Context<Self>) {
        let (piece, taken) = match next {
            Some(InputRequest { piece, taken }) => (piece, Some(taken)),
            None => (InputPiece::end(), None),
        };
        if let Some(input) = self.calls.input(number) {
            input.given(taken);
        }
        self.send_input(ToWorker::Stdin { call_id: call_id(number), piece }, ctx);
    }

    fn send_input(&mut self, frame: ToWorker, ctx: &mut Context<Self>) {
        let ToWorker::Stdin { call_id, .. } = &frame else { return };
        if self.calls.sent_number(call_id).is_none() || self.child.process.is_none() {
            return;
        }
        if self.child.try_send(&frame).is_err() {
            // The queue to the worker is full. Without this piece the command would wait for ever.
            ctx.run_later(CREDIT_INTERVAL, |handle, ctx| handle.send_input(frame, ctx));
        }
    }
}
