//! `quack demo`: the first thing a stranger runs. Every line it shows is something that just happened.
//!
//! - [`tour`]: search, read and run in the user's repository.
//! - [`crash`]: the worker of a second session is killed in the middle of a call, the user's session is the witness.
//! - [`session`], [`neighbour`]: the two sessions, and the second one's directory.
//! - [`report`]: what is shown.
//!
//! Writes nothing into the user's directory, moves no active session, kills the worker of the second session only, and
//! deletes that session at the end.

mod crash;
mod neighbour;
mod report;
mod session;
mod tour;

use self::neighbour::NeighbourDir;
use self::report::{Report, ms};
use self::session::DemoSession;
use super::ps;
use crate::args::tool::DemoArgs;
use crate::connect::start_and_connect;
use crate::directory;
use crate::display;
use crate::exit::{self, Exit};
use crate::output::{BOLD, Output};
use anyhow::Context;
use quackd_client::Started;
use quackd_protocol::tiers;

const TRY_NEXT: &str = "\nTry next\n  \
    quack tool bash 'git status'    one tool, one answer\n  \
    quack ps                        the tree above, now\n  \
    quack stop                      end it all\n";

/// Runs the verb.
pub(crate) async fn run(args: &DemoArgs, output: Output) -> anyhow::Result<Exit> {
    let workspace = directory::workspace(args.dir.as_deref(), args.force)?;
    let mut report = Report::new(output);
    let mut stage = "daemon";
    let exit = match perform(workspace, output, &mut report, &mut stage).await {
        Ok(()) => Exit::Ok,
        Err(error) => {
            report.failed(stage, &format!("{error:#}"))?;
            exit::of_error(&error)
        }
    };
    report.finish()?;
    Ok(exit)
}

/// The demo from start to end; `stage` names the step that it is at.
async fn perform(
    workspace: String,
    output: Output,
    report: &mut Report,
    stage: &mut &'static str,
) -> anyhow::Result<()> {
    let home_dir = std::env::var("HOME").ok();
    let shown = display::path(&workspace, home_dir.as_deref());
    report.say(&format!("{BOLD}quack demo{BOLD:#}  {shown}\n\n"))?;

    let daemon = start_and_connect(output).await?;
    let (took, how) = match daemon.started {
        Started::Started { took } => (Some(took), "started"),
        Started::AlreadyRunning => (None, "was running"),
    };
    report.figures.daemon_start_ms = took.map(ms);
    let summary = format!("supervisor {how}, process {}", daemon.daemon.pid);
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
    let dir = NeighbourDir::create_blocking(&std::env::temp_dir())?;
    let path = dir.path().to_str().context("the temporary directory's path is not UTF-8")?;
    let neighbour = DemoSession::open(&daemon.client, path).await?;
    let rest = async {
        neighbour.bash("true").await?.text()?;
        crash::run(&neighbour, &session, daemon.daemon.pid, report).await?;
        *stage = "ps";
        let data = ps::ask(&daemon.client).await?;
        report.say(&format!("\n{}{TRY_NEXT}", ps::tree(&data, home_dir.as_deref())))?;
        anyhow::Ok(())
    };
    let done = rest.await;
    // The directory goes with this function, and its session before it.
    let deleted = neighbour.delete().await;
    done.and(deleted)
}

/// Opens the session of the user's directory and has its worker started by a first call.
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
    let confinement = worker.tier.as_deref().map_or("confinement unknown", tiers::in_words);
    let summary = format!(
        "{}, worker process {pid}, {}",
        display::name(&session.name),
        display::plain(confinement)
    );
    report.step("session", Some(call.took), summary, Vec::new())?;
    Ok(session)
}
