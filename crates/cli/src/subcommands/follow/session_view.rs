//! Event loop that shows one session: prints events and the app's history as text or JSON lines, and reads the user's
//! input on a terminal. Used by `quack follow`, `quack [DIR]` and `quack say`.
//!
//! Exits with 0 on Ctrl-C (with a prompt: on Ctrl-D), when the reader closes the output, or when the session is deleted.
//! Exits with 3 when the daemon is gone and does not return in time. If it waits for one turn, [`TurnTracker`] decides.

mod one_turn;
mod user_input;

use super::asking::{Asking, Typed, recv, until};
use super::follow_connection::FollowConnection;
use super::history;
use super::requests::{NO_VOICE, RequestResult};
use super::screen::{self, Screen};
use super::slash;
use super::speaker::{Speaker, wished};
use super::turn_filter::TurnFilter;
use super::turn_result::TurnResult;
use super::turn_tracker::{TurnOutcome, TurnTracker};
use crate::args::Cli;
use crate::exit::{CliError, ExitCode};
pub(crate) use crate::interrupts::Interrupts;
use crate::output::{CliOutput, StdoutState};
use crate::platform::HAS_APP;
use crate::render::{DisplayOptions, Renderer};
use quackd_client::{ClientError, Event};
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::{self, IsTerminal};
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::interval;

/// Interval between checks for a reader of the output while there is nothing to print.
const READER_INTERVAL: Duration = Duration::from_secs(1);

/// Arrived events are combined into pieces of about this size, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// Timeout for printing the end of the output.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Warning after Ctrl-C if the turn has not begun and another turn may be running.
const WAITS: &str = "the agent has not begun this turn: waiting briefly to abort it; press Ctrl-C again to exit now";

/// Runs a subcommand typed by the user.
pub(crate) type RunVerb =
    fn(Cli, CliOutput) -> Pin<Box<dyn Future<Output = anyhow::Result<ExitCode>>>>;

/// Use of the lines typed by the user.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InputMode {
    /// None: another module reads the keyboard.
    Nothing,
    /// Answers to Pi's questions.
    Answers,
    /// Answers, and Ctrl-D, which leaves.
    Leaves,
    /// Answers, prompts and subcommands.
    Speaks(RunVerb),
}

/// Whether a user reads the output and can type.
pub(crate) fn is_person(output: CliOutput) -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && !output.is_json()
}

/// View of one session.
#[derive(Debug)]
pub(crate) struct SessionView {
    connection: FollowConnection,
    screen: Screen,
    /// Questions asked at this terminal, and its keyboard. `None` without a terminal.
    asking: Option<Asking>,
    /// The prompt, on a terminal that can move its cursor.
    speaker: Option<Speaker>,
    typing: InputMode,
    history: Option<mpsc::Receiver<Vec<Value>>>,
    requests: JoinSet<RequestResult>,
    tracker: Option<TurnTracker>,
    /// Result of the awaited turn, for the end.
    result: Option<TurnResult>,
    /// Filter for the events of the awaited turn, if any.
    filter: Option<TurnFilter>,
    is_at_work: bool,
    is_thinking: bool,
    /// Whether the running turn is being aborted.
    is_aborting: bool,
    /// Prompts that were typed while the turn was being aborted, for its end.
    waiting: Vec<String>,
    output: CliOutput,
}

impl SessionView {
    /// Creates a view of the session that `connection` follows. Pi asks its questions on a terminal only, and never
    /// with `--json`.
    pub(crate) fn new(
        connection: FollowConnection,
        look: DisplayOptions,
        typing: InputMode,
        output: CliOutput,
    ) -> Self {
        let history = (!output.is_json()).then(|| history::read(connection.followed()));
        let state = connection.followed().session_state.as_ref();
        let streams = state.and_then(|state| state.get("isStreaming")).and_then(Value::as_bool);

        let can_type = is_person(output) && !matches!(typing, InputMode::Nothing);
        let mut asking = can_type.then(|| Asking::new(false, output));
        // Where the cursor can move, the prompt reads keys itself. Questions alone need no lines before the first one.
        let reads_lines = match typing {
            InputMode::Leaves => true,
            InputMode::Speaks(_) => !screen::can_move(output),
            InputMode::Nothing | InputMode::Answers => false,
        };
        if let Some(asking) = asking.as_mut().filter(|_| reads_lines) {
            asking.read_lines();
        }

        Self {
            is_at_work: streams == Some(true),
            connection,
            screen: Screen::new(output, Renderer::new(look)),
            asking,
            speaker: None,
            typing,
            history,
            requests: JoinSet::new(),
            tracker: None,
            result: None,
            filter: None,
            is_thinking: false,
            is_aborting: false,
            waiting: Vec::new(),
            output,
        }
    }

