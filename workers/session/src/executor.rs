//! The tool executor of the worker.
//!
//! Owns the running calls with their cancel handles, and the sender for frames to the supervisor. Called by the link,
//! frame by frame, until the supervisor has exited or asks the worker to exit. Never blocks: each call runs in its own
//! task, and its blocking work runs on the thread pool.
//!
//! Invariant: every tool call gets exactly one `tool_finished`, unless the process dies.

use crate::confinement_result::ConfinementResult;
use crate::input;
use crate::jobs::JobReporter;
use crate::link::{self, FrameSender};
use crate::network;
use crate::stage0::Stage0Output;
use crate::streaming::{self, Streaming};
use crate::terminals;
use crate::updates::{self, CallWatch, Credits};
use crate::web::Searches;
use actix::System;
use quackd_ipc::halves;
use quackd_ipc::link::adopt;
use quackd_process::{CommandInput, SelfExe, complain, sweep_strays_blocking};
use quackd_protocol::environment::GIT_SETTINGS_VARIABLES;
use quackd_protocol::limits::MAX_CALLS_PER_SESSION;
use quackd_protocol::worker::{
    CallSpec, FRAME_PROTOCOL, FromWorker, Hello, SandboxReport, ToWorker, ToolFinished, ToolReport,
};
use quackd_protocol::{CallId, VERSION};
use quackd_sandbox::confine::PrivateNetwork;
use quackd_tools::{
    Attempts, Call, Confinement, Data, Output, ToolState, Toolbox, Watch, WorkerFiles,
};
use serde_json::value::{RawValue, to_raw_value};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longest wait for programs on terminals that were asked to end. With the sweep, it is shorter than the time after which
/// the supervisor kills a worker that was asked to exit, 5 s.
const HANG_UP_LIMIT: Duration = Duration::from_secs(2);

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
    let (attempts, held) = serve_network(&mut confined, pair)?;

    let run_dir = PathBuf::from(start.run_dir);
    let state = tool_state_blocking(&run_dir, &mut confined);
    let env = environment(start.env, confined.env, confined.is_confined);
    let policy = confined.policy.unwrap_or(start.sandbox.policy);
    let workspace = PathBuf::from(start.workspace);
    let confinement = Confinement::new(policy, confined.is_confined, start.label)
        .with_far(start.is_far)
        .with_read_only_mounts(confined.read_only_pins.clone())
        .with_profile(confined.profile)
        .with_copy(confined.copy.clone(), workspace.clone());

    let searches = Searches::default();
    // Before the first search of this process.
    confined.user_git.exclude();
    let other_name = confined.copy.is_some().then(|| workspace.clone());
    let toolbox = Rc::new(Toolbox {
        workspace: confined.copy.unwrap_or(workspace),
        other_name,
        run_dir,
        env,
        safe_mode: start.safe_mode,
        respect_ignore_files: start.respect_ignore_files,
        web: Some(searches.web(outbox.clone())),
        command_words: confined.command_words,
        read_only_words: confined.read_only_words,
        pins: confined.pins.into(),
        read_only_pins: confined.read_only_pins.into(),
        absent: confined.absent.into(),
        limits,
        group,
        spawn_thread: confined.spawn_thread.map(Arc::new),
        confinement: Arc::new(confinement),
        sandbox: confined.report.clone(),
        unsigned: confined.user_git.unsigned,
        attempts,
        state,
    });
    // Only sessions that have replaced files need the thread.
    if let Some(recovery) = toolbox.recovery() {
        drop(tokio::task::spawn_blocking(recovery));
    }

    let jobs = JobReporter::start(toolbox.jobs(), outbox.clone());
    let forwarding = terminals::start(toolbox.jobs(), &jobs, &outbox);
    let executor = ToolExecutor {
        jobs,
        forwarding,
        toolbox,
        outbox: outbox.clone(),
        in_flight: Rc::default(),
        credits: Credits::default(),
        searches,
        _exe: confined.exe,
        _port: held,
    };

    outbox.send(&hello(confined.pid, confined.report)).await;
    actix::spawn(async move {
        link::read(reading, |frame| executor.handle(frame)).await;
        // The futures of running calls and background jobs are dropped with the runtime, and each kills its command.
        System::current().stop();
    });
    Ok(())
}

fn hello(pid: u32, sandbox: SandboxReport) -> FromWorker {
    let version = VERSION.to_owned();
    FromWorker::Hello(Hello { proto: FRAME_PROTOCOL, version, pid, sandbox })
}

/// Serves the network of the worker. Returns the record of attempts to use it, and the socket that keeps the port of the
/// proxy from other programs.
fn serve_network(
    confined: &mut ConfinementResult,
    pair: Option<OwnedFd>,
) -> std::io::Result<(Arc<Attempts>, Option<TcpListener>)> {
    let mut private = confined.private_network.take();
    let held = private.as_mut().and_then(|network| network.held.take());
    let attempts = match private {
        Some(PrivateNetwork { counters, notes, .. }) => {
            // Sockets that could not be opened.
            notes.iter().for_each(|note| complain(note));
            confined.report.notes.extend(notes);
            Arc::new(Attempts::new(counters))
        }
        None => Arc::default(),
    };

    if let Some(pair) = pair {
        // A held port means that the loopback is the machine's, whose servers are not for commands.
        network::serve(pair, &attempts, held.is_none())?;
    }
    Ok((attempts, held))
}

