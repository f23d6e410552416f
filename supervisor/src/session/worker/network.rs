//! The worker's network: the pair to the worker, and the owner of its proxy.

use super::actor::WorkerActor;
use crate::session::network::{
    AllowOnce, CallsEnded, EndNetwork, NetworkActor, NetworkFailed, NetworkLink, NetworkStart,
    SetRules, worker_pair,
};
use actix::prelude::*;
use quackd_protocol::policy::NetworkMode;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

impl WorkerActor {
    /// Creates the pair for a new worker, and returns the worker's end. Without it, the worker has no hosts and no
    /// forwards.
    pub(super) fn make_pair(&mut self) -> Vec<OwnedFd> {
        match worker_pair() {
            Ok((ours, theirs)) => {
                self.pair = Some(NetworkLink::without_sockets(ours));
                vec![theirs]
            }
            Err(error) => {
                tracing::warn!(session = %self.session.id, %error, "cannot make the network of a worker");
                Vec::new()
            }
        }
    }

    /// Takes the sockets of a worker that has said hello. Its proxy starts at the first connection of a command.
    pub(super) fn begin_network(&mut self, ctx: &mut Context<Self>) {
        if !self.has_sockets() {
            return;
        }
        let Some(pair) = self.pair.take() else { return };
        match pair.receive() {
            Ok(link) => drop(self.start_network(link, ctx)),
            Err(error) => self.worker_broke(&error.to_string(), ctx),
        }
    }

    fn start_network(&mut self, link: NetworkLink, ctx: &Context<Self>) -> Addr<NetworkActor> {
        self.told_rules = Arc::clone(&self.rules);
        let network = NetworkActor::start_for(NetworkStart {
            session: Rc::clone(&self.session),
            services: Rc::clone(&self.services),
            link,
            rules: Arc::clone(&self.rules),
            is_safe: self.is_safe,
            worker: ctx.address().recipient().downgrade(),
            worker_generation: self.child.generation,
        });
        self.network = Some(network.clone());
        network
    }

    /// Passes the rules of hosts on to the running worker's proxy. A worker with another policy than the requested one
    /// gets no new host: it may read what the new policy hides.
    pub(super) fn tell_rules(&mut self) {
        let Self { rules, told_rules, policy, .. } = &*self;
        let rules = match self.has_other_policy() {
            // Without restriction, no rule names the hosts that this worker's commands use.
            true if policy.network_mode() == NetworkMode::On && self.is_less_than_wanted() => {
                Arc::new(told_rules.with_narrower_credentials(rules))
            }
            true => Arc::new(rules.narrowed(told_rules)),
            false => Arc::clone(rules),
        };
        self.told_rules = Arc::clone(&rules);
        self.tell_network(SetRules { rules, is_safe: self.is_safe });
    }

    /// Ends the proxy of a worker that has exited.
    pub(super) fn end_network(&mut self) {
        self.pair = None;
        self.tell_network(EndNetwork);
        self.network = None;
    }

    /// Closes questions about hosts that commands of ended calls wanted.
    pub(super) fn end_questions_of_calls(&self) {
        let is_open = self.services.approvals.with_pending(|open| {
            open.iter().any(|question| question.subject.session == self.session.id)
        });
        if is_open {
            self.tell_network(CallsEnded);
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "internal signals that must not be lost; a change of the policy, the end of a call with a question, or an exit causes one"
    )]
    fn tell_network<M>(&self, message: M)
    where
        M: Message<Result = ()> + Send + 'static,
        NetworkActor: Handler<M>,
    {
        if let Some(network) = &self.network {
            network.do_send(message);
        }
    }
}

/// Reply with the owner of the worker's network, which is started if necessary. `None` without a worker.
#[derive(Debug, Message)]
#[rtype(result = "Option<Addr<NetworkActor>>")]
pub(crate) struct OpenNetwork;

impl Handler<OpenNetwork> for WorkerActor {
    type Result = Option<Addr<NetworkActor>>;

    fn handle(&mut self, _: OpenNetwork, ctx: &mut Self::Context) -> Self::Result {
        if let Some(network) = &self.network {
            return Some(network.clone());
        }
        // Before its hello, the worker's sockets may be in the pair. A worker with the machine's network has none.
        self.hello.as_ref()?;
        let pair = self.pair.take()?;
        Some(self.start_network(pair, ctx))
    }
}

impl Handler<AllowOnce> for WorkerActor {
    type Result = ();

    fn handle(&mut self, allow: AllowOnce, _: &mut Self::Context) {
        self.tell_network(allow);
    }
}

impl Handler<NetworkFailed> for WorkerActor {
    type Result = ();

    /// Replaces the running worker, whose sockets no proxy will serve, as soon as nothing runs in it.
    fn handle(&mut self, NetworkFailed { generation }: NetworkFailed, ctx: &mut Self::Context) {
        if self.child.current(generation).is_some() {
            self.network_failed = true;
            self.restart_if_outdated(ctx);
        }
    }
}
