//! Serves Pi's three pipes and the control channel. Everything runs on one thread, with one task per stream, so that
//! no stream waits for another: a flood on one pipe delays neither a command nor the report of Pi's exit.

use crate::dialect::{self, PiEvent, PiLine};
use crate::pending::Pending;
use crate::stage0::Stage0Output;
use crate::turn::HeldTurnEnd;
use crate::version;
use bytes::Bytes;
use futures_util::StreamExt;
use quackd_ipc::frames::{self, Decoded};
use quackd_ipc::halves::{self, ReadingHalf};
use quackd_ipc::lines::{Line, LineReader};
use quackd_ipc::link;
use quackd_process::{
    Command, Exit, Group, Limits, OomScore, Piped, Pipes, SpawnThread, launch_piped,
};
use quackd_protocol::agent::{
    AGENT_FRAME_PROTOCOL, AgentAnswer, AgentCommand, AgentExit, FromPi, OtherCommand, PiStart,
    TO_AGENT_TAGS, ToAgent, UiAnswer,
};
use quackd_protocol::limits::{MAX_LINE_BYTES, PI_STDERR_BYTES};
use quackd_protocol::worker::EXIT_TERMINAL;
use serde::Serialize;
use serde_json::value::RawValue;
use std::cell::{Cell, RefCell};
use std::io;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

/// Maximum number of frames waiting to be written to the supervisor. If the queue is full, Pi waits.
const OUTBOX_FRAMES: usize = 64;

/// Maximum number of lines waiting to be written to Pi.
const STDIN_LINES: usize = 32;

/// Time for Pi to exit after its stdin is closed. Then it gets TERM, and KILL after the same time again.
const LEAVE: Duration = Duration::from_millis(1500);

/// Time limit for forwarding the rest of the pipes after Pi has exited.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// Time limit for sending the last frames.
const LAST_FRAMES: Duration = Duration::from_secs(1);

/// Time for the exit of Pi to be noticed after its pipe broke.
const END_NEWS: Duration = Duration::from_millis(100);

/// Interval for reaping orphans below Pi.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of warnings about lines outside of Pi's protocol.
const MAX_WARNINGS: u32 = 20;

/// Runs Pi until it exits.
pub(crate) fn run(started: Stage0Output) -> io::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = LocalSet::new().block_on(&runtime, serve(started));
    // The monitor kills processes that still hang.
    runtime.shutdown_background();
    code
}

/// Sends frames to the supervisor.
#[derive(Debug, Clone)]
struct FrameSender(mpsc::Sender<Bytes>);

impl FrameSender {
    /// Queues `frame`. Waits while the supervisor does not read.
    async fn send(&self, frame: &FromPi) {
        match frames::encode(frame) {
            // If the supervisor has exited, this process exits too.
            Ok(body) => drop(self.0.send(body).await),
            Err(error) => quackd_process::complain(&format!("a frame was dropped: {error}")),
        }
    }

    /// Queues `frame` in a separate task, so that the caller need not wait for room. Only for answers to the
    /// supervisor, whose number is limited by its requests.
    fn send_soon(&self, frame: FromPi) {
        let outbox = self.clone();
        spawn_local(async move { outbox.send(&frame).await });
    }
}

async fn serve(Stage0Output { control, start, group }: Stage0Output) -> io::Result<ExitCode> {
    let (reading, writing) = halves::split(link::adopt(control)?)?;
    let (outbox, queue) = mpsc::channel(OUTBOX_FRAMES);
    let outbox = FrameSender(outbox);
    let written = spawn_local(frames::write_queued(queue, writing));
    let mut command = command(&start, group);

    if start.only_version {
        let answer = match version::report(&start, &command).await {
            Ok(version) => FromPi::Version { version },
            Err(error) => FromPi::CannotStart { reason: chain(&error) },
        };
        outbox.send(&answer).await;
        // The writer ends with its last sender.
        drop(outbox);
        timeout(LAST_FRAMES, written).await.ok();
        return Ok(ExitCode::SUCCESS);
    }

    let launched = match version::settle(&start, &mut command).await {
        Ok(()) => launch_piped(&command).map_err(|error| chain(&error)),
        Err(error) => Err(chain(&error)),
    };

    // Both contain the user's keys.
    drop((start, command));
    let (mut pi, pipes) = match launched {
        Ok(launched) => launched,
        Err(reason) => {
            outbox.send(&FromPi::CannotStart { reason }).await;
            drop(outbox);
            timeout(LAST_FRAMES, written).await.ok();
            return Ok(ExitCode::from(EXIT_TERMINAL));
        }
    };

    let (proto, pid, pi_pid) = (AGENT_FRAME_PROTOCOL, std::process::id(), pi.pid());
    outbox.send(&FromPi::Hello { proto, pid, pi_pid }).await;
    let session = PiPipes::start(pipes, outbox.clone())?;
    if session.watch(&mut pi, reading).await == ServeEnd::Alone {
        // The supervisor has exited, so no report is sent. Dropping Pi kills it.
        return Ok(ExitCode::SUCCESS);
    }

    let exit = pi.end()?;
    let stderr_tail = session.last_output().await;

    let (code, signal) = match exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
    };
    let end = FromPi::Ended(AgentExit { code, signal, stderr_tail });
    // A supervisor that does not read in time sees the closed channel instead.
    timeout(LAST_FRAMES, outbox.send(&end)).await.ok();
    drop(outbox);
    timeout(LAST_FRAMES, written).await.ok();
    Ok(ExitCode::SUCCESS)
}

