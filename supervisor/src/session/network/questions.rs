//! Questions to the user about what commands do in the network, and those of the proxy about hosts that no rule names.

use super::NetworkActor;
use super::asked_host::AskedHost;
use crate::approvals::words::{self, for_display};
use crate::approvals::{Outcome, Question, Subject};
use actix::prelude::*;
use quackd_policy::hosts::{Host, HostPort, askable, askable_address};
use quackd_protocol::approval::ApprovalKind;
use quackd_protocol::network::{DenyReason, MAX_PROXY_ASKS, Rules, ToProxy};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Time before the end of the last running call at which no connection waits for the user.
const BEFORE_DEADLINE: Duration = Duration::from_secs(2);

/// Shortest time for an answer.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// A line of a question: its label and its text.
type Line = (&'static str, String);

/// A question about a command of a session.
#[derive(Debug)]
pub(super) struct ProxyQuestion {
    pub(super) question: Question,
    /// Time for an answer.
    pub(super) wait: Duration,
    /// Whether calls run and no background job: a command of these calls waits.
    pub(super) is_of_calls: bool,
}

/// Returns the rule about an address of a local network, to which a name leads, and its text for the question.
fn local_address(address: IpAddr, port: u16, name: &str) -> Option<(String, String)> {
    let rule = askable_address(address, port)?;
    // A name that may not be asked about is not shown.
    askable(&Host::read(name).ok()?, port)?;
    let shown = format!("{rule}, an address of a local network, by the name {name}");
    Some((rule, shown))
}

impl NetworkActor {
    /// The rules, with whether the proxy may ask the user.
    pub(super) fn rules_now(&mut self) -> Rules {
        self.may_ask = !self.rules.is_off()
            && self.services.daemon.config.sandbox.asks_about(ApprovalKind::Network)
            && self.services.approvals.can_answer(&self.session.id);
        Rules { asks: self.may_ask, ..self.rules.texts().clone() }
    }

    /// Sends the rules when the first client that can answer comes, and when the last one leaves.
    pub(super) fn watch_answerers(&self, ctx: &mut Context<Self>) {
        let mut changes = self.services.events.answerers.changes();
        let changed = async move { changes.changed().await };
        ctx.spawn(changed.into_actor(self).map(|changed, actor, ctx| {
            // The sender lives as long as the daemon.
            if changed.is_ok() {
                let before = actor.may_ask;
                if actor.rules_now().asks != before {
                    actor.send_rules(ctx);
                }
                actor.watch_answerers(ctx);
            }
        }));
    }

    /// Closes the open questions about which the rules decide now. The proxy has the new rules already, and decides by
    /// them when it gets the answer.
    pub(super) fn withdraw_decided(&self) {
        for asked in self.asked.values() {
            if self.rules.is_off() || asked.is_decided(self.rules.hosts()) {
                self.services.approvals.withdraw(&asked.subject);
            }
        }
    }

    /// Returns the host of a question with its text. `None` if the user is not asked about it.
    fn asked_host(&self, host: Host, port: u16, name: Option<&str>) -> Option<(AskedHost, String)> {
        let (target, shown) = match (&host, name) {
            (_, None) => askable(&host, port).map(|target| (target.clone(), target)),
            (Host::Address(address), Some(name)) => local_address(*address, port, name),
            (Host::Name(_), Some(_)) => None,
        }
        .filter(|_| self.may_ask)?;
        let (session, kind) = (self.session.id.clone(), ApprovalKind::Network);
        let subject = Subject { session, kind, given: target.clone(), target };
        let is_address_of_name = name.is_some();
        let asked = AskedHost {
            host,
            port,
            is_address_of_name,
            subject,
            is_of_calls: false,
            waiting: None,
        };
        Some((asked, shown))
    }

    /// Handles a question of the proxy, which is hostile.
    pub(super) fn asked(
        &mut self,
        id: u64,
        name: Option<&str>,
        host: &str,
        port: u16,
        ctx: &mut Context<Self>,
    ) {
        let host = match Host::read(host) {
            Ok(host)
                if port != 0
                    && self.asked.len() < MAX_PROXY_ASKS
                    && !self.asked.contains_key(&id) =>
            {
                host
            }
            _ => return self.proxy_broke("a question that it may not ask", ctx),
        };

        let asked = self.asked_host(host, port, name);
        let is_open = |asked: &AskedHost| !asked.is_decided(self.rules.hosts());
        let Some((asked, shown)) = asked.filter(|(asked, _)| is_open(asked)) else {
            // The last client that can answer may have just left, or the rules have just changed.
            let result = Err(DenyReason::NotListed);
            return self.tell_proxy(&ToProxy::Answered { id, result }, ctx);
        };

        let facts = format!("connects to {shown}");
        let ProxyQuestion { question, wait, is_of_calls } =
            self.question(asked.subject.clone(), "Allow network access?", &facts);
        let outcome = self.services.approvals.ask(question, wait);

        let generation = self.child.generation;
        let waiting = ctx.spawn(outcome.into_actor(self).map(move |outcome, actor, ctx| {
            if actor.child.current(generation).is_none() {
                return;
            }
            actor.asked.remove(&id);
            let result = match outcome {
                Outcome::Allowed(scope) => Ok(scope),
                Outcome::Denied => Err(DenyReason::DeniedByUser),
                Outcome::TimedOut => Err(DenyReason::Timeout),
                Outcome::TooMany => Err(DenyReason::TooManyAsks),
                Outcome::NoAnswerer | Outcome::Ended => Err(DenyReason::NoAnswerer),
                Outcome::RulesChanged => Err(DenyReason::NotListed),
            };
            actor.tell_proxy(&ToProxy::Answered { id, result }, ctx);
        }));

        self.asked.insert(id, AskedHost { is_of_calls, waiting: Some(waiting), ..asked });
    }

    /// Returns a question about a command, whose first line is `facts`.
    pub(super) fn question(
        &self,
        subject: Subject,
        title: &'static str,
        facts: &str,
    ) -> ProxyQuestion {
        let (running, tool_call_id, left) = self.running_call();
        let call = tool_call_id.as_deref().map(|id| ("call", words::name(id)));
        let said: Vec<_> =
            [Some(running), call, Some(("session", words::name(&self.session.label)))]
                .into_iter()
                .flatten()
                .collect();

        let question = Question {
            subject,
            title,
            message: words::message(facts, &said),
            preset: None,
            tool_call_id: tool_call_id.as_deref().map(for_display),
            likely: false,
            is_possible: true,
        };
        let wait = self.services.daemon.config.sandbox.ask_wait.value;
        let wait = left.map_or(wait, |left| wait.min(left)).max(SHORTEST_WAIT);
        ProxyQuestion { question, wait, is_of_calls: left.is_some() }
    }

    /// Closes the questions of calls that have ended: nothing waits for an answer.
    pub(super) fn calls_ended(&mut self, ctx: &mut Context<Self>) {
        self.end_credential_questions();
        let ended: Vec<u64> =
            self.asked.iter().filter(|(_, asked)| asked.is_of_calls).map(|(id, _)| *id).collect();
        for id in ended {
            if let Some(waiting) = self.asked.remove(&id).and_then(|asked| asked.waiting) {
                ctx.cancel_future(waiting);
                let result = Err(DenyReason::NoAnswerer);
                self.tell_proxy(&ToProxy::Answered { id, result }, ctx);
            }
        }
    }

    /// Allows connections to a host for a while, after the question about it has expired.
    pub(super) fn allow_once(&mut self, target: &HostPort, ctx: &mut Context<Self>) {
        self.start_proxy(ctx);
        let allow = ToProxy::AllowOnce { host: target.host.to_string(), port: target.port };
        self.tell_proxy(&allow, ctx);
    }

    pub(super) fn tell_proxy(&mut self, frame: &ToProxy, ctx: &mut Context<Self>) {
        if self.child.try_send(frame).is_err() {
            self.proxy_broke("it does not read", ctx);
        }
    }

    /// Returns the line about the call or job that the connection probably belongs to, the id of the only running call,
    /// and the time until nothing may wait for the user.
    fn running_call(&self) -> (Line, Option<String>, Option<Duration>) {
        let snapshot = self.services.table.snapshot(&self.session.id);
        let (calls, jobs) = (&snapshot.worker.calls, &snapshot.worker.jobs);

        let now = Instant::now();
        let left = |since: Instant, deadline: Duration| {
            (since + deadline).saturating_duration_since(now).saturating_sub(BEFORE_DEADLINE)
        };
        let longest = calls.iter().map(|call| left(call.since, call.deadline)).max();

        let from = |origin: &str| ("from", origin.to_owned());
        let told = calls.first().and_then(|call| call.told.as_deref());

        match (calls.len(), jobs.len()) {
            (1, 0) => match told {
                Some((id, command)) => {
                    (("command", words::quoted(command)), Some(id.clone()), longest)
                }
                None => (from("a command"), None, longest),
            },
            (0, 1) => (from("a background job"), None, None),
            (_, 0) => (from("one of several commands"), None, longest),
            _ => (from("a command"), None, None),
        }
    }
}
