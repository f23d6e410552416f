//! Asks questions about denied operations at this terminal, while a subcommand waits. Used by `quack tool` and
//! `quack approvals --watch`.
//!
//! Has its own connection, which watches the questions. [`Asking`] prints them and reads the answers.

use crate::connect::start_and_connect;
use crate::display::plain;
use crate::output::CliOutput;
use crate::platform::notification;
use crate::run_program;
use crate::subcommands::follow::asking::{Asking, Typed};
use quackd_client::{Client, Event, Events};
use quackd_protocol::approval::{ApprovalClosed, ApprovalRequest};
use quackd_protocol::client::{ApprovalsParams, PendingApproval, UiResponseParams};
use serde_json::Value;

/// Whether the user can be asked here.
pub(crate) fn is_possible(output: CliOutput) -> bool {
    CliOutput::can_ask() && !output.is_json()
}

/// The subcommand that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskedBy {
    /// `quack tool`, which holds back the output of its call while it asks.
    Call,
    /// `quack approvals --watch`, with or without notifications of the desktop.
    Watch { notifies: bool },
}

/// Asks questions.
#[derive(Debug)]
pub(crate) struct Prompter {
    client: Client,
    events: Events,
    notifies: bool,
    asking: Asking,
    output: CliOutput,
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
        by: AskedBy,
        output: CliOutput,
    ) -> anyhow::Result<Self> {
        // Its own connection: the caller's one waits for its call.
        let client = start_and_connect(output).await?.client;
        // Before the request, so that no event is missed.
        let events = client.events().await?;
        let params = ApprovalsParams { watch: Some(true), session_id };
        let data = client.call(params).await?;

        // Another program may print on this terminal, such as a reader of this one's output.
        let is_alone = by == AskedBy::Call && output.audience().is_terminal;
        let asking = Asking::new(!is_alone, output);
        let notifies = by == AskedBy::Watch { notifies: true };
        Ok(Self { client, events, notifies, asking, output, open: data.pending })
    }

    /// Asks until the connection to the daemon ends. Cancel-safe.
    pub(crate) async fn run(mut self) {
        for open in std::mem::take(&mut self.open) {
            let request = serde_json::to_value(&open.request);
            self.opened(&request.unwrap_or(Value::Null));
        }

        loop {
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(event) => self.event(&event),
                    None => return,
                },
                typed = self.asking.next() => if let Typed::Answer(answer, record) = typed {
                    self.answer(*answer, record).await;
                }
            }
        }
    }

    fn event(&mut self, event: &Event) {
        let data = event.data.as_deref().map_or("null", serde_json::value::RawValue::get);
        let data: Value = serde_json::from_str(data).unwrap_or(Value::Null);

        match event.name.as_str() {
            ApprovalRequest::NAME => self.opened(&data),
            ApprovalClosed::NAME => {
                if let Some(remark) = self.asking.closed(&data) {
                    self.output.note(&format!("-- {remark} --"));
                }
            }
            _ => {}
        }
    }

    fn opened(&mut self, data: &Value) {
        if self.notifies
            && let Ok(request) = serde_json::from_value(data.clone())
        {
            notify(&request);
        }
        self.asking.opened(data);
    }

    async fn answer(&mut self, answer: UiResponseParams, record: Option<String>) {
        let sent = self.client.call(answer).await;
        match (sent, record) {
            (Err(error), _) => self.output.warning(&error.to_string()),
            (Ok(_), Some(record)) => self.output.note(&format!("-- {record} --")),
            (Ok(_), None) => {}
        }
    }
}

/// Shows a question as a notification of the desktop. Without the program, nothing is shown.
pub(crate) fn notify(request: &ApprovalRequest) {
    let words = notification(&plain(&request.title), &lines(&request.message));
    // The question is also printed: a notification that fails is not reported.
    drop(tokio::spawn(async move { run_program::ask(&words).await.ok() }));
}

/// Returns a message without control characters except for its line ends. The first character is no `-` and no `@`.
fn lines(message: &str) -> String {
    let text = message.split('\n').map(plain).collect::<Vec<_>>().join("\n");
    if text.starts_with(['-', '@']) { format!(" {text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_is_text_without_options() {
        let message = "--icon=x connects to a:443\ncommand \"<a href='x'>&\\074b\\076\u{1b}[31m\"";
        assert_eq!(
            lines(message),
            " --icon=x connects to a:443\ncommand \"<a href='x'>&\\074b\\076\u{fffd}[31m\""
        );
    }
}
