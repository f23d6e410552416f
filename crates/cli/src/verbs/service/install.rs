//! `quack service install`: writes the files, has the manager read them, and sees to it that the daemon that
//! serves is the service's.

use super::{Here, Wanted};
use crate::args::service::ServiceInstallArgs;
use crate::connect::{REPLY_TIMEOUT, connect};
use crate::display::plain;
use crate::exit::{Exit, Fault};
use crate::output::Output;
use crate::programs::{ask, must};
use crate::verbs::restart::look;
use crate::verbs::stop::DaemonProcess;
use anyhow::Context;
use quackd_client::{Client, ClientError};
use quackd_protocol::client::{DaemonData, ExecutableState, RestartData, RestartParams};
use quackd_service::commands::Step;
use quackd_service::file::{Standing, look_blocking, write_blocking};
use quackd_service::{Manager, place};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest wait for the daemon that runs to end, and for the service to answer.
const LIMIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs the verb.
pub(super) async fn run(
    here: &Here,
    args: &ServiceInstallArgs,
    output: Output,
) -> anyhow::Result<Exit> {
    let wanted = here.wanted()?;
    if let Some(complaint) = here.service.complaint() {
        output.warning(&format!("{}: install it where it stays first", plain(&complaint)));
    }
    let changes = changes(&wanted, args.force)?;
    if args.dry_run {
        return show(here, &wanted, &changes, output);
    }
    if args.no_start {
        write(&wanted, &changes)?;
        return report(here, &changes, None, output).await;
    }
    if let Some(why) = here.unreachable().await {
        return Err(Fault::failed(format!(
            "{why}. `--no-start` writes the files all the same, `quack daemon` needs no service"
        ))
        .into());
    }
    make_room(here, args, changes.is_empty(), output).await?;
    write(&wanted, &changes)?;
    for words in here.commands(Step::Load) {
        must(&words).await?;
    }
    let daemon = served(here).await?;
    report(here, &changes, Some(&daemon), output).await
}

/// Which of the files are not as they should be.
fn changes(wanted: &[Wanted], force: bool) -> anyhow::Result<Vec<PathBuf>> {
    let mut changes = Vec::new();
    for file in wanted {
        let path = plain(&file.path.display().to_string());
        let standing = look_blocking(&file.path, &file.text);
        match standing.with_context(|| format!("cannot look at {path}"))? {
            Standing::Same => continue,
            Standing::Foreign if !force => {
                return Err(Fault::failed(format!(
                    "{path} is there and was not written by `quack service install`; --force replaces it"
                ))
                .into());
            }
            Standing::Absent | Standing::Ours | Standing::Foreign => {}
        }
        changes.push(file.path.clone());
    }
    Ok(changes)
}

fn write(wanted: &[Wanted], changes: &[PathBuf]) -> anyhow::Result<()> {
    for file in wanted.iter().filter(|file| changes.contains(&file.path)) {
        write_blocking(&file.path, &file.text)
            .with_context(|| format!("cannot write {}", file.path.display()))?;
    }
    Ok(())
}

/// Ends the daemon that runs, unless it is the service's and as it should be. One that is at work stays, unless
/// forced; on a terminal its person is asked.
async fn make_room(
    here: &Here,
    args: &ServiceInstallArgs,
    is_unchanged: bool,
    output: Output,
) -> anyhow::Result<()> {
    let client = match connect(&here.home).await {
        Err(ClientError::NotRunning { .. }) => return Ok(()),
        other => other?,
    };
    let daemon = look(&client).await?;
    let is_managed = daemon.managed_by.as_deref() == Some(here.manager.name());
    if is_managed && is_unchanged && daemon.executable.state == ExecutableState::Current {
        return Ok(());
    }
    if !args.yes && !args.force && Output::can_ask() {
        let question = format!("Restart the daemon that runs (process {})?", daemon.pid);
        let asked = tokio::task::spawn_blocking(move || output.ask_blocking(&question));
        if !asked.await?? {
            anyhow::bail!("nothing was changed");
        }
    }
    if !is_managed {
        return end(&client, &daemon, args.force).await;
    }
    // Its manager would start it again with the old unit, and keep its old socket.
    refuse_busy(&daemon, args.force)?;
    drop(client);
    if here.manager == Manager::Systemd {
        let words = ["systemctl", "--user", "stop", place::SOCKET_UNIT, place::UNIT];
        return must(&words.map(str::to_owned)).await;
    }
    for words in here.commands(Step::Unload) {
        must(&words).await?;
    }
    Ok(())
}

