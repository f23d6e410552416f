//! Implements [`ChildActor`] for the proxy.

use super::{NetworkActor, NetworkFailed};
use crate::children::spawner::SpawnRequestError;
use crate::children::{
    ChannelEvent, ChannelLimits, Child, ChildActor, ChildKind, ChildServices, Death, KillReason,
    LifecycleDriver, Program,
};
use crate::errors::ForwardRefusal;
use actix::prelude::*;
use quackd_ipc::frames;
use quackd_protocol::network::{FROM_PROXY_TAGS, FromProxy, ToProxy};
use quackd_supervision::{Cause, Exit, Load, NETWORK_PROXY};
use std::rc::Rc;
use std::time::Instant;

/// Number of unknown frames that are skipped.
const MAX_UNKNOWN: u32 = 1_000;

/// Burst size and frames per second. Reports have credits, and each question belongs to a connection.
const PACE: (u32, u32) = (256, 500);

impl ChildKind for NetworkActor {
    type FromChild = FromProxy;
    type ToChild = ToProxy;
    const WIRE: ChannelLimits = ChannelLimits { max_unknown: MAX_UNKNOWN, pace: Some(PACE) };
    const NAME: &'static str = NETWORK_PROXY.name;

    fn ping(seq: u64) -> ToProxy {
        ToProxy::Ping { seq }
    }

    fn shutdown() -> ToProxy {
        ToProxy::Shutdown {}
    }

    fn program(_: &ToProxy) -> Program<Self::FromChild> {
        Program { verb: Self::NAME, decode: |body| frames::decode(body, FROM_PROXY_TAGS) }
    }
}

impl ChildActor for NetworkActor {
    fn child(&self) -> &Child {
        &self.child
    }

    fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    fn services(&self) -> &ChildServices {
        &self.services.children
    }

    fn start(&mut self, ctx: &mut Context<Self>) {
        let Some(link) = &self.link else { return self.not_started(ctx) };
        let given = link.for_proxy();
        self.asked.clear();
        self.credentials.open.clear();
        match given {
            Ok((sockets, descriptors)) => {
                let frame = self.start_frame(sockets);
                self.launch(&frame, &descriptors, None, ctx);
            }
            Err(error) => {
                self.spawn_failed(&SpawnRequestError::Channel(error), ctx);
            }
        }
    }

    fn has_waiters(&self) -> bool {
        self.link.is_some()
    }

    fn on_frame(&mut self, frame: FromProxy, ctx: &mut Context<Self>) {
        self.proxy_frame(frame, ctx);
    }

    /// Closes the sockets, so that commands get an error and do not wait. The session's next worker has new ones.
    #[expect(
        clippy::disallowed_methods,
        reason = "an internal signal that must not be lost; each worker causes one at most"
    )]
    fn fail_waiters(&mut self, cause: &Cause, _: &mut Context<Self>) {
        tracing::error!(session = %self.session.id, %cause, "no proxy: hosts are out of reach until the session has another worker");
        self.link = None;
        self.opening.drain().for_each(|(_, one)| one.end(Err(ForwardRefusal::Gone)));
        if let Some(worker) = self.worker.upgrade() {
            worker.do_send(NetworkFailed { generation: self.worker_generation });
        }
    }

    fn on_exit(&mut self, exit: Option<Exit>, ctx: &mut Context<Self>) {
        let exit = exit.unwrap_or(Exit::Signal(9));
        let load = Load { in_flight: self.link.is_some(), waiting: self.link.is_some() };
        let (after, process, crash) = self.note_exit(exit, load, ctx);
        self.open.clear();
        self.opening.drain().for_each(|(_, one)| one.end(Err(ForwardRefusal::Gone)));

        if let (Some(process), Some(cause), None) = (process, crash, self.child.ending) {
            let session = Rc::clone(&self.session);
            let deaths = Rc::clone(&self.services.children.deaths);
            ctx.spawn(actix::fut::wrap_future(async move {
                let (pid, started) = (process.monitor_pid(), process.started);
                let stderr = process.stderr_tail().await;
                tracing::warn!(session = %session.id, pid, %cause, stderr, "proxy died");
                deaths.note(&Death {
                    spec: &NETWORK_PROXY,
                    session: Some((&session.id, "", &session.label)),
                    pid,
                    exit: Some(exit),
                    kind: cause.kind().name(),
                    cause: &cause.to_string(),
                    last_words: &stderr,
                    started: Some(started),
                });
            }));
        }

        self.after_exit(after, ctx);
    }

    fn publish_status(&mut self) {}

    /// A proxy ends with its worker.
    fn idle_deadline(&self) -> Option<Instant> {
        None
    }
}

impl NetworkActor {
    /// Kills a proxy that violated the protocol.
    pub(super) fn proxy_broke(&mut self, why: &str, ctx: &mut Context<Self>) {
        self.kill_for(Cause::Protocol(why.to_owned()), KillReason::Failed, ctx);
    }
}

impl Handler<ChannelEvent<FromProxy>> for NetworkActor {
    type Result = ();

    fn handle(&mut self, msg: ChannelEvent<FromProxy>, ctx: &mut Self::Context) {
        self.on_channel_event(msg, ctx);
    }
}
