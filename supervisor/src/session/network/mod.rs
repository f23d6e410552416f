//! The network of one worker: its proxy process, and forwarded ports.
//!
//! The worker's process 1 makes sockets in the worker's network namespace and passes them to the supervisor
//! ([`link`]), which passes them on to the proxy. The supervisor sends rules and receives reports; it parses no byte of
//! commands or of the network.
//!
//! One [`NetworkActor`] exists for each worker that has only a loopback, from its hello, and for others from the first
//! forward. It ends with the worker. The proxy starts when the first connection waits in a socket, or for a forward: a
//! session whose commands use no network has no such process. The supervisor keeps duplicates of the sockets, so that a
//! proxy that crashed is replaced while commands run: their connections wait in the sockets.
//!
//! Receives: the messages of [`requests`] (from the worker's actor, the router and `quack.forward`); `ChannelEvent` of the
//! proxy (from its link).
//! Publishes: forwards and reports, in the session's row of [`crate::pool::network`]; events.
//! Blocks on: nothing. The main thread starts and reaps processes.
//! Mailbox: 16 messages, the default of actix; a sender waits until there is space.
//! Ends: with the daemon, or after its worker, when the proxy has exited.

mod asked_host;
mod child_impl;
mod credential_requests;
mod credentials;
mod frames;
mod link;
mod questions;
mod requests;

pub(crate) use link::{ForeignSocket, NetworkLink, close_pair_elsewhere, worker_pair};
pub(crate) use requests::{
    AllowOnce, CallsEnded, CloseForward, EndNetwork, Forward, NetworkFailed, Route, SetRules,
};

use crate::children::{Child, DrainReason, LifecycleDriver};
use crate::clock::now_text;
use crate::errors::ForwardRefusal;
use crate::pool::network::SessionNetwork;
use crate::session::identity::SessionIdentity;
use crate::session::services::SessionServices;
use actix::WeakRecipient;
use actix::prelude::*;
use asked_host::AskedHost;
use credential_requests::CredentialRequests;
use quackd_policy::hosts::SessionRules;
use quackd_protocol::client::ForwardInfo;
use quackd_protocol::credentials::GitGateway;
use quackd_protocol::limits::{MAX_FORWARDS, MAX_FORWARDS_PER_SESSION};
use quackd_protocol::network::{
    ForwardError, PROXY_PROTOCOL, ProxyStart, RouteRefusal, SocketKind, ToProxy,
};
use quackd_supervision::{Demander, NETWORK_PROXY};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Time for a proxy to open a forward, including its start.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(10);

/// Owner of one worker's proxy.
pub(crate) struct NetworkActor {
    session: Rc<SessionIdentity>,
    services: Rc<SessionServices>,
    /// Owner of the worker. Does not keep it alive.
    worker: WeakRecipient<NetworkFailed>,
    /// Distinguishes the worker from its predecessors.
    worker_generation: u64,
    child: Child,
    /// The worker's sockets. `None` once the worker has exited or the proxy has failed for good.
    link: Option<NetworkLink>,
    rules: Arc<SessionRules>,
    /// Whether the session is in safe mode.
    is_safe: bool,
    network: Rc<SessionNetwork>,
    /// Forwards that the proxy opens now.
    opening: HashMap<u64, Opening>,
    /// Forwards that the proxy has, by port in the session.
    open: HashMap<u16, u64>,
    last_forward: u64,
    /// Reports that the proxy may still send.
    log_credits: u32,
    /// Whether the proxy may ask the user, as of the last rules sent to it.
    may_ask: bool,
    /// Questions of the proxy without an answer, by their ids.
    asked: HashMap<u64, AskedHost>,
    credentials: CredentialRequests,
}

/// Facts that the actor gets when it starts.
pub(super) struct NetworkStart {
    pub(super) session: Rc<SessionIdentity>,
    pub(super) services: Rc<SessionServices>,
    pub(super) link: NetworkLink,
    pub(super) rules: Arc<SessionRules>,
    pub(super) is_safe: bool,
    pub(super) worker: WeakRecipient<NetworkFailed>,
    pub(super) worker_generation: u64,
}

/// A forward that was requested and not yet opened.
#[derive(Debug)]
struct Opening {
    port: u16,
    /// The requested port of this machine. 0 for any.
    local: u16,
    reply: Option<oneshot::Sender<Result<u16, ForwardRefusal>>>,
}

impl NetworkActor {
    /// Starts the actor. Opens the session's forwards again.
    pub(super) fn start_for(start: NetworkStart) -> Addr<Self> {
        let NetworkStart { session, services, link, rules, is_safe, worker, worker_generation } =
            start;
        let network = services.pool.networks.of(&session.id);
        network.own_ports.replace(link.own_ports());

        let actor = Self {
            child: Child::new(NETWORK_PROXY, session.id.0.clone()),
            session,
            services,
            worker,
            worker_generation,
            link: Some(link),
            rules,
            is_safe,
            network,
            opening: HashMap::new(),
            open: HashMap::new(),
            last_forward: 0,
            log_credits: 0,
            may_ask: false,
            asked: HashMap::new(),
            credentials: CredentialRequests::default(),
        };

        actor.start()
    }

