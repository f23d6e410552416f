//! Connects a subcommand to the daemon: finds it, starts it on request and checks its protocol. Used by every
//! subcommand except `daemon`.

use crate::display::{full_path, plain};
use crate::exit::{Advised, CliError};
use crate::output::CliOutput;
use crate::time_format;
use anyhow::Context;
use quackd_client::{Client, ClientError, Started, ensure_daemon};
use quackd_home::Home;
use quackd_process::{CALL_VARIABLE, SelfExe};
use quackd_protocol::VERSION;
use quackd_protocol::client::{CLIENT_PROTOCOL, ErrorCode, Method, PingData, PingParams};
use quackd_protocol::limits::{DEADLINE_GRACE, DEADLINE_SLACK, WORKER_READY_WAIT};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Timeout for a connection. A working daemon accepts at once.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Added to the daemon's latest reply time for a call before the client stops waiting.
const TRANSPORT_SLACK: Duration = Duration::from_secs(3);

/// Timeout for the daemon's version. It is short because the subcommand has already failed.
const VERSION_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of attempts if the daemon stops while the client connects.
const MAX_ATTEMPTS: u32 = 3;

/// Returns the time to wait for the reply to a call with this deadline. It is longer than the daemon's own limits, so
/// that the daemon's refusal arrives first.
pub(crate) fn patience(deadline: Duration) -> Duration {
    WORKER_READY_WAIT + deadline + DEADLINE_GRACE + DEADLINE_SLACK + TRANSPORT_SLACK
}

/// Connection to a daemon with the same protocol.
#[derive(Debug)]
pub(crate) struct DaemonConnection {
    pub(crate) client: Client,
    /// Reply of the daemon to the ping: its version, process and start.
    pub(crate) daemon: PingData,
    /// Whether this connection started the daemon.
    pub(crate) started: Started,
}

/// Connects to the daemon. Starts it if no daemon listens.
///
/// # Errors
/// If the daemon cannot be found, started or reached, or speaks another protocol.
pub(crate) async fn start_and_connect(output: CliOutput) -> anyhow::Result<DaemonConnection> {
    let home = Home::from_process_env_blocking()?;

    // Usually a daemon listens, and this connection is the only one.
    match connect(&home).await {
        Ok(client) => match meet(client, Started::AlreadyRunning, output).await {
            Err(error) if is_gone(&error) => {}
            met => return met,
        },
        Err(error @ ClientError::Timeout { .. }) => return Err(error.into()),
        // The start reports why there is no connection.
        Err(_) => {}
    }

    // The variable marks the commands of a session and their descendants. They would start another daemon.
    if std::env::var_os(CALL_VARIABLE).is_some() {
        return Err(CliError::daemon_gone(format!(
            "this command runs inside a session of quackd, which cannot reach its daemon; run it outside, or unset \
             {CALL_VARIABLE} to start another daemon here"
        ))
        .into());
    }

    let exe = SelfExe::open().context("cannot open this program's own file")?;
    let mut attempts = 1;
    loop {
        let started = ensure_daemon(&home, &exe).await?;

        if let Started::Started { took } = started {
            output.note(&format!("started the daemon in {}", time_format::span(took)));
        }

        let met = async { meet(connect(&home).await?, started, output).await };
        match met.await {
            // The daemon was shutting down. The next attempt starts a new one.
            Err(error) if is_gone(&error) && attempts < MAX_ATTEMPTS => attempts += 1,
            met => return met,
        }
    }
}

/// Sends one request to the daemon. Starts it if no daemon listens.
///
/// # Errors
/// Those of [`start_and_connect`] and of the request.
pub(crate) async fn call<M: Method>(params: M, output: CliOutput) -> anyhow::Result<M::Reply> {
    let daemon = start_and_connect(output).await?;
    Ok(daemon.client.call(params).await?)
}

fn is_gone(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<ClientError>(),
        Some(ClientError::Disconnected | ClientError::NotRunning { .. })
    )
}

/// Warns if the configuration file was changed after the daemon had read it, because the subcommand would follow it.
pub(crate) fn warn_if_config_changed(daemon: &PingData, output: CliOutput) {
    let variable =
        |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let Ok(home) = Home::from_process_env_blocking() else { return };
    let Ok((path, _)) = quackd_config::locate(home.config_blocking(), &variable) else { return };

    let changed = path.metadata().and_then(|status| status.modified());
    let started = daemon.started_at.parse::<jiff::Timestamp>().map(std::time::SystemTime::from);

    // The daemon reports its start in whole seconds.
    if let (Ok(changed), Ok(started)) = (changed, started)
        && started + Duration::from_secs(1) < changed
    {
        let path = full_path(&path);
        output.warning(&format!(
            "{path} was changed after the daemon had started; `quack restart` puts it in force"
        ));
    }
}

/// Connects to the running daemon.
///
/// # Errors
/// Those of [`start_and_connect`], and `NotRunning` if no daemon is running.
pub(crate) async fn connect_only(output: CliOutput) -> anyhow::Result<DaemonConnection> {
    let home = Home::from_process_env_blocking()?;
    meet(connect(&home).await?, Started::AlreadyRunning, output).await
}

