//! A worker on another machine or in a container. The link process that the supervisor starts in its place reaches it,
//! and reports the state of the link.

use super::actor::WorkerActor;
use super::lifecycle::command_limits;
use crate::children::command_env::Variables;
use crate::children::{ChildActor, HeartbeatDriver, KillReason, LifecycleDriver};
use crate::clock::ms;
use crate::engines::{NoEngine, engine_argv};
use crate::errors::CallError;
use crate::session::identity::SessionIdentity;
use crate::session::services::SessionServices;
use actix::prelude::*;
use quackd_protocol::credentials::Credentials;
use quackd_protocol::far::{FarStart, FarWorkspace, LinkState};
use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::limits::WORKER_READY_WAIT;
use quackd_protocol::worker::{FRAME_PROTOCOL, SandboxStart, Start, ToWorker};
use quackd_supervision::{Cause, State, WORKER_HEARTBEAT};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Longest reason that is kept, in characters.
const MAX_REASON: usize = 300;

impl WorkerActor {
    /// The reason why the far worker does not answer now.
    pub(super) fn link_notice(&self) -> Option<Rc<str>> {
        self.far.as_ref()?.notice.clone()
    }

    /// Maximum wait of a call for a worker. A far worker may wait for a place, so only the deadline limits the wait.
    pub(super) fn ready_wait(&self) -> Duration {
        if self.far.is_some() { Duration::MAX } else { WORKER_READY_WAIT }
    }

    /// Ends the wait for a place if no call needs it.
    pub(super) fn end_unwanted_wait(&mut self, ctx: &mut Context<Self>) {
        let is_starting = matches!(self.child.lifecycle.state(), State::Starting { .. });
        if is_starting && self.link_notice().is_some() && !self.has_calls() {
            self.drain(ctx);
        }
    }

    /// Cause of the death of a worker that does not answer.
    pub(super) fn cause_of_silence(&self) -> Cause {
        let Some(far) = &self.far else { return Cause::NotResponding };
        let heartbeat = self.child.lifecycle.spec().heartbeat.unwrap_or(WORKER_HEARTBEAT);
        let reason = format!("no answer for {} s", heartbeat.kill.as_secs());
        Cause::LinkLost { place: far.workspace.place().to_owned(), reason }
    }

    /// Starts the link process. The first frame contains nothing of this machine but the argument lists, which the link
    /// process keeps.
    pub(super) fn start_link(&mut self, client: Variables, ctx: &mut Context<Self>) {
        let sent = self.isolated.as_ref().and_then(|copied| copied.sent.as_ref());
        let is_stale = sent.is_some_and(|sent| sent.is_stale);
        let Some(link) = &mut self.far else { return };
        link.notice = None;
        if is_stale {
            let error = CallError::StaleCopy(link.workspace.place().to_owned());
            return self.on_workspace_error(&"its newer copy was not sent", &error, ctx);
        }
        let workspace = link.workspace.to_string();
        let far = match far_start(&self.services, &link.workspace, &self.session, client) {
            Ok(far) => far,
            Err(why) => {
                let error = CallError::NoEngine(why.to_string());
                return self.on_workspace_error(&why, &error, ctx);
            }
        };

        self.note_start();
        let config = &self.services.daemon.config;
        let min_free = self.services.pool.disk.min_free();
        let start = ToWorker::Start(Box::new(Start {
            proto: FRAME_PROTOCOL,
            session_id: self.session.id.clone(),
            label: self.session.label.clone(),
            workspace,
            run_dir: String::new(),
            env: Vec::new(),
            safe_mode: false,
            respect_ignore_files: config.tools.respect_ignore_files.value,
            limits: command_limits(&config.limits, None, min_free),
            sandbox: SandboxStart {
                policy: self.policy.clone(),
                probe: None,
                tier: config.sandbox.tier.value,
                sandbox_exec: None,
                home: String::new(),
                state_dir: String::new(),
                caches: None,
                agents: None,
                isolated: None,
                ports: None,
                cgroup: None,
            },
            credentials: Credentials::default(),
            // The far side sets it in the frame of its worker.
            is_far: false,
            far: Some(Box::new(far)),
        }));
        self.launch(&start, &[], None, ctx);
    }

    /// Handles a report of the link process. It is quackd's own program and sends few.
    pub(super) fn link_reports(&mut self, state: LinkState, ctx: &mut Context<Self>) {
        let Some(link) = &mut self.far else {
            return self.worker_broke("a report about a link that it does not have", ctx);
        };

        let (now, is_ready) = (Instant::now(), self.hello.is_some());
        match state {
            LinkState::Waiting { .. } if is_ready => {
                return self.worker_broke("it waits for a place and has one", ctx);
            }
            LinkState::Waiting { reason } => {
                let reason = stripped_line(&reason, MAX_REASON);
                link.notice = Some(format!("waiting for a place: {reason}").into());
                if matches!(self.child.lifecycle.state(), State::Starting { .. }) {
                    self.child.lifecycle.renew(now);
                    self.arm_life(ctx);
                }
            }
            LinkState::Interrupted { reason } => {
                let (place, reason) = (link.workspace.place(), stripped_line(&reason, MAX_REASON));
                link.notice = Some(format!("link to {place} interrupted: {reason}").into());
                self.child.forget_ping_time();
                match self.child.lifecycle.state() {
                    State::Ready { .. } => self.reset_heartbeat(now, ctx),
                    State::Starting { .. } => {
                        self.child.lifecycle.renew(now);
                        self.arm_life(ctx);
                    }
                    _ => {}
                }
            }
            LinkState::Resumed {} => link.notice = None,
            LinkState::Lost { reason } => {
                let place = link.workspace.place().to_owned();
                let reason = stripped_line(&reason, MAX_REASON);
                link.notice = None;
                self.kill_for(Cause::LinkLost { place, reason }, KillReason::LinkLost, ctx);
            }
        }
        self.publish_status();
    }
}

/// Returns the part of the first frame for the link process.
fn far_start(
    services: &SessionServices,
    far: &FarWorkspace,
    session: &SessionIdentity,
    client: Variables,
) -> Result<FarStart, NoEngine> {
    let (id, created) = (session.id.as_str(), session.created.as_deref());
    let argv = engine_argv(&services.daemon, far, id, created)?;
    let config = &services.daemon.config.far;
    Ok(FarStart {
        place: far.place().to_owned(),
        start: argv.start,
        resume: argv.resume,
        stop: argv.stop,
        poll: argv.poll,
        program: argv.program,
        env: client,
        grace_ms: ms(config.resume_grace.value),
        queue_ms: ms(config.queue.value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_names_the_place_and_the_reason() {
        let (place, reason) = ("build1".to_owned(), "Connection reset".to_owned());
        assert_eq!(
            CallError::Died(Cause::LinkLost { place, reason }).text("bash"),
            "Error: link to build1 lost during bash (Connection reset). The call may have had an effect there; it was not \
             retried."
        );
    }
}
