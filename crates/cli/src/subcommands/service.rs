//! `quack service`: runs the daemon as a service of the user's systemd or launchd. The crate `quackd-service` generates
//! the files. This module installs them and calls the managers' programs.

mod check;
mod context;
mod install;
mod launchd;
mod status;

pub(crate) use check::check;
pub(crate) use context::{ServiceContext, program};

use crate::args::service::{ServiceArgs, ServiceLogsArgs, ServiceUninstallArgs, ServiceVerb};
use crate::display::path_lines;
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::run_program::{ask, must};
use anyhow::Context;
use context::ServiceFile;
use quackd_service::commands::Step;
use quackd_service::{Manager, file, launchd as agent, place};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Size of the read tail of a manager's log, in bytes.
const MAX_LOG: u64 = 1024 * 1024;

/// Runs the subcommand.
pub(crate) async fn run(args: ServiceArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let here = ServiceContext::find(args.manager.unwrap_or(Manager::CURRENT))?;
    match args.verb {
        ServiceVerb::Install(args) => Box::pin(install::run(&here, &args, output)).await,
        ServiceVerb::Uninstall(args) => uninstall(&here, &args, output).await,
        ServiceVerb::Status(_) => status::run(&here, output).await,
        ServiceVerb::Restart(args) => Box::pin(restart(&here, &args, output)).await,
        ServiceVerb::Logs(args) => logs(&here, &args, output).await,
        ServiceVerb::Print(_) => print(&here, output),
    }
}

fn print(here: &ServiceContext, output: CliOutput) -> anyhow::Result<ExitCode> {
    let expected = here.wanted()?;
    if output.is_json() {
        let files: Vec<_> =
            expected.iter().map(|file| json!({"path": file.path, "text": file.text})).collect();
        output.document(&json!({"manager": here.manager.name(), "files": files}))?;
    } else {
        let text = |file: &ServiceFile| format!("# {}\n{}\n", file.path.display(), file.text);
        let text: String = expected.iter().map(text).collect();
        output.answer(text.trim_end_matches('\n'))?;
        output.answer("\n")?;
    }
    Ok(ExitCode::Ok)
}

async fn uninstall(
    here: &ServiceContext,
    args: &ServiceUninstallArgs,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    if args.dry_run {
        let (paths, none) = (present(here), "There is no service to remove.\n");
        let document = json!({"removed": paths, "dryRun": true});
        output.show(&document, || path_lines("Would remove", &paths, none))?;
        return Ok(ExitCode::Ok);
    }

    let (removed, none) = (remove(here, output).await?, "There was no service to remove.\n");
    output.show(&json!({"removed": removed}), || path_lines("Removed", &removed, none))?;
    Ok(ExitCode::Ok)
}

/// Returns the existing files that quackd has written.
pub(crate) fn present(here: &ServiceContext) -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| {
        file::look_blocking(path, "").is_ok_and(|standing| standing == file::Standing::Ours)
    };
    place::files(here.manager, &here.directory).into_iter().filter(is_ours).collect()
}

/// Stops the service and removes its files. An unreachable manager forgets the service when its files are gone.
pub(crate) async fn remove(
    here: &ServiceContext,
    output: CliOutput,
) -> anyhow::Result<Vec<PathBuf>> {
    let installed = present(here);
    if installed.is_empty() {
        return Ok(installed);
    }

    if let Some(reason) = here.unreachable().await {
        output.warning(&format!("{reason}. The files are removed; a running daemon continues"));
    } else if here.manager == Manager::Launchd {
        if let Err(error) = launchd::unload(here).await {
            output.warning(&format!("{error:#}"));
        }
    } else {
        for words in here.commands(Step::Unload) {
            let answer = ask(&words).await?;
            if !answer.succeeded {
                output.warning(&format!("`{}`: {}", words.join(" "), answer.complaint()));
            }
        }
    }

    let cannot = |path: &Path| format!("cannot remove {}", path.display());
    for link in place::links(here.manager, &here.directory) {
        file::remove_link_blocking(&link).with_context(|| cannot(&link))?;
    }

    // After the links, which would lead to missing files.
    for path in &installed {
        file::remove_blocking(path).with_context(|| cannot(path))?;
    }

    if here.manager == Manager::Systemd {
        // systemd may still list the units as failed. An unreachable manager forgets them by itself.
        ask(&["systemctl", "--user", "daemon-reload"]).await.ok();
        ask(&["systemctl", "--user", "reset-failed", place::UNIT, place::SOCKET_UNIT]).await.ok();
    }
    Ok(installed)
}

/// Restarts a running daemon like `quack restart`, or starts the service.
async fn restart(
    here: &ServiceContext,
    args: &crate::args::service::RestartArgs,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    if present(here).is_empty() {
        return Err(
            CliError::failed("the service is not installed; `quack service install`").into()
        );
    }

    // With a running daemon, its work must be finished first.
    if crate::connect::connect(&here.home).await.is_ok() {
        return crate::subcommands::restart::run(args, output).await;
    }

    if here.manager == Manager::Launchd && launchd::state().await?.is_none() {
        launchd::load(here).await?;
    } else {
        let mut before = here.commands(Step::Restart);
        let last = before.pop().unwrap_or_default();
        // Ignore the failure to reset a unit that has not failed.
        for words in before {
            drop(ask(&words).await?);
        }
        must(&last).await?;
    }
    output.text("Started the service.\n")?;
    Ok(ExitCode::Ok)
}

async fn logs(
    here: &ServiceContext,
    args: &ServiceLogsArgs,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let kept = kept(here, args).await;
    let is_empty = kept.as_ref().map_or(true, |text| text.trim().is_empty());
    // A removed service may have left log lines.
    if is_empty && present(here).is_empty() {
        return Err(CliError::failed(
            "the service is not installed and has left no output; `quack logs` shows the daemon's own log",
        )
        .into());
    }

    let text = kept?;
    if output.is_json() {
        let lines: Vec<&str> = text.lines().collect();
        output.document(&json!({"lines": lines}))?;
    } else if is_empty {
        output.text(
            "The service manager has kept no output; `quack logs` shows the daemon's own log.\n",
        )?;
    } else {
        output.answer(&text)?;
    }
    Ok(ExitCode::Ok)
}

/// Returns the last lines of daemon output that the manager kept.
async fn kept(here: &ServiceContext, args: &ServiceLogsArgs) -> anyhow::Result<String> {
    if here.manager == Manager::Launchd {
        return tail_blocking(&here.home.dir().join(agent::STDERR), args.lines);
    }
    let lines = args.lines.to_string();
    let unit = ["--unit", place::UNIT, "--lines", &lines];
    let words = [&["journalctl", "--user", "--quiet", "--no-pager"][..], &unit].concat();
    let answer = ask(&words).await.context("see `quack logs`")?;
    if !answer.succeeded {
        anyhow::bail!("{}; see `quack logs`", answer.complaint());
    }
    Ok(answer.stdout)
}

/// Returns the last lines of a file, or nothing if it does not exist.
fn tail_blocking(path: &Path, lines: usize) -> anyhow::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = match std::fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
        opened => opened.with_context(|| format!("cannot read {}", path.display()))?,
    };

    let length = file.metadata()?.len();
    // A log of a service can grow without limit.
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_LOG)))?;
    let mut bytes = Vec::new();
    file.take(MAX_LOG).read_to_end(&mut bytes)?;

    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    let last = all.iter().skip(all.len().saturating_sub(lines));
    Ok(last.map(|line| format!("{line}\n")).collect())
}