fn refuse_busy(daemon: &DaemonData, force: bool) -> anyhow::Result<()> {
    match daemon.waits_for.len() {
        0 => Ok(()),
        _ if force => Ok(()),
        n => Err(Fault::busy(format!(
            "the daemon is at work ({} running: {}); `quack restart` lists it, --force cuts it short",
            crate::display::count(n, "thing"),
            daemon.waits_for.iter().take(3).map(|work| plain(&work.what)).collect::<Vec<_>>().join(", "),
        ))
        .into()),
    }
}

/// Ends a daemon that no manager looks after.
async fn end(client: &Client, daemon: &DaemonData, force: bool) -> anyhow::Result<()> {
    let params = RestartParams { force: force.then_some(true), config_checked: None };
    let asked: RestartData = client.request("quack.restart", params, REPLY_TIMEOUT).await?;
    if !asked.restarting {
        refuse_busy(&DaemonData { waits_for: asked.waits_for, ..daemon.clone() }, false)?;
    }
    let process = DaemonProcess::find(u64::from(daemon.pid));
    let until = Instant::now() + LIMIT;
    while !process.as_ref().is_none_or(DaemonProcess::has_ended) {
        if until <= Instant::now() {
            anyhow::bail!("the daemon (pid {}) still runs after {LIMIT:?}", daemon.pid);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// The service's daemon, once it answers.
async fn served(here: &Here) -> anyhow::Result<DaemonData> {
    let until = Instant::now() + LIMIT;
    loop {
        let looked = async { look(&connect(&here.home).await?).await }.await;
        match looked {
            Ok(daemon) if daemon.managed_by.as_deref() == Some(here.manager.name()) => {
                return Ok(daemon);
            }
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
    here: &Here,
    wanted: &[Wanted],
    changes: &[PathBuf],
    output: Output,
) -> anyhow::Result<Exit> {
    let commands: Vec<String> =
        here.commands(Step::Load).iter().map(|words| words.join(" ")).collect();
    if output.is_json() {
        let files: Vec<_> = wanted
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
        return Ok(Exit::Ok);
    }
    let mut text = String::new();
    for file in wanted {
        let verb = if changes.contains(&file.path) { "Would write" } else { "Would keep" };
        text.push_str(&format!("{verb} {}:\n\n{}\n", file.path.display(), file.text));
    }
    for command in commands {
        text.push_str(&format!("Would run: {command}\n"));
    }
    output.answer(&text)?;
    Ok(Exit::Ok)
}

async fn report(
    here: &Here,
    changes: &[PathBuf],
    daemon: Option<&DaemonData>,
    output: Output,
) -> anyhow::Result<Exit> {
    let lingers = lingers(here, daemon.is_some()).await;
    if output.is_json() {
        output.document(&json!({
            "manager": here.manager.name(),
            "written": changes,
            "pid": daemon.map(|daemon| daemon.pid),
            "version": daemon.map(|daemon| daemon.version.clone()),
            "lingers": lingers,
        }))?;
        return Ok(Exit::Ok);
    }
    let mut text = super::lines("Wrote", changes, "The files are as they should be.\n");
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
    output.text(&text)?;
    Ok(Exit::Ok)
}

/// Whether the user's services go on when the user has logged out; `None` if nobody can tell.
pub(super) async fn lingers(here: &Here, may_ask: bool) -> Option<bool> {
    if here.manager != Manager::Systemd || !may_ask {
        return None;
    }
    let uid = rustix::process::getuid().as_raw().to_string();
    let words = ["loginctl", "show-user", &uid, "--property=Linger", "--value"];
    let answer = ask(&words.map(str::to_owned)).await.ok()?;
    match answer.stdout.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// What logging out does to the service.
pub(super) fn logout(manager: Manager, lingers: Option<bool>) -> &'static str {
    match (manager, lingers) {
        (Manager::Launchd, _) => "It ends when you log out, with everything that runs in it.\n",
        (_, Some(true)) => "It goes on when you log out (lingering is on).\n",
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
