//! `quack delete`: deletes a session after the user confirms it.

use crate::args::sessions::DeleteArgs;
use crate::display;
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::session_ref;
use crate::subcommands::isolated::SENT_TIMEOUT;
use quackd_protocol::client::{FoundInfo, SessionDeleteParams};
use serde_json::Value;

/// Deletes the session, with its running calls and jobs.
pub(crate) async fn run(args: DeleteArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let is_sure = args.yes || args.force;
    if !is_sure {
        CliOutput::require_terminal()?;
    }

    // Resolve the reference first, so that the confirmed session is the deleted one.
    let (client, session) = session_ref::existing(&args.which.into_which(), output).await?;
    if !is_sure && !output.ask(question(&session)).await? {
        anyhow::bail!("nothing was deleted");
    }

    let params = SessionDeleteParams {
        session_id: Value::from(session.session_id.as_str()),
        force: args.force.then_some(true),
    };
    // An engine may delete what it created for the session, and the copy of the session's files.
    let data = client.call_within(params, SENT_TIMEOUT).await?;
    if let Some(note) = data.note.as_ref().filter(|_| !output.is_json()) {
        output.warning(&display::plain(note));
    }

    output.show(&data, || {
        let ended = [(data.calls_ended, "running call"), (data.jobs_ended, "background job")];
        let ended = ended.into_iter().filter(|(n, _)| 0 < *n);
        let ended: Vec<_> = ended.map(|(n, unit)| display::count(n, unit)).collect();
        let ended = match ended.as_slice() {
            [] => String::new(),
            some => format!(", and ended {}", some.join(" and ")),
        };
        format!("Deleted {}{ended}.\n", display::name(&session.label))
    })?;
    Ok(ExitCode::Ok)
}

fn question(session: &FoundInfo) -> String {
    let (label, path) =
        (display::name(&session.label), display::user_path(&session.workspace_path));
    format!("Delete session {label} of {path}? The files there stay.")
}