fn command(start: &PiStart, group: Option<Arc<Group>>) -> Command {
    Command {
        program: start.program.clone().into(),
        args: start.args.iter().map(Into::into).collect(),
        cwd: start.workspace.clone().into(),
        env: start.env.clone(),
        deadline: Duration::MAX,
        grace: Duration::ZERO,
        abort_grace: Duration::ZERO,
        leave: Duration::ZERO,
        cancel: tokio_util::sync::CancellationToken::new(),
        tag: format!("pi-{}", start.session),
        spill: None,
        live: None,
        flow: None,
        input: None,
        terminal: None,
        limits: Limits { processes: start.processes, ..Limits::default() },
        group,
        spawn_thread: Some(Arc::new(SpawnThread::new(|| Ok(()), OomScore::open().ok()))),
    }
}

/// Reason for the end of [`PiPipes::watch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServeEnd {
    /// Pi has exited.
    Ended,
    /// The supervisor has exited.
    Alone,
}

/// Pi's pipes and the tasks that serve them.
#[derive(Debug)]
struct PiPipes {
    outbox: FrameSender,
    pending: Rc<RefCell<Pending>>,
    /// Queue of lines for Pi. `None` once Pi's stdin is to be closed.
    stdin: RefCell<Option<mpsc::Sender<Vec<u8>>>>,
    stdout: RefCell<JoinHandle<()>>,
    stderr: RefCell<JoinHandle<()>>,
    tail: Rc<RefCell<Vec<u8>>>,
}

impl PiPipes {
    fn start(pipes: Pipes, outbox: FrameSender) -> io::Result<Self> {
        let pending = Rc::<RefCell<Pending>>::default();
        let tail = Rc::<RefCell<Vec<u8>>>::default();

        let (stdin, lines) = mpsc::channel(STDIN_LINES);
        let writer = pipe::Sender::from_owned_fd(pipes.stdin)?;
        spawn_local(write_lines(lines, writer, outbox.clone()));

        let stdout = pipe::Receiver::from_owned_fd(pipes.stdout)?;
        let reader = Reader {
            outbox: outbox.clone(),
            pending: Rc::clone(&pending),
            turn: HeldTurnEnd::default(),
            warnings: Cell::new(0),
        };
        let stdout = spawn_local(reader.read(stdout));

        let stderr = pipe::Receiver::from_owned_fd(pipes.stderr)?;
        let stderr = spawn_local(keep_tail(stderr, Rc::clone(&tail)));

        Ok(Self {
            outbox,
            pending,
            stdin: RefCell::new(Some(stdin)),
            stdout: RefCell::new(stdout),
            stderr: RefCell::new(stderr),
            tail,
        })
    }

