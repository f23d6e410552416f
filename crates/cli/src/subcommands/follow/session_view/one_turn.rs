//! The part of the view that sends one prompt and waits for its turn, for `quack say`.

use super::super::changed_files::FileChanges;
use super::super::requests::{Prompt, SAY_LIMIT};
use super::super::turn_filter::TurnFilter;
use super::super::turn_result::TurnResult;
use super::super::turn_tracker::TurnTracker;
use super::{Interrupts, SessionView};
use crate::display;
use quackd_protocol::denial::quoted;
use serde_json::json;
use std::io;
use std::time::{Duration, Instant};

impl SessionView {
    /// Sends a prompt and ends the view after its turn, or at `deadline`. `result` gets the end.
    pub(crate) fn say_once(
        &mut self,
        prompt: Prompt,
        deadline: Instant,
        result: Option<TurnResult>,
    ) {
        let now = Instant::now();

        // The app's history does not contain prompts of other clients.
        self.history = None;
        let session = quoted(&display::name(&self.connection.label));
        self.tracker = Some(TurnTracker::new(session, now, deadline));
        self.filter = Some(TurnFilter::default());
        self.result = result;
        self.send(prompt, deadline.saturating_duration_since(now));
    }

    /// Sends a message that the user typed. The reply arrives as a result of the request.
    pub(super) fn say(&mut self, message: String) {
        self.send(Prompt { message, ..Prompt::default() }, SAY_LIMIT);
        self.is_thinking = true;
    }

    fn send(&mut self, prompt: Prompt, limit: Duration) {
        self.screen.typed(&prompt.message);
        self.requests.spawn(self.connection.target().say(prompt, limit));
    }

    /// Adds what the turn has done to files of the workspace to its result.
    pub(super) async fn compare_files(&self, result: &mut TurnResult, interrupts: &mut Interrupts) {
        let Some(before) = result.files_before() else { return };
        let session = self.connection.session().to_owned();
        let changes = tokio::select! {
            // Ctrl-C ends the comparison, because each of its searches may take 40 s.
            biased;
            _ = interrupts.next() => FileChanges {
                error: Some("interrupted".to_owned()), ..FileChanges::default()
            },
            changes = before.changes(self.connection.client(), session) => changes,
        };
        result.compared(changes);
    }

    /// Ends the wait, because the running turn of another client has the prompt: there is no turn to wait for.
    pub(super) fn was_queued(&mut self, now: Instant) -> io::Result<()> {
        if let Some(filter) = &mut self.filter {
            filter.refused();
        }

        if let Some(tracker) = &mut self.tracker {
            tracker.queued(now);
        }

        if self.output.is_json() {
            let session = self.connection.session();
            self.output.first_line(&json!({"sessionId": session, "disposition": "queued"}))?;
        } else {
            self.screen.remark("queued: the running turn reads it; `quack follow` shows it");
        }
        Ok(())
    }
}
