//! `quack uninstall`: takes quackd out of the configuration of agents, then removes its files from the machine. Removes
//! only files whose name or content proves their origin, and lists the others.

mod plan;

use crate::args::service::UninstallArgs;
use crate::connect::connect;
use crate::display::{full_path, path_lines, plain};
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::subcommands::mcp::AgentRemoval;
use crate::subcommands::restart::list;
use crate::subcommands::service::{ServiceContext, remove};
use crate::subcommands::stop::end;
use anyhow::Context;
use plan::{KeptPath, UninstallPlan};
use quackd_home::Home;
use quackd_protocol::client::{DaemonData, WorkspacesParams};
use quackd_protocol::far::FarWorkspace;
use quackd_service::Manager;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Runs the subcommand.
pub(crate) async fn run(args: &UninstallArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let here = ServiceContext::find(Manager::CURRENT)?;
    let plan = UninstallPlan::make_blocking(&here, args.purge)?;
    // Without these changes, an agent whose shell was turned off would have none.
    let agents = AgentRemoval::all_blocking().context(
        "quackd must be taken out of this file first: correct it, or remove quackd's entry by hand",
    )?;

    let daemon = RunningDaemon::find(&here.home).await;
    let far = far_places(&here.home).await;
    let (daemon, is_dry) = (daemon.as_ref(), args.dry_run);
    let report = Report { daemon, far: &far, agents: &agents, is_dry };
    if args.dry_run {
        return report.print(&plan, &plan.all(), output);
    }

    if !args.yes {
        CliOutput::require_terminal()?;
        let changes = Report { is_dry: true, ..report }.text(&plan, &plan.all());
        if !output.ask(format!("{changes}Remove that?")).await? {
            anyhow::bail!("nothing was removed");
        }
    }

    // First, because a failure here leaves everything else in place.
    for agent in &agents {
        agent.apply_blocking()?;
    }
    let mut removed = remove(&here, output).await?;

    // Stop the daemon, whether or not the service started it.
    end(&here.home).await?;
    for path in &plan.programs {
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", full_path(path)))?;
        removed.push(path.clone());
    }

    if !args.purge {
        return report.print(&plan, &removed, output);
    }
    // Plan again, because the daemon wrote files at its exit.
    let plan = UninstallPlan::make_blocking(&here, true)?;
    purge_blocking(&here.home, &plan, &mut removed)?;
    report.print(&plan, &removed, output)
}

/// Returns the places of sessions on other machines. Empty without a running daemon.
async fn far_places(home: &Home) -> BTreeSet<String> {
    let Ok(client) = connect(home).await else { return BTreeSet::new() };
    let Ok(data) = client.call(WorkspacesParams {}).await else { return BTreeSet::new() };
    let far = data.workspaces.iter().filter_map(|workspace| FarWorkspace::of(&workspace.path));
    far.map(|far| far.place().to_owned()).collect()
}

/// Daemon that the removal stops.
enum RunningDaemon {
    Known(DaemonData),
    /// A daemon without the request for its description is stopped as well.
    Unknown,
}

impl RunningDaemon {
    /// `None` if no daemon is running.
    async fn find(home: &Home) -> Option<Self> {
        let client = connect(home).await.ok()?;
        let look = crate::subcommands::restart::look(&client).await;
        Some(look.map_or(Self::Unknown, Self::Known))
    }

    /// Describes the stop and the work that it interrupts.
    fn text(&self, verb: &str) -> String {
        match self {
            Self::Known(daemon) if daemon.waits_for.is_empty() => {
                format!("{verb} the daemon (process {}).\n", daemon.pid)
            }
            Self::Known(daemon) => format!(
                "{verb} the daemon (process {}), which interrupts:\n{}",
                daemon.pid,
                list(&daemon.waits_for, true)
            ),
            Self::Unknown => format!("{verb} the running daemon.\n"),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Known(daemon) => json!({"pid": daemon.pid, "waitsFor": daemon.waits_for}),
            Self::Unknown => json!({}),
        }
    }
}

