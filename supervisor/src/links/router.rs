//! The owner of the router process, and the connections that the router passes on.
//!
//! The router is hostile: it parses bytes of every program of this machine. It gets the listener and one end of a pair.
//! Requests on the pair are handled one at a time, so a flood of them delays links only.

use super::routing::{RouterPair, serve};
use crate::children::spawner::SpawnRequestError;
use crate::children::{
    ChannelEvent, ChannelLimits, Child, ChildActor, ChildKind, ChildServices, Death, DrainReason,
    HeartbeatDriver, KillReason, LifecycleDriver, Program,
};
use crate::registry::Registry;
use crate::session::actors::ActorTable;
use actix::prelude::*;
use quackd_ipc::frames;
use quackd_ipc::sockets::packet_pair;
use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::network::{FROM_PROXY_TAGS, FromProxy, PROXY_PROTOCOL, ToProxy};
use quackd_supervision::{Cause, Demander, Exit, Hello, Load, NETWORK_PROXY, ROUTER};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

/// Owner of the router process. Ends when the process has failed for good, and closes the listener then.
pub(crate) struct Router {
    actors: Rc<ActorTable>,
    registry: Addr<Registry>,
    child: Child,
    listener: TcpListener,
}

/// Closes the listener. Answered when the process is gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct CloseRouter;

impl Router {
    pub(super) fn start_for(
        actors: Rc<ActorTable>,
        registry: Addr<Registry>,
        listener: TcpListener,
    ) -> Addr<Self> {
        let child = Child::new(ROUTER, String::new());
        Self { actors, registry, child, listener }.start()
    }

    /// Creates the pair to the next process and serves it. Returns the descriptors of the process.
    fn descriptors(&self, ctx: &mut Context<Self>) -> io::Result<Vec<OwnedFd>> {
        let (ours, theirs) = packet_pair()?;
        // A copy, so that connections wait in the listener between two processes.
        let listener = self.listener.as_fd().try_clone_to_owned()?;

        let (actors, registry) = (Rc::clone(&self.actors), self.registry.clone());
        // The pair of an earlier process may end after the next process was started.
        let generation = self.child.generation;
        let address = self.listener.local_addr()?;

        let serving = serve(RouterPair::watch(ours)?, address, actors, registry);
        ctx.spawn(serving.into_actor(self).map(move |ended, actor, ctx| {
            // The end of the pair is the end of the process, which is handled elsewhere.
            if let Err(error) = ended
                && actor.child.current(generation).is_some()
            {
                actor.broke(&error.to_string(), ctx);
            }
        }));

        Ok(vec![theirs, listener])
    }

    /// Kills a router that violated the protocol.
    fn broke(&mut self, why: &str, ctx: &mut Context<Self>) {
        self.kill_for(Cause::Protocol(why.to_owned()), KillReason::BrokeProtocol, ctx);
    }
}

impl Actor for Router {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.demand(Demander::Call, ctx);
    }
}

impl Handler<CloseRouter> for Router {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: CloseRouter, ctx: &mut Self::Context) -> Self::Result {
        self.child.ending = Some(DrainReason::Shutdown);
        // Requested before the drain, which may end the process at once.
        let gone = self.gone();
        if gone.is_some() {
            self.drain(ctx);
        }

        let gone = async move {
            if let Some(gone) = gone {
                // It also ends if the sender is dropped.
                gone.await.ok();
            }
        };
        Box::pin(gone.into_actor(self).map(|(), _, ctx| ctx.stop()))
    }
}

/// Burst size and frames per second. A router sends one hello, then only pongs.
const PACE: (u32, u32) = (16, 10);

/// Longest text of a router in the log, in characters.
const MAX_TEXT: usize = 300;

impl ChildKind for Router {
    type FromChild = FromProxy;
    type ToChild = ToProxy;
    const WIRE: ChannelLimits = ChannelLimits { max_unknown: 0, pace: Some(PACE) };
    const NAME: &'static str = ROUTER.name;

    fn ping(seq: u64) -> ToProxy {
        ToProxy::Ping { seq }
    }

    fn shutdown() -> ToProxy {
        ToProxy::Shutdown {}
    }

