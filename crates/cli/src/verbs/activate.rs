//! `quack activate`: makes a session the active one.

use crate::args::sessions::ActivateArgs;
use crate::connect::{REPLY_TIMEOUT, start_and_connect};
use crate::display;
use crate::exit::Exit;
use crate::output::{BOLD, Output};
use crate::which;
use quackd_protocol::client::{ActivateData, SessionParams};

/// Runs the verb.
pub(crate) async fn run(args: ActivateArgs, output: Output) -> anyhow::Result<Exit> {
    let daemon = start_and_connect(output).await?;
    let params = SessionParams { session_id: Some(args.session) };
    let data: ActivateData =
        which::request(&daemon.client, "activate_session", params, REPLY_TIMEOUT).await?;
    if output.is_json() {
        output.document(&data)?;
    } else {
        let home_dir = std::env::var("HOME").ok();
        let name = display::name(&data.session.name);
        let path = display::path(&data.workspace.path, home_dir.as_deref());
        output.text(&format!("{BOLD}{name}{BOLD:#}  {path}  is the active session.\n"))?;
    }
    Ok(Exit::Ok)
}
