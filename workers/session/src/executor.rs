//! The tool executor of the worker.
//!
//! Owns the running calls with their cancel handles, and the sender for frames to the supervisor. Called by the link,
//! frame by frame, until the supervisor has exited or asks the worker to exit. Never blocks: each call runs in its own
//! task, and its blocking work runs on the thread pool.
//!
//! Invariant: every tool call gets exactly one `tool_finished`, unless the process dies.

use crate::input;
use crate::jobs::JobReporter;
use crate::link::{self, FrameSender};
use crate::network::{self, Servers};
use crate::stage0::Stage0Output;
use crate::streaming::{self, Streaming};
use crate::updates::{self, CallWatch, Credits};
use crate::web::Searches;
use actix::System;
use quackd_ipc::halves;
use quackd_ipc::link::adopt;
use quackd_process::{CommandInput, SelfExe, complain, sweep_strays_blocking};
use quackd_protocol::environment::GIT_SETTINGS_VARIABLES;
use quackd_protocol::limits::MAX_CALLS_PER_SESSION;
use quackd_protocol::worker::{
    FRAME_PROTOCOL, FromWorker, Hello, SandboxReport, ToWorker, ToolCall, ToolFinished, ToolReport,
};
use quackd_protocol::{CallId, VERSION};
use quackd_sandbox::confine::PrivateNetwork;
use quackd_tools::{Attempts, Call, Confinement, Data, Output, Toolbox, Watch};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time limit of the last sweep before the process exits. The monitor sweeps again; in tier M, which has none, the
/// supervisor.
const LAST_SWEEP: Duration = Duration::from_millis(500);

/// Runs the worker's actor system until it stops.
pub(crate) fn serve(started: Stage0Output) -> ExitCode {
    let code = Rc::new(Cell::new(ExitCode::SUCCESS));
    let failed = Rc::clone(&code);
    let system = System::new();
    system.block_on(async move {
        if let Err(error) = start(started).await {
            complain(&format!("worker cannot start: {error}"));
            failed.set(ExitCode::FAILURE);
            System::current().stop();
        }
    });
    if let Err(error) = system.run() {
        complain(&format!("worker's runtime failed: {error}"));
        code.set(ExitCode::FAILURE);
    }
    if !sweep_strays_blocking(&BTreeSet::new(), LAST_SWEEP).verified_empty {
        complain("processes left, the monitor or the daemon kills them");
    }
    code.get()
}

async fn start(started: Stage0Output) -> std::io::Result<()> {
    let Stage0Output { control, start, mut confined, limits, group, network: pair } = started;
    let (reading, writing) = halves::split(adopt(control)?)?;
    let outbox = link::start_writer(writing);
    if confined.is_confined && !start.sandbox.policy.network {
        confined.env.extend(network::variables(&start.env, confined.proxy_port()));
    }
    let env = environment(start.env, confined.env, confined.is_confined);
    let held = confined.private_network.as_mut().and_then(|network| network.held.take());
    let attempts = attempts(confined.private_network, &mut confined.report);
    if let Some(pair) = pair {
        let servers = if held.is_some() { Servers::None } else { Servers::Here };
        network::serve(pair, &attempts, servers)?;
    }
    let policy = confined.policy.unwrap_or(start.sandbox.policy);
    let confinement = Confinement::new(policy, confined.is_confined, start.label)
        .with_read_only_mounts(confined.read_only_pins.clone())
        .with_profile(confined.profile)
        .with_copy(confined.copy.clone(), PathBuf::from(&start.workspace));
    let toolbox = Toolbox::new(start.workspace.into(), start.run_dir.into(), env, start.safe_mode);
    let searches = Searches::default();
    let toolbox = toolbox
        .respecting_ignore_files(start.respect_ignore_files)
        .in_copy(confined.copy)
        .with_confinement(confinement)
        .with_attempts(attempts)
        .with_pins(confined.pins, confined.read_only_pins, confined.absent)
        .with_private_temporary_files_blocking(confined.has_private_tmp)
        .with_private_home_blocking(confined.private_home)
        .with_user_git(confined.user_git)
        .with_command_words(confined.command_words)
        .with_read_only_words(confined.read_only_words)
        .with_sandbox(confined.report.clone(), confined.known)
        .with_limits(limits)
        .with_group(group)
        .with_web(searches.web(outbox.clone()))
        .with_sources(confined.sources);
    let toolbox = match confined.spawn_thread {
        Some(thread) => toolbox.with_spawn_thread(thread),
        None => toolbox,
    };
    let toolbox = Rc::new(toolbox);
    // Only sessions that have replaced files need the thread.
    if let Some(recovery) = toolbox.recovery() {
        drop(tokio::task::spawn_blocking(recovery));
    }
    let executor = ToolExecutor {
        jobs: JobReporter::start(toolbox.jobs(), outbox.clone()),
        toolbox,
        outbox: outbox.clone(),
        in_flight: Rc::default(),
        credits: Credits::default(),
        searches,
        _exe: confined.exe,
        _port: held,
    };
    let hello = Hello {
        proto: FRAME_PROTOCOL,
        version: VERSION.to_owned(),
        pid: confined.pid,
        sandbox: confined.report,
    };
    outbox.send(&FromWorker::Hello(hello)).await;
    actix::spawn(async move {
        link::read(reading, |frame| executor.handle(frame)).await;
        // The futures of running calls and background jobs are dropped with the runtime, and each kills its command.
        System::current().stop();
    });
    Ok(())
}

