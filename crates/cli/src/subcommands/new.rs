//! `quack new`: creates another session for a directory's repository.

use crate::args::sessions::NewArgs;
use crate::connect::{start_and_connect, warn_if_config_changed};
use crate::directory;
use crate::display;
use crate::exit::ExitCode;
use crate::output::{BOLD, CliOutput, DIM};
use crate::session_ref;
use crate::subcommands::isolated::ISOLATED_TIMEOUT;
use quackd_client::Client;
use quackd_protocol::client::{AttachData, SessionNewParams};
use quackd_protocol::limits::REPLY_TIMEOUT;

/// Creates a session of the directory's repository. With `--isolated`, in a copy of the repository.
pub(crate) async fn run(args: NewArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let here = || args.dir.clone().or_else(|| std::env::current_dir().ok());
    let path = match &args.on {
        Some(on) => directory::far_workspace(on, args.dir.as_deref())?,
        None => directory::workspace(here().as_deref(), args.force)?,
    };

    let daemon = start_and_connect(output).await?;
    warn_if_config_changed(&daemon.daemon, output);
    let path = match args.dir {
        Some(_) => path,
        None => session_ref::enclosing(&daemon.client).await?.unwrap_or(path),
    };

    let params = SessionNewParams {
        path: Some(path),
        name: args.name,
        activate: args.activate.then_some(true),
        safe_mode: args.safe.then_some(true),
        engine: args.engine,
        model: args.model,
        isolated: args.isolated.then_some(true),
        ..SessionNewParams::default()
    };

    let made = create(&daemon.client, params, output).await?;
    output.show(&made, || {
        let name = display::name(display::label(&made.label, &made.session.name));
        let path = display::user_path(&made.workspace.path);
        let id = display::plain(made.session.id.as_str());
        format!("{BOLD}{name}{BOLD:#}  {path}  {DIM}{id}{DIM:#}\n")
    })?;
    Ok(ExitCode::Ok)
}

/// Creates a session, and prints the daemon's note about it.
///
/// # Errors
/// Those of the request.
pub(super) async fn create(
    client: &Client,
    params: SessionNewParams,
    output: CliOutput,
) -> anyhow::Result<AttachData> {
    let is_isolated = params.isolated == Some(true);
    // A large repository takes seconds to copy.
    let timeout = if is_isolated { ISOLATED_TIMEOUT } else { REPLY_TIMEOUT };

    let made = client.call_within(params, timeout).await?;
    match made.note.as_ref().filter(|_| !output.is_json()) {
        // It says what was copied.
        Some(note) if is_isolated => output.note(note),
        Some(note) => output.warning(note),
        None => {}
    }
    Ok(made)
}
