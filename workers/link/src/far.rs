//! The far side: `quack worker --stdio`, which an engine's client starts where the code is.
//!
//! It reads no configuration and is not confined. It starts the ordinary worker, which confines itself, and carries the
//! bytes of the worker's channel. It ends with the worker, with the link, or when a new worker of the session starts.

use crate::connection::{Connection, Event};
use crate::far_copy;
use crate::far_files::{FarFiles, variable};
use crate::far_start::{adjusted_blocking, environment, kept};
use crate::far_worker::FarWorker;
use crate::frame_guard::framed;
use crate::handshake::{Hello, PROTO, Ready, read_line};
use crate::holder::{Caller, Holder, greet, relay};
use crate::local::Local;
use crate::packet::{FarExit, Packet};
use bytes::BytesMut;
use quackd_environment_worker::Account;
use quackd_ipc::frames::{self, Decoded};
use quackd_ipc::link;
use quackd_process::{
    Role, abort_on_panic, become_session_leader, complain, harden, set_process_name,
    sweep_strays_blocking,
};
use quackd_protocol::worker::{EXIT_TERMINAL, FromWorker, Start, TO_WORKER_TAGS, ToWorker};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, Stdin, Stdout};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep_until, timeout};

/// Argument before the id of a session whose link is resumed.
const RESUME: &str = "--resume";

/// Time for the line of the link process, and for the first frame after it.
const HELLO_TIME: Duration = Duration::from_secs(60);
const START_TIME: Duration = Duration::from_secs(10);

/// Maximum size of the first frame, as in a worker.
const MAX_FIRST_FRAME: usize = 1024 * 1024;

/// Longest grace, whatever the link process says.
const MAX_GRACE: Duration = Duration::from_secs(3 * 60 * 60);

/// Reason of a start that ends with its link.
const LOST: &str = "the link was lost";

/// Time to kill processes that the worker has left.
const SWEEP_TIME: Duration = Duration::from_secs(1);

/// Runs as the far side of a link. Called by `quack worker --stdio [--resume SESSION]` before any other code in the
/// process.
#[must_use]
pub fn main() -> ExitCode {
    abort_on_panic();
    let mut arguments = std::env::args_os().skip(3);
    let resumed = arguments.next().filter(|word| word == RESUME).and_then(|_| arguments.next());
    match enter().and_then(|()| serve(resumed)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("far worker: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn enter() -> io::Result<()> {
    // The end of a login must not end the worker of a link that will be resumed.
    become_session_leader();
    set_process_name("quack-far");
    harden(Role::Link)
}

/// The worker must be started from this thread, so the runtime has no other.
fn serve(resumed: Option<OsString>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        match resumed {
            Some(session) => resume(&session.to_string_lossy()).await,
            None => run().await,
        }
    });
    // A read from stdin still blocks its own thread.
    runtime.shutdown_background();
    let _swept = sweep_strays_blocking(&BTreeSet::new(), SWEEP_TIME);
    served
}

async fn resume(session: &str) -> io::Result<()> {
    let account = Account::of_this_user_blocking();
    let relayed = match FarFiles::of(session, account.as_ref(), variable) {
        Ok(files) => relay(&files).await,
        Err(error) => Err(error),
    };
    if let Err(error) = &relayed {
        let mut stdout = tokio::io::stdout();
        stdout.write_all(format!("\nquackd: error {error}\n").as_bytes()).await?;
        stdout.flush().await?;
    }
    relayed
}

