//! The link process: `quack link`, which the supervisor starts in place of a far session's worker.
//!
//! It runs unconfined as the user, because the engine's client needs the user's keys. It interprets nothing that commands
//! of the session print: frames are bytes, except for their length and their tag.

use crate::client::{Client, first_line_of};
use crate::connection::{Connection, Event};
use crate::error::LinkError;
use crate::frame_guard::framed;
use crate::handshake::{Hello, PROTO, greet, say_hello};
use crate::local::Local;
use crate::packet::FarExit;
use crate::program::Program;
use quackd_ipc::first::read_first_blocking;
use quackd_ipc::{frames, link};
use quackd_process::{
    Exit, Role, abort_on_panic, become_session_leader, complain, exit_as, harden,
    rank_above_parent, set_process_name, split_off_forwarding_monitor,
};
use quackd_protocol::credentials::Credentials;
use quackd_protocol::far::{FarStart, LINK_REPORT_SECONDS, LinkState};
use quackd_protocol::worker::{EXIT_TERMINAL, FromWorker, Start, TO_WORKER_TAGS, ToWorker};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

/// Maximum size of the first frame, as in a worker.
const MAX_FIRST_FRAME: usize = 1024 * 1024;

/// Time for the monitor to wait for this process after the supervisor has exited or stops it: the farewell, also over
/// another link, the client's exit and `stop`.
const MONITOR_PATIENCE: Duration = Duration::from_secs(15);

/// Time for the farewell, for the client's exit after it, and for the last frames.
const FAREWELL: Duration = Duration::from_secs(1);
const LAST_FRAMES: Duration = Duration::from_secs(2);

/// Time to make another link for the farewell, if the link is lost.
const LAST_RESUME: Duration = Duration::from_secs(5);

/// Time for the far side to start its worker: an earlier one may have to end, and a login shell may be slow.
const STARTING: Duration = Duration::from_secs(60);

/// Interval of questions why the worker does not run yet.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Time between two attempts to resume, and for one of them.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const RESUME_TIME: Duration = Duration::from_secs(30);

/// Longest grace and longest wait for a place, whatever the first frame says.
const MAX_GRACE: Duration = Duration::from_secs(3 * 60 * 60);
const MAX_QUEUE: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs as the link process. Called by `quack link` before any other code in the process.
///
/// In the first process that enters (the supervisor's direct child) this never returns: that process becomes the monitor.
#[must_use]
pub fn main() -> ExitCode {
    abort_on_panic();
    match enter().and_then(|(control, start)| serve(control, start)) {
        // The supervisor sees the exit of the far worker, as it sees that of a local one.
        Ok(exit) => exit_as(exit),
        Err(error) => {
            complain(&format!("cannot link: {error}"));
            ExitCode::from(EXIT_TERMINAL)
        }
    }
}

/// Runs the single-threaded part of the start, as in a session's worker.
fn enter() -> io::Result<(OwnedFd, Start)> {
    split_off_forwarding_monitor(MONITOR_PATIENCE)?;
    set_process_name("quack-link");
    // If memory runs out, this process ends before the supervisor. A hidden process cannot write its own rank.
    rank_above_parent().ok();
    harden(Role::Link)?;
    // The client must not ask on the terminal on which the daemon was started.
    become_session_leader();
    let control = link::take_control_channel()?;
    match read_first_blocking(control.as_fd(), MAX_FIRST_FRAME, TO_WORKER_TAGS)? {
        ToWorker::Start(start) => Ok((control, *start)),
        _other => Err(io::Error::other("another message came first")),
    }
}

fn serve(control: OwnedFd, start: Start) -> io::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let exit = runtime.block_on(async {
        let mut link = Link::new(Local::to_supervisor(link::adopt(control)?), start)?;
        let mut term = signal(SignalKind::terminate())?;
        let outcome = tokio::select! {
            outcome = link.run() => outcome,
            _ = term.recv() => Outcome::Closed,
        };
        Ok::<_, io::Error>(link.finish(outcome).await)
    });
    // The lookup of a host's name, for example, may still block a thread.
    runtime.shutdown_background();
    exit
}

/// The end of a link.
#[derive(Debug)]
enum Outcome {
    /// The far worker has exited.
    Exited(FarExit),
    /// The supervisor has closed the channel, or stops this process.
    Closed,
    /// The link is lost.
    Lost(String),
    /// The link cannot be made. Another start cannot help.
    Unusable(String),
}

