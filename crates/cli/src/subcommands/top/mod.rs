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
use self::screen::{Screen, SignalListener, TerminalSignal};
use self::source::{SessionAction, Update};
use self::view::ViewOptions;
use super::follow::session_view::{InputMode, Interrupts, SessionView};
use super::follow::{follow_connection::FollowConnection, header};
use crate::connect::{connect, connect_only};
use crate::exit::{CliError, ExitCode};
use crate::keyboard::{CbreakGuard, Keys, is_gone, is_terminal_closed};
use crate::output::CliOutput;
use crate::render::DisplayOptions;
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
    let (deeds, wanted) = channel(WAITING);
    let (told, updates) = channel(WAITING);
    let source = tokio::spawn(source::run(home.clone(), daemon.client, wanted, told));
    let shown = show(&home, &deeds, updates, output).await;
    source.abort();
    match shown {
        // Closing the window is a normal exit. The library reports a closed terminal by an error of any kind.
        Err(error) if is_gone(&error) || is_terminal_closed() => Ok(ExitCode::Ok),
        shown => shown.map(|()| ExitCode::Ok),
    }
}

async fn show(
    home: &Home,
    deeds: &Sender<SessionAction>,
    mut updates: Receiver<Update>,
    output: CliOutput,
) -> anyhow::Result<()> {
    let home_dir = std::env::var("HOME").ok();
    let look =
        ViewOptions { is_colored: output.audience().is_colored, home_dir: home_dir.as_deref() };
    let mut ears = SignalListener::open()?;
    let (mut model, mut keys, mut screen) = (Model::default(), Keys::default(), Screen::enter()?);
    loop {
        screen.draw(|frame| view::draw(&model, look, frame.area(), frame.buffer_mut()))?;
        let wish = tokio::select! {
            biased;
            told = ears.next() => match told {
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
        match wish {
            KeyAction::Nothing => {}
            KeyAction::Quit => return Ok(()),
            KeyAction::Stop => {
                keys.rest().await;
                screen.stop(true)?;
            }
            // A full queue means that the daemon does not answer, which is displayed.
            KeyAction::Do(deed) => drop(deeds.try_send(deed)),
            KeyAction::Follow(session) => {
                keys.rest().await;
                screen.down();
                match Box::pin(follow(home, session, &mut keys, &mut ears, output)).await {
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
    ears: &mut SignalListener,
    output: CliOutput,
) -> anyhow::Result<TerminalSignal> {
    let client = Arc::new(connect(home).await?);
    let watch = FollowConnection::begin(client, session, None, false).await?;
    let home_dir = std::env::var("HOME").ok();
    let label = session_ref::label(&watch.client(), watch.session()).await?;
    output.text(&header(&label, watch.followed(), home_dir.as_deref()))?;
    output.text("-- q or Esc comes back --\n")?;
    let look = DisplayOptions { show_thinking: false, verbose: false };
    let live = SessionView::new(watch, look, InputMode::Nothing, output);
    let mut interrupts = Interrupts::catch()?;
    let typing = CbreakGuard::begin()?;
    let mut shown = std::pin::pin!(live.run(&mut interrupts));
    let mut is_over = false;
    let told = loop {
        tokio::select! {
            biased;
            told = ears.next() => match told {
                TerminalSignal::End => break TerminalSignal::End,
                TerminalSignal::Stop | TerminalSignal::Continued => {}
            },
            ended = &mut shown, if !is_over => {
                is_over = true;
                if let Err(error) = ended {
                    output.failure(&format!("{error:#}"));
                }
                output.text("-- over; q or Esc comes back --\n")?;
            }
            event = keys.next() => if is_way_back(&event?.event) { break TerminalSignal::Continued },
        }
    };
    drop(typing);
    Ok(told)
}

fn is_way_back(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}