    /// Starts the app's voice if the app is connected or connects soon.
    pub(crate) fn start_voice(&mut self) {
        self.requests.spawn(self.connection.target().voice());
    }

    /// Runs the view until it ends.
    ///
    /// # Errors
    /// If the daemon is gone, the awaited turn was refused, or the output cannot be written.
    pub(crate) async fn run(mut self, interrupts: &mut Interrupts) -> anyhow::Result<ExitCode> {
        let ended = self.show(interrupts).await;
        // The open question holds the terminal, which the end of the output needs.
        drop(self.asking.take());
        // A blocked reader must not delay the exit, and the exit code does not depend on the last text.
        tokio::time::timeout(LAST_WORDS, self.screen.finish()).await.ok();

        match (self.result.take(), ended) {
            (Some(mut result), Ok(exit)) => {
                self.compare_files(&mut result, interrupts).await;
                Ok(result.finish(exit, self.output)?)
            }
            (_, ended) => ended,
        }
    }

    async fn show(&mut self, interrupts: &mut Interrupts) -> anyhow::Result<ExitCode> {
        if self.connection.followed().resync {
            self.screen.remark("some events were lost");
        }

        let mut ticks = interval(READER_INTERVAL);
        loop {
            self.prepare_screen();
            // A reader that is slow must not delay Ctrl-C.
            let reader = tokio::select! {
                biased;
                is_key = interrupts.next() => {
                    if let Some(exit) = self.interrupted(is_key, Instant::now()) {
                        return Ok(exit);
                    }
                    continue;
                }
                printed = self.screen.flush() => printed?,
            };
            if let Some(speaker) = &mut self.speaker {
                speaker.prompt.printed();
            }

            // Without a reader, only the outcome of an awaited turn matters.
            if reader == StdoutState::Gone && self.tracker.is_none() {
                return Ok(ExitCode::Ok);
            }

            if let Some(end) = self.tracker.as_mut().and_then(|tracker| tracker.end(Instant::now()))
            {
                return self.outcome(end);
            }

            let due = self.tracker.as_ref().map(TurnTracker::due);
            let exit = tokio::select! {
                is_key = interrupts.next() => self.interrupted(is_key, Instant::now()),
                event = self.connection.recv() => match event {
                    Some(event) => {
                        let is_last = self.events(event)?;
                        (is_last && self.tracker.is_none()).then_some(ExitCode::Ok)
                    }
                    None => self.connection_lost(interrupts).await?,
                },
                Some(done) = self.requests.join_next() => {
                    // A request that panicked has no result.
                    if let Ok(done) = done {
                        self.done(done, Instant::now())?;
                    }
                    None
                }
                Some(typed) = typed(&mut self.asking) => self.was_typed(typed).await?,
                Some(wish) = wished(&mut self.speaker) => self.wish(wish, Instant::now()).await?,
                Some(entries) = recv(&mut self.history) => {
                    entries.iter().for_each(|entry| self.screen.history(entry));
                    None
                }
                () = until(due) => self.time_passed(Instant::now()),
                _ = ticks.tick() => self.time_passed(Instant::now()),
            };

            if let Some(exit) = exit {
                return Ok(exit);
            }
        }
    }

    fn outcome(&mut self, end: TurnOutcome) -> anyhow::Result<ExitCode> {
        let has_lines = self.output.is_json() && self.result.is_none();
        match end {
            TurnOutcome::Well => Ok(ExitCode::Ok),
            TurnOutcome::Failed(reason) => CliError::failed(reason).shown(has_lines),
            TurnOutcome::NoAnswer(reason) => CliError::no_answer(reason).shown(has_lines),
            TurnOutcome::Interrupted => Ok(ExitCode::Interrupted),
            TurnOutcome::Left(text) => {
                self.screen.warn(&text);
                Ok(ExitCode::Interrupted)
            }
            TurnOutcome::Because(error) => Err(error),
        }
    }

