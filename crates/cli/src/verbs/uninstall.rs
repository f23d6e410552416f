//! `quack uninstall`: removes what quackd has put on the machine. Only what is known by its name or its content
//! to be ours; everything else stays and is named.

mod plan;

use crate::args::service::UninstallArgs;
use crate::connect::{REPLY_TIMEOUT, connect};
use crate::display::plain;
use crate::exit::{Exit, Fault};
use crate::output::Output;
use crate::verbs::service::{Here, remove};
use crate::verbs::stop::DaemonProcess;
use anyhow::Context;
use plan::{Kept, Plan};
use quackd_client::ClientError;
use quackd_home::Home;
use quackd_service::Manager;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for the daemon's end.
const STOP_DEADLINE: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs the verb.
pub(crate) async fn run(args: &UninstallArgs, output: Output) -> anyhow::Result<Exit> {
    let here = Here::find(Manager::CURRENT)?;
    let plan = Plan::make_blocking(&here, args.purge)?;
    if args.dry_run {
        return report(&plan, "Would remove", &plan.all(), output);
    }
    if !args.yes {
        if !Output::can_ask() {
            return Err(Fault::usage("nobody is there to confirm it; say --yes").into());
        }
        let question = format!("{}Remove that?", listed("Would remove", &plan, &plan.all()));
        let asked = tokio::task::spawn_blocking(move || output.ask_blocking(&question));
        if !asked.await?? {
            anyhow::bail!("nothing was removed");
        }
    }
    let mut removed = remove(&here, output).await?;
    stop(&here.home).await?;
    for path in &plan.programs {
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", shown(path)))?;
        removed.push(path.clone());
    }
    if args.purge {
        // What the daemon wrote at its end is to go, too.
        let plan = Plan::make_blocking(&here, true)?;
        purge_blocking(&here.home, &plan, &mut removed)?;
        return report(&plan, "Removed", &removed, output);
    }
    report(&plan, "Removed", &removed, output)
}

/// Ends a daemon that answers, whoever started it, and waits until it is gone.
async fn stop(home: &Home) -> anyhow::Result<()> {
    let client = match connect(home).await {
        Err(ClientError::NotRunning { .. }) => return Ok(()),
        other => other?,
    };
    let ping = client.request_raw("ping", json!({}), REPLY_TIMEOUT).await?;
    let process = ping.get("pid").and_then(Value::as_u64).and_then(DaemonProcess::find);
    match client.request_raw("quack.shutdown", json!({}), REPLY_TIMEOUT).await {
        Ok(_) | Err(ClientError::Disconnected) => {}
        Err(error) => return Err(error.into()),
    }
    let begun = Instant::now();
    while !process.as_ref().is_none_or(DaemonProcess::has_ended) {
        if STOP_DEADLINE < begun.elapsed() {
            anyhow::bail!(
                "the daemon still runs after {STOP_DEADLINE:?}; nothing of its was removed"
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Removes the state with the lock held, so that no daemon begins in the middle of it. The lock's file is the
/// last to go.
fn purge_blocking(home: &Home, plan: &Plan, removed: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !home.dir().is_dir() {
        return Ok(());
    }
    let lock = quackd_home::lock_blocking(home)?
        .ok_or_else(|| Fault::busy("a daemon has started meanwhile; the state was not removed"))?;
    let is_lock = |path: &&PathBuf| **path == home.lock_file();
    for path in plan.state.iter().filter(|path| !is_lock(path)) {
        let cannot = || format!("cannot remove {}", shown(path));
        let found = path.symlink_metadata().with_context(cannot)?;
        match found.is_dir() {
            true => std::fs::remove_dir_all(path).with_context(cannot)?,
            false => std::fs::remove_file(path).with_context(cannot)?,
        }
        removed.push(path.clone());
    }
    std::fs::remove_file(home.lock_file()).context("cannot remove the lock's file")?;
    drop(lock);
    removed.push(home.lock_file());
    // Only one that is empty goes, and that is what is wanted.
    if std::fs::remove_dir(home.dir()).is_ok() {
        removed.push(home.dir().to_owned());
    }
    Ok(())
}

fn shown(path: &Path) -> String {
    plain(&path.display().to_string())
}

fn listed(verb: &str, plan: &Plan, removed: &[PathBuf]) -> String {
    let mut text = crate::verbs::service::lines(verb, removed, "There is nothing to remove.\n");
    for Kept { path, why } in &plan.kept {
        text.push_str(&format!("Stays: {} ({why})\n", shown(path)));
    }
    text
}

fn report(plan: &Plan, verb: &str, removed: &[PathBuf], output: Output) -> anyhow::Result<Exit> {
    let program = std::env::current_exe().unwrap_or_default();
    if output.is_json() {
        let kept: Vec<_> =
            plan.kept.iter().map(|kept| json!({"path": kept.path, "why": kept.why})).collect();
        let is_dry = verb != "Removed";
        output.document(&json!({
            "removed": removed, "kept": kept, "program": program, "dryRun": is_dry
        }))?;
        return Ok(Exit::Ok);
    }
    let mut text = listed(verb, plan, removed);
    text.push_str(&format!(
        "The program itself stays: {}; what installed it removes it (`cargo uninstall quackd`, a package manager).\n",
        shown(&program)
    ));
    output.text(&text)?;
    Ok(Exit::Ok)
}
