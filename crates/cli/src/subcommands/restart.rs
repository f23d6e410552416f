//! `quack restart`: stops the daemon when it is idle, and verifies that the next one answers.

use crate::args::service::RestartArgs;
use crate::connect::connect;
use crate::display::{self, plain};
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::platform::DaemonProcess;
use crate::time_format::span;
use anyhow::Context;
use quackd_client::{Client, ClientError, ensure_daemon};
use quackd_home::Home;
use quackd_process::SelfExe;
use quackd_protocol::VERSION;
use quackd_protocol::client::{
    DaemonData, DaemonParams, InterruptedSession, PingParams, RestartParams, UnfinishedWork,
    WorkKind,
};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// Timeout for the daemon's exit: grace of running calls, exit of their workers, last write to disk.
const STOP_DEADLINE: Duration = Duration::from_secs(15);

/// Timeout for the next daemon under a service manager. launchd waits 10 s after a start before it starts again.
const MANAGED_DEADLINE: Duration = Duration::from_secs(45);

/// Interval between checks of running work, and of the daemon.
const WORK_INTERVAL: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of listed items of work.
const MAX_SHOWN: usize = 20;

/// Runs the subcommand.
pub(crate) async fn run(args: &RestartArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let home = Home::from_process_env_blocking()?;
    let begun = Instant::now();
    let client = connect(&home).await?;
    let before = look(&client).await?;
    let waits_for = ask_until_it_does(&home, &client, &before, args, output).await?;
    drop(client);
    let restarted = next_one(&home, &before).await?;
    report(output, &before, &restarted, &waits_for, begun.elapsed())
}

/// Requests the daemon's description.
///
/// # Errors
/// Those of the request. If the daemon is too old for it, the error contains its version and the remedy.
pub(crate) async fn look(client: &Client) -> anyhow::Result<DaemonData> {
    match client.call(DaemonParams {}).await {
        Ok(data) => Ok(data),
        Err(ClientError::Refused { text: reason, .. }) => {
            let version = version_of(client).await;
            Err(CliError::wrong_daemon(format!(
                "the daemon is version {version} and cannot be asked to restart ({}), this is {VERSION}; \
                 `quack stop` stops it (calls get 5 s), and the next subcommand starts this version",
                plain(&reason)
            ))
            .into())
        }
        Err(error) => Err(error.into()),
    }
}

async fn version_of(client: &Client) -> String {
    let answer = client.call_raw(PingParams {}).await.unwrap_or_default();
    plain(answer.get("version").and_then(serde_json::Value::as_str).unwrap_or("unknown"))
}

/// Requests the restart until the daemon accepts it or the user's wait time has passed. Returns the interrupted work.
async fn ask_until_it_does(
    home: &Home,
    client: &Client,
    before: &DaemonData,
    args: &RestartArgs,
    output: CliOutput,
) -> anyhow::Result<Vec<UnfinishedWork>> {
    let until = Instant::now() + args.wait.unwrap_or_default();
    let mut last_list = String::new();

    loop {
        let is_last = until <= Instant::now();
        let force = (is_last && args.force).then_some(true);

        // Without a service manager, this program starts the next daemon in its own environment.
        let starts_next = before.managed_by.is_none();
        if starts_next {
            check_config(home)?;
        }

        let params = RestartParams { force, config_checked: starts_next.then_some(true) };
        let data = client.call(params).await?;
        if data.restarting {
            return Ok(data.waits_for);
        }

        if is_last {
            if output.is_json() {
                output.document(&data)?;
            }
            return Err(CliError::busy(refusal(&data.waits_for)).into());
        }

        // Printed again only if it has changed.
        let now = list(&data.waits_for, false);
        if now != last_list {
            output.note(&format!("waiting for:\n{}", now.trim_end()));
            last_list = now;
        }
        tokio::time::sleep(WORK_INTERVAL).await;
    }
}

/// Checks the configuration that the next daemon will read. The file may change during the wait, so each request is
/// preceded by this check.
fn check_config(home: &Home) -> anyhow::Result<()> {
    quackd_supervisor::check_config_blocking(home).map_err(|error| {
        let error = anyhow::Error::new(error);
        CliError::failed(format!(
            "the configuration is not valid, the daemon was not restarted: {error:#}"
        ))
        .into()
    })
}

fn refusal(work: &[UnfinishedWork]) -> String {
    format!(
        "the daemon is busy:\n{}`quack restart --wait 10m` waits for it, --force interrupts it",
        list(work, true)
    )
}

