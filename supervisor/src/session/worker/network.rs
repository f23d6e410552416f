//! The worker's network: the pair to the worker, and the owner of its proxy.

use super::WorkerPart;
use crate::session::actor::SessionActor;
use crate::session::network::{NetworkActor, NetworkLink, TellNetwork, worker_pair};
use actix::prelude::*;
use quackd_policy::hosts::HostPort;
use quackd_protocol::policy::NetworkMode;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

impl SessionActor {
    /// Creates the pair for a new worker, and returns the worker's end. Without it, the worker has no hosts and no
    /// forwards.
    pub(super) fn make_pair(&mut self) -> Vec<OwnedFd> {
        match worker_pair() {
            Ok((ours, theirs)) => {
                self.worker.pair = Some(NetworkLink::without_sockets(ours));
                vec![theirs]
            }
            Err(error) => {
                tracing::warn!(session = %self.session, %error, "cannot make the network of a worker");
                Vec::new()
            }
        }
    }

    /// Takes the sockets of a worker that has said hello. Its proxy starts at the first connection of a command.
    pub(super) fn begin_network(&mut self, ctx: &mut Context<Self>) {
        if !self.worker.has_sockets() {
            return;
        }
        let Some(pair) = self.worker.pair.take() else { return };
        match pair.receive() {
            Ok(link) => drop(self.start_network(link)),
            Err(error) => self.worker_broke(&error.to_string(), ctx),
        }
    }

    /// The owner of the worker's proxy. `None` without a worker.
    pub(crate) fn open_network(&mut self) -> Option<Recipient<TellNetwork>> {
        if let Some(network) = &self.worker.network {
            return Some(network.clone());
        }
        // Before its hello, the worker's sockets may be in the pair. A worker with the machine's network has none.
        self.worker.hello.as_ref()?;
        let pair = self.worker.pair.take()?;
        Some(self.start_network(pair))
    }

    fn start_network(&mut self, link: NetworkLink) -> Recipient<TellNetwork> {
        let services = Rc::clone(&self.services);
        let rules = Arc::clone(&self.worker.rules);
        self.worker.told_rules = Arc::clone(&rules);
        let network = NetworkActor::start_for(
            self.session.clone(),
            self.label.clone(),
            services,
            link,
            rules,
        )
        .recipient::<TellNetwork>();
        self.worker.network = Some(network.clone());
        network
    }

    /// Passes the rules of hosts on to the running worker's proxy. A worker with another policy than the requested one
    /// gets no new host: it may read what the new policy hides.
    pub(crate) fn tell_rules(&mut self) {
        let WorkerPart { rules, told_rules, policy, .. } = &self.worker;
        let rules = match self.has_other_policy() {
            // Without restriction, no rule names the hosts that this worker's commands use.
            true if policy.network_mode() == NetworkMode::On && self.is_less_than_wanted() => {
                Arc::clone(told_rules)
            }
            true => Arc::new(rules.narrowed(told_rules)),
            false => Arc::clone(rules),
        };
        self.worker.told_rules = Arc::clone(&rules);
        self.tell_network(TellNetwork::Rules(rules));
    }

    /// Replaces the running worker, whose sockets no proxy will serve, as soon as nothing runs in it.
    pub(crate) fn network_failed(
        &mut self,
        network: &Recipient<TellNetwork>,
        ctx: &mut Context<Self>,
    ) {
        if self.worker.network.as_ref() == Some(network) {
            self.worker.network_failed = true;
            self.restart_if_outdated(ctx);
        }
    }

    /// Ends the proxy of a worker that has exited.
    pub(super) fn end_network(&mut self) {
        self.worker.pair = None;
        self.tell_network(TellNetwork::End);
        self.worker.network = None;
    }

    /// Closes questions about hosts that commands of ended calls wanted.
    pub(super) fn end_questions_of_calls(&self) {
        let is_open = self.services.approvals.with_pending(|open| {
            open.iter().any(|question| question.subject.session == self.session)
        });
        if is_open {
            self.tell_network(TellNetwork::CallsEnded);
        }
    }

    /// Allows connections to a host and port for a while.
    pub(crate) fn allow_once(&self, target: HostPort) {
        self.tell_network(TellNetwork::AllowOnce(target));
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "internal signals that must not be lost; a change of the policy, the end of a call with a question, or an exit causes one"
    )]
    fn tell_network(&self, tell: TellNetwork) {
        if let Some(network) = &self.worker.network {
            network.do_send(tell);
        }
    }
}