    /// Serves the control channel until Pi exits or the channel is closed.
    async fn watch(&self, pi: &mut Piped, reading: ReadingHalf) -> ServeEnd {
        let mut control = frames::reader(reading);
        let mut reaping = interval(REAP_INTERVAL);
        reaping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leaving = None;
        loop {
            let due = leaving.map(|(at, _)| at);
            tokio::select! {
                // Pi's exit is seen before further frames.
                biased;
                () = pi.exited() => return ServeEnd::Ended,
                frame = control.next() => {
                    let Some(Ok(body)) = frame else { return ServeEnd::Alone };
                    match frames::decode::<ToAgent>(&body, TO_AGENT_TAGS) {
                        Ok(Decoded::Known(ToAgent::Shutdown {})) => {
                            // Pi exits when its input ends. A signal follows if it does not.
                            self.stdin.replace(None);
                            leaving.get_or_insert_with(|| (Instant::now() + LEAVE, false));
                        }
                        Ok(Decoded::Known(frame)) => self.obey(frame),
                        Ok(Decoded::Unknown(tag)) => {
                            quackd_process::complain(&format!("skipped a `{tag}` frame"));
                        }
                        Err(error) => {
                            quackd_process::complain(&error.to_string());
                            return ServeEnd::Alone;
                        }
                    }
                }
                () = at(due) => {
                    let was_terminated = leaving.is_some_and(|(_, is_terminated)| is_terminated);
                    if was_terminated { pi.kill() } else { pi.terminate() }
                    leaving = Some((Instant::now() + LEAVE, true));
                }
                _ = reaping.tick() => pi.reap_orphans(),
            }
        }
    }

    fn obey(&self, frame: ToAgent) {
        match frame {
            ToAgent::Command { number, command } => {
                self.pending.borrow_mut().sent(number, command.name());
                let written = match &command {
                    AgentCommand::Other(other) => self.write(&other_request(number, other)),
                    command => self.write(&request(number, command)),
                };
                if let Err(error) = written {
                    let answer =
                        AgentAnswer { number, success: false, error: Some(error), data: None };
                    self.pending.borrow_mut().answered(Some(number), command.name());
                    self.outbox.send_soon(FromPi::Answer(answer));
                }
            }
            ToAgent::UiAnswer(answer) => {
                if let Err(error) = self.write(&ui_response(&answer)) {
                    quackd_process::complain(&error);
                }
            }
            ToAgent::Ping { seq } => self.outbox.send_soon(FromPi::Pong { seq }),
            ToAgent::Start(_) | ToAgent::Shutdown {} => {}
            // Only quackd's own agent sends requests and calls tools of the session.
            ToAgent::StartAgent(_)
            | ToAgent::Model { .. }
            | ToAgent::Models(_)
            | ToAgent::ToolDone(_) => {}
        }
    }

    /// Queues a line for Pi.
    fn write<T: Serialize>(&self, line: &T) -> Result<(), String> {
        let mut line = serde_json::to_vec(line).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let stdin = self.stdin.borrow();
        let queued = stdin.as_ref().map(|stdin| stdin.try_send(line));

        match queued {
            Some(Ok(())) => Ok(()),
            Some(Err(mpsc::error::TrySendError::Full(_))) => {
                Err("Pi does not read its commands".to_owned())
            }
            Some(Err(mpsc::error::TrySendError::Closed(_))) | None => {
                Err("Failed to write to Pi process stdin".to_owned())
            }
        }
    }

    /// Waits for the rest of the pipes. Returns the tail of Pi's stderr.
    async fn last_output(self) -> String {
        let Self { stdout, stderr, tail, .. } = self;
        for task in [stdout, stderr] {
            let mut task = task.into_inner();
            if timeout(LAST_OUTPUT, &mut task).await.is_err() {
                task.abort();
            }
        }
        let tail = tail.borrow();
        String::from_utf8_lossy(&tail).into_owned()
    }
}

/// Sleeps until `due`. Never returns for `None`.
async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[derive(Serialize)]
struct PiRequest<'a> {
    id: String,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

/// Another command with the worker's own id. A command that is no object, which the supervisor never sends, is refused by
/// Pi.
fn other_request(number: u64, other: &OtherCommand) -> serde_json::Map<String, serde_json::Value> {
    let read: Result<serde_json::Map<_, _>, _> = serde_json::from_str(other.body.get());
    let mut fields = read.unwrap_or_default();
    fields.insert("id".to_owned(), dialect::id_of(number).into());
    fields
}

fn request(number: u64, command: &AgentCommand) -> PiRequest<'_> {
    let message = match command {
        AgentCommand::Prompt { message, .. } => Some(message.as_str()),
        AgentCommand::GetState
        | AgentCommand::Abort
        | AgentCommand::AbortBash
        | AgentCommand::Other(_) => None,
    };
    PiRequest { id: dialect::id_of(number), kind: command.name(), message }
}

#[derive(Serialize)]
struct UiResponse<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    answer: &'a UiAnswer,
}

fn ui_response(answer: &UiAnswer) -> UiResponse<'_> {
    UiResponse { kind: "extension_ui_response", answer }
}

