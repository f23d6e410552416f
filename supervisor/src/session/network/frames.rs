//! Handles frames from the proxy.

use super::NetworkActor;
use crate::children::{HeartbeatDriver, KillReason, LifecycleDriver};
use actix::prelude::*;
use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::network::{
    FromProxy, LOG_CREDITS, LogEntry, MAX_LOG_ENTRIES, PROXY_PROTOCOL, ToProxy, Verdict,
};
use quackd_supervision::{Cause, Hello as HelloMeans};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause before a proxy may report again. Until then it merges its reports.
const LOG_INTERVAL: Duration = Duration::from_millis(250);

/// Longest reason and host from a proxy, in characters.
const MAX_TEXT: usize = 300;

impl NetworkActor {
    pub(super) fn proxy_frame(&mut self, frame: FromProxy, ctx: &mut Context<Self>) {
        match frame {
            FromProxy::Hello { proto, notes } => self.proxy_hello(proto, &notes, ctx),
            FromProxy::CannotStart { reason } if !self.child.is_ready() => {
                let reason = stripped_line(&reason, MAX_TEXT);
                self.kill_for(Cause::Refused(reason), KillReason::Failed, ctx);
            }
            _ if !self.child.is_ready() => self.proxy_broke("the first frame was no hello", ctx),
            FromProxy::CannotStart { .. } => self.proxy_broke("it has started already", ctx),
            FromProxy::Ask { id, host, port, name } => {
                self.asked(id, name.as_deref(), &host, port, ctx);
            }
            FromProxy::Credential { id, request } => self.credential_requested(id, request, ctx),
            FromProxy::Log { entries, dropped } => self.logged(entries, dropped, ctx),
            FromProxy::Forwarded { id, result } => self.forwarded(id, result, ctx),
            FromProxy::Pong { seq } => {
                if !self.on_pong(seq, ctx) {
                    self.proxy_broke("a pong without a ping", ctx);
                }
            }
        }
    }

    fn proxy_hello(&mut self, proto: u32, notes: &[String], ctx: &mut Context<Self>) {
        if proto != PROXY_PROTOCOL {
            let cause = Cause::VersionMismatch { ours: PROXY_PROTOCOL, theirs: proto };
            return self.kill_for(cause, KillReason::Failed, ctx);
        }
        match self.child.lifecycle.on_hello(Instant::now()) {
            HelloMeans::Ready => {}
            HelloMeans::Late => return,
            HelloMeans::Unexpected => return self.proxy_broke("a second hello", ctx),
        }
        let notes: Vec<String> =
            notes.iter().take(8).map(|note| note.chars().take(MAX_TEXT).collect()).collect();
        tracing::info!(session = %self.session.id, ?notes, "proxy ready");
        self.log_credits = LOG_CREDITS;
        self.begin_heartbeat(ctx);
        self.arm_life(ctx);
        self.open_known(ctx);
        // They may have changed since the first frame.
        self.send_rules(ctx);
    }

    fn logged(&mut self, entries: Vec<LogEntry>, dropped: u64, ctx: &mut Context<Self>) {
        let Some(credit) = self.log_credits.checked_sub(1) else {
            return self.proxy_broke("a report without a credit", ctx);
        };
        if MAX_LOG_ENTRIES < entries.len() {
            return self.proxy_broke("a report that is too long", ctx);
        }

        self.log_credits = credit;
        if credit + 1 == LOG_CREDITS {
            self.give_log_credits_later(ctx);
        }

        let metrics = Arc::clone(&self.services.metrics);
        for entry in &entries {
            let counter = match entry.verdict {
                Verdict::Allowed => &metrics.network_allowed,
                Verdict::Denied(_) => &metrics.network_denied,
                Verdict::Failed(_) => &metrics.network_failed,
            };
            counter.add(entry.count.into());
            metrics.network_sent.add(entry.sent);
            metrics.network_received.add(entry.received);
        }

        entries.iter().for_each(|entry| self.services.network_journal.add(&entry));
        for denied in self.network.add(entries, dropped) {
            self.services.events.publish_typed(&self.session.id, "network_denied", || denied);
        }
    }

    fn give_log_credits_later(&mut self, ctx: &mut Context<Self>) {
        let generation = self.child.generation;
        ctx.run_later(LOG_INTERVAL, move |actor, ctx| {
            if actor.child.current(generation).is_none() {
                return;
            }
            let n = LOG_CREDITS.saturating_sub(actor.log_credits);
            actor.log_credits = LOG_CREDITS;
            if actor.child.try_send(&ToProxy::LogTaken { n }).is_err() {
                actor.proxy_broke("it does not read", ctx);
            }
        });
    }
}
