//! Handles the messages of the worker's terminals, and their beginning and end. The worker is not trusted: its messages
//! are bounded, cost credits or answer a request, and are checked before clients get them.

use super::lines::Subject;
use crate::children::DrainReason;
use crate::session::worker::WorkerActor;
use crate::wire::raw_json::{is_one_line, is_sound};
use actix::prelude::*;
use quackd_protocol::client::TerminalEvent;
use quackd_protocol::foreign_text::{is_web_address, one_line, stripped_line};
use quackd_protocol::limits::{MAX_REDRAW_BYTES, MAX_ROWS_BYTES, MAX_TITLE_CHARS};
use quackd_protocol::output::{is_base64_within, is_short_base64};
use quackd_protocol::terminal::{FromTerminal, TerminalExit};
use quackd_protocol::worker::JobInfo;
use quackd_supervision::Cause;
use serde_json::value::RawValue;
use std::time::Instant;

/// Longest cause of an end from a worker, in characters.
const MAX_REASON_CHARS: usize = 300;

/// Most bytes of a character in UTF-8.
const MAX_CHAR_BYTES: usize = 4;

impl WorkerActor {
    /// Handles a message of a terminal. Kills a worker that breaks the protocol.
    pub(in crate::session::worker) fn terminal_says(
        &mut self,
        id: &str,
        message: FromTerminal,
        ctx: &mut Context<Self>,
    ) {
        match self.on_terminal(id, message) {
            Ok(()) => self.serve_terminals(ctx),
            Err(why) => self.worker_broke(why, ctx),
        }
    }

    /// # Errors
    /// The worker has broken the protocol.
    fn on_terminal(&mut self, id: &str, message: FromTerminal) -> Result<(), &'static str> {
        let Self { terminals, session, .. } = self;
        let terminal = terminals.get_mut(id).ok_or("a message of no terminal")?;
        let (subject, now) = (Subject { session: &session.id, terminal: id }, Instant::now());
        match message {
            FromTerminal::Output { bytes } => {
                terminal.pay()?;
                check(is_short_base64(&bytes))?;
                if terminal.has_live(false) {
                    terminal.pass_on(false, &subject.output(bytes), now);
                } else {
                    terminal.keep_credit();
                }
            }
            FromTerminal::Redraw { viewer, bytes, size } => {
                check(is_base64_within(&bytes, MAX_REDRAW_BYTES))?;
                terminal.show(viewer, false, subject.redraw(bytes, size), now)?;
            }
            FromTerminal::Rows { viewer, screen } => {
                check(is_screen(&screen))?;
                terminal.show(viewer, true, subject.rows(screen), now)?;
            }
            FromTerminal::Title { title } => {
                terminal.pay()?;
                terminal.keep_credit();
                check(title.len() <= MAX_TITLE_CHARS * MAX_CHAR_BYTES)?;
                let title = stripped_line(&title, MAX_TITLE_CHARS);
                if terminal.set_title(&title) {
                    let event = TerminalEvent { title: Some(title), ..event_of(id) };
                    self.publish_terminal(TerminalEvent::TITLE, event);
                }
            }
            FromTerminal::Open { address } => {
                terminal.pay()?;
                terminal.keep_credit();
                check(is_web_address(&address))?;
                terminal.tell_writers(&subject.open(address));
            }
            FromTerminal::InputTaken {} => terminal.input_taken()?,
            FromTerminal::Exited(exit) => {
                let reason = exit.reason.map(|reason| stripped_line(&reason, MAX_REASON_CHARS));
                let daemon_ends = self.ends_with_daemon();
                self.end_terminal(id, TerminalExit { reason, daemon_ends, ..exit });
            }
        }
        Ok(())
    }

    /// Adds the terminal of a new job, if it has one.
    ///
    /// # Errors
    /// The worker has broken the protocol.
    pub(in crate::session::worker) fn begin_terminal(
        &mut self,
        job: &JobInfo,
    ) -> Result<(), &'static str> {
        let command = one_line(&job.command);
        if self.terminals.started(job, &command)? {
            self.count_terminals();
            let event = TerminalEvent { command: Some(command), ..event_of(&job.id) };
            self.publish_terminal(TerminalEvent::STARTED, event);
        }
        Ok(())
    }

    /// Ends all terminals, because their worker has ended. `crash` is the cause if the end was not requested.
    pub(in crate::session::worker) fn end_terminals(&mut self, crash: Option<&Cause>) {
        let reason = match (self.child.ending, crash) {
            (Some(ending), _) => ending.reason().to_owned(),
            (None, Some(cause)) => format!("Worker died ({cause})"),
            (None, None) => "Worker was stopped".to_owned(),
        };
        let daemon_ends = self.ends_with_daemon();
        for id in self.terminals.ids() {
            let reason = Some(reason.clone());
            self.end_terminal(&id, TerminalExit { reason, daemon_ends, ..TerminalExit::default() });
        }
    }

    fn ends_with_daemon(&self) -> bool {
        self.child.ending == Some(DrainReason::Shutdown)
    }

    /// Reports the end of a terminal to its viewers and to followers.
    fn end_terminal(&mut self, id: &str, exit: TerminalExit) {
        let Some(terminal) = self.terminals.ended(id, &exit) else { return };
        self.count_terminals();
        let command = Some(terminal.command.clone());

        let line = Subject { session: &self.session.id, terminal: id }.exit(exit.clone());
        terminal.into_queues().for_each(|queue| queue.finish(line.clone()));
        let event = TerminalEvent { command, exit, ..event_of(id) };
        self.publish_terminal(TerminalEvent::ENDED, event);
    }

    fn count_terminals(&self) {
        self.services.pool.terminals.set(&self.session.id, self.terminals.count());
        // The next daemon names those that end with this one.
        if !self.ends_with_daemon() {
            self.owner.programs_changed(&self.session.id, self.terminals.programs());
        }
    }

    fn publish_terminal(&self, name: &str, event: TerminalEvent) {
        let event = || TerminalEvent { kind: name.to_owned(), ..event };
        self.services.events.publish(&self.session.id, name, event);
    }
}

/// An event without its name.
fn event_of(id: &str) -> TerminalEvent {
    TerminalEvent {
        kind: String::new(),
        terminal_id: id.to_owned(),
        command: None,
        title: None,
        exit: TerminalExit::default(),
    }
}

fn check(is_sound: bool) -> Result<(), &'static str> {
    if is_sound { Ok(()) } else { Err("an invalid message of a terminal") }
}

/// The rows of a screen go to clients unchanged.
fn is_screen(screen: &RawValue) -> bool {
    let json = screen.get();
    json.len() <= MAX_ROWS_BYTES && json.starts_with('{') && is_one_line(screen) && is_sound(screen)
}