/// Returns the state of the tools, before any command runs.
fn tool_state_blocking(run_dir: &Path, confined: &mut ConfinementResult) -> ToolState {
    let files = WorkerFiles {
        private_home: confined.private_home.take(),
        has_private_tmp: confined.has_private_tmp,
        sources: confined.sources.take(),
        known: confined.known.take(),
        terminal: confined.terminal.take(),
    };
    ToolState::new_blocking(run_dir, files)
}

/// Returns the environment of commands: the supervisor's variables, replaced by those of the confinement.
fn environment(
    of_supervisor: Vec<(String, String)>,
    inside: Vec<(&'static str, String)>,
    is_confined: bool,
) -> Vec<(String, String)> {
    let is_left_out = |name: &str| {
        is_confined && GIT_SETTINGS_VARIABLES.contains(&name)
            || inside.iter().any(|(other, _)| *other == name)
    };
    let mut all = of_supervisor;
    all.retain(|(name, _)| !is_left_out(name));
    all.extend(inside.into_iter().map(|(name, value)| (name.to_owned(), value)));
    all
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
    /// Passes on the messages of terminals.
    forwarding: JoinHandle<()>,
    /// Keeps the executable of the wrapper open.
    _exe: Option<SelfExe>,
    /// Keeps other programs from the port of the proxy.
    _port: Option<TcpListener>,
}

impl ToolExecutor {
    /// Handles a frame.
    fn handle(&self, frame: ToWorker) {
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
            ToWorker::Terminal { terminal, message } => {
                // The worker may have forgotten the terminal since the supervisor sent the message.
                if let Some(terminal) = self.toolbox.jobs().terminal(&terminal) {
                    terminal.handle(message);
                }
            }
            ToWorker::NetworkMode { mode } => self.toolbox.confinement.set_network(mode),
            ToWorker::Shutdown {} => self.shut_down(),
            ToWorker::Start(_) | ToWorker::Template {} => {
                let text = "a second start frame was ignored".to_owned();
                self.outbox.offer(&FromWorker::Warning { text });
            }
        }
    }

    /// Lets the programs on terminals end themselves, then ends the process.
    fn shut_down(&self) {
        // The supervisor reports the reason of the shutdown as their end.
        self.forwarding.abort();
        let jobs = self.toolbox.jobs().clone();
        actix::spawn(async move {
            // The exit of this process kills the programs that still run.
            timeout(HANG_UP_LIMIT, jobs.hang_up()).await.ok();
            System::current().stop();
        });
    }

    fn admit(&self, call: CallSpec) {
        let (outbox, jobs) = (self.outbox.clone(), self.jobs.clone());
        let in_flight = Rc::clone(&self.in_flight);
        let mut calls = self.in_flight.borrow_mut();
        if let Some(refusal) = refusal(&calls, &call.call_id) {
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
                    spec: call,
                    cancel,
                    watch: Some(watch),
                    flow: stream.as_ref().map(Streaming::flow),
                    input: input.clone(),
                },
            );
            let output = tokio::select! {
                biased;
                output = running => output,
                never = input::request(input.as_ref(), &id, &outbox) => match never {},
                never = streaming::forward(stream.as_ref(), &id, &outbox) => match never {},
            };

            in_flight.borrow_mut().remove(&id);
            // Before the answer, so that the supervisor never takes a worker with a new job for idle.
            jobs.report().await;
            outbox.send(&finished(id, output, stream)).await;
        });
    }
}

/// Returns the error for a call that must not start. The supervisor applies both rules before it sends a call, so this
/// guards only against errors in the supervisor.
fn refusal(running: &HashMap<CallId, InFlight>, id: &CallId) -> Option<Output> {
    if running.contains_key(id) {
        return Some(Output::error("A call with this id is already running"));
    }
    (MAX_CALLS_PER_SESSION <= running.len()).then(|| {
        Output::error(format_args!(
            "Session is busy: {MAX_CALLS_PER_SESSION} calls are running, and it may have no more; try again when one \
             has ended"
        ))
    })
}

fn finished(call_id: CallId, output: Output, stream: Option<Streaming>) -> FromWorker {
    let shown = output.shown().and_then(|shown| to_raw_value(&shown).ok());
    let Output { text, report, data, update, closing } = output;
    let closing = closing.filter(|_| stream.is_some());
    let closing = closing.and_then(|closing| to_raw_value(&closing).ok());
    let (text, report) = match to_raw_value(&text) {
        Ok(text) => (text, report),
        // A string always has a JSON form. If it ever fails, the call still gets an answer.
        Err(_) => (RawValue::NULL.to_owned(), ToolReport { is_error: true, ..report }),
    };
    FromWorker::ToolFinished(ToolFinished {
        text,
        shown,
        update: update.and_then(|update| updates::frame(&call_id, update)),
        output: stream.map(|stream| stream.rest()).unwrap_or_default(),
        closing,
        report,
        data: data.map(Data::into_json),
        call_id,
    })
}
