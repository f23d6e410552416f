//! `quack activate`: activates a session.

use crate::args::sessions::ActivateArgs;
use crate::connect::start_and_connect;
use crate::display;
use crate::exit::ExitCode;
use crate::output::{BOLD, CliOutput};
use crate::session_ref::{Missing, Wanted};
use quackd_protocol::client::{ActivateParams, SessionSetParams};

/// Makes another session the active one, with another engine or model if one is given.
pub(crate) async fn run(args: ActivateArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let daemon = start_and_connect(output).await?;
    let choice = Wanted::reference(args.which.into_reference());
    let found = choice.one(&daemon.client, Missing::Refuse).await?;

    // Set before the session becomes active, so that a refusal changes nothing.
    if args.engine.is_some() || args.model.is_some() {
        let params = SessionSetParams {
            session_id: found.session_id.0.clone().into(),
            engine: args.engine,
            model: args.model,
            ..SessionSetParams::default()
        };
        daemon.client.call(params).await?;
    }

    let data = daemon.client.call(ActivateParams::of(found.session_id.0)).await?;
    if output.is_json() {
        output.document(&data)?;
    } else {
        let home_dir = std::env::var("HOME").ok();
        let name = display::name(&found.label);
        let path = display::path(&data.workspace.path, home_dir.as_deref());
        output.text(&format!("{BOLD}{name}{BOLD:#}  {path}  is the active session.\n"))?;
    }
    Ok(ExitCode::Ok)
}
