//! The published state of one child process.

use super::{Child, ChildProcess};
use crate::clock::ms;
use quackd_protocol::client::{LifeInfo, ProcessState};
use quackd_supervision::{Cause, ChildSpec, Heartbeat, Lifecycle, State};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// State of a child at one moment. Times are given for a later moment when it is read.
#[derive(Debug, Clone)]
pub(crate) struct ChildSnapshot {
    lifecycle: Lifecycle,
    heartbeat: Heartbeat,
    /// Time from the last ping of the running process to its pong.
    pub(crate) latency: Option<Duration>,
    /// Whether a process runs, or its channel exists and it is being started.
    pub(crate) has_process: bool,
    /// Process id of the monitor.
    pub(crate) monitor_pid: Option<u32>,
    /// When the process was started, for display.
    pub(crate) started_at: Option<Rc<str>>,
}

impl ChildSnapshot {
    /// The state before the first process.
    pub(crate) fn new(spec: ChildSpec) -> Self {
        Child::new(spec, String::new()).snapshot()
    }

    /// State for clients.
    pub(crate) fn state(&self) -> ProcessState {
        match self.lifecycle.state() {
            State::Ready { .. } if self.heartbeat.is_unresponsive() => ProcessState::Unresponsive,
            State::Absent => ProcessState::Absent,
            State::Starting { .. } => ProcessState::Starting,
            State::Ready { .. } => ProcessState::Ready,
            State::Draining { .. } => ProcessState::Draining,
            State::Backoff { .. } => ProcessState::Backoff,
            State::Failed { .. } => ProcessState::Failed,
        }
    }

    /// The lifecycle, for clients.
    pub(crate) fn life(&self, now: Instant) -> LifeInfo {
        let until = |at: Instant| ms(at.saturating_duration_since(now));
        let lifecycle = &self.lifecycle;
        let is_ready = matches!(lifecycle.state(), State::Ready { .. });
        LifeInfo {
            state: self.state(),
            state_ms: lifecycle.in_state_for(now).map(ms),
            crashes: lifecycle.crashes(),
            restarts_in_window: lifecycle.recent_restarts(now),
            backoff_ms: match lifecycle.state() {
                State::Backoff { until: at, .. } => Some(until(*at)),
                _ => None,
            },
            forgiven_ms: match lifecycle.state() {
                State::Failed { at, .. } => Some(until(*at + lifecycle.spec().forgiveness)),
                _ => None,
            },
            last_cause: lifecycle.last_crash().map(Cause::to_string),
            heartbeat_age_ms: is_ready.then(|| ms(self.heartbeat.age(now))),
        }
    }
}

impl Child {
    /// The state that is published.
    pub(crate) fn snapshot(&self) -> ChildSnapshot {
        ChildSnapshot {
            lifecycle: self.lifecycle.clone(),
            heartbeat: self.heartbeat.clone(),
            latency: self.latency.filter(|_| self.is_ready()),
            has_process: self.process.is_some(),
            monitor_pid: self.process.as_ref().and_then(ChildProcess::monitor_pid),
            started_at: self.process.as_ref().map(|process| Rc::clone(&process.started_at)),
        }
    }
}
