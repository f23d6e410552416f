//! Records states of the session's files: when its worker is ready, and after calls that may change files. No call waits
//! for it.

use super::actor::SessionActor;
use super::services::SessionServices;
use super::worker::command_text;
use actix::prelude::*;
use quackd_config::CheckpointChoice;
use quackd_protocol::SessionId;
use quackd_protocol::isolate::{
    Checkpoint, CheckpointAction, CheckpointRequest, FromIsolate, MAX_CHECKPOINT_CALLS,
    MAX_RECORDED_COPY, MAX_RECORDED_WORKSPACE,
};
use quackd_protocol::mask::{cut_at_word, masked};
use quackd_protocol::tools::{self, MCP_CALL, runs_commands};
use serde_json::json;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time from the last call to the record: further calls often follow at once.
const DELAY: Duration = Duration::from_millis(300);

/// Longest time in which running calls put off a record.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// Maximum wait for the creation of the directory.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// Longest beginning of a command in the name of a call, in bytes.
const MAX_COMMAND: usize = 160;

/// Calls since the last record, and the record that is being made.
#[derive(Debug, Default)]
pub(super) struct CheckpointPart {
    /// The calls to name in the next record, the first ones.
    calls: Vec<String>,
    /// When the first of them ended. `None` if there is nothing to record.
    since: Option<Instant>,
    timer: Option<SpawnHandle>,
    is_running: bool,
    /// Whether recording failed. It is told once, and tried again after the next call.
    has_failed: bool,
}

/// The reason why states of files were not recorded, listed or restored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatesError {
    /// For display.
    #[error("{0}")]
    Failed(String),
    #[error("the daemon is stopping or overloaded")]
    Overloaded,
}

/// The files of one session.
#[derive(Debug, Clone)]
pub(crate) struct SessionFiles {
    pub(crate) session: SessionId,
    pub(crate) workspace: String,
    pub(crate) is_isolated: bool,
    pub(crate) hidden: Vec<PathBuf>,
}

/// Whether states of the files of such a session are recorded.
pub(crate) fn records(services: &SessionServices, is_isolated: bool) -> bool {
    match services.daemon.config.keep.checkpoints.value {
        CheckpointChoice::Isolated => is_isolated,
        CheckpointChoice::All => true,
        CheckpointChoice::Off => false,
    }
}

/// Records, lists or restores states of a session's files. The work goes on if the caller drops the future.
pub(crate) async fn run(
    services: &Rc<SessionServices>,
    files: SessionFiles,
    action: CheckpointAction,
) -> Result<FromIsolate, StatesError> {
    let SessionFiles { session, workspace, is_isolated, hidden } = files;
    let home = services.daemon.home.clone();
    if !is_isolated {
        let made = services.look(LOOK_LIMIT, move || home.make_checkpoints_dir_blocking()).await;
        made.map_err(|_late| StatesError::Overloaded)?
            .map_err(|error| StatesError::Failed(error.to_string()))?;
    }
    let home = &services.daemon.home;
    let failed = |error: quackd_home::HomeError| StatesError::Failed(error.to_string());
    let copy = home.session_isolated_dir(session.as_str()).map_err(failed)?;
    let request = CheckpointRequest {
        workspace: PathBuf::from(workspace),
        copy: is_isolated.then_some(copy),
        directory: home.session_checkpoints_dir(session.as_str(), is_isolated).map_err(failed)?,
        home: services.daemon.user_home.clone(),
        hidden,
        max_files: if is_isolated { MAX_RECORDED_COPY } else { MAX_RECORDED_WORKSPACE },
        action,
    };
    let isolation = Rc::clone(&services.children.isolation);
    match isolation.run_on_states(request).await {
        Ok(FromIsolate::Failed { text }) => Err(StatesError::Failed(text)),
        Ok(answer) => Ok(answer),
        Err(error) => Err(StatesError::Failed(error.to_string())),
    }
}

impl SessionActor {
    fn records_states(&self) -> bool {
        records(&self.services, self.worker.isolated.is_some())
    }

    /// Records the state before the first call of a new worker. Only its session changes a copy, and the first state of a
    /// copy is recorded when it is made.
    pub(super) fn record_first_state(&mut self, ctx: &mut Context<Self>) {
        let is_copy = self.worker.isolated.is_some();
        if self.records_states() && !is_copy && !self.checkpoints.is_running {
            self.checkpoints.since = Some(Instant::now());
            self.record_state(ctx);
        }
    }

