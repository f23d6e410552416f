//! `quack demo`: introduces quackd to new users. Each printed line reports a real event.
//!
//! - [`tour`]: search, read and run in the user's repository.
//! - [`crash`]: kills the worker of a second session during a call, while the user's session keeps running.
//! - [`session`], [`scratch_dir`]: the two sessions, and the second session's directory.
//! - [`report`]: the output.
//!
//! Does not write into the user's directory and does not change the active session. Kills only the worker of the second
//! session, and deletes that session at the end.

mod crash;
mod report;
mod scratch_dir;
mod session;
mod tour;

use self::report::{Report, ms};
use self::scratch_dir::ScratchDir;
use self::session::DemoSession;
use super::ps;
use crate::args::tool::DemoArgs;
use crate::connect::start_and_connect;
use crate::directory;
use crate::display;
use crate::exit::{self, ExitCode};
use crate::output::{BOLD, CliOutput};
use anyhow::Context;
use quackd_client::Started;
use quackd_protocol::tiers::{self, Tier};

const TRY_NEXT: &str = "\nTry next\n  \
    quack tool bash 'git status'    one tool, one answer\n  \
    quack ps                        the tree above, now\n  \
    quack stop                      end it all\n";

/// Runs the subcommand. A failed step ends the demo with the step's name.
pub(crate) async fn run(args: &DemoArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let workspace = directory::workspace(args.dir.as_deref(), args.force)?;
    let mut report = Report::new(output);
    let mut stage = "daemon";

    let exit = match perform(workspace, output, &mut report, &mut stage).await {
        Ok(()) => ExitCode::Ok,
        Err(error) => {
            report.failed(stage, &format!("{error:#}"))?;
            exit::of_error(&error)
        }
    };

    report.finish()?;
    Ok(exit)
}

/// Runs the demo. `stage` names the current step.
async fn perform(
    workspace: String,
    output: CliOutput,
    report: &mut Report,
    stage: &mut &'static str,
) -> anyhow::Result<()> {
    let home_dir = std::env::var("HOME").ok();
    let path = display::path(&workspace, home_dir.as_deref());
    report.say(&format!("{BOLD}quack demo{BOLD:#}  {path}\n\n"))?;

    let daemon = start_and_connect(output).await?;
    let (took, state_words) = match daemon.started {
        Started::Started { took } => (Some(took), "started"),
        Started::AlreadyRunning => (None, "was running"),
    };
    report.figures.daemon_start_ms = took.map(ms);
    let summary = format!("supervisor {state_words}, process {}", daemon.daemon.pid);
    report.step("daemon", took, summary, Vec::new())?;

    *stage = "session";
    let session = open(&daemon.client, &workspace, report).await?;

    *stage = "search";
    tour::search(&session, report).await?;

    *stage = "read";
    tour::read(&session, report).await?;

    *stage = "run";
    tour::run(&session, report).await?;

    *stage = "crash";
    let dir = ScratchDir::create_blocking(&std::env::temp_dir())?;
    let path = dir.path().to_str().context("the temporary directory's path is not UTF-8")?;
    let neighbour = DemoSession::open(&daemon.client, path).await?;

    // An error must not skip the deletion of the session.
    let rest = async {
        neighbour.bash("true").await?.text()?;
        crash::run(&neighbour, &session, daemon.daemon.pid, report).await?;
        *stage = "ps";
        let data = ps::ask(&daemon.client).await?;
        report.say(&format!("\n{}{TRY_NEXT}", ps::tree(&data, home_dir.as_deref())))?;
        anyhow::Ok(())
    };

    let done = rest.await;

    // Delete the session before its directory, which is removed when this function returns.
    let deleted = neighbour.delete().await;
    done.and(deleted)
}

/// Opens the session of the user's directory and starts its worker by a first call.
async fn open<'a>(
    client: &'a quackd_client::Client,
    workspace: &str,
    report: &mut Report,
) -> anyhow::Result<DemoSession<'a>> {
    let session = DemoSession::open(client, workspace).await?;
    report.figures.workspace.clone_from(&session.workspace);
    report.figures.session.clone_from(&session.id);

    let call = session.bash("true").await?;
    call.text()?;

    let worker = session.worker().await?;
    let pid = worker.pid.context("the worker has no process id")?;
    let confinement = worker.tier.map_or(tiers::UNKNOWN, Tier::in_words);

    let name = display::name(&session.name);
    let summary = format!("{name}, worker process {pid}, {confinement}");
    report.step("session", Some(call.took), summary, Vec::new())?;
    Ok(session)
}
