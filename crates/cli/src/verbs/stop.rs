//! `quack stop`: asks the daemon to drain and waits until it is gone.

pub(crate) mod holder;

use crate::age::span;
use crate::args::daemon::StopArgs;
use crate::connect::{CONNECT_TIMEOUT, REPLY_TIMEOUT, connect};
use crate::exit::{Exit, Fault};
use crate::output::Output;
use crate::verbs::restart::list;
use quackd_client::{Client, ClientError};
use quackd_home::Home;
use quackd_protocol::client::DaemonData;
#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;
#[cfg(target_os = "linux")]
use rustix::process::PidfdFlags;
use serde_json::{Value, json};
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for the end: the grace of running calls, their workers' end, the last write to disk.
const STOP_DEADLINE: Duration = Duration::from_secs(15);

/// Time between two looks at the socket.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Longest wait for a daemon that has the lock and does not listen: it starts, or ends, or makes its socket
/// again, for which it looks every 5 s.
const SOCKET_PATIENCE: Duration = Duration::from_secs(8);

/// A daemon that was ended.
#[derive(Debug)]
pub(crate) struct Stopped {
    took: Duration,
    /// The service manager that keeps its socket, if one does.
    keeper: Option<String>,
}

/// Runs the verb. Speaks to a daemon of any version: this is how one gets rid of it.
pub(crate) async fn run(args: &StopArgs, output: Output) -> anyhow::Result<Exit> {
    let home = Home::from_process_env_blocking()?;
    if !args.yes && !output.is_json() {
        confirm(&home, output).await?;
    }
    let Some(Stopped { took, keeper }) = end(&home).await? else {
        return report(output, None, "The daemon is not running.\n");
    };
    let next = match keeper {
        Some(manager) => format!(
            "{manager} starts it again when a verb needs it; `systemctl --user stop quackd.socket` prevents that.\n"
        ),
        None => String::new(),
    };
    report(output, Some(took), &format!("Stopped the daemon in {}.\n{next}", span(took)))
}

/// Lists what a stop would cut short, and asks at a terminal. A daemon that does not answer is stopped without it.
async fn confirm(home: &Home, output: Output) -> anyhow::Result<()> {
    let Ok(client) = connect(home).await else { return Ok(()) };
    let asked = client.request("quack.daemon", json!({}), REPLY_TIMEOUT).await;
    let Ok(DaemonData { waits_for, .. }) = asked else { return Ok(()) };
    if waits_for.is_empty() {
        return Ok(());
    }
    let work = list(&waits_for, true);
    output.to_stderr(&format!("A stop gives this 5 s and then cuts it short:\n{work}"));
    if !Output::can_ask() {
        return Ok(());
    }
    let asking = tokio::task::spawn_blocking(move || output.ask_blocking("Stop the daemon?"));
    match asking.await?? {
        true => Ok(()),
        false => Err(Fault::failed("the daemon was not stopped").into()),
    }
}