/// Reason why one handshake did not succeed.
#[derive(Debug)]
enum Failure {
    /// The supervisor has closed the channel.
    Closed,
    Link(LinkError),
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

/// The session, its channel, and what runs for it now.
struct Link {
    far: FarStart,
    program: Option<Program>,
    session: String,
    token: String,
    local: Local,
    client: Option<Client>,
    connection: Option<Connection>,
    /// Whether the far side has a worker that waits for the end of the grace while the link is lost.
    was_linked: bool,
}

impl Link {
    fn new(mut local: Local, mut start: Start) -> io::Result<Self> {
        let far = start.far.take().ok_or_else(|| io::Error::other("no far workspace"))?;
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(io::Error::other)?;

        keep_secrets(&mut start);
        let session = start.session_id.to_string();
        let first = frames::encode(&ToWorker::Start(Box::new(start))).map_err(io::Error::other)?;
        local.window.push(&framed(&first));

        Ok(Self {
            far: *far,
            program: None,
            session,
            token: token.iter().map(|byte| format!("{byte:02x}")).collect(),
            local,
            client: None,
            connection: None,
            was_linked: false,
        })
    }

    async fn run(&mut self) -> Outcome {
        match self.prepare().await {
            Ok(()) => {}
            Err(Failure::Closed) => return Outcome::Closed,
            Err(Failure::Link(error)) => return Outcome::Lost(error.to_string()),
        }
        // A link process that was killed has stopped nothing.
        self.stop().await;
        let queue = Duration::from_millis(self.far.queue_ms).min(MAX_QUEUE);
        match self.connect(None, queue).await {
            Ok(()) => {}
            Err(Failure::Closed) => return Outcome::Closed,
            Err(Failure::Link(error @ LinkError::Version { .. })) => {
                return Outcome::Unusable(format!("{}: {error}", self.far.place));
            }
            Err(Failure::Link(error)) => return Outcome::Lost(error.to_string()),
        }

        let (begun, report) = (Instant::now(), Duration::from_secs(LINK_REPORT_SECONDS));
        loop {
            let (Some(connection), Some(client)) = (&mut self.connection, &mut self.client) else {
                return Outcome::Lost("no connection".to_owned());
            };
            let is_starting = self.local.window.received() == 0;
            let event = tokio::select! {
                event = connection.carry(&mut self.local, None) => event,
                () = sleep(report), if is_starting => {
                    if self.local.window.received() != 0 {
                        // The worker's first frame has arrived.
                        continue;
                    }
                    if STARTING < begun.elapsed() {
                        return Outcome::Lost(format!("no answer for {} s", STARTING.as_secs()));
                    }
                    self.report_start().await;
                    continue;
                }
                () = client.gone() => Event::Lost("the engine's client ended".to_owned()),
            };
            let reason = match event {
                Event::Ended(exit) => return Outcome::Exited(exit),
                Event::LocalEnded => return Outcome::Closed,
                Event::Lost(reason) => reason,
                Event::Broken(violation) => return Outcome::Lost(violation.to_string()),
                Event::Left => return Outcome::Lost("the far side closed the link".to_owned()),
            };
            if !self.can_resume() {
                return Outcome::Lost(reason);
            }
            if let Err(outcome) = self.resume(reason).await {
                return outcome;
            }
        }
    }

    /// Reports that the worker does not run yet.
    async fn report_start(&mut self) {
        let reason = format!("starting the worker on {}", self.far.place);
        self.local.insert(&FromWorker::Link(LinkState::Waiting { reason }));
        self.local.flush(LAST_FRAMES).await;
    }

    fn can_resume(&self) -> bool {
        self.far.grace_ms != 0 && !self.far.resume.is_empty()
    }

    /// Opens the program, and completes the argument lists. A disk may be slow, so the supervisor gets reports.
    async fn prepare(&mut self) -> Result<(), Failure> {
        self.report_start().await;
        let far = self.far.clone();
        let mut preparing = tokio::task::spawn_blocking(move || prepared_blocking(far));
        let report = Duration::from_secs(LINK_REPORT_SECONDS);
        let prepared = loop {
            tokio::select! {
                prepared = &mut preparing => break prepared,
                () = self.local.until_ended() => return Err(Failure::Closed),
                () = sleep(report) => self.report_start().await,
            }
        };
        let prepared = prepared.map_err(|error| LinkError::Io(io::Error::other(error)))?;
        (self.far, self.program) = prepared?;
        Ok(())
    }

    /// Returns the answer of this process in a handshake.
    fn hello(&self) -> Hello {
        Hello {
            proto: PROTO,
            session: self.session.clone(),
            token: self.token.clone(),
            grace_ms: self.far.grace_ms,
            received: self.local.window.received(),
            copy: None,
        }
    }

