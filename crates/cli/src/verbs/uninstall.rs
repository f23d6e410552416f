//! `quack uninstall`: removes what quackd has put on the machine. Only what is known by its name or its content
//! to be ours; everything else stays and is named.

mod plan;

use crate::args::service::UninstallArgs;
use crate::connect::connect;
use crate::display::plain;
use crate::exit::{Exit, Fault};
use crate::output::Output;
use crate::verbs::restart::list;
use crate::verbs::service::{Here, remove};
use crate::verbs::stop::end;
use anyhow::Context;
use plan::{Kept, Plan};
use quackd_home::Home;
use quackd_service::Manager;
use serde_json::json;
use std::path::{Path, PathBuf};

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
        let what = listed("Would remove", &plan, &plan.all());
        let question = format!("{what}{}Remove that?", at_work(&here.home).await);
        let asked = tokio::task::spawn_blocking(move || output.ask_blocking(&question));
        if !asked.await?? {
            anyhow::bail!("nothing was removed");
        }
    }
    let mut removed = remove(&here, output).await?;
    // Whoever started it.
    end(&here.home).await?;
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

/// What the question says of a daemon that runs: that it is stopped, and what that cuts short.
async fn at_work(home: &Home) -> String {
    let Ok(client) = connect(home).await else { return String::new() };
    match crate::verbs::restart::look(&client).await {
        Ok(daemon) if daemon.waits_for.is_empty() => {
            format!("Would stop the daemon (process {}).\n", daemon.pid)
        }
        Ok(daemon) => format!(
            "Would stop the daemon (process {}), which is at work:\n{}",
            daemon.pid,
            list(&daemon.waits_for, true)
        ),
        // One that does not know the question is stopped as well.
        Err(_unknown) => "Would stop the daemon that answers.\n".to_owned(),
    }
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
        quackd_home::keep::remove_tree(path).with_context(cannot)?;
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
