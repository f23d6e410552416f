//! The part of the view that deals with the user: the prompt and its commands, questions, and the last rows.

use super::super::asking::{Asking, Typed};
use super::super::footer::Footer;
use super::super::prompt::Wish;
use super::super::prompt::past_prompts::PastPrompts;
use super::super::requests::{Prompt, SAY_LIMIT};
use super::super::screen;
use super::super::slash::{self, Line};
use super::super::speaker::{CtrlC, Speaker, THINKING};
use super::super::stdin_lines::StdinLine;
use super::{InputMode, RunVerb, SessionView};
use crate::args::Cli;
use crate::display;
use crate::exit::{CliError, ExitCode, explain};
use crate::keyboard;
use quackd_protocol::client::SessionNewParams;
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

/// Prompt of a terminal that cannot move its cursor.
const SPEAK: &str = "> ";

/// Maximum number of prompts that wait for the end of a turn.
const MAX_WAITING: usize = 16;

impl SessionView {
    /// Shows a prompt, if the terminal can move its cursor. `past`: the earlier prompts. `@files` begin in `directory`.
    ///
    /// # Errors
    /// Those of the terminal.
    pub(crate) fn show_prompt(&mut self, past: PastPrompts, directory: PathBuf) -> io::Result<()> {
        if self.asking.is_none() || !screen::can_move(self.output) {
            return Ok(());
        }

        let mut speaker = Speaker::begin(past, directory)?;
        if let Some(agent) = &self.connection.followed().session_state {
            speaker.status.agent(agent);
        }

        self.asking = None;
        self.speaker = Some(speaker);
        self.screen.show_prompt();
        self.ask_for_state();
        Ok(())
    }

    pub(super) fn ask_for_state(&mut self) {
        self.requests.spawn(self.connection.target().state());
    }

    /// Handles an event about a question asked at this terminal. Returns false for other events.
    pub(super) fn handle_question_event(&mut self, name: &str, data: &Value) -> bool {
        let is_new = name == "extension_ui_request";
        if !is_new && name != "extension_ui_closed" {
            return false;
        }

        let (is_known, remark) = match (&mut self.asking, &mut self.speaker) {
            (Some(asking), _) if is_new => (asking.opened(data), None),
            (Some(asking), _) => (true, asking.closed(data)),
            (_, Some(speaker)) if is_new => (speaker.prompt.opened(data), None),
            (_, Some(speaker)) => (true, speaker.prompt.closed(data)),
            _ => (false, None),
        };

        if !is_known {
            return false;
        }

        self.is_thinking &= !is_new;
        if let Some(remark) = remark {
            self.screen.remark(remark);
        }
        true
    }

    pub(super) async fn wish(
        &mut self,
        wish: io::Result<Wish>,
        now: Instant,
    ) -> anyhow::Result<Option<ExitCode>> {
        let wish = match wish.map_err(anyhow::Error::from) {
            Ok(wish) => wish,
            // The window was closed, which is a normal end.
            Err(error) if keyboard::is_gone(&error) => return Ok(Some(ExitCode::Ok)),
            Err(error) => return Err(error),
        };

        let Some(speaker) = &mut self.speaker else { return Ok(None) };
        // A second Ctrl-C counts only directly after the first.
        if !matches!(wish, Wish::Interrupt) {
            speaker.interrupted = None;
        }

        match wish {
            Wish::Redraw => {}
            Wish::Typed(typed) => return self.was_typed(typed).await,
            Wish::Abort if self.is_at_work || self.is_thinking || 0 < speaker.running => {
                self.abort();
            }
            Wish::Abort => {}
            Wish::Interrupt => return Ok(self.interrupted(true, now)),
            Wish::Clear => self.screen.clear(),
            // The last rows are erased first, because the shell prints there.
            Wish::Suspend => {
                self.screen.set_footer(Footer::default());
                self.screen.flush().await?;
                speaker.prompt.suspend().await?;
            }
        }
        Ok(None)
    }

    /// Handles Ctrl-C or a signal. Returns the exit code if the view ends.
    pub(super) fn interrupted(&mut self, is_key: bool, now: Instant) -> Option<ExitCode> {
        // The outcome of an awaited turn decides when the view ends.
        if let Some(tracker) = &mut self.tracker {
            if tracker.interrupt(now) {
                self.abort();
            }
            return None;
        }

        // At a prompt, Ctrl-C ends the turn and Ctrl-D leaves.
        let has_prompt = matches!(self.typing, InputMode::Speaks(_))
            && (self.asking.is_some() || self.speaker.is_some());
        if !has_prompt || !is_key {
            return Some(ExitCode::Ok);
        }

        self.screen.footer_ended_by_terminal();
        let is_busy = self.is_at_work || self.is_thinking;
        let action = match &mut self.speaker {
            Some(speaker) => speaker.ctrl_c(is_busy, now),
            None if is_busy => CtrlC::Abort,
            None => CtrlC::Nothing,
        };

        match action {
            CtrlC::Leave => return Some(ExitCode::Ok),
            CtrlC::Abort => self.abort(),
            CtrlC::Discarded => {}
            CtrlC::Nothing => self.screen.remark("nothing to stop; Ctrl-D leaves"),
        }
        None
    }

    /// Aborts the running turn.
    pub(super) fn abort(&mut self) {
        self.is_aborting = self.is_at_work;
        self.is_thinking = false;
        self.requests.spawn(self.connection.target().abort());
    }