    /// Makes a link within `limit`: the first one, or one that resumes a link that was lost for the reason `lost`. The
    /// supervisor gets the state every [`LINK_REPORT_SECONDS`].
    async fn connect(&mut self, lost: Option<&str>, limit: Duration) -> Result<(), Failure> {
        let hello = self.hello();
        let Self { far, program, local, client, connection, was_linked, .. } = self;
        let words = if lost.is_some() { &far.resume } else { &far.start };
        let (started, pipes) = Client::start(words, &far.env)?;
        *client = Some(started);

        let (mut from, mut to) = (pipes.stdout, pipes.stdin);
        let mut handshake = pin!(async move {
            let greeting = greet(&mut from, &mut to, program.as_mut()).await?;
            say_hello(&mut to, &hello).await?;
            let received = greeting.ready.received;
            Ok::<_, LinkError>((Connection::new(from, to, greeting.rest), received))
        });

        let poll: &[String] = if lost.is_some() { &[] } else { &far.poll };
        let mut asking = pin!(next_reason(poll, &far.env));
        let mut reason = match lost {
            Some(lost) => lost.to_owned(),
            None => format!("connecting to {}", far.place),
        };
        let mut reports = interval(Duration::from_secs(LINK_REPORT_SECONDS));
        reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let until = Instant::now() + limit;
        loop {
            tokio::select! {
                made = &mut handshake => {
                    let (made, received) = made?;
                    local.window.resume(received).map_err(|violation| {
                        LinkError::Refused(violation.to_string())
                    })?;
                    (*connection, *was_linked) = (Some(made), true);
                    return Ok(());
                }
                () = local.until_ended() => return Err(Failure::Closed),
                answer = &mut asking => {
                    reason = answer;
                    asking.set(next_reason(poll, &far.env));
                    reports.reset_immediately();
                }
                _ = reports.tick() => {
                    let reason = reason.clone();
                    local.insert(&FromWorker::Link(match lost {
                        Some(_) => LinkState::Interrupted { reason },
                        None => LinkState::Waiting { reason },
                    }));
                }
                () = sleep_until(until) => return Err(LinkError::TimedOut(limit.as_secs()).into()),
            }
        }
    }

    /// Resumes the link that was lost for this reason, until the grace ends.
    async fn resume(&mut self, reason: String) -> Result<(), Outcome> {
        let grace = Duration::from_millis(self.far.grace_ms).min(MAX_GRACE);
        let until = Instant::now() + grace;
        let mut last = reason.clone();
        loop {
            let words = self.drop_client(Duration::ZERO).await;
            if !words.is_empty() {
                last = words;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Outcome::Lost(last));
            }

            match self.connect(Some(&reason), left.min(RESUME_TIME)).await {
                Ok(()) => {
                    self.local.insert(&FromWorker::Link(LinkState::Resumed {}));
                    return Ok(());
                }
                Err(Failure::Closed) => return Err(Outcome::Closed),
                // The worker does not run any longer, or is another one.
                Err(Failure::Link(error @ (LinkError::Refused(_) | LinkError::Version { .. }))) => {
                    return Err(Outcome::Lost(format!("{reason}; {error}")));
                }
                Err(Failure::Link(error)) => last = error.to_string(),
            }
            tokio::select! {
                () = sleep(RETRY_INTERVAL) => {}
                () = self.local.until_ended() => return Err(Outcome::Closed),
            }
        }
    }

    /// Makes a link only to end the far worker.
    async fn leave_anew(&mut self) -> Result<(), LinkError> {
        self.drop_client(Duration::ZERO).await;
        let (client, mut pipes) = Client::start(&self.far.resume, &self.far.env)?;
        self.client = Some(client);
        let greeting = greet(&mut pipes.stdout, &mut pipes.stdin, self.program.as_mut()).await?;
        say_hello(&mut pipes.stdin, &self.hello()).await?;
        Connection::new(pipes.stdout, pipes.stdin, greeting.rest).leave(FAREWELL).await;
        Ok(())
    }

    /// Ends the client. Returns its last words.
    async fn drop_client(&mut self, patience: Duration) -> String {
        // Closes its pipes, so that it exits by itself.
        self.connection = None;
        match self.client.take() {
            Some(client) => client.end(patience).await,
            None => String::new(),
        }
    }

    /// Ends what an engine has left. A failure usually means that it has left nothing.
    async fn stop(&self) {
        if !self.far.stop.is_empty() {
            first_line_of(&self.far.stop, &self.far.env).await;
        }
    }

