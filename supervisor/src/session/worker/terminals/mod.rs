//! The terminals of the worker, and the clients that are attached to them.
//!
//! A terminal is a background job of the worker. [`table`] and [`terminal`] have its state and make the decisions, without
//! I/O. This file handles the requests of clients, and [`frames`] the messages of the worker.
//!
//! Order: an attached client gets its reply before its first event, because its connection starts to read the queue of
//! events after the reply ([`crate::events::viewing::Viewings::start`]).

mod frames;
mod lines;
mod table;
mod terminal;

pub(super) use table::Terminals;
pub(crate) use terminal::NewViewer;

use crate::children::Child;
use crate::errors::TerminalRefusal;
use crate::events::client_registry::ClientId;
use crate::events::viewing::QueueChanges;
use crate::session::worker::WorkerActor;
use actix::prelude::*;
use lines::Subject;
use quackd_protocol::SessionId;
use quackd_protocol::limits::CREDIT_INTERVAL;
use quackd_protocol::terminal::{CellSize, TerminalSignal};
use quackd_protocol::worker::ToWorker;
use serde_json::value::RawValue;
use std::time::Instant;
use terminal::{Resized, Terminal};

/// Attach a client to a terminal: the given one, or the last started one.
#[derive(Debug, Message)]
#[rtype(result = "Result<AttachedTerminal, TerminalRefusal>")]
pub(crate) struct AttachTerminal {
    pub(crate) terminal: Option<String>,
    pub(crate) viewer: NewViewer,
}

/// The terminal that a client is attached to.
#[derive(Debug)]
pub(crate) struct AttachedTerminal {
    pub(crate) terminal: String,
    pub(crate) command: String,
    pub(crate) size: CellSize,
    /// Attached clients, with this one.
    pub(crate) viewers: usize,
    /// Title that the program has set.
    pub(crate) title: Option<String>,
}

/// Pass typed bytes on. The reply is whether the program can take them.
#[derive(Debug, Message)]
#[rtype(result = "Result<bool, TerminalRefusal>")]
pub(crate) struct TypeIntoTerminal {
    pub(crate) terminal: String,
    pub(crate) client: ClientId,
    /// JSON text of at most 32 KiB in base64.
    pub(crate) bytes: Box<RawValue>,
}

/// The window of an attached client has another size. The reply is the size of the terminal.
#[derive(Debug, Message)]
#[rtype(result = "Result<CellSize, TerminalRefusal>")]
pub(crate) struct ResizeTerminal {
    pub(crate) terminal: String,
    pub(crate) client: ClientId,
    pub(crate) size: CellSize,
}

/// Detach a client, or all clients, from one terminal or from all. The reply is their number.
#[derive(Debug, Message)]
#[rtype(result = "Result<usize, TerminalRefusal>")]
pub(crate) struct DetachTerminal {
    pub(crate) terminal: Option<String>,
    /// `None`: all.
    pub(crate) client: Option<ClientId>,
}

/// Signal the program in the foreground of a terminal: the given one, or the last started one. The reply is its id.
/// Without a signal, nothing else happens.
#[derive(Debug, Message)]
#[rtype(result = "Result<String, TerminalRefusal>")]
pub(crate) struct SignalTerminal {
    pub(crate) terminal: Option<String>,
    pub(crate) signal: Option<TerminalSignal>,
}

impl Handler<AttachTerminal> for WorkerActor {
    type Result = Result<AttachedTerminal, TerminalRefusal>;

    fn handle(&mut self, msg: AttachTerminal, ctx: &mut Self::Context) -> Self::Result {
        let AttachTerminal { terminal, viewer } = msg;
        let attached = self.attach_viewer(terminal.as_deref(), viewer, ctx);
        self.serve_terminals(ctx);
        attached
    }
}

impl Handler<TypeIntoTerminal> for WorkerActor {
    type Result = Result<bool, TerminalRefusal>;

    fn handle(&mut self, msg: TypeIntoTerminal, ctx: &mut Self::Context) -> Self::Result {
        let TypeIntoTerminal { terminal, client, bytes } = msg;
        let Self { terminals, session, .. } = self;
        let typed = terminals.find(Some(&terminal)).and_then(|terminal| {
            let typed = terminal.type_in(&client, bytes)?;
            tell_size(&session.id, terminal, typed.resized);
            Ok(typed.is_taken)
        });
        self.serve_terminals(ctx);
        typed
    }
}

impl Handler<ResizeTerminal> for WorkerActor {
    type Result = Result<CellSize, TerminalRefusal>;

    fn handle(&mut self, msg: ResizeTerminal, ctx: &mut Self::Context) -> Self::Result {
        let ResizeTerminal { terminal, client, size } = msg;
        let Self { terminals, session, .. } = self;
        let resized = terminals.find(Some(&terminal)).and_then(|terminal| {
            let resized = terminal.resize(&client, size)?;
            tell_size(&session.id, terminal, resized);
            Ok(terminal.size)
        });
        self.serve_terminals(ctx);
        resized
    }
}