/// Connects to the socket without checking the daemon's identity.
///
/// # Errors
/// Of [`Client::connect`].
pub(crate) async fn connect(home: &Home) -> Result<Client, ClientError> {
    Client::connect(&home.socket().path, CONNECT_TIMEOUT).await
}

/// Checks the daemon's identity. Client and daemon of different versions work together if their protocol
/// is the same.
async fn meet(
    client: Client,
    started: Started,
    output: CliOutput,
) -> anyhow::Result<DaemonConnection> {
    // Raw, because another daemon's reply may have another shape.
    let answer = client.call_raw(PingParams {}).await?;
    let daemon = identify(answer).map_err(CliError::wrong_daemon)?;

    if daemon.version != VERSION {
        output.note(&format!(
            "the daemon is version {}, this is {VERSION}; `quack restart` replaces it when it is idle",
            daemon.version
        ));
    }
    Ok(DaemonConnection { client, daemon, started })
}

/// Adds both versions to `error` if the daemon does not know the method.
pub(crate) async fn explained(error: anyhow::Error) -> anyhow::Error {
    // A subcommand that added context has better advice.
    let Some(ClientError::Refused { text, code: code @ Some(ErrorCode::UnknownMethod) }) =
        error.chain().next().and_then(|first| first.downcast_ref())
    else {
        return error;
    };
    let version = tokio::time::timeout(VERSION_TIMEOUT, version()).await.ok().flatten();
    let hint = unknown_method(version.as_deref());
    Advised { error: ClientError::Refused { text: text.clone(), code: *code }, hint }.into()
}

async fn version() -> Option<String> {
    let client = connect(&Home::from_process_env_blocking().ok()?).await.ok()?;
    let answer = client.call_raw(PingParams {}).await.ok()?;
    Some(plain(answer.get("version")?.as_str()?))
}

fn unknown_method(daemon: Option<&str>) -> String {
    let (daemon, this) = match daemon {
        Some(VERSION) => (format!("is another build of version {VERSION} and "), String::new()),
        Some(other) => (format!("is version {other} and "), format!("; this is quack {VERSION}")),
        None => (String::new(), format!("; this is quack {VERSION}")),
    };
    format!(
        "the daemon {daemon}does not support this request{this}: `quack restart` starts the program that is \
         installed now"
    )
}

fn identify(answer: Value) -> Result<PingData, String> {
    let version = answer.get("version").and_then(Value::as_str).unwrap_or("unknown").to_owned();
    let Ok(daemon) = serde_json::from_value::<PingData>(answer) else {
        return Err(format!(
            "another daemon (version {version}) answers on the socket, this is quack {VERSION}; \
             stop that one first"
        ));
    };

    if daemon.protocol == CLIENT_PROTOCOL {
        return Ok(daemon);
    }

    let pid = daemon.pid;
    // Only Linux has this link.
    let exe = std::fs::read_link(Path::new("/proc").join(pid.to_string()).join("exe"));
    let place = exe.map_or_else(|_unknown| String::new(), |exe| format!(", {}", exe.display()));
    Err(format!(
        "the daemon is version {version} (protocol {}, pid {pid}{place}), this is {VERSION} \
         (protocol {CLIENT_PROTOCOL}); run `quack stop`, then again",
        daemon.protocol
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ping(protocol: u32) -> Value {
        json!({"version": "9.9.9", "uptime": 1, "clients": 1, "pid": 4_000_000, "protocol": protocol,
               "startedAt": "2026-03-10T12:00:00Z", "build": "release"})
    }

    #[test]
    fn another_version_is_fine_and_another_protocol_names_both_and_the_way_out() {
        assert_eq!(identify(ping(CLIENT_PROTOCOL)).unwrap().version, "9.9.9");
        let text = identify(ping(CLIENT_PROTOCOL + 1)).unwrap_err();
        for part in ["9.9.9", VERSION, "protocol 1", "protocol 2", "pid 4000000", "`quack stop`"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    #[tokio::test]
    async fn what_the_daemon_does_not_know_comes_with_both_versions() {
        let told = unknown_method(Some("0.0.1"));
        for part in
            ["the daemon is version 0.0.1 ", &format!("quack {VERSION}: "), "`quack restart`"]
        {
            assert!(told.contains(part), "{part} is missing in: {told}");
        }
        assert!(unknown_method(Some(VERSION)).contains("another build of version"));
        assert!(unknown_method(None).starts_with("the daemon does not support this request; "));
        let text = "Session not found: x".to_owned();
        let other = ClientError::Refused { text, code: Some(ErrorCode::SessionNotFound) };
        assert_eq!(explained(other.into()).await.to_string(), "Session not found: x");
    }

    #[test]
    fn a_daemon_of_another_maker_is_named() {
        let text = identify(json!({"version": "0.0.1", "uptime": 1, "clients": 1})).unwrap_err();
        assert!(text.contains("another daemon (version 0.0.1)"), "{text}");
        assert!(identify(Value::Null).is_err());
    }
    #[test]
    fn we_wait_longer_than_the_daemon_does() {
        let deadline = Duration::from_secs(10);
        assert!(deadline + DEADLINE_GRACE + DEADLINE_SLACK < patience(deadline));
    }
}