    pub(super) async fn was_typed(&mut self, typed: Typed) -> anyhow::Result<Option<ExitCode>> {
        let line = match typed {
            Typed::Answer(answer, record) => {
                self.requests.spawn(self.connection.target().answer(*answer, record));
                return Ok(None);
            }
            Typed::Line(line) => line,
        };

        if matches!(line, StdinLine::Line(_)) {
            self.screen.footer_ended_by_terminal();
        }

        let (line, run_verb) = match (line, self.typing) {
            (StdinLine::End, InputMode::Leaves | InputMode::Speaks(_)) => {
                return Ok(Some(ExitCode::Ok));
            }
            (StdinLine::Line(line), InputMode::Speaks(run_verb)) if !line.trim().is_empty() => {
                (line, run_verb)
            }
            _ => return Ok(None),
        };

        let target = self.connection.target();
        match Line::read(line.trim(), &target.session) {
            Line::Prompt(_) if MAX_WAITING <= self.waiting.len() => {
                self.screen.failure("too many prompts wait for the end of the turn");
            }
            // Sent after the aborted turn has ended: the turn would take it.
            Line::Prompt(text) if self.is_aborting => self.waiting.push(text),
            // The agent reads it before its next step. Without a prompt, nothing else shows that it waits.
            Line::Prompt(text) if self.is_at_work || self.is_thinking => {
                // If the turn has just ended, the prompt begins one.
                let prompt = Prompt { message: text, joins: Some("steer"), ..Prompt::default() };
                self.requests.spawn(target.say(prompt, SAY_LIMIT));
                if self.speaker.is_none() {
                    self.screen
                        .remark("the agent reads it before its next step; Ctrl-C ends the turn");
                }
            }
            Line::Prompt(text) => self.say(text),
            Line::Shell(command) => {
                if let Some(speaker) = &mut self.speaker {
                    speaker.running += 1;
                }
                self.requests.spawn(target.shell(command));
            }
            Line::Agent(command, purpose) => {
                self.requests.spawn(target.agent(command, purpose));
            }
            Line::Verb(words) => self.run_verb(words, run_verb).await?,
            Line::New => self.new_session().await?,
            Line::Help => slash::help().iter().for_each(|row| self.screen.plain(row)),
            Line::Quit => return Ok(Some(ExitCode::Ok)),
            Line::Wrong(text) => self.screen.failure(&text),
        }
        Ok(None)
    }

    /// Records the beginning or end of a turn. After its end, takes back the prompts that the agent has not read.
    pub(super) fn turn_changed(&mut self, is_running: bool) {
        self.is_at_work = is_running;
        if !is_running {
            (self.is_thinking, self.is_aborting) = (false, false);
        }

        let Some(speaker) = &mut self.speaker else { return };
        // Before the status is changed: the end of a turn clears its queue.
        let has_unread = !is_running && speaker.status.has_queued();
        speaker.status.turn(is_running, Instant::now());
        self.ask_for_state();
        if has_unread {
            self.requests.spawn(self.connection.target().take_back());
        }
    }

    /// Sends the prompts that were typed while the turn was being aborted.
    pub(super) fn say_waiting(&mut self) {
        if !self.waiting.is_empty() {
            let text = std::mem::take(&mut self.waiting).join("\n\n");
            self.say(text);
        }
    }

    /// Runs a subcommand, which has the terminal until it ends.
    async fn run_verb(&mut self, words: Vec<String>, run_verb: RunVerb) -> anyhow::Result<()> {
        self.screen.set_footer(Footer::default());
        self.screen.end_line();
        self.screen.flush().await?;
        if let Some(speaker) = &mut self.speaker {
            // The subcommand may read the keyboard.
            speaker.prompt.rest().await;
        }

        let line = std::iter::once("quack".to_owned()).chain(words);
        let ran = match Cli::read(line) {
            Ok(cli) => run_verb(cli, self.output).await,
            Err(error) => Err(CliError::usage(error.to_string()).into()),
        };

        if let Some(speaker) = &mut self.speaker {
            speaker.prompt.resume()?;
        }

        if let Err(error) = ran {
            self.screen.failure(&explain(&error));
        }
        // The last row may name another model.
        self.ask_for_state();
        Ok(())
    }

    /// Creates another session of the workspace, and goes on with it.
    async fn new_session(&mut self) -> anyhow::Result<()> {
        let path = Some(self.connection.followed().workspace_path.clone());
        let params = SessionNewParams { path, ..SessionNewParams::default() };
        let client = self.connection.client();

        let data = match client.call(params).await {
            Ok(data) => data,
            Err(error) => {
                self.screen.failure(&error.to_string());
                return Ok(());
            }
        };

        self.connection = self.connection.switch(data.session.id.0.clone()).await?;
        // Turns of the earlier session go on, and are not shown.
        (self.is_at_work, self.is_thinking) = (false, false);
        self.screen.forget();
        let label = display::name(display::label(&data.label, &data.session.name));
        self.screen.remark(&format!("this is the new session {label}"));
        self.ask_for_state();
        Ok(())
    }

    /// Sets the last rows of the terminal, and whether other text waits.
    pub(super) fn prepare_screen(&mut self) {
        let has_question =
            self.speaker.as_ref().is_some_and(|speaker| speaker.prompt.has_question());
        let holds = self.asking.as_ref().is_some_and(Asking::holds_terminal) || has_question;
        let is_expected = self.asking.as_ref().is_some_and(Asking::has_question);
        self.screen.expect_question(is_expected);
        self.screen.hold(holds);

        let footer = match (&self.speaker, &self.asking) {
            (Some(speaker), _) => speaker.footer(self.is_thinking, &self.waiting, Instant::now()),
            (None, Some(asking)) if asking.has_question() => Footer::default(),
            (None, Some(_)) if self.is_thinking => Footer::line(THINKING),
            (None, Some(_)) if matches!(self.typing, InputMode::Speaks(_)) && !self.is_at_work => {
                Footer::line(SPEAK)
            }
            (None, _) => Footer::default(),
        };
        self.screen.set_footer(footer);
    }
}