    /// The program of proxies, whose first frame is another one here.
    fn program(_: &ToProxy) -> Program<Self::FromChild> {
        Program { verb: NETWORK_PROXY.name, decode: |body| frames::decode(body, FROM_PROXY_TAGS) }
    }
}

impl ChildActor for Router {
    fn child(&self) -> &Child {
        &self.child
    }

    fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    fn services(&self) -> &ChildServices {
        &self.actors.services.children
    }

    fn start(&mut self, ctx: &mut Context<Self>) {
        let frame = ToProxy::Route { proto: PROXY_PROTOCOL };
        match self.descriptors(ctx) {
            Ok(descriptors) => self.launch(&frame, &descriptors, None, ctx),
            Err(error) => self.spawn_failed(&SpawnRequestError::Channel(error), ctx),
        }
    }

    /// Returns true: connections wait in the listener, so a router is started again.
    fn has_waiters(&self) -> bool {
        true
    }

    fn on_frame(&mut self, frame: FromProxy, ctx: &mut Context<Self>) {
        match frame {
            FromProxy::Hello { proto, notes } => self.hello(proto, &notes, ctx),
            FromProxy::CannotStart { reason } if !self.child.is_ready() => {
                let cause = Cause::Refused(stripped_line(&reason, MAX_TEXT));
                self.kill_for(cause, KillReason::Failed, ctx);
            }
            FromProxy::Pong { seq } if self.child.is_ready() => {
                if !self.on_pong(seq, ctx) {
                    self.broke("a pong without a ping", ctx);
                }
            }
            // The router is hostile: another frame is never ignored.
            _ => self.broke("a frame that a router may not send", ctx),
        }
    }

    /// Closes the listener, so that programs see an error and do not wait. The next link opens another one.
    fn fail_waiters(&mut self, cause: &Cause, ctx: &mut Context<Self>) {
        tracing::error!(%cause, "no router: links are closed until the next `quack forward --link`");
        ctx.stop();
    }

    fn on_exit(&mut self, exit: Option<Exit>, ctx: &mut Context<Self>) {
        let exit = exit.unwrap_or(Exit::Signal(9));
        let load = Load { in_flight: true, waiting: true };
        let (after, process, crash) = self.note_exit(exit, load, ctx);

        if let (Some(process), Some(cause), None) = (process, crash, self.child.ending) {
            let deaths = Rc::clone(&self.actors.services.children.deaths);
            // Not a future of this actor, which may end now.
            actix::spawn(async move {
                let (pid, started) = (process.monitor_pid(), process.started);
                let stderr = process.stderr_tail().await;
                tracing::warn!(pid, %cause, stderr, "router died");
                deaths.note(&Death {
                    spec: &ROUTER,
                    session: None,
                    pid,
                    exit: Some(exit),
                    kind: cause.kind().name(),
                    cause: &cause.to_string(),
                    last_words: &stderr,
                    started: Some(started),
                });
            });
        }
        self.after_exit(after, ctx);
    }

    fn publish_status(&mut self) {}

    /// Returns `None`: the process keeps the listener as long as the daemon runs.
    fn idle_deadline(&self) -> Option<Instant> {
        None
    }
}

impl Router {
    fn hello(&mut self, proto: u32, notes: &[String], ctx: &mut Context<Self>) {
        if proto != PROXY_PROTOCOL {
            let cause = Cause::VersionMismatch { ours: PROXY_PROTOCOL, theirs: proto };
            return self.kill_for(cause, KillReason::Failed, ctx);
        }

        match self.child.lifecycle.on_hello(Instant::now()) {
            Hello::Ready => {}
            // The router is exiting already.
            Hello::Late => return,
            Hello::Unexpected => return self.broke("a second hello", ctx),
        }

        let notes: Vec<String> =
            notes.iter().take(8).map(|note| stripped_line(note, MAX_TEXT)).collect();
        tracing::info!(?notes, "router ready");
        self.begin_heartbeat(ctx);
        self.arm_life(ctx);
    }
}

impl Handler<ChannelEvent<FromProxy>> for Router {
    type Result = ();

    fn handle(&mut self, msg: ChannelEvent<FromProxy>, ctx: &mut Self::Context) {
        self.on_channel_event(msg, ctx);
    }
}