/// Removes the state while holding the instance lock, so that no daemon starts. The lock file is removed last.
fn purge_blocking(
    home: &Home,
    plan: &UninstallPlan,
    removed: &mut Vec<PathBuf>,
) -> anyhow::Result<()> {
    // Without a state directory, at most the configuration was made.
    let has_state = home.dir().is_dir();
    let lock = if has_state { quackd_home::lock_blocking(home)? } else { None };
    if has_state && lock.is_none() {
        return Err(CliError::busy("a daemon has started; the state was not removed").into());
    }

    let is_lock = |path: &&PathBuf| **path == home.lock_file();
    for path in plan.state.iter().filter(|path| !is_lock(path)) {
        let cannot = || format!("cannot remove {}", full_path(path));
        quackd_home::keep::remove_tree(path).with_context(cannot)?;
        removed.push(path.clone());
    }

    // The lock's file is last, so that no daemon starts in a directory of which a part is gone.
    if has_state {
        std::fs::remove_file(home.lock_file()).context("cannot remove the lock's file")?;
        drop(lock);
        removed.push(home.lock_file());
    }
    // Remove the directory only if it is empty.
    if std::fs::remove_dir(home.dir()).is_ok() {
        removed.push(home.dir().to_owned());
    }
    remove_empty_above(removed);
    Ok(())
}

/// Removes the directories of the home above removed ones that are empty now, such as `~/.local/state`: quackd may have
/// made them.
fn remove_empty_above(removed: &[PathBuf]) {
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else { return };
    for path in removed.iter().filter(|path| path.starts_with(&home)) {
        let above = path.ancestors().skip(1);
        for directory in above.take_while(|directory| *directory != home) {
            if std::fs::remove_dir(directory).is_err() {
                break;
            }
        }
    }
}

/// Effects of a removal besides the removed paths.
#[derive(Clone, Copy)]
struct Report<'a> {
    daemon: Option<&'a RunningDaemon>,
    /// Places of sessions on other machines.
    far: &'a BTreeSet<String>,
    agents: &'a [AgentRemoval],
    is_dry: bool,
}

impl Report<'_> {
    fn text(&self, plan: &UninstallPlan, removed: &[PathBuf]) -> String {
        let verb = if self.is_dry { "Would remove" } else { "Removed" };
        let mut text = path_lines(verb, removed, "There is nothing to remove.\n");

        for agent in self.agents {
            for path in &agent.paths {
                let file = full_path(path);
                text.push_str(&format!("{verb} quackd from {}: {file}\n", agent.label));
            }
            let is_change = |line: &&str| {
                line.starts_with(['-', '+']) && !line.starts_with("---") && !line.starts_with("+++")
            };
            let changes = agent.patch.lines().filter(is_change);
            text.extend(changes.map(|line| format!("    {}\n", plain(line))));
        }

        let stop = if self.is_dry { "Would stop" } else { "Stopped" };
        text.extend(self.daemon.map(|daemon| daemon.text(stop)));

        for KeptPath { path, why } in &plan.kept {
            text.push_str(&format!("Stays: {} ({why})\n", full_path(path)));
        }
        if !self.far.is_empty() {
            let places = self.far.iter().map(|place| plain(place)).collect::<Vec<_>>().join(", ");
            text.push_str(&format!(
                "Stays on {places}: ~/.cache/quackd and ~/.local/state/quackd-far\n"
            ));
        }
        text
    }

    fn print(
        &self,
        plan: &UninstallPlan,
        removed: &[PathBuf],
        output: CliOutput,
    ) -> anyhow::Result<ExitCode> {
        let program = std::env::current_exe().unwrap_or_default();
        let kept = plan.kept.iter().map(|kept| json!({"path": kept.path, "why": kept.why}));
        let agents =
            self.agents.iter().map(|agent| json!({"agent": agent.label, "files": agent.paths}));
        let document = json!({
            "removed": removed, "kept": kept.collect::<Vec<_>>(),
            "agents": agents.collect::<Vec<_>>(), "program": program,
            "daemon": self.daemon.map(RunningDaemon::json), "farPlaces": self.far,
            "dryRun": self.is_dry
        });

        output.show(&document, || {
            format!(
                "{}The program itself stays: {}; remove it the way it was installed (`cargo uninstall quackd`, a package manager).\n",
                self.text(plan, removed),
                full_path(&program)
            )
        })?;
        Ok(ExitCode::Ok)
    }
}