impl Handler<DetachTerminal> for WorkerActor {
    type Result = Result<usize, TerminalRefusal>;

    fn handle(&mut self, msg: DetachTerminal, ctx: &mut Self::Context) -> Self::Result {
        let DetachTerminal { terminal, client } = msg;
        let detached = self.detach_viewers(terminal.as_deref(), client.as_ref());
        self.serve_terminals(ctx);
        detached
    }
}

impl Handler<SignalTerminal> for WorkerActor {
    type Result = Result<String, TerminalRefusal>;

    fn handle(&mut self, msg: SignalTerminal, ctx: &mut Self::Context) -> Self::Result {
        let SignalTerminal { terminal, signal } = msg;
        let signaled = self.terminals.find(terminal.as_deref()).and_then(|terminal| {
            signal.map_or(Ok(()), |signal| terminal.signal(signal))?;
            Ok(terminal.id.clone())
        });
        self.serve_terminals(ctx);
        signaled
    }
}

impl WorkerActor {
    fn attach_viewer(
        &mut self,
        id: Option<&str>,
        viewer: NewViewer,
        ctx: &mut Context<Self>,
    ) -> Result<AttachedTerminal, TerminalRefusal> {
        let Self { terminals, session, .. } = self;
        let number = terminals.next_viewer();
        let changes = viewer.queue.changes();
        let terminal = terminals.find(id)?;
        let resized = terminal.attach(number, viewer, Instant::now())?;
        tell_size(&session.id, terminal, resized);

        let attached = AttachedTerminal {
            terminal: terminal.id.clone(),
            command: terminal.command.clone(),
            size: terminal.size,
            viewers: terminal.n_viewers(),
            title: Some(terminal.title.clone()).filter(|title| !title.is_empty()),
        };
        self.watch_viewer(attached.terminal.clone(), number, changes, ctx);
        Ok(attached)
    }

    /// Waits until the queue of a viewer has changed, and continues until the viewer is gone.
    fn watch_viewer(
        &mut self,
        id: String,
        number: u32,
        changes: QueueChanges,
        ctx: &mut Context<Self>,
    ) {
        let waiting = async move {
            changes.next().await;
            changes
        };

        ctx.spawn(waiting.into_actor(self).map(move |changes, actor, ctx| {
            let terminal = actor.terminals.get_mut(&id);
            let is_here = terminal.is_some_and(|it| it.queue_changed(number, Instant::now()));
            if is_here {
                actor.watch_viewer(id, number, changes, ctx);
            }
            actor.serve_terminals(ctx);
        }));
    }

    fn detach_viewers(
        &mut self,
        id: Option<&str>,
        client: Option<&ClientId>,
    ) -> Result<usize, TerminalRefusal> {
        let ids = match id {
            Some(id) => vec![self.terminals.find(Some(id))?.id.clone()],
            None => self.terminals.ids(),
        };

        let mut n = 0;
        for id in &ids {
            let queues = self.terminals.get_mut(id).map(|terminal| terminal.detach(client));
            let line = Subject { session: &self.session.id, terminal: id }.detached();
            for queue in queues.into_iter().flatten() {
                queue.finish(line.clone());
                n += 1;
            }
        }
        Ok(n)
    }

    /// Sends the messages that wait for the worker. A timer sends messages for which there is no space, and those that
    /// are due later.
    fn serve_terminals(&mut self, ctx: &mut Context<Self>) {
        let Self { terminals, child, .. } = self;
        let is_sent = terminals.all_mut().all(|terminal| send_messages(terminal, child));
        let is_done = is_sent && !terminals.needs_tick();
        if is_done || std::mem::replace(&mut terminals.is_ticking, true) {
            return;
        }

        ctx.run_later(CREDIT_INTERVAL, |actor, ctx| {
            actor.terminals.is_ticking = false;
            actor.terminals.tick(Instant::now());
            actor.serve_terminals(ctx);
        });
    }
}

/// Sends the messages of a terminal, in their order. Returns false if the queue to the worker is full.
fn send_messages(terminal: &mut Terminal, worker: &Child) -> bool {
    while let Some(message) = terminal.messages.pop_front() {
        let frame = ToWorker::Terminal { terminal: terminal.id.clone(), message };
        if worker.try_send(&frame).is_err() {
            if let ToWorker::Terminal { message, .. } = frame {
                terminal.messages.push_front(message);
            }
            return false;
        }
    }
    true
}

/// Sends a new size to the other viewers.
fn tell_size(session: &SessionId, terminal: &mut Terminal, resized: Option<Resized>) {
    if let Some(resized) = resized {
        let line = Subject { session, terminal: &terminal.id }.size(resized.size);
        terminal.tell_size(resized, &line);
    }
}
