//! `quack attach`: shows a terminal of a session on the user's terminal, and passes on what the user types.
//!
//! [`viewer`] runs the event loop, [`connection`] speaks with the daemon, [`window`] owns the user's terminal,
//! [`cropped`] draws a screen that is larger than the window, [`opening`] asks before an address is opened,
//! [`watched_keys`] finds the keys that detach, [`session_choice`] finds the session, [`settings`] reads the
//! configuration, [`color_query`] asks for the colors of the user's terminal. Also used by `quack run`, and parts by
//! `quack play`.

pub(super) mod color_query;
mod connection;
mod cropped;
mod opening;
pub(super) mod pending;
pub(super) mod session_choice;
pub(super) mod settings;
mod viewer;
pub(super) mod watched_keys;
pub(super) mod window;

pub(super) use self::connection::{Attached, Target};

use self::color_query::ColorQuery;
use self::session_choice::ChosenTerminal;
use self::settings::TerminalSettings;
use self::viewer::{Ended, Viewer};
use self::window::{Window, require_terminal};
use crate::args::terminals::TermAttachArgs;
use crate::display::{self, plain};
use crate::exit::{self, CliError, ExitCode};
use crate::output::{CliOutput, OpenQuestion};
use crate::screen_signals::SignalListener;
use quackd_protocol::terminal::TerminalExit;
use std::sync::Arc;

/// Runs the subcommand.
pub(crate) async fn run(args: TermAttachArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    require_terminal("attach", "`quack tool term_read` shows a screen as text", output)?;
    let settings = TerminalSettings::read()?;
    let ChosenTerminal { client, session, terminal } = match &args.remote {
        Some(address) => session_choice::remote(address, args.terminal, output).await?,
        None => session_choice::chosen(args.terminal, output).await?,
    };
    let signals = SignalListener::open()?;
    // A client that types nothing has no colors.
    let query = if args.read_only { ColorQuery::default() } else { ColorQuery::ask_blocking() };
    let target = Target {
        client: Arc::new(client),
        session: session.session_id.0,
        label: display::label(&session.label, &session.session_name).to_owned(),
        terminal,
        is_read_only: args.read_only,
        sets_size: args.size,
        colors: query.colors(),
        remote: args.remote.map(|address| address.to_string()),
    };
    let attached = Attached::begin(target).await?;
    Ok(show(attached, settings, query, signals, output).await?.code)
}

/// Result of showing a terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    /// Exit code of the client.
    pub(super) code: ExitCode,
    /// Whether the program has ended.
    pub(super) has_ended: bool,
    /// Whether its screen was shown. Otherwise it ended when the client was being attached.
    pub(super) has_screen: bool,
}

/// Shows an attached terminal until its program ends or the client is detached. `signals` was opened before the terminal is
/// changed, so that no signal leaves it in raw mode.
///
/// # Errors
/// Those of the terminal, a lost connection, and a program whose end is not known.
pub(super) async fn show(
    mut attached: Attached,
    settings: TerminalSettings,
    query: ColorQuery,
    mut signals: SignalListener,
    output: CliOutput,
) -> anyhow::Result<Shown> {
    let TerminalSettings { keys, clipboard } = settings;
    let place = attached.place();

    let (ended, unanswered, has_screen) = {
        // Other texts wait until the screen is gone.
        let held = OpenQuestion::begin(output).await;
        let window = Window::open(clipboard, format!("{place}: "))?;
        let Attached { view, events, size, title } = &mut attached;
        let mut viewer = Viewer::new(view, *size, title.take(), &held, window, keys, query);
        let ended = viewer.run(events, &mut signals).await;
        viewer.close(&mut signals, matches!(ended, Ok(Ended::Detached))).await;
        (ended, viewer.unanswered(), viewer.has_screen)
    };
    if let Some(address) = unanswered {
        output.note(&format!("{} was not opened", plain(&address)));
    }

    match ended? {
        Ended::Exited(exit) => {
            return Ok(Shown { code: end_of(&exit, output)?, has_ended: true, has_screen });
        }
        Ended::Detached => {
            let label = display::name(&attached.view.label);
            let remote = attached.view.remote.map(|url| format!("--remote {} ", plain(&url)));
            let remote = remote.unwrap_or_default();
            output.to_stderr(&format!("\n[detached from {label}; quack attach {remote}{label}]\n"));
        }
        Ended::Closed => {}
    }
    Ok(Shown { code: ExitCode::Ok, has_ended: false, has_screen })
}

/// Returns the exit code for the end of a program, and prints the reason if it did not end by itself.
fn end_of(exit: &TerminalExit, output: CliOutput) -> anyhow::Result<ExitCode> {
    let reason = exit.reason.as_deref().map(plain);
    if exit.daemon_ends {
        let unknown = || "the daemon has exited".to_owned();
        return Err(CliError::daemon_gone(reason.unwrap_or_else(unknown)).into());
    }
    let Some(code) = exit::of_program(exit.exit_code, exit.signal) else {
        let unknown = || "the program has ended; its exit code is not known".to_owned();
        return Err(CliError::failed(reason.unwrap_or_else(unknown)).into());
    };
    if let Some(reason) = reason {
        output.warning(&reason);
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::OutputArgs;

    fn code(exit: &TerminalExit) -> Result<u8, ExitCode> {
        let ended = end_of(exit, CliOutput::new(OutputArgs::default()));
        ended.map(ExitCode::code).map_err(|error| exit::of_error(&error))
    }

    #[test]
    fn the_exit_code_is_that_of_the_program() {
        let exit =
            |exit_code, signal| TerminalExit { exit_code, signal, ..TerminalExit::default() };
        assert_eq!(code(&exit(Some(0), None)), Ok(0));
        assert_eq!(code(&exit(Some(42), None)), Ok(42));
        assert_eq!(code(&exit(None, Some(15))), Ok(143));
        assert_eq!(code(&exit(None, None)), Err(ExitCode::Failed));
        let died = TerminalExit { reason: Some("its worker died".into()), ..exit(None, None) };
        assert_eq!(code(&died), Err(ExitCode::Failed));
        let stopped = TerminalExit { daemon_ends: true, ..exit(None, None) };
        assert_eq!(code(&stopped), Err(ExitCode::Unreachable));
    }
}
