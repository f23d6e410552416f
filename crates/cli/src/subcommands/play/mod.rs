//! `quack play`: plays a recording of a terminal on the user's terminal. Its output is filtered like that of a program.

mod recording;

use self::recording::{Frame, frames};
use super::attach_terminal::pending::{Work, done, settle, until};
use super::attach_terminal::watched_keys::WatchedKeys;
use super::attach_terminal::window::{Window, require_terminal};
use crate::args::terminals::PlayArgs;
use crate::display::full_path;
use crate::exit::{CliError, ExitCode};
use crate::output::{CliOutput, OpenQuestion, StdoutState};
use crate::piped_stdin;
use crate::screen_signals::{SignalListener, TerminalSignal};
use quackd_config::ClipboardChoice;
use std::fs::File;
use std::io;
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;

/// Key that ends the playback.
const END_KEY: &str = "ctrl-c";

/// Bytes above which output that is due waits for the next write.
const MAX_AT_ONCE: usize = 64 * 1024;

/// Bytes of one read of the keyboard.
const MAX_TYPED: usize = 1024;

/// Runs the subcommand. Ctrl-C ends it with exit code 130.
pub(crate) async fn run(args: PlayArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    require_terminal("play", "the recording is a file of JSON lines", output)?;
    let keys = WatchedKeys::parse(END_KEY)?;
    let path = full_path(&args.file);
    let file = File::open(&args.file);
    let file = file.map_err(|error| CliError::usage(format!("{path}: {error}")))?;

    let mut signals = SignalListener::open()?;
    let held = OpenQuestion::begin(output).await;
    // A recording never sets the clipboard, which the user may allow programs.
    let window = Window::open(ClipboardChoice::Off, format!("{path}: "))?;
    let (begun, speed) = (Instant::now(), args.speed);
    let mut player = Player { held: &held, window, keys, begun, speed, writing: None, next: None };
    let ended = player.run(file, &mut signals).await;
    settle(&mut player.writing).await;
    player.window.close(&held, &mut signals).await;
    ended
}

/// A playback with the user's terminal.
struct Player<'a> {
    held: &'a OpenQuestion,
    window: Window,
    keys: WatchedKeys,
    /// When the recording was begun, without the time for which this program was suspended.
    begun: Instant,
    speed: f64,
    writing: Work<'a, io::Result<StdoutState>>,
    /// The next output.
    next: Option<Frame>,
}

impl Player<'_> {
    async fn run(&mut self, file: File, signals: &mut SignalListener) -> anyhow::Result<ExitCode> {
        let (mut typed, mut is_typing) = (piped_stdin::pieces(MAX_TYPED), true);
        let mut frames = frames(file);

        loop {
            let due = self.next.as_ref().map(|frame| self.due(frame));
            tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    TerminalSignal::End => return Ok(ExitCode::Interrupted),
                    TerminalSignal::Stop => {
                        settle(&mut self.writing).await;
                        let stopped = Instant::now();
                        self.window.stop()?;
                        self.begun += stopped.elapsed();
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
                () = until(due), if self.writing.is_none() => self.show(&mut frames)?,
                frame = frames.recv(), if due.is_none() && self.writing.is_none() => {
                    let Some(frame) = frame else { return Ok(ExitCode::Ok) };
                    self.next = Some(frame?);
                    self.show(&mut frames)?;
                }
            }
        }
    }

    /// Returns when an output is shown.
    fn due(&self, frame: &Frame) -> Instant {
        self.begun + frame.at.div_f64(self.speed)
    }

    /// Writes the output that is due, as far as it was read.
    fn show(&mut self, frames: &mut Receiver<anyhow::Result<Frame>>) -> anyhow::Result<()> {
        let (now, mut bytes) = (Instant::now(), Vec::new());
        while bytes.len() < MAX_AT_ONCE
            && let Some(frame) = self.next.take()
        {
            if now < self.due(&frame) {
                self.next = Some(frame);
                break;
            }
            bytes.extend(self.window.filtered(frame.output.as_bytes()));
            self.next = frames.try_recv().ok().transpose()?;
        }

        if !bytes.is_empty() {
            self.writing = Some(Box::pin(self.held.screen(bytes)));
        }
        Ok(())
    }
}
