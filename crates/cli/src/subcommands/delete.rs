//! `quack delete`: deletes a session after the user confirms it.

use crate::args::sessions::DeleteArgs;
use crate::connect::start_and_connect;
use crate::display;
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::session_ref::{Missing, Wanted};
use quackd_protocol::client::{FoundInfo, SessionDeleteParams};
use serde_json::Value;

/// Deletes the session, with its running calls and jobs.
pub(crate) async fn run(args: DeleteArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let is_sure = args.yes || args.force;
    if !is_sure && !CliOutput::can_ask() {
        return Err(
            CliError::usage("cannot ask for confirmation without a terminal: use --yes").into()
        );
    }

    let daemon = start_and_connect(output).await?;
    // Resolve the reference first, so that the confirmed session is the deleted one.
    let choice = Wanted::reference(args.which.into_reference());
    let found = choice.one(&daemon.client, Missing::Refuse).await?;

    if !is_sure {
        let question = question(&found);
        let confirmed = tokio::task::spawn_blocking(move || output.ask_blocking(&question));
        if !confirmed.await?? {
            anyhow::bail!("nothing was deleted");
        }
    }

    let params = SessionDeleteParams {
        session_id: Value::from(found.session_id.as_str()),
        force: args.force.then_some(true),
    };
    let data = daemon.client.call(params).await?;

    if output.is_json() {
        output.document(&data)?;
    } else {
        let name = display::name(&found.label);
        let ended = [(data.calls_ended, "running call"), (data.jobs_ended, "background job")];
        let ended: Vec<_> = ended.into_iter().filter(|(n, _)| 0 < *n).collect();
        let ended = match ended.as_slice() {
            [] => String::new(),
            some => {
                let counted = some.iter().map(|(n, unit)| display::count(*n, unit));
                format!(", and ended {}", counted.collect::<Vec<_>>().join(" and "))
            }
        };
        output.text(&format!("Deleted {name}{ended}.\n"))?;
    }
    Ok(ExitCode::Ok)
}

fn question(found: &FoundInfo) -> String {
    let home_dir = std::env::var("HOME").ok();
    let label = display::name(&found.label);
    let path = display::path(&found.workspace_path, home_dir.as_deref());
    format!("Delete session {label} of {path}? The files there stay.")
}