/// Formats running work, one line per item.
pub(crate) fn list(work: &[UnfinishedWork], with_times: bool) -> String {
    let line = |piece: &UnfinishedWork| {
        let work = match piece.kind {
            WorkKind::Call => plain(&piece.what),
            WorkKind::Job => format!("background job {}", plain(&piece.what)),
            WorkKind::Turn => "a turn of the agent".to_owned(),
        };
        let since = piece.elapsed_ms.filter(|_| with_times).map(Duration::from_millis);
        let since = since.map_or_else(String::new, |since| format!(", for {}", span(since)));
        format!(
            "  {}: {work}{since}\n",
            display::name(display::label(&piece.label, &piece.session_name)),
        )
    };

    let mut text: String = work.iter().take(MAX_SHOWN).map(line).collect();
    if let Some(more) = work.len().checked_sub(MAX_SHOWN).filter(|more| 0 < *more) {
        text.push_str(&format!("  and {more} more\n"));
    }
    text
}

/// Waits until the daemon's process has exited.
///
/// # Errors
/// If it still runs after `limit`.
pub(crate) async fn wait_for_exit(pid: u32, limit: Duration) -> anyhow::Result<()> {
    let process = DaemonProcess::find(u64::from(pid));
    let until = Instant::now() + limit;
    while !process.as_ref().is_none_or(DaemonProcess::has_ended) {
        if until <= Instant::now() {
            anyhow::bail!("the daemon (pid {pid}) still runs after {limit:?}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Waits for the daemon's exit, starts the next one if no service manager does, and requests its description.
async fn next_one(home: &Home, before: &DaemonData) -> anyhow::Result<DaemonData> {
    wait_for_exit(before.pid, STOP_DEADLINE).await?;
    if before.managed_by.is_none() {
        let exe = SelfExe::open().context("cannot open this program's own file")?;
        ensure_daemon(home, &exe).await?;
    }

    let until = Instant::now() + MANAGED_DEADLINE;
    loop {
        match successor(home, before.pid).await {
            Ok(Some(data)) => return Ok(data),
            last if until <= Instant::now() => {
                let why = last.err().map_or_else(String::new, |error| format!(": {error}"));
                let hint = match before.managed_by.as_deref() {
                    Some(manager) => {
                        format!("{manager} has not started it; see `quack service status`")
                    }
                    None => "see `quack logs`".to_owned(),
                };
                return Err(CliError::daemon_gone(format!(
                    "the daemon has stopped, and the next one does not answer{why}; {hint}"
                ))
                .into());
            }
            _ => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Returns the description of the daemon that answers, if it is a new one.
async fn successor(home: &Home, old: u32) -> anyhow::Result<Option<DaemonData>> {
    let data = look(&connect(home).await?).await?;
    Ok((data.pid != old).then_some(data))
}

fn report(
    output: CliOutput,
    before: &DaemonData,
    after: &DaemonData,
    cut: &[UnfinishedWork],
    took: Duration,
) -> anyhow::Result<ExitCode> {
    let identity = |daemon: &DaemonData| json!({"version": daemon.version, "pid": daemon.pid});
    let document = json!({
        "tookMs": took.as_secs_f64() * 1000.0,
        "managedBy": after.managed_by,
        "before": identity(before),
        "after": identity(after),
        "interrupted": after.interrupted,
    });

    output.show(&document, || {
        let mut version = plain(&after.version);
        if before.version != after.version {
            version.push_str(&format!(", it was {}", plain(&before.version)));
        }
        let (took, pid) = (span(took), after.pid);
        let cut = if cut.is_empty() { String::new() } else { interrupted(&after.interrupted) };
        format!("Restarted the daemon in {took}: version {version}, process {pid}.\n{cut}")
    })?;
    Ok(ExitCode::Ok)
}

/// Formats the interrupted work.
pub(crate) fn interrupted(sessions: &[InterruptedSession]) -> String {
    let line = |session: &InterruptedSession| {
        let work: Vec<_> = session.interruption.work.iter().map(|work| plain(work)).collect();
        format!(
            "Interrupted in {}: {}.\n",
            display::name(display::label(&session.label, &session.session_name)),
            work.join(", ")
        )
    };
    sessions.iter().take(MAX_SHOWN).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(kind: WorkKind, what: &str, elapsed_ms: Option<u64>) -> UnfinishedWork {
        UnfinishedWork {
            session_id: quackd_protocol::SessionId("s".into()),
            session_name: "duck-1".into(),
            label: "app".into(),
            kind,
            what: what.into(),
            elapsed_ms,
        }
    }

    #[test]
    fn what_is_at_work_is_listed_with_the_ways_on() {
        let work = [
            piece(WorkKind::Call, "bash", Some(1500)),
            piece(WorkKind::Job, "job-1 make\u{1b}", None),
            piece(WorkKind::Turn, "Pi", None),
        ];
        assert_eq!(
            refusal(&work),
            "the daemon is busy:\n  app: bash, for 1.5 s\n  app: background job job-1 make\u{fffd}\n  \
             app: a turn of the agent\n`quack restart --wait 10m` waits for it, --force interrupts it"
        );
        let many: Vec<_> = (0..23).map(|_| piece(WorkKind::Call, "bash", None)).collect();
        assert!(list(&many, true).ends_with("  and 3 more\n"));
    }
}
