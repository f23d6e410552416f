//! A session as it happens: events and the app's history in, text or JSON lines out, and at a terminal what a
//! person types the other way. Used by `quack follow`, `quack [DIR]` and `quack say`.
//!
//! Owns: the connection ([`Watch`]), what is printed ([`Screen`]), the questions that are asked here ([`Desk`]), the
//! requests under way.
//! Ends: with Ctrl-C, when nobody reads the output, when the session is deleted (all exit 0), when the daemon is gone
//! and does not come back in time (exit 3); for a verb that waits for one turn as [`Course`] says.

use super::ask::{self, Done};
use super::course::{Course, End, Interrupt};
use super::desk::{Desk, Means, Question};
use super::gate::Gate;
use super::history;
use super::screen::Screen;
use super::typed::{self, Typed};
use super::watch::Watch;
use crate::exit::Exit;
pub(crate) use crate::interrupts::Interrupts;
use crate::output::{Output, Reader};
use crate::render::{Look, Renderer};
use quackd_client::{ClientError, Event};
use serde_json::Value;
use serde_json::value::RawValue;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::interval;

/// How often is looked whether the output still has a reader while there is nothing to print.
const READER_INTERVAL: Duration = Duration::from_secs(1);

/// Events that are there are gathered into pieces of about this many bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// How long the end of the output may take.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What is asked for with the last line of a terminal.
const SPEAK: &str = "> ";
const THINKING: &str = "Duck is thinking...";

/// What is said after Ctrl-C while others may be at work.
const WAITS: &str =
    "Pi has not begun with it: waiting a moment to end it then; Ctrl-C again does not wait";

/// What the lines that a person types are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Typing {
    /// Nothing: somebody else reads the keyboard.
    Nothing,
    /// Answers to questions of Pi's.
    Answers,
    /// Besides them, what is said to Pi.
    Speaks,
}

/// Whether a user reads the output and can type.
pub(crate) fn is_person(output: Output) -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && !output.is_json()
}

/// A session that is shown.
#[derive(Debug)]
pub(crate) struct Live {
    watch: Watch,
    screen: Screen,
    /// The questions that are asked here; `None` where nobody can answer.
    desk: Option<Desk>,
    typing: Typing,
    typed: Option<mpsc::Receiver<Typed>>,
    history: Option<mpsc::Receiver<Vec<Value>>>,
    requests: JoinSet<Done>,
    course: Option<Course>,
    /// What of the session is shown, if one turn of it is waited for.
    gate: Option<Gate>,
    is_at_work: bool,
    is_thinking: bool,
}

/// Something happened.
#[derive(Debug)]
enum Happened {
    Interrupted,
    Event(Option<Event>),
    Done(Done),
    Typed(Typed),
    History(Vec<Value>),
    /// It is time to look: at the reader, at the course.
    Time,
}

impl Live {
    /// Begins to show what `watch` follows. People are asked at a terminal only, and never for `--json`.
    pub(crate) fn new(watch: Watch, look: Look, typing: Typing, output: Output) -> Self {
        let can_type = is_person(output) && typing != Typing::Nothing;
        let desk = can_type.then(Desk::default);
        let history = (!output.is_json()).then(|| history::read(watch.followed()));
        let state = watch.followed().session_state.as_ref();
        let streams = state.and_then(|state| state.get("isStreaming")).and_then(Value::as_bool);
        let typed = (desk.is_some() && typing == Typing::Speaks).then(typed::read);
        let screen = Screen::new(output, Renderer::new(look));
        Self {
            is_at_work: streams == Some(true),
            watch,
            screen,
            desk,
            typing,
            typed,
            history,
            requests: JoinSet::new(),
            course: None,
            gate: None,
            is_thinking: false,
        }
    }

    /// Has the app's voice begin, if there is one: it may be about to connect.
    pub(crate) fn start_voice(&mut self) {
        self.requests.spawn(ask::voice(self.watch.client(), self.watch.session().to_owned()));
    }