    /// Reconnects, unless the user interrupts it.
    async fn connection_lost(
        &mut self,
        interrupts: &mut Interrupts,
    ) -> anyhow::Result<Option<ExitCode>> {
        tokio::select! {
            biased;
            _ = interrupts.next() => {
                let is_waiting = self.tracker.is_some();
                Ok(Some(if is_waiting { ExitCode::Interrupted } else { ExitCode::Ok }))
            }
            again = self.reconnect() => again.map(|()| None),
        }
    }

    /// Checks the reader of the output and the turn.
    fn time_passed(&mut self, now: Instant) -> Option<ExitCode> {
        if self.screen.look() == StdoutState::Gone && self.tracker.is_none() {
            return Some(ExitCode::Ok);
        }

        let tracker = self.tracker.as_mut()?;
        if tracker.tells(now) {
            self.screen.warn(WAITS);
        }
        if tracker.look_is_due(now) {
            self.requests.spawn(self.connection.target().look());
        }
        None
    }

    /// Handles an event and all events that have arrived. Returns true if the session was deleted.
    fn events(&mut self, first: Event) -> anyhow::Result<bool> {
        let mut next = Some(first);
        while let Some(event) = next {
            let is_last = event.name == "session_deleted";
            let selected = match &mut self.filter {
                Some(filter) => filter.pass(event),
                None => Some(event),
            };
            selected.iter().try_for_each(|event| self.event(event))?;
            if is_last {
                return Ok(true);
            }

            // Events after the end of the awaited turn must not be printed.
            let is_over =
                self.tracker.as_ref().is_some_and(|tracker| tracker.is_over(Instant::now()));
            next = if is_over || PIECE_BYTES <= self.screen.len() {
                None
            } else {
                self.connection.try_recv()
            };
        }

        // Abort after the loop: if the end of the turn has already arrived, an abort could hit another client's turn.
        self.abort_if_due();
        Ok(false)
    }

    fn abort_if_due(&mut self) {
        if self.tracker.as_mut().is_some_and(|tracker| tracker.aborts(Instant::now())) {
            self.abort();
        }
    }

    fn event(&mut self, event: &Event) -> anyhow::Result<()> {
        let is_json = self.output.is_json();
        let is_line = is_json && !self.result.as_ref().is_some_and(TurnResult::is_alone);
        if is_line {
            self.screen.line(event)?;
        }
        if is_json && self.tracker.is_none() {
            return Ok(());
        }

        let data = event.data.as_deref().map_or("null", RawValue::get);
        // Too deeply nested JSON is not displayed.
        let data: Value = serde_json::from_str(data).unwrap_or(Value::Null);
        let name = event.name.as_str();

        if let Some(tracker) = &mut self.tracker {
            tracker.happened(name, &data, Instant::now());
        }
        if let Some(result) = &mut self.result {
            result.happened(name, &data);
        }
        match (name, &mut self.speaker) {
            ("agent_start" | "agent_end", _) => self.turn_changed(name == "agent_start"),
            ("queue_update", Some(speaker)) => speaker.status.queue(&data),
            _ => {}
        }

        if let Some(text) = notice(name, &data) {
            // A line contains the notice already.
            if !is_line {
                self.screen.warn(text);
            }
            return Ok(());
        }
        if is_json || self.handle_question_event(name, &data) {
            return Ok(());
        }

        // The answer begins with the first visible text.
        let before = self.screen.len();
        self.screen.event(name, &data);
        self.is_thinking &= self.screen.len() == before && !self.screen.has_open_line();
        if name == "agent_end" {
            self.say_waiting();
        }
        Ok(())
    }

