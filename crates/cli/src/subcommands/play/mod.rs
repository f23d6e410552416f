//! `quack play`: plays a recording of a terminal on the user's terminal. Its output is filtered like that of a program.

mod recording;

use self::recording::{Frame, frames};
use super::attach_terminal::pending::{Work, done, settle, until};
use super::attach_terminal::settings::TerminalSettings;
use super::attach_terminal::watched_keys::WatchedKeys;
use super::attach_terminal::window::{Window, require_terminal};
use crate::args::terminals::PlayArgs;
use crate::display::full_path;
use crate::exit::{CliError, ExitCode};
use crate::output::{CliOutput, OpenQuestion, StdoutState};
use crate::piped_stdin;
use crate::screen_signals::{SignalListener, TerminalSignal};
use std::fs::File;
use std::io;
use std::time::Duration;
use tokio::time::Instant;

/// Key that ends the playback.
const END_KEY: &str = "ctrl-c";

/// Bytes of one read of the keyboard.
const MAX_TYPED: usize = 1024;

/// Runs the subcommand. Ctrl-C ends it with exit code 130.
pub(crate) async fn run(args: PlayArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    require_terminal("play", "the recording is a file of JSON lines", output)?;
    let settings = TerminalSettings::read()?;
    let keys = WatchedKeys::parse(END_KEY)?;
    let path = full_path(&args.file);
    let file = File::open(&args.file);
    let file = file.map_err(|error| CliError::usage(format!("{path}: {error}")))?;

    let mut signals = SignalListener::open()?;
    let held = OpenQuestion::begin(output).await;
    let window = Window::open(settings.clipboard, format!("{path}: "))?;
    let mut player = Player { held: &held, window, keys, writing: None, next: None };
    let ended = player.run(file, args.speed, &mut signals).await;
    settle(&mut player.writing).await;
    ended
}

/// A playback with the user's terminal.
struct Player<'a> {
    held: &'a OpenQuestion,
    window: Window,
    keys: WatchedKeys,
    writing: Work<'a, io::Result<StdoutState>>,
    /// The next output, and when it is shown.
    next: Option<(Instant, Frame)>,
}

impl Player<'_> {
    async fn run(
        &mut self,
        file: File,
        speed: f64,
        signals: &mut SignalListener,
    ) -> anyhow::Result<ExitCode> {
        let (mut typed, mut is_typing) = (piped_stdin::pieces(MAX_TYPED), true);
        let mut frames = frames(file);
        // Time of the last output in the recording.
        let mut shown = Duration::ZERO;

        loop {
            let due = self.next.as_ref().map(|(due, _)| *due);
            tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    TerminalSignal::End => return Ok(ExitCode::Interrupted),
                    TerminalSignal::Stop => {
                        settle(&mut self.writing).await;
                        self.window.stop()?;
                    }
                    TerminalSignal::Continued => self.window.enter()?,
                },
                piece = typed.recv(), if is_typing => match piece {
                    Some(Ok(bytes)) if self.keys.typed(&bytes).is_pressed => {
                        return Ok(ExitCode::Interrupted);
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => is_typing = false,
                },
                input = self.keys.expired() => if input.is_pressed {
                    return Ok(ExitCode::Interrupted);
                },
                written = done(&mut self.writing) => if written? == StdoutState::Gone {
                    return Ok(ExitCode::Ok);
                },
                () = until(due), if self.writing.is_none() => self.show(),
                frame = frames.recv(), if due.is_none() && self.writing.is_none() => {
                    let Some(frame) = frame else { return Ok(ExitCode::Ok) };
                    let frame = frame?;
                    let pause = frame.at.saturating_sub(shown).div_f64(speed);
                    shown = frame.at.max(shown);
                    self.next = Some((Instant::now() + pause, frame));
                }
            }
        }
    }

    fn show(&mut self) {
        let Some((_, frame)) = self.next.take() else { return };
        let bytes = self.window.filtered(frame.output.as_bytes());
        if !bytes.is_empty() {
            self.writing = Some(Box::pin(self.held.screen(bytes)));
        }
    }
}