    /// Says something, and lasts until its turn is over, or `deadline`.
    pub(crate) fn say_once(&mut self, message: String, deadline: Instant) {
        let now = Instant::now();
        // The app's history says nothing of what is said to Pi.
        self.history = None;
        self.course = Some(Course::new(self.watch.session().to_owned(), now, deadline));
        self.gate = Some(Gate::new(&message, self.is_at_work));
        self.say(message, deadline.saturating_duration_since(now));
    }

    fn say(&mut self, message: String, limit: Duration) {
        self.screen.typed(&message);
        let session = self.watch.session().to_owned();
        self.requests.spawn(ask::say(self.watch.client(), session, message, limit));
    }

    /// Shows what happens until one of the ends.
    ///
    /// # Errors
    /// The daemon is gone, the turn that is waited for was refused, or nothing can be printed.
    pub(crate) async fn run(mut self, interrupts: &mut Interrupts) -> anyhow::Result<Exit> {
        let ended = self.show(interrupts).await;
        // A reader that has stopped reading holds up no end.
        let _unread = tokio::time::timeout(LAST_WORDS, self.screen.finish()).await;
        ended
    }

    async fn show(&mut self, interrupts: &mut Interrupts) -> anyhow::Result<Exit> {
        if self.watch.followed().resync {
            self.screen.remark("some events were lost");
        }
        let mut ticks = interval(READER_INTERVAL);
        loop {
            self.screen.set_footer(self.footer());
            let reader = tokio::select! {
                biased;
                () = interrupts.next() => {
                    if let Some(exit) = self.interrupted(Instant::now()) {
                        return Ok(exit);
                    }
                    continue;
                }
                printed = self.screen.flush() => printed?,
            };
            if reader == Reader::Gone && self.course.is_none() {
                return Ok(Exit::Ok);
            }
            if let Some(end) = self.course.as_mut().and_then(|course| course.end(Instant::now())) {
                return match end {
                    End::Well => Ok(Exit::Ok),
                    End::Failed => Ok(Exit::Failed),
                    End::Interrupted => Ok(Exit::Interrupted),
                    End::Left(text) => {
                        self.screen.warn(&text);
                        Ok(Exit::Interrupted)
                    }
                    End::Because(error) => Err(error),
                };
            }
            let due = self.course.as_ref().map(Course::due);
            let happened = tokio::select! {
                () = interrupts.next() => Happened::Interrupted,
                event = self.watch.recv() => Happened::Event(event),
                Some(done) = self.requests.join_next() => match done {
                    Ok(done) => Happened::Done(done),
                    Err(_panicked) => Happened::Time,
                },
                Some(typed) = next(&mut self.typed) => Happened::Typed(typed),
                Some(entries) = next(&mut self.history) => Happened::History(entries),
                () = until(due) => Happened::Time,
                _ = ticks.tick() => Happened::Time,
            };
            if let Some(exit) = self.take(happened, interrupts).await? {
                return Ok(exit);
            }
        }
    }

    async fn take(
        &mut self,
        happened: Happened,
        interrupts: &mut Interrupts,
    ) -> anyhow::Result<Option<Exit>> {
        let now = Instant::now();
        match happened {
            Happened::Interrupted => return Ok(self.interrupted(now)),
            Happened::Event(Some(event)) => {
                let is_last = self.events(event)?;
                return Ok((is_last && self.course.is_none()).then_some(Exit::Ok));
            }
            Happened::Event(None) => tokio::select! {
                biased;
                () = interrupts.next() => {
                    let is_waiting = self.course.is_some();
                    return Ok(Some(if is_waiting { Exit::Interrupted } else { Exit::Ok }));
                }
                again = self.reconnect() => again?,
            },
            Happened::Done(done) => self.done(done, now)?,
            Happened::Typed(typed) => return Ok(self.was_typed(&typed)),
            Happened::History(entries) => {
                entries.iter().for_each(|entry| self.screen.history(entry));
            }
            Happened::Time => {
                if self.screen.look() == Reader::Gone && self.course.is_none() {
                    return Ok(Some(Exit::Ok));
                }
                if self.course.as_mut().is_some_and(|course| course.tells(now)) {
                    self.screen.warn(WAITS);
                }
                if self.course.as_mut().is_some_and(|course| course.look_is_due(now)) {
                    let session = self.watch.session().to_owned();
                    self.requests.spawn(ask::look(self.watch.client(), session));
                }
            }
        }
        Ok(None)
    }

