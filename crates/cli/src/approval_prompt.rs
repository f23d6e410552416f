//! Asks questions about denied operations at this terminal, while a subcommand waits. Used by `quack tool` and
//! `quack approvals --watch`.
//!
//! Has its own connection, which watches the questions. Prints on stderr and reads lines from stdin.

use crate::connect::{REPLY_TIMEOUT, start_and_connect};
use crate::output::CliOutput;
use crate::subcommands::approvals::notify;
use crate::subcommands::follow::question_queue::{InputResult, Question, QuestionQueue};
use crate::subcommands::follow::stdin_lines::{self, StdinLine};
use quackd_client::{Client, Event, Events};
use quackd_protocol::approval::{ApprovalClosed, ApprovalRequest};
use quackd_protocol::client::{
    ApprovalsData, ApprovalsParams, PendingApproval, UiResponseData, UiResponseParams,
};
use serde_json::Value;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Time after a question appears in which typed lines do not count: they were meant for something else.
pub(crate) const SETTLE: Duration = Duration::from_millis(400);

/// Whether the user can be asked here.
pub(crate) fn is_possible(output: CliOutput) -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal() && !output.is_json()
}

/// Asks questions.
#[derive(Debug)]
pub(crate) struct Prompter {
    client: Client,
    events: Events,
    notifies: bool,
    questions: QuestionQueue,
    asked: Instant,
    typed: Option<mpsc::Receiver<StdinLine>>,
    /// Questions that were open at the start.
    open: Vec<PendingApproval>,
}

impl Prompter {
    /// Starts to watch the questions of a session, or of all. From here on this client counts as one that can answer.
    ///
    /// # Errors
    /// Those of the connection.
    pub(crate) async fn start(
        session_id: Option<String>,
        notifies: bool,
        output: CliOutput,
    ) -> anyhow::Result<Self> {
        let client = start_and_connect(output).await?.client;
        let events = client.events().await?;
        let params = ApprovalsParams { watch: Some(true), session_id };
        let data: ApprovalsData = client.request("quack.approvals", params, REPLY_TIMEOUT).await?;
        let (questions, asked, typed) = (QuestionQueue::default(), Instant::now(), None);
        Ok(Self { client, events, notifies, questions, asked, typed, open: data.pending })
    }

    /// Asks until the connection to the daemon ends. Cancel-safe.
    pub(crate) async fn run(mut self, output: CliOutput) {
        for open in std::mem::take(&mut self.open) {
            let request = serde_json::to_value(&open.request);
            self.open(&request.unwrap_or(Value::Null), output);
        }
        loop {
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(event) => self.event(&event, output),
                    None => return,
                },
                Some(line) = next(&mut self.typed) => self.typed(&line, output).await,
            }
        }
    }

    fn event(&mut self, event: &Event, output: CliOutput) {
        let data = event.data.as_deref().map_or("null", serde_json::value::RawValue::get);
        let data: Value = serde_json::from_str(data).unwrap_or(Value::Null);
        match event.name.as_str() {
            ApprovalRequest::NAME => self.open(&data, output),
            ApprovalClosed::NAME => {
                let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
                let was_asked = self.questions.current().is_some_and(|open| open.is(text("id")));
                if self.questions.close(text("id")) {
                    output.note(match text("reason") {
                        "answered" => "another client has answered",
                        "timeout" => "there was no answer in time",
                        _ => "the question was withdrawn",
                    });
                }
                if was_asked {
                    self.ask(output);
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, data: &Value, output: CliOutput) {
        if self.notifies
            && let Ok(request) = serde_json::from_value(data.clone())
        {
            notify(&request);
        }
        let Some(question) = Question::read(data) else { return };
        if self.questions.open(question) {
            self.ask(output);
        }
    }

    /// Asks the current question.
    fn ask(&mut self, output: CliOutput) {
        if self.questions.current().is_some() {
            stdin_lines::forget();
            self.show(output);
            self.asked = Instant::now();
            self.typed.get_or_insert_with(stdin_lines::read);
        }
    }

    fn show(&self, output: CliOutput) {
        let Some(question) = self.questions.current() else { return };
        let mut lines = question.lines();
        lines.push(question.prompt().to_owned());
        output.question(&lines);
    }

    async fn typed(&mut self, line: &StdinLine, output: CliOutput) {
        if self.questions.current().is_none() {
            return;
        }
        if self.asked.elapsed() < SETTLE {
            // Typed before the user can have read the question.
            return self.show(output);
        }
        match self.questions.take(line) {
            InputResult::Answer(answer) => {
                let answer = UiResponseParams::clone(&answer);
                let sent: Result<UiResponseData, _> =
                    self.client.request("extension_ui_response", answer, REPLY_TIMEOUT).await;
                if let Err(error) = sent {
                    output.warning(&error.to_string());
                }
                self.ask(output);
            }
            InputResult::Again(hint) => {
                output.note(hint);
                self.ask(output);
            }
            InputResult::More | InputResult::Nothing => {}
        }
    }
}

async fn next(from: &mut Option<mpsc::Receiver<StdinLine>>) -> Option<StdinLine> {
    match from {
        Some(from) => from.recv().await,
        None => std::future::pending().await,
    }
}