/// Writes lines to Pi until the queue is closed. Reports if writing fails while Pi still runs.
async fn write_lines(
    mut lines: mpsc::Receiver<Vec<u8>>,
    mut stdin: pipe::Sender,
    outbox: FrameSender,
) {
    while let Some(line) = lines.recv().await {
        if let Err(error) = stdin.write_all(&line).await {
            // A Pi that has just exited also fails here. Then its exit is reported, and this failure is not.
            sleep(END_NEWS).await;
            let reason = error.to_string();
            outbox.send(&FromPi::StdinFailed { reason }).await;
            return;
        }
    }
}

/// Reads Pi's stderr and keeps its last bytes.
async fn keep_tail(mut stderr: pipe::Receiver, tail: Rc<RefCell<Vec<u8>>>) {
    let mut chunk = [0_u8; 16 * 1024];
    while let Ok(n @ 1..) = stderr.read(&mut chunk).await {
        let mut tail = tail.borrow_mut();
        tail.extend_from_slice(chunk.get(..n).unwrap_or_default());
        let excess = tail.len().saturating_sub(PI_STDERR_BYTES);
        tail.drain(..excess);
    }
}

/// Reads Pi's stdout.
struct Reader {
    outbox: FrameSender,
    pending: Rc<RefCell<Pending>>,
    turn: HeldTurnEnd,
    warnings: Cell<u32>,
}

impl Reader {
    async fn read(mut self, stdout: pipe::Receiver) {
        let mut lines = LineReader::new(stdout, MAX_LINE_BYTES);
        loop {
            let due = self.turn.due().map(Instant::from_std);
            tokio::select! {
                biased;
                () = at(due) => {
                    let released = self.turn.release();
                    self.tell(released).await;
                }
                line = lines.next() => match line {
                    Ok(Some(Line::Text(line))) => {
                        let line = String::from_utf8_lossy(&line);
                        match dialect::read(&line) {
                            Some(output) => self.pass(output).await,
                            None if line.trim().is_empty() => {}
                            None => self.warn("Pi printed a line that is none of its protocol").await,
                        }
                    }
                    Ok(Some(Line::TooLong)) => {
                        self.warn("Pi printed a line that is too long; it was skipped").await;
                    }
                    Ok(None) | Err(_) => break,
                },
            }
        }

        let released = self.turn.release();
        self.tell(released).await;
    }

    async fn pass(&mut self, output: PiLine) {
        match output {
            PiLine::Event(event) => {
                let events = self.turn.pass(event, std::time::Instant::now());
                self.tell(events).await;
            }
            PiLine::Dialog { id, timeout_ms, data } => {
                if let Some(data) = raw(data) {
                    self.outbox.send(&FromPi::Dialog { id, timeout_ms, data }).await;
                }
            }
            PiLine::Response { number, command, success, error, data } => {
                let number = self.pending.borrow_mut().answered(number, &command);
                // No command of the supervisor waits for this answer.
                let Some(number) = number else { return };
                let data = data.and_then(raw);
                let answer = AgentAnswer { number, success, error, data };
                self.outbox.send(&FromPi::Answer(answer)).await;
            }
        }
    }

    async fn tell(&self, events: impl IntoIterator<Item = PiEvent>) {
        for PiEvent { name, data, .. } in events {
            if let Some(data) = raw(data) {
                self.outbox.send(&FromPi::Event { name, data }).await;
            }
        }
    }

    async fn warn(&self, text: &str) {
        let n_sent = self.warnings.get();
        if n_sent < MAX_WARNINGS {
            self.warnings.set(n_sent + 1);
            self.outbox.send(&FromPi::Warning { text: text.to_owned() }).await;
        }
    }
}

/// Returns the text as raw JSON. Never `None` for text composed of JSON.
fn raw(text: String) -> Option<Box<RawValue>> {
    RawValue::from_string(text).ok()
}

/// An error with its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_lines_as_upstream_writes_them() {
        let line = |command| serde_json::to_string(&request(3, &command)).unwrap();
        assert_eq!(line(AgentCommand::GetState), r#"{"id":"q3","type":"get_state"}"#);
        let prompt = AgentCommand::Prompt { message: "a\u{2028}\n".into(), cwd: String::new() };
        assert_eq!(
            line(prompt),
            "{\"id\":\"q3\",\"type\":\"prompt\",\"message\":\"a\u{2028}\\n\"}"
        );
        let answer =
            UiAnswer { id: "u".into(), confirmed: Some(true.into()), ..UiAnswer::default() };
        assert_eq!(
            serde_json::to_string(&ui_response(&answer)).unwrap(),
            r#"{"type":"extension_ui_response","id":"u","confirmed":true}"#
        );
    }
}