    /// Records the state soon, because a call has ended that may have changed files. `what` names the call.
    pub(super) fn record_state_after(&mut self, what: String, ctx: &mut Context<Self>) {
        if !self.records_states() {
            return;
        }
        let part = &mut self.checkpoints;
        if part.calls.len() < MAX_CHECKPOINT_CALLS {
            part.calls.push(what);
        }
        part.since.get_or_insert_with(Instant::now);
        self.arm_record(ctx);
    }

    /// Returns the name of a running call for the record of the state after it. `None` if the call changes no file.
    pub(super) fn recorded_call(&self, number: u64) -> Option<String> {
        let (tool, arguments) = self.worker.calls.sent_request(number)?;
        let is_recorded = self.records_states() && may_change_files(tool);
        is_recorded.then(|| name_of(tool, arguments))
    }

    fn arm_record(&mut self, ctx: &mut Context<Self>) {
        if self.checkpoints.since.is_none() || self.checkpoints.is_running {
            return;
        }
        let timer = ctx.run_later(DELAY, |actor, ctx| actor.on_record_timer(ctx));
        if let Some(earlier) = self.checkpoints.timer.replace(timer) {
            ctx.cancel_future(earlier);
        }
    }

    fn on_record_timer(&mut self, ctx: &mut Context<Self>) {
        self.checkpoints.timer = None;
        let is_due = self.checkpoints.since.is_some_and(|since| MAX_DELAY <= since.elapsed());
        if self.has_calls() && !is_due {
            return self.arm_record(ctx);
        }
        self.record_state(ctx);
    }

    fn record_state(&mut self, ctx: &mut Context<Self>) {
        let part = &mut self.checkpoints;
        if part.since.take().is_none() || self.services.pool.disk.is_low() {
            return;
        }
        part.is_running = true;
        let mut calls = std::mem::take(&mut part.calls);
        // What they have changed so far is in the state too.
        let running = self.worker.calls.requests().filter(|(tool, _)| may_change_files(tool));
        calls.extend(running.map(|(tool, arguments)| name_of(tool, arguments)));
        calls.truncate(MAX_CHECKPOINT_CALLS);
        let action = CheckpointAction::Take { calls, while_running: self.has_calls() };
        let files = SessionFiles {
            session: self.session.clone(),
            workspace: self.workspace.clone(),
            is_isolated: self.worker.isolated.is_some(),
            hidden: self.worker.policy.hidden.clone(),
        };
        let services = Rc::clone(&self.services);
        let running = async move { run(&services, files, action).await };
        ctx.spawn(running.into_actor(self).map(|answer, actor, ctx| actor.recorded(answer, ctx)));
    }

    fn recorded(&mut self, answer: Result<FromIsolate, StatesError>, ctx: &mut Context<Self>) {
        self.checkpoints.is_running = false;
        match answer {
            Ok(FromIsolate::Recorded(taken)) => {
                self.checkpoints.has_failed = false;
                if let Some(taken) = taken {
                    self.publish_checkpoint(&taken);
                }
            }
            Ok(_) | Err(_) if self.checkpoints.has_failed => {}
            Ok(_) => self.checkpoints.has_failed = true,
            Err(error) => {
                self.checkpoints.has_failed = true;
                tracing::warn!(session = %self.session, %error, "state of the files not recorded");
            }
        }
        self.arm_record(ctx);
    }

    fn publish_checkpoint(&self, taken: &Checkpoint) {
        const NAME: &str = "checkpoint_created";
        let event = || json!({ "type": NAME, "number": taken.number, "files": taken.files, "calls": taken.calls });
        self.services.events.publish(&self.session, NAME, event);
    }
}

/// Name of a call for the record of the state after it.
fn name_of(tool: &str, arguments: &str) -> String {
    let command = runs_commands(tool).then(|| command_text(arguments)).flatten();
    match command {
        Some(command) => format!("{tool}: {}", masked(cut_at_word(&command, MAX_COMMAND))),
        None => tool.to_owned(),
    }
}

/// Whether a call of a tool may change files of the workspace.
fn may_change_files(tool: &str) -> bool {
    tool == MCP_CALL || tools::find(tool).is_some_and(|row| !row.reads_only && !row.is_job_tool)
}