    /// Starts the proxy when a command connects for the first time.
    fn start_at_first_connection(&self, ctx: &mut Context<Self>) {
        let Some(link) = &self.link else { return };
        let watched = link.first_connection();
        ctx.spawn(async { watched?.await }.into_actor(self).map(|waited, actor, ctx| {
            if let Err(error) = waited {
                tracing::warn!(session = %actor.session.id, %error, "cannot watch the sockets of a worker");
            }
            actor.start_proxy(ctx);
        }));
    }

    /// Starts the proxy unless it runs.
    fn start_proxy(&mut self, ctx: &mut Context<Self>) {
        if self.link.is_some() && self.child.process.is_none() && self.child.ending.is_none() {
            self.demand(Demander::Call, ctx);
        }
    }

    /// Ends the proxy, then this actor: its futures would keep it and their descriptors.
    fn end(&mut self, ctx: &mut Context<Self>) {
        self.link = None;
        self.network.own_ports.take();
        self.child.ending = Some(DrainReason::Deleted);
        self.opening.drain().for_each(|(_, one)| one.end(Err(ForwardRefusal::Gone)));
        let Some(gone) = self.gone() else { return ctx.stop() };
        ctx.spawn(gone.into_actor(self).map(|_, _, ctx| ctx.stop()));
        self.drain(ctx);
    }

    /// Logs rules that are not in force.
    fn warn_of_unreadable(&self) {
        for error in self.rules.hosts().unreadable() {
            tracing::warn!(session = %self.session.id, %error, "unreadable rule of hosts");
        }
    }

    fn start_frame(&mut self, sockets: Vec<SocketKind>) -> ToProxy {
        let is_git = self.services.daemon.config.credentials.git.value;
        // Without this socket, the proxy serves no commands.
        let is_served = is_git && sockets.contains(&SocketKind::Proxy);
        let gateway = || GitGateway { certificates: std::env::var("SSL_CERT_FILE").ok() };
        ToProxy::Start(Box::new(ProxyStart {
            proto: PROXY_PROTOCOL,
            session_id: self.session.id.clone(),
            label: self.session.label.clone(),
            sockets,
            rules: self.rules_now(),
            upstream: self.services.daemon.upstream.clone().ok().flatten(),
            git: is_served.then(gateway),
        }))
    }

    fn set_rules(&mut self, rules: Arc<SessionRules>, ctx: &mut Context<Self>) {
        if *self.rules == *rules {
            return;
        }
        let is_narrower = rules.credentials().is_narrower_than(self.rules.credentials());
        self.rules = rules;
        self.warn_of_unreadable();
        self.send_rules(ctx);
        self.withdraw_decided();
        self.credential_grants_changed(is_narrower, ctx);
    }

    /// Sends the rules. A proxy that does not take them is replaced: it would go on with the old ones.
    fn send_rules(&mut self, ctx: &mut Context<Self>) {
        let frame = ToProxy::Rules(self.rules_now());
        if self.child.process.is_some() && self.child.try_send(&frame).is_err() {
            self.proxy_broke("it does not read", ctx);
        }
    }

    fn forward(
        &mut self,
        port: u16,
        local: u16,
        reply: oneshot::Sender<Result<u16, ForwardRefusal>>,
        ctx: &mut Context<Self>,
    ) {
        let forwards = self.network.forwards.borrow();
        let same =
            forwards.iter().find(|forward| forward.port == port).map(|forward| forward.local);
        let n_here = forwards.len() + self.opening.len();
        drop(forwards);
        let refusal = match same {
            Some(local) => Some(ForwardRefusal::Open(local)),
            None if MAX_FORWARDS_PER_SESSION <= n_here => Some(ForwardRefusal::TooMany),
            None if MAX_FORWARDS <= self.services.pool.networks.forwards().len() => {
                Some(ForwardRefusal::TooMany)
            }
            None => self.link.is_none().then_some(ForwardRefusal::Gone),
        };
        match refusal {
            Some(refusal) => drop(reply.send(Err(refusal))),
            None => self.open_forward(port, local, Some(reply), ctx),
        }
    }