/// Returns the record of attempts to use the network, and reports sockets that could not be opened.
fn attempts(network: Option<PrivateNetwork>, report: &mut SandboxReport) -> Arc<Attempts> {
    let Some(PrivateNetwork { counters, notes, .. }) = network else { return Arc::default() };
    notes.iter().for_each(|note| complain(note));
    report.notes.extend(notes);
    Arc::new(Attempts::new(counters))
}

/// Returns the environment of commands: the supervisor's variables, replaced by those of the confinement.
fn environment(
    given: Vec<(String, String)>,
    inside: Vec<(&'static str, String)>,
    is_confined: bool,
) -> Vec<(String, String)> {
    let is_left_out = |name: &str| {
        is_confined && GIT_SETTINGS_VARIABLES.contains(&name)
            || inside.iter().any(|(other, _)| *other == name)
    };
    let kept: Vec<_> = given.into_iter().filter(|(name, _)| !is_left_out(name)).collect();
    kept.into_iter()
        .chain(inside.into_iter().map(|(name, value)| (name.to_owned(), value)))
        .collect()
}

/// A running call.
#[derive(Debug)]
struct InFlight {
    cancel: CancellationToken,
    stream: Option<Streaming>,
    input: Option<CommandInput>,
}

/// Runs the calls of the session.
struct ToolExecutor {
    toolbox: Rc<Toolbox>,
    outbox: FrameSender,
    in_flight: Rc<RefCell<HashMap<CallId, InFlight>>>,
    credits: Credits,
    searches: Searches,
    jobs: JobReporter,
    /// Keeps the executable of the wrapper open.
    _exe: Option<SelfExe>,
    /// Keeps other programs from the port of the proxy.
    _port: Option<TcpListener>,
}

impl ToolExecutor {
    /// Handles a frame. Breaks if it is the last one.
    fn handle(&self, frame: ToWorker) -> ControlFlow<()> {
        match frame {
            ToWorker::ToolCall(call) => self.admit(call),
            ToWorker::Cancel { call_id } => {
                if let Some(call) = self.in_flight.borrow().get(&call_id) {
                    call.cancel.cancel();
                }
            }
            ToWorker::Ping { seq } => self.outbox.offer(&FromWorker::Pong { seq }),
            ToWorker::Credit { n } => self.credits.add(n),
            ToWorker::OutputTaken { call_id } => {
                let in_flight = self.in_flight.borrow();
                let stream = in_flight.get(&call_id).and_then(|call| call.stream.as_ref());
                stream.into_iter().for_each(Streaming::taken);
            }
            ToWorker::Stdin { call_id, piece } => {
                let in_flight = self.in_flight.borrow();
                let input = in_flight.get(&call_id).and_then(|call| call.input.as_ref());
                input.into_iter().for_each(|input| input::give(input, &piece));
            }
            ToWorker::WebDone { call_id, outcome } => self.searches.done(&call_id, outcome),
            ToWorker::NetworkMode { mode } => self.toolbox.confinement().set_network(mode),
            ToWorker::Shutdown {} => return ControlFlow::Break(()),
            ToWorker::Start(_) | ToWorker::Template {} => {
                let text = "a second start frame was ignored".to_owned();
                self.outbox.offer(&FromWorker::Warning { text });
            }
        }
        ControlFlow::Continue(())
    }

    fn admit(&self, call: ToolCall) {
        let (outbox, jobs) = (self.outbox.clone(), self.jobs.clone());
        let in_flight = Rc::clone(&self.in_flight);
        let mut calls = self.in_flight.borrow_mut();
        if MAX_CALLS_PER_SESSION <= calls.len() || calls.contains_key(&call.call_id) {
            let refusal = Output::error(format_args!(
                "Session is busy: {MAX_CALLS_PER_SESSION} calls are running, and it may have no more; \
                 try again when one has ended"
            ));
            actix::spawn(async move { outbox.send(&finished(call.call_id, refusal, None)).await });
            return;
        }
        let cancel = CancellationToken::new();
        let stream = call.stream.then(|| Streaming::new(call.stream_rows));
        let input = call.stdin.then(CommandInput::default);
        let running =
            InFlight { cancel: cancel.clone(), stream: stream.clone(), input: input.clone() };
        calls.insert(call.call_id.clone(), running);
        let toolbox = Rc::clone(&self.toolbox);
        let id = call.call_id.clone();
        let watch: Rc<dyn Watch> =
            Rc::new(CallWatch::new(id.clone(), outbox.clone(), self.credits.clone()));
        actix::spawn(async move {
            let running = quackd_facades::execute(
                toolbox,
                Call {
                    call_id: call.call_id.0,
                    tool: call.tool,
                    arguments: call.arguments,
                    deadline: Duration::from_millis(call.deadline_ms),
                    safe_mode: call.safe_mode,
                    approved: call.approved,
                    cancel,
                    watch: Some(watch),
                    flow: stream.as_ref().map(Streaming::flow),
                    input: input.clone(),
                    cwd: call.cwd.into(),
                    stream_rows: call.stream_rows,
                    origin: call.origin,
                },
            );
            let running = input::request_while(running, input.as_ref(), &id, &outbox);
            let output = streaming::forward_while(running, stream.as_ref(), &id, &outbox).await;
            in_flight.borrow_mut().remove(&id);
            jobs.report().await;
            outbox.send(&finished(id, output, stream)).await;
        });
    }
}

fn finished(call_id: CallId, output: Output, stream: Option<Streaming>) -> FromWorker {
    let shown = output.shown().and_then(|shown| serde_json::value::to_raw_value(&shown).ok());
    let Output { text, report, data, update, closing } = output;
    let closing = closing.filter(|_| stream.is_some());
    let closing = closing.and_then(|closing| serde_json::value::to_raw_value(&closing).ok());
    let output = stream.map(|stream| stream.rest()).unwrap_or_default();
    let update = update.and_then(|update| updates::frame(&call_id, update));
    let (text, report) = match serde_json::value::to_raw_value(&text) {
        Ok(text) => (text, report),
        // A string always has a JSON form. If it ever fails, the call still gets an answer.
        Err(_) => {
            (serde_json::value::RawValue::NULL.to_owned(), ToolReport { is_error: true, ..report })
        }
    };
    let data = data.map(Data::into_json);
    FromWorker::ToolFinished(ToolFinished {
        call_id,
        text,
        shown,
        update,
        output,
        closing,
        report,
        data,
    })
}