    /// Ends everything, and reports the outcome to the supervisor. Returns the exit of this process.
    async fn finish(mut self, outcome: Outcome) -> Exit {
        if matches!(outcome, Outcome::Exited(_)) {
            // Before the farewell, as long as the far side would repeat its bytes.
            self.local.flush(LAST_FRAMES).await;
        }
        // Also after a violation: a far side with a grace would wait.
        if let Some(connection) = self.connection.take() {
            connection.leave(FAREWELL).await;
        } else if matches!(outcome, Outcome::Closed) && self.was_linked && self.can_resume() {
            // Otherwise the far worker runs until the grace has passed. Without a link, it still does.
            timeout(LAST_RESUME, self.leave_anew()).await.ok();
        }
        let words = self.drop_client(FAREWELL).await;
        self.stop().await;

        let (frame, exit) = match outcome {
            Outcome::Exited(FarExit::Code(code)) => return Exit::Code(code),
            Outcome::Exited(FarExit::Signal(signal)) => return ending(signal),
            Outcome::Closed => return Exit::Code(0),
            Outcome::Lost(reason) => {
                let is_known = words.is_empty() || reason.contains(&words);
                let reason = if is_known { reason } else { format!("{reason}: {words}") };
                (FromWorker::Link(LinkState::Lost { reason }), Exit::Code(1))
            }
            Outcome::Unusable(reason) => {
                (FromWorker::CannotStart { reason }, Exit::Code(EXIT_TERMINAL.into()))
            }
        };
        self.local.insert(&frame);
        self.local.flush(LAST_FRAMES).await;
        // The supervisor closes the channel when it has read the frame. The exit could overtake it.
        timeout(LAST_FRAMES, self.local.until_ended()).await.ok();
        exit
    }
}

/// Opens the program, and completes the argument lists.
fn prepared_blocking(mut far: FarStart) -> Result<(FarStart, Option<Program>), LinkError> {
    let Some(path) = &far.program else { return Ok((far, None)) };
    let mut program = Program::open_blocking(Path::new(path))?;
    let FarStart { start, resume, stop, poll, .. } = &mut far;
    for list in [start, resume, stop, poll] {
        program.fill_blocking(list)?;
    }
    Ok((far, Some(program)))
}

/// Removes what must not leave this machine. The far side replaces the rest. It reads the names of the variables.
fn keep_secrets(start: &mut Start) {
    start.far = None;
    start.credentials = Credentials::default();
    start.env.iter_mut().for_each(|(_, value)| value.clear());
    let policy = &mut start.sandbox.policy;
    (policy.writable_roots, policy.hidden) = (Vec::new(), Vec::new());
}

/// Returns the exit of this process for a signal. A signal that stops or continues a process ends none.
fn ending(signal: i32) -> Exit {
    let stops = [
        rustix::process::Signal::STOP,
        rustix::process::Signal::TSTP,
        rustix::process::Signal::TTIN,
        rustix::process::Signal::TTOU,
    ];
    let is_stop = stops.iter().any(|stop| stop.as_raw() == signal);
    if is_stop || !(1..128).contains(&signal) { Exit::Code(1) } else { Exit::Signal(signal) }
}

/// Waits for the next line of the engine about the queue. Never resolves without a command.
async fn next_reason(poll: &[String], env: &[(String, String)]) -> String {
    if poll.is_empty() {
        return std::future::pending().await;
    }
    loop {
        sleep(POLL_INTERVAL).await;
        if let Some(line) = first_line_of(poll, env).await {
            return line;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixStream;

    fn start() -> Start {
        let env = serde_json::json!([["HOME", "/home/me"], ["TOKEN", "secret"]]);
        let far = serde_json::json!({
            "place": "build1", "start": ["/bin/sh", "-c", "exit"], "env": [], "queue_ms": 60_000,
            "program": null,
        });
        serde_json::from_value(serde_json::json!({
            "proto": 1, "session_id": "s", "workspace": "ssh:build1:/w", "run_dir": "/r", "env": env,
            "safe_mode": false, "sandbox": {}, "far": far,
            "credentials": { "ssh": true, "git": true, "hosts": ["a.example"] },
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn the_first_frame_takes_no_value_of_a_variable_and_no_credential_along() {
        let (stream, _supervisor) = UnixStream::pair().unwrap();
        let mut link = Link::new(Local::to_supervisor(stream), start()).unwrap();
        assert_eq!((link.session.as_str(), link.token.len()), ("s", 32));
        let first = link.local.window.next_data().unwrap();
        let text = String::from_utf8_lossy(&first);
        assert!(text.contains("TOKEN") && text.contains("ssh:build1:/w"), "{text}");
        for secret in ["secret", "/home/me", "a.example", "queue_ms", "exit"] {
            assert!(!text.contains(secret), "{secret}");
        }
    }

    #[test]
    fn a_far_signal_that_ends_no_process_is_a_plain_failure() {
        for (signal, expected) in [
            (9, Exit::Signal(9)),
            (rustix::process::Signal::STOP.as_raw(), Exit::Code(1)),
            (0, Exit::Code(1)),
            (-9, Exit::Code(1)),
            (i32::MAX, Exit::Code(1)),
        ] {
            assert_eq!(ending(signal), expected);
        }
    }
}
