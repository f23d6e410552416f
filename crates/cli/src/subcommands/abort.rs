//! `quack abort`: cancels all running calls of a session.

use crate::args::sessions::AbortArgs;
use crate::connect::connect_only;
use crate::display::{self, count};
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::session_ref::{self, Missing, Wanted};
use crate::subcommands::ps;
use crate::time_format::span;
use quackd_client::ClientError;
use quackd_protocol::client::{AbortData, AbortParams, CallInfo, RunningJob};
use std::time::Duration;

/// Runs the subcommand. Starts no daemon: without one there is no call to cancel.
pub(crate) async fn run(args: AbortArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let reference = Wanted::of(&args.which.into_which())?;
    let daemon = connect_only(output).await?;
    let session = reference.one(&daemon.client, Missing::Refuse).await?;
    session_ref::tell(&session, output);

    let answer = daemon.client.call(AbortParams::of(session.session_id.as_str())).await;
    let label = display::name(&session.label);
    let data = match answer {
        Err(error @ ClientError::Refused { .. }) => {
            // An older daemon does not know its workers' jobs.
            let workers = ps::ask(&daemon.client).await.map(|all| all.workers).unwrap_or_default();
            let own = workers.into_iter().filter(|worker| worker.session_id == session.session_id);
            let jobs: Vec<_> = own.flat_map(|worker| worker.jobs).collect();
            let rest = jobs_line(&jobs, &label);
            return Err(if rest.is_empty() {
                error.into()
            } else {
                CliError::failed(format!("{error}{rest}")).into()
            });
        }
        answer => answer?,
    };

    let rest = jobs_line(&data.jobs, &label);
    let ended = calls(&data);
    let text = match (data.calls, data.turn) {
        // For the protocol, an agent that waits for a prompt is enough.
        (Some(0), Some(false)) => {
            return Err(CliError::failed(format!("{NOTHING}{rest}")).into());
        }
        (Some(0), Some(true)) => format!("Ended the turn of {label}{rest}.\n"),
        (Some(_), Some(true)) => format!("Ended {ended} and the turn of {label}{rest}.\n"),
        (Some(_), _) => format!("Ended {ended} of {label}{rest}.\n"),
        // An older daemon.
        (None, _) => format!("Ended the calls of {label}.\n"),
    };

    output.show(&data, || text)?;
    Ok(ExitCode::Ok)
}

/// Returns the number of aborted calls, and the names of the first few.
fn calls(data: &AbortData) -> String {
    let number = count(data.calls.unwrap_or_default(), "call");
    let call = |call: &CallInfo| {
        format!("{}, {}", display::plain(&call.tool), span(Duration::from_millis(call.elapsed_ms)))
    };

    let named: Vec<_> = data.ended.iter().take(MAX_NAMED).map(call).collect();
    if named.is_empty() {
        return number;
    }

    let more = if MAX_NAMED < data.ended.len() { "; …" } else { "" };
    format!("{number} ({}{more})", named.join("; "))
}

/// Names the background jobs that go on, and the way to end one. Empty without jobs.
fn jobs_line(jobs: &[RunningJob], label: &str) -> String {
    let job = |job: &RunningJob| {
        let command = display::first_line(&job.command, 60);
        format!("{} ({command})", display::plain(&job.job_id))
    };

    let Some(first) = jobs.first() else { return String::new() };
    let named: Vec<_> = jobs.iter().take(MAX_NAMED).map(job).collect();
    let more = if MAX_NAMED < jobs.len() { ", …" } else { "" };
    let id = display::plain(&first.job_id);
    format!(
        "; in the background: {}{more}, which `quack jobs kill {id} --session {label}` ends",
        named.join(", ")
    )
}

/// Maximum number of calls and of jobs that are named.
const MAX_NAMED: usize = 4;

/// The daemon's words for a session without running work.
const NOTHING: &str = "No running operation to abort";
