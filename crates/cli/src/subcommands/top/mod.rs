//! `quack top`: shows the daemon and its sessions on a full screen.
//!
//! [`source`] polls the daemon and runs actions, [`model`] holds the state, [`view`] draws it, and [`screen`] controls
//! the terminal. This module runs the event loop.

mod model;
mod screen;
mod source;
#[cfg(test)]
mod tests;
mod view;

use self::model::{KeyAction, Model};
use self::screen::Screen;
use self::source::{SessionAction, Update};
use self::view::ViewOptions;
use super::follow::session_view::{InputMode, Interrupts, SessionView};
use super::follow::{follow_connection::FollowConnection, header};
use crate::connect::{connect, connect_only};
use crate::exit::{CliError, ExitCode};
use crate::keyboard::{CbreakGuard, Keys, is_gone, is_terminal_closed};
use crate::output::CliOutput;
use crate::render::DisplayOptions;
use crate::screen_signals::{SignalListener, TerminalSignal};
use crate::session_ref;
use quackd_home::Home;
use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Capacity of the queues of actions and updates, so that the daemon is polled no faster than the screen draws.
const WAITING: usize = 4;

/// Runs the subcommand. Starts no daemon, but reconnects to a new one.
pub(crate) async fn run(output: CliOutput) -> anyhow::Result<ExitCode> {
    if output.is_json() || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let text = "quack top needs a terminal; for scripts there is `quack ps --json`";
        return Err(CliError::usage(text).into());
    }

    let home = Home::from_process_env_blocking()?;
    let daemon = connect_only(output).await?;

    let (actions, requested) = channel(WAITING);
    let (sender, updates) = channel(WAITING);
    let source = tokio::spawn(source::run(home.clone(), daemon.client, requested, sender));
    let ended = show(&home, &actions, updates, output).await;
    source.abort();

    match ended {
        // Closing the window is a normal exit. The library reports a closed terminal by an error of any kind.
        Err(error) if is_gone(&error) || is_terminal_closed() => Ok(ExitCode::Ok),
        ended => ended.map(|()| ExitCode::Ok),
    }
}

async fn show(
    home: &Home,
    actions: &Sender<SessionAction>,
    mut updates: Receiver<Update>,
    output: CliOutput,
) -> anyhow::Result<()> {
    let home_dir = std::env::var("HOME").ok();
    let look =
        ViewOptions { is_colored: output.audience().is_colored, home_dir: home_dir.as_deref() };

    // Before the screen is taken over: from now on, a signal cannot leave the terminal in raw mode.
    let mut signals = SignalListener::open()?;
    let (mut model, mut keys, mut screen) = (Model::default(), Keys::default(), Screen::enter()?);
    loop {
        screen.draw(|frame| view::draw(&model, look, frame.area(), frame.buffer_mut()))?;
        let action = tokio::select! {
            // A fast stream of updates must not delay signals and keys.
            biased;
            signal = signals.next() => match signal {
                TerminalSignal::End => KeyAction::Quit,
                TerminalSignal::Stop => {
                    keys.rest().await;
                    screen.stop(false)?;
                    KeyAction::Nothing
                }
                TerminalSignal::Continued => {
                    screen.up()?;
                    KeyAction::Nothing
                }
            },
            event = keys.next() => match event?.event {
                Event::Key(key) if key.kind != KeyEventKind::Release => model.key(key),
                _ => KeyAction::Nothing,
            },
            Some(update) = updates.recv() => {
                model.take(update);
                KeyAction::Nothing
            }
        };

        match action {
            KeyAction::Nothing => {}
            KeyAction::Quit => return Ok(()),
            KeyAction::Stop => {
                keys.rest().await;
                screen.stop(true)?;
            }
            // A full queue means that the daemon does not answer, which is displayed.
            KeyAction::Do(action) => {
                actions.try_send(action).ok();
            }
            KeyAction::Follow(session) => {
                // No thread may read the keyboard while its mode changes.
                keys.rest().await;
                screen.down();

                match Box::pin(follow(home, session, &mut keys, &mut signals, output)).await {
                    Ok(TerminalSignal::End) => return Ok(()),
                    Ok(TerminalSignal::Stop | TerminalSignal::Continued) => {}
                    Err(error) => model.note = format!("{error:#}"),
                }

                keys.rest().await;
                screen.up()?;
            }
        }
    }
}

/// Shows a session like `quack follow`, until a key is pressed or the session ends. Returns `End` if the program must
/// exit.
async fn follow(
    home: &Home,
    session: String,
    keys: &mut Keys,
    signals: &mut SignalListener,
    output: CliOutput,
) -> anyhow::Result<TerminalSignal> {
    let client = Arc::new(connect(home).await?);
    let watch = FollowConnection::begin(client, session, None, false).await?;

    let home_dir = std::env::var("HOME").ok();
    let label = session_ref::label(&watch.client(), watch.session()).await?;
    output.text(&header(&label, watch.followed(), home_dir.as_deref()))?;
    output.text("-- q or Esc comes back --\n")?;

    let look = DisplayOptions { show_thinking: false, verbose: false };
    let view = SessionView::new(watch, look, InputMode::Nothing, output);
    let mut interrupts = Interrupts::catch()?;
    // Undone on return, before the screen is taken over again.
    let _cbreak = CbreakGuard::begin()?;
    let mut view = std::pin::pin!(view.run(&mut interrupts));
    let mut is_over = false;
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                TerminalSignal::End => return Ok(signal),
                TerminalSignal::Stop | TerminalSignal::Continued => {}
            },
            ended = &mut view, if !is_over => {
                is_over = true;
                if let Err(error) = ended {
                    output.failure(&format!("{error:#}"));
                }
                output.text("-- over; q or Esc comes back --\n")?;
            }
            event = keys.next() => if is_way_back(&event?.event) {
                return Ok(TerminalSignal::Continued);
            },
        }
    }
}

fn is_way_back(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}
