//! `quack new`: creates another session for a directory's repository.

use crate::args::sessions::NewArgs;
use crate::connect::{start_and_connect, warn_if_config_changed};
use crate::directory;
use crate::display;
use crate::exit::{CliError, ExitCode};
use crate::output::{BOLD, CliOutput, DIM};
use crate::session_ref;
use crate::subcommands::isolated::{ISOLATED_TIMEOUT, SENT_TIMEOUT};
use quackd_client::{Client, ClientError};
use quackd_protocol::client::{AttachData, ErrorCode, SessionNewParams};
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::limits::REPLY_TIMEOUT;
use std::time::Duration;

/// Timeout of a new session for which an engine creates something: longer than the longest `create` and a `destroy` after
/// it.
const CREATE_TIMEOUT: Duration = Duration::from_secs(12 * 60);

/// Creates a session of the directory's repository. With `--isolated`, in a copy of the repository.
pub(crate) async fn run(args: NewArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let here = || args.dir.clone().or_else(|| std::env::current_dir().ok());
    let path = match &args.on {
        Some(on) if !args.send => directory::far_workspace(on, args.dir.as_deref())?,
        _ => directory::workspace(here().as_deref(), args.force)?,
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
        send_to: args.on.filter(|_| args.send),
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
    let is_sent = params.send_to.is_some();
    let is_isolated = params.isolated == Some(true) || is_sent;
    let is_far = is_sent || params.path.as_deref().and_then(FarWorkspace::of).is_some();
    let timeout = match () {
        () if is_sent => CREATE_TIMEOUT + SENT_TIMEOUT,
        // A large repository takes seconds to copy.
        () if is_isolated => ISOLATED_TIMEOUT,
        () if is_far => CREATE_TIMEOUT,
        () => REPLY_TIMEOUT,
    };

    let made = client.call_within(params, timeout).await.map_err(|error| match error {
        // An unknown engine or a target that does not fit, from `--on`.
        ClientError::Refused { text, code: Some(ErrorCode::NotAWorkspace) } if is_far => {
            CliError::usage(text).into()
        }
        error => anyhow::Error::new(error),
    })?;
    match made.note.as_ref().filter(|_| !output.is_json()) {
        // It says what was copied.
        Some(note) if is_isolated => output.note(note),
        Some(note) => output.warning(note),
        None => {}
    }
    Ok(made)
}
