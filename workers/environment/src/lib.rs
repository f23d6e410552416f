//! The environment worker: reads the environment of the user's login shell once, asks the user's tools for the hosts of
//! their registries, or reads a key from the system's keychain, and exits.
//!
//! A daemon that launchd or systemd started has `PATH=/usr/bin:/bin` and does not have the user's toolchains in it.
//! The login shell does, but its start files are programs that may print, hang, fork and exec. So the shell runs
//! below a separate process, which the supervisor starts exactly like a session's worker: with a control channel as
//! stdin, an empty environment, and a monitor that kills all remaining processes.
//!
//! In reading order:
//! - [`shell`]: chooses the shell and its arguments;
//! - [`capture`]: runs it with a deadline and takes its answer;
//! - [`confined`] and `become_shell`: confines it first;
//! - [`pipe`]: transports the answer, separate from the output of the start files;
//! - [`variables`]: selects the requested variables;
//! - [`tools`]: asks the tools and the keychain;
//! - [`keychain_program`]: the program of the keychain.
//!
//! The process has every secret of the user's profile in memory for a short time. It writes none of it to disk, and
//! sends only the requested variables.

mod capture;
mod confined;
mod keychain_program;
mod pipe;
mod platform;
mod shell;
mod tools;
mod variables;

use capture::capture_until;
pub use capture::{CaptureError, capture};
pub use platform::run_role;
pub use shell::Account;

use futures_util::{FutureExt, SinkExt, StreamExt};
use quackd_ipc::{frames, link};
use quackd_process::{
    Role, abort_on_panic, become_session_leader, complain, harden, rank_above_parent,
    set_process_name, split_off_patient_monitor,
};
use quackd_protocol::environment::{
    FromEnvironmentWorker, TO_ENVIRONMENT_WORKER_TAGS, ToEnvironmentWorker,
};
use quackd_protocol::worker::EXIT_TERMINAL;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use tokio_util::sync::CancellationToken;

/// Timeout for the request. The supervisor writes it before it starts this process.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);

/// Time for which the monitor waits for this process after the supervisor has exited. Longer than [`capture::GRACE`].
/// Together with the monitor's own limit it stays below 2 s, after which no process of quackd may be left.
const MONITOR_PATIENCE: Duration = Duration::from_millis(1250);

/// Control channel to the supervisor.
type Channel = Framed<tokio::net::UnixStream, LengthDelimitedCodec>;

/// Runs as the environment worker. Called by `quack login-environment` and `quack tool-registries` before any other
/// code in the process. `name` is the name of the process.
///
/// In the first process that enters (the supervisor's direct child) this never returns: that process becomes the
/// monitor.
#[must_use]
pub fn main(name: &str) -> ExitCode {
    abort_on_panic();
    let served = enter(name).and_then(serve);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("cannot ask the user's programs: {error}"));
            ExitCode::from(EXIT_TERMINAL)
        }
    }
}

/// Runs the single-threaded part of the start, as in a session's worker.
fn enter(name: &str) -> io::Result<OwnedFd> {
    split_off_patient_monitor(MONITOR_PATIENCE)?;
    set_process_name(name);
    harden(Role::Worker)?;
    // Without it the login shell has the supervisor's OOM score.
    rank_above_parent().ok();
    // An interactive shell with a controlling terminal would stop itself, because it is not in the
    // terminal's foreground.
    become_session_leader();
    link::take_control_channel()
}

fn serve(control: OwnedFd) -> io::Result<()> {
    // The lookup may use the network and hang. Then the supervisor closes the channel.
    let account = Account::of_this_user_blocking();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(answer(control, account.as_ref()))
}

/// Reads the request, and writes the answer unless the supervisor has exited.
async fn answer(control: OwnedFd, account: Option<&Account>) -> io::Result<()> {
    let mut channel = Framed::new(link::adopt(control)?, frames::codec());
    let first = timeout(REQUEST_DEADLINE, channel.next()).await?;

    let abandon = CancellationToken::new();
    let request = match read(&first.ok_or(io::ErrorKind::UnexpectedEof)??)? {
        ToEnvironmentWorker::Capture(request) => request,
        ToEnvironmentWorker::AskTools(request) => {
            let answers = tools::ask(request, &abandon).map(FromEnvironmentWorker::Tools);
            return answer_tools(channel, answers, &abandon).await;
        }
        ToEnvironmentWorker::ReadKey { request, account } => {
            let key = tools::read_key(platform::KEYCHAIN, request, &account, &abandon);
            return answer_tools(channel, key, &abandon).await;
        }
    };

    let wrapper = confined::Wrapper::find();
    let mut capturing = pin!(capture_until(&request, account, wrapper.as_ref(), &abandon));
    let (captured, leaving) = tokio::select! {
        outcome = &mut capturing => outcome,
        // The supervisor sends nothing more, so this means that the channel is closed. The monitor, if there is one,
        // notices it too and waits.
        _ = channel.next() => {
            abandon.cancel();
            let (_unwanted, leaving) = capturing.await;
            leaving.await;
            return Ok(());
        }
    };

    let frame = match captured {
        Ok(environment) => FromEnvironmentWorker::Captured(environment),
        Err(error) => FromEnvironmentWorker::Failed { text: error.to_string() },
    };

    let sent = channel.send(frames::encode(&frame).map_err(io::Error::other)?).await;
    // The shell may still be exiting.
    leaving.await;
    sent
}

/// Waits for the answer of the user's programs, and writes it unless the supervisor has exited.
async fn answer_tools(
    mut channel: Channel,
    asking: impl Future<Output = FromEnvironmentWorker>,
    abandon: &CancellationToken,
) -> io::Result<()> {
    let mut asking = pin!(asking);
    let answer = tokio::select! {
        answer = &mut asking => answer,
        // The supervisor sends nothing more, so this means that the channel is closed.
        _ = channel.next() => {
            abandon.cancel();
            asking.await;
            return Ok(());
        }
    };

    let frame = frames::encode(&answer);
    channel.send(frame.map_err(io::Error::other)?).await
}

fn read(body: &tokio_util::bytes::BytesMut) -> io::Result<ToEnvironmentWorker> {
    match frames::decode(body, TO_ENVIRONMENT_WORKER_TAGS).map_err(io::Error::other)? {
        frames::Decoded::Known(request) => Ok(request),
        frames::Decoded::Unknown(tag) => Err(io::Error::other(format!("a `{tag}` frame"))),
    }
}
