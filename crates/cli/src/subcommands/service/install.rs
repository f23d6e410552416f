//! `quack service install`: writes the files, reloads the manager, and verifies that the service's daemon answers.

use super::context::{ServiceContext, ServiceFile};
use super::launchd;
use crate::args::service::ServiceInstallArgs;
use crate::connect::connect;
use crate::display::{count, full_path, path_lines, plain};
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::run_program::{ask, must};
use crate::subcommands::restart::{look, wait_for_exit};
use anyhow::Context;
use quackd_client::{Client, ClientError};
use quackd_protocol::client::{DaemonData, ExecutableState, RestartParams};
use quackd_service::commands::Step;
use quackd_service::file::{Standing, look_blocking, write_blocking};
use quackd_service::{Manager, place};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Timeout for the exit of the running daemon, and for the service's reply.
const LIMIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Writes the files, and starts the service unless `--no-start` is given.
pub(super) async fn run(
    here: &ServiceContext,
    args: &ServiceInstallArgs,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let files = here.wanted()?;

    if let Some(complaint) = here.service.complaint() {
        output.warning(&format!(
            "{}: first install the program in a permanent place",
            plain(&complaint)
        ));
    }

    let changes = changes(&files, args.force)?;
    if args.dry_run {
        return show(here, &files, &changes, output);
    }
    if args.no_start {
        write(&files, &changes)?;
        return report(here, &changes, None, output).await;
    }

    if let Some(reason) = here.unreachable().await {
        return Err(CliError::failed(format!(
            "{reason}. `--no-start` only writes the files; `quack daemon` needs no service"
        ))
        .into());
    }

    // The daemon that runs now holds the lock and the socket.
    make_room(here, args, changes.is_empty(), output).await?;
    write(&files, &changes)?;
    load(here, changes.is_empty()).await?;
    let daemon = served(here).await?;
    report(here, &changes, Some(&daemon), output).await
}

/// Makes the manager read the files and start the service.
async fn load(here: &ServiceContext, is_unchanged: bool) -> anyhow::Result<()> {
    if here.manager == Manager::Launchd {
        // A loaded agent cannot be loaded again.
        if is_unchanged && here.daemon().await.is_ok_and(|daemon| here.owns(&daemon)) {
            return Ok(());
        }
        return launchd::load(here).await;
    }

    for words in here.commands(Step::Load) {
        must(&words).await?;
    }
    Ok(())
}

/// Returns the files that must be written.
fn changes(expected: &[ServiceFile], force: bool) -> anyhow::Result<Vec<PathBuf>> {
    let mut changes = Vec::new();

    for file in expected {
        let path = full_path(&file.path);
        let standing = look_blocking(&file.path, &file.text);
        match standing.with_context(|| format!("cannot look at {path}"))? {
            Standing::Same => continue,
            Standing::Foreign if !force => {
                return Err(CliError::failed(format!(
                    "{path} exists and was not written by `quack service install`; --force replaces it"
                ))
                .into());
            }
            Standing::Absent | Standing::Ours | Standing::Foreign => {}
        }

        changes.push(file.path.clone());
    }
    Ok(changes)
}

fn write(expected: &[ServiceFile], changes: &[PathBuf]) -> anyhow::Result<()> {
    for file in expected.iter().filter(|file| changes.contains(&file.path)) {
        write_blocking(&file.path, &file.text)
            .with_context(|| format!("cannot write {}", file.path.display()))?;
    }
    Ok(())
}

/// Stops the running daemon, unless it belongs to the service and is current. A busy daemon is not stopped without
/// `--force`. On a terminal, asks the user first.
async fn make_room(
    here: &ServiceContext,
    args: &ServiceInstallArgs,
    is_unchanged: bool,
    output: CliOutput,
) -> anyhow::Result<()> {
    let client = match connect(&here.home).await {
        Err(ClientError::NotRunning { .. }) => return Ok(()),
        other => other?,
    };

    let daemon = look(&client).await?;
    let is_managed = here.owns(&daemon);
    if is_managed && is_unchanged && daemon.executable.state == ExecutableState::Current {
        return Ok(());
    }

    if !args.yes && !args.force && CliOutput::can_ask() {
        let question = format!("Restart the running daemon (process {})?", daemon.pid);
        if !output.ask(question).await? {
            anyhow::bail!("nothing was changed");
        }
    }

    if !is_managed {
        return end(&client, &daemon, args.force).await;
    }
    // Stop the service too: the manager would start the daemon with the old unit and keep the old socket.
    refuse_busy(&daemon, args.force)?;
    drop(client);
    if here.manager == Manager::Systemd {
        return must(&["systemctl", "--user", "stop", place::SOCKET_UNIT, place::UNIT]).await;
    }
    launchd::unload(here).await
}