    fn interrupted(&mut self, now: Instant) -> Option<Exit> {
        let Some(course) = &mut self.course else { return Some(Exit::Ok) };
        match course.interrupt(now) {
            Interrupt::Abort => self.abort(),
            Interrupt::Wait | Interrupt::Now => {}
        }
        None
    }

    fn abort(&mut self) {
        let session = self.watch.session().to_owned();
        self.requests.spawn(ask::abort(self.watch.client(), session));
    }

    /// Takes an event and those that are there already. True: the session was deleted.
    fn events(&mut self, first: Event) -> anyhow::Result<bool> {
        let mut next = Some(first);
        while let Some(event) = next {
            let is_last = event.name == "session_deleted";
            let counted = match &mut self.gate {
                Some(gate) => gate.pass(event),
                None => vec![event],
            };
            counted.iter().try_for_each(|event| self.event(event))?;
            if is_last {
                return Ok(true);
            }
            let is_over = self.course.as_ref().is_some_and(|course| course.is_over(Instant::now()));
            next = match is_over || PIECE_BYTES <= self.screen.len() {
                true => None,
                false => self.watch.try_recv(),
            };
        }
        // Only now: a turn whose end is there already is not aborted, and nobody else's instead of it.
        if self.course.as_mut().is_some_and(|course| course.aborts(Instant::now())) {
            self.abort();
        }
        Ok(false)
    }

    fn event(&mut self, event: &Event) -> anyhow::Result<()> {
        if self.screen.is_json() {
            self.screen.line(event)?;
            if self.course.is_none() {
                return Ok(());
            }
        }
        let data = event.data.as_deref().map_or("null", RawValue::get);
        // JSON that nests too deep is not for people either.
        let data: Value = serde_json::from_str(data).unwrap_or(Value::Null);
        let name = event.name.as_str();
        if let Some(course) = &mut self.course {
            course.happened(name, &data, Instant::now());
        }
        match name {
            "agent_start" => self.is_at_work = true,
            "agent_end" => (self.is_at_work, self.is_thinking) = (false, false),
            _ => {}
        }
        if self.screen.is_json() || self.is_of_the_desk(name, &data) {
            return Ok(());
        }
        let before = self.screen.len();
        self.screen.event(name, &data);
        self.is_thinking &= self.screen.len() == before;
        Ok(())
    }

    /// Whether an event is about a question that is asked here, and not just told.
    fn is_of_the_desk(&mut self, name: &str, data: &Value) -> bool {
        let Some(desk) = &mut self.desk else { return false };
        match name {
            "extension_ui_request" => {
                let Some(question) = Question::read(data) else { return false };
                if desk.open(question) {
                    self.ask();
                }
            }
            "extension_ui_closed" => {
                let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
                let asked = desk.current().is_some_and(|question| question.is(text("id")));
                // Ours is the answer if it is not asked here any more.
                if desk.close(text("id")) {
                    self.screen.remark(match text("reason") {
                        "answered" => "somebody else has answered",
                        "timeout" => "there was no answer in time",
                        _ => "this is no longer asked",
                    });
                }
                if asked {
                    self.ask();
                }
            }
            _ => return false,
        }
        true
    }

    /// Asks the next question, if there is one.
    fn ask(&mut self) {
        let Some(question) = self.desk.as_ref().and_then(Desk::current) else { return };
        typed::forget();
        self.screen.question(&question.lines());
        self.typed.get_or_insert_with(typed::read);
        self.is_thinking = false;
    }

