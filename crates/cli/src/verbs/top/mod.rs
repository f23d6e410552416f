//! `quack top`: what the daemon and its sessions do, on a full screen, until a person has seen enough.
//!
//! [`source`] asks the daemon and does what is wanted, [`model`] is what is known and chosen, [`view`] draws it,
//! [`screen`] has the terminal; here is the loop between them.

mod model;
mod screen;
mod source;
#[cfg(test)]
mod tests;
mod view;

use self::model::{Model, Wish};
use self::screen::{Ears, KeyByKey, Keys, Screen, Told, is_gone};
use self::source::{Deed, Update};
use self::view::Look;
use super::follow::live::{Interrupts, Live, Typing};
use super::follow::{header, watch::Watch};
use crate::connect::{connect, connect_only};
use crate::exit::{Exit, Fault};
use crate::output::Output;
use crate::render::Look as EventLook;
use crate::which;
use quackd_home::Home;
use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Deeds and looks that wait: the daemon is asked no faster than the screen takes it.
const WAITING: usize = 4;

/// Runs the verb. Starts no daemon; one that comes back is met again.
pub(crate) async fn run(output: Output) -> anyhow::Result<Exit> {
    if output.is_json() || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let text = "quack top needs a terminal; for scripts there is `quack ps --json`";
        return Err(Fault::usage(text).into());
    }
    let home = Home::from_process_env_blocking()?;
    let daemon = connect_only(output).await?;
    let (deeds, wanted) = channel(WAITING);
    let (told, updates) = channel(WAITING);
    let source = tokio::spawn(source::run(home.clone(), daemon.client, wanted, told));
    let shown = show(&home, &deeds, updates, output).await;
    source.abort();
    match shown {
        // Whoever closed the window has seen enough.
        Err(error) if is_gone(&error) => Ok(Exit::Ok),
        shown => shown.map(|()| Exit::Ok),
    }
}

async fn show(
    home: &Home,
    deeds: &Sender<Deed>,
    mut updates: Receiver<Update>,
    output: Output,
) -> anyhow::Result<()> {
    let home_dir = std::env::var("HOME").ok();
    let look = Look { is_colored: output.audience().is_colored, home_dir: home_dir.as_deref() };
    let mut ears = Ears::open()?;
    let (mut model, mut keys, mut screen) = (Model::default(), Keys::default(), Screen::enter()?);
    loop {
        screen.draw(|frame| view::draw(&model, look, frame.area(), frame.buffer_mut()))?;
        let wish = tokio::select! {
            biased;
            told = ears.next() => match told {
                Told::End => Wish::Quit,
                Told::Stop => {
                    keys.rest().await;
                    screen.stop(false)?;
                    Wish::Nothing
                }
                Told::Continued => {
                    screen.up()?;
                    Wish::Nothing
                }
            },
            event = keys.next() => match event? {
                Event::Key(key) if key.kind != KeyEventKind::Release => model.key(key),
                _ => Wish::Nothing,
            },
            Some(update) = updates.recv() => {
                model.take(update);
                Wish::Nothing
            }
        };
        match wish {
            Wish::Nothing => {}
            Wish::Quit => return Ok(()),
            Wish::Stop => {
                keys.rest().await;
                screen.stop(true)?;
            }
            // A queue that is full means that the daemon does not answer, which is shown.
            Wish::Do(deed) => drop(deeds.try_send(deed)),
            Wish::Follow(session) => {
                keys.rest().await;
                screen.down();
                match Box::pin(follow(home, session, &mut keys, &mut ears, output)).await {
                    Ok(Told::End) => return Ok(()),
                    Ok(Told::Stop | Told::Continued) => {}
                    Err(error) => model.note = format!("{error:#}"),
                }
                keys.rest().await;
                screen.up()?;
            }
        }
    }
}

/// Shows a session as `quack follow` does, until a key or the session's end. `End`: the whole program is to end.
async fn follow(
    home: &Home,
    session: String,
    keys: &mut Keys,
    ears: &mut Ears,
    output: Output,
) -> anyhow::Result<Told> {
    let client = Arc::new(connect(home).await?);
    let watch = Watch::begin(client, session, None).await?;
    let home_dir = std::env::var("HOME").ok();
    let label = which::label(&watch.client(), watch.session()).await?;
    output.text(&header(&label, watch.followed(), home_dir.as_deref()))?;
    output.text("-- q or Esc comes back --\n")?;
    let look = EventLook { show_thinking: false, verbose: false };
    let live = Live::new(watch, look, Typing::Nothing, output);
    let mut interrupts = Interrupts::catch()?;
    let typing = KeyByKey::begin()?;
    let mut shown = std::pin::pin!(live.run(&mut interrupts));
    let mut is_over = false;
    let told = loop {
        tokio::select! {
            biased;
            told = ears.next() => match told {
                Told::End => break Told::End,
                Told::Stop | Told::Continued => {}
            },
            ended = &mut shown, if !is_over => {
                is_over = true;
                if let Err(error) = ended {
                    output.failure(&format!("{error:#}"));
                }
                output.text("-- over; q or Esc comes back --\n")?;
            }
            event = keys.next() => if is_way_back(&event?) { break Told::Continued },
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