fn refuse_busy(daemon: &DaemonData, force: bool) -> anyhow::Result<()> {
    if force || daemon.waits_for.is_empty() {
        return Ok(());
    }

    let n = count(daemon.waits_for.len(), "thing");
    let first: Vec<_> = daemon.waits_for.iter().take(3).map(|work| plain(&work.what)).collect();
    Err(CliError::busy(format!(
        "the daemon is busy ({n} running: {}); `quack restart` lists the work, --force interrupts it",
        first.join(", ")
    ))
    .into())
}

/// Stops a daemon that no manager supervises.
async fn end(client: &Client, daemon: &DaemonData, force: bool) -> anyhow::Result<()> {
    let params = RestartParams { force: force.then_some(true), config_checked: None };
    let reply = client.call(params).await?;
    if !reply.restarting {
        // It has more work than a moment ago.
        refuse_busy(&DaemonData { waits_for: reply.waits_for, ..daemon.clone() }, false)?;
    }
    wait_for_exit(daemon.pid, LIMIT).await
}

/// Waits until the service's daemon answers. Another daemon may answer first.
async fn served(here: &ServiceContext) -> anyhow::Result<DaemonData> {
    let until = Instant::now() + LIMIT;
    loop {
        match here.daemon().await {
            Ok(daemon) if here.owns(&daemon) => return Ok(daemon),
            Ok(daemon) if until <= Instant::now() => anyhow::bail!(
                "a daemon answers that is not the service's (process {}): `quack stop`, then again",
                daemon.pid
            ),
            Err(error) if until <= Instant::now() => {
                return Err(error.context("the service does not answer; see `quack service logs`"));
            }
            _ => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

fn show(
    here: &ServiceContext,
    expected: &[ServiceFile],
    changes: &[PathBuf],
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let commands: Vec<String> =
        here.commands(Step::Load).iter().map(|words| words.join(" ")).collect();

    if output.is_json() {
        let files: Vec<_> = expected
            .iter()
            .map(|file| {
                let is_changed = changes.contains(&file.path);
                json!({"path": file.path, "text": file.text, "changed": is_changed})
            })
            .collect();
        let manager = here.manager.name();
        output.document(&json!({
            "manager": manager, "files": files, "commands": commands, "dryRun": true
        }))?;
        return Ok(ExitCode::Ok);
    }

    let mut text = String::new();
    for file in expected {
        let verb = if changes.contains(&file.path) { "Would write" } else { "Would keep" };
        text.push_str(&format!("{verb} {}:\n\n{}\n", file.path.display(), file.text));
    }
    for command in commands {
        text.push_str(&format!("Would run: {command}\n"));
    }

    output.answer(&text)?;
    Ok(ExitCode::Ok)
}

async fn report(
    here: &ServiceContext,
    changes: &[PathBuf],
    daemon: Option<&DaemonData>,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let lingers = lingers(here, daemon.is_some()).await;

    let document = json!({
        "manager": here.manager.name(),
        "written": changes,
        "pid": daemon.map(|daemon| daemon.pid),
        "version": daemon.map(|daemon| &daemon.version),
        "lingers": lingers,
    });

    let mut text = path_lines("Wrote", changes, "The files are up to date.\n");
    match daemon {
        Some(daemon) => text.push_str(&format!(
            "The daemon runs as a service of {}: version {}, process {}.\n",
            here.manager.name(),
            plain(&daemon.version),
            daemon.pid
        )),
        None => {
            text.push_str("Not started. To start it:\n");
            for words in here.commands(Step::Load) {
                text.push_str(&format!("  {}\n", words.join(" ")));
            }
        }
    }

    text.push_str(logout(here.manager, lingers));
    output.show(&document, || text)?;
    Ok(ExitCode::Ok)
}

/// Whether the user's services continue after logout. `None` if unknown.
pub(super) async fn lingers(here: &ServiceContext, may_ask: bool) -> Option<bool> {
    if here.manager != Manager::Systemd || !may_ask {
        return None;
    }
    let uid = rustix::process::getuid().as_raw().to_string();
    let words = ["loginctl", "show-user", &uid, "--property=Linger", "--value"];
    let answer = ask(&words).await.ok()?;
    match answer.stdout.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// Describes the effect of a logout on the service.
pub(super) fn logout(manager: Manager, lingers: Option<bool>) -> &'static str {
    match (manager, lingers) {
        (Manager::Launchd, _) => "It stops when you log out, with everything that runs in it.\n",
        (_, Some(true)) => "It continues when you log out (lingering is on).\n",
        (_, Some(false)) => {
            "It ends when you log out, with everything that runs in it. \
             `loginctl enable-linger` keeps it.\n"
        }
        (_, None) => {
            "Whether it goes on when you log out could not be found out: \
             `loginctl show-user $USER -p Linger` says it, `loginctl enable-linger` keeps it.\n"
        }
    }
}