/// Serves a new link, and ends its worker.
async fn run() -> io::Result<()> {
    // A name service may be slow, and the other side waits longest for the first line.
    let account = Account::of_this_user_blocking();
    let (stdin, stdout, mut hello, input) = handshake().await?;
    if let Some(work) = hello.copy.take() {
        return far_copy::serve(stdin, stdout, input, &hello, work).await;
    }
    let mut connection = Connection::new(stdin, stdout, input);
    let (ours, theirs) = link::pair()?;
    let mut local = Local::to_worker(ours);

    match prepare(&hello, account, &mut connection, &mut local, theirs).await {
        Ok(Prepared { worker, holder }) => {
            let connection = Some(connection);
            let mut far = Far { connection, local, worker, holder, hello, exit: None };
            let new_owner = far.attend().await;
            far.end().await;
            // The new worker of the session starts now.
            drop(new_owner);
        }
        Err(reason) => {
            let refusal = FromWorker::CannotStart { reason };
            let refusal = frames::encode(&refusal).map_err(io::Error::other)?;
            local.window.push(&framed(&refusal));
            connection.listen_anew();
            connection.carry(&mut local, Some(FarExit::Code(EXIT_TERMINAL.into()))).await;
        }
    }
    Ok(())
}

/// Returns both ends of the link, the first line of the link process, and the bytes after it.
async fn handshake() -> io::Result<(Stdin, Stdout, Hello, BytesMut)> {
    let (mut stdin, mut stdout) = (tokio::io::stdin(), tokio::io::stdout());
    stdout.write_all(Ready::own(0).line()?.as_bytes()).await?;
    stdout.flush().await?;

    let mut input = BytesMut::new();
    let line = timeout(HELLO_TIME, read_line(&mut stdin, &mut input)).await??;
    let hello = serde_json::from_str(&line)?;
    Ok((stdin, stdout, hello, input))
}

/// The started worker, and the socket of its session.
struct Prepared {
    worker: FarWorker,
    holder: Holder,
}

/// Ends an earlier worker of the session and starts a new one with the end `channel` of its channel. Sends keep-alives as
/// long as that takes.
///
/// # Errors
/// The reason why the session cannot start, for the user.
async fn prepare(
    hello: &Hello,
    account: Option<Account>,
    connection: &mut Connection,
    local: &mut Local,
    channel: OwnedFd,
) -> Result<Prepared, String> {
    if hello.proto != PROTO {
        return Err(format!("protocol {} of the link is not {PROTO}", hello.proto));
    }
    let session = hello.session.clone();
    let create = move || {
        let files = FarFiles::of(&session, account.as_ref(), variable)?;
        files.create_blocking()?;
        Ok((files, account))
    };
    let (files, account) = on_disk(connection, create).await?.map_err(text)?;
    let cleaned = files.clone();
    drop(tokio::task::spawn_blocking(move || cleaned.clean_blocking()));
    let holder = tokio::select! {
        holder = Holder::take_over(&files, 0 < hello.grace_ms) => holder.map_err(text)?,
        () = connection.keep_alive() => return Err(LOST.to_owned()),
    };

    let start = timeout(START_TIME, read_start(connection, local)).await;
    let (start, rest) = start.map_err(|_| "no first frame arrived".to_owned())?.map_err(text)?;
    if start.session_id.as_str() != hello.session {
        return Err("the first frame is for another session".to_owned());
    }
    let base =
        kept(std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        }));
    let env = tokio::select! {
        env = environment(base, &start, account.as_ref(), &files) => env,
        () = connection.keep_alive() => return Err(LOST.to_owned()),
    };
    let adjust = move || adjusted_blocking(start, env, &files);
    let start = ToWorker::Start(Box::new(on_disk(connection, adjust).await??));
    connection.listen_anew();
    let first = frames::encode(&start).map_err(|error| error.to_string())?;
    let worker = FarWorker::start_blocking(channel)
        .map_err(|error| format!("cannot start the worker there: {error}"))?;
    for bytes in [framed(&first).as_slice(), &rest] {
        local.put(bytes).map_err(|violation| violation.to_string())?;
    }
    Ok(Prepared { worker, holder })
}

/// Runs file system access on another thread, and sends keep-alives as long as it takes.
async fn on_disk<T: Send + 'static>(
    connection: &mut Connection,
    access: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    tokio::select! {
        result = tokio::task::spawn_blocking(access) => result.map_err(|error| error.to_string()),
        () = connection.keep_alive() => Err(LOST.to_owned()),
    }
}

