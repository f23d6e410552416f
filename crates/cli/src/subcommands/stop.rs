//! `quack stop`: requests a shutdown and waits until the daemon has exited.

pub(crate) mod lock_holder;

use crate::args::daemon::StopArgs;
use crate::connect::{CONNECT_TIMEOUT, connect};
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::platform::DaemonProcess;
use crate::subcommands::restart::list;
use crate::time_format::span;
use quackd_client::{Client, ClientError};
use quackd_home::Home;
use quackd_protocol::client::{DaemonData, DaemonParams, PingParams, ShutdownParams};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Timeout for the daemon's exit: grace of running calls, exit of their workers, last write to disk.
const STOP_DEADLINE: Duration = Duration::from_secs(15);

/// Interval between checks of the socket.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Timeout for a daemon that holds the lock without listening. It may be starting or stopping, or recreate its socket,
/// which it checks every 5 s.
const SOCKET_PATIENCE: Duration = Duration::from_secs(8);

/// Daemon that was stopped.
#[derive(Debug)]
pub(crate) struct StoppedDaemon {
    took: Duration,
    /// Service manager that owns the daemon's socket, if any.
    keeper: Option<String>,
}

/// Runs the subcommand. Works with daemons of any version, because it is the way to replace an incompatible one.
pub(crate) async fn run(args: &StopArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let home = Home::from_process_env_blocking()?;
    if !args.yes && !output.is_json() {
        confirm(&home, output).await?;
    }

    let Some(StoppedDaemon { took, keeper }) = end(&home).await? else {
        return report(output, None, "The daemon is not running.\n");
    };

    let next = match keeper {
        Some(manager) => format!(
            "{manager} starts it again when a subcommand needs it; `systemctl --user stop quackd.socket` prevents that.\n"
        ),
        None => String::new(),
    };

    report(output, Some(took), &format!("Stopped the daemon in {}.\n{next}", span(took)))
}

/// Lists the work that a stop would interrupt, and asks for confirmation on a terminal. A daemon that does not answer
/// is stopped without both.
async fn confirm(home: &Home, output: CliOutput) -> anyhow::Result<()> {
    let Ok(client) = connect(home).await else { return Ok(()) };
    let reply = client.call(DaemonParams {}).await;
    let Ok(DaemonData { waits_for, .. }) = reply else { return Ok(()) };

    if waits_for.is_empty() {
        return Ok(());
    }

    let work = list(&waits_for, true);
    output.to_stderr(&format!("Running work gets 5 s, then it is interrupted:\n{work}"));
    if !CliOutput::can_ask() {
        return Ok(());
    }
    if output.ask("Stop the daemon?".to_owned()).await? {
        Ok(())
    } else {
        Err(CliError::failed("the daemon was not stopped").into())
    }
}

/// Requests a shutdown and waits until the daemon has exited. `None` if no daemon is running.
///
/// # Errors
/// If the daemon does not answer, refuses or keeps running. The error contains its process id and how to kill it.
pub(crate) async fn end(home: &Home) -> anyhow::Result<Option<StoppedDaemon>> {
    let begun = Instant::now();
    let Some(client) = reach(home).await? else { return Ok(None) };
    let pid = pid_of(&client).await.map_err(|error| trouble(home, error))?;
    let keeper = keeper_of_socket(&client).await;

    // Found before the request: afterwards the process may be gone.
    let process = pid.and_then(DaemonProcess::find);
    match client.call(ShutdownParams {}).await {
        // The daemon may exit before it sends its reply.
        Ok(_) | Err(ClientError::Disconnected) => {}
        Err(error) => return Err(trouble(home, error)),
    }

    drop(client);

    // Measure from here: the wait for a socket does not shorten the daemon's time.
    let begin_of_wait = Instant::now();
    let socket = home.socket().path;
    // The daemon removes the socket first and releases lock and log at its exit. A socket of the service manager stays,
    // and a connection to it would start the next daemon.
    while !((keeper.is_some() || is_gone(&socket, pid).await?)
        && process.as_ref().is_none_or(DaemonProcess::has_ended))
    {
        if STOP_DEADLINE < begin_of_wait.elapsed() {
            return Err(CliError::busy(format!(
                "the daemon (pid {}) still runs after {STOP_DEADLINE:?}; {}",
                pid.unwrap_or(0),
                lock_holder::remedy_blocking(home)
            ))
            .into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(Some(StoppedDaemon { took: begun.elapsed(), keeper }))
}

/// Connects to the daemon. `None` if no daemon is running.
async fn reach(home: &Home) -> anyhow::Result<Option<Client>> {
    let begun = Instant::now();
    loop {
        match connect(home).await {
            Ok(client) => return Ok(Some(client)),
            Err(ClientError::NotRunning { .. }) if !lock_holder::is_held_blocking(home) => {
                return Ok(None);
            }
            Err(ClientError::NotRunning { path }) if SOCKET_PATIENCE < begun.elapsed() => {
                return Err(CliError::wrong_daemon(format!(
                    "a daemon lives and does not listen on {}; {}",
                    path.display(),
                    lock_holder::remedy_blocking(home)
                ))
                .into());
            }
            Err(ClientError::NotRunning { .. }) => tokio::time::sleep(POLL_INTERVAL).await,
            Err(error) => return Err(trouble(home, error)),
        }
    }
}

/// Returns an error with the reason why the daemon cannot be stopped by a request, and the alternative.
fn trouble(home: &Home, error: ClientError) -> anyhow::Error {
    let problem = match &error {
        ClientError::Timeout { .. } => "the daemon does not answer",
        ClientError::Refused { .. } => "the daemon cannot be asked to stop",
        _ => return error.into(),
    };

    let remedy = lock_holder::remedy_blocking(home);
    anyhow::Error::new(error).context(format!("{problem} ({remedy})"))
}

/// Returns the service manager that owns the socket, if any. A daemon without this request has its own socket.
async fn keeper_of_socket(client: &Client) -> Option<String> {
    let data = client.call(DaemonParams {}).await.ok()?;
    let manager = data.managed_by.unwrap_or_else(|| "the service manager".to_owned());
    data.socket_activated.then_some(manager)
}

/// Whether the daemon no longer listens. Another subcommand may already have started the next daemon.
async fn is_gone(socket: &Path, pid: Option<u64>) -> anyhow::Result<bool> {
    let client = match Client::connect(socket, CONNECT_TIMEOUT).await {
        Ok(client) => client,
        Err(ClientError::NotRunning { .. }) => return Ok(true),
        // A daemon that drains may stop accepting connections.
        Err(ClientError::Timeout { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    // A daemon that disconnects or refuses the request is still shutting down.
    Ok(pid_of(&client).await.is_ok_and(|now| now.is_some() && now != pid))
}

async fn pid_of(client: &Client) -> Result<Option<u64>, ClientError> {
    // Raw, because the reply of another version may have another shape.
    let answer = client.call_raw(PingParams {}).await?;
    Ok(answer.get("pid").and_then(Value::as_u64))
}

fn report(output: CliOutput, took: Option<Duration>, text: &str) -> anyhow::Result<ExitCode> {
    let took_ms = took.map(|took| took.as_secs_f64() * 1000.0);
    let document = json!({"wasRunning": took.is_some(), "tookMs": took_ms});
    output.show(&document, || text.to_owned())?;
    Ok(ExitCode::Ok)
}
