//! `quack activate`: activates a session.

use crate::args::sessions::ActivateArgs;
use crate::display;
use crate::exit::ExitCode;
use crate::output::{BOLD, CliOutput};
use crate::session_ref;
use quackd_protocol::client::{ActivateParams, SessionSetParams};

/// Makes another session the active one, with another engine or model if one is given.
pub(crate) async fn run(args: ActivateArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let (client, session) = session_ref::existing(&args.which.into_which(), output).await?;

    // Set before the session becomes active, so that a refusal changes nothing.
    if args.engine.is_some() || args.model.is_some() {
        let params = SessionSetParams {
            session_id: session.session_id.0.clone().into(),
            engine: args.engine,
            model: args.model,
            ..SessionSetParams::default()
        };
        client.call(params).await?;
    }

    let data = client.call(ActivateParams::of(session.session_id.0)).await?;
    output.show(&data, || {
        let name = display::name(&session.label);
        let path = display::user_path(&data.workspace.path);
        format!("{BOLD}{name}{BOLD:#}  {path}  is the active session.\n")
    })?;
    Ok(ExitCode::Ok)
}