    fn open_forward(
        &mut self,
        port: u16,
        local: u16,
        reply: Option<oneshot::Sender<Result<u16, ForwardRefusal>>>,
        ctx: &mut Context<Self>,
    ) {
        self.start_proxy(ctx);
        self.last_forward += 1;
        let id = self.last_forward;
        let sent = self.child.try_send(&ToProxy::Forward { id, port, local });
        let opening = Opening { port, local, reply };
        if sent.is_err() {
            return opening.end(Err(ForwardRefusal::Gone));
        }
        self.opening.insert(id, opening);
        ctx.run_later(FORWARD_TIMEOUT, move |actor, _| {
            if let Some(opening) = actor.opening.remove(&id) {
                opening.end(Err(ForwardRefusal::Gone));
            }
        });
    }

    /// Opens the forwards of the session's last proxy.
    fn open_known(&mut self, ctx: &mut Context<Self>) {
        let known = self.network.forwards.borrow().clone();
        for ForwardInfo { port, local, .. } in known {
            self.open_forward(port, local, None, ctx);
        }
    }

    fn forwarded(&mut self, id: u64, result: Result<u16, ForwardError>, ctx: &mut Context<Self>) {
        let Some(opening) = self.opening.remove(&id) else {
            return self.proxy_broke("a forward that was not requested", ctx);
        };
        let port = opening.port;

        // The user would open another program's port.
        if result.is_ok_and(|bound| opening.local != 0 && bound != opening.local) {
            opening.end(Err(ForwardRefusal::Gone));
            return self.proxy_broke("a forward of another port", ctx);
        }

        let mut forwards = self.network.forwards.borrow_mut();
        match result {
            Ok(local) => {
                self.open.insert(port, id);
                if !forwards.iter().any(|forward| forward.port == port) {
                    let info = ForwardInfo { port, local, since: now_text() };
                    self.services
                        .events
                        .publish_typed(&self.session.id, "forward_opened", || info.clone());
                    forwards.push(info);
                }
            }
            Err(error) => {
                forwards.retain(|forward| forward.port != port);
                tracing::info!(session = %self.session.id, port, ?error, "cannot forward a port");
            }
        }

        drop(forwards);
        opening.end(result.map_err(ForwardRefusal::Listen));
    }
}

impl Opening {
    fn end(self, result: Result<u16, ForwardRefusal>) {
        if let Some(reply) = self.reply {
            // The client may be gone.
            reply.send(result).ok();
        }
    }
}

impl Actor for NetworkActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.warn_of_unreadable();
        self.watch_answerers(ctx);
        if self.network.forwards.borrow().is_empty() {
            self.start_at_first_connection(ctx);
        } else {
            self.demand(Demander::Call, ctx);
        }
    }
}

impl Handler<SetRules> for NetworkActor {
    type Result = ();

    fn handle(&mut self, SetRules { rules, is_safe }: SetRules, ctx: &mut Self::Context) {
        if is_safe && !self.is_safe {
            self.forget_credentials(ctx);
        }
        self.is_safe = is_safe;
        self.set_rules(rules, ctx);
    }
}

impl Handler<Forward> for NetworkActor {
    type Result = ResponseFuture<Result<u16, ForwardRefusal>>;

    fn handle(
        &mut self,
        Forward { port, local }: Forward,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        let (reply, opened) = oneshot::channel();
        self.forward(port, local, reply, ctx);
        // The sender is dropped without a reply only at shutdown.
        Box::pin(async { opened.await.unwrap_or(Err(ForwardRefusal::Gone)) })
    }
}

impl Handler<CloseForward> for NetworkActor {
    type Result = ();

    fn handle(&mut self, CloseForward(port): CloseForward, _: &mut Self::Context) {
        let Some(id) = self.open.remove(&port) else { return };
        self.child.try_send(&ToProxy::CloseForward { id }).ok();
    }
}

impl Handler<Route> for NetworkActor {
    type Result = Result<(), RouteRefusal>;

    /// Passes a connection on. The proxy starts if necessary, and takes it then.
    fn handle(&mut self, Route { port, client }: Route, ctx: &mut Self::Context) -> Self::Result {
        let link = self.link.as_ref().ok_or(RouteRefusal::NoWorker)?;
        let client = client.get().ok_or(RouteRefusal::Busy)?;
        link.pass_on(port, client).map_err(|_full| RouteRefusal::Busy)?;
        self.start_proxy(ctx);
        Ok(())
    }
}

impl Handler<AllowOnce> for NetworkActor {
    type Result = ();

    fn handle(&mut self, AllowOnce(target): AllowOnce, ctx: &mut Self::Context) {
        self.allow_once(&target, ctx);
    }
}

impl Handler<CallsEnded> for NetworkActor {
    type Result = ();

    fn handle(&mut self, _: CallsEnded, ctx: &mut Self::Context) {
        self.calls_ended(ctx);
    }
}

impl Handler<EndNetwork> for NetworkActor {
    type Result = ();

    fn handle(&mut self, _: EndNetwork, ctx: &mut Self::Context) {
        self.end(ctx);
    }
}