    fn done(&mut self, done: RequestResult, now: Instant) -> anyhow::Result<()> {
        match (done, &mut self.tracker) {
            (RequestResult::Said(answer), Some(tracker)) => {
                let held = self.filter.as_mut().map(|filter| match &answer {
                    Ok(turn) => filter.accepted(*turn),
                    Err(ClientError::Disconnected) => {
                        filter.lost();
                        Vec::new()
                    }
                    Err(_) => filter.refused(),
                });
                // Before the held events: a beginning among them cancels the check that the reply schedules.
                tracker.answered(answer.map(drop), now);
                held.iter().flatten().try_for_each(|event| self.event(event))?;
                self.abort_if_due();
            }
            (RequestResult::Said(answer), None) => {
                if let Err(error) = answer {
                    self.is_thinking = false;
                    self.screen.failure(&error.to_string());
                }
            }
            (RequestResult::Queued, Some(_)) => self.was_queued(now)?,
            (RequestResult::Looked { busy, streams }, Some(tracker)) => {
                tracker.looked(busy, streams, now);
            }
            (RequestResult::Aborted, Some(tracker)) => tracker.aborted(now),
            (RequestResult::State(state), _) => {
                if let Some(speaker) = &mut self.speaker {
                    speaker.status.read(&state);
                }
            }
            (RequestResult::Unread(texts), _) => {
                if let Some(speaker) = self.speaker.as_mut().filter(|_| !texts.is_empty()) {
                    speaker.prompt.restore(&texts.join("\n"));
                }
            }
            (RequestResult::Agent(purpose, Ok(data)), _) => {
                self.screen.remark(&slash::reply_text(purpose, &data));
                self.ask_for_state();
            }
            (RequestResult::Ran(ran), _) => {
                if let Some(speaker) = &mut self.speaker {
                    speaker.running = speaker.running.saturating_sub(1);
                }
                if let Err(error) = ran {
                    self.screen.failure(&error);
                }
            }
            (RequestResult::Agent(_, Err(error)) | RequestResult::Answered(Err(error)), _) => {
                self.screen.failure(&error.to_string());
            }
            (RequestResult::Answered(Ok(Some(record))), _) => self.screen.remark(&record),
            // The app exists only on macOS.
            (RequestResult::NoVoice, _) if HAS_APP => self.screen.remark(NO_VOICE),
            (
                RequestResult::Answered(Ok(None))
                | RequestResult::NoVoice
                | RequestResult::Nothing
                | RequestResult::Queued
                | RequestResult::Aborted
                | RequestResult::Looked { .. },
                _,
            ) => {}
        }
        Ok(())
    }

    /// Reconnects to the daemon, or to the next one.
    async fn reconnect(&mut self) -> anyhow::Result<()> {
        match self.connection.client().why_closed() {
            // A protocol error is permanent: the peer is not our daemon.
            ClientError::Protocol(text) => return Err(ClientError::Protocol(text).into()),
            ClientError::Refused { text, .. } => self.screen.remark(&text),
            _ => {}
        }

        // The daemon sends open questions again.
        if let Some(asking) = &mut self.asking {
            asking.clear();
        }
        if let Some(speaker) = &mut self.speaker {
            speaker.prompt.clear_questions();
        }

        self.screen.hold(false);
        self.screen.flush().await?;
        let again = self.connection.again(self.tracker.is_some()).await?;
        let is_complete = again.continues(&self.connection);
        self.connection = again;

        // Whether the turn still thinks or is being aborted is not known.
        (self.is_thinking, self.is_aborting) = (false, false);
        if is_complete {
            self.screen.remark("reconnected");
        } else {
            self.is_at_work = false;
            self.screen.forget();
            if let Some(filter) = &mut self.filter {
                filter.lost();
            }
            self.screen.remark("reconnected; some events were lost");
        }
        Ok(())
    }
}

/// Returns a message of quackd's own agent for the user. It does not belong to the answer.
fn notice<'a>(name: &str, data: &'a Value) -> Option<&'a str> {
    let text = |key: &str| data.get(key).and_then(Value::as_str);
    let is_notice = name == "extension_error" && text("extensionPath") == Some("quackd");
    text("error").filter(|_| is_notice)
}

/// Waits for the next input of the user. `None` without a terminal. Cancel-safe.
async fn typed(asking: &mut Option<Asking>) -> Option<Typed> {
    Some(asking.as_mut()?.next().await)
}