    fn was_typed(&mut self, typed: &Typed) -> Option<Exit> {
        if matches!(typed, Typed::Line(_)) {
            self.screen.footer_ended();
        }
        let means = self.desk.as_mut().map_or(Means::Nothing, |desk| desk.take(typed));
        match (means, typed) {
            (Means::Answer(answer), _) => {
                self.requests.spawn(ask::answer(
                    self.watch.client(),
                    self.watch.session().to_owned(),
                    *answer,
                ));
                self.ask();
            }
            (Means::Again(hint), _) => self.screen.remark(hint),
            (Means::More, _) => {}
            (Means::Nothing, _) if self.typing != Typing::Speaks => {}
            (Means::Nothing, Typed::End) => return Some(Exit::Ok),
            (Means::Nothing, Typed::Line(line)) if line.trim().is_empty() => {}
            (Means::Nothing, Typed::Line(line)) => {
                self.say(line.trim().to_owned(), ask::SAY_LIMIT);
                self.is_thinking = true;
            }
        }
        None
    }

    fn done(&mut self, done: Done, now: Instant) -> anyhow::Result<()> {
        match (done, &mut self.course) {
            (Done::Said(answer), Some(course)) => {
                let counted = match (&answer, &mut self.gate) {
                    (Ok(seq), Some(gate)) => gate.accepted(*seq),
                    (Err(ClientError::Disconnected), Some(gate)) => gate.accepted(None),
                    (Err(_), Some(gate)) => gate.refused(),
                    (_, None) => Vec::new(),
                };
                course.answered(answer.map(drop), now);
                counted.iter().try_for_each(|event| self.event(event))?;
                if self.course.as_mut().is_some_and(|course| course.aborts(Instant::now())) {
                    self.abort();
                }
            }
            (Done::Said(answer), None) => {
                if let Err(error) = answer {
                    self.is_thinking = false;
                    self.screen.failure(&error.to_string());
                }
            }
            (Done::Looked { busy, streams }, Some(course)) => course.looked(busy, streams, now),
            (Done::Aborted, Some(course)) => course.aborted(now),
            (Done::Answered(Err(error)), _) => self.screen.failure(&error.to_string()),
            // The app with this key exists for macOS only.
            (Done::NoVoice, _) if cfg!(target_os = "macos") => self.screen.remark(ask::NO_VOICE),
            (
                Done::Answered(Ok(()))
                | Done::NoVoice
                | Done::Voice
                | Done::Aborted
                | Done::Looked { .. },
                _,
            ) => {}
        }
        Ok(())
    }

    /// The connection has ended: finds the daemon again, or the next one.
    async fn reconnect(&mut self) -> anyhow::Result<()> {
        match self.watch.client().why_closed() {
            // What is no daemon of ours does not become one by asking again.
            ClientError::Protocol(text) => return Err(ClientError::Protocol(text).into()),
            ClientError::Refused(why) => self.screen.remark(&why),
            _ => {}
        }
        self.screen.flush().await?;
        let again = self.watch.again(self.course.is_some()).await?;
        let is_complete = again.continues(&self.watch);
        self.watch = again;
        // What still waits for an answer is told again.
        if let Some(desk) = &mut self.desk {
            desk.clear();
        }
        self.is_thinking = false;
        if is_complete {
            self.screen.remark("reconnected");
        } else {
            self.is_at_work = false;
            self.screen.forget();
            if let Some(gate) = &mut self.gate {
                gate.lost();
            }
            self.screen.remark("reconnected; some events were lost");
        }
        Ok(())
    }

    /// What stands on the last line of a terminal.
    fn footer(&self) -> &'static str {
        let Some(desk) = &self.desk else { return "" };
        match desk.current() {
            Some(question) => question.prompt(),
            None if self.is_thinking => THINKING,
            None if self.typing == Typing::Speaks && !self.is_at_work => SPEAK,
            None => "",
        }
    }
}

/// What comes next, if something may. Cancel-safe.
async fn next<T>(from: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match from {
        Some(from) => from.recv().await,
        None => None,
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