fn text(error: io::Error) -> String {
    error.to_string()
}

/// Reads the first frame. Returns it with the bytes after it.
async fn read_start(
    connection: &mut Connection,
    local: &mut Local,
) -> io::Result<(Start, BytesMut)> {
    let mut bytes = BytesMut::new();
    loop {
        match connection.next().await? {
            Packet::Data(data) => {
                local.window.take(data.len()).map_err(io::Error::other)?;
                bytes.extend_from_slice(&data);
            }
            Packet::KeepAlive => continue,
            _other => return Err(io::ErrorKind::UnexpectedEof.into()),
        }

        let Some(prefix) = bytes.first_chunk::<4>() else { continue };
        let length = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
        if MAX_FIRST_FRAME < length {
            return Err(io::Error::other(format!("a first frame of {length} bytes")));
        }
        if bytes.len() - prefix.len() < length {
            continue;
        }

        let frame = bytes.split_to(4 + length).split_off(4);
        return match frames::decode(&frame, TO_WORKER_TAGS).map_err(io::Error::other)? {
            Decoded::Known(ToWorker::Start(start)) => Ok((*start, bytes)),
            _other => Err(io::Error::other("another message came first")),
        };
    }
}

/// The session's worker and its present link.
struct Far {
    /// `None` while the link is lost.
    connection: Option<Connection>,
    local: Local,
    worker: FarWorker,
    holder: Holder,
    hello: Hello,
    /// Exit of the worker, until the link process has it.
    exit: Option<FarExit>,
}

/// The first of the awaited events.
enum Step {
    Link(Event),
    Caller(UnixStream),
    GraceOver,
}

impl Far {
    /// Carries bytes until the worker or the link has ended. Returns the connection of a new worker of the session.
    async fn attend(&mut self) -> Option<UnixStream> {
        let grace = Duration::from_millis(self.hello.grace_ms).min(MAX_GRACE);
        let mut until = Instant::now();
        loop {
            match self.next(until).await {
                Step::Link(Event::LocalEnded) => self.exit = Some(self.worker.exit().await),
                Step::Link(Event::Left) | Step::GraceOver => return None,
                Step::Link(Event::Lost(_)) => {
                    if grace.is_zero() {
                        return None;
                    }
                    self.connection = None;
                    until = Instant::now() + grace;
                }
                Step::Link(Event::Broken(violation)) => {
                    complain(&format!("far worker: {violation}"));
                    return None;
                }
                Step::Link(Event::Ended(_)) => return None,
                Step::Caller(stream) => {
                    let received = self.local.window.received();
                    match greet(stream, &self.hello, received).await {
                        Caller::Resumes { connection, received } => {
                            // A wrong number cannot be served, and the old link goes on.
                            if self.local.window.resume(received).is_ok() {
                                self.connection = Some(connection);
                            }
                        }
                        Caller::NewOwner(stream) => return Some(stream),
                        Caller::Other => {}
                    }
                }
            }
        }
    }

    /// Waits for the next step. `until` is the end of the grace of a lost link.
    async fn next(&mut self, until: Instant) -> Step {
        let Self { connection, local, holder, exit, .. } = self;
        match connection {
            Some(connection) => tokio::select! {
                event = connection.carry(local, *exit) => Step::Link(event),
                stream = holder.accept() => Step::Caller(stream),
            },
            None => tokio::select! {
                stream = holder.accept() => Step::Caller(stream),
                () = local.until_ended(), if exit.is_none() => Step::Link(Event::LocalEnded),
                () = sleep_until(until) => Step::GraceOver,
            },
        }
    }

    /// Ends the worker, whatever it does.
    async fn end(self) {
        let Self { local, worker, exit, .. } = self;
        // The monitor kills the worker and its commands.
        drop(local);
        if exit.is_none() {
            worker.exit().await;
        }
    }
}