/// Asks the daemon to end and waits until it has; `None` if none runs.
///
/// # Errors
/// It does not answer, cannot be asked, or goes on: with its process and how to end that.
pub(crate) async fn end(home: &Home) -> anyhow::Result<Option<Stopped>> {
    let begun = Instant::now();
    let Some(client) = reach(home).await? else { return Ok(None) };
    let pid = pid_of(&client).await.map_err(|error| trouble(home, error))?;
    let keeper = keeper_of_socket(&client).await;
    let process = pid.and_then(DaemonProcess::find);
    match client.request_raw("quack.shutdown", json!({}), REPLY_TIMEOUT).await {
        // It may be gone before its reply is written.
        Ok(_) | Err(ClientError::Disconnected) => {}
        Err(error) => return Err(trouble(home, error)),
    }
    drop(client);
    // From here on: a socket that was waited for is no part of the time that the daemon gets.
    let asked = Instant::now();
    let socket = home.socket().path;
    // The socket goes first; what holds the lock and the log goes with the process.
    // One that a service manager keeps stays, and who connects to it has the next daemon started.
    while !((keeper.is_some() || is_gone(&socket, pid).await?)
        && process.as_ref().is_none_or(DaemonProcess::has_ended))
    {
        if STOP_DEADLINE < asked.elapsed() {
            return Err(Fault::busy(format!(
                "the daemon (pid {}) still runs after {STOP_DEADLINE:?}; {}",
                pid.unwrap_or(0),
                holder::way_out(holder::find_blocking(home), &socket)
            ))
            .into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(Some(Stopped { took: begun.elapsed(), keeper }))
}

/// Connects to the daemon; `None` if none lives.
async fn reach(home: &Home) -> anyhow::Result<Option<Client>> {
    let begun = Instant::now();
    loop {
        match connect(home).await {
            Ok(client) => return Ok(Some(client)),
            Err(ClientError::NotRunning { .. }) if !holder::is_held_blocking(home) => {
                return Ok(None);
            }
            Err(ClientError::NotRunning { path }) if SOCKET_PATIENCE < begun.elapsed() => {
                let way_out = holder::way_out(holder::find_blocking(home), &path);
                return Err(Fault::wrong_daemon(format!(
                    "a daemon lives and does not listen on {}; {way_out}",
                    path.display()
                ))
                .into());
            }
            Err(ClientError::NotRunning { .. }) => tokio::time::sleep(POLL_INTERVAL).await,
            Err(error) => return Err(trouble(home, error)),
        }
    }
}

/// Why the daemon cannot be ended by a request, with how to end it otherwise.
fn trouble(home: &Home, error: ClientError) -> anyhow::Error {
    let what = match &error {
        ClientError::Timeout { .. } => "the daemon does not answer",
        ClientError::Refused(_) => "the daemon cannot be asked to stop",
        _ => return error.into(),
    };
    let way_out = holder::way_out(holder::find_blocking(home), &home.socket().path);
    anyhow::Error::new(error).context(format!("{what} ({way_out})"))
}

/// The service manager that keeps the socket, if one does. A daemon that does not know the question has a
/// socket of its own.
async fn keeper_of_socket(client: &Client) -> Option<String> {
    let asked = client.request("quack.daemon", json!({}), REPLY_TIMEOUT).await;
    let data: DaemonData = asked.ok()?;
    let manager = data.managed_by.unwrap_or_else(|| "the service manager".to_owned());
    data.socket_activated.then_some(manager)
}

/// The daemon's process, known by a handle: its number may be another one's a moment later.
#[cfg(target_os = "linux")]
pub(crate) struct DaemonProcess(OwnedFd);

#[cfg(target_os = "linux")]
impl DaemonProcess {
    pub(crate) fn find(pid: u64) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
    }

    pub(crate) fn has_ended(&self) -> bool {
        let mut watched = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready != 0)
    }
}

/// Known by its number only: there is no handle here. Not run on macOS.
#[cfg(not(target_os = "linux"))]
pub(crate) struct DaemonProcess(Pid);

#[cfg(not(target_os = "linux"))]
impl DaemonProcess {
    pub(crate) fn find(pid: u64) -> Option<Self> {
        Pid::from_raw(i32::try_from(pid).ok()?).map(Self)
    }

    pub(crate) fn has_ended(&self) -> bool {
        rustix::process::test_kill_process(self.0).is_err()
    }
}

/// Nobody listens, or somebody else does: another verb may have started the next daemon already.
async fn is_gone(socket: &Path, pid: Option<u64>) -> anyhow::Result<bool> {
    let client = match Client::connect(socket, CONNECT_TIMEOUT).await {
        Ok(client) => client,
        Err(ClientError::NotRunning { .. }) => return Ok(true),
        // A daemon that drains need not take connections.
        Err(ClientError::Timeout { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    // One that hangs up or refuses us is on its way out.
    Ok(pid_of(&client).await.is_ok_and(|now| now.is_some() && now != pid))
}

async fn pid_of(client: &Client) -> Result<Option<u64>, ClientError> {
    let answer = client.request_raw("ping", json!({}), REPLY_TIMEOUT).await?;
    Ok(answer.get("pid").and_then(Value::as_u64))
}

fn report(output: Output, took: Option<Duration>, text: &str) -> anyhow::Result<Exit> {
    if output.is_json() {
        let took_ms = took.map(|took| took.as_secs_f64() * 1000.0);
        output.document(&json!({"wasRunning": took.is_some(), "tookMs": took_ms}))?;
    } else {
        output.text(text)?;
    }
    Ok(Exit::Ok)
}
